"""Owns templates: a model's own chat template as the writer of prompts.

Theory of operation. The items of a conversation become messages with marks in place of contents (`messages`), the
template runs once, and its text is split at the marks (`marks`): what stands between them is the template's, what they
stand for is put in, protected. Which of it a model writes itself is known by how its turns open and end (`study`). What
a text looks like depends on the marked messages alone, so it is kept by them: rows of the same shape are rendered once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from turnscript.core.conversation import Item, Request, Thinking, Tool
from turnscript.core.losses import Loss
from turnscript.engine.escape import AUTO, POLICIES, Escape, Rule, rules_of, tags_in
from turnscript.engine.layout import layout_of, special_tokens
from turnscript.engine.states import behind_opening, no_thought
from turnscript.engine.table import Document, Turn
from turnscript.engine.template.arranging import ARRANGEMENTS
from turnscript.engine.template.marks import split
from turnscript.engine.template.messages import Marked, Message
from turnscript.engine.template.program import Program, TemplateFailed, TemplateRefused
from turnscript.engine.template.study import Traits, study
from turnscript.engine.template.tools import Functions, functions_of
from turnscript.engine.template.turns import Shape, Turns, lay_out

Words = Callable[[Marked, Sequence[Item]], None]
"""Changes messages so that what a template has no place for stands in texts."""
_FENCE = "```"
_WORD = re.compile(r"\w\w")
"""What a control string has behind its first character; less would be in every other text."""
_TOOLS_AS_TEXT, _DATE = ("functions", "tools_json"), "datetime"
_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_GIVEN = frozenset({"messages", "tools", "documents", "add_generation_prompt"})
"""What every template is given."""
_SHAPES = 256
"""How many shapes of conversations are kept."""
_LARGEST = 262_144
"""Characters. A larger text is not kept: it is rendered in milliseconds, and a gateway has many of them."""


class Asked(Struct, frozen=True):
    """What a template is told of a request's wishes: `told` by the names of its variables.

    `thinking`: whether the model is to think, None if nobody said. `now`: the date, the same one for a whole session.
    """

    told: Mapping[str, Any] = {}
    thinking: bool | None = None
    now: datetime | None = None


class Written(Struct):
    """What a template made of items: their shape, the contents, and what was arranged so that the template takes it."""

    shape: Shape
    marked: Marked
    losses: list[Loss]

    def filled(self, escape: Escape, shift: int = 0) -> Turns:
        """Put the contents in. `shift`: the position of the first item."""
        return self.shape.fill(self.marked.texts, escape, shift)


class Template:
    """A chat template with the tokens of its model.

    `source` is used without tools, `tools_source` with them, if the model has one of its own for that. `tokens`: texts
    of special tokens by the names that templates know them by, such as `bos_token`. `control`: every control token of
    the tokenizer. `told_by`: where it was found, for people.
    Of the table that reads: `read_as` is its name, `learned` its TOML text where it was learned from the template,
    `exact` whether it gives back all that the template writes, `reads_calls` whether all calls, `sentence` says so to
    people.
    """

    def __init__(
        self,
        source: str,
        *,
        tools_source: str = "",
        tokens: Mapping[str, str] = {},
        control: Sequence[str] = (),
        told_by: str = "the chat template",
    ) -> None:
        self.source, self.tools_source = source, tools_source
        self.tokens = dict(tokens)
        self.control = tuple(control)
        self.told_by = told_by
        self._program = Program(source, name=told_by)
        self._with_tools = Program(tools_source, name=told_by) if tools_source else self._program
        self.variables = self._program.variables | self._with_tools.variables
        self.stops: tuple[str, ...] = ()
        self._shapes: dict[tuple[Any, ...], Shape] = {}
        self._rules: tuple[Rule, ...] = ()
        self._escapes: dict[str, Escape] = {}
        self._turn: Turn | None = None
        self.read_as = self.learned = self.sentence = ""
        self.exact = False
        self.reads_calls = True
        both = source + tools_source
        self._dated = "strftime_now" in both or _DATE in self.variables
        self._timed = re.search(r"%-?[HIMSpXcTfsR]", both) is not None

    def run(
        self,
        messages: Sequence[Message],
        tools: Sequence[Message] | None = None,
        *,
        generation: bool = False,
        told: Mapping[str, Any] = {},
        now: datetime | None = None,
    ) -> str:
        """Render messages as transformers does. Raises TemplateRefused, TemplateFailed and TemplateLimit."""
        program = self._with_tools if tools else self._program
        variables = {
            "messages": messages,
            "tools": tools or None,
            "documents": None,
            "add_generation_prompt": generation,
            **self.tokens,
            **told,
        }
        try:
            return program.render(variables, now=now)
        except TemplateFailed:
            demanded = self._demanded(tools, now)
            if not demanded and tools:
                raise
            if demanded:
                return program.render({**variables, **demanded}, now=now)
        # Some that are made for tools alone go through them without a look whether there are any.
        return program.render({**variables, "tools": []}, now=now)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_shapes": {}}  # functions in them have no name that another process knows

    def _demanded(self, tools: Sequence[Message] | None, now: datetime | None) -> dict[str, str]:
        """Return what a template reads that nobody passes by these names: tools as JSON text, and the date.

        Templates of servers of their own want them, and fail without.
        """
        named = self.variables & {*_TOOLS_AS_TEXT, _DATE}
        if not named:
            return {}
        functions = [tool.get("function", tool) for tool in tools or ()]
        text = json.dumps(functions, ensure_ascii=False, indent=4)
        date = (now or datetime.now()).strftime("%Y-%m-%d")
        return {name: date if name == _DATE else text for name in named}

    @cached_property
    def traits(self) -> Traits:
        """Return what the template takes, found by rendering probes when somebody first asks."""
        return study(self.run, self.variables, self.tokens)

    @property
    def wishes(self) -> tuple[str, ...]:
        """Return the names that somebody may tell it, in order: no tokens, and nothing that it sets itself."""
        both = self._program.source + self._with_tools.source
        asked = sorted(self.variables - _GIVEN - set(self.tokens))
        return tuple(name for name in asked if not name.endswith("_token") and not _is_set(name, both))

    @property
    def unknown_tokens(self) -> tuple[str, ...]:
        """Return the special tokens that it writes by a name that nobody told: they are left empty."""
        names = sorted(name for name in self.variables if name.endswith("_token"))
        return tuple(name for name in names if not self.tokens.get(name))

    def tags(self, document: Document) -> list[str]:
        """Return the control strings of the template, the tokenizer and the table that reads, each once."""
        found = [tag for literal in (*self.control, *self.traits.literals) for tag in tags_in(literal)]
        found += special_tokens(document)
        return list(dict.fromkeys(filter(_WORD.search, found)))

    def read_by(self, document: Document) -> Document:
        """Let a table read what models write behind these prompts. Returns it with an escape for both."""
        literals = [*self.control, *self.tokens.values(), self.traits.opening, *self.traits.ends, *self.traits.literals]
        found = [(lead, [rest for rest in rests if _WORD.search(rest)]) for lead, rests in rules_of(literals)]
        rules = [(lead, rests) for lead, rests in found if rests and lead != _FENCE]
        self._rules = (*layout_of(document).escape.rules, *rules, *self.traits.labels)
        self._turn = document.model_turn
        eos = self.tokens.get("eos_token", "")
        self.stops = (eos,) if eos else ()
        return replace(document, escape=Escape(*self._rules))

    def escape(self, policy: str) -> Escape:
        """Return what keeps contents from being read as control strings of the template or of the tokenizer."""
        known = self._escapes.get(policy)
        if known is None:
            known = self._escapes[policy] = POLICIES[policy](*self._rules)
        return known

    def prefill(self, opened: str) -> str:
        """Return how much of the answer a prompt holds, with `opened` behind the opening of the model's turn."""
        held = None if self._turn is None else behind_opening(self._turn, f"{self.traits.opening}{opened}")
        return opened if held is None else held

    def seed(self, opened: str) -> str:
        """Return what a parser begins with: the prefill without what stands in place of a thought."""
        turn, held = self._turn, self.prefill(opened)
        if turn is None:
            return held
        seed = held[no_thought(turn, held) or _empty_thought(turn, held) :]
        return seed if seed.strip() else ""

    def missing(self, opened: str) -> str:
        """Return the white space of the turn's opening in the table that a prompt leaves to the model."""
        if self._turn is None or opened.strip():
            return ""
        core, ahead = self._turn.open.rstrip(), f"{self.traits.opening}{opened}"
        space = self._turn.open[len(core) :]
        return space if core and space and ahead.endswith(core) else ""

    def thinks(self, document: Document) -> bool:
        """Return whether there is a place for thoughts, here or in the table that reads."""
        return self.traits.thoughts or document.generation.thinking_kind in layout_of(document).places

    def functions(self, tools: Sequence[Tool], escape: Escape) -> Functions:
        """Return tools as the template is shown them."""
        return functions_of(tools, escape)

    def asked(
        self, request: Request, thinking: bool | None, forced: bool, now: datetime | None
    ) -> tuple[Asked, list[Loss]]:
        """Return what the template is told of a request's wishes, and those that it cannot be told.

        `thinking`: what the caller wants, whatever the request says. `forced`: a call is opened, without a thought.
        """
        settings, traits, losses = request.settings, self.traits, []
        mode, effort = settings.thinking, settings.effort
        wanted = thinking
        if wanted is None and (mode is not None or effort is not None):
            wanted = mode.mode != "disabled" if mode is not None else effort not in ("none", "minimal")
        wanted = False if forced else wanted
        told: dict[str, Any] = {}
        if wanted is not None:
            told = {one.variable: one.on if wanted else one.off for one in traits.switches}
        if effort is not None and traits.effort:
            told[traits.effort] = _nearest(effort, traits.efforts)
        elif wanted is False and not traits.switches and "none" in traits.efforts:
            told[traits.effort] = "none"
        if mode is not None and mode.budget is not None and traits.budget:
            told[traits.budget] = mode.budget
        if wanted is not None and not told and not forced and (thinking is not None or mode is not None):
            if not wanted and traits.thoughts:
                losses.append(Loss("$.thinking", "dropped", "this template cannot be told not to think"))
            elif wanted and not traits.thoughts:
                losses.append(Loss("$.thinking", "dropped", "this template has no place for thoughts"))
        if effort is not None and not told and thinking is None:
            path = request.paths.get("effort", "$.effort")
            losses.append(Loss(path, "dropped", "this template cannot be told how hard to think"))
        return Asked(told, wanted, (now or datetime.now()) if self._dated else None), losses

    def write(
        self, items: Sequence[Item], functions: Functions, asked: Asked, *, generation: bool, words: Words | None = None
    ) -> Written:
        """Render items; arrange what the template refuses. `words`: puts what it has no place for into texts."""
        marked = Marked(self.traits.manner, functions, self.escape(AUTO).holds)
        marked.add(items)
        if words is not None:
            words(marked, items)
        try:
            return Written(self._shape(marked, functions, asked, generation), marked, marked.losses)
        except (TemplateRefused, TemplateFailed) as refusal:
            return self._arranged(marked, functions, asked, generation, refusal)

    def _shape(self, marked: Marked, functions: Functions, asked: Asked, generation: bool) -> Shape:
        """Return the shape of marked messages, which is all that the template's text depends on."""
        try:
            said: Any = msgspec.json.encode(marked.messages)
        except (OverflowError, msgspec.MsgspecError):  # an integer beyond 64 bits
            said = repr(marked.messages)
        owners = msgspec.json.encode(marked.owners), msgspec.json.encode(marked.spans)
        key = (said, owners, functions.key, tuple(asked.told.items()), generation, self._time(asked.now))
        known = self._shapes.get(key)
        if known is not None:
            return known
        text = self.run(marked.messages, functions.shown, generation=generation, told=asked.told, now=asked.now)
        shape = lay_out(split(text), marked, self.traits)
        if len(text) <= _LARGEST:
            self._shapes[key] = shape
            if (
                len(self._shapes) > _SHAPES
            ):  # a gateway's threads share them, so each step is one that no other can break
                for old in list(self._shapes)[: _SHAPES // 4]:
                    self._shapes.pop(old, None)
        return shape

    def _time(self, now: datetime | None) -> Any:
        """Return what of the time a text may depend on."""
        return now if now is None or self._timed else now.date()

    def _arranged(
        self,
        marked: Marked,
        functions: Functions,
        asked: Asked,
        generation: bool,
        refusal: TemplateRefused | TemplateFailed,
    ) -> Written:
        """Change as little as makes the template take the messages. Raises what it said at first if nothing does."""
        if functions.shown is not None:
            completed = functions.completed()
            try:
                return Written(self._shape(marked, completed, asked, generation), marked, marked.losses)
            except (TemplateRefused, TemplateFailed):
                functions = completed
        for arrangements in (*((one,) for one in ARRANGEMENTS), ARRANGEMENTS):
            arranged = marked.copied()
            losses = list(marked.losses)
            for arrange in arrangements:
                changed = arrange(arranged)
                losses += changed
                if not changed:
                    continue
                try:
                    return Written(self._shape(arranged, functions, asked, generation), arranged, losses)
                except (TemplateRefused, TemplateFailed):
                    continue
        raise refusal


def _empty_thought(turn: Turn, held: str) -> int:
    """Return the length of what a prompt holds of a turn, where that is a thought that says nothing; else 0."""
    thoughts = [(one.open.strip(), one.close.strip()) for one in turn.segments if one.kind == Thinking.kind]
    empty = (rf"\s*{re.escape(opens)}\s*{re.escape(closes)}\s*" for opens, closes in thoughts if opens and closes)
    return len(held) if any(re.fullmatch(one, held) for one in empty) else 0


def _is_set(name: str, source: str) -> bool:
    """Tell that a template gives a name its value, and never asks whether somebody else has."""
    word = rf"(?<![.\w]){re.escape(name)}\b"
    if re.search(rf"{word}\s+is\s+(?:not\s+)?defined|{word}\s*\|\s*default", source):
        return False
    places = (rf"\bset\s+{word}", rf"\bfor\s[\w\s,]*{word}[\w\s,]*\sin\b", rf"\bmacro\s+\w+\([^)]*{word}")
    return any(re.search(place, source) for place in places)


def _nearest(effort: str, known: Sequence[str]) -> str:
    """Return the word for an effort that a template knows, the next lower one where it has none of that name."""
    if effort in known or effort not in _EFFORTS:
        return effort
    at = _EFFORTS.index(effort)
    ranked = sorted((word for word in known if word in _EFFORTS), key=lambda word: abs(_EFFORTS.index(word) - at))
    return ranked[0] if ranked else effort
