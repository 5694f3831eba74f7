"""Owns giving a format's tags tokens of their own, and telling what that means for a model's embedding.

A tokenizer of the `tokenizers` library gets a new file with more added tokens. A vocabulary of RWKV's shape cannot hold
control tokens: they stand in a file beside it, on the ids that the vocabulary leaves free. A tag that has attributes is
there by its beginning (`<<TOOL_CALL`). White space is never a tag, so a blank line that ends turns stays text.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from turnscript.datasets.shardfiles import write_whole
from turnscript.datasets.tokenizer import Tokenizer
from turnscript.datasets.tokenizers import BYTES, get_tokenizer, parts_of
from turnscript.datasets.tokenizers.controls import Controls, controls_bytes
from turnscript.datasets.tokenizers.hf import ids_of_new
from turnscript.errors import InvalidInput, UnknownName
from turnscript.format import Format

WIDEST = 65535
"""The largest id that two bytes hold."""


class Added(Struct, frozen=True):
    """What became of a format's tags.

    `spec` names the tokenizer that has them, `file` is what was written. `added`: tags with new ids, `kept`: those that
    had one, `left`: those without. `size`: rows that the embedding needs, `rows`: how many of them are new, `was`: how
    many it had. `train`: rows that hold nothing yet, so that they must be trained. `notes`: what people must know.
    """

    spec: str
    file: str
    added: dict[str, int]
    kept: dict[str, int]
    left: list[str]
    size: int
    was: int
    rows: int
    train: list[int]
    notes: list[str]


def add_tags(
    format_: Format, spec: str, out: Path, *, tags: Sequence[str] = (), resize: bool = False, write: bool = True
) -> Added:
    """Give tags tokens of their own in a tokenizer, and write the file that says so.

    `tags`: which, in the order of their worth; by default all, what a model itself writes first. `resize`: take
    ids behind the vocabulary when no id is free. `write=False` only tells. Raises UnknownName for what is no tag.
    """
    known = ranked_tags(format_)
    for tag in tags:
        if tag not in known:
            raise UnknownName(f"tag of {format_.name}", tag, known)
    if not known:
        message = f"the format {format_.name!r} has no tags, only words such as labels: it needs no control tokens"
        raise InvalidInput(message, got=format_.name)
    tags = list(dict.fromkeys(tags))
    tokenizer = get_tokenizer(spec)
    kept = {tag: tokenizer.controls[tag] for tag in tags or known if tag in tokenizer.controls}
    wanted = [tag for tag in tags or known if tag not in kept]
    base, path = parts_of(tokenizer.spec)
    if write and not base.startswith("hf:") and out.suffix != ".json":
        message = f"a file of control tokens is found by its name: give it one that ends in .json, not {out.name!r}"
        raise InvalidInput(message, expected="a name that ends in .json", got=str(out))
    if base.startswith("hf:"):
        left: list[str] = []
        added = _in_file(tokenizer, path, out if write else None, wanted, kept)
        was = _embedding(path, tokenizer.size)
    else:
        added, left = _beside(tokenizer, wanted, resize)
        was = tokenizer.size
        if write:
            controls = sorted({**tokenizer.controls, **added}.items(), key=lambda pair: pair[1])
            _write(out, controls_bytes(Controls(dict(controls), _sha256_of(base))))
    size = max(tokenizer.size, was, *(number + 1 for number in added.values()), 0)
    name = f"hf:{out}" if base.startswith("hf:") else f"{base}+{out}"
    return Added(
        spec=name + "".join(tokenizer.spec.partition("?end=")[1:]),
        file=str(out),
        added=added,
        kept=kept,
        left=left,
        size=size,
        was=was,
        rows=size - was,
        train=sorted(added.values()),
        notes=_notes(path if base.startswith("hf:") else "", was, size, bool(added), left),
    )


def ranked_tags(format_: Format) -> list[str]:
    """Return the tags of a format by worth: what ends and opens the model's turn, what else it writes, the rest."""
    document = format_.document
    generation = document.generation
    answer: list[str] = []
    others: list[str] = []
    for turn in document.turns:
        for segment in turn.segments:
            if segment.model:
                group = (segment.group.open, segment.group.close) if segment.group else ()
                own = (turn.open + turn.head_end, turn.close, segment.open + segment.head_end, segment.close, *group)
                (answer if segment.kind == generation.kind else others).extend(own)
    tags = format_.special_tokens

    def rank(tag: str) -> tuple[int, int]:
        for worth, literals in enumerate((generation.stops, answer, others)):
            if any(tag in literal for literal in literals):
                return worth, tags.index(tag)
        return 3, tags.index(tag)

    return sorted(tags, key=rank)


def _in_file(
    tokenizer: Tokenizer, path: str, out: Path | None, wanted: Sequence[str], kept: Mapping[str, int]
) -> dict[str, int]:
    """Write a new tokenizer.json with more added tokens. Returns their ids."""
    declared: dict[str, Any] = json.loads(Path(path).read_bytes())
    entries = declared.get("added_tokens") or []
    added = ids_of_new(tokenizer.spec, declared, wanted)
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    entries += [{"id": number, "content": tag, **flags, "special": True} for tag, number in added.items()]
    for entry in entries:
        if entry["content"] in kept:
            entry.update(flags, special=True)
    declared["added_tokens"] = sorted(entries, key=lambda entry: entry["id"])
    if out is not None:
        _write(out, json.dumps(declared, ensure_ascii=False, indent=2).encode() + b"\n")
    return added


def _write(out: Path, data: bytes) -> None:
    """Write a file that is there whole, or as it was before; what is none, such as a pipe, gets the bytes."""
    try:
        if out.exists() and not out.is_file():
            out.write_bytes(data)
        else:
            write_whole(Path(os.path.realpath(out)), data)
    except OSError as error:
        error.filename = os.fspath(out)  # not that of the file beside it, which nobody asked for
        raise


def _beside(tokenizer: Tokenizer, wanted: Sequence[str], resize: bool) -> tuple[dict[str, int], list[str]]:
    """Return the ids that a vocabulary leaves free, and the tags for which there was none."""
    assert tokenizer.lengths is not None
    taken = {*tokenizer.controls.values(), tokenizer.end}
    free = [at for at in range(tokenizer.size) if not tokenizer.lengths[at] and at not in taken]
    if resize:
        free += range(tokenizer.size, tokenizer.size + len(wanted))
    return dict(zip(wanted, free, strict=False)), list(wanted[len(free) :])


def _sha256_of(base: str) -> str:
    """Return the SHA-256 of the vocabulary file that a spec without control tokens names."""
    if base == BYTES:
        return hashlib.sha256(b"").hexdigest()
    # Loaded when such a vocabulary is: it needs a library of its own.
    from turnscript.datasets.tokenizers.rwkv import world_path  # noqa: PLC0415

    return hashlib.sha256(Path(base.partition(":")[2] or world_path()).read_bytes()).hexdigest()


def _embedding(path: str, size: int) -> int:
    """Return the rows of the model's embedding: as its configuration beside the file says, else those of the file."""
    said = _configuration(path).get("vocab_size")
    return said if isinstance(said, int) else size


def _configuration(path: str) -> dict[str, Any]:
    try:
        found = msgspec.json.decode((Path(path).parent / "config.json").read_bytes())
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return found if isinstance(found, dict) else {}


def _notes(path: str, was: int, size: int, new: bool, left: Sequence[str]) -> list[str]:
    untrained = "the rows of new ids hold nothing that a model has learned: train them in the embedding and in the head"
    notes = [untrained] if new else []
    if size > was:
        notes.append(f"the embedding must grow by {size - was} rows, from {was} to {size}")
    if path and _configuration(path).get("tie_word_embeddings") is True:
        notes.append(
            "the model's input and output embeddings are one matrix (tie_word_embeddings): the new rows are trained "
            "for both at once; with LoRA use PEFT's trainable_token_indices, and do not save one of them alone"
        )
    if size - 1 > WIDEST:
        notes.append("ids no longer fit two bytes: outputs with uint16 ids cannot hold them")
    if left:
        some = ", ".join(left[:3])
        notes.append(
            f"{len(left)} tags found no free id and stay text, the first of them {some}: choose those that matter, or "
            "resize the vocabulary"
        )
    return notes
