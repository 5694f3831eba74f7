"""Owns where a model's chat template comes from: a place that somebody names, or what a server shows, read as one.

| place | what is read |
|---|---|
| a `.jinja` file | it alone, and the tokens of the model in whose folder it lies |
| a model's folder, or one of its JSON files | what HF transformers' tokenizers load (see `modelfolder`) |
| a GGUF file, or a folder that holds no other | `tokenizer.chat_template` and `tokenizer.chat_template.NAME` |
| the name of a model in the local Hugging Face cache | its snapshot, as a folder |
| one of these and `#NAME` | of several templates the one of that name, whether there are tools or not |

Nothing is looked for in a network.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from os import PathLike
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from turnscript.core.errors import InvalidInput
from turnscript.detection.facts import GGUF_FACTS, facts_of_folder, facts_of_gguf, facts_of_name
from turnscript.detection.gguf import Value
from turnscript.detection.modelfolder import (
    CONFIG,
    DEFAULT,
    GGUF_TEMPLATE,
    HUB_PREFIX,
    JINJA,
    LEGACY,
    MORE_JINJA,
    PROCESSOR,
    SUFFIX,
    TOKENIZER,
    Config,
    Templates,
    called,
    gguf_values,
    read_config,
    read_text,
    starts_as_gguf,
    templates_in,
    templates_of,
)
from turnscript.detection.specialtokens import (
    GGUF_IDS,
    GGUF_TOKENS,
    GGUF_TYPES,
    SpecialTokens,
    tokens_of_folder,
    tokens_of_gguf,
)

TOOL_USE = "tool_use"
KINDS = "a .jinja file, a tokenizer_config.json, a model's folder or a .gguf file"

_JINJAS = (SUFFIX, ".jinja2", ".j2")
_OF_FOLDER = (JINJA, TOKENIZER, CONFIG, "tokenizer.json", "special_tokens_map.json", "generation_config.json")
"""The files that stand for the folder that they are in."""
_CONTEXT = ".context_length"
_STATES = (".ssm.state_size", ".wkv.head_size", ".shortconv.l_cache", ".kda.head_dim")
"""What the header of a GGUF file tells of a model with states: how large they are, in layers of each kind."""
_STATEFUL = re.compile(
    r"rwkv|mamba|jamba|bamba|zamba|falcon.?h1|plamo.?2|granite(?:moe)?.?hybrid|nemotron.?h|lfm2|recurrent|griffin"
    r"|qwen3.?(?:next|5)|kimi.?linear|hybrid|xlstm|retnet|minimax(?!.?m[2-9])"
)
"""The names of architectures that have a state in all layers or some of them; a state cannot go back."""
_LAYER = re.compile(r"linear_attention|conv|mamba|hybrid|recurrent|rwkv|ssm")
"""The kinds of layers that have a state."""
_REPO = re.compile(r"[A-Za-z0-9][\w.-]*(?:/[A-Za-z0-9][\w.-]*)?")
_LONGEST = 200
_PART = re.compile(r"-(\d{5})-of-\d{5}$")


class TemplateSource(Struct, frozen=True, kw_only=True):
    """A model's own chat template, and what it needs to be rendered.

    `text`: the template to use where there are no tools. `tools_text`: the one for tools, if the place has one called
    `tool_use`. `named`: all that have names. `bos`, `eos`: the texts of these tokens, empty if there are none.
    `tokens`: further tokens that templates know by name (`pad_token`, ...). `control`: all control tokens of the
    tokenizer, and those of its added tokens that a template writes. `added`: its other added tokens, which are text to
    a template. `recurrent`: the model has a state, which cannot go back. `context`: the tokens that it reads at most,
    None if that is not told. `names`: of the model, as detection's facts have them. `told_by`: the place, for people.
    """

    text: str
    tools_text: str = ""
    named: Mapping[str, str] = {}
    bos: str = ""
    eos: str = ""
    tokens: Mapping[str, str] = {}
    control: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    recurrent: bool = False
    context: int | None = None
    names: tuple[str, ...] = ()
    told_by: str = ""


def read_place(place: str | PathLike[str]) -> TemplateSource:
    """Return the chat template at a place. Raises InvalidInput, which says what is there instead and what to do."""
    path, name = _found(os.fspath(place))
    try:
        source = _read(path)
    except OSError as error:
        what = error.strerror or str(error)
        message = f"{error.filename or path}: cannot be read: {what}; see to it that this user may read it"
        raise InvalidInput(message, expected=KINDS, got=what) from None
    return _checked(_chosen(source, name) if name else source)


def of_server(
    text: str, tools_text: str = "", *, bos: str = "", eos: str = "", model: str = "", told_by: str
) -> TemplateSource:
    """Return the chat template that a server shows. `model`: its name or file. Raises InvalidInput if it shows none."""
    facts = facts_of_name(model)
    named = {DEFAULT: text, TOOL_USE: tools_text} if tools_text.strip() else {}
    return _checked(
        TemplateSource(
            text=text,
            tools_text=tools_text,
            named=named,
            bos=bos,
            eos=eos,
            control=tuple(dict.fromkeys(token for token in (bos, eos) if token.strip())),
            recurrent=any(_STATEFUL.search(name) for name in facts.names),
            names=facts.names,
            told_by=told_by,
        )
    )


def is_place(name: str) -> bool:
    """Tell whether there is something under a name that `read_place` can look at, whatever it may find there."""
    return _place_of(name) is not None


def in_hub_cache(repo_id: str) -> Path | None:
    """Return the folder of a model in the local Hugging Face cache, None if it is not there."""
    if not _REPO.fullmatch(repo_id):
        return None
    folder = hub_cache() / f"{HUB_PREFIX}{repo_id.replace('/', '--')}"
    try:
        revision = (folder / "refs" / "main").read_text(encoding="utf-8").strip()
        snapshots = [path for path in (folder / "snapshots").iterdir() if path.is_dir()]
    except (OSError, UnicodeDecodeError):
        return None
    return next((path for path in snapshots if path.name == revision), None)


def hub_cache() -> Path:
    """Return the folder of the Hugging Face cache, as the environment says it."""
    env = os.environ
    given = env.get("HF_HUB_CACHE") or env.get("HUGGINGFACE_HUB_CACHE")
    home = env.get("HF_HOME") or os.path.join(env.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    return Path(os.path.expandvars(os.path.expanduser(given or os.path.join(home, "hub"))))


# Which file or folder is meant.


def _found(text: str) -> tuple[Path, str]:
    """Return the path of a place, and the name of the template that is chosen there, if any. Raises InvalidInput."""
    found = _place_of(text)
    if found is not None:
        return found
    shown = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
    message = (
        f"{shown or 'an empty name'}: no such file or folder, and no model of that name in the Hugging Face cache "
        f"({hub_cache()}); say {KINDS}"
    )
    raise InvalidInput(message, expected=KINDS, got=repr(shown))


def _place_of(text: str) -> tuple[Path, str] | None:
    base, _, name = text.rpartition("#")
    for place, chosen in [(text, ""), (base, name)] if base and name else [(text, "")]:
        if place and _is_there(place):
            return Path(place), chosen
        cached = in_hub_cache(place)
        if cached is not None:
            return cached, chosen
    return None


def _is_there(place: str) -> bool:
    try:
        os.lstat(place)
    except PermissionError:
        return True  # the one who reads it is told so
    except (OSError, ValueError):
        return False
    return True


def _read(path: Path) -> TemplateSource:
    mode = path.stat().st_mode
    if stat.S_ISDIR(mode):
        return _of_folder(path)
    if not stat.S_ISREG(mode):
        message = f"{path}: neither a file nor a folder; say {KINDS}"
        raise InvalidInput(message, expected=KINDS, got=stat.filemode(mode))
    if path.suffix.lower() == ".gguf" or starts_as_gguf(path):
        return _of_gguf(path)
    if path.name in _OF_FOLDER:
        return _of_folder(path.parent, path.name)
    if path.name in (LEGACY, PROCESSOR) or path.suffix == ".json":
        return _of_json(path)
    if path.suffix.lower() in _JINJAS:
        folder = path.parent.parent if path.parent.name == MORE_JINJA else path.parent
        found = _source(folder, Templates({DEFAULT: read_text(path, strict=True)}, str(path)))
        own = facts_of_name(path.stem).names  # a file that is not called as all are says which model's it is
        return found if path.name == JINJA else replace(found, names=tuple(dict.fromkeys([*own, *found.names])))
    message = f"{path}: not a place of chat templates; say {KINDS}, such as the folder that this file is in"
    raise InvalidInput(message, expected=KINDS, got=path.suffix or "a file without a suffix")


# What is there.


def _of_folder(folder: Path, asked: str = "") -> TemplateSource:
    """Return what a model's folder has. `asked`: the file in it that somebody named."""
    if not os.access(folder, os.R_OK | os.X_OK):
        raise PermissionError(None, "Permission denied", str(folder))
    templates = templates_of(folder, strict=True)
    if templates.chosen.strip():
        return _source(folder, templates)
    files = [] if asked else _first_parts(folder)
    if len(files) == 1:
        return _of_gguf(files[0])
    if files:
        names = ", ".join(path.name for path in files[:5])
        message = f"{folder}: there are {len(files)} GGUF files and no other chat template; name one of them: {names}"
        raise InvalidInput(message, expected="one GGUF file", got=names)
    holder = TOKENIZER if os.path.isfile(folder / TOKENIZER) else ""
    found = f"{folder / holder}: has no chat_template" if holder else f"{folder}: no chat template is here"
    message = (
        f"{found}, and there is no {JINJA} {'beside it' if holder else f'and no {TOKENIZER}'}; a base model has none: "
        f"take the folder of the chat model, or name a {SUFFIX} file"
    )
    raise InvalidInput(message, expected="a chat template", got="none")


def _first_parts(folder: Path) -> list[Path]:
    """Return the GGUF files of models; of one in several parts the first, and not those that only see."""
    found = sorted(path for path in folder.iterdir() if path.suffix.lower() == ".gguf" and path.is_file())
    whole = [path for path in found if "mmproj" not in path.name.lower()]
    return [path for path in whole if not (part := _PART.search(path.stem)) or int(part[1]) == 1]


def _of_json(path: Path) -> TemplateSource:
    """Return what another JSON file with a `chat_template` has."""
    texts = templates_in(path)
    if not texts:
        message = f"{path}: has no chat_template; say the model's folder, or a {SUFFIX} file"
        raise InvalidInput(message, expected="a member chat_template", got="none")
    return _source(path.parent, Templates(texts, f"{path.name} in {called(path.parent)}"))


def _source(folder: Path, templates: Templates) -> TemplateSource:
    """Return templates together with what the folder of their model says."""
    config, tokens = read_config(folder), tokens_of_folder(folder)
    facts = facts_of_folder(folder, config, "")
    return _with_tokens(
        TemplateSource(
            text=templates.chosen,
            tools_text=templates.texts.get(TOOL_USE, ""),
            named=_named(templates.texts),
            recurrent=_has_state(facts.architectures, config),
            context=_context_of(config),
            names=facts.names,
            told_by=templates.origin,
        ),
        tokens,
    )


def _of_gguf(path: Path) -> TemplateSource:
    values = gguf_values(path, _is_wanted)
    prefix = f"{GGUF_TEMPLATE}."
    texts = {key.removeprefix(prefix): text for key, text in values.items() if key.startswith(prefix)}
    named = {name: text for name, text in texts.items() if isinstance(text, str)}
    if isinstance(values.get(GGUF_TEMPLATE), str):
        named = {DEFAULT: str(values[GGUF_TEMPLATE]), **named}
    if not any(text.strip() for text in named.values()):
        message = (
            f"{path}: has no {GGUF_TEMPLATE}, as files of base models and older ones; name the model's {SUFFIX} file, "
            "or make the GGUF file anew from a folder that has one"
        )
        raise InvalidInput(message, expected=GGUF_TEMPLATE, got="none")
    facts, templates = facts_of_gguf(path, values), Templates(named, f"{GGUF_TEMPLATE} of {path}")
    return _with_tokens(
        TemplateSource(
            text=templates.chosen,
            tools_text=named.get(TOOL_USE, ""),
            named=_named(named),
            recurrent=_has_state(facts.architectures) or any(_number(values, key) for key in _STATES),
            context=_number(values, _CONTEXT) or None,
            names=facts.names,
            told_by=templates.origin,
        ),
        tokens_of_gguf(values),
    )


def _is_wanted(key: str) -> bool:
    if key.startswith(GGUF_TEMPLATE) or key in (GGUF_TOKENS, GGUF_TYPES) or key in GGUF_FACTS or key in GGUF_IDS:
        return True
    return key.endswith((_CONTEXT, *_STATES))


def _number(values: Mapping[str, Value], ending: str) -> int:
    """Return the largest number under a key that ends so; some files have one for each layer."""
    found = [value for key, value in values.items() if key.endswith(ending)]
    each = [one for value in found for one in (value if isinstance(value, tuple) else (value,))]
    return max((one for one in each if isinstance(one, int)), default=0)


def _named(texts: Mapping[str, str]) -> Mapping[str, str]:
    """Return the templates that have names: a single one, called default, has none."""
    return {} if list(texts) == [DEFAULT] else texts


def _with_tokens(source: TemplateSource, tokens: SpecialTokens) -> TemplateSource:
    """Return a source with the tokens of its model. An added token that no template writes is text like any other."""
    written = (source.text, *source.named.values())
    control = [token for token in tokens.added if any(token in text for text in written)]
    named = dict(tokens.named)
    return replace(
        source,
        bos=named.pop("bos_token", ""),
        eos=named.pop("eos_token", ""),
        tokens=named,
        control=(*tokens.control, *control),
        added=tuple(token for token in tokens.added if token not in control),
    )


def _has_state(architectures: tuple[str, ...], config: Config | None = None) -> bool:
    """Tell whether a model has a state, in all of its layers or some."""
    if any(_STATEFUL.search(name) for name in architectures):
        return True
    inner = config.text_config if config is not None and isinstance(config.text_config, dict) else {}
    if isinstance(kind := inner.get("model_type"), str) and _STATEFUL.search(kind.lower()):
        return True
    layers = inner.get("layer_types") or (config.layer_types if config is not None else None)
    kinds = [kind for kind in layers if isinstance(kind, str)] if isinstance(layers, list) else []
    return any(_LAYER.search(kind) for kind in kinds)


def _context_of(config: Config) -> int | None:
    inner = config.text_config.get("max_position_embeddings") if isinstance(config.text_config, dict) else None
    found = config.max_position_embeddings or inner
    return found if isinstance(found, int) and found > 0 else None


# Choosing and checking.


def _chosen(source: TemplateSource, name: str) -> TemplateSource:
    """Return a source of which one template is used in any case. Raises InvalidInput for one that it does not have."""
    known = source.named or {DEFAULT: source.text}
    if name not in known:
        names = ", ".join(known)
        message = f"no chat template is called {name!r} in {source.told_by}; there {_are(len(known))}: {names}"
        raise InvalidInput(message, expected=names, got=name)
    return replace(source, text=known[name], tools_text="", told_by=f"{name} of {source.told_by}")


def _are(count: int) -> str:
    return "is only" if count == 1 else f"are {count}"


def _checked(source: TemplateSource) -> TemplateSource:
    """Return a source whose texts can be templates. Raises InvalidInput."""
    if not source.text.strip():
        message = f"{source.told_by}: the chat template is empty; name a {SUFFIX} file with the model's own"
        raise InvalidInput(message, expected="a chat template", got="nothing")
    for text in (source.text, source.tools_text):
        if "\0" in text:
            message = f"{source.told_by}: no text: it has bytes that are 0, at {text.index(chr(0))}; get it again"
            raise InvalidInput(message, expected="a chat template", got=repr(text[:20]))
        if text.strip() and "{{" not in text and "{%" not in text:
            shown = repr(text if len(text) <= 40 else f"{text[:37]}...")
            message = (
                f"{source.told_by}: {shown} is no chat template: nothing in it stands in {{{{ }}}} or {{% %}}; "
                f"name a {SUFFIX} file with the model's own"
            )
            raise InvalidInput(message, expected="a Jinja template", got=shown)
    return source
