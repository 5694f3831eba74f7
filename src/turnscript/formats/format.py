"""Owns the contract of a prompt format: a table, and what the engine derives from it.

A format has no code of its own. `render` writes a request as text, `parse` reads a transcript strictly, `prompt` cuts
the text where the model goes on, and the prompt's parser reads what the model writes. All read the same table, so they
agree by construction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from turnscript.core.clues import Clue
from turnscript.core.conversation import Item, Request, Thinking, Tool, ToolCall, ToolChoice, ToolResult
from turnscript.core.errors import InvalidRequest, LossyConversion, UnknownName, Unsupported
from turnscript.core.json_spelling import note_laid_out, respelled, shown
from turnscript.core.json_text import Json
from turnscript.core.losses import Loss
from turnscript.core.payloads import Rendered
from turnscript.core.source_paths import in_source_words, unnamed
from turnscript.core.validation import MISTAKES, check_words, refuse_mistakes
from turnscript.engine.attributes import SPOKEN
from turnscript.engine.constraint import Constraint, Demand, calls_demanded, told
from turnscript.engine.doubts import with_doubts
from turnscript.engine.ends import based
from turnscript.engine.escape import AUTO, POLICIES
from turnscript.engine.files import (
    Files,
    FileSequence,
    Fill,
    FillPrompt,
    fill_of,
    prompt_of,
    read_files,
    read_fill,
    readings,
    sequence_losses,
    write_files,
)
from turnscript.engine.layout import layout_of, marks_around, marks_in, special_tokens
from turnscript.engine.lines import Findings, found_loss
from turnscript.engine.parse import TurnParser
from turnscript.engine.prompt import Prompt, bare_parser, begin_prompt
from turnscript.engine.read import claims_document, read_document
from turnscript.engine.render import write_document
from turnscript.engine.replay import Replays
from turnscript.engine.spans import Span, Writer, text_of_spans
from turnscript.engine.system import unflagged
from turnscript.engine.table import Document, as_seen, shown_whole, with_ends
from turnscript.engine.template.template import Template
from turnscript.engine.template_prompt import History, Wanted, begin_template_prompt, write_with_template
from turnscript.export.jinja import write_template
from turnscript.export.response_template import write_response_template
from turnscript.grammar.notations import writer_of

View = Literal["archive", "prompt"]
VIEWS = ("archive", "prompt")

_AROUND = "\ufeff \t\r\n"
"""These characters may stand around a transcript, and are no part of it."""


class Features(Struct, frozen=True):
    """What a format has a place for. What it has none for is a loss.

    `parallel_calls`: several calls in one turn of the model. `results`: answers of tools. `names`: of speakers.
    `files`: documents that are files. `holes`: texts with a hole for the model to fill.
    """

    thinking: bool
    tools: bool
    calls: bool
    parallel_calls: bool
    results: bool
    names: bool
    files: bool
    holes: bool


class Format(Struct, frozen=True):
    """A prompt format: its name, a title for people, its table, and what tells that a model wants it.

    `variants`: the same with some option taken, by the option's name. `template`: the model's own chat template, which
    then writes prompts, while the table reads what the model answers. `history`: how turns of the model are kept there.
    `words`: tools, calls and results that the template has no place for stand in texts, in the table's words.
    `presets`: the names of the sampling presets that the format's document gives. `prepend_tokens`: the ids that its
    models want before a prompt, where the server prepares no state for them.
    """

    name: str
    title: str
    document: Document
    clues: tuple[Clue, ...] = ()
    variants: Mapping[str, Document] = {}
    template: Template | None = None
    history: History = "template"
    words: bool = False
    presets: tuple[str, ...] = ()
    prepend_tokens: tuple[int, ...] = ()

    def variant(self, option: str) -> Format:
        """The same format with an option taken. Raises UnknownName."""
        if option not in self.variants:
            raise UnknownName(f"variant of {self.name}", option, self.variants)
        return replace(self, document=self.variants[option])

    @property
    def option(self) -> str:
        """The option that is taken, empty if none is."""
        return next((option for option, one in self.variants.items() if one is self.document), "")

    def with_ends(self, start: str = "", end: str = "") -> Format:
        """The same format with other strings around a document, also in prompts: those of a base model, or none."""
        variants = {option: with_ends(document, start, end) for option, document in self.variants.items()}
        return replace(self, document=with_ends(self.document, start, end), variants=variants)

    def begun_with(self, start: str) -> Format:
        """The same format as a model sees it, with another string before a document."""
        return self.with_ends(start, self.seen.end)

    @property
    def features(self) -> Features:
        """Return what the format has a place for, as its table says; in a template, what its table reads."""
        document, places = self.document, layout_of(self.document).places
        attributes = [one.path for turn in document.turns for one in turn.attributes]
        attributes += [
            one.path for place in places.values() if place.kind in SPOKEN for one in place.segment.attributes
        ]
        call, pair = places.get(ToolCall.kind), (ToolCall.kind, ToolCall.kind)
        orders = document.files.orders if document.files is not None else ()
        return Features(
            thinking=bool(layout_of(document).thoughts) or Thinking.kind in places,
            tools=document.tools is not None or document.tools_place is not None,
            calls=call is not None,
            parallel_calls=call is not None and (call.turn.several or not call.turn.speaks or pair in document.joints),
            results=ToolResult.kind in places,
            names="name" in attributes,
            files=document.files is not None and bool(document.files.separator),
            holes=bool(orders),
        )

    @property
    def seen(self) -> Document:
        """The document as a model sees it: its ends are a model's own, or none."""
        return as_seen(self.document)

    @property
    def forgets(self) -> frozenset[str]:
        """The kinds of items that a model writes and no later prompt shows, such as thoughts."""
        if self.template is not None:  # which shows, of any conversation, what a prompt shows of it
            return frozenset()
        segments = [one for turn in self.document.turns for one in turn.segments]
        return frozenset(one.kind for one in segments if one.model and not one.prompt)

    def remembering(self) -> Format:
        """The same format, by which prompts show those too: a turn of the model as it was when the model wrote it."""
        return replace(self, document=shown_whole(self.document)) if self.forgets else self

    def render(
        self,
        request: Request,
        *,
        view: str = "archive",
        escape: str = AUTO,
        strict: bool = False,
        normalize_json: bool = False,
    ) -> Rendered[str]:
        """The whole conversation as text.

        `archive` keeps everything that the format can and reads back equal; `prompt` is what a model may see, with
        characters where JSON has them as escapes. Settings are no part of a prompt and are listed among its losses.
        `strict` raises LossyConversion if anything is lost.
        `escape`: what to do with texts that hold the format's tags: `auto` breaks the tags, and a reader undoes that;
        `reject` raises InvalidConversation; `none` writes them as they are, and then a text can forge a turn.
        `normalize_json` writes what `normalized` gives; what that changes is among the losses, and is nothing that
        `strict` refuses, because it was asked for.
        """
        asked: list[Loss] = []
        try:
            check_words(request.settings)
            if normalize_json:
                request, asked = self.normalized(request)
            out = self.write(request, view=view, escape=escape)
            losses = in_source_words(request, out.all_losses())
            losses = losses if out.archive else [*losses, *unshown(request, self.document)]
        except MISTAKES:
            refuse_mistakes(request=request)
            raise
        if strict and losses:
            raise LossyConversion(losses, f"{self.name} ({view} view)")
        return Rendered(out.text, [*in_source_words(request, asked), *losses])

    def normalized(self, request: Request) -> tuple[Request, list[Loss]]:
        """The same with the JSON of calls and results in the format's own spelling, and a loss for each that changed.

        Of a call that is the arguments, where they are a JSON object; of a result each text that is an object or an
        array. They stand on one line, as JSON does where the format writes it, without escapes that JSON can do
        without. Numbers, the order of keys and keys that are there twice stay, and so does all that is no JSON.
        """
        return respelled(request, layout_of(self.document).spelling)

    def spans(
        self, request: Request, *, view: str = "prompt", escape: str = AUTO, normalize_json: bool = False
    ) -> list[Span]:
        """The same as spans: which text is control, which is content, and what the model itself would write."""
        try:
            request = self.normalized(request)[0] if normalize_json else request
            return self.write(request, view=view, escape=escape).spans
        except MISTAKES:
            refuse_mistakes(request=request)
            raise

    def write(
        self, request: Request, *, view: str = "prompt", escape: str = AUTO, now: datetime | None = None
    ) -> Writer:
        """The same as the writer that wrote them, whose pieces are no objects, and which can tell what was lost.

        `now`: the date that a template may write.
        """
        if view not in VIEWS:
            raise UnknownName("view", view, VIEWS)
        archive, policy = view == "archive", _policy(escape)
        if self.template is not None and not archive:
            return write_with_template(self.document, self.template, request, policy, now)
        if archive:
            return write_document(self.document, request, archive, policy)
        layout = layout_of(self.seen, policy)
        return write_document(self.seen, shown(request, layout.escape.forges, layout.spelling), archive, policy)

    def ends_late(self, item: Item) -> bool:
        """Whether nothing behind an item of the model ends its turn: only another's does, or the end of the text.

        So where it is the last, a model learns to stop from the end of the document alone.
        """
        if self.template is not None:
            return not self.template.traits.ends
        place = layout_of(self.document).place_for(item)
        return place is not None and place.ends_late

    def parse(self, transcript: str) -> Request:
        """A transcript as a request, strictly. Raises InvalidTranscript with line and column.

        The request's options are not typed yet: they stay in `extra` as their origin spelled them.
        """
        document, told = based(self.document, transcript)
        if document.stand_ins:
            text = transcript.strip(_AROUND)
            document = document if text.startswith(document.start) or text.endswith(document.end) else self.seen
        request = _laid_out(read_document(document, transcript))
        request.unread[:0] = told
        return request

    def check(self, transcript: str) -> tuple[Request, Findings]:
        """Return what can be read of a transcript, and all that is wrong with it: what `parse` refuses, wherever that
        is, what it does not keep as it stands, marks of the format that stand in texts, and what is hardly meant."""
        found = Findings()
        document, told = based(self.document, transcript)
        request = _laid_out(read_document(document, transcript, found))
        request.unread[:0] = told
        found.all += [found_loss(loss, found.tools) for loss in told]
        return request, with_doubts(document, transcript, request, found)

    def marks_in(self, text: str) -> frozenset[str]:
        """Return the marks of this format that stand in a text."""
        return marks_in(self.document, text)

    def marks_around(self, text: str, marks: frozenset[str]) -> frozenset[str]:
        """Return those marks that stand in a text, but not only in what is said with it."""
        return marks_around(
            self.document, text, marks, read_document(based(self.document, text)[0], text, Findings()).conversation
        )

    def unescaped(self, text: str) -> frozenset[str]:
        """Return a text without the escapes of this format, as each kind of its contents has them."""
        layout = layout_of(self.document)
        return frozenset(
            one.remove(text) for one in {layout.escape, *(place.escape for place in layout.places.values())}
        )

    def claims(self, text: str) -> bool:
        """Whether a text looks like a transcript of this format, by how it begins."""
        return claims_document(based(self.document, text)[0], text)

    def prompt(
        self,
        request: Request,
        *,
        thinking: bool | None = None,
        escape: str = AUTO,
        replays: Replays = (),
        normalize_json: bool = False,
        now: datetime | None = None,
    ) -> Prompt:
        """The conversation cut where the model goes on.

        A last assistant text that is `open` is continued. Otherwise a turn is opened: a thought if `thinking` (default:
        if the request's settings ask for it), a call if the tool choice demands one, else an answer. `escape` as for
        `render`. `replays`: turns to be written as the model wrote them (`Prompt.generated`), in order, each with the
        positions of its first item and behind its last; one that does not fit where it stands is rendered anew.
        `normalize_json` as for `render`; what stands as the model wrote it stays so. `now`: the date that a template
        may write; a prompt that grows keeps that of the first one.
        """
        spelling = layout_of(self.document).spelling if normalize_json else None
        try:
            check_words(request.settings)
            if self.template is not None:
                wanted = Wanted(thinking, _policy(escape), replays, spelling, self.history, self.words, now)
                return begin_template_prompt(self.document, self.template, request, wanted)
            return begin_prompt(self.seen, request, thinking, _policy(escape), replays, spelling)
        except MISTAKES:
            refuse_mistakes(request=request)
            raise

    def jinja(self, *, escape: str = AUTO, generation: bool = False, strict: bool = False) -> Rendered[str]:
        """The format as a chat template in Jinja, for whoever renders prompts from messages without turnscript.

        With `messages`, `tools`, `add_generation_prompt` and `enable_thinking` it writes what `prompt` does, byte for
        byte; without `add_generation_prompt`, what `render` does in the view `prompt`. What it writes otherwise is
        listed among the losses, and `strict` raises LossyConversion if anything is.
        `escape` is that of `prompt`. `generation` puts what the model writes into `{% generation %}`, by which
        transformers makes a mask.
        """
        if self.template is not None:
            return Rendered(self.template.source, [])
        template = write_template(
            self.document, self.name, option=self.option, escape=_policy(escape), generation=generation
        )
        if strict and template.losses:
            raise LossyConversion(template.losses, f"a chat template of {self.name}")
        return template

    def response_template(self) -> Rendered[dict[str, Any]]:
        """The format as transformers' `response_template`, by which it makes messages of what a model writes.

        What is read otherwise than by a prompt's parser is listed among the losses: something always is.
        """
        return write_response_template(self.seen)

    def parser(
        self, tools: Sequence[Tool] | None = None, *, prefill: str | None = "", stops: Sequence[str] = ()
    ) -> TurnParser:
        """A parser for a model's text without its prompt. `tools`: what was offered; None takes any call for one.

        `prefill`: what the prompt has written of the turn; if that is empty, what opens an answer; with None nothing.
        """
        try:
            return bare_parser(self.seen, tools, prefill, stops)
        except MISTAKES:
            refuse_mistakes(tools=tools)
            raise

    def grammar(
        self,
        tools: Sequence[Tool],
        tool_choice: ToolChoice | str = "required",
        *,
        target: str = "gbnf",
        parallel: bool = True,
        bounded: bool = False,
    ) -> Constraint:
        """What a model may write that must call these tools, from its first call on.

        `target`: the notation of its server, `gbnf` (llama.cpp, xgrammar), `kbnf` (ai00_server) or `lark` (llguidance).
        `parallel`: it may call several at once. `bounded`: only so many of them, and with little white space, as in the
        grammars of prompts; without it, they are to the letter those that were agreed on. With the choice `auto` the
        grammar is for what follows its `trigger`. Raises Unsupported where the format has no calls, or calls that no
        grammar tells; UnknownName; and InvalidRequest where no tool is left.
        """
        write = writer_of(target)
        try:
            return told(self.seen, calls_demanded(tools, tool_choice, parallel), bounded).written(target, write)
        except MISTAKES:
            refuse_mistakes(tools=tools)
            raise

    def answer_grammar(self, schema: Json | None = None, *, target: str = "gbnf", bounded: bool = False) -> Constraint:
        """What a model may write whose answer must be JSON that is valid under a schema, or with None any object.

        `bounded`: with little white space, as in the grammars of prompts.
        """
        write = writer_of(target)
        return told(self.seen, Demand(answers=True, shape=schema), bounded).written(target, write)

    def file_spans(self, files: FileSequence, *, order: str = "", escape: str = AUTO) -> list[Span]:
        """Files as spans: which text is control, which is content, and what the model itself would write."""
        known = self._files(_policy(escape))
        return write_files(known, files, known.order(order))

    def render_files(self, files: FileSequence, *, order: str = "") -> Rendered[str]:
        """Files as one document, the last of them maybe a text with a hole. `order`: how the hole is written."""
        known = self._files()
        spans = write_files(known, files, known.order(order))
        return Rendered(text_of_spans(spans), sequence_losses(files, known.order(order)))

    def parse_files(self, text: str, *, order: str = "") -> FileSequence:
        """The files of a document. Raises InvalidTranscript with line and column."""
        return read_files(self._files(), text, self._files().order(order))

    def files_mark(self, text: str) -> str:
        """What shows that a text is files of this format and no conversation: how a hole begins, or a separator line.

        Empty where nothing does, or where it begins as a conversation.
        """
        files = self.document.files
        return files.mark_in(text) if files is not None and not self.claims(text) else ""

    def file_readings(self, text: str) -> list[tuple[str, FileSequence]]:
        """The files of a document by the name of each order that reads it whole; of orders that read the same, once.

        Raises InvalidTranscript with line and column, where none does.
        """
        return [(order.name, sequence) for order, sequence in readings(self._files(), text)]

    def render_fill(self, fill: Fill, *, order: str = "") -> Rendered[str]:
        """A text with a hole as a document of its own."""
        return self.render_files(FileSequence([fill]), order=order)

    def parse_fill(self, text: str, *, order: str = "") -> Fill:
        """The text with a hole that a document is. Raises InvalidTranscript with line and column."""
        return read_fill(self._files().order(order), text)

    def fill_prompt(self, fill: Fill | FileSequence | Request, *, order: str = "") -> FillPrompt:
        """The prompt whose continuation fills the hole. `order`: one that ends where the hole is.

        Of a request, the hole is where its text ends and its `suffix` begins. Raises InvalidRequest if it has none.
        """
        known = self._files()
        hole = fill_of(fill) if isinstance(fill, Request) else fill
        if hole is None:
            raise InvalidRequest("there is no hole to fill: nothing stands behind one", path="$.suffix")
        sequence = FileSequence([hole]) if isinstance(hole, Fill) else hole
        made = prompt_of(known, sequence, known.prompt_order(order))
        asked = fill.settings.stop if isinstance(fill, Request) else None
        return replace(made, client_stops=tuple(asked or ()))

    @property
    def stops(self) -> list[str]:
        """The strings that end the model's turn where no tools are offered."""
        return list(self.document.generation.stops)

    @property
    def special_tokens(self) -> list[str]:
        """The format's tags, each once: what a tokenizer may have a token of its own for.

        A tag that is never without attributes is there by its beginning: `<<TOOL_CALL`. Labels such as `User:` are not.
        """
        if self.template is not None:
            return self.template.tags(self.document)
        return special_tokens(self.seen)

    def protects(self, literal: str) -> bool:
        """Whether content never holds this literal as it stands, wherever it is."""
        return layout_of(self.seen).escape.holds(literal)

    def _files(self, policy: str = AUTO) -> Files:
        files = layout_of(self.seen, policy).files
        if files is None:
            what, name = "files and texts with a hole", f"the format {self.name!r}"
            raise Unsupported(what, name, f"{name} has no words for {what}; choose one that has")
        return files


def _laid_out(request: Request) -> Request:
    """Take note of arguments that are laid out over lines. An archive says which API wrote its own, and how."""
    if request.origin is None:
        note_laid_out(request.items)
    return request


def _policy(escape: str) -> str:
    if escape not in POLICIES:
        raise UnknownName("escape", escape, POLICIES)
    return escape


def unshown(request: Request, document: Document | None = None) -> list[Loss]:
    """Return a loss for each setting of a request, and each of its members that has no name, that no prompt shows."""
    settings, flags = request.settings, document is not None and document.flags is not None
    fields = [field for field in settings.__struct_fields__ if not (flags and field == "thoughts")]
    said = [field for field in fields if getattr(settings, field) is not None]
    paths = [request.paths.get(field, f"$.{field}") for field in said]
    paths += [f"$.{path}" for path in (*unnamed(request.extra, request.words), *request.archived)]
    losses = [Loss(path, "dropped", "a prompt carries the conversation, not the settings") for path in paths]
    return [*losses, *unflagged(document, request)] if document is not None and flags else losses
