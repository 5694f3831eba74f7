r"""Owns turns that are written as they look, with holes where something is said; other keys are read off them.

    <|im_start|>assistant
    {thinking: <think>
    {text}
    </think>}

    {assistant}
    {tool_call: <tool_call>
    {json-call spaced}
    </tool_call>}
    {tool_call}<|im_end|>

A hole names a kind of item. One with a colon is a block: what stands around it, and in a hole of its own the shape of
what it holds, with the flags of that; one without is the plain text of its turn. What stands before all holes opens the
turn, what stands behind all closes it. Between two holes is what joins these kinds, and a kind to any later one where
those between are left out. A kind that is named again, without its block, says what joins it to those before it.
`{or user}` is joined to none of those before it: they stand in turns of their own.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from turnscript.tableio.tables import Table, text_at, unfit

LOOKS = "looks"
_OF_THE_MODEL = frozenset({"assistant", "thinking", "tool_call"})
_JOINTS = "joints"
_HOLE = re.compile(r"\{(or )?([a-z_]+)(?:\.([a-z_]+))?(?:: ([^{}]*)\{([a-z-]+(?: [a-z_]+)*)\}([^{}]*))?\}")


class Hole(NamedTuple):
    """A hole: the kind of item, which kind of thought it is, and the literals around a `body`: a name, flags.

    `apart`: it is an alternative to those before it. `again`: the kind had a hole before.
    """

    kind: str
    of: str = ""
    apart: bool = False
    again: bool = False
    open: str = ""
    body: str = "text"
    close: str = ""


class Look(NamedTuple):
    """A turn as it looks: texts around its holes, one more than there are holes."""

    texts: tuple[str, ...]
    holes: tuple[Hole, ...]


# Reading.


def spelled_out(table: Table) -> Table:
    """Return a format's table with the keys that the looks of its turns stand for. Keys that it has count more."""
    turns = table.get("turn")
    if not isinstance(turns, list) or not any(isinstance(one, Table) and LOOKS in one for one in turns):
        return table
    said = Table(table, table.path)
    joints: dict[str, str] = {}
    said["turn"] = [_turn(one, joints) if isinstance(one, Table) and LOOKS in one else one for one in turns]
    own = table.get(_JOINTS, {})
    if isinstance(own, dict):
        said[_JOINTS] = Table(joints | own, table.at(_JOINTS))
    return said


def _turn(table: Table, joints: dict[str, str]) -> Table:
    """Return a turn's table with what its look says; what joins its kinds is added to `joints`."""
    path = table.at(LOOKS)
    look = read_look(text_at(table[LOOKS], path), path)
    given = table.get("segment", [])
    tables = [one for one in given if isinstance(one, Table)] if isinstance(given, list) else []
    own = {_named(str(one.get("kind", "")), str(one.get("of", ""))): one for one in tables}
    segments = [_segment(hole, own.pop(_name(hole), None), path) for hole in look.holes if not hole.again]
    for name, one in own.items():
        raise unfit(one.path, f"no hole of {LOOKS} is of the kind {name!r}", f"{{{name}}} in {LOOKS}")
    joints |= _joints(look)
    said = {"open": look.texts[0], "close": look.texts[-1], "segment": segments}
    return Table({key: value for key, value in (said | _other(table)).items() if value != ""}, table.path)


def _other(table: Table) -> dict[str, Any]:
    return {key: value for key, value in table.items() if key not in (LOOKS, "segment")}


def _segment(hole: Hole, own: Table | None, path: str) -> Table:
    name, *flags = hole.body.split()
    body: Any = {"name": name} | dict.fromkeys(flags, True) if flags else name
    said: dict[str, Any] = {"kind": hole.kind, "of": hole.of, "body": body, "open": hole.open, "close": hole.close}
    said = {key: value for key, value in said.items() if value != ""}
    if hole.kind in _OF_THE_MODEL:
        said["model"] = True
    return Table(said | (own or {}), own.path if own is not None else path)


def _joints(look: Look) -> dict[str, str]:
    """Return what stands between two kinds."""
    found: dict[str, str] = {}
    for at, hole in enumerate(look.holes[:-1]):
        behind, text = look.holes[at + 1 :], look.texts[at + 1]
        for later, other in enumerate(behind):
            if other.apart or (hole.again and later) or (other.again and later):
                break
            found.setdefault(f"{hole.kind} {other.kind}", text)
    return found


def read_look(text: str, path: str) -> Look:
    """Return the holes of a look and the texts around them. Raises InvalidFormat."""
    texts, holes, end = list[str](), list[Hole](), 0
    for found in _HOLE.finditer(text):
        apart, kind, of, open_, body, close = found.groups("")
        again = any(_name(one) == _named(kind, of) for one in holes) and found[5] is None
        holes.append(Hole(kind, of, bool(apart), again, open_, body or "text", close))
        texts.append(text[end : found.start()])
        end = found.end()
    texts.append(text[end:])
    for piece in texts:
        if "{" in piece or "}" in piece:
            message = (
                f"{piece.strip()[:60]!r} is no hole; a turn with braces of its own has `open`, `close` and segments"
            )
            raise unfit(path, message, "{KIND}, or {KIND: before{text}behind}", piece)
    if not holes:
        raise unfit(path, "nothing is said in this turn", "a hole such as {user}", text)
    return Look(tuple(texts), tuple(holes))


def opening_of(table: Table) -> str:
    """Return what opens a turn, as its look says; empty if it has none."""
    return str(table.get(LOOKS, "")).partition("{")[0]


def _name(hole: Hole) -> str:
    return _named(hole.kind, hole.of)


def _named(kind: str, of: str) -> str:
    return f"{kind}.{of}" if of else kind


# Writing.


def as_looks(table: dict[str, Any], joints: dict[str, str]) -> dict[str, Any]:
    """Return a turn's table with a look in place of the keys that it says; as it is where a look cannot say them.

    What the look says of joints is taken from `joints`.
    """
    holes = [_hole_of(one) for one in table["segment"]]
    if not table.get("open") or None in holes or "also_read" in table:
        return table
    look = _look([one for one in holes if one is not None], joints, table["open"], table.get("close", ""))
    written = _written(look)
    told = _joints(look)
    if any(joints.get(pair) != text for pair, text in told.items()) or "{" in "".join(look.texts):
        return table
    if read_look(written, LOOKS) != look:
        return table
    for pair in told:
        del joints[pair]
    rest = [more for one in table["segment"] if (more := _more(one))]
    said = {key: value for key, value in table.items() if key not in ("open", "close", "segment")}
    return {"role": said.pop("role"), LOOKS: written} | said | ({"segment": rest} if rest else {})


def _hole_of(segment: dict[str, Any]) -> Hole | None:
    """Return the hole of a segment; None where one cannot say how its opening looks."""
    literals, body = (segment.get("open", ""), segment.get("close", "")), segment["body"]
    braces = any(one in literal for literal in literals for one in "{}")
    if braces or "attributes" in segment or "head_end" in segment or (not any(literals) and body != "text"):
        return None
    return Hole(segment["kind"], segment.get("of", ""), False, False, literals[0], _words(body), literals[1])


def _words(body: Any) -> str:
    """Return the name of a body, and its flags where it has no other options."""
    if isinstance(body, str):
        return body
    flags = [key for key, value in body.items() if value is True]
    return " ".join([body["name"], *(flags if len(flags) == len(body) - 1 else [])])


def _more(segment: dict[str, Any]) -> dict[str, Any]:
    """Return what a hole does not say of a segment, by its kind; nothing where it says all."""
    implied = {"model"} if segment.get("model") and segment["kind"] in _OF_THE_MODEL else set[str]()
    body = segment["body"]
    plain = {"body"} if isinstance(body, str) or " " in _words(body) else set[str]()
    rest = {key: one for key, one in segment.items() if key not in {"kind", "of", "open", "close"} | implied | plain}
    return {key: segment[key] for key in ("kind", "of") if key in segment} | rest if rest else {}


def _look(holes: list[Hole], joints: dict[str, str], open_: str, close: str) -> Look:
    """Return how a turn looks: its kinds in order, each that is joined to itself again behind it."""
    texts, said = [open_], list[Hole]()
    for hole in holes:
        gap = joints.get(f"{said[-1].kind} {hole.kind}") if said else ""
        texts += [gap or ""] if said else []
        said.append(hole._replace(apart=gap is None))
        if (gap := joints.get(f"{hole.kind} {hole.kind}")) is not None:
            texts.append(gap)
            said.append(Hole(hole.kind, hole.of, again=True))
    return Look((*texts, close), tuple(said))


def _written(look: Look) -> str:
    pieces = [f"{_shown(hole)}{text}" for hole, text in zip(look.holes, look.texts[1:], strict=True)]
    return "".join([look.texts[0], *pieces])


def _shown(hole: Hole) -> str:
    name = f"{'or ' if hole.apart else ''}{_name(hole)}"
    return f"{{{name}: {hole.open}{{{hole.body}}}{hole.close}}}" if hole.open or hole.close else f"{{{name}}}"
