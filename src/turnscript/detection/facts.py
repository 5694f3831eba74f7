"""Owns the facts about a model: its names, chat template and architecture, read off its path and its files."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from os import PathLike
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from turnscript.core.clues import Evidence
from turnscript.detection.modelfolder import (
    CONFIG,
    GGUF_TEMPLATE,
    JINJA,
    SUFFIX,
    TOKENIZER,
    Config,
    called,
    gguf_texts,
    read_config,
    read_text,
    templates_of,
)

_GGUF_NAMES = ("general.name", "general.basename", "general.finetune")
GGUF_ARCHITECTURE = "general.architecture"
GGUF_FACTS = frozenset({*_GGUF_NAMES, GGUF_ARCHITECTURE, GGUF_TEMPLATE})
"""The keys of a GGUF header that `facts_of_gguf` looks at."""
_WEIGHTS = {".gguf", ".ggml", ".safetensors", ".pth", ".pt", ".ckpt", ".bin", ".st", ".prefab", ".apr", ".onnx", ".npz"}
_LONGEST = 1024
"""So much of a name counts: servers tell names too, and what finds a sign takes the square of the length at worst."""
_DATE = re.compile(r"(?<![0-9])(20[0-9]{2})([0-9]{2})([0-9]{2})(?![0-9])")
_SURROGATE = re.compile(r"[\ud800-\udfff]")


class Facts(Struct, frozen=True, kw_only=True):
    """What is known about a model. All but the template is in lower case."""

    stem: str = ""
    names: tuple[str, ...] = ()
    template: str = ""
    architectures: tuple[str, ...] = ()

    def texts(self, evidence: Evidence) -> tuple[str, ...]:
        """Return the texts in which a clue of that kind looks."""
        places: dict[Evidence, tuple[str, ...]] = {
            "template": (self.template,) if self.template.strip() else (),
            "name": self.names,
            "stem": (self.stem,),
            "architecture": self.architectures,
        }
        return places[evidence]

    @property
    def date(self) -> str | None:
        """Return the day in the names; of several the earliest, because later work makes a model no newer."""
        return min((day for name in self.names for day in dates(name)), default=None)


def dates(name: str) -> Iterator[str]:
    """Give the days in a name, as yyyymmdd. Eight digits that are no day of the calendar are none."""
    for found in _DATE.finditer(name):
        try:
            date(*map(int, found.groups()))
        except ValueError:
            continue
        yield found[0]


def stem(model: str) -> str:
    """Return the base name without its last extension, in lower case; nothing if there is none (requirements R-B-2)."""
    base = _base(model)
    return (base.rpartition(".")[0] or base).lower()


def facts_of_name(model: str | PathLike[str]) -> Facts:
    """Return what the name alone says; no file is looked at."""
    text = _SURROGATE.sub("\ufffd", os.fspath(model))
    return Facts(stem=stem(text), names=_names([text]))


def gather(model: str | PathLike[str]) -> Facts:
    """Return what the name and files of a model say. Raises InvalidInput for a bad one, OSError for an unreadable one.

    Special files such as pipes are not opened: their path is taken for a name.
    """
    path, named = Path(model), facts_of_name(model)
    mode = _mode(path) if os.fspath(model) else 0  # an empty name is not the folder that one is in
    if stat.S_ISDIR(mode):
        return facts_of_folder(path, read_config(path), templates_of(path).chosen)
    if not stat.S_ISREG(mode):
        return named
    if path.name in (TOKENIZER, CONFIG, JINJA):
        return facts_of_folder(path.parent, read_config(path.parent), templates_of(path.parent).chosen)
    if path.suffix == SUFFIX:
        return msgspec.structs.replace(named, template=read_text(path))
    texts = gguf_texts(path, GGUF_FACTS)
    return named if texts is None else facts_of_gguf(path, texts)


def facts_of_gguf(path: str | PathLike[str], values: Mapping[str, Any]) -> Facts:
    """Return what the name of a GGUF file and the values under `GGUF_FACTS` in its header say."""
    named = facts_of_name(path)
    texts = {key: value for key, value in values.items() if isinstance(value, str)}
    return Facts(
        stem=named.stem,
        names=_names([*named.names, *(texts.get(key, "") for key in _GGUF_NAMES)]),
        template=texts.get(GGUF_TEMPLATE, ""),
        architectures=_lower([texts.get(GGUF_ARCHITECTURE, "")]),
    )


def facts_of_folder(folder: Path, config: Config, template: str) -> Facts:
    """Return what the name of a folder, its configuration and the chat template in it say."""
    named = facts_of_name(os.path.abspath(called(folder)))
    return Facts(
        stem=named.stem,
        names=_names([*named.names, config.origin or ""]),
        template=template,
        architectures=_lower([config.model_type or "", *(config.architectures or ())]),
    )


def _mode(path: Path) -> int:
    """Return what the system says is there; 0 if nothing is, or if no file can have the name, as a very long one."""
    try:
        return path.stat().st_mode
    except PermissionError:
        raise
    except (OSError, ValueError):
        return 0


def _names(paths: Iterable[str]) -> tuple[str, ...]:
    """Return the base names, without the suffix of a weights file; that of `llama-3.1` is none."""
    names = []
    for base in map(_base, paths):
        head, dot, last = base.lower().rpartition(".")
        names.append((head if head and dot + last in _WEIGHTS else base)[:_LONGEST])
    return _lower(names)


def _lower(texts: Iterable[str]) -> tuple[str, ...]:
    """Return each text in lower case once, without the empty ones."""
    return tuple(dict.fromkeys(text.lower() for text in texts if text))


def _base(path: str) -> str:
    """Return the last part of a path as the system writes it, or with slashes; nothing for `..` and the root."""
    parts = [part for part in path.replace(os.sep, "/").split("/") if part not in ("", ".")]
    return parts[-1] if parts and parts[-1] != ".." else ""
