"""Owns ai00's own configuration file, read as settings of ours: where ai00 listens, and which prompts its model takes.

    [model]    name            the model, whose name tells a format; max_batch: how many it answers at once
    [listen]   ip, port        where ai00 is asked; over TLS where `tls` or a `domain` says so
    [prompts]  role_user, ...  the format of the prompts, which goes before what the name tells

All else in it is ai00's alone. Spec: crates/ai00-server/src/config.rs and main.rs of the ai00_server project and of its
fork with `[prompts]`, read 2026-11-29.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from contextlib import suppress
from functools import cache
from ipaddress import IPv6Address, ip_address
from pathlib import Path, PureWindowsPath
from typing import Any

from msgspec import Struct

from turnscript.convert.registry import backends, get_backend, named_formats
from turnscript.core.errors import InvalidInput
from turnscript.gateway.kinds import Flag, InvalidConfig, Kind, Text, Whole, Wrong, found_words
from turnscript.tableio.ai00config import SAMPLER
from turnscript.tableio.prompts import SECTION, configured
from turnscript.tableio.tables import Table

MODEL, LISTEN = "model", "listen"
_USED = (MODEL, LISTEN, SECTION)
_NAMES = ("name", "model_name")
_MODEL_KEYS = (*_NAMES, "path", "model_path", "max_batch", "quant", "quant_type", "precision", "token_chunk_size")
_HERE: dict[str, str] = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""Where to ask what listens on all addresses of a machine."""
_NO_DOMAIN = "local"
_READ: Mapping[str, Mapping[str, Kind]] = {
    MODEL: {**dict.fromkeys(_NAMES, Text("the file of a model")), "max_batch": Whole(1)},
    LISTEN: {"ip": Text("an address"), "port": Whole(1, 65_535), "domain": Text("a host name"), "tls": Flag()},
}


class Ours(Struct, frozen=True):
    """What the file says in our words. `model`: its settings, `sections`: from which section each of them is; `top`:
    what stands beside the models; `note`: what it was read as, and what of it counts."""

    model: dict[str, Any]
    sections: dict[str, str]
    top: dict[str, Any]
    note: str


@cache
def _kinds() -> Mapping[str, str]:
    """The kinds of servers by the sections that their own files have; ours for such a server has one more."""
    found = {section: name for name in backends() for section in get_backend(name).sections}
    return {**found, SAMPLER: found[LISTEN]}


def is_theirs(tree: Mapping[str, Any]) -> bool:
    """Return whether a file is ai00's: it has a section that ai00 alone has, or a `[model]` with keys of ai00's."""
    model = tree.get(MODEL)
    return any(one in tree for one in _kinds()) or (
        isinstance(model, dict) and any(key in model for key in _MODEL_KEYS)
    )


def as_ours(tree: Mapping[str, Any], path: Path, known: Container[str]) -> Ours:
    """Return what a file of ai00's says in our words. `known`: the sections that we have.

    Raises InvalidConfig for what cannot be so, and for a file that has sections of both programs.
    """
    _check_sections(tree, path, known)
    read = _read(tree, str(path))
    model: dict[str, Any] = {"backend": _url(read[LISTEN], str(path)), "kind": _kinds()[LISTEN]}
    sections = {"backend": LISTEN, "kind": LISTEN}
    for key in _NAMES:
        if key in read[MODEL]:
            model["upstream_model"], sections["upstream_model"] = PureWindowsPath(read[MODEL][key]).stem, MODEL
    if "max_batch" in read[MODEL]:
        model["slots"], sections["slots"] = read[MODEL]["max_batch"], MODEL
    top: dict[str, Any] = {SECTION: tree[SECTION]} if SECTION in tree else {}
    left: tuple[str, ...] = ()
    if isinstance(top.get(SECTION), dict):
        with suppress(InvalidInput):  # which whoever reads the section says
            base, left = configured(Table(top[SECTION], SECTION), named_formats())
            model["format"], sections["format"] = base, SECTION
            top = {SECTION: {key: value for key, value in top[SECTION].items() if key not in left}}
    return Ours(model, sections, top, _note(tree, path, read, left))


def _check_sections(tree: Mapping[str, Any], path: Path, known: Container[str]) -> None:
    ours = [f"[{key}]" for key in tree if key in known and key != SECTION]
    if ours:
        message = (
            f"this is ai00's configuration, for it has {_and(_theirs(tree))}, and it has {_and(ours)} of turnscript's "
            "too; give turnscript a file of its own, with the address of ai00 as `backend` of a model"
        )
        raise InvalidConfig(message, path=ours[0].strip("[]"), source=str(path), expected="sections of one program")


def _read(tree: Mapping[str, Any], source: str) -> dict[str, dict[str, Any]]:
    """Return the keys that count, by section. Raises InvalidConfig for the first that cannot be so, with the others."""
    found: dict[str, dict[str, Any]] = {}
    errors: list[InvalidConfig] = []
    for section, kinds in _READ.items():
        table = tree.get(section, {})
        found[section] = {}
        if not isinstance(table, dict):
            errors.append(InvalidConfig(f"expected a table, found {found_words(table)}", path=section, source=source))
            continue
        for key, kind in kinds.items():
            if key not in table:
                continue
            try:
                found[section][key] = kind.read(table[key], Path())
            except Wrong as wrong:
                said = wrong.message or f"expected {kind.words}, found {found_words(table[key])}"
                errors.append(InvalidConfig(said, path=f"{section}.{key}", source=source, expected=kind.words))
    first, second = _NAMES
    if {first, second} <= found[MODEL].keys():
        message = f"give one of {first} and {second}: they mean the same"
        errors.append(InvalidConfig(message, path=f"{MODEL}.{second}", source=source))
    if errors:
        errors[0].others = tuple(errors[1:])
        raise errors[0]
    return found


def _url(listen: Mapping[str, Any], source: str) -> str:
    """Return where ai00 is asked. A certificate is for its domain, so that is asked where there is one."""
    domain, port = listen.get("domain", _NO_DOMAIN), listen.get("port", 65_530)
    if domain != _NO_DOMAIN:
        return f"https://{domain}:{port}"
    try:
        address = ip_address(listen.get("ip", "0.0.0.0"))
    except ValueError:
        message = f"expected an IP address such as 0.0.0.0, found {found_words(listen['ip'])}"
        raise InvalidConfig(message, path=f"{LISTEN}.ip", source=source, expected="an IP address") from None
    host = _HERE.get(str(address), str(address))
    host = f"[{host}]" if isinstance(address, IPv6Address) else host
    return f"{'https' if listen.get('tls') else 'http'}://{host}:{port}"


def _note(tree: Mapping[str, Any], path: Path, read: Mapping[str, Mapping[str, Any]], left: Sequence[str]) -> str:
    used = [f"[{section}] ({', '.join(keys)})" for section, keys in read.items() if keys]
    used += [f"[{SECTION}]"] if SECTION in tree else []
    rest = [f"[{key}]" for key in tree if key not in _USED] + [f"{SECTION}.{key}" for key in left]
    said = f"{path} is ai00's own configuration, for it has {_theirs(tree)[0]}: of it {_and(used)} count here"
    return f"{said}, and {_and(rest)} do not" if rest else said


def _theirs(tree: Mapping[str, Any]) -> list[str]:
    return [f"[{key}]" for key in tree if key in _kinds() or key == MODEL]


def _and(words: Sequence[str]) -> str:
    """Return words as a list for people."""
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:]))) or "nothing"
