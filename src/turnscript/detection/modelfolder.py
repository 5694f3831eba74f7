"""Owns reading a model's files: its chat templates, configuration and GGUF header, wherever its maker put them.

HF transformers looks for the template of a tokenizer in this order, and so does everybody here:

| where | what it holds |
|---|---|
| `chat_template.jinja`, `additional_chat_templates/NAME.jinja` | the text itself; NAME is `tool_use`, `rag`, ... |
| `tokenizer_config.json`: `chat_template` | one text, or several by name, as a list or an object |
| `processor_config.json`, `chat_template.json`: `chat_template` | the same; of models that see and hear |

The first of these that is there hides those below it, whatever names they have.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct, field

from turnscript.core.errors import InvalidInput
from turnscript.core.json_text import syntax_error
from turnscript.detection.gguf import MAX_TEXT, Value, is_gguf, read_texts, read_values

TOKENIZER = "tokenizer_config.json"
CONFIG = "config.json"
JINJA = "chat_template.jinja"
MORE_JINJA = "additional_chat_templates"
LEGACY = "chat_template.json"
PROCESSOR = "processor_config.json"
SUFFIX = ".jinja"
DEFAULT = "default"
HUB_PREFIX = "models--"
"""So begin the folders of the Hugging Face cache: `models--owner--name/snapshots/commit`."""
MAX_FILE = 64 * 1024 * 1024
"""The largest of these files have some 10 MB."""

GGUF_TEMPLATE = "tokenizer.chat_template"

_Shape = TypeVar("_Shape")


class Templates(Struct, frozen=True):
    """The chat templates of one place by name; a single one without a name is `default`. `origin`: where they stand."""

    texts: Mapping[str, str] = {}
    origin: str = ""

    @property
    def chosen(self) -> str:
        """Return the template that is called default, if there are several, else the first."""
        return self.texts.get(DEFAULT) or next(iter(self.texts.values()), "")


class _Template(Struct):
    name: str
    template: str


class _Holder(Struct):
    """A JSON file that holds chat templates among other things."""

    chat_template: str | list[_Template] | dict[str, str] | None = None


class Config(Struct):
    """What a `config.json` says of a model. What only some models have may be anything."""

    model_type: str | None = None
    architectures: list[str] | None = None
    origin: str | None = field(name="_name_or_path", default=None)
    max_position_embeddings: Any = None
    layer_types: Any = None
    text_config: Any = None


def templates_of(folder: Path, *, strict: bool = False) -> Templates:
    """Return the chat templates in a model's folder; none if there are none. Raises InvalidInput and OSError.

    `strict`: a file that is not UTF-8 is an error, as it is for those who render it; else it is read as far as it goes.
    """
    own: dict[str, str] = {}
    if os.path.isfile(folder / JINJA):
        own[DEFAULT] = read_text(folder / JINJA, strict=strict)
    more = folder / MORE_JINJA
    if os.path.isdir(more):
        files = sorted(path for path in more.iterdir() if path.suffix == SUFFIX and path.is_file())
        own |= {path.name.removesuffix(SUFFIX): read_text(path, strict=strict) for path in files}
    if own:
        return Templates(own, f"{JINJA if DEFAULT in own else MORE_JINJA} in {called(folder)}")
    for name in (TOKENIZER, PROCESSOR, LEGACY):
        texts = templates_in(folder / name)
        if texts:
            return Templates(texts, f"{name} in {called(folder)}")
    return Templates()


def templates_in(path: Path) -> dict[str, str]:
    """Return the chat templates that a JSON file holds, without empty ones; none if there is no such file."""
    given = read_json(path, _Holder).chat_template
    if isinstance(given, list):
        given = {one.name: one.template for one in given}
    elif not isinstance(given, dict):
        given = {DEFAULT: given or ""}
    return {name: text for name, text in given.items() if text}


def called(folder: Path) -> str:
    """Return what a model's folder is called: a snapshot in the Hugging Face cache as its model, not as its commit."""
    whole = Path(os.path.abspath(folder))
    owner = whole.parent.parent.name
    if whole.parent.name == "snapshots" and owner.startswith(HUB_PREFIX):
        return owner.removeprefix(HUB_PREFIX).replace("--", "/")
    return str(folder)


def read_config(folder: Path) -> Config:
    """Return what `config.json` says, nothing if there is none."""
    return read_json(folder / CONFIG, Config)


def gguf_texts(path: Path, wanted: Container[str]) -> dict[str, str] | None:
    """Return the wanted texts of a GGUF header, None for a file that is none nor called so. Raises as `read_texts`."""
    with path.open("rb") as file:
        if not is_gguf(file.read(4)) and path.suffix.lower() != ".gguf":
            return None
        try:
            return read_texts(file, wanted)
        except InvalidInput as error:
            raise _in_file(path, error) from None


def gguf_values(path: Path, wanted: Callable[[str], bool]) -> dict[str, Value]:
    """Return the wanted values of a GGUF header. Raises as `read_values`."""
    with path.open("rb") as file:
        try:
            return read_values(file, wanted)
        except InvalidInput as error:
            raise _in_file(path, error) from None


def starts_as_gguf(path: Path) -> bool:
    """Tell whether a file begins as GGUF does."""
    with path.open("rb") as file:
        return is_gguf(file.read(4))


def _in_file(path: Path, error: InvalidInput) -> InvalidInput:
    error.message = f"{path}: {error.message}"
    return error


def read_json(path: Path, shape: type[_Shape]) -> _Shape:
    """Return the members of a JSON file that `shape` names, its defaults if there is no such file."""
    if not os.path.isfile(path):
        return shape()
    data = _bytes(path, MAX_FILE)
    try:
        return msgspec.json.decode(data, type=shape)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"{path}: {error}", expected="what HF transformers writes") from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        found = syntax_error(data, error)
        raise InvalidInput(f"{path}: {found}", expected=found.expected) from None


def read_text(path: Path, *, strict: bool = False) -> str:
    """Return a template's text. Line ends become those that Jinja makes of them, as where a file is opened as text."""
    data = _bytes(path, MAX_TEXT)
    try:
        text = data.decode("utf-8", "strict" if strict else "replace")
    except UnicodeDecodeError as error:
        message = (
            f"{path}: no text: byte {data[error.start]:#04x} at {error.start} is not UTF-8; a chat template is a text "
            "file, save it as UTF-8 or get it again"
        )
        raise InvalidInput(message, expected="UTF-8", got=repr(data[:8])) from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _bytes(path: Path, limit: int) -> bytes:
    with path.open("rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        message = f"{path}: larger than {limit} bytes, which no such file of a model is"
        raise InvalidInput(message, expected=f"at most {limit} bytes")
    return data.removeprefix(b"\xef\xbb\xbf")
