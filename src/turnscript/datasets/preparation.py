"""Owns what happens before the first row is converted: which files there are, of which form, cut into which shards.

The result stands in `plan.json` in the folder of the job. Workers read it there, and a job that goes on with the same
plan takes the hashes of files that nobody touched from it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from stat import S_ISDIR
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

import turnscript
from turnscript.convert.registry import get_format
from turnscript.core.errors import InvalidInput
from turnscript.datasets.encoding import Encoder
from turnscript.datasets.files import Piece, cut, expand, sample, sha256
from turnscript.datasets.files.listing import named
from turnscript.datasets.files.troubles import unusable
from turnscript.datasets.form import WHOLE, Form
from turnscript.datasets.form_registry import get_form
from turnscript.datasets.output_registry import get_output
from turnscript.datasets.plan import AUTO, MANIFEST, OWN_FILES, TURNS, Plan, digest_of, is_utf8, names
from turnscript.datasets.plan import PLAN_FILE as PLAN_FILE
from turnscript.datasets.shardfiles import FOLDER, STAGING, write_whole
from turnscript.datasets.template_rows import Words, with_ends_of, words_of
from turnscript.datasets.tokenizers import get_tokenizer
from turnscript.datasets.train import parse_train
from turnscript.detection.template_format import is_place
from turnscript.formats.format import Format
from turnscript.tableio import dump_format

LAYOUT = 8
"""Of the files that shards leave, and of what they hold for a row. It is raised when one of them changes."""
SHARD_BYTES = 64 << 20
_SMALL_SHARD = 4 << 20
_SHARDS = 128
"""Small inputs are cut too, into so many shards if they are large enough: workers share the work evenly then."""
_SETTLED = 2.0
"""A file that was changed within so many seconds before it was hashed may change again and look the same."""


class InputFile(Struct, frozen=True):
    """A file with rows; `form` is empty if it has none.

    `changed`: when, in nanoseconds; 0 if it may have changed again after it was hashed.
    """

    name: str
    form: str
    size: int
    sha256: str
    changed: int


class Part(Struct, frozen=True):
    """A piece of a file, by the file's position."""

    file: int
    piece: Piece


class Prepared(Struct, frozen=True):
    """A plan with all that was found out about its inputs.

    `key` says what the outputs depend on, `row_key` what the shards do. `encoding`: what the encoder says of itself.
    `chats`: whether an output holds conversations, so that shards must.
    """

    version: str
    layout: int
    plan: Plan
    folder: str
    """Where it was prepared: names in the plan count from here."""
    files: tuple[InputFile, ...]
    shards: tuple[tuple[Part, ...], ...]
    key: str
    row_key: str
    size: int
    """How many ids the tokenizer has."""
    end: int | None
    encoding: dict[str, Any]
    format_sha256: str
    tokenizer_sha256: str
    chats: bool

    @property
    def width(self) -> int:
        """Return the bytes of an id."""
        return 2 if self.size <= 1 << 16 else 4

    def shard_key(self, number: int) -> str:
        """Return what a shard depends on: its pieces too."""
        return digest_of(self.row_key, self.shards[number])


def prepare(plan: Plan, out: str | os.PathLike[str], *, shards: int | None = None, resume: bool = True) -> Prepared:
    """Find out everything about the inputs and write it to `plan.json`. Shards: so many, or as many as fit the size.

    Raises InvalidInput and UnknownName for anything that would stop the job later, before it begins.
    """
    if shards is not None and shards < 1:
        raise InvalidInput(f"there cannot be {shards} shards; give 1 or more", got=str(shards))
    outputs = [get_output(output) for output in plan.outputs]
    folder, chats = Path(out), any(output.chats for output in outputs)
    _check_folder(plan, folder)
    earlier = find_prepared(folder) if resume else None
    plan = _dated(plan, earlier)
    encoder = encoder_of(plan)
    files = _input_files(plan, folder, earlier)
    words = template_of(plan)
    format_digest = digest_of(dump_format(format_of(plan)), *([words.facts] if words is not None else []))
    fingerprint = get_tokenizer(plan.tokenizer).fingerprint
    row_key = digest_of(
        [turnscript.__version__, LAYOUT, plan.row_facts(), format_digest, fingerprint, plan.strict and chats],
        [(file.name, file.form, file.size, file.sha256) for file in files],
        sha256(plan.map) if plan.map else "",
    )
    tokenizer = get_tokenizer(plan.tokenizer)
    prepared = Prepared(
        version=turnscript.__version__,
        layout=LAYOUT,
        plan=plan,
        folder=os.getcwd(),
        files=tuple(files),
        shards=(),
        key=digest_of(row_key, plan.facts()),
        row_key=row_key,
        size=tokenizer.size,
        end=encoder.end,
        encoding=encoder.facts(),
        format_sha256=format_digest,
        tokenizer_sha256=fingerprint,
        chats=chats,
    )
    if earlier is not None and earlier.row_key == row_key and shards in (None, len(earlier.shards)):
        prepared = replace(prepared, shards=earlier.shards)  # as they were cut: what is done stays done
    else:
        prepared = replace(prepared, shards=_cut(plan, files, shards))
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / PLAN_FILE, msgspec.json.encode(prepared))
    return prepared


def find_prepared(out: Path) -> Prepared | None:
    """Return what was prepared in a folder by this version, if anything was."""
    try:
        prepared = msgspec.json.decode((out / PLAN_FILE).read_bytes(), type=Prepared)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    return prepared if (prepared.version, prepared.layout) == (turnscript.__version__, LAYOUT) else None


def check_folder(out: str | os.PathLike[str]) -> None:
    """Raise InvalidInput where there is no such folder: most likely a typo, and no build that was not finished."""
    try:
        # Not `is_dir`: since Python 3.14 that takes what may not be reached for missing.
        there = S_ISDIR(os.stat(out).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        there = False
    if not there:
        message = f"{os.fspath(out)}: there is no such folder; check the path"
        raise InvalidInput(message, expected="the folder that a build wrote to", got=os.fspath(out))


def load_prepared(out: str | os.PathLike[str]) -> Prepared:
    """Return what was prepared in a folder. Raises InvalidInput if nothing was, or by another version."""
    check_folder(out)
    prepared = find_prepared(Path(out))
    if prepared is None:
        message = f"{os.fspath(out)} holds no plan of this version of turnscript; build there first"
        raise InvalidInput(message, expected=f"a folder with {PLAN_FILE}", got=os.fspath(out))
    return prepared


def format_of(plan: Plan) -> Format:
    """Return the format of a plan, with its option; that of its template, where it has one."""
    words = template_of(plan)
    found = with_ends_of(get_format(plan.format), plan.tokenizer) if words is None else words.format
    return found.variant(plan.variant) if plan.variant else found


def template_of(plan: Plan) -> Words | None:
    """Return the chat template of a plan, which may stand in the place of a format too; None if it has none."""
    if plan.template:
        return words_of(plan.template, plan.format, plan.tokenizer)
    return words_of(plan.format, "", plan.tokenizer) if is_place(plan.format) else None


def _dated(plan: Plan, earlier: Prepared | None) -> Plan:
    """Return the plan with a date, where its template writes one: the same if a job goes on the next day."""
    words = template_of(plan)
    if plan.date or words is None or not words.dated:
        return plan
    if earlier is not None and replace(earlier.plan, date="") == plan:
        return earlier.plan
    return replace(plan, date=time.strftime("%Y-%m-%d"))


def encoder_of(plan: Plan) -> Encoder:
    """Return the encoder of a plan. Where each turn has a sample, what the format forgets of past ones is left out."""
    format_ = format_of(plan)
    return Encoder(
        format_.remembering() if plan.expand == TURNS else format_,
        get_tokenizer(plan.tokenizer),
        parse_train(plan.train),
        mode=plan.mode,
        escape=plan.escape,
        weights=plan.weights,
        strict=plan.strict,
        declared=plan.declared,
        media=plan.media,
        normalize_json=plan.normalize_json,
        bare_calls=plan.bare_calls,
        order=plan.order,
        end=plan.end,
        now=plan.now,
    )


def forms_of(plan: Plan, names_of_forms: Iterable[str]) -> dict[str, Form]:
    """Return the forms of these names; a map file has its own name."""
    if plan.map:
        from turnscript.datasets.mapping import read_map  # noqa: PLC0415  (few plans have one)

        form = read_map(plan.map)
        return {form.name: form}
    return {name: get_form(name) for name in names_of_forms if name}


class _Mark(Struct):
    """What the plan and the manifest of a job have in common, in every version, and files of others do not."""

    version: str
    key: str
    plan: dict[str, Any]
    outputs: dict[str, Any] = {}


def _marks(folder: Path) -> list[_Mark]:
    """Return what jobs have left in a folder that says so."""
    found: list[_Mark] = []
    for name in (PLAN_FILE, MANIFEST):
        try:
            found.append(msgspec.json.decode((folder / name).read_bytes(), type=_Mark))
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            continue
    return found


def _is_written(name: str, stem: str) -> bool:
    """Return whether a job may write a file or folder of that name. All that an output writes begins with the stem."""
    return name in (*OWN_FILES, FOLDER, STAGING) or name.startswith(f"{stem}.")


def _check_folder(plan: Plan, folder: Path) -> None:
    """Raise InvalidInput if files of somebody else would be overwritten. In a folder of an earlier job they are ours.

    The names come first: another part of the same job may begin just now, and its plan is the first file it writes.
    """
    found = os.listdir(folder) if folder.is_dir() else []
    taken = sorted(name for name in found if _is_written(name, plan.name))
    if taken and not _marks(folder):
        message = (
            f"{folder / taken[0]} is there already and no build made it, and this one would write there; "
            "write to another folder (--out), or move it away"
        )
        raise InvalidInput(message, expected="an empty folder, or one of an earlier build", got=os.fspath(folder))


def _input_files(plan: Plan, out: Path, earlier: Prepared | None) -> list[InputFile]:
    _check_named(plan, out)
    paths = _outside(expand(plan.inputs), out)
    _check_names([*paths, *plan.inputs, plan.format, plan.template, plan.tokenizer, plan.map, os.getcwd()])
    forms = _forms(plan, paths)
    known = {file.name: file for file in earlier.files} if earlier is not None else {}
    # Hashing leaves the interpreter, so threads do run side by side.
    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(_input_file, paths, forms, (known.get(path) for path in paths)))


def _check_names(files: Iterable[str]) -> None:
    """Check the names: plans and manifests are JSON, which cannot hold one that is no UTF-8."""
    for file in files:
        if not is_utf8(file):
            raise unusable(file.encode("utf-8", "backslashreplace").decode(), "its name is no UTF-8", "rename it")


def _check_named(plan: Plan, out: Path) -> None:
    """Raise InvalidInput for an input that was named and would be left out, unless it is what a job wrote there."""
    marks = _marks(out)
    stems = {plan.name, *(str(mark.plan.get("name")) for mark in marks)}
    outputs = {name for mark in marks for name in mark.outputs}
    for path in named(plan.inputs):
        place = _place_in(out, path)
        first = place.partition(os.sep)[0]
        if place and first not in outputs and not any(_is_written(first, stem) for stem in stems):
            message = f"the input {path} is in {out}, where the outputs go; write to another folder, or move it"
            raise InvalidInput(message, expected=f"inputs outside {out}", got=path)


def _place_in(out: Path, path: str) -> str:
    """Return where a file is in the folder of the job; empty if it is elsewhere."""
    inside, place = os.path.join(os.path.realpath(out), ""), os.path.realpath(path)
    return place.removeprefix(inside) if place.startswith(inside) else ""


def _outside(paths: Sequence[str], out: Path) -> list[str]:
    """Return the files that are no output of the job itself."""
    found = [path for path in paths if not _place_in(out, path)]
    if not found:
        raise InvalidInput(f"all inputs are in {os.fspath(out)}, where the outputs go; write to another folder")
    return found


def _input_file(path: str, form: str, known: InputFile | None) -> InputFile:
    now = time.time()
    status = os.stat(path)
    if known is not None and (known.size, known.changed) == (status.st_size, status.st_mtime_ns):
        return replace(known, form=form)
    settled = now - status.st_mtime > _SETTLED
    return InputFile(path, form, status.st_size, sha256(path), status.st_mtime_ns if settled else 0)


def _forms(plan: Plan, paths: Sequence[str]) -> list[str]:
    """Return the form of each file. All files whose form cannot be told are named at once."""
    if plan.map:
        return [*forms_of(plan, ())] * len(paths)
    if plan.form != AUTO:
        return [get_form(plan.form).name] * len(paths)
    from turnscript.datasets.form_detection import detect_form  # noqa: PLC0415  (it knows all forms)

    forms: list[str] = []
    refused: dict[str, str] = {}
    for path in paths:
        rows = sample(path)
        if not rows:
            forms.append("")
            continue
        verdict = detect_form(rows, path)
        forms.append(verdict.form)
        if not verdict.form:
            refused[path] = verdict.refusal
    if len(refused) > 1:
        remedy = "`turnscript data inspect` says why; leave them out, or name their form in a build of their own"
        raise InvalidInput(f"cannot tell the form of {len(refused)} files: {names(list(refused))}; {remedy}")
    if refused:
        raise InvalidInput(*refused.values())
    return forms


def likely_shards(plan: Plan, out: Path, *, shards: int | None, resume: bool) -> int:
    """Return about how many shards there will be to make in a folder; 0 if nobody can say before it is prepared."""
    if resume and find_prepared(out) is not None:
        return 0
    try:
        return shards or _count(sum(map(os.path.getsize, expand(plan.inputs))))
    except (InvalidInput, OSError):
        return 0  # who prepares it says what is wrong


def _count(total: int) -> int:
    """Return how many shards inputs of so many bytes are cut into."""
    return max(-(-total // SHARD_BYTES), min(_SHARDS, -(-total // _SMALL_SHARD)), 1)


def _cut(plan: Plan, files: Sequence[InputFile], shards: int | None) -> tuple[tuple[Part, ...], ...]:
    """Return the pieces of all files in consecutive groups of about the same size."""
    total = sum(file.size for file in files)
    count = shards or _count(total)
    target = max(-(-total // count), 1)
    parts = list(_parts(plan, files, target))
    whole = sum(part.piece.size for part in parts)
    groups: list[list[Part]] = [[] for _ in range(count)]
    before = 0
    for part in parts:
        # By where its middle lies, so that the groups do not depend on how the sizes round.
        middle = 2 * before + part.piece.size
        groups[min(middle * count // max(2 * whole, 1), count - 1)].append(part)
        before += part.piece.size
    return tuple(tuple(group) for group in groups if group)


def _parts(plan: Plan, files: Iterable[InputFile], target: int) -> Iterator[Part]:
    forms = forms_of(plan, {file.form for file in files})
    for position, file in enumerate(files):
        if file.form:
            for piece in cut(file.name, whole=forms[file.form].row == WHOLE, target=target):
                yield Part(position, piece)
