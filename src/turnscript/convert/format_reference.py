"""Owns the reference of a format: what there is to say about it, read off its table and off live examples.

Nothing here is written for one format by hand: an example is rendered, and what a format cannot carry is tried out.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import zip_longest
from typing import Any

from msgspec import Struct

from turnscript.core.conversation import (
    Assistant,
    Conversation,
    Image,
    Item,
    Part,
    Request,
    System,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolResult,
    User,
)
from turnscript.core.json_text import json_of
from turnscript.core.losses import Loss
from turnscript.core.presets import Preset, get_preset
from turnscript.engine.correlate import shows
from turnscript.engine.files import FileSequence, Fill
from turnscript.engine.spans import Span, text_of_spans
from turnscript.engine.table import Document
from turnscript.engine.template.program import InvalidTemplate, TemplateRefused
from turnscript.engine.template.template import Template
from turnscript.formats.format import Format


class Cut(Struct, frozen=True):
    """A prompt: its spans, and how much of the answer it has written already."""

    spans: list[Span]
    prefill: str

    @property
    def text(self) -> str:
        """The prompt as one string."""
        return text_of_spans(self.spans)


class Limit(Struct, frozen=True):
    """Something that a format cannot carry: `what`, and what happens to it."""

    what: str
    losses: list[Loss]


class Escaped(Struct, frozen=True):
    """A control literal, how it is written where a text holds it, and whose texts: the kinds of the items."""

    literal: str
    written: str
    kinds: list[str]


class OwnWords(Struct, frozen=True):
    """What there is to say of a model's own chat template.

    `told_by`: where it was found. `read_as`: the table that reads what it writes, `learned` from it or with a name;
    `exact`: it gives back all of it; `sentence` says so to people. `takes`: what it has a place for. `switches`: the
    variables by which it is told to think, and not to; `efforts` are the words for the variable `effort`. `dated`: it
    writes the date. `variables`: all that it reads besides the messages. `missing`: tokens that it writes and that
    nobody knows here, which are left empty. `refused`: why it does not write the example as it is.
    """

    told_by: str
    read_as: str
    learned: bool
    exact: bool
    sentence: str
    takes: dict[str, bool]
    switches: dict[str, tuple[Any, Any]]
    effort: str
    efforts: tuple[str, ...]
    budget: str
    dated: bool
    variables: tuple[str, ...]
    missing: tuple[str, ...]
    refused: str = ""


class OrderShown(Struct, frozen=True):
    """One way to write a text with a hole: its name, the example in it, and whether a model can go on there."""

    name: str
    example: str
    prompts: bool


class FilesShown(Struct, frozen=True):
    """How a format writes files: what stands between two of them, the example of that, and the orders of a hole, that
    of documents first. `prompt_order`: that of prompts; empty if none is."""

    separator: str
    example: str
    orders: list[OrderShown]
    prompt_order: str


class Reference(Struct, frozen=True):
    """All about a format.

    `conversation`: the example as a model sees it. `prompt` and `thinking`: the example cut behind the user's question;
    `thinking` is None for a format without thoughts. `losses`: what the example lost. `notes`: how the format differs
    from what one might expect. `escapes`: every literal that some text may not hold as it is. `template`: of a format
    that came with one. `files`: of one that has documents of files. `presets`: what to sample with, as the format's
    document says it. `variant`: the one that this is of. `variants`: by name, the first line of the example and its
    prompts that each writes otherwise, and the format's own in its place; nothing where it writes them all alike.
    """

    name: str
    title: str
    conversation: list[Span]
    prompt: Cut
    thinking: Cut | None
    stops: list[str]
    stops_with_tools: list[str]
    special_tokens: list[str]
    losses: list[Loss]
    limits: list[Limit]
    notes: list[str]
    escapes: list[Escaped]
    template: OwnWords | None = None
    files: FilesShown | None = None
    presets: list[Preset] = []
    variant: str = ""
    variants: dict[str, tuple[str, ...]] = {}

    @property
    def text(self) -> str:
        """The example as one string."""
        return text_of_spans(self.conversation)


def reference(format_: Format) -> Reference:
    """Return the reference of a format. Raises TemplateRefused and InvalidTemplate for a template that fails on it."""
    request, refused = _written_example(format_)
    generation = format_.document.generation
    own = () if format_.template is None else format_.template.stops
    return Reference(
        name=format_.name,
        title=format_.title,
        conversation=format_.spans(request),
        prompt=_cut(format_, request, thinking=False),
        thinking=_cut(format_, request, thinking=True) if has_thoughts(format_) else None,
        stops=list(dict.fromkeys((*generation.stops, *own))),
        stops_with_tools=list(dict.fromkeys((*generation.stops_with_tools, *own))),
        special_tokens=format_.special_tokens,
        losses=format_.render(request, view="prompt").losses,
        limits=list(_limits(format_)),
        notes=[*_notes(format_.document), *_of_models(format_)]
        if format_.template is None
        else [_growing(format_.document.grows)],
        escapes=list(_escapes(format_)),
        template=None if format_.template is None else _own_words(format_.template, refused),
        files=_files(format_),
        presets=list(map(get_preset, format_.presets)),
        variant=format_.option,
        variants={name: _otherwise(format_.variant(name), format_) for name in format_.variants},
    )


def _files(format_: Format) -> FilesShown | None:
    files = format_.document.files
    if files is None:
        return None
    hole = Fill("one ", " three", "two")
    orders = [
        OrderShown(order.name, format_.render_fill(hole, order=order.name).value, order.generates)
        for order in files.orders
    ]
    several = FileSequence(["the first file", "the second file"])
    shown = format_.render_files(several).value if files.separator else ""
    return FilesShown(files.separator, shown, orders, next((one.name for one in orders if one.prompts), ""))


def _otherwise(variant: Format, format_: Format) -> tuple[str, ...]:
    """Return the first line of the example that a variant writes otherwise, and that of the format."""
    for theirs, ours in zip(_examples(variant), _examples(format_), strict=True):
        lines = zip_longest(theirs.split("\n"), ours.split("\n"), fillvalue="")
        for pair in lines:
            if pair[0] != pair[1]:
                return pair
    return ()


def _examples(format_: Format) -> list[str]:
    request = example()
    asked = _request(*request.items[:2], tools=request.tools)
    prompts = [format_.prompt(asked, thinking=thinking).text for thinking in (has_thoughts(format_), False)]
    return [format_.render(request, view="prompt").value, format_.render(request).value, *prompts]


def has_thoughts(format_: Format) -> bool:
    """Return whether a model can think in this format."""
    document = format_.document
    if format_.template is not None:
        return format_.template.thinks(document)
    kinds = {segment.kind for turn in document.turns for segment in turn.segments}
    return document.generation.thinking_kind in kinds


def example() -> Request:
    """A short conversation with one item of every usual kind, and one tool."""
    result = '{"temperature": 22, "condition": "sunny"}'
    return _request(
        System(content=_text("You are a helpful assistant.")),
        User(content=_text("What is the weather in Tokyo?")),
        Thinking(content=_text("I need to look that up.")),
        Assistant(content=_text("Let me look.")),
        ToolCall(name=_TOOL.name or "", arguments='{"city": "Tokyo"}', id="call_001"),
        ToolResult(content=_text(result), id="call_001", name=_TOOL.name),
        Assistant(content=_text("It is sunny in Tokyo, at 22 degrees.")),
        tools=[_TOOL],
    )


_TOOL = Tool(
    name="get_weather",
    description="The weather in a city, now.",
    parameters=json_of({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}),
)
_PLAIN_TOOL = Tool(name="book", description="Book a room.")
_RICH_TOOL = Tool(
    name="book",
    description="Book a room.",
    parameters=json_of(
        {
            "type": "object",
            "properties": {"nights": {"type": "integer", "minimum": 1, "description": "how many"}},
            "required": ["nights"],
            "additionalProperties": False,
        }
    ),
)


def _text(text: str) -> list[Part]:
    return [Text(text=text)]


def _request(*items: Item, tools: list[Tool] | None = None) -> Request:
    return Request(conversation=Conversation(items=list(items), tools=tools or []))


def _written_example(format_: Format) -> tuple[Request, str]:
    """Return the example, and why a template refuses it: then without tools, and at last without instructions."""
    request, first = example(), ""
    plain = [item for item in request.items if isinstance(item, System | User)]
    shortest = _request(*plain[1:], request.items[-1])
    for one in (request, _request(*plain, request.items[-1])):
        try:
            format_.spans(one)
        except (TemplateRefused, InvalidTemplate) as error:
            first = first or str(error)
        else:
            return one, first
    return shortest, first


def _own_words(template: Template, refused: str) -> OwnWords:
    traits = template.traits
    told = (*(one.variable for one in traits.switches), traits.effort, traits.budget)
    return OwnWords(
        told_by=template.told_by,
        read_as=template.read_as,
        learned=bool(template.learned),
        exact=template.exact,
        sentence=template.sentence,
        takes={
            "instructions": traits.system,
            "thoughts": traits.thoughts,
            "tools": traits.tools,
            "tool calls": traits.calls,
            "results of tools": traits.results,
        },
        switches={one.variable: (one.on, one.off) for one in traits.switches},
        effort=traits.effort,
        efforts=traits.efforts,
        budget=traits.budget,
        dated="strftime_now" in template.source,
        variables=tuple(name for name in template.wishes if name not in told),
        missing=template.unknown_tokens,
        refused=refused,
    )


def _cut(format_: Format, request: Request, *, thinking: bool) -> Cut:
    request = _request(*request.items, tools=request.tools)
    asked = next(index for index, item in enumerate(request.items) if isinstance(item, User))
    del request.items[asked + 1 :]
    prompt = format_.prompt(request, thinking=thinking)
    return Cut(prompt.spans, prompt.prefill)


# What a format cannot carry: each probe is a conversation with one feature, beside the same one without it.


def _limits(format_: Format) -> Iterator[Limit]:
    for what, probe, plain in _probes():
        try:
            expected = set(_losses(format_, plain)) if plain is not None else set()
            losses = [loss for loss in _losses(format_, probe) if loss not in expected]
        except (TemplateRefused, InvalidTemplate) as error:
            said = error.said if isinstance(error, TemplateRefused) else error.message
            losses = [Loss("$", "dropped", f"the template refuses it: {said}")]
        if losses:
            yield Limit(what, losses)


def _asked(request: Request) -> Request:
    """Return a request that begins as all that templates take do: with a question."""
    if any(isinstance(item, User) for item in request.items):
        return request
    before = [item for item in request.items if isinstance(item, System)]
    rest = request.items[len(before) :]
    return _request(*before, User(content=_text("Hi")), *rest, tools=list(request.tools))


def _losses(format_: Format, request: Request) -> list[Loss]:
    asked = request if format_.template is None else _asked(request)
    return format_.render(asked, view="prompt").losses


def _probes() -> Iterator[tuple[str, Request, Request | None]]:
    hello = _text("Hi")
    yield "instructions", _request(System(content=hello)), None
    yield "thoughts", _thought(), None
    yield "tool calls", _request(ToolCall(name="f")), None
    yield "results of tools", _answered(), _request(ToolCall(name="f"))
    yield "the tools that there are", _request(tools=[_PLAIN_TOOL]), None
    yield "the ids of a call and its result", _answered(id_="call_001"), _answered()
    yield "whether a tool failed", _answered(status="error"), _answered()
    yield "how the arguments of a call are spelled", _answered('{"at": 1.0,  "in": 1e5}'), _answered()
    yield "arguments that are no JSON object", _answered("five"), _answered()
    yield "the whole schema of a tool", _request(tools=[_RICH_TOOL]), _request(tools=[_PLAIN_TOOL])
    yield "the name of a speaker", _request(User(content=hello, name="Ada")), None
    developer = System(content=hello, role="developer")
    yield "instructions of the developer", _request(developer), _request(System(content=hello))
    yield "blank lines, and white space at the ends of a text", _request(User(content=_text("a\n\nb "))), None
    yield "several texts in one message", _request(User(content=[*_text("a"), *_text("b")])), None
    yield "pictures", _request(User(content=[*_text("a"), Image(url="https://example.com/a.png")])), None
    yield "the signature of a thought", _thought(signature="c2ln"), _thought()
    yield "kinds of thoughts", _thought(of="reflect"), _thought()


def _answered(arguments: str = "{}", *, id_: str | None = None, status: str | None = None) -> Request:
    name = "f"
    call = ToolCall(name=name, arguments=arguments, id=id_)
    return _request(call, ToolResult(content=_text("done"), name=name, id=id_, status=status))


def _thought(*, of: str = "reason", signature: str | None = None) -> Request:
    return _request(Thinking(content=_text("a"), of=of, signature=signature), Assistant(content=_text("b")))


# What the table says.

_PAIRING = {
    "hidden": "No id tells which call a result answers: it is the first open one of its name, else the first one.",
    "on_results": "A result shows the id of its call, a call none: results answer the calls before them in order.",
}
_BOTH_SHOWN = "A call shows its id, and a result the id of its call."


_BLANK = {
    "empty": "A line of white space is no blank line, and stays.",
    "whitespace": "A line of white space is a blank line, too.",
}


def _notes(document: Document) -> Iterator[str]:
    """What is unusual, as sentences."""
    if document.flattened:
        yield "A blank line ends a turn: blank lines inside a text become single newlines, and its ends are stripped."
        yield _BLANK[document.blank]
    if document.anchored:
        yield "A tag counts only where it fills a line."
    if document.results in _PAIRING:
        shown = shows(document)
        yield _BOTH_SHOWN if shown.call_id and shown.result_id else _PAIRING[document.results]
    if document.stand_ins:
        yield (
            f"{document.start} and {document.end} stand for tokens of a model: documents show them, prompts have none "
            "where a server or a tokenizer puts its own, and else what the model has."
        )
    if document.always_system:
        yield "A system turn is written even if there is nothing to say in it."
    segments = [segment for turn in document.turns for segment in turn.segments]
    if any(segment.tentative for segment in segments):
        yield "A call counts only if it is of a tool that was offered, because its opening is ordinary text too."
    if any(segment.body.name_last for segment in segments):
        yield "A call has its arguments before its name, so they can be told only with the name, and then all at once."
        yield "A call with its name first is read, too, and its arguments are told as they come."
    if any(turn.open and not turn.close for turn in document.turns):
        yield "A turn has no closing: it ends where the next one begins."
    if any(turn.behind for turn in document.turns):
        yield "A turn may begin without an opening: right behind the closing of another, or at the start."
    leads = {turn.lead for turn in document.turns if turn.lead and any(one.model for one in turn.segments)}
    yield from (f"A prompt leaves out the {lead!r} that follows the speaker: the model writes it." for lead in leads)
    yield _growing(document.grows)


def _of_models(format_: Format) -> Iterator[str]:
    """Return what the models of a format want, and which of them are too old for all that it has."""
    if format_.prepend_tokens:
        ids = list(format_.prepend_tokens)
        yield f"Where a server prepares no state, its models want tokens before a prompt: `prepend_tokens = {ids}`."
    for since, older in dict.fromkeys((clue.thinks_from, clue.older) for clue in format_.clues if clue.older):
        yield f"A model whose name has a day before {since} takes the variant {older}: it was not trained to think."


def _growing(why_not: str) -> str:
    if why_not:
        return f"A prompt may not begin the next one: {why_not}."
    return "Every prompt begins the next one, so what a model has computed for it can be kept."


# How content is kept apart from control literals.


def _escapes(format_: Format) -> Iterator[Escaped]:
    own = format_.special_tokens if format_.template is not None else format_.document.literals
    for literal in dict.fromkeys(literal.strip() for literal in own):
        texts: list[System | User | Assistant] = [kind(content=_text(literal)) for kind in (System, User, Assistant)]
        kinds: dict[str, list[str]] = {}
        for item in texts:
            with suppress(TemplateRefused, InvalidTemplate):  # of a role that a template does not take
                kinds.setdefault(_written(format_, item), []).append(item.kind)
        # More than a backslash may change: some formats have no room for blank lines.
        slashed = (written for written in kinds if written.count("\\") > literal.count("\\"))
        yield from (Escaped(literal, written, kinds[written]) for written in slashed)


def _written(format_: Format, item: Item) -> str:
    return "".join([span.text for span in format_.spans(_request(item)) if not span.control])
