"""Owns documents that are files and no conversation, whatever holds them: JSON, a body with a suffix, or a text.

A text is told by what no content has bare: how a hole begins, or a separator that fills a line. In which order its hole
is written is found by trying, in the order of the format's own list.
"""

from __future__ import annotations

from msgspec import Struct

from turnscript.apis.api import Api
from turnscript.convert.recognition import AUTO, recognise
from turnscript.convert.registry import apis, formats, get_api, get_format, is_format, lookup
from turnscript.convert.verbs import parse
from turnscript.core.conversation import Request
from turnscript.core.errors import InvalidInput, InvalidTranscript, UnknownName, Unsupported
from turnscript.core.json_text import read_object
from turnscript.core.losses import Loss
from turnscript.core.payloads import Rendered, body_bytes, transcript_text
from turnscript.engine.files import FILES, FileSequence, Fill, files_body, files_of, fill_of, is_files
from turnscript.formats.format import Format, unshown


class FoundFiles(Struct, frozen=True):
    """Files that a source holds.

    `losses`: what else it holds, that is none of them. `read_as`: what a text was taken for where nobody said all of
    that, and what else it may be: a sentence for people. `orders`: those in which a text has another hole each, the one
    that is taken first; none where it is clear.
    """

    sequence: FileSequence
    losses: list[Loss] = []
    read_as: str = ""
    orders: tuple[str, ...] = ()


ONE_FORMAT = "files of one format"
"""This is expected of a text that may be several things."""


def files_in(source: bytes | str, name: str = AUTO, order: str = "", *, holes: bool = True) -> FoundFiles | None:
    """Return the files that a source holds, None where it is something else, which others read.

    `name`: what it is in: `files`, an API, a format, or `auto`. `order`: that of a format's text with a hole, which is
    then read as nothing else. `holes`: a bare text of an API with something behind it is one, too.
    Raises InvalidInput with the place, UnknownName for an order.
    """
    if name == FILES:
        return FoundFiles(files_of(read_object(body_bytes(source))))
    if name != AUTO and is_format(name):
        return _of_format(get_format(name), transcript_text(source), order)
    data = body_bytes(source)
    if data.lstrip()[:1] == b"{":
        return _of_object(data, name, holes)
    return _recognised(data.decode()) if name == AUTO else None


def render_files(sequence: FileSequence, to: str, order: str = "") -> Rendered[str] | Rendered[dict[str, object]]:
    """Return files as a document of a format, in an order of it, or as JSON; a text with a hole alone also as a body of
    an API for bare texts. Raises Unsupported where there is no place for them, UnknownName, InvalidConversation."""
    if to == FILES:
        if order:
            raise Unsupported("an order", "JSON", f"JSON has no orders; leave {order!r} out, or name a format")
        return Rendered(files_body(sequence), [])
    target = lookup(to)
    only = sequence.files[0] if len(sequence.files) == 1 else ""
    if isinstance(target, Api) and target.serving.bare and isinstance(only, Fill) and not order:
        body: dict[str, object] = {"prompt": only.prefix, "suffix": only.suffix}
        filled = [Loss("$.files[0].middle", "dropped", "a request asks for it")] if only.middle is not None else []
        return Rendered(body, filled)
    if not isinstance(target, Format) or target.document.files is None:
        message = f"these are files, or a text with a hole, and {to} has no place for them; choose {_places()}"
        raise Unsupported("files and texts with a hole", to, message)
    return target.render_files(sequence, order=order)


def hole_of(request: Request) -> Fill | None:
    """Return the hole in a bare text, None without one. In a request with messages, a `suffix` is a stranger."""
    bare = request.origin in apis() and get_api(request.origin).serving.bare
    return fill_of(request) if bare else None


def holds_files(data: bytes) -> bool:
    """Return whether a source is files as JSON, whatever may be wrong with them."""
    try:
        return is_files(read_object(body_bytes(data)))
    except InvalidInput:
        return False


def _places() -> str:
    able = [name for name in formats() if get_format(name).document.files is not None]
    return f"{FILES!r}, or a format that has orders of a hole: {', '.join(able)}"


def _of_object(data: bytes, name: str, holes: bool) -> FoundFiles | None:
    """Return the files of a JSON object: in the shape that is theirs, or in a body of a bare text."""
    if name == AUTO and b'"files"' in data:
        members = read_object(data)
        if is_files(members):
            return FoundFiles(files_of(members))
    if not holes or b'"suffix"' not in data:
        return None
    try:
        request = parse(data, name)
    except (InvalidInput, UnknownName):  # whoever reads it as what it is says what is wrong with it
        return None
    fill = hole_of(request)
    if fill is None:
        return None
    others = [loss.path for loss in unshown(request) if loss.path not in ("$.prompt", "$.suffix")]
    losses = [Loss(path, "dropped", "files hold texts, and nothing that a request asks beside them") for path in others]
    return FoundFiles(FileSequence([fill]), [*request.unread, *losses])


def _of_format(format_: Format, text: str, order: str) -> FoundFiles | None:
    if order:
        return FoundFiles(format_.parse_files(text, order=order))
    if not format_.files_mark(text):
        return None
    (first, sequence), *others = format_.file_readings(text)
    doubt = _doubt(first, [name for name, _ in others])
    if not doubt:
        return FoundFiles(sequence)
    orders = (first, *(name for name, _ in others))
    return FoundFiles(sequence, read_as=f"read as files of {format_.name}{doubt}", orders=orders)


def _recognised(text: str) -> FoundFiles | None:
    """Return the files that a text is where nobody says of which format. Raises InvalidInput where several would read
    it differently, or another format takes it for a conversation."""
    marks = {name: mark for name in formats() if (mark := get_format(name).files_mark(text))}
    if not marks:
        return None
    found: dict[str, list[tuple[str, FileSequence]]] = {}
    errors: list[InvalidTranscript] = []
    for name in marks:
        try:
            found[name] = get_format(name).file_readings(text)
        except InvalidTranscript as error:
            errors.append(error)
    conversation = recognise(text)
    if conversation is not None and not _reads(get_format(conversation.name), text):
        conversation = None
    if not found and conversation is None:
        raise max(errors, key=lambda error: (error.line, error.column))
    if not found:
        return None
    name, *more = found
    differing = [other for other in more if found[other][0][1] != found[name][0][1]]
    others = [f"files of {other}" for other in differing] + ([conversation.name] if conversation else [])
    if others:
        names = " or ".join([f"files of {name}", *others])
        message = f"this may be {names}, which read it differently; say which of them it is"
        raise InvalidInput(message, line=1, column=1, expected=ONE_FORMAT, got=names)
    (first, sequence), *orders = found[name]
    alike = f", and {' and '.join(more)} would read it alike" if more else ""
    doubt = _doubt(first, [other for other, _ in orders])
    return FoundFiles(sequence, read_as=f"read as files of {name}: it has {marks[name]!r}{alike}{doubt}")


def _reads(format_: Format, text: str) -> bool:
    try:
        format_.parse(text)
    except InvalidTranscript:
        return False
    return True


def _doubt(order: str, others: list[str]) -> str:
    """Return in which order a hole was read and in which others it could be; nothing where there is but one."""
    if not others:
        return ""
    rest = " and ".join(map(repr, others))
    return f"; its hole is read in the order {order!r}, and would be another one in {rest} (--from-order)"
