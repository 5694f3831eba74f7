"""Owns the template of a format: the loop over messages, made from the format's table."""

from __future__ import annotations

from collections.abc import Sequence

from turnscript.core.conversation import Assistant, System, Thinking, ToolCall, ToolResult, User
from turnscript.core.errors import Unsupported
from turnscript.core.losses import Loss
from turnscript.core.payloads import Rendered
from turnscript.engine.bracedcalls import BracedResult
from turnscript.engine.correlate import Indices, Numbering, numbering_of, shows
from turnscript.engine.escape import AUTO
from turnscript.engine.jsoncalls import JsonResult
from turnscript.engine.layout import Layout, Place, layout_of
from turnscript.engine.table import Document, as_seen
from turnscript.export.jinja.beginning import INSTRUCTIONS, Beginning
from turnscript.export.jinja.code import Code, all_of, among, none_of, quoted
from turnscript.export.jinja.escapes import is_simple
from turnscript.export.jinja.flow import BEGINNING, Flow, Said
from turnscript.export.jinja.lists import is_tools
from turnscript.export.jinja.macros import Library
from turnscript.export.jinja.segments import Segments, is_written
from turnscript.export.jinja.writing import Payloads

_ROLES: dict[str, Sequence[str]] = {User.kind: ["user"], ToolResult.kind: ["tool"], System.kind: INSTRUCTIONS}
"""The roles of the messages that hold items of a kind, where they hold nothing else."""
_STATE = {
    "at": quoted(BEGINNING),  # the kind of the last item that was written
    "last": '""',  # the kind of the last item
    "behind": '""',  # the same before a message, until it has written something
    "told": "false",  # the first instructions are written
    "listed": "false",  # the tools are written
    "flags": '""',  # the tags behind the first instructions
    "user": "-1",  # the last message that makes thoughts before it past
    "calls": "0",  # how many calls there were
}
_OPTION = ", option "
_HEAD, _TAIL = "{#- The format ", ", made by turnscript from its table. -#}"
_KINDS = frozenset({*_ROLES, Assistant.kind, Thinking.kind, ToolCall.kind})
_THOUGHT = "message.reasoning_content if message.reasoning_content is string else message.reasoning"


def write_template(
    document: Document, name: str, *, option: str = "", escape: str = AUTO, generation: bool = False
) -> Rendered[str]:
    """The template of a document, and what it writes otherwise than a prompt. Raises Unsupported for a format with a
    payload that no template can write. `option`: which of the format's it is."""
    layout = layout_of(as_seen(document), escape)
    _refuse_strangers(layout)
    template = _Template(layout, escape, generation, document.stand_ins)
    template.write()
    made_of = f"{name}{_OPTION}{option}" if option else name
    head = f"{_HEAD}{made_of.replace('#', '')}{_TAIL}"
    text = "\n".join([head, *template.library.lines, *template.lines()])
    return Rendered(f"{text}\n", template.losses())


def format_of_template(text: str) -> tuple[str, str]:
    """The name of the format that a template was made of, and its option; empty for others."""
    head, _, rest = text.partition(_TAIL)
    if not rest or not head.startswith(_HEAD):
        return "", ""
    name, _, option = head.removeprefix(_HEAD).partition(_OPTION)
    return name, option


def _refuse_strangers(layout: Layout) -> None:
    """Refuse payloads that are no engine's own."""
    tools = layout.document.tools_place
    found: list[object] = [
        place.body for kind, place in layout.places.items() if kind in _KINDS and not is_written(place.body)
    ]
    found += [tools.body] if tools is not None and not is_tools(tools.body) else []
    for body in found:
        raise Unsupported(f"payloads of the shape {type(body).__name__}", "a chat template")


class _Template:
    """A template as it is written. `of_tokenizer`: what stands around a document is what the tokenizer has for that."""

    def __init__(self, layout: Layout, policy: str, generation: bool, of_tokenizer: bool) -> None:
        self._layout = layout
        self._of_tokenizer = of_tokenizer
        self._document = layout.document
        self.code = Code(generation)
        self.library = Library(policy)
        self._flow = Flow(layout)
        self._out = Payloads(layout, self.code, self.library, [], layout.escape)
        self._segments = Segments(self._flow, self._out)
        self._beginning = Beginning(self._flow, self._out, self._segments)
        self._numbering: Numbering | Indices | None = numbering_of(document=self._document)

    def losses(self) -> list[Loss]:
        """What differs."""
        out = self._out
        if any(not is_simple(one) for one in self.library.escapes):
            out.lose("$.messages", "where two tags may begin at one place, a text may get one backslash too many")
        if shows(self._document).call_id or shows(self._document).result_id:
            out.lose(
                "$.messages[].tool_calls[].id", "one that was made for a call without any, `call_auto_001`, is shown"
            )
        if ToolCall.kind in self._layout.places:
            out.lose("$.tool_choice", "a template is not told of it, so it opens no call that must be made", "dropped")
        if ToolCall.kind in self._layout.places or ToolResult.kind in self._layout.places:
            out.lose("$.messages[]", "JSON that is a string keeps the escapes of its characters, such as `\\u00e9`")
        return sorted(out.losses, key=lambda one: one.path)

    def lines(self) -> list[str]:
        """The template without its macros: what it remembers from message to message, and the loop over them."""
        text = self.code.text
        needed = [f"{name}={value}" for name, value in _STATE.items() if f"ns.{name}" in text]
        return [f"{{%- set ns = namespace({', '.join(needed)}) -%}}", text]

    def write(self) -> None:
        """Write all of it."""
        code = self.code
        if Thinking.kind in self._layout.places:
            self._thinks()
        self._find_users()
        if self._of_tokenizer:
            code.say('bos_token or ""')
        self._beginning.write()
        with code.block("for message in messages"):
            if self._beginning.waits:
                with code.block(f"if tools and not ns.listed and {none_of('message.role', INSTRUCTIONS)}"):
                    self._beginning.tools_apart()
            code.variable("at", "loop.index0")
            code.variable("content", "message.content")
            code.variable("role", "message.role")
            code.variable("speaker", "message.name")
            code.variable("name", "message.name")
            self._messages()
        if self._beginning.waits:
            with code.block("if tools and not ns.listed"):
                self._beginning.tools_apart()
        self._end()

    def _thinks(self) -> None:
        """Whether the answer begins with a thought."""
        code = self.code
        known = "reasoning_effort is defined and reasoning_effort is string"
        code.statement(f'set effort = reasoning_effort if {known} else ""')
        code.statement('set thinks = effort not in ["", "none", "minimal"]')
        with code.block("if enable_thinking is defined and enable_thinking is not none"):
            code.statement("set thinks = enable_thinking")

    def _find_users(self) -> None:
        """Where the last of those messages stands that make thoughts past."""
        until = {place.segment.until for place in self._layout.places.values() if place.segment.until}
        for kind in sorted(until):
            if kind not in _ROLES:
                detail = f"what a prompt shows until an item of type {kind!r} follows is always shown"
                self._out.lose("$.messages", detail)
                continue
            messages = self.code.block("for message in messages")
            with messages, self.code.block(f"if {among('message.role', _ROLES[kind])}"):
                self.code.statement("set ns.user = loop.index0")

    # Messages.

    def _messages(self) -> None:
        code = self.code
        with code.block(f"if {among('message.role', INSTRUCTIONS)}"):
            with code.block("if not (loop.first and ns.told)"):
                self._text(System.kind)
            code.statement('set ns.last = "system"')
            code.otherwise('elif message.role == "user"')
            self._text(User.kind)
            code.statement('set ns.last = "user"')
            code.otherwise('elif message.role == "assistant"')
            self._answer()
            code.otherwise('elif message.role == "tool"')
            self._result()
            code.statement('set ns.last = "tool_result"')
            code.otherwise()
            code.say('raise_exception("there is no place for messages of the role " ~ message.role)')

    def _text(self, kind: str) -> None:
        place = self._layout.places.get(kind)
        if place is None or not place.segment.prompt:
            return
        self._set_text("content")
        self._segments.stand(place)

    def _set_text(self, content: str) -> None:
        self.code.statement(f"set text = {self._out.flat(self.library.call('texts', content))}")

    def _answer(self) -> None:
        """The thought, the text and the calls of a message."""
        code = self.code
        code.statement("set ns.behind = ns.last")
        code.statement(f"set thought = {_THOUGHT}")
        if self._layout.place_named(Thinking.kind, "reason") is not None:
            with code.block("if thought is not string"):
                code.statement(f"set thought = {self.library.call('thoughts', 'content')}")
                code.statement("set thought = thought if thought else none")
        code.statement("set calls = message.tool_calls if message.tool_calls else []")
        with code.block("if thought is string"):
            self._thought()
            self._behind(Thinking.kind)
        self._set_text("content")
        with code.block("if text or not (thought is string or calls)"):
            self._spoken()
            self._behind(Assistant.kind)
        if not self._document.flattened:
            detail = "an empty text beside a thought or calls is none, because some servers write one where none is"
            self._out.lose("$.messages[].content", detail)
        with code.block("for entry in calls"):
            self._call()
            self._behind(ToolCall.kind)

    def _behind(self, kind: str) -> None:
        self.code.statement(f"set ns.last = {quoted(kind)}")
        self.code.statement('set ns.behind = ""')

    def _thought(self) -> None:
        place = self._layout.place_named(Thinking.kind, "reason")
        if place is None or not place.segment.prompt:
            return
        code = self.code
        code.statement(f"set text = {self._out.flat('thought')}")
        conditions = ["text" if place.unseen_if_empty else ""]
        conditions.append("at > ns.user" if place.segment.until in _ROLES else "")
        condition = all_of(conditions)
        if condition:
            with code.block(f"if {condition}"):
                self._segments.write(place)
        else:
            self._segments.write(place)

    def _spoken(self) -> None:
        place = self._layout.places.get(Assistant.kind)
        if place is None:
            return
        unseen = self._unseen(place)
        if unseen:
            with self.code.block(f"if text or not ({unseen})"):
                self._segments.stand(place)
        else:
            self._segments.stand(place)

    def _unseen(self, place: Place) -> str:
        """The condition that an empty answer leaves no trace beside what stands around it."""
        layout, flow = self._layout, self._flow
        if not layout.hides_empty:
            return ""
        apart = flow.apart(place)
        joined = [one for one in flow.previous_kinds if flow.joins(one, place)]
        unseen = [one for one in joined if self._document.flattened or layout.leaves_no_trace(one, "")]
        within, always = [one for one in unseen if one in apart], [one for one in unseen if one not in apart]
        conditions = [all_of([among("ns.at", within), none_of("ns.behind", apart)])] if within else []
        conditions += [among("ns.at", always)] if always else []
        return " or ".join([f"({one})" if len(conditions) > 1 else one for one in conditions])

    def _call(self) -> None:
        place = self._layout.places.get(ToolCall.kind)
        code = self.code
        if place is None:
            return
        code.variable("function", "entry.function if entry.function is defined else entry")
        code.variable("name", "function.name")
        code.variable("id", "entry.id")
        code.variable("arguments", "function.arguments if function.arguments else {}")
        if isinstance(self._numbering, Indices):
            code.variable("label", self.library.call("indexed", "id", "ns.calls"))
        elif self._numbering is not None:
            marks = quoted(self._numbering.prefix), quoted(self._numbering.mark)
            code.variable("label", f"{self.library.call('numbered', *marks, 'name', 'id', 'ns.calls')}")
        self._segments.write(place)
        if self._numbering is not None:
            code.statement("set ns.calls = ns.calls + 1")

    def _result(self) -> None:
        place = self._layout.places.get(ToolResult.kind)
        code = self.code
        if place is None:
            return
        code.variable("id", "message.tool_call_id")
        self._set_text("content")
        label = getattr(place.body, "label", "name" if isinstance(place.body, JsonResult | BracedResult) else "")
        fields = {label, *[field for one in place.segment.attributes_shown for field in (one.path, one.fallback)]}
        if fields & {"id", "name"}:
            self._out.lose("$.messages[].tool_call_id", "a result without one is not paired with a call by their order")
        if "name" in fields:
            called = self.library.call("called", "messages[:at]", "id")
            code.variable("found", called)
            code.variable("name", "message.name if message.name is string else (found if found else none)")
        if isinstance(self._numbering, Indices):
            code.variable("label", self.library.call("reindexed", "messages[:at]", "id"))
        elif self._numbering is not None:
            marks = quoted(self._numbering.prefix), quoted(self._numbering.mark)
            code.variable("label", f"{self.library.call('renumbered', *marks, 'messages[:at]', 'id')}")
        else:
            code.variable("label", label or "name")
        self._segments.stand(place)

    # The end.

    def _end(self) -> None:
        """What a prompt opens for the model, or what ends a document."""
        code = self.code
        with code.block("if add_generation_prompt"):
            generation = self._document.generation
            if generation.thinking_kind in self._layout.places:
                with code.block("if thinks"):
                    self._hint()
                    self._opened(True)
                    code.otherwise()
                    self._opened(False)
            else:
                self._opened(False)
            if any(text for before in self._flow.previous_kinds for text, _ in self._flow.ending(before)):
                code.otherwise()
                self._closed()
                if self._of_tokenizer:
                    code.say('eos_token or ""')

    def _opened(self, thinks: bool) -> None:
        ends: dict[Said, list[str]] = {}
        for before in self._flow.previous_kinds:
            ends.setdefault(((self._flow.goes_on(before, thinks), False),), []).append(before)
        self._segments.by_kind(ends)

    def _closed(self) -> None:
        ends: dict[Said, list[str]] = {}
        for before in self._flow.previous_kinds:
            said = self._flow.ending(before)
            if not self.code.generation:
                said = (("".join([text for text, _ in said]), False),)
            ends.setdefault(said, []).append(before)
        self._segments.by_kind(ends)

    def _hint(self) -> None:
        hints = self._document.generation.hints
        if not hints:
            return
        with self.code.block('if ns.last == "user"'):
            low, high = '["low", "minimal"]', '["high", "xhigh", "max"]'
            tiers = f"{quoted(hints['low'])} if effort in {low} else ({quoted(hints['high'])} if effort in {high}"
            self.code.say(f"({tiers} else {quoted(hints['medium'])}))")
