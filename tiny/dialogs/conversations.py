"""Owns conversations: turns of users, calls, results and answers, as rows of a chat dataset."""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random
from typing import Any

from tiny.dialogs import talk
from tiny.dialogs.declared import JsonObject
from tiny.dialogs.phrases import say
from tiny.dialogs.shapes import shaped
from tiny.dialogs.tools import Call, Offered, ask, asked_of, invented, offer
from tiny.dialogs.topics import MORE, TOPICS, Topic

ACK = ("One moment.", "稍等。")
NO_TOOL = ("I have no tool for that.", "我没有能做这件事的工具。")
_JOINT = ("\n", "\n")
_SYSTEMS = (
    "You are a helpful assistant.",
    "You are a [friendly|helpful|polite|brief] [assistant|agent|bot].",
    "Answer [briefly|shortly|in one sentence].",
    "You [can|may] use tools.",
    "Use [the|your] tools [when|if] they help.",
    "You are a tiny model. [Be brief.|Use the tools.|]",
    "You help people [at home|in an office|with their phone|every day].",
    "[Be kind.|Be polite.] [Call tools when needed.|]",
    "",
)
_SYSTEMS_ZH = ("你是一个[有用的|友好的|]助手。", "请[简短|用中文]回答。", "[需要时|可以]使用工具。")
_FRONT = (
    "Hi! ",
    "Hello, ",
    "Hey, ",
    "Please ",
    "Quick question: ",
    "Sorry, ",
    "Hi, ",
    "Now ",
    "And ",
    "Also, ",
    "Ok, ",
    "I have a question: ",
    "Well, ",
    "So, ",
    "Listen, ",
    "Yes, ",
    "Thanks, ",
    "Good morning, ",
    "Hello! ",
    "One more thing: ",
    "Next: ",
    "Alright, ",
    "By the way, ",
)
_BACK = (
    " Thanks!",
    " Thank you.",
    " Thanks.",
    " please",
    " It is urgent.",
    " I am curious.",
    " :)",
    "!",
    " ASAP",
    " Ok?",
    " That is all.",
    " Cheers.",
    " thx",
    "...",
)


_JOINTS = (
    " and ",
    " and ",
    ", and ",
    "? And ",
    ", then ",
    ". also, ",
    "; ",
    " and then ",
    ". After that, ",
    ". Then ",
    " plus ",
    ". And ",
    ", also ",
    ". Besides, ",
    " & ",
)
_JOINTS_ZH = ("，", "。", "，还有", "，然后", "，再", "；")


class Dialog:
    """One conversation while it is made."""

    def __init__(self, random: Random, *, held: bool = False, zh: bool | None = None) -> None:
        self.random, self.held = random, held
        self.zh = random.random() < 0.25 if zh is None else zh
        self.thinks = random.random() < 0.25
        self.messages: list[JsonObject] = []
        self._known = asked_of((*TOPICS, *MORE), self.zh)
        self.tools = self._offers()
        self._calls = 0

    def _offers(self) -> list[Offered]:
        random = self.random
        count = random.choice((0, 1, 1, 1, 2, 2, 3, 3, 4, 5, 6, 8))
        topics = _drawn(random, count)
        if self.zh and topics and random.random() < 0.8:
            topics[0] = random.choice(asked_of(TOPICS if random.random() < 0.5 else MORE, self.zh))
        offered: dict[str, Offered] = {}
        for topic in topics:
            made = random.random() < 0.4
            tool = offer(_made(random, self.zh) if made else topic, random)
            offered[tool.name] = tool
        found = list(offered.values())
        random.shuffle(found)
        return found

    def row(self) -> JsonObject:
        """The conversation as a row."""
        row: JsonObject = {"messages": self.messages}
        if self.tools:
            row["tools"] = [tool.declared for tool in self.tools]
        return row

    # Turns.

    def system(self) -> None:
        if self.random.random() < 0.7:
            text = say(self.random.choice(_SYSTEMS_ZH if self.zh else _SYSTEMS), {}, self.random)
            if text:
                self.messages.append({"role": "system", "content": text})

    def user(self, text: str, calls: Sequence[Call] = ()) -> None:
        """What the user says. A value of a call that it begins with stays as it is."""
        random = self.random
        values = [str(value) for call in calls for value in json.loads(call.arguments).values()]
        if not self.zh:
            if random.random() < 0.2:
                text = random.choice(_FRONT) + text
            if random.random() < 0.15:
                text += random.choice(_BACK)
            if random.random() < 0.6 and not text.startswith(tuple(values)):
                text = text[:1].upper() + text[1:]
        self.messages.append({"role": "user", "content": text})

    def answer(self, text: str, thought: str) -> None:
        self.messages.append(self._thinking(thought) | {"role": "assistant", "content": text})

    def _thinking(self, thought: str) -> JsonObject:
        return {"reasoning_content": thought} if self.thinks else {}

    def call(self, calls: list[Call]) -> None:
        """A turn that calls, the results, and the turn that tells them."""
        named = []
        for one in calls:
            self._calls += 1
            function = {"name": one.tool.name, "arguments": one.arguments}
            named.append({"id": f"call_{self._calls}", "type": "function", "function": function})
        names = " and ".join(dict.fromkeys(one.tool.name for one in calls))
        thought = f"需要调用 {names}。" if self.zh else f"I should call {names}."
        said = ACK[self.zh] if self.random.random() < 0.96 else None
        self.messages.append({**self._thinking(thought), "role": "assistant", "content": said, "tool_calls": named})
        for one, sent in zip(calls, named, strict=True):
            self.messages.append({"role": "tool", "tool_call_id": sent["id"], "content": one.result})
        answer = _JOINT[self.zh].join(one.answer for one in calls)
        self.answer(answer, "有结果了。" if self.zh else "The results are here.")

    # What may happen.

    def ask_tool(self, *, several: bool = False) -> bool:
        """A request that a tool can serve; False where no tool is offered that can be asked in this language."""
        able = [tool for tool in self.tools if tool.topic.asks_zh or not self.zh]
        if several:
            able = [tool for tool in able if tool.topic.several]
        if not able:
            return False
        text, calls = ask(self.random.choice(able), self.random, zh=self.zh, held=self.held, several=several)
        self.user(text, calls)
        self.call(calls)
        return True

    def ask_two(self) -> bool:
        """Two requests in one message."""
        able = [tool for tool in self.tools if tool.topic.asks_zh or not self.zh]
        if len(able) < 2:
            return False
        texts, calls = [], []
        for tool in self.random.sample(able, 2):
            text, made = ask(tool, self.random, zh=self.zh, held=self.held, several=False)
            texts.append(text)
            calls += made
        first = texts[0].rstrip(".?!。？，")
        joint = self.random.choice(_JOINTS_ZH) if self.zh else self.random.choice(_JOINTS)
        self.user(first + joint + texts[1], calls)
        self.call(calls)
        return True

    def ask_in_vain(self) -> bool:
        """A request that no tool can serve."""
        random, offered = self.random, {tool.topic.name for tool in self.tools}
        if not self.zh and random.random() < 0.25:
            wanted = _made(random, self.zh)
        else:
            others = [topic for topic in self._known if topic.name not in offered]
            kinds = {one.kind for tool in self.tools for one in tool.topic.parameters}
            near = [topic for topic in others if any(one.kind in kinds for one in topic.parameters)]
            wanted = random.choice(near if near and random.random() < 0.5 else others)
        text, _ = ask(offer(wanted, random), random, zh=self.zh, held=self.held, several=False)
        self.user(text)
        self.answer(NO_TOOL[self.zh], "没有合适的工具。" if self.zh else "No tool can do this.")
        return True

    def chat(self) -> bool:
        random = self.random
        kind = random.random()
        if kind < 0.15:
            turns = talk.naming(random, self.zh, self.held)
        elif kind < 0.3 and not self.zh:
            turns = [talk.recalling(random, self.held)]
        elif kind < 0.6:
            turns = [talk.saying(random, self.zh, self.held)]
        else:
            turns = [talk.fixed(random, self.zh)]
        for asked, answered in turns:
            self.user(asked)
            self.answer(answered, "不需要工具。" if self.zh else "No tool is needed.")
        return True

    def exchange(self) -> None:
        """Whatever happens next."""
        kind = self.random.random()
        done = (
            (kind < 0.5 and self.ask_tool())
            or (kind < 0.64 and self.ask_tool(several=True))
            or (kind < 0.77 and self.ask_two())
            or (kind < 0.88 and self.ask_in_vain())
        )
        if not done:
            self.chat()


def _drawn(random: Random, count: int) -> list[Topic]:
    """Different topics, as often one of many wordings as one of few."""
    found: dict[str, Topic] = {}
    while len(found) < count:
        topic = random.choice(TOPICS if random.random() < 0.5 else MORE)
        found[topic.name] = topic
    return list(found.values())


def _made(random: Random, zh: bool) -> Topic:
    """A tool that only one conversation has."""
    return invented(random) if zh or random.random() < 0.45 else shaped(random)


def conversation(random: Random, *, held: bool = False) -> JsonObject:
    """A conversation of one to four exchanges."""
    dialog = Dialog(random, held=held)
    dialog.system()
    for _ in range(random.choice((1, 1, 2, 2, 3, 4))):
        dialog.exchange()
    return dialog.row()


def line(row: JsonObject, random: Random) -> str:
    """A row as JSON, spaced as one of the programs that write such would."""
    compact: Any = random.choice(((",", ":"), (", ", ": ")))
    return json.dumps(row, ensure_ascii=False, separators=compact)
