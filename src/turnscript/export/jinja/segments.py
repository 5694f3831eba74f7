"""Owns one item in a template: what stands before it, its opening with attributes, its payload, its closing."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from turnscript.core.conversation import System, ToolCall, User
from turnscript.engine.bodies import CallArguments, ResultContent
from turnscript.engine.layout import Place
from turnscript.engine.table import Attribute, Body
from turnscript.export.jinja.calls import is_call, write_call
from turnscript.export.jinja.code import all_of, among, none_of, quoted
from turnscript.export.jinja.escapes import breaks_strings
from turnscript.export.jinja.flow import Between, Flow, Said
from turnscript.export.jinja.texts import empties, is_text, write_text
from turnscript.export.jinja.writing import Payloads

_BEGINNING = re.compile(r"(?<![<\[|])[<\[]|(?<=\n)[A-Z]|\A[A-Z]")
"""Where a literal that others end with, too, may begin: at a tag or a label."""
SPEAKERS = ("system", "user", "assistant", "thinking", "tool_call")
_FIELDS = {"name": "name", "id": "id", "role": "role"}
"""The fields of items that messages have, and the variables that hold them."""


def is_written(body: Body) -> bool:
    """Whether a template can write a payload."""
    return is_text(body) or is_call(body)


class Segments:
    """Writes items of each kind."""

    def __init__(self, flow: Flow, out: Payloads) -> None:
        self._flow = flow
        self._out = out
        self._code = out.code

    def write(self, place: Place, kind: str = "") -> None:
        """An item of a kind at its place. `kind`: its own, where it stands in another's place."""
        self._before(place)
        out = self._of(place)
        if place.kind == ToolCall.kind:
            write_call(place.body, out)
        else:
            write_text(place.body, out)
        self._code.write(place.close, place.model)
        self._code.statement(f"set ns.at = {quoted(place.kind)}")

    def stand(self, place: Place) -> None:
        """The same, where a turn that may begin without an opening cannot begin everywhere."""
        marked = [one for one in self._flow.previous_kinds if self._flow.is_marked(one, place)]
        bare = bool(place.turn.behind) and not place.turn.open
        marked = [one for one in marked if not self._flow.joins(one, place)] if bare else []
        other = self._out.layout.places.get(User.kind) if place.kind == System.kind else None
        if bare and not place.turn.close:
            here = none_of("ns.at", marked) if marked else ""
            with self._code.block(f"if {all_of([here, 'text.strip()'])}"):
                self.write(place)
                if other is not None and marked:
                    self._code.otherwise(f"elif {among('ns.at', marked)}")
                    self.write(other)
        elif marked:
            with self._code.block(f"if {none_of('ns.at', marked)}"):
                self.write(place)
                if other is not None:
                    self._code.otherwise()
                    self.write(other)
        else:
            self.write(place)

    def _of(self, place: Place) -> Payloads:
        out = self._out
        return Payloads(out.layout, out.code, out.library, out.losses, place.escape, place.model)

    # What stands before an item.

    def _before(self, place: Place) -> None:
        """What stands between an item and the one before, whichever that is, and its opening."""
        joined, others = self._branches(place)
        if not joined:
            self._begin(place, others)
            return
        (condition, between), *more = joined
        with self._code.block(f"if {condition}"):
            self._open(place, between)
            for condition, between in more:
                self._code.otherwise(f"elif {condition}")
                self._open(place, between)
            self._code.otherwise()
            self._begin(place, others)

    def _branches(self, place: Place) -> tuple[list[tuple[str, Between]], dict[Between, list[str]]]:
        """What joins an item to the turn that is open, and when; what begins another turn, behind which kinds."""
        flow = self._flow
        apart = flow.apart(place)
        always: dict[Between, list[str]] = {}
        within: dict[Between, list[str]] = {}
        others: dict[Between, list[str]] = {}
        for before in flow.previous_kinds:
            if flow.joins(before, place):
                group = within if before in apart else always
                group.setdefault(self._shown(flow.between(before, place, True)), []).append(before)
            if not flow.joins(before, place) or before in apart:
                others.setdefault(self._shown(flow.between(before, place, False)), []).append(before)
        same = none_of("ns.behind", apart) if apart else ""
        joined = [(all_of([among("ns.at", kinds), same]), between) for between, kinds in within.items()]
        return [*joined, *[(among("ns.at", kinds), between) for between, kinds in always.items()]], others

    def _begin(self, place: Place, others: dict[Between, list[str]]) -> None:
        """The end of the turn before, and the beginning of another."""
        first, *_ = others
        if len({(one.behind, one.head, one.of_model) for one in others}) == 1:
            self.by_kind({one.before: kinds for one, kinds in others.items()})
            self._open(place, Between(False, (), first.behind, first.head, first.of_model))
            return
        (between, kinds), *more = sorted(others.items(), key=lambda one: len(one[1]))
        with self._code.block(f"if {among('ns.at', kinds)}"):
            self._open(place, between)
            for between, kinds in more:
                self._code.otherwise("else" if between is more[-1][0] else f"elif {among('ns.at', kinds)}")
                self._open(place, between)

    def by_kind(self, said: dict[Said, list[str]]) -> None:
        """One of several runs of literals, by the kind of the item before. What all end with is written once."""
        parted, end = parted_end([_merged(one) if not self._code.generation else one for one in said])
        runs: dict[Said, list[str]] = {}
        for one, kinds in zip(parted, said.values(), strict=True):
            runs.setdefault(one, []).extend(kinds)
        silent = runs.pop((), [])
        groups = sorted(runs.items(), key=lambda one: len(one[1]))
        if len(groups) == 1 and len(silent) < len(groups[0][1]):
            condition = none_of("ns.at", silent) if silent else ""
        else:
            condition = among("ns.at", groups[0][1]) if groups else ""
        if condition:
            with self._code.block(f"if {condition}"):
                self.literals(groups[0][0])
                for one, kinds in groups[1:]:
                    last = one is groups[-1][0] and not silent
                    self._code.otherwise("else" if last else f"elif {among('ns.at', kinds)}")
                    self.literals(one)
        elif groups:
            self.literals(groups[0][0])
        self.literals(end)

    def _shown(self, between: Between) -> Between:
        """The same as it looks in a template: whose a literal is counts only where that is told."""
        if self._code.generation:
            return between
        before, behind, head = (_merged(said) for said in (between.before, between.behind, between.head))
        return Between(between.joined, before, behind, head, False)

    def open_turn(self, place: Place, between: Between) -> None:
        """What stands before a segment's own opening."""
        self.literals(between.before)
        if not between.joined:
            for attribute in place.turn_attributes:
                self._bare(attribute, place)
        self.literals(between.behind)

    def _open(self, place: Place, between: Between) -> None:
        """What stands before a payload."""
        self.open_turn(place, between)
        if place.segment.named:
            self._line(place, between)
            return
        if place.lead and not place.open and not between.joined:
            with self._code.block("if text" if empties(place.body) else "if true"):
                self._code.write(place.lead, between.of_model)
        self.literals(between.head[:-1])
        last, of_model = between.head[-1] if between.head else ("", False)
        if place.own_attributes:
            self._code.write(last, of_model)
            self._attributes(place, between.of_model)
        else:
            self._head(place, last, of_model)

    def _head(self, place: Place, head: str, of_model: bool) -> None:
        """The end of an opening. An empty line behind it would be one too many where texts have none."""
        bare = head.rstrip("\n")
        tight = self._out.layout.document.flattened and place.kind != ToolCall.kind and empties(place.body)
        if tight and bare != head:
            self._code.say(f"({quoted(head)} if text else {quoted(bare)})", of_model)
        else:
            self._code.write(head, of_model)

    def _line(self, place: Place, between: Between) -> None:
        """The name of a tool on a line before the opening of a call."""
        code = self._code
        if place.lead and not between.joined:
            code.write(place.lead, place.model)
        out = self._of(place)
        out.lose("$.messages[].tool_calls[].function.name", "a name with letters that are not ASCII is a JSON string")
        out.content(out.library.call("line", "name"))
        code.write(f"\n{place.open}{place.head_end}", place.model)

    def literals(self, said: Said) -> None:
        """Literals, each as whose it is."""
        for text, of_model in said:
            self._code.write(text, of_model)

    # Attributes.

    def _bare(self, attribute: Attribute, place: Place) -> None:
        if attribute.path != "name" or place.kind not in SPEAKERS:
            return  # messages say nothing else, and those of tools do not say who speaks
        out = self._of(place)
        out.lose("$.messages[].name", "white space of other kinds than blanks, tabs and line ends stays in a name")
        with self._code.block("if speaker is string and speaker"):
            self._code.write(f" {attribute.key}=", False)
            value = out.library.call("bare", "speaker")
            self._code.say(out.library.protected(value, out.layout.escape), False)

    def _attributes(self, place: Place, of_model: bool) -> None:
        """The attributes of an opening, and its end."""
        out = self._of(place)
        for attribute in place.segment.attributes_shown:
            self._attribute(attribute, out, of_model)
        for word, condition in _told(place, out):
            with self._code.block(f"if {condition}"):
                self._code.write(word, of_model)
        self._head(place, place.head_end, of_model)

    def _attribute(self, attribute: Attribute, out: Payloads, of_model: bool) -> None:
        field = _FIELDS.get(attribute.path)
        if field is None or attribute.words:
            return  # messages do not say it
        if breaks_strings(out.escape):
            out.lose("$.messages[].tool_calls", "a tag of the format in a tool's name or an id is not broken")
        value, condition = field, f"{field} is string"
        if attribute.fallback in _FIELDS:
            value = f"({field} if {field} is string else {_FIELDS[attribute.fallback]})"
            condition = f"{field} is string or {_FIELDS[attribute.fallback]} is string"
        if attribute.default is not None:
            condition += f" and {field} != {quoted(attribute.default)}"
        with self._code.block(f"if {condition}"):
            self._code.write(f" {attribute.key}=", of_model)
            self._code.say(out.library.call("attribute", value), of_model)


def _merged(said: Said) -> Said:
    text = "".join([one for one, _ in said])
    return ((text, False),) if text else ()


def parted_end(said: Sequence[Said]) -> tuple[list[Said], Said]:
    """Runs of literals without what all end with, and that. A tag or a line is not cut in two."""
    rest, end = [list(one) for one in said], list[tuple[str, bool]]()
    while len(rest) > 1 and all(rest) and len({one[-1] for one in rest}) == 1:
        end.insert(0, rest[0][-1])
        rest = [one[:-1] for one in rest]
    if len(rest) > 1 and all(rest) and len({one[-1][1] for one in rest}) == 1:
        texts = [one[-1][0] for one in rest]
        backwards = enumerate(zip(*map(reversed, texts), strict=False))
        size = next((at for at, ends in backwards if len({*ends}) > 1), min(map(len, texts)))
        shared = texts[0][len(texts[0]) - size :]
        begin = _BEGINNING.search(shared)
        if begin is not None:
            size, of_model = len(shared) - begin.start(), rest[0][-1][1]
            end.insert(0, (shared[begin.start() :], of_model))
            for one, text in zip(rest, texts, strict=True):
                one[-1] = (text[: len(text) - size], of_model)
    return [tuple([literal for literal in one if literal[0]]) for one in rest], tuple(end)


def _told(place: Place, out: Payloads) -> Sequence[tuple[str, str]]:
    """What an opening says of how the payload is written, and when."""
    found = _FORMATS.get(type(place.body))
    return found(out) if found else ()


def _of_call(out: Payloads) -> Sequence[tuple[str, str]]:
    looks = out.library.call("looks", "arguments")
    return [(' format="raw"', f'arguments is string and {looks} != "object"')]


def _of_result(out: Payloads) -> Sequence[tuple[str, str]]:
    out.lose("$.messages[].content", "whether a result is JSON is told by its first and last characters")
    looks = out.library.call("looks", "text")
    several = "content is not string and content is defined and content is not none and content|length"
    one = f'({several} == 1 and content[0].type == "text")'
    single = f"(content is string or {one})"
    return [
        (' format="parts"', f"{several} > 0 and not {one}"),
        (' format="json"', f'{single} and {looks} in ["array", "value"]'),
        (' format="text"', f"({single} and not {looks}) or not content"),
    ]


_FORMATS: dict[type, Callable[[Payloads], Sequence[tuple[str, str]]]] = {
    CallArguments: _of_call,
    ResultContent: _of_result,
}
