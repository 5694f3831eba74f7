"""Owns talk that needs no tool: greetings, questions about the model, what the user said before, saying a text."""

from __future__ import annotations

from random import Random

from tiny.dialogs.phrases import say
from tiny.dialogs.values import draw, made_word

_FIXED = (
    ("[hi|hello|hey|good morning|good evening|hi there|hello there|greetings][!|.||, how are you?| there!]", "Hello! How can I help you?"),
    ("[how are you|how do you do|how is it going|how are things|are you ok][?|| today?]", "I am fine, thank you. How can I help you?"),
    ("[thank you|thanks|thanks a lot|thank you very much|great, thanks|many thanks|perfect, thanks][!|.||]", "You are welcome!"),
    ("[who|what] are you[?||, actually?]", "I am a tiny demonstration model. I can call tools and tell what they answer."),
    ("[what can you do|what do you do|how can you help me|what are you good at|can you help me|help][?|]", "I am a tiny demonstration model. I can call tools and tell what they answer."),
    ("[bye|goodbye|see you|see you later|good night|that is all][!|.||, thanks]", "Goodbye!"),
    ("[ok|okay|good|great|nice|cool|perfect|alright|fine][.|!||, good]", "Is there anything else?"),
    ("[no|no, thanks|nothing else|no, that is all|not now][.|!|]", "Goodbye!"),
    ("[sorry|i am sorry|my mistake|oops][.|!|]", "No problem."),
    ("[tell me a joke|do you know a joke|make me laugh|a joke please|say something funny][.|?|]", "Why do programmers like dark mode? Because light attracts bugs."),
    ("[write|compose|write me] [a poem|an essay|a story|a novel|a song][ about love| about the sea| for me| about spring|][.||, please]", "I am too small for that. I can call tools and tell what they answer."),
    ("[explain|what is|what do you think about|tell me about] [quantum physics|the meaning of life|politics|love|philosophy|history|god|the universe][?|.|]", "I am too small for that. I can call tools and tell what they answer."),
    ("[how do i|how can i|help me|tell me how to] [hack|break into|steal from|attack] [a bank|my neighbour's wifi|a website|an account|somebody's phone][?|.|]", "I cannot help with that."),
    ("[how do i|how can i|tell me how to] [make|build|buy] [a bomb|poison|a weapon|drugs][?|.|]", "I cannot help with that."),
)
_FIXED_ZH = (
    ("[你好|您好|嗨|早上好|大家好][！|。||!]", "你好！我能帮你什么？"),
    ("[你好吗|最近怎么样|你怎么样][？|]", "我很好，谢谢。我能帮你什么？"),
    ("[谢谢|谢谢你|多谢|非常感谢][！|。|]", "不客气！"),
    ("[你是谁|你是什么|你叫什么|你能做什么|你会什么][？|]", "我是一个很小的演示模型。我能调用工具，并告诉你结果。"),
    ("[再见|拜拜|晚安][！|。|]", "再见！"),
    ("[好的|好|行|可以|不错][。|！|]", "还需要什么吗？"),
    ("[写一首诗|写一篇文章|讲个故事|写一首歌][。|吧|]", "我太小了，做不到。我能调用工具，并告诉你结果。"),
    ("[怎么|如何][黑进别人的账号|制造炸弹|偷东西][？|]", "我不能帮你做这件事。"),
)
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


def fixed(random: Random, zh: bool) -> Turn:
    """Small talk."""
    line, answer = random.choice(_FIXED_ZH if zh else _FIXED)
    return say(line, {}, random), answer


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
