"""Owns the targets of the fuzz: each takes bytes, reads them by one kind of reader, and raises where a law is broken.

A reader says what is wrong with an input in its own errors, and nothing else ever leaves it. What it has read it can
write and read again, and a stream means the same wherever it is cut. The first byte of an input says which API, format,
form or server is meant, the second of a stream where it is cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from msgspec.json import decode

import turnscript as ts
from turnscript.backends.backend import AnswerReader, Completion
from turnscript.convert.registry import backends, formats, get_backend, model_formats
from turnscript.core.errors import TurnscriptError
from turnscript.core.events import raw_text
from turnscript.datasets.form_registry import forms, get_form

ROOT = Path(__file__).parents[2]
OFFERED = [ts.Tool(name="get_weather"), ts.Tool(name="search")]
_FORMATS = (*formats(), *model_formats())


def bodies(data: bytes) -> None:
    """A request's body: what is read of it is written and read again, the same."""
    api, data = _chosen(ts.apis(), data)
    try:
        request = ts.parse(data, api)
    except TurnscriptError:
        return
    written = ts.render(request, api).data
    assert request == ts.parse(written, api), written


def answers(data: bytes) -> None:
    """A whole answer's body: what is written of it is read and written again, the same."""
    api, data = _chosen(ts.apis(), data)
    try:
        response = ts.parse_response(data, api)
    except TurnscriptError:
        return
    written = ts.render(response, api).data
    again = ts.render(ts.parse_response(written, api), api).data
    assert decode(written) == decode(again), written


def streams(data: bytes) -> None:
    """A recorded stream of an answer, whole and in two pieces."""
    api, data = _chosen(ts.apis(), data)
    at, data = _cut(data)
    whole, cut = (_told(ts.get_api(api).stream_parser(), pieces) for pieces in ([data], [data[:at], data[at:]]))
    assert whole == cut, at


def texts(data: bytes) -> None:
    """What a model writes, which is never wrong: no byte is lost, and cuts change nothing."""
    name, data = _chosen(_FORMATS, data)
    at, data = _cut(data)
    format_ = ts.get_format(name)
    told = []
    for pieces in ([data], [data[:at], data[at:]]):
        parser = format_.parser(OFFERED)
        events = [event for piece in pieces for event in parser.feed(piece)] + parser.close()
        assert data.decode("utf-8", "replace") == raw_text(events)
        told.append(ts.fold(events))
    assert told[0] == told[1], at


def transcripts(data: bytes) -> None:
    """A transcript: what is read of it is written and read again, the same, or is told as a loss."""
    name, data = _chosen(_FORMATS, data)
    format_ = ts.get_format(name)
    try:
        request = format_.parse(data.decode())
    except (TurnscriptError, UnicodeDecodeError):
        return
    written = format_.render(request)
    assert request.unread or written.losses or request.items == format_.parse(written.value).items, written.value


def checks(data: bytes) -> None:
    """A transcript that is checked: whatever is refused has a fault, and all that is wrong is found in one pass."""
    name, data = _chosen(_FORMATS, data)
    format_, text = ts.get_format(name), data.decode("utf-8", "replace")
    _, found = format_.check(text)
    try:
        format_.parse(text)
    except TurnscriptError:
        assert found.all, text


def rows(data: bytes) -> None:
    """A row of a data set."""
    name, data = _chosen(forms(), data)
    try:
        get_form(name).read(data)
    except TurnscriptError:
        return


def servers(data: bytes) -> None:
    """The answer of a model server, whole and in two pieces."""
    name, data = _chosen(backends(), data)
    at, data = _cut(data)
    asked = Completion(prompt="a", max_tokens=9, stream=bool(at % 2))
    whole, cut = (_pieces(get_backend(name).reader(asked), pieces) for pieces in ([data], [data[:at], data[at:]]))
    assert whole == cut, at


TARGETS: dict[str, Callable[[bytes], None]] = {
    one.__name__: one for one in (bodies, answers, streams, texts, transcripts, checks, rows, servers)
}
_TEXTS = ("tests/golden/examples/*.txt", "tests/golden/*/c*.txt", "examples/universal.txt")
_PLACES: dict[str, Sequence[str]] = {
    "bodies": ("examples/*.json", "tests/corpus/*.json"),
    "answers": ("examples/chat_response.json", "tests/golden/answers/**/*.json"),
    "streams": ("examples/*.sse", "tests/golden/answers/**/*.sse"),
    "texts": _TEXTS,
    "transcripts": _TEXTS,
    "checks": _TEXTS,
    "rows": ("examples/*.jsonl",),
}
_ANSWERS = (
    b'data: {"choices": [{"text": "Hi", "index": 0, "finish_reason": null}]}\n\ndata: [DONE]\n\n',
    b'{"choices": [{"text": "Hi", "finish_reason": "stop"}], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}',
    b'data: {"content": "Hi", "stop": false}\n\ndata: {"content": "", "stop": true, "stop_type": "eos"}\n\n',
    b'data: {"choices": [{"delta": {"content": "Hi"}, "index": 0, "finish_reason": "stop"}]}\n\n',
    b'{"error": {"message": "no", "type": "invalid_request_error", "code": 400}}',
)
"""What servers answer."""
_EACH = 12
"""So many readers begin with each input."""


def seeds(name: str) -> Iterator[bytes]:
    """Inputs to begin with: what stands in examples and golden files, for the first readers of the target."""
    if name == "servers":
        yield from (bytes([number, at]) + one for one in _ANSWERS for number in range(len(backends())) for at in (6, 7))
        return
    many = {"bodies": ts.apis(), "answers": ts.apis(), "streams": ts.apis(), "rows": forms()}.get(name, _FORMATS)
    for path in chain.from_iterable(sorted(ROOT.glob(place)) for place in _PLACES[name]):
        data = path.read_bytes()
        for line in data.splitlines() if path.suffix == ".jsonl" else [data]:
            for number in range(min(len(many), _EACH)):
                yield bytes([number, 7] if name in ("streams", "texts") else [number]) + line


def _chosen(names: Sequence[str], data: bytes) -> tuple[str, bytes]:
    return names[data[0] % len(names)] if data else names[0], data[1:]


def _cut(data: bytes) -> tuple[int, bytes]:
    rest = data[1:]
    return (data[0] % (len(rest) + 1) if data else 0), rest


def _told(parser: Any, pieces: Sequence[bytes]) -> Any:
    """What a stream tells, or the error that it ends with."""
    events = []
    try:
        for piece in pieces:
            events += parser.feed(piece)
        events += parser.close()
    except TurnscriptError as error:
        return type(error), str(error)
    return ts.fold(events)


def _pieces(reader: AnswerReader, pieces: Sequence[bytes]) -> Any:
    """The text of an answer and why it ended, or the error that it ends with."""
    found = []
    try:
        for piece in pieces:
            found += reader.feed(piece)
        found += reader.close()
    except TurnscriptError as error:
        return type(error), str(error)
    return "".join([one.text for one in found]), [one.finish for one in found if one.finish]
