"""Owns a format's grammars: what a model may write after a prompt, made of the table and of the schemas of tools.

A turn of the model is the white space before its first words, maybe a thought, and then calls or an answer in JSON. All
literals are the table's, so what is written by a grammar is what the parser of the same table reads. What a prompt has
written of the turn already is taken off the front (`grammar.rest`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations

from msgspec import Raw, Struct
from msgspec.structs import replace

from turnscript.core.conversation import Tool, ToolCall, ToolChoice, ToolResult
from turnscript.core.errors import InvalidRequest, UnknownName, Unsupported
from turnscript.core.json_text import Json, json_of, plain, text_of
from turnscript.core.losses import Loss
from turnscript.engine.attributes import attribute_text
from turnscript.engine.layout import Layout, Place, layout_of
from turnscript.engine.machine import IDENTIFIER, CallRules
from turnscript.engine.names import name_line
from turnscript.engine.recent import KB, MB, recent
from turnscript.engine.scanner import overlap
from turnscript.engine.states import Do, states_of
from turnscript.engine.table import Document
from turnscript.grammar.levels import end_levels
from turnscript.grammar.nodes import (
    EMPTY,
    Ending,
    Grammar,
    Literal,
    Node,
    Reference,
    Repeat,
    Token,
    Without,
    choice,
    optional,
    sequence,
)
from turnscript.grammar.notations import writer_of
from turnscript.grammar.rest import behind
from turnscript.grammar.rules import OBJECT, Rules
from turnscript.grammar.schema import Schema, read_schema


class Constraint(Struct, frozen=True):
    """A grammar of what a model may write, as its server reads it.

    `notation`: that of `text`. `rules`: the same as values. `losses`: what of the schemas is not in it, and has to be
    checked afterwards. `trigger`: the words with which calls begin, empty where those are a tool's name. `lazy`: the
    model is free to write a text, and the grammar is for what it writes from the trigger on. `bare`: all that it may
    write is JSON under the schema of the answer, which is written here as everywhere.
    """

    notation: str
    text: str
    rules: Grammar
    losses: list[Loss]
    trigger: str = ""
    lazy: bool = False
    bare: bool = False


class Demand(Struct, frozen=True):
    """What a turn of the model must be.

    `tools`: calls of these, each with its place among all, `several` of them if it likes; `answers`: or an answer that
    is JSON, valid under `shape`, or any object where that is None. `lazy`: or a text; the grammar is for calls that it
    comes to.
    """

    tools: Sequence[tuple[int, Tool]] = ()
    several: bool = True
    answers: bool = False
    shape: Json | None = None
    lazy: bool = False


def calls_demanded(tools: Iterable[Tool], choice: ToolChoice | str, several: bool = True) -> Demand:
    """Return the calls that a choice of tools leaves. Raises InvalidRequest where it leaves none, and UnknownName."""
    made = ToolChoice(choice) if isinstance(choice, str) else choice
    offered = {tool.name: (place, tool) for place, tool in enumerate(tools) if tool.name is not None}
    if made.mode == "named":
        several = False  # who names a tool wants one call of it
        if made.name not in offered:
            raise UnknownName("tool", str(made.name), offered)
        offered = {made.name: offered[made.name]}
    elif made.mode == "allowed":
        allowed = _listed(made.tools)
        offered = {name: placed for name, placed in offered.items() if name in allowed}
    elif made.mode not in ("auto", "required"):
        if made.mode == "none":
            raise InvalidRequest("a choice of no tool leaves nothing for a grammar to tell", path="$.tool_choice")
        raise UnknownName("tool choice", made.mode, ("auto", "required", "named", "allowed"))
    if not offered:
        raise InvalidRequest("no tool is offered, so there is no call to tell", path="$.tools")
    lazy = made.mode == "auto" or (made.mode == "allowed" and not made.required)
    return Demand(tuple(offered.values()), several, lazy=lazy)


def _listed(tools: Json | None) -> set[str]:
    """Return the names in a list of allowed tools, which one API wraps in an object of its type's name."""
    found: set[str] = set()
    listed = plain(tools) if tools is not None else []
    for one in listed if isinstance(listed, list) else ():
        inner = one.get(one.get("type"), one) if isinstance(one, dict) else {}
        name = inner.get("name") if isinstance(inner, dict) else None
        found |= {name} if isinstance(name, str) else set()
    return found


class Told(Struct, frozen=True):
    """A grammar, what of the schemas it does not tell, and the words with which its calls begin."""

    grammar: Grammar
    losses: list[Loss]
    trigger: str = ""
    lazy: bool = False
    bare: bool = False

    def written(self, notation: str, write: Callable[[Grammar], str]) -> Constraint:
        """Return the grammar in a notation, given what writes that."""
        text = write(self.grammar)
        return Constraint(notation, text, self.grammar, self.losses, self.trigger, self.lazy, self.bare)


def told(document: Document, demand: Demand, bounded: bool = True) -> Told:
    """Return the grammar of a turn from its first call, or its answer, on. Raises Unsupported where there is no place.

    `bounded`: calls and white space end at some time, however a model goes on.
    """
    made = _Turn(document, demand, bounded)
    return made.told(made.rules.grammar(choice(*made.ways)))


def told_behind(document: Document, demand: Demand, written: str, missing: str, thinks: bool) -> Told:
    """Return the grammar for what follows a prompt that has `written` so much of the turn.

    `missing`: white space that it has left out before that. `thinks`: it asks for a thought. Raises Unsupported where
    no such turn begins so.
    """
    made = _Turn(document, demand, bounded=True)
    rest = behind(made.whole(thoughts=thinks), written)
    if rest is None and not thinks:  # what the prompt has written is itself a thought, such as an empty one
        rest = behind(made.whole(thoughts=True), written)
    opened = document.generation.prefill
    if rest is None and opened and written.startswith(opened):  # it is written in one piece, as no thought is
        rest = behind(made.whole(thoughts=False), written.removeprefix(opened))
    if rest is None:
        raise Unsupported("a grammar", "an answer that goes on from a text", "a text that was begun has no grammar")
    told_ = made.told(rest)
    if missing and not written:
        return replace(told_, grammar=Grammar(sequence(optional(Literal(missing)), rest.start), rest.rules))
    return told_


def constraint_behind(
    document: Document, demand: Demand, written: str, missing: str, thinks: bool, notation: str
) -> Constraint:
    """Return that grammar in a notation, kept for a while, because clients ask again and again with the same tools."""
    tools = tuple((place, tool.name, _bytes(tool.parameters)) for place, tool in demand.tools)
    wanted = tools, demand.several, demand.answers, _bytes(demand.shape)
    made = _constraint(document, wanted, written, missing, thinks, notation)
    return replace(made, losses=list(made.losses))


Wanted = tuple[tuple[tuple[int, str | None, bytes | None], ...], bool, bool, bytes | None]
"""All of a demand that a grammar depends on."""


@recent(128 * MB, weight=350, entry=8 * KB)  # keys that a schema does not name take most
def _constraint(
    document: Document, wanted: Wanted, written: str, missing: str, thinks: bool, notation: str
) -> Constraint:
    named, several, answers, shape = wanted
    tools = tuple((place, Tool(name=name, parameters=_json(schema))) for place, name, schema in named)
    demand = Demand(tools, several, answers, _json(shape))
    return told_behind(document, demand, written, missing, thinks).written(notation, writer_of(notation))


def _bytes(data: Json | None) -> bytes | None:
    return None if data is None else bytes(data)


def _json(data: bytes | None) -> Json | None:
    return None if data is None else Raw(data)


class _Call(Struct, frozen=True):
    """The rule of a tool's calls. `is_fixed`: they all say the same."""

    rule: Reference
    is_fixed: bool


_FEWEST_CALLS, _MOST_CALLS = 4, 16
"""Between how many calls the bound of an answer's calls lies."""
_MOST_FIXED = 8
"""For how many calls it is told that none follows itself, where there are but few of a tool."""


class _Turn:
    """A turn while its rules are made."""

    def __init__(self, document: Document, demand: Demand, bounded: bool) -> None:
        self._document, self._demand, self._bounded = document, demand, bounded
        self._layout: Layout = layout_of(document)
        self.rules = Rules(bounded)
        self._kinds: list[str] = []
        self._trigger = ""
        self._value: Node | None = None
        self.ways = self._ways()

    def told(self, grammar: Grammar) -> Told:
        """Return what is known of a grammar of this turn."""
        return Told(grammar, self.rules.losses, self._trigger, self._demand.lazy, self._is_bare(grammar.start))

    def _is_bare(self, start: Node) -> bool:
        """Return whether nothing but the answer's JSON is left, before which white space may be left out."""
        place, shape = self._layout.places[self._document.generation.kind], self._demand.shape
        if self._value is None or shape is None or place.escape.holds(text_of(shape)):
            return False
        return start in (self._value, sequence(optional(Literal(place.lead)), self._value))

    def whole(self, thoughts: bool) -> Grammar:
        """Return the turn behind its opening, with a thought before it if there may be one."""
        ways = list(self.ways)
        for way, kind in zip(self.ways, self._kinds, strict=True) if thoughts else ():
            ways += [sequence(thought, way) for thought in self._thought(kind)]
        lead = self._layout.places[self._document.generation.kind].lead
        return self.rules.grammar(sequence(optional(Literal(lead)) if lead else EMPTY, choice(*ways)))

    def _ways(self) -> list[Node]:
        """Return what the turn may be: calls, an answer."""
        found = []
        if self._demand.tools:
            found.append(self._calls())
            self._kinds.append(ToolCall.kind)
        if self._demand.answers:
            found.append(self._answer())
            self._kinds.append(self._document.generation.kind)
        if not found:
            raise InvalidRequest("there is nothing to tell in a grammar: no tool, and no shape of an answer")
        self.rules.settle()
        if self._bounded:
            end_levels(self.rules)
        return found

    def _answer(self) -> Node:
        """Return an answer that is JSON. Nothing stands behind it: the model ends its turn."""
        place = self._layout.places[self._document.generation.kind]
        schema = read_schema(self._demand.shape, self.rules, "$.schema")
        protect = place.escape.apply
        value = (
            Schema(self.rules, schema, "answer", "$.schema", protect).value()
            if isinstance(schema, dict)
            else self.rules.shared(OBJECT)
        )
        self._value = value
        return sequence(f"{place.open}{place.head_end}", value)

    def _calls(self) -> Node:
        """Return the calls, and what holds them together and apart."""
        place = self._layout.places.get(ToolCall.kind)
        if place is None:
            raise Unsupported("a grammar of calls", "a format that has no place for calls")
        last = self._ends_all(place)
        group, between = place.segment.group, self._link(ToolCall.kind, ToolCall.kind)
        several = self._demand.several and between is not None and not last
        calls = self._calls_of(place, last, _MOST_FIXED if several and self._bounded else 0)
        opening = group.open if group else place.open or place.body.begins
        if group is not None and place.segment.tentative:
            opening = f"{group.open.strip()}{place.body.begins}"
        self._trigger = "" if place.segment.named else opening.strip()
        inner = self._row(calls, between or "") if several else self._any_of(calls)
        if group is not None:
            return sequence(group.open, inner, group.close)
        return sequence(inner, self._ending(place)) if several else inner

    def _calls_of(self, place: Place, last: bool, most: int) -> list[_Call]:
        """Return the calls of all tools: a rule for each, or one for each of its calls where those are few. `most`: how
        many there may be of such rules.
        """
        found: list[_Call] = []
        for index, tool in self._demand.tools:
            path = f"$.tools[{index}].parameters"
            data = read_schema(tool.parameters, self.rules, path)
            few = Schema(self.rules, data, str(tool.name), path).few_objects(most) if most else []
            most -= len(few)
            found += [self._call(place, replace(tool, parameters=json_of(one)), index, last, True) for one in few]
            found += [] if few else [self._call(place, tool, index, last, False)]
        return found

    def _any_of(self, calls: list[_Call]) -> Reference:
        """Return the rule of a call of any tool."""
        return self.rules.add("call", choice(*(call.rule for call in calls)))

    def _row(self, calls: list[_Call], between: str) -> Node:
        """Return the rule of several calls.

        Bounded, they are at most two for each tool, within limits. A model at temperature 0 that has written a call
        tends to write it again, and would do so up to its limit of tokens.
        """
        tools = len(self._demand.tools)
        most = max(_FEWEST_CALLS, min(_MOST_CALLS, 2 * tools)) if self._bounded else None
        if most is not None and any(call.is_fixed for call in calls):
            return self._never_twice(calls, between, most)
        call = self._any_of(calls)
        if not between:
            return Repeat(call, 1, most)
        return sequence(call, Repeat(sequence(between, call), 0, None if most is None else most - 1))

    def _never_twice(self, calls: list[_Call], between: str, most: int) -> Node:
        """Return the rule of calls of which none is the one before it, as far as a grammar can tell: where a tool has
        but few calls. There is a rule for what may follow each of these, and one for all others.
        """
        others = [call.rule for call in calls if not call.is_fixed]
        free = [self.rules.add("call", choice(*others))] if others else []
        fixed = [call.rule for call in calls if call.is_fixed]
        begun = [*([None] if free else []), *fixed]
        follows: dict[Reference | None, Node] = dict.fromkeys(begun, EMPTY)
        for _ in range(most - 1):
            rows = {}
            for last in begun:
                steps = self._steps([one for one in fixed if one != last], free, follows, between)
                rows[last] = self._maybe(steps)
            follows = rows
        return choice(*self._steps(fixed, free, follows))

    def _maybe(self, steps: list[Node]) -> Node:
        """Return the rule of one of several steps, or of none."""
        return optional(self.rules.add(self.rules.named("more"), choice(*steps))) if steps else EMPTY

    def _steps(
        self,
        fixed: list[Reference],
        free: list[Reference],
        follows: dict[Reference | None, Node],
        before: str = "",
    ) -> list[Node]:
        """Return the calls that may come next, each with what stands `before` it, and what may follow."""
        return [
            *(sequence(before, one, follows[one]) for one in fixed),
            *(sequence(before, one, follows[None]) for one in free),
        ]

    def _call(self, place: Place, tool: Tool, index: int, last: bool, is_fixed: bool) -> _Call:
        """Return one call of a tool."""
        name, path = str(tool.name), f"$.tools[{index}].parameters"
        protect = place.escape.apply
        schema = Schema(self.rules, read_schema(tool.parameters, self.rules, path), name, path, protect)
        call = CallRules(tool, name, self.rules, schema, path, protect, place.escape.spelled)
        payload = place.body.grammar(call)
        if payload is None:
            raise Unsupported("a grammar of calls", "a format whose calls are told by no rules")
        close: Node = Ending(place.close) if last else Literal(place.close)
        rule = self.rules.add(self.rules.named(name, "call"), sequence(*_head(place, name), payload, close))
        return _Call(rule, is_fixed)

    def _ends_all(self, place: Place) -> bool:
        """Return whether the closing of a call is a string at which a model stops, so that it may be left out."""
        generation = self._document.generation
        stops = {stop.strip() for stop in (*generation.stops, *generation.stops_with_tools)}
        return bool(place.close.strip()) and place.close.strip() in stops and place.segment.group is None

    def _ending(self, place: Place) -> Node:
        """Return what a model may write behind its last call: what ends the turn, or what begins the next one."""
        if place.turn.close.strip():
            return Ending(place.turn.close.rstrip())
        result = self._layout.places.get(ToolResult.kind)
        if result is None:
            return EMPTY
        opening = result.turn.open if place.turn.speaks else result.open
        return Ending(f"{self._document.separator}{opening}".rstrip()) if opening else EMPTY

    def _link(self, before: str, after: str) -> str | None:
        """Return what a model writes between two of its segments; None where nothing can follow."""
        document, turn = self._document, self._layout.places[after].turn
        joint = {**document.also_joined, **document.joints}.get((before, after))
        if joint is not None and turn.speaks:
            return joint
        if not turn.speaks or turn.several:
            return f"{turn.close}{document.separator}{turn.open}{turn.lead}"
        return None

    def _thought(self, kind: str) -> list[Node]:
        """Return what may be thought before something of a kind, with what joins the two; nothing where that is none.

        Where a format tells kinds of thoughts apart, one of several kinds follows another in the format's order.
        """
        place = self._layout.places.get(self._document.generation.thinking_kind)
        link = None if place is None else self._link(place.kind, kind)
        if place is None or link is None or place.kind == kind:
            return []
        places = [*self._layout.thoughts.values()] or [place]
        between = self._link(place.kind, place.kind)
        several = range(1, len(places) + 1 if between is not None else 2)
        found = []
        for row in (row for count in several for row in combinations(places, count)):
            first, *others = map(self._one_thought, row)
            found.append(sequence(first, *(sequence(between or "", one) for one in others), link))
        return found

    def _one_thought(self, place: Place) -> Node:
        text = Without(_within(self._document, place))
        return sequence(f"{place.open}{place.head_end}", text, place.close.strip())


def _head(place: Place, name: str) -> Iterable[Node | str]:
    """Give the opening of a call: the tool's name where it says that, and an id that the model may give it."""
    segment = place.segment
    yield f"{name_line(name)}\n{place.open}" if segment.named else place.open
    for attribute in segment.attributes_shown:
        if attribute.path == "name":
            yield f" {attribute.key}={place.escape.spelled(attribute_text(name))}"
        elif attribute.path == "id":
            yield optional(Token(sequence(f' {attribute.key}="', IDENTIFIER.node, '"')))
    yield place.head_end


def _apart(literal: str, close: str) -> str:
    """Return a literal without what the closing begins with: a thought that ends in the rest would make it whole."""
    return literal[: len(literal) - overlap(literal, close)]


def _within(document: Document, place: Place) -> tuple[str, ...]:
    """Return what no thought may hold, because something else begins there."""
    actions = states_of(document, document.model_turn, False).text(place).scanner.actions
    close = place.close.strip()
    known = (one for one, action in actions.items() if action.do not in (Do.AGAIN, Do.NEXT))
    found = sorted((one if one.endswith(close) else _apart(one, close) for one in known), key=len)
    shortest: list[str] = []
    for literal in found:
        if not any(one in literal for one in shortest):
            shortest.append(literal)
    return tuple(shortest)
