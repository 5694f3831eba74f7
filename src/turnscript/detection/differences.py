"""Owns what the differences between probes tell of a template: the literals of its turns, thoughts and calls.

Each finder looks at what stands between words that are known, and at nothing else. What it cannot make out it says in
one sentence.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from turnscript.detection.edges import head, space_before, tail
from turnscript.detection.probes import (
    CALL,
    ONE_CALL,
    OTHER,
    TEXT,
    TEXT_CALL,
    TEXT_ONLY,
    THOUGHT,
    THOUGHT_CALL,
    THOUGHT_TEXT,
    TWO_ARGUMENTS,
    TWO_CALLS,
)
from turnscript.detection.trials import Trial, Trials

_TAG = re.compile(r"<\|[^|<>]*\|>|<[^<>\s]+>|\[[^\[\]\n{}\"]+\]|\S+")
_MARK = re.compile(r"<\|[^|<>\s]*\|>|<[^<>\s]+>|\[[^\[\]\s]+\]")
_WORDS = 4  # what ends an answer is no sentence
_EMPTY_THOUGHT = re.compile(r"<([^<>/\s]+)>\s*</\1>\s*|\[([^\[\]/\s]+)\]\s*\[/\2\]\s*")
_CLOSE_TAG = re.compile(r"\s*</([^<>\s]+)>|\s*\[/([^\[\]\s]+)\]")
_ARGUMENT = "glimfort"
_OPPOSITES = (("/", ""), ("close", "open"), ("end", "begin"), ("end", "start"), ("END", "START"), ("END", "BEGIN"))
_LONGEST = 80  # no closing of a thought is longer


class Frame(Struct, frozen=True):
    """The literals around turns. `close` ends an answer, `ends` are more strings that do."""

    user_open: str
    user_close: str
    open: str
    close: str
    ends: tuple[str, ...] = ()


class Thoughts(Struct, frozen=True):
    """The literals around a thought, and the space behind it.

    `text_open` and `text_close` stand around a text, where something does. `none` stands where there is no thought, and
    `lead` is white space before a text. `several`: what follows a thought stands in a turn of its own.
    """

    open: str = ""
    close: str = ""
    joint: str = ""
    text_open: str = ""
    text_close: str = ""
    none: str = ""
    lead: str = ""
    several: bool = False


class Calls(Struct, frozen=True):
    """How calls are written: the literals around one and around all of them, the payload, and what joins two.

    `ends`: what ends an answer with calls, where that is another string than elsewhere.
    """

    body: dict[str, Any]
    open: str
    close: str
    group: tuple[str, str] | None
    joint: str
    text_joint: str
    ends: tuple[str, ...] = ()


class Unlearned(Exception):
    """What could not be made out, in one sentence, and what was made out all the same."""

    def __init__(self, sentence: str, known: Thoughts | None = None) -> None:
        super().__init__(sentence)
        self.known = known


def frame_of(trials: Trials) -> Frame:
    """Return the literals around turns."""
    trial = trials.of(TEXT_ONLY)
    assert trial is not None
    end, followed, asked = trials.ended, trials.followed, trials.asked
    behind = trial.plain[trial.after :] if trial.plain[: trial.after] == trial.whole[: trial.after] else ""
    middle = trial.whole[trial.after : trial.whole.rfind(TEXT)]
    header = _header(trials, trial, middle)
    user_close = behind if header.startswith(behind) else head(behind, header)
    open_ = header[len(user_close) :]
    shared = followed if followed and end.startswith(followed) else head(end, followed)
    ends: tuple[str, ...] = ()
    if shared.strip():
        close, user_open = shared, followed[len(shared) :]
    else:
        user_open = tail(asked, followed) or asked
        if user_close.strip() and user_open.startswith(user_close):
            user_open = user_open[len(user_close) :]
        close = followed[: len(followed) - len(user_open)] if followed.endswith(user_open) else ""
    if end.strip() and end.strip() != close.strip():
        tags = re.match(rf"\s*(?:{_MARK.pattern})+", end)
        ends = (tags[0].strip(),) if tags else (end.strip(),)[: end.strip().count(" ") < _WORDS]
        close = close if close.strip() or followed else end
    return Frame(user_open.lstrip(), user_close, open_.lstrip(), close, ends)


def _header(trials: Trials, trial: Trial, middle: str) -> str:
    """Return what stands between a question and whatever the answer begins with."""
    rows = [middle]
    for probe, word in ((THOUGHT_TEXT, THOUGHT), (ONE_CALL, CALL), (THOUGHT_CALL, THOUGHT)):
        other = trials.of(probe)
        if other is not None and word in other.whole[other.after :]:
            rows.append(other.whole[other.after : other.whole.find(word, other.after)])
    header = head(*rows)
    last = next(reversed(_TAG.findall(header)), "")
    says_more = last and trial.ahead.rstrip().endswith(last) and not _CLOSE_TAG.fullmatch(last)
    if trial.ahead and not says_more:  # a prompt may have instructions before the opening that no history has
        header = head(header, trial.ahead)
    empty = _EMPTY_THOUGHT.search(header)
    if empty is not None:
        return header[: empty.start()]
    for opening in _openings_of_thought(trials):
        if header.rstrip().endswith(opening):
            return header.rstrip().removesuffix(opening)
    return header


def _openings_of_thought(trials: Trials) -> Iterator[str]:
    """Give what may open a thought, made of what stands behind one: `<think>` of `</think>`."""
    for probe in (THOUGHT_TEXT, THOUGHT_CALL):
        trial = trials.of(probe)
        at = -1 if trial is None else trial.whole.rfind(THOUGHT)
        behind = "" if trial is None or at < 0 else trial.whole[at + len(THOUGHT) :].lstrip()[:_LONGEST]
        for tag in re.finditer(r"[>\]]", behind):
            for closes, opens in _OPPOSITES:
                if closes in behind[: tag.end()]:
                    yield behind[: tag.end()].replace(closes, opens, 1)


def thoughts_of(trials: Trials, frame: Frame) -> Thoughts:
    """Return the literals of thoughts, and of texts. Raises Unlearned where thoughts are shown and have none."""
    plain = trials.of(TEXT_ONLY)
    assert plain is not None
    lead = plain.whole[_inside(plain, frame) : plain.whole.rfind(TEXT)]
    trial, follower = trials.of(THOUGHT_TEXT), TEXT
    if trial is None or THOUGHT not in trial.whole:
        trial, follower = trials.of(THOUGHT_CALL), CALL
    if trial is None or THOUGHT not in trial.whole:
        thought = _opened_thought(plain)
        if trials.taken_out and not thought.open:
            thought = Thoughts(f"<{trials.taken_out}>\n", f"\n</{trials.taken_out}>", "\n\n")
        return _texts(thought, lead, trials)
    at = trial.whole.rfind(THOUGHT)
    behind = trial.whole.find(follower, at)
    if behind < 0:
        raise Unlearned("it stands behind the text", _texts(Thoughts(), lead, trials))
    opening, between = trial.whole[_inside(trial, frame) : at], trial.whole[at + len(THOUGHT) : behind]
    opening = opening if opening.strip() else trial.opening(_inside(trial, frame))
    again = between.find(frame.open.strip()) if frame.open.strip() else -1
    if again > 0 and opening.strip() and follower == TEXT:
        known = Thoughts(opening.strip(), between[:again].strip(), several=True, text_open=lead.strip())
        return replace(known, text_close=frame.close.strip())
    close = _closing_of(opening, between, lead if follower == TEXT else "")
    if not opening.strip() and (tag := _CLOSE_TAG.match(close)):
        opening = f"<{tag[1]}>" if tag[1] else f"[{tag[2]}]"
    if not opening.strip() or not close.strip():
        known = _texts(Thoughts(), lead, trials)
        raise Unlearned("nothing marks where a thought begins and ends", known)
    joint = space_before(between[len(close.rstrip()) :])
    return _texts(Thoughts(opening.lstrip(), close.rstrip(), joint), lead, trials)


def _closing_of(opening: str, between: str, lead: str) -> str:
    """Return what closes a thought, of what stands behind it. `lead`: what stands before a text alone."""
    for closes, opens in _OPPOSITES:
        core = opening.strip()
        mirror = core.replace("<", "</", 1) if not opens else core.replace(opens, closes, 1)
        if mirror != core and between.lstrip().startswith(mirror):
            return space_before(between) + mirror
    found = _CLOSE_TAG.match(between) or re.match(rf"\s*(?:{_TAG.pattern})", between)
    shared = tail(between, lead) if lead.strip() else ""
    if shared.strip() and between[: len(between) - len(shared)].strip():
        return between[: len(between) - len(shared)]
    return found[0] if found else ""


def _texts(thoughts: Thoughts, lead: str, trials: Trials) -> Thoughts:
    """Return the same with what stands around texts. `lead`: what stands before a text without a thought."""
    core, none = lead.strip(), ""
    opens, closes = thoughts.open.strip(), thoughts.close.strip()
    for begins in (opens, "") if closes else ():
        found = re.match(rf"\s*{re.escape(begins)}\s*{re.escape(closes)}", lead)
        if found is not None:
            core, none = lead[found.end() :].strip(), found[0]
            lead = lead[found.end() :]
            break
    else:
        found = _EMPTY_THOUGHT.match(lead.lstrip())
        if found is not None:
            core, none, lead = core[found.end() :].strip(), found[0].rstrip(), space_before(lead[::-1])
    if not core:
        return replace(thoughts, none=none, lead=lead)
    trial, close = trials.of(TEXT_CALL), ""
    at = -1 if trial is None else trial.whole.rfind(TEXT)
    if trial is not None and at >= 0:
        close = head(trial.whole[at + len(TEXT) :], trials.ended)
        if trial.whole.rstrip().endswith(close.strip()):  # then it closes the turn
            close = ""
    return replace(thoughts, none=none, text_open=lead.lstrip(), text_close=close.rstrip())


def _opened_thought(plain: Trial) -> Thoughts:
    """Return what a prompt tells of thoughts that the history never shows: the tag that it opens or closes."""
    found = re.search(r"(<([^<>/\s|]+)>|\[([^\[\]/\s]+)\])(\s*)(?:</\2>\s*|\[/\3\]\s*)?$", plain.ahead)
    if found is None or plain.continues or not (found[2] or found[3]):
        return Thoughts()
    close = f"</{found[2]}>" if found[2] else f"[/{found[3]}]"
    space = "\n" if "\n" in found[4] else ""
    return Thoughts(f"{found[1]}{space}", f"{space}{close}", space * 2)


def _inside(trial: Trial, frame: Frame) -> int:
    """Return where the inside of an answer begins."""
    found = trial.opened(frame.open) if frame.open else None
    if found is not None:
        return found
    at = trial.whole.find(frame.user_close, trial.after) if frame.user_close else -1
    return at + len(frame.user_close) if at == trial.after else trial.start


class _Unit(Struct):
    """A call as it stands in a text: where its payload begins and ends, and the payload's shape."""

    start: int
    end: int
    body: dict[str, Any]
    mark: str = ""


def calls_of(trials: Trials, frame: Frame, thoughts: Thoughts) -> Calls:
    """Return how calls are written. Raises Unlearned with the reason where that cannot be made out."""
    trial = trials.of(ONE_CALL)
    if trial is None or CALL not in trial.whole[trial.after :]:
        raise Unlearned("the template shows no calls")
    inside = _inside(trial, frame)
    region = _without_thought(trial.whole[inside:], thoughts)
    unit = _unit(region, CALL, _ARGUMENT)
    if unit is None:
        return _tag_calls(trials, frame, thoughts)
    before, behind = region[: unit.start].lstrip(), region[unit.end :]
    closing, ends = _closing(behind, frame)
    open_, close, group, joint = before, closing, None, "\n"
    two = trials.of(TWO_CALLS)
    if two is not None and OTHER in two.whole[two.after :]:
        text = _without_thought(two.whole[_inside(two, frame) :], thoughts)
        first = _unit(text, CALL, _ARGUMENT)
        second = _unit(text, OTHER, "fennimore", first.end if first else 0)
        if first is not None and second is not None:
            between = text[first.end : second.start]
            again = between.find(frame.open.strip()) if thoughts.several else -1
            if again >= 0:
                open_, close = between[again + len(frame.open.strip()) :].lstrip(), between[:again]
            else:
                open_, close, group, joint = _several(before, closing, between)
    elif before.rstrip().endswith("[") and closing.lstrip().startswith("]"):
        open_, close, group, joint = "", "", (before, closing), ", "
    text_joint = _text_joint(trials)
    return Calls(unit.body, open_, close.rstrip(), group, joint, text_joint, ends)


def _without_thought(region: str, thoughts: Thoughts) -> str:
    """Return what an answer says behind an empty thought, and behind an empty text where those have marks."""
    for opens, closes in (
        (thoughts.open, thoughts.close),
        ("", thoughts.close),
        (thoughts.text_open, thoughts.text_close),
    ):
        if closes.strip():
            found = re.match(rf"\s*{re.escape(opens.strip())}\s*{re.escape(closes.strip())}", region)
            region = region[found.end() :] if found else region
    found = _EMPTY_THOUGHT.match(region.lstrip())
    return region.lstrip()[found.end() :] if found else region


def _unit(text: str, name: str, argument: str, start: int = 0) -> _Unit | None:
    """Return the call of a name in a text that has its arguments as JSON; None where no JSON holds the argument."""
    at, decoder = text.find("{", start), json.JSONDecoder()
    while at >= 0:
        try:
            value, end = decoder.raw_decode(text, at)
        except ValueError:
            at = text.find("{", at + 1)
            continue
        said = json.dumps(value)
        if argument in said:
            if name in said:
                return _Unit(at, end, _object_body(value, text[at:end], name, argument))
            return _named_unit(text, name, start, at, end)
        at = text.find("{", end)
    found = re.compile(rf"{name}\({argument}=(['\"])\w+\1\)").search(text, start)
    return _Unit(found.start(), found.end(), {"name": "function-call"}) if found else None


def _object_body(value: Any, text: str, name: str, argument: str) -> dict[str, Any]:
    inner = value.get("function") if isinstance(value.get("function"), dict) else value
    named = next((key for key, one in inner.items() if one == name), "")
    key = next((key for key, one in inner.items() if argument in json.dumps(one)), "")
    if not named or not key:
        shown = text.replace(name, "NAME")
        raise Unlearned(f"no known payload is a call that is written as {shown!r}")
    keys = list(inner)
    body: dict[str, Any] = {"name": "json-call"}
    if key != "arguments":
        body["arguments"] = key
    if named != "name":
        body["name_key"] = named
    if inner.get(keys[0]) in (0, 1, "0", "1"):
        body["index_key"] = keys[0]
    if '": ' in text:
        body["spaced"] = True
    if keys.index(key) < keys.index(named):
        body["arguments_first"] = True
    if "id" in inner:
        body["ids"] = True
    return body


def _named_unit(text: str, name: str, start: int, at: int, end: int) -> _Unit:
    """Return a call that says its name, a mark, and its arguments."""
    named = text.rfind(name, start, at)
    if named < 0:
        raise Unlearned("the name of a call stands behind its arguments")
    begin, mark = named, text[named + len(name) : at]
    body: dict[str, Any] = {"name": "named-call"}
    number = re.match(r"([^0-9\s<\[{]+)[0-9]+", mark)
    if text.endswith("functions.", start, named) and number is not None:
        begin = named - len("functions.")
        body |= {"prefix": "functions.", "number_mark": number[1]}
        mark = mark[number.end() :]
    else:
        found = re.search(r"kq7Wz8[0-9][A-Za-z]+", mark)
        if found is not None:
            body["id_mark"], mark = mark[: found.start()], mark[found.end() :]
            if not body["id_mark"].strip():
                raise Unlearned("no mark stands between the name of a call and its id")
    if not mark.strip():
        raise Unlearned("nothing but white space stands between the name of a call and its arguments")
    body["mark"] = mark
    return _Unit(begin, end, body)


def _closing(behind: str, frame: Frame) -> tuple[str, tuple[str, ...]]:
    """Return what closes a call, and what ends the turn where that is another string than elsewhere."""
    behind = behind.rstrip()
    for end in (frame.close.strip(), *frame.ends):
        if end and end in behind:
            return behind[: behind.find(end)], ()
    tags = [found[0] for found in _TAG.finditer(behind)]
    if frame.close.strip() and tags and re.fullmatch(r"<\|[^|]*\|>", tags[-1]):
        return behind[: len(behind) - len(tags[-1])], (tags[-1],)
    return behind, ()


def _several(before: str, closing: str, between: str) -> tuple[str, str, tuple[str, str] | None, str]:
    """Return opening and closing of one call, those of all, and what joins two."""
    close = head(closing, between)
    open_ = tail(before, between[len(close) :])
    joint = between[len(close) : len(between) - len(open_)]
    if not re.fullmatch(r"\s*[^\w\s]?\s*", joint):
        raise Unlearned(f"between two calls stands {between.strip()!r}, which no table can say")
    if not open_.strip():  # white space before each is of what joins them
        joint, open_ = joint + open_, ""
    if not close.strip():
        joint, close = close + joint, ""
    outer, last = before[: len(before) - len(open_)], closing[len(close) :]
    if not outer.strip() and not last.strip():
        return before, closing, None, joint
    if outer.strip() and last.strip():
        return open_, close, (outer, last.rstrip()), joint
    raise Unlearned(f"what stands around all calls has one end only: {(outer or last).strip()!r}")


def _text_joint(trials: Trials) -> str:
    """Return the white space between a text and a call."""
    trial = trials.of(TEXT_CALL)
    at = -1 if trial is None else trial.whole.rfind(TEXT)
    if trial is None or at < 0:
        return "\n"
    return space_before(trial.whole[at + len(TEXT) :])


def _tag_calls(trials: Trials, frame: Frame, thoughts: Thoughts) -> Calls:
    """Return how calls are written that are tags all through."""
    trial = trials.of(TWO_ARGUMENTS)
    if trial is None:
        raise Unlearned("the template shows no calls")
    region = _without_thought(trial.whole[_inside(trial, frame) :], thoughts)
    places, at = [], 0
    for word in (CALL, "glimfort", "yarrowby", "tarnish", "hobclaw"):
        found = region.find(word, at)
        if found < 0:
            raise Unlearned("a call does not say its name, then each argument with its key and its value")
        places.append((found, found + len(word)))
        at = found + len(word)
    (name, behind_name), (key, behind_key), (value, behind_value), (second, behind_second), (last, end) = places
    value_open = region[behind_key:value]
    if region[behind_second:last] != value_open or "<" not in region[behind_value:second]:
        shown = re.sub(CALL, "NAME", region[name:end])
        raise Unlearned(f"no known payload is a call that is written as {shown!r}")
    closing, ends = _closing(region[end:], frame)
    value_close = head(region[behind_value:second], closing)
    key_open = region[behind_value + len(value_close) : second]
    named = region[behind_name:key]
    if not named.endswith(key_open) or not value_close.strip():
        raise Unlearned("what stands around the arguments of a call differs from one to the next")
    before, rest = region[:name].lstrip(), closing[len(value_close) :]
    body = {"name": "tag-call", "name_close": named[: len(named) - len(key_open)], "key_open": key_open}
    body |= {"value_open": value_open, "value_close": value_close}
    two, text = trials.of(TWO_CALLS), ""
    if two is not None and OTHER in two.whole[two.after :]:
        text = _without_thought(two.whole[_inside(two, frame) :], thoughts)
    return _tagged(text, body, before, rest, Calls({}, "", "", None, "\n", _text_joint(trials), ends))


def _tagged(two: str, body: dict[str, Any], before: str, rest: str, known: Calls) -> Calls:
    """Return calls in tags with what stands around them: the tag of the name, of the call, and of all calls.

    `two`: an answer with two calls, empty where the template writes none. `known`: what is known already.
    """
    open_, close, group, joint = before, rest, None, known.joint
    if two:
        at = two.find("yarrowby") + len("yarrowby")
        between = two[at : two.find(OTHER, at)].removeprefix(body["value_close"])
        open_, close, group, joint = _several(before, rest, between)
    last = max(open_.rfind("<"), open_.rfind("["))
    if last > 0 and open_[:last].strip():
        body["name_open"], open_ = open_[last:], open_[:last]
        found = re.match(r"\s*<[^<>]*>", close)
        if found is not None and close[found.end() :].strip():
            body["end"], close = found[0], close[found.end() :]
    return replace(known, body=body, open=open_, close=close.rstrip(), group=group, joint=joint)


__all__ = ["Calls", "Frame", "Thoughts", "Unlearned", "calls_of", "frame_of", "thoughts_of"]
