"""Owns the beginning of a template: the first instructions, where more than their text stands there, and the tools."""

from __future__ import annotations

from contextlib import nullcontext

from turnscript.core.conversation import System
from turnscript.engine.bodies import ToolList
from turnscript.engine.layout import Place
from turnscript.engine.system import ALONE, BEFORE, BEHIND
from turnscript.engine.table import Document, ToolsPlace
from turnscript.export.jinja.code import among, quoted
from turnscript.export.jinja.flow import BEGINNING, LISTED, Flow
from turnscript.export.jinja.lists import write_tools
from turnscript.export.jinja.segments import Segments
from turnscript.export.jinja.texts import write_text
from turnscript.export.jinja.writing import Payloads

INSTRUCTIONS = ["system", "developer"]
_LIST = ToolList()


class Beginning:
    """Writes what stands before the messages, and the tools where they stand behind the first instructions."""

    def __init__(self, flow: Flow, out: Payloads, segments: Segments) -> None:
        self._flow = flow
        self._out = out
        self._code = out.code
        self._segments = segments
        self._document: Document = out.layout.document
        self._place: Place | None = out.layout.places.get(System.kind)

    @property
    def waits(self) -> bool:
        """Whether the tools stand behind all the first instructions, in no turn."""
        place = self._document.tools_place
        return self._document.tools is not None or (place is not None and place.order == "apart")

    @property
    def _for_tools(self) -> bool:
        """Whether only tools make the first turn more than its text."""
        return self._document.flags is None and not self._document.always_system

    def write(self) -> None:
        """Write what comes before any message."""
        document, place = self._document, self._document.tools_place
        self._code.write(document.start)
        if document.flags is not None:
            self._flag()
        if place is not None and place.order == "first":
            with self._code.block("if tools"):
                self.tools_apart()
        elif place is not None and place.order == ALONE:
            with self._code.block("if tools"):
                self._alone(place)
        if document.tools is None:
            self._first()

    def _first(self) -> None:
        """The first system turn, where it holds tools or flags, or is always written."""
        document, place = self._document, self._document.tools_place
        if place is not None and place.order not in (BEHIND, BEFORE):
            place = None
        conditions = ["tools"] if place is not None else []
        conditions += ["ns.flags"] if document.flags is not None else []
        if self._place is None or not (conditions or document.always_system):
            return
        if document.always_system:
            self._turn(place)
            return
        with self._code.block(f"if {' or '.join(conditions)}"):
            self._turn(place)

    def _turn(self, tools: ToolsPlace | None) -> None:
        assert self._place is not None
        code, place = self._code, self._place
        code.statement(f"set first = messages[0] if messages and {among('messages[0].role', INSTRUCTIONS)} else {{}}")
        code.variable("content", "first.content")
        out = self._payloads(place)
        code.statement(f"set text = {out.flat(out.library.call('texts', 'content'))}")
        continued = tools.continued if tools is not None and tools.order == BEHIND else ""
        if continued:
            self._split(out)
        code.variable("speaker", "first.name")
        code.variable("role", "first.role")
        code.statement(f"set ns.told = {among('messages[0].role', INSTRUCTIONS)} if messages else false")
        between = self._flow.between(BEGINNING, place, False)
        self._segments.open_turn(place, between)
        said = "text or ns.flags" if self._document.flags is not None else "text"
        if place.lead:
            condition = f"{said} or tools" if tools is not None else said
            begun = nullcontext() if tools is not None and self._for_tools else code.block(f"if {condition}")
            with begun:
                code.write(place.lead)
        if tools is not None and tools.order == BEFORE:
            self._list(tools, said)
        write_text(place.body, out)
        if self._document.flags is not None:
            code.say("ns.flags")
        if tools is not None and tools.order == BEHIND:
            self._list(tools, said)
        if continued:
            with code.block("if behind"):
                code.write(continued)
                out.content("behind", flat=True)
        code.write(place.close)
        code.statement(f"set ns.at = {quoted(place.kind)}")

    def _split(self, out: Payloads) -> None:
        """The instructions behind the tools: all parts but the first, unless they would be read as one of the tools."""
        code = self._code
        detail = "of instructions in several parts, none that begins like JSON stands behind the tools"
        out.lose("$.messages[0].content", detail)
        texts = out.library.call("texts", "content[1:]")
        code.statement("set several = content is not string and content is sequence and content|length > 1")
        code.statement(f'set behind = {texts} if tools and several and content[0].type == "text" else ""')
        code.statement('set behind = behind if behind.strip() and behind.strip()[:1] not in ["{", "["] else ""')
        with code.block("if behind"):
            code.statement(f"set text = {out.flat('content[0].text')}")
            code.statement(f"set behind = {out.flat('behind')}")

    def _list(self, tools: ToolsPlace, said: str) -> None:
        """The list of tools beside a text."""
        code = self._code
        with nullcontext() if self._for_tools else code.block("if tools"):
            if tools.joint and tools.order == BEHIND:
                with code.block(f"if {said}"):
                    code.write(tools.joint)
            self._listed(tools)
            if tools.joint and tools.order == BEFORE:
                with code.block(f"if {said}"):
                    code.write(tools.joint)

    def _listed(self, tools: ToolsPlace) -> None:
        out = self._out
        self._code.write(tools.open)
        write_tools(tools.body, Payloads(out.layout, out.code, out.library, out.losses, out.layout.escape))
        self._code.write(tools.close)

    def _alone(self, tools: ToolsPlace) -> None:
        """A system turn that holds the tools alone."""
        assert self._place is not None
        self._segments.literals(self._flow.between(BEGINNING, self._place, False).before)
        self._code.write(self._place.lead)
        self._listed(tools)
        self._segments.literals(self._flow.closing(self._place.kind))
        self._code.statement(f"set ns.at = {quoted(LISTED)}")

    def tools_apart(self) -> None:
        """The tools in no turn."""
        document, code, out = self._document, self._code, self._out
        previous_kinds = [BEGINNING, System.kind] if self._place is not None else [BEGINNING]
        ends = {before: "".join([text for text, _ in self._flow.closed(before)]) for before in previous_kinds}
        for before in previous_kinds:
            if ends[before]:
                with code.block(f"if {among('ns.at', [before])}"):
                    code.write(ends[before])
        if document.tools is not None:
            code.write(f"{document.tools.open}{document.tag_end}\n")
            write_tools(_LIST, Payloads(out.layout, out.code, out.library, out.losses, out.layout.escape))
            code.write(f"\n{document.tools.close}")
        elif document.tools_place is not None:
            self._listed(document.tools_place)
        code.statement(f"set ns.at = {quoted(LISTED)}")
        code.statement("set ns.listed = true")

    def _flag(self) -> None:
        """The tags of thoughts that stand behind the first instructions, where there are such thoughts."""
        assert self._document.flags is not None
        flag = self._document.flags.tags.get("reason", "")
        code = self._code
        with code.block("if thinks and add_generation_prompt"):
            code.statement(f"set ns.flags = {quoted(flag)}")
        thought = "(message.reasoning_content is string or message.reasoning is string)"
        with code.block("for message in messages"), code.block(f'if message.role == "assistant" and {thought}'):
            code.statement(f"set ns.flags = {quoted(flag)}")

    def _payloads(self, place: Place) -> Payloads:
        out = self._out
        return Payloads(out.layout, out.code, out.library, out.losses, place.escape, place.model)
