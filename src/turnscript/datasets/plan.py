"""Owns the plan: everything that decides the bytes of a training set, as one value that is a JSON or TOML file too.

    inputs = ["chats/*.jsonl"]
    format = "my-format"
    tokenizer = "rwkv-world"
    max_tokens = 4096
    pack = "bfd:4096"

How many workers or shards there are is no part of it: they never change a byte.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import Struct

from turnscript.core.errors import InvalidInput
from turnscript.core.json_text import syntax_error, utf8
from turnscript.datasets.hosted_tools import HOSTED, REJECT
from turnscript.datasets.packingnames import read_packing
from turnscript.datasets.train import parse_train
from turnscript.tableio.tables import read_toml

if TYPE_CHECKING:
    from turnscript.core.conversation import Request
    from turnscript.datasets.encoded import Encoded

AUTO = "auto"
ESCAPES = (AUTO, "reject", "none")
MODES = (AUTO, "ids", "text")
WEIGHTS = ("binary", "scaled")
DROP_TURNS, CUT, SPLIT = "drop-turns", "cut", "split"
OVERFLOWS = (REJECT, DROP_TURNS, CUT, SPLIT)
NONE, EXACT, TURNS = "none", "exact", "turns"
DEDUPS = (NONE, EXACT)
EXPANSIONS = (NONE, TURNS)
DROP = "drop"
MEDIA = (REJECT, DROP)
QUARANTINE, STOP = "quarantine", "stop"
ON_BAD = (QUARANTINE, STOP)

PLAN_FILE, RUN_FILE, MANIFEST, REJECTS_FILE = "plan.json", "run.json", "manifest.json", "rejects.jsonl"
OWN_FILES = (PLAN_FILE, RUN_FILE, MANIFEST, REJECTS_FILE)
"""What every job writes into its folder, beside its outputs."""

_MERGE_ONLY = frozenset({"pack", "dedup", "shuffle", "repeat", "outputs", "name"})
"""What the shards do not depend on: if only these change, the shards that are there are used again. Those without
conversations are made again for an output that holds some."""


class Choice(NamedTuple):
    """Several words of which a field takes one."""

    field: str
    words: tuple[str, ...]


_CHOICES = (
    Choice("mode", MODES),
    Choice("escape", ESCAPES),
    Choice("weights", WEIGHTS),
    Choice("media", MEDIA),
    Choice("hosted", HOSTED),
    Choice("expand", EXPANSIONS),
    Choice("overflow", OVERFLOWS),
    Choice("dedup", DEDUPS),
    Choice("on_bad", ON_BAD),
)


class Plan(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to make of which files.

    Raises InvalidInput, with the field as its path, for what cannot be meant. Names of formats, tokenizers, forms and
    outputs are looked up when the plan is prepared.
    """

    inputs: tuple[str, ...]
    """Files, folders and patterns such as `chats/*.jsonl`."""
    tokenizer: str
    format: str = ""
    """The prompt format. Beside a template it is the table that is tried first as the one that reads."""
    template: str = ""
    """The place of the model's own chat template, which then writes the rows."""
    date: str = ""
    """The date that a template may write, as `2026-11-28`; empty: that of the day when a build begins."""
    variant: str = ""
    """An option of the format."""
    form: str = AUTO
    """The form of all files; `auto` tells it for each."""
    map: str = ""
    """A map file, for a form that nobody registered."""
    mode: str = AUTO
    train: str = "assistant"
    """What is trained: the words of `turnscript.datasets.train`."""
    expand: str = NONE
    """Whether each turn that is trained becomes a sample of its own, with what led to it."""
    escape: str = AUTO
    strict: bool = False
    """Whether rows are set aside of which the format, or the messages of an output, would lose something."""
    declared: bool = False
    """Whether rows are set aside that call a tool which they do not declare."""
    media: str = REJECT
    """What happens to a picture, a sound or a file that the format does not show: its row is set aside, or it is left
    out."""
    hosted: str = REJECT
    """What becomes of what a provider's own tools did: its row is set aside, or it is a text that is not learnt, or
    calls with results."""
    normalize_json: bool = False
    """Whether the JSON of calls and results is spelled in one way, whatever rows spell."""
    bare_calls: bool = False
    """Whether a call at once stands as in a transcript, without the answer that its prompt has opened."""
    order: str = ""
    """The order of the format in which a text with a hole is written; empty: that of its prompts."""
    weights: str = "binary"
    end: bool = True
    """Whether the tokenizer's end token stands behind each document."""
    max_tokens: int | None = None
    overflow: str = REJECT
    """What happens to a sample of more than `max_tokens`."""
    pack: str = NONE
    dedup: str = NONE
    shuffle: int | None = None
    """The seed of the order; None keeps the order of the inputs."""
    repeat: int = 1
    outputs: tuple[str, ...] = ("binidx",)
    name: str = "train"
    """How the names of the output files begin."""
    on_bad: str = QUARANTINE
    row_bytes: int = 64 << 20
    """The most bytes that a row may have."""

    def __post_init__(self) -> None:
        for field, words in _CHOICES:
            value = getattr(self, field)
            if value not in words:
                raise _unfit(field, f"{value!r} is none of {', '.join(words)}", ", ".join(words), repr(value))
        self._check_names()
        for field in ("format", "tokenizer", "train"):
            if not getattr(self, field) and not (field == "format" and self.template):
                raise _unfit(field, "it may not be empty", "a name", "''")
        self._check_numbers()
        self._check_name()
        self._check_pairs()
        self._check_date()
        parse_train(self.train)
        packing = read_packing(self.pack)
        if packing.limit and self.max_tokens is not None and self.max_tokens > packing.limit:
            message = (
                f"samples of up to {self.max_tokens} tokens do not fit windows of {packing.limit}; "
                f"lower max_tokens to {packing.limit}, or widen the windows"
            )
            raise _unfit("max_tokens", message, f"at most {packing.limit}", str(self.max_tokens))
        if self.overflow != REJECT and self.limit is None:
            raise _unfit("overflow", f"{self.overflow!r} needs max_tokens: nothing is too long without it")

    def _check_names(self) -> None:
        for field in ("inputs", "outputs"):
            given = getattr(self, field)
            if isinstance(given, str) or not given:
                raise _unfit(field, "give at least one name, in a list", "a list of names", repr(given))
            for name in given:
                if not isinstance(name, str):
                    raise _unfit(field, f"a name is a string, not {name!r}; write str(path)", "strings", repr(name))

    def _check_numbers(self) -> None:
        for field, least in (("max_tokens", 2), ("repeat", 1), ("row_bytes", 1), ("shuffle", 0)):
            value = getattr(self, field)
            if value is not None and value < least:
                raise _unfit(field, f"{value} is less than {least}", f"{least} or more", str(value))

    def _check_name(self) -> None:
        plain = is_utf8(self.name) and self.name and not self.name.startswith(".") and not set("/\\\0") & set(self.name)
        if not plain:
            raise _unfit("name", f"{self.name!r} cannot begin the names of files; use letters such as 'train'")
        for own in OWN_FILES:
            if self.name.casefold() == own.partition(".")[0]:
                raise _unfit("name", f"{self.name!r} begins the name of {own}, which is written too; use another")

    def _check_pairs(self) -> None:
        """Check what is well by itself, and not beside the other."""
        twice = [output for output in self.outputs if self.outputs.count(output) > 1]
        if twice:
            raise _unfit("outputs", f"{twice[0]!r} is named twice; name each output once", "different names", twice[0])
        if self.map and self.form != AUTO:
            message = f"the form {self.form!r} and the map {self.map!r} both say how rows are read; give one of the two"
            raise _unfit("form", message)
        if self.expand == TURNS and parse_train(self.train).everything:
            message = "a sample for each turn would train what came before it again and again; train less than `all`"
            raise _unfit("expand", message)

    def _check_date(self) -> None:
        try:
            _ = self.now
        except ValueError:
            raise _unfit("date", f"{self.date!r} is no date", "a date such as 2026-11-28", repr(self.date)) from None

    @property
    def now(self) -> datetime | None:
        """Return the date that a template writes; None for today."""
        return datetime.fromisoformat(self.date) if self.date else None

    @property
    def words(self) -> str:
        """Return whose words the rows are in: the place of the template, or the name of the format."""
        return self.template or self.format

    @property
    def limit(self) -> int | None:
        """Return the most tokens of a sample: as the plan says, else what fits a window that keeps documents whole."""
        return self.max_tokens if self.max_tokens is not None else read_packing(self.pack).limit or None

    def encode(self, request: Request, weights: Mapping[int, float] | None = None) -> Encoded:
        """Return a conversation in memory as the tokens that a build makes of its row; no input is looked at.

        `weights`: how much items count in the loss, by their position; the others count as the plan says. Raises
        InvalidInput for what a build would set aside, and for what is too long; its `reason` is the code.
        """
        from turnscript.datasets.encoded import encode  # noqa: PLC0415  (most plans are for files)

        return encode(self, request, weights)

    def encode_all(self, request: Request, weights: Mapping[int, float] | None = None) -> list[Encoded]:
        """Return all samples of a conversation for a plan by which each turn becomes one: in order, at least one."""
        from turnscript.datasets.encoded import encode_all  # noqa: PLC0415

        return encode_all(self, request, weights)

    def facts(self) -> dict[str, Any]:
        """Return the plan as plain values."""
        facts: dict[str, Any] = msgspec.to_builtins(self)
        return facts

    def row_facts(self) -> dict[str, Any]:
        """Return the part of the plan that decides what becomes of each row by itself."""
        facts = {name: value for name, value in self.facts().items() if name not in _MERGE_ONLY}
        return {**facts, "max_tokens": self.limit, "train": parse_train(self.train).spelling}


def read_plan(path: str | os.PathLike[str]) -> Plan:
    """Return the plan in a file, TOML if it is named so, else JSON. Raises InvalidInput with the field."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise InvalidInput(f"cannot read the plan {os.fspath(path)!r}: {error.strerror}") from None
    try:
        facts = _values_in(data, is_toml=os.fspath(path).endswith(".toml"))
    except InvalidInput as error:
        raise InvalidInput(f"the plan {os.fspath(path)!r} cannot be read: {error}") from None
    try:
        return plan_of(facts)
    except InvalidInput as error:
        error.message = f"{error.message} (in {os.fspath(path)})"
        raise


def _values_in(data: bytes, *, is_toml: bool) -> Any:
    """Return the plain values that a file holds. Raises InvalidInput with line and column."""
    data = utf8(data)
    if is_toml:
        return read_toml(data.decode())
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise syntax_error(data, error) from None


def plan_of(facts: Any) -> Plan:
    """Return a plan from plain values. Raises InvalidInput with the field."""
    try:
        return msgspec.convert(facts, Plan)
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, InvalidInput):
            raise error.__cause__ from None
        message, _, path = str(error).partition(" - at ")
        raise InvalidInput(f"a plan is not like this: {message}", path=path.strip("`")) from None


def digest_of(*facts: Any) -> str:
    """Return the SHA-256 of plain values: equal values give the same one."""
    return hashlib.sha256(msgspec.json.encode(facts, order="deterministic")).hexdigest()


def is_utf8(text: str) -> bool:
    """Return whether a file can hold the text. Names of the system may have other bytes, which Python escapes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _unfit(field: str, message: str, expected: str = "", got: str = "") -> InvalidInput:
    return InvalidInput(message, path=f"$.{field}", expected=expected, got=got)


def names(values: Sequence[str], most: int = 5) -> str:
    """Return some names for a message: the first few, and how many more there are."""
    shown = ", ".join(values[:most])
    return f"{shown} and {len(values) - most} more" if len(values) > most else shown
