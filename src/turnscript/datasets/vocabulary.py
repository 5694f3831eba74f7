"""Owns giving a format's tags tokens of their own, and telling what that means for a model's embedding.

A tokenizer of the `tokenizers` library gets a new file with more added tokens. A vocabulary of RWKV's shape cannot hold
control tokens: for training they stand in a file beside it, on the ids that the vocabulary leaves free, and for servers
among the others. A tag that has attributes is there by its beginning (`<<TOOL_CALL`). White space is never a tag, so a
blank line that ends turns stays text.
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

from turnscript.core.errors import InvalidInput, UnknownName
from turnscript.datasets.shardfiles import write_whole
from turnscript.datasets.tokenizer import Tokenizer
from turnscript.datasets.tokenizers import BYTES, get_tokenizer, parts_of
from turnscript.datasets.tokenizers.controls import Controls, controls_bytes
from turnscript.datasets.tokenizers.hf import ids_of_new
from turnscript.datasets.tokenizers.serving import CUT_AS_TEXT, ENDINGS, serving_bytes, taken_by, tokens_of
from turnscript.formats.format import Format

WIDEST = 65535
"""The largest id that two bytes hold."""


class Added(Struct, frozen=True):
    """What became of a format's tags.

    `spec` names the tokenizer that has them, empty where none was written or it is for servers; `file` is what was
    written. `added`: tags with new ids, `kept`: those that had one, `left`: those without. `size`: rows that the
    embedding needs, `rows`: how many of them are new, `was`: how many it had. `train`: rows that hold nothing yet, so
    that they must be trained. `notes`: what people must know.
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
    format_: Format,
    spec: str,
    out: Path | None,
    *,
    tags: Sequence[str] = (),
    resize: bool = False,
    form: str | None = None,
) -> Added:
    """Give tags tokens of their own in a tokenizer, and write the file that says so. Without `out` it only tells.

    `tags`: which, in the order of their worth; by default all, what a model itself writes first. `resize`: take
    ids behind the vocabulary when no id is free. `form`: one that servers take (`serving.FORMS`), by default what the
    ending of the file says; by default it has the tags that the tokenizer has, if there are some. Raises UnknownName
    for what is no tag.
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
    base, path = parts_of(tokenizer.spec)
    is_own = base.startswith("hf:")
    form = form or ("" if is_own or out is None else ENDINGS.get(out.suffix, ""))
    kept = {tag: tokenizer.controls[tag] for tag in tags or known if tag in tokenizer.controls}
    # A server gets those that a model was trained with, and no further ones that nobody asked for.
    wanted = [] if form and kept and not tags else [tag for tag in tags or known if tag not in kept]
    if out is not None:
        _check_written(out, form, is_own=is_own)
    if is_own:
        left: list[str] = []
        added = _in_file(tokenizer, path, out, wanted, kept)
        was = _embedding(path, tokenizer.size)
    else:
        added, left = _beside(tokenizer, wanted, resize)
        was = tokenizer.size
        controls = dict(sorted({**tokenizer.controls, **added}.items(), key=lambda pair: pair[1]))
        if out is not None and form:
            _write(out, serving_bytes(form, tokenizer, controls))
        elif out is not None:
            _write(out, controls_bytes(Controls(controls, _sha256_of(base))))
    size = max(tokenizer.size, was, *(number + 1 for number in added.values()), 0)
    name = f"hf:{out}" if is_own else f"{base}+{out}"
    return Added(
        spec="" if form or out is None else name + "".join(tokenizer.spec.partition("?end=")[1:]),
        file=str(out or ""),
        added=added,
        kept=kept,
        left=left,
        size=size,
        was=was,
        rows=size - was,
        train=sorted(added.values()),
        notes=[
            *_notes(path if is_own else "", was, size, bool(added), left),
            *(_missed(tokenizer, [*kept, *added]) if form in CUT_AS_TEXT else ()),
        ],
    )


def _check_written(out: Path, form: str, *, is_own: bool) -> None:
    """Check that a file may be written in a form, by that name. Raises InvalidInput."""
    if is_own and form:
        message = f"{form} is a form of vocabularies of RWKV's shape; this tokenizer is written as its own file"
        raise InvalidInput(message, expected="no form", got=form)
    if not is_own and not form and out.suffix != ".json":
        message = (
            f"a file of control tokens is found by its name: give it one that ends in .json, not {out.name!r}; for "
            f"servers one that ends in {' or '.join(ENDINGS)}"
        )
        raise InvalidInput(message, expected="a name that ends in .json", got=str(out))


def _missed(tokenizer: Tokenizer, tags: Sequence[str]) -> list[str]:
    """Return a note on the tokens by which the longest match misses a tag, if there are some."""
    found = taken_by(tokens_of(tokenizer).values(), tags)
    if not found:
        return []
    some = " and ".join(map(repr, found[:2]))
    note = (
        f"a server that cuts by the longest match alone does not find a tag behind what {len(found)} tokens end in, "
        f"such as {some}: there the tag is text; samples of a build have it as one token"
    )
    return [note]


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
