"""Owns the steps that read a call: opening, payload, closing; and what to do with a text that is none after all.

A call is announced when its name and the beginning of its arguments are known. What is no call is read as text: of the
part in which it began, or of a new one.

Calls in no tag of their format are held until it is certain that they are some, or text. They count only if nothing but
white space and further calls follows them up to the end of the turn: what an answer goes on behind is an example, and
stays text. So nothing of them is told before that, and what is text after all is read once more as text, without
looking for such calls in it again: each character is read twice at most.
"""

from __future__ import annotations

import json
import re
from sys import maxsize
from typing import Any

from msgspec.structs import replace

from turnscript.core.conversation import Assistant, Issue, Thinking, ToolCall
from turnscript.core.errors import InvalidTranscript
from turnscript.core.finish_reasons import is_cut
from turnscript.core.json_text import is_object
from turnscript.engine.attributes import read_attributes, scan_attributes
from turnscript.engine.cursor import Begun, Cursor
from turnscript.engine.loose import LooseCall, LooseRun, calls_of
from turnscript.engine.machine import Machine, Reading
from turnscript.engine.scanner import WIDEST, HeadEnd, Scanner
from turnscript.engine.states import Action, Do

SPACE = re.compile(r"[ \t\r\n]*")
_LONGEST_HEAD = 8192
_DECODER = json.JSONDecoder(parse_int=str)  # it only finds what is broken
_BLANKS = " \t\r\n"


def begin(at: Cursor, begun: Begun) -> None:
    """Begin to read what an opening has begun: its attributes, where it has such, or its payload."""
    place = begun.place
    at.begun = begun
    if place.own_attributes or place.head_end:
        begun.head_end = HeadEnd(place.head_end.strip())
        at.step = read_head
    else:
        _begin_payload(at, begun, {})


def read_head(at: Cursor, text: str, position: int) -> int:
    """Read the attributes of an opening, up to its end on the same line."""
    begun, told = at.call, at.told
    place, core = begun.place, begun.place.head_end.strip()
    assert begun.head_end is not None
    end = begun.head_end.find(text, position)
    if end < 0 or (end == len(text) and end - position > _LONGEST_HEAD):
        _reject(at, "malformed_head", f"{place.open.strip()} without {core}", position)
        return position
    if end == len(text):
        return position
    closed = not at.strict and text.endswith("/", position, end)  # `<invoke name="now"/>` has no arguments
    try:
        found = scan_attributes(text, position, end - closed, 1, 1)
        form = found.pop("format", None) if place.body.formats else None
        fields = read_attributes(found, place.own_attributes, 1)
    except InvalidTranscript as error:
        _reject(at, "malformed_head", str(error.message), position)
        return position
    if place.segment.required and place.segment.required not in fields:
        _reject(at, "invalid_call", f"{place.open.strip()} without {place.segment.required}", position)
        return position
    begun.head = fields
    begun.raw.append(told.read(text[position : end + len(core)]))
    _begin_payload(at, begun, place.body.attributes_read(form))
    if closed and begun.machine is not None:
        begun.machine.done = True
        _finish(at, end + len(core))
    return end + len(core)


def _begin_payload(at: Cursor, begun: Begun, read: dict[str, Any]) -> None:
    place, states = begun.place, at.states
    read = read if at.strict else {}  # a model is to write JSON, whatever its tag says
    lead = place.head_end[len(place.head_end.rstrip()) :] if at.strict else None
    tags = states.tags(place)
    ends = tags.ends
    thought = begun.within.place if begun.within is not None and begun.in_thought else None
    if thought is not None and not at.strict:
        ends = (*ends, thought.close.strip())  # a thought may speak of a call, and its end is in none
    reading = Reading(
        place.escape,
        {**begun.head, **read},
        at.tools or {},
        ends,
        tags.closes,
        tags.space,
        tags.opening,
        lead,
        place.segment.tentative,
    )
    machine = place.body.machine(reading)
    if machine is None:
        at.told.end()
        at.begun, at.head = None, begun.head
        at.enter_text(place)
        at.told.skip = (place.head_end or place.open).endswith("\n")
        if not place.unseen_if_empty if at.strict else place.kind != Assistant.kind:
            at.start(place)
        return
    if read.get("custom"):
        begun.head["custom"] = True
    begun.machine, begun.payload = machine, len(begun.raw)
    at.step = read_payload


def read_payload(at: Cursor, text: str, position: int) -> int:
    """Read the payload of a call, as far as it goes."""
    begun, told = at.call, at.told
    machine, place = begun.machine, begun.place
    assert machine is not None
    after = machine.feed(text, position)
    begun.raw.append(told.read(text[position:after]))
    if begun.call is None and machine.name is not None:
        if place.segment.tentative and not _is_certain(at, machine.name):
            _reject(at, "", "", after)
            return after
        if machine.streams or machine.done:
            _announce(at, begun, machine)
    if begun.call is not None and machine.deltas:
        told.delta(machine.taken())
    if machine.left:
        _go_back(at, begun, machine)
    elif machine.failed:
        if not any(begun.raw):  # its first character is text, or it would be looked at again for ever
            begun.raw.append(told.read(text[after : after + 1]))
            after += 1
        _take_back(at, begun)
        _reject(at, "invalid_call", "the call is not as the format writes one", after)
    elif machine.done:
        if place.close:
            at.step = read_closing
        else:
            _finish(at, after)
    return after


def read_closing(at: Cursor, text: str, position: int) -> int:
    """Read what stands behind a payload: its closing, or anything else, and then the closing is missing."""
    begun, length = at.call, len(text)
    scanner = at.states.closing(begun.place).scanner
    space = SPACE.match(text, position, position + WIDEST).end()  # type: ignore[union-attr]
    if space == length and not at.closing and space - position < WIDEST:
        return position
    found = scanner.near(text, position, space, at.closing)
    if found is not None and scanner.actions[found[0]].do is Do.CLOSE:
        begun.raw.append(at.told.read(text[position : found.end()]))
        at.note_closing(begun.place.close)
        _finish(at, found.end())
        return found.end()
    if found is None and not at.closing and scanner.hold(text, position) <= space:
        return position
    if space == length or (at.closing and is_cut(at.finish) and scanner.hold(text, position) <= space):
        _miss_close(at, position, ended=True)
        at.told.read(text[position:])
        return length
    _miss_close(at, position, text=found is None)
    return position


def read_broken(at: Cursor, text: str, position: int) -> int:
    """Read the rest of what is no call: up to its closing, or whatever ends the turn."""
    begun, told = at.call, at.told
    scanner = at.states.closing(begun.place).scanner
    found = scanner.find(text, position, at.closing)
    if found is not None:
        action = scanner.actions[found[0]]
        begun.raw.append(told.read(text[position : found.start()]))
        closing = told.read(found[0]) if action.do is Do.CLOSE else ""
        if not _mends(at, begun):
            begun.raw.append(closing)
            _put_back(at, begun)
        if action.do is not Do.CLOSE:
            at.steps.act(at, action, found[0], found.start())
        return found.end()
    end = len(text) if at.closing else scanner.hold(text, position)
    begun.raw.append(told.read(text[position:end]))
    return end


def end_call(at: Cursor) -> None:
    """End the call inside which the text is over. What is `again` afterwards is to be read once more."""
    begun, told = at.call, at.told
    if at.step is read_closing:
        _miss_close(at, 0, ended=True)
        return
    if at.step is read_payload and _mend_end(at, begun):
        return
    if at.held:
        begun.raw.append(told.read(at.held))
    is_broken = at.step is read_broken
    if at.strict:
        told.fail("a call is not complete", _broken_at(at, begun, len(at.held)))
    if not is_broken:
        # If the limit has cut it, only the raw answer has the beginning.
        dropped = is_cut(at.finish) and (begun.call is not None or not begun.place.segment.tentative)
        if begun.call is not None:
            told.end_call(None)
        told.issue_since_opening("unclosed_call", "the text ends inside a call", len(at.held), dropped=dropped)
        if dropped:
            return
    if not (is_broken and _mends(at, begun)):
        _put_back(at, begun)


def tell_loose(at: Cursor, said: LooseCall) -> None:
    """Tell a call that stands in no tag of the format."""
    call = ToolCall(name=said.name, arguments="")
    if said.id is not None:
        call.id = said.id
    at.told.begin_call(call)
    arguments = at.states.layout.escape.remove(said.arguments)
    at.told.delta(arguments, "")
    at.told.end_call(replace(call, arguments=arguments))


def _announce(at: Cursor, begun: Begun, machine: Machine) -> None:
    """Tell that the call is one: its start."""
    _end_text_before(at, begun)
    if begun.place.segment.group is not None:  # whose opening may be no more than that of an array
        at.group = begun.place.segment.group
    begun.call = ToolCall(**{**begun.head, "name": machine.name or "", "arguments": ""})
    if machine.id is not None:
        begun.call.id = machine.id
    at.told.begin_call(begun.call)


def _end_text_before(at: Cursor, begun: Begun) -> None:
    """End the part in which a call began, because it is one."""
    if at.told.part is None:
        return
    if begun.in_thought:
        at.told.issue_since_opening("unclosed_thinking", "a call inside a thought")
    at.told.end(raw=False)


def _finish(at: Cursor, position: int) -> None:
    """End a call whose payload and closing have been read."""
    begun, told = at.call, at.told
    machine, place = begun.machine, begun.place
    assert machine is not None
    fields = machine.fields()
    if at.strict and machine.is_json and not is_object(_payload_of(begun)):
        fields = None  # what a model writes is understood as far as it goes
    if fields is None or (place.segment.tentative and not _is_certain(at, str(machine.name))):
        _reject(at, "invalid_call", "the call's JSON is broken, or has no name", position, complete=True)
        return
    if begun.call is None:
        _announce(at, begun, machine)
    if machine.deltas:
        told.delta(machine.taken())
    call = ToolCall(**(begun.head | fields))
    if at.strict:
        told.unread += [(call, loss) for loss in machine.unread]
    else:
        if place.segment.tentative and place.close and not place.open:
            told.issue_since_opening("mended_call", "a call without its opening", position)
        for kind, detail in machine.issues:
            told.issue_since_opening(kind, detail, position)
        for detail in machine.dropped:
            told.issue_since_opening("odd_call", detail, position, dropped=True)
        if at.tools and call.name not in at.tools:
            told.issue_since_opening("unknown_tool", f"no tool is called {call.name!r}", position)
    told.end_call(call)
    at.begun = None
    at.enter_gap(place.kind, at.group)


def _miss_close(at: Cursor, position: int, *, ended: bool = False, text: bool = False) -> None:
    """Report a call without its closing; it is no fault where that is a stop, which a backend takes away.

    `text`: there is some where the closing must stand.
    """
    place, close = at.call.place, at.call.place.close.strip()
    if at.strict:
        at.told.fail(f"{close} is missing", position)
    if not (ended and place.close in at.stops):
        detail = f"text behind a call, where {close} must stand" if text else f"a call without {close}"
        at.told.issue_since_opening("missing_close", detail, position)
    _finish(at, position)


def _mend_end(at: Cursor, begun: Begun) -> bool:
    """End a call whose closings are missing where the text is over. What the limit has cut is none."""
    machine, held = begun.machine, at.held
    if machine is None or at.strict or is_cut(at.finish):
        return False
    # A stop string of the client's may have cut it, and been taken away.
    if not machine.end(held, at.finish == "stop" and not at.states.stoppable):
        return False
    begun.raw.append(at.told.read(held))
    at.held = ""
    at.told.offset += len(held)
    if machine.left:
        _go_back(at, begun, machine)
    else:
        _finish(at, 0)
    return True


def _go_back(at: Cursor, begun: Begun, machine: Machine) -> None:
    """Read again what a machine has read of what is behind its payload."""
    left, machine.left = machine.left, ""
    raw = "".join(begun.raw[begun.payload :])
    begun.raw[begun.payload :] = [raw.removesuffix(left)]
    at.again = left
    at.told.accounted += len(left)


# What is none.


def _reject(at: Cursor, kind: str, detail: str, position: int, *, complete: bool = False) -> None:
    """Keep the text of what began as a call and is none. `complete`: it has been read to its end."""
    begun, told = at.call, at.told
    tentative = begun.place.segment.tentative
    if at.strict and not tentative:
        told.fail(detail, _broken_at(at, begun, position) if complete else position)
    if kind and not tentative:
        told.issue_since_opening(kind, detail, position)
    if begun.call is not None or begun.machine is None:
        begun.payload = maxsize  # nothing that was told, or has no payload, can be mended
    if begun.call is not None:
        told.end_call(None)
        begun.call = None
    if complete or tentative or begun.in_thought:
        _put_back(at, begun, goes_on=not complete)
    else:
        at.step = read_broken


def _put_back(at: Cursor, begun: Begun, *, goes_on: bool = False) -> None:
    """Make the text of what is no call text of the part in which it began, or of a new one.

    `goes_on`: it is the beginning of a text, whose rest is to be read.
    """
    told, states, place, raw = at.told, at.states, begun.place, "".join(begun.raw)
    at.begun = None
    if place.segment.lists_names:
        at.group = None  # what is no call is in no list of them
    bare, within = states.bare, begun.within
    # A format without a bare text has a block for it.
    at.state = within or states.text(bare or states.layout.places[Assistant.kind])
    if raw or told.part is not None:  # else all of it was the prompt's
        if told.part is None and at.state.place is not None:
            at.start(at.state.place, raw=False)
        text = at.state.escape.remove(raw)
        if told.skip:
            told.skip, text = False, text.removeprefix("\n")
        told.say(text, _raw_before_again(at))
    in_block = bare is None and within is None
    if goes_on and in_block:
        told.issue_since_opening("missing_open", "a text that begins like a call")
        at.step = at.steps.text
    elif states.layout.document.gives_up and at.state.place is not None and not at.strict:
        at.state, at.step = states.rest(at.state.place), at.steps.text
    elif in_block:
        told.end()
        at.enter_gap(Assistant.kind)
    elif at.group is not None:
        told.end()
        at.enter_gap(place.kind, at.group)
    else:
        at.step = at.steps.text


def _raw_before_again(at: Cursor) -> str:
    """Return what no event has taken yet, without what is read again: that is of the event which it will make."""
    raw = at.told.raw()
    kept = min(len(raw), len(at.again))
    at.told.accounted -= kept
    return raw[: len(raw) - kept]


def _take_back(at: Cursor, begun: Begun) -> None:
    """Read again what no call has at its end: it may end the turn, such as a label on its own line.

    Strings are not, because a tag inside a string is text.
    """
    if at.strict:
        return
    raw = "".join(begun.raw[begun.payload :])
    line = raw.rfind("\n")
    end = len(raw) if line < 0 or '"' in raw[line:] else line
    core = raw[:end].rstrip(_BLANKS)
    begun.raw[begun.payload :] = [core]
    at.again = raw[len(core) :]
    at.told.accounted = len(at.again)


def _mends(at: Cursor, begun: Begun) -> bool:
    """Tell the calls that a broken one says in another notation, and return whether it does."""
    tools = at.tools or {}
    calls = calls_of("".join(begun.raw[begun.payload :]).strip()) or []
    if not calls or any(call.name not in tools for call in calls):
        return False
    _end_text_before(at, begun)
    rejected = at.told.issues.pop()
    detail = "a call in the tags of its format, and in another notation"
    at.told.issues.append(replace(rejected, kind="mended_call", detail=detail))
    for call in calls:
        tell_loose(at, call)
    at.begun = None
    at.enter_gap(begun.place.kind, at.group)
    return True


def _broken_at(at: Cursor, begun: Begun, end: int) -> int:
    """Return where the JSON of a call is broken, which has been read up to `end`; where it begins, if that is no
    JSON, or is escaped."""
    raw = "".join(begun.raw)
    if "{" in raw and begun.place.escape.remove(raw) == raw:
        try:
            _DECODER.raw_decode(raw, raw.index("{"))
        except json.JSONDecodeError as error:
            return end - len(raw) + error.pos
        except RecursionError:
            pass
    return at.told.opened - at.told.offset


def _payload_of(begun: Begun) -> str:
    """Return the payload of a call, as JSON may hold it. Its closing has been read."""
    read = "".join(begun.raw[begun.payload :]).rstrip()
    return begun.place.escape.remove(read.removesuffix(begun.place.close.strip()))


def _is_certain(at: Cursor, name: str) -> bool:
    """Return whether what may be text is a call of an offered tool. In a transcript, its opening told already."""
    return at.strict or (at.tools is not None and name in at.tools)


# Calls in no tag of their format.

_WIDEST_ESCAPE = 600
_ENDS = (Do.END, Do.FOREIGN, Do.STOP, Do.ON, Do.CLOSE, Do.OPEN, Do.GROUP)


def begin_run(at: Cursor, *, strays: bool = True) -> None:
    """Begin to read what may be calls."""
    at.back_to, at.step = at.step, read_run
    at.run, at.run_raw = LooseRun(at.tools or {}, strays=strays), []


def begin_run_in_text(at: Cursor, text: str, position: int, found: re.Match[str]) -> int:
    """Begin a run that a literal opens inside a text. One inside an escape opens none: it is spared from then on."""
    start, end = found.span()
    if at.state.scanner.before_escape(text, max(position, start - _WIDEST_ESCAPE), start) != start:
        at.spared = at.told.offset + end
        return at.step(at, text, position)
    at.content(text[position:start])
    begin_run(at, strays=not at.states.fenced)
    return start


def begins_loose(at: Cursor, text: str, position: int) -> int | None:
    """Begin a run where a text begins like one. None: it does not; the same place and step: that is not certain."""
    scanner, length, told = at.states.loose_start, len(text), at.told
    space = SPACE.match(text, position, position + WIDEST).end()  # type: ignore[union-attr]
    if space == length and not at.closing and space - position < WIDEST:
        return position
    found = scanner.near(text, position, space, at.closing)
    if found is not None and found.start() == space and told.uncounted <= space - position:
        counted = position + told.uncounted
        at.content(text[position:counted])
        begin_run(at)
        return counted
    return position if not at.closing and scanner.hold(text, position) <= space < length else None


def is_fresh(at: Cursor) -> bool:
    """Return whether the first text of an answer has been opened, by the prompt or the model, and says nothing yet."""
    said = at.told.part is not None or at.told.texts
    return not said and at.states.loose and not at.seeding and at.state.kind == Assistant.kind


def is_spared(at: Cursor, position: int) -> bool:
    """Return whether what stands here is known to be text."""
    return at.told.offset + position < at.spared


def by_parts(
    at: Cursor, text: str, position: int, own: Scanner[Action], behind: int
) -> tuple[Scanner[Action], re.Match[str] | None, int]:
    """Return the first certain literal, and what waits if there is none: up to `behind`, fewer literals count.

    What the prompt has written of a text has no stops of the client's, and what is known to be text no loose calls.
    """
    every, behind = at.state.scanner, min(behind, len(text))
    held = min(own.hold(text, position), every.hold(text, behind))
    scanner, found = own, own.near(text, position, behind - 1, at.closing)
    if found is None:  # what begins behind is found by the other, too
        scanner, found = every, every.find(text, behind, at.closing)
    if found is None or not (at.closing or found.start() < held):
        return own, None, held
    return scanner, found, held


def read_run(at: Cursor, text: str, position: int) -> int:
    """Read what may be calls, as far as it goes."""
    run = _run(at)
    after = run.feed(text, position, at.closing and not is_cut(at.finish))
    at.run_raw.append(text[position:after])
    if run.failed:
        _refuse(at, after)
    elif run.over:
        _judge(at, text, after)
    return after


def end_run(at: Cursor) -> None:
    """End a run inside which the text is over: its calls are told, or are `again` to be read, as text."""
    run, told, cut = _run(at), at.told, is_cut(at.finish)
    if at.held:
        told.offset += run.feed(at.held, 0, not cut)
        at.run_raw.append(at.held)
        at.held = ""
    if not run.ends(cut):
        _refuse(at, 0)
        return
    behind = run.found[-1].end - sum(map(len, at.run_raw))
    _tell(at, 0)
    if run.unfinished:
        told.issue("unclosed_call", "the text ends inside a call", behind, 0)


def _judge(at: Cursor, text: str, position: int) -> None:
    """Judge a run by what follows: what ends the turn, or a call in the format's tags; else it is all text."""
    scanner = at.state.plain
    found = scanner.near(text, position, position, at.closing)
    if found is not None and scanner.actions[found[0]].do in _ENDS:
        _tell(at, position)
        return
    if found is None and not at.closing and scanner.hold(text, position) == position:
        return  # it may yet become one
    _refuse(at, position)


def _refuse(at: Cursor, position: int) -> None:
    run = _run(at)
    if run.unknown:
        at.told.issue("unknown_tool", f"no tool is called {run.unknown!r}, so its call is text", position)
    at.again, at.run_raw = "".join(at.run_raw), []
    lines = len(at.again) - len(at.again.rstrip("\r\n")) if at.again.strip() else 0
    taken = len(at.again) - lines or 1  # a run may begin behind the lines, but never where one was refused
    at.spared = at.told.offset + position - len(at.again) + taken
    at.run, at.step = None, at.back_to


def _tell(at: Cursor, position: int) -> None:
    """Tell the calls of a run that is one."""
    run, told, raw = _run(at), at.told, "".join(at.run_raw)
    at.run, at.run_raw = None, []
    if at.back_to is at.steps.text:
        told.end()
    begin = told.offset + position - len(raw)
    start = 0
    for found in run.found:
        told.read(raw[start : found.end])
        for call in found.calls:
            tell_loose(at, call)
        if not raw[start : found.end].lstrip().startswith(at.states.bare_openings):
            detail = "a call that is not in the tags of its format"
            told.issues.append(Issue("mended_call", detail, max(0, begin), max(0, begin + found.end)))
        start = found.end
    told.read(raw[start:])
    at.enter_gap(ToolCall.kind)


def _run(at: Cursor) -> LooseRun:
    assert at.run is not None
    return at.run


# Calls inside a thought: if its closing follows, they are quoted there.


def may_be_quoted(at: Cursor, position: int) -> bool:
    """Return whether a call that begins there is inside a thought, which may have its closing behind it."""
    if at.state.kind != Thinking.kind or at.seeding or at.told.offset + position < at.unquoted:
        return False
    return at.states.quoting(at.place) is not None


def is_quoted(at: Cursor, position: int) -> bool:
    """Return whether calls that stand there are known to be quoted."""
    return at.told.offset + position < at.quoted


def read_quoted(at: Cursor, text: str, position: int) -> int:
    """Look for what closes the thought in which a call begins. Nothing is told before that."""
    scanner = at.states.quoting(at.place)
    assert scanner is not None
    found = scanner.find(text, position, at.closing)
    if found is not None:
        end = found.start()
    else:
        end = len(text) if at.closing else scanner.hold(text, position)
    at.run_raw.append(text[position:end])
    if found is not None:
        end_quoted(at, end, quoted=scanner.actions[found[0]].do is Do.CLOSE)
    return end


def end_quoted(at: Cursor, position: int, *, quoted: bool) -> None:
    """Read again what was held: as the thought's text, or as calls that end it."""
    at.again, at.run_raw = "".join(at.run_raw), []
    if quoted and at.again:
        at.quoted = at.told.offset + position
    else:
        at.unquoted = at.told.offset + position + 1  # what ends the thought may begin as the call does
    at.step = at.steps.text


__all__ = [
    "SPACE",
    "begin",
    "begin_run",
    "begin_run_in_text",
    "begins_loose",
    "by_parts",
    "end_call",
    "end_quoted",
    "end_run",
    "is_fresh",
    "is_quoted",
    "is_spared",
    "may_be_quoted",
    "read_payload",
    "read_quoted",
    "read_run",
]
