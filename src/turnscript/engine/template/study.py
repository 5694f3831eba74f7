"""Owns the study of a template: what it takes, how its turns of the model open and end, and what it can be told.

Nothing of it is listed by model: small conversations are rendered, and what they have in common is looked at.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import Struct

from turnscript.engine.template.marks import mark, split
from turnscript.engine.template.messages import Manner, Message
from turnscript.engine.template.program import TemplateFailed, TemplateRefused

Run = Callable[..., str]
"""Renders messages: `Template.run`."""

USER, MORE, ANSWER, THOUGHT, RESULT, SYSTEM = "Quimberly", "Zanthor", "Velduria", "Morphandel", "Tessolate", "Wexford"
"""Contents of the probes: words that stand in no template, so that they are found in what it writes."""
_NAME, _KEY, _VALUE = "brindle", "quopple", "Ostravane"
_TOOL: Message = {
    "type": "function",
    "function": {
        "name": _NAME,
        "description": "Grizzelda",
        "parameters": {
            "type": "object",
            "properties": {_KEY: {"type": "string", "description": "Snorkelby"}},
            "required": [_KEY],
        },
    },
}
_GIVEN = frozenset({"messages", "tools", "documents", "add_generation_prompt"})
_BOTH = (True, False)
_EFFORTS = ("low", "medium", "high", "minimal", "none", "xhigh", "max")
_TAG = re.compile(r"<[^<>\s]+>|\[/?[A-Z_]+\]|<\|[^|]+\|>")

_UNCLOSED = re.compile(r"(?:<[^<>]*|\[/?[A-Z_]*)?\Z")
_THOUGHT = re.compile(r"<[^<>\s]*think[^<>\s]*>|<\|[^<>|]*think[^<>|]*\|>[^<]*|\[/?THINK\]", re.IGNORECASE)


_USUAL = Manner()
_MANNERS = (
    Manner(),
    Manner(null=False),
    Manner(arguments="text"),
    Manner(arguments="text", null=False),
)
_SPACES = ("\r\n", "\r", "\n\n\n", "\n\n", "\n", "\t")
_SIGNS = "\n<&{["
_SWITCH = re.compile(r"think|reason")
_DIAL = re.compile(r"effort|strength|level|budget|content|mode|keep|preserve|clear|history|trunc|prefix|format|style")
_NEGATED = re.compile(r"^(no|disable|skip|hide)_|_(off|disabled)$")
_EFFORT = re.compile(r"effort|(think|reason)\w*_(strength|level)")


class Switch(NamedTuple):
    """A variable by which a template is told whether to think."""

    variable: str
    on: Any
    off: Any


class Traits(Struct, frozen=True, kw_only=True):
    """What a template takes and how its turns look.

    `opening`: how a turn of the model begins, in prompts and behind; `behind` has what the template writes for that
    behind a content, by the role that said it. `heads`: what prompts open behind it, such as an empty thought, longer
    ones first, by whether there are instructions and tools. `ends`: what ends the model's turns, `tails`: what
    stands behind the last content of an answer at the end of all. `switches`, `effort`, `efforts`,
    `budget`: the variables by which it is told of thoughts. `thoughts`, `calls`, `results`, `tools`, `system`: what it
    shows. `local`: what it writes behind an answer depends on nothing far before it. `grows`: why a prompt may not
    begin the next one; empty if it does. `literals`: what stands around contents. `labels`: what opens turns without a
    tag, as rules of an escape.
    """

    manner: Manner = Manner()
    opening: str = ""
    behind: Mapping[str, str] = {}
    heads: Mapping[tuple[bool, bool], tuple[str, ...]] = {}
    ends: tuple[str, ...] = ()
    tails: tuple[str, ...] = ()
    switches: tuple[Switch, ...] = ()
    effort: str = ""
    efforts: tuple[str, ...] = ()
    budget: str = ""
    system: bool = True
    tools: bool = False
    calls: bool = False
    results: bool = False
    thoughts: bool = False
    local: bool = False
    grows: str = ""
    literals: tuple[str, ...] = ()
    labels: tuple[tuple[str, tuple[str, ...]], ...] = ()


def study(run: Run, variables: Iterable[str], tokens: Mapping[str, str]) -> Traits:
    """Find out what a template takes. `variables`: those that it reads. `tokens`: those that it is given, by name."""
    ends = tokens.get("eos_token", ""), tokens.get("bos_token", "")
    probe = _Probe(run)
    manner = probe.manner()
    told = {*variables} - _GIVEN - {*tokens}
    switches = probe.switches(sorted(told))
    opening, behind = probe.openings(switches)
    effort, efforts = probe.efforts(sorted(told))
    return Traits(
        manner=manner,
        opening=opening,
        behind=behind,
        heads={(told, tools): probe.heads(opening, behind, switches, told, tools) for told in _BOTH for tools in _BOTH},
        ends=probe.ends(*ends, opening),
        tails=probe.tails(),
        switches=switches,
        effort=effort,
        efforts=efforts,
        budget=next((name for name in sorted(told) if "budget" in name and probe.heeds(name, 512, 16)), ""),
        system=probe.shows([_system(), _user()], SYSTEM),
        tools=probe.shows([_user()], _NAME, tools=[_TOOL]),
        calls=probe.shows(probe.called(), _VALUE, tools=[_TOOL]),
        results=probe.shows([*probe.called(), _result()], RESULT, tools=[_TOOL]),
        thoughts=probe.shows_thoughts(switches),
        local=probe.is_local(),
        grows=probe.grows(opening),
        literals=probe.literals(switches),
        labels=tuple(probe.labels()),
    )


class _Probe:
    """Conversations made of a few words, and what a template writes of them; empty where it refuses one.

    A template that reaches a bound is none that anybody could use: its error goes on, and nothing more is tried.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self.manner_found = Manner()

    def render(self, messages: Sequence[Message], *, tools: Any = None, generation: bool = False, **told: Any) -> str:
        try:
            return self._run(messages, tools, generation=generation, told=told)
        except (TemplateFailed, TemplateRefused):
            return ""

    def shows(self, messages: Sequence[Message], word: str, *, tools: Any = None) -> bool:
        return word in self.render(messages, tools=tools)

    def shows_thoughts(self, switches: Sequence[Switch]) -> bool:
        """Return whether thoughts are shown anywhere: at the end, or while tools are at work."""
        told = {one.variable: one.on for one in switches}
        call = {**_answer(thought=True), **_answer(calls=1, manner=self.manner_found)}
        working = self.render([_user(), call, _result()], tools=[_TOOL], **told)
        return THOUGHT in working or THOUGHT in self.render([_user(), _answer(thought=True)], **told)

    def called(self, count: int = 1) -> list[Message]:
        return [_user(), _answer(calls=count, manner=self.manner_found)]

    def manner(self) -> Manner:
        """Find how arguments, several texts, and a message of calls alone are passed."""
        manner = next(
            (one for one in _MANNERS if self._writes_calls(one)),
            next((one for one in _MANNERS if self._takes(one)), _USUAL),
        )
        parts = self.render([{"role": "user", "content": [_part(USER), _part(MORE)]}])
        lists = USER in parts and MORE in parts and "'text'" not in parts and '"text"' not in parts
        self.manner_found = manner
        return Manner(
            names=self._takes_any_name(manner),
            rewritten=tuple(space for space in _SPACES if self._rewrites(space)),
            signs=self._signs(manner) if manner.arguments == "objects" else "",
            arguments=manner.arguments,
            lists=lists,
            null=manner.null,
        )

    def _takes(self, manner: Manner) -> bool:
        """Return whether a message of calls does no harm where a template has no place for calls."""
        text = self.render([_user(), _answer(calls=1, manner=manner)], tools=[_TOOL])
        return bool(text) and "None" not in text

    def _writes_calls(self, manner: Manner) -> bool:
        """Return whether calls come out as JSON or tags, and not as Python shows its values."""
        text = self.render([_user(), _answer(calls=1, manner=manner)], tools=[_TOOL])
        odd = (f"'{_KEY}': ", f'\\"{_KEY}\\"', "None")
        return _VALUE in text and not any(one in text for one in odd)

    def _rewrites(self, space: str) -> bool:
        text = self.render([_user(f"{USER}{space}{MORE}"), _answer()])
        return bool(text) and f"{USER}{space}{MORE}" not in text

    def _signs(self, manner: Manner) -> str:
        """Return the characters of an argument that change what stands around it."""
        usual = self.render([_user(), _answer(calls=1, manner=manner)], tools=[_TOOL])
        return "".join(one for one in _SIGNS if not self._is_blind(one, manner, usual))

    def _is_blind(self, sign: str, manner: Manner, usual: str) -> bool:
        odd = self.render([_user(), _answer(calls=1, manner=manner, value=mark(0, sign))], tools=[_TOOL])
        return not odd or "".join(one + _VALUE * (at >= 0) for one, at, _ in split(odd)) == usual

    def _takes_any_name(self, manner: Manner) -> bool:
        """Return whether the name of a called tool is only written, and not looked into."""
        answer = _answer(calls=1, manner=manner)
        usual = self.render([_user(), answer, _result()], tools=[_TOOL])
        odd = self.render([_user(), _renamed(answer, mark(0)), _result()], tools=[_TOOL])
        return bool(usual) and bool(odd) and "".join(one + _NAME * (at >= 0) for one, at, _ in split(odd)) == usual

    def openings(self, switches: Sequence[Switch]) -> tuple[str, dict[str, str]]:
        """Find how the model's turn opens: what prompts and the answers behind them begin with, all alike."""
        closed = _behind(self.render([_user()]), USER)
        behind = {"user": self._opening([_user()], USER, switches)}
        after = [*self.called(), _result()]
        behind["tool"] = self._opening(after, RESULT, switches, tools=[_TOOL])
        return behind["user"][len(_whole_tags(_common([closed, behind["user"]]))) :], behind

    def heads(
        self, opening: str, behind: Mapping[str, str], switches: Sequence[Switch], told: bool, tools: bool
    ) -> tuple[str, ...]:
        """Find what prompts open behind the opening of a turn, whatever they wish of thoughts.

        A wish that changes what stands before that is of no conversation that is there already.
        """
        wishes = [{}, *({one.variable: getattr(one, value) for one in switches} for value in ("on", "off"))]
        start = [_system()] if told else []
        before = [[*start, _user()], *([[*start, *self.called(), _result()]] if tools else [])]
        found: set[str] = set()
        for messages, word, role in zip(before, (USER, RESULT), ("user", "tool"), strict=False):
            usual, opens = None, opening or behind[role]
            for wish in wishes if opens else ():
                text = self.render(messages, tools=[_TOOL] if tools else None, generation=True, **wish)
                first, _, head = text.rpartition(opens)
                usual = first if usual is None else usual
                if first == usual and word not in head:
                    found.add(head)
        return tuple(sorted(filter(None, found), key=len, reverse=True))

    def _opening(self, before: list[Message], word: str, switches: Sequence[Switch], tools: Any = None) -> str:
        """Return what stands behind a content before all answers, whatever they begin with."""
        asked = _behind(self.render(before, tools=tools, generation=True), word)
        first = _TAG.search(asked)
        seen = [asked]
        for told in ({one.variable: value} for one in switches for value in (one.on, one.off)):
            text = _behind(self.render(before, tools=tools, generation=True, **told), word)
            # A template may tell it behind the question, as GLM has a word for it there.
            at = text.find(first[0]) - first.start() if first else text.find(asked)
            seen.append(text[max(at, 0) :])
        answers = [_answer(), _answer(thought=True)]
        if word == USER:
            answers.append(_answer(calls=1, manner=self.manner_found))
        for answer in answers:
            given = [_TOOL] if "tool_calls" in answer else tools
            for later in ([], [_user(MORE)]):
                text = _behind(self.render([*before, answer, *later], tools=given), word)
                seen.append(_up_to(text, (ANSWER, THOUGHT, _NAME, _VALUE)))
        return _whole_tags(_common([one for one in seen if one]))

    def ends(self, eos: str, bos: str, opening: str) -> tuple[str, ...]:
        """Find what ends the model's turns: the last tag behind an answer that is not of the turn behind it.

        One that stands inside a turn too, between a thought and the answer, ends nothing.
        """
        found: list[str] = []
        user = self.render([_user()])
        before_user = user[: user.rindex(USER)] if USER in user else ""
        text = self.render([_user(), _answer(), _user(MORE)])
        end = _between(text, ANSWER, MORE)
        # Where all turns begin with one tag, what stands before it is the end; else what no first turn begins with.
        first = next((tag for tag in _TAG.findall(before_user) if tag != bos), "")
        if first and end.find(first) > 0:
            end = end[: end.index(first)]
        else:
            end = _closed_tag(end, len(end) - len(_common_end(end, before_user)))
        last = _behind(self.render([_user(), _answer()]), ANSWER)
        whole = _TAG.findall(_between(text, ANSWER, MORE))
        if not end.strip() and len(whole) > 1:  # a turn of the user begins behind what ends all turns alike
            end = whole[0]
        for one in (eos if eos and eos in end else "", *reversed(_TAG.findall(end)), end.strip(), last.strip()):
            if one and not found:
                found.append(one)
        inner = _between(self.render([_user(), _answer(thought=True)]), THOUGHT, ANSWER)
        if opening and opening not in inner:
            found = [one for one in found if one not in inner]
        tags = _TAG.findall(last)
        found += [tag for tag in tags[-1:] if tag not in found and not any(one in tags for one in found)]
        call = [_user(), _answer(calls=1, manner=self.manner_found)]
        now, later = self.render(call, tools=[_TOOL]), self.render([*call, _result()], tools=[_TOOL])
        tail = _common([_behind(now, _VALUE), _between(later, _VALUE, RESULT)])
        tags = [tag for tag in _TAG.findall(tail) if not tag.startswith("</")]
        if (
            tags
            and tail.rstrip().endswith(tags[-1])
            and tags[-1] not in found
            and not any(one in tail for one in found)
        ):
            found.append(tags[-1])
        return tuple(found)

    def tails(self) -> tuple[str, ...]:
        """Return what stands behind the last content of an answer and of a call, where nothing follows."""
        call = _answer(calls=1, manner=self.manner_found)
        found = [
            _behind(self.render([_user(), _answer()]), ANSWER),
            _behind(self.render([_user(), call], tools=[_TOOL]), _VALUE),
        ]
        return tuple(dict.fromkeys(tail for tail in found if tail))

    def switches(self, names: Sequence[str]) -> tuple[Switch, ...]:
        """Find the variables that turn thoughts on and off, by what changes with them."""
        found = []
        for name in names:
            if not _SWITCH.search(name) or _DIAL.search(name) or not self.heeds(name, True, False):
                continue
            on = _NEGATED.search(name) is None
            found.append(Switch(name, on, not on))
        return tuple(found)

    def efforts(self, names: Sequence[str]) -> tuple[str, tuple[str, ...]]:
        """Find the variable for the effort, and the words for it that change something.

        A template that writes whatever word it is told knows the three that all have.
        """
        for name in names:
            if not _EFFORT.search(name):
                continue
            texts = {word: self._heard(**{name: word}) for word in _EFFORTS}
            nonsense, unsaid = self._heard(**{name: "Zyx"}), self._heard()
            if any("Zyx" in one for one in nonsense):
                return name, _EFFORTS[:3]
            known = tuple(word for word, heard in texts.items() if any(heard) and heard not in (nonsense, unsaid))
            if known:
                return name, known
        return "", ()

    def heeds(self, name: str, first: Any, second: Any) -> bool:
        """Return whether a variable changes anything between two values, both of which the template takes."""
        heard = self._heard(**{name: first}), self._heard(**{name: second})
        return any(one and other and one != other for one, other in zip(*heard, strict=True))

    def _heard(self, **told: Any) -> tuple[str, ...]:
        """Return what it writes of a question, with and without instructions, and with a thought behind it."""
        asked = [_user()]
        return (
            self.render([_system(), *asked], generation=True, **told),
            self.render(asked, generation=True, **told),
            self.render([*asked, _answer(thought=True)], **told),
        )

    def is_local(self) -> bool:
        """Return whether what follows an answer is the same behind a long conversation and a short one."""
        call = [_answer(calls=1, manner=self.manner_found), _result()]
        before = [_user(), *call, _answer(), _user(MORE), _answer(thought=True)]
        for shown, tail in (
            ([_TOOL], [_user("Next"), *call]),
            (None, [_user("Next"), _answer()]),
            ([_TOOL], [_user("Next")]),
        ):
            long = self.render([*before, *tail, *tail], tools=shown, generation=True)
            short = self.render([_user(), _answer(), *tail, *tail], tools=shown, generation=True)
            if not long or not short or _tail(long) != _tail(short):
                return False
        return True

    def grows(self, opening: str) -> str:
        """Return why a prompt may not begin the next one; empty if it does.

        What a prompt opens behind the opening of a turn does not count: a turn that is kept as it was generated has it.
        """
        thought, call = _answer(thought=True), [*self.called(), _result()]
        now, later = self.render([_user(), thought]), self.render([_user(), thought, _user(MORE)])
        if THOUGHT in now and THOUGHT not in later:
            return "the template leaves thoughts out once the user speaks again"
        for before, tools in (([_user()], None), ([_user()], [_TOOL]), (call, [_TOOL]), ([*call, *call[1:]], [_TOOL])):
            asked = self.render(before, tools=tools, generation=True)
            asked = asked[: asked.rfind(opening) + len(opening)] if opening and opening in asked else asked
            later = self.render([*before, _answer(), _user(MORE)], tools=tools)
            if not later or later.startswith(asked):
                continue
            if later.startswith(self.render(before, tools=tools)):
                return "what the template opens for an answer is not in what it writes of that answer later"
            return "the template writes what stood before an answer in another way once it is there"
        return ""

    def literals(self, switches: Sequence[Switch]) -> tuple[str, ...]:
        """Return what the template writes around contents, for the control strings in it."""
        told: list[dict[str, Any]] = [{one.variable: value} for one in switches for value in (one.on, one.off)]
        call, words = _answer(calls=2, manner=self.manner_found), (USER, MORE, ANSWER, THOUGHT, RESULT, SYSTEM, _VALUE)
        texts = [
            self.render([_system(), _user(), _answer(thought=True), _user(MORE)], generation=True),
            self.render([_user(), _answer(), _user(MORE)], generation=True),
            self.render([_user(), call, _result(), _result(), _answer()], tools=[_TOOL], generation=True),
            self.render([_user()], tools=[_TOOL], generation=True),
            *(self.render([_user()], generation=True, **one) for one in told),
        ]
        cut = re.compile("|".join((*words, _NAME, _KEY, "Grizzelda")))
        return tuple(dict.fromkeys(piece for text in texts for piece in cut.split(text) if piece.strip()))

    def labels(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Give what opens turns and is no tag, such as `User:`, as what leads to it and the label."""
        text = self.render([_system(), _user(), _answer(), _user(MORE)])
        for literal in (_between(text, SYSTEM, USER), _between(text, USER, ANSWER), _between(text, ANSWER, MORE)):
            core = literal.strip()
            lead = literal[: literal.find(core)]
            if re.search(r"\w", core) and lead and not _TAG.search(core):
                yield lead, (core,)


def _system() -> Message:
    return {"role": "system", "content": SYSTEM}


def _user(text: str = USER) -> Message:
    return {"role": "user", "content": text}


def _part(text: str) -> Message:
    return {"type": "text", "text": text}


def _answer(thought: bool = False, calls: int = 0, manner: Manner = _USUAL, value: str = _VALUE) -> Message:
    message: Message = {"role": "assistant", "content": ANSWER}
    if thought:
        message["reasoning_content"] = message["thinking"] = THOUGHT
    if calls:
        message["content"] = None if manner.null else ""
        arguments: Any = {_KEY: value} if manner.arguments == "objects" else f'{{"{_KEY}": "{_VALUE}"}}'
        function = {"name": _NAME, "arguments": arguments}
        ids = [f"call1234{number}" for number in range(1, calls + 1)]
        message["tool_calls"] = [{"id": one, "type": "function", "function": function} for one in ids]
    return message


def _renamed(answer: Message, name: str) -> Message:
    calls = [{**call, "function": {**call["function"], "name": name}} for call in answer["tool_calls"]]
    return {**answer, "tool_calls": calls}


def _result() -> Message:
    return {"role": "tool", "tool_call_id": "call12341", "content": RESULT}


def _behind(text: str, word: str) -> str:
    return text[text.rindex(word) + len(word) :] if word in text else ""


def _between(text: str, word: str, other: str) -> str:
    return _behind(text[: text.rindex(other)], word) if word in text and other in text else ""


def _closed_tag(text: str, end: int) -> str:
    """Return the first `end` characters and the rest of a tag that is cut there."""
    tag = next((tag for tag in _TAG.finditer(text) if tag.start() < end < tag.end()), None)
    return text[: tag.end() if tag else end]


def _common(texts: Sequence[str]) -> str:
    """Return what all texts begin with."""
    if not texts:
        return ""
    first, last = min(texts), max(texts)
    return first[
        : next((at for at, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1]), len(first))
    ]


def _common_end(first: str, second: str) -> str:
    return _common([first[::-1], second[::-1]])[::-1]


def _whole_tags(text: str) -> str:
    """Cut what begins a tag and does not end one, and the marks of a thought: they are not of every answer."""
    thought = _THOUGHT.search(text)
    text = text[: thought.start()] if thought else text
    return text[: _UNCLOSED.search(text).start()]  # type: ignore[union-attr]


def _up_to(text: str, words: Sequence[str]) -> str:
    ends = [text.index(word) for word in words if word in text]
    return text[: min(ends)] if ends else ""


def _tail(text: str) -> str:
    """Return what stands behind the first of the two questions of a probe for locality."""
    return text[text.index("Next") :] if "Next" in text else text
