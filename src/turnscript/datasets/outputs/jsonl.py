r"""Owns JSON Lines: a sample a line, for trainers that read Hugging Face data sets and for people.

    {"input_ids":[24281,59,...,0],"loss_weight":[0,0,...,1],"doc_starts":[0],"source":["chats.jsonl:1"],
     "messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Hello."}],"tools":null}

`loss_weight` has a number for each id, 0 where nothing is learned. `doc_starts` and `source` have an entry for each
document in the sample: where it begins, and its row. `messages` and `tools` are the conversation that the tokens say,
as `chat_writing` has it. They are null where no conversation says just these: of a plain text, and of a part of a
conversation. In windows that were packed they are lists too, with an entry for each document.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Raw, Struct

from turnscript.core.errors import InvalidInput
from turnscript.datasets.output import Batch, Output, OutputFacts, OutputWriter
from turnscript.datasets.outputs._samples import LABELLED, READ, Sample, batch_of, check_ids, each
from turnscript.datasets.shardfiles import Unfinished, sync_folder

_Id = Annotated[int, Meta(ge=0, lt=1 << 32)]
_Weight = Annotated[int, Meta(ge=0, lt=1 << 8)]
_Start = Annotated[int, Meta(ge=0, lt=1 << 31)]
_NULL = Raw(b"null")
_TOGETHER = 1 << 20
"""So many bytes of conversations are in memory at once, about."""


class _Chat(Struct, gc=False):
    messages: Raw = _NULL
    tools: Raw = _NULL


class _Line(Struct, forbid_unknown_fields=True):
    input_ids: list[_Id]
    loss_weight: list[_Weight]
    doc_starts: list[_Start]
    source: list[str]
    messages: Raw = _NULL
    tools: Raw = _NULL


_decode = msgspec.json.Decoder(_Line).decode
_decode_chat = msgspec.json.Decoder(_Chat).decode
_decode_list = msgspec.json.Decoder(list[Raw]).decode
_encode = msgspec.json.Encoder().encode


class JsonLines(Output):
    """`<stem>.jsonl`."""

    name = "jsonl"
    title = "JSON Lines: input_ids, loss_weight, doc_starts and source, with the conversation as messages and tools"
    chats = True
    labelled = LABELLED

    def open(self, folder: Path, stem: str, facts: OutputFacts) -> OutputWriter:
        return _Writer(folder / f"{stem}.jsonl", facts)

    def read(self, folder: Path, stem: str) -> Iterator[Batch]:
        path = folder / f"{stem}.jsonl"
        rows: list[Sample] = []
        chats: list[bytes] = []
        tokens = size = 0
        for number, line in enumerate(_lines(path), start=1):
            try:
                one = _decode(line)
                chats += (told := _chats(one))
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise _broken(path, number, str(error)) from None
            if len(one.input_ids) != len(one.loss_weight) or not len(one.doc_starts) == len(one.source) == len(told):
                raise _broken(path, number, "its members are not as long as each other")
            rows.append((one.input_ids, one.loss_weight, one.doc_starts, one.source))
            tokens += len(one.input_ids)
            size += sum(map(len, told))
            if tokens >= READ or size >= READ:
                yield _batch(rows, chats)
                rows, chats, tokens, size = [], [], 0, 0
        if rows:
            yield _batch(rows, chats)


class _Writer(OutputWriter):
    def __init__(self, path: Path, facts: OutputFacts) -> None:
        self._path = path
        self._file = Unfinished(path)
        self._facts = facts
        self._encode = msgspec.json.Encoder().encode_lines

    def write(self, batch: Batch) -> None:
        check_ids(batch, self._facts)
        lines: list[_Line] = []
        size = document = 0
        for ids, weights, starts, sources in each(batch):
            chats = batch.chats[document : document + len(starts)]
            document += len(starts)
            messages, tools = self._told(chats)
            lines.append(_Line(ids, weights, starts, list(sources), messages, tools))
            size += len(bytes(messages))
            if size >= _TOGETHER:
                self._file.write(self._encode(lines))
                lines, size = [], 0
        self._file.write(self._encode(lines))

    def close(self) -> list[str]:
        self._file.publish()
        sync_folder(self._path.parent)
        return [self._path.name]

    def discard(self) -> None:
        self._file.discard()

    def _told(self, chats: Sequence[Callable[[], bytes] | None]) -> tuple[Raw, Raw]:
        """Return the conversations of a sample, in the two members that hold them."""
        if not chats:
            return _NULL, _NULL
        read = [_decode_chat(chat()) if chat is not None else _Chat() for chat in chats]
        if not self._facts.window and len(read) == 1:
            return read[0].messages, read[0].tools
        return Raw(_encode([one.messages for one in read])), Raw(_encode([one.tools for one in read]))


def _chats(line: _Line) -> list[bytes]:
    """Return the conversation of each document, nothing where there is none. Raises DecodeError."""
    messages, tools = line.messages, line.tools
    if _is_null(messages) and _is_null(tools):
        return [b""] * len(line.doc_starts)
    entries = _decode_list(messages)
    if entries and all(bytes(entry)[:1] == b"{" for entry in entries):
        return [_chat(messages, tools)]
    told = _decode_list(tools)
    if len(told) != len(entries):
        return []
    pairs = zip(entries, told, strict=True)
    return [b"" if _is_null(one) and _is_null(other) else _chat(one, other) for one, other in pairs]


def _chat(messages: Raw, tools: Raw) -> bytes:
    return b'{"messages":%b,"tools":%b}' % (bytes(messages), bytes(tools))


def _is_null(value: Raw) -> bool:
    return bytes(value) == b"null"


def _batch(rows: Sequence[Sample], chats: Sequence[bytes]) -> Batch:
    return batch_of(rows)._replace(chats=[partial(bytes, chat) if chat else None for chat in chats])


def _broken(path: Path, number: int, why: str) -> InvalidInput:
    return InvalidInput(f"{path.name}:{number} is no sample: {why}; build the files again", expected="a sample")


def _lines(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            yield from file
    except OSError as error:
        raise InvalidInput(f"cannot read {path.name}: {error.strerror}; build the files again") from None


OUTPUTS = (JsonLines(),)
