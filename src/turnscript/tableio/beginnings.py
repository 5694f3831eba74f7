"""Owns the checks of where turns begin and end: each is known by a mark of its own, or by what stands before it."""

from __future__ import annotations

from collections.abc import Mapping

from turnscript.core.conversation import System
from turnscript.engine.table import START, Document, Turn
from turnscript.tableio.segments import segments_of, turns_of
from turnscript.tableio.tables import Table, not_among, unfit

_BLANK_LINE = "\n\n"


def check_beginnings(document: Document, table: Table) -> None:
    """Raise InvalidFormat for a turn that a reader could not find."""
    roles = {turn.role: turn for turn in document.turns}
    taken: dict[str, Table] = {}
    for turn, place in turns_of(document, table):
        if not (turn.open or turn.behind):
            message = (
                "a turn needs an `open`, or `behind`, which says behind whose `close` it begins without one; "
                "if each item is a block by itself, say `anchored = true`"
            )
            raise unfit(place.at("open"), message, "some text")
        if turn.behind:
            _check_behind(turn, roles, document, place)
            _check_alone(turn, taken, place)
        if turn.no_thought:
            _check_no_thought(turn, place)
        if turn.several:
            _check_several(turn, document, place)
        _check_end(turn, document, place)
        if not turn.open:
            _check_everywhere(turn, document, place)


def _check_behind(turn: Turn, roles: Mapping[str, Turn], document: Document, place: Table) -> None:
    """Each of `behind` is the start, or a turn of one role that has a closing."""
    if document.separator or document.flattened:
        message = "a turn begins right behind another only where nothing stands between, and texts stay as they are"
        raise unfit(place.at("behind"), message, 'separator = "" and no `flattened`', repr(document.separator))
    if turn.attributes or turn.head_end:
        key = "attributes" if turn.attributes else "head_end"
        raise unfit(place.at(key), "a turn that may begin without its opening says nothing in it", "no `behind`")
    for index, role in enumerate(turn.behind):
        path = f"{place.at('behind')}[{index}]"
        if START in roles:
            message = f"with `behind`, {START!r} is the start of the document, and no role of a turn"
            raise unfit(path, message, "another role", START)
        if role != START and role not in roles:
            raise not_among(path, "no turn has the role", role, [START, *roles])
        if role in turn.behind[:index]:
            raise unfit(path, f"{role!r} stands there twice", "each once", role)
        if role != START and sum(one.role == role for one in document.turns) > 1:
            raise unfit(path, f"several turns have the role {role!r}", "a `role` of its own for each", role)
        if role != START and not roles[role].close:
            message = f"the turn of {role!r} has no `close`, so nothing tells where it ends and this one begins"
            raise unfit(path, message, "a turn with a `close`", role)


def _check_alone(turn: Turn, taken: dict[str, Table], place: Table) -> None:
    """No other turn begins without an opening at the same place."""
    for index, role in enumerate(turn.behind):
        if role in taken:
            where = "at the start of the document" if role == START else f"behind the turn of {role!r}"
            message = f"{taken[role].path} begins {where} without an opening, too; a reader could not tell them apart"
            raise unfit(f"{place.at('behind')}[{index}]", message, "one turn at each place", role)
        taken[role] = place


def _check_no_thought(turn: Turn, place: Table) -> None:
    if not turn.open or turn.open.rstrip("\n")[-1:].isspace() or turn.head_end:
        message = "`no_thought` stands right behind an `open` that ends in no white space but line ends"
        raise unfit(place.at("no_thought"), message, "an `open` such as <assistant>", turn.no_thought)
    if not turn.no_thought.strip():
        raise unfit(place.at("no_thought"), "white space alone marks nothing", "some text", repr(turn.no_thought))


def _check_several(turn: Turn, document: Document, place: Table) -> None:
    """Of several turns that are one answer, each opens with the same words, and its one segment shows its end."""
    for key in ("close", "behind", "attributes", "head_end", "lead", "no_thought"):
        if getattr(turn, key):
            message = "where an answer is `several` turns, all that stands between them is the `open` of the next"
            raise unfit(place.at(key), message, f"no {key!r}")
    if not any(segment.kind == document.generation.kind for segment in turn.segments):
        raise unfit(place.at("several"), "only the model's answer can be several turns", "false", "true")
    for segment, inner in segments_of(turn, place, read_only=True):
        if not (segment.open and segment.close):
            message = "a turn of `several` has one segment, or one group of them, with an `open` and a `close`"
            raise unfit(inner.path, message, "an `open` and a `close`")
    kinds = {segment.kind for segment in turn.segments}
    grouped = {segment.kind for segment in turn.segments if segment.group is not None}
    for before, after in (*document.joints, *document.also_joined):
        if (before in kinds or after in kinds) and not (before == after and before in grouped):
            message = f"{before!r} and {after!r} stand in turns of their own, so nothing joins them"
            raise unfit(place.at("several"), message, "no joints of these kinds")


def _check_everywhere(turn: Turn, document: Document, place: Table) -> None:
    """A turn without an opening can begin wherever a conversation may have it. Instructions have a way out."""
    if turn.segments[0].kind == System.kind:
        return
    missing = [role for role in (START, *(one.role for one in document.turns)) if role not in turn.behind]
    if missing:
        message = (
            f"this turn has no `open`, and may have to begin behind {', '.join(map(repr, missing))}; "
            "give it an `open` for there, or add them"
        )
        raise unfit(place.at("behind"), message, f"also {', '.join(map(repr, missing))}", ", ".join(turn.behind))


def _check_end(turn: Turn, document: Document, place: Table) -> None:
    """A turn without a closing ends where the next opening follows. That no content holds one, others check."""
    if turn.close or not document.flattened or _BLANK_LINE in document.separator:
        return
    message = (
        "a turn without a `close` ends where the next opening follows; where contents are flattened, that takes a "
        "`separator` with a blank line"
    )
    raise unfit(place.at("close"), message, "a `close`, or a separator with a blank line")
