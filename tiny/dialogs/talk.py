"""Owns talk that needs no tool: greetings, questions about the model, what the user said before, saying a text."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from random import Random

from tiny.dialogs.phrases import say
from tiny.dialogs.values import draw, made_word

_TALK = Path(__file__).with_name("texts") / "talk.txt"
_SELF = "I am a tiny demonstration model. I can call tools and tell what they answer."
_SMALL = "I am too small for that. I can call tools and tell what they answer."
_ANSWERS = {
    "hello": "Hello! How can I help you?",
    "how_are_you": "I am fine, thank you. How can I help you?",
    "thanks": "You are welcome!",
    "who_are_you": _SELF,
    "what_can_you_do": _SELF,
    "bye": "Goodbye!",
    "fine": "Is there anything else?",
    "no_thanks": "Goodbye!",
    "sorry": "No problem.",
    "joke": "Why do programmers like dark mode? Because light attracts bugs.",
    "poem": _SMALL,
    "explain": _SMALL,
    "crime": "I cannot help with that.",
    "weapon": "I cannot help with that.",
}
_ANSWERS_ZH = {
    "hello_zh": "你好！我能帮你什么？",
    "how_are_you_zh": "我很好，谢谢。我能帮你什么？",
    "thanks_zh": "不客气！",
    "who_are_you_zh": "我是一个很小的演示模型。我能调用工具，并告诉你结果。",
    "bye_zh": "再见！",
    "fine_zh": "还需要什么吗？",
    "poem_zh": "我太小了，做不到。我能调用工具，并告诉你结果。",
    "crime_zh": "我不能帮你做这件事。",
}
_SAY = (
    '[say|repeat|write|answer with|reply with|print|echo|just say|please say] "{text}"[.|| please]',
    "[repeat after me|say this|say exactly|echo this|repeat]: {text}",
)
_SAY_ZH = ("[说|重复|请说|跟我说][：|]“{text}”[。|]",)
_NAMED = ("[my name is|i am|i'm|call me|this is] {name}[.|!||, nice to meet you]", "[我叫|我是|我的名字是]{name}[。|]")
_NAME_SAID = ("Nice to meet you, {name}!", "很高兴认识你，{name}！")
_WHO_AM_I = ("[what is my name|what's my name|who am i|do you know my name|do you remember my name|how am i called][?|]", "[我叫什么|我是谁|你知道我的名字吗][？|]")
_YOUR_NAME = ("Your name is {name}.", "你叫{name}。")

_RECALL = (
    "{facts}. [what is|what's|tell me|give me|and] {name}[?|.|]",
    "[what is|tell me] {name} if {facts}[?|.|]",
    "[given that|knowing that|suppose] {facts}[,|:] [what is|give me|which value has] {name}[?|.|]",
)

Turn = tuple[str, str]
"""What the user says, and the answer."""


@cache
def talked(name: str) -> tuple[str, ...]:
    """The lines of `texts/talk.txt` that have one answer: the plainest first."""
    _, _, block = f"\n{_TALK.read_text(encoding='utf-8')}".partition(f"\n# {name}\n")
    return tuple(block.partition("\n# ")[0].splitlines())


def fixed(random: Random, zh: bool) -> Turn:
    """Small talk."""
    name, answer = random.choice(list((_ANSWERS_ZH if zh else _ANSWERS).items()))
    lines = talked(name)
    return say(lines[0] if random.random() < 0.2 else random.choice(lines), {}, random), answer


def saying(random: Random, zh: bool, held: bool) -> Turn:
    """A text that is to be said."""
    text = draw("phrase", random, zh=zh, held=held)
    return say(random.choice(_SAY_ZH if zh else _SAY), {"text": text}, random), text


def recalling(random: Random, held: bool) -> Turn:
    """A list of facts, and one of them asked for."""
    names = list({made_word(random): None for _ in range(random.randint(2, 6))})
    facts = {name: draw(random.choice(("word", "number", "code", "label", "phrase")), random, held=held) for name in names}
    joint = random.choice((" is ", ": ", " = "))
    told = random.choice(("; ", ", ", ". ")).join(f"{name}{joint}{value}" for name, value in facts.items())
    wanted = random.choice(names)
    return say(random.choice(_RECALL), {"facts": told, "name": wanted}, random), facts[wanted]


def naming(random: Random, zh: bool, held: bool) -> list[Turn]:
    """The user's name, and later the question for it."""
    slots = {"name": draw("person", random, zh=zh, held=held)}
    if slots["name"].startswith("my "):
        slots["name"] = "Robin"
    first = say(_NAMED[zh], slots, random), say(_NAME_SAID[zh], slots, random)
    return [first, (say(_WHO_AM_I[zh], slots, random), say(_YOUR_NAME[zh], slots, random))]
