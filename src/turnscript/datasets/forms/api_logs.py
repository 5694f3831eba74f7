"""Requests of every chat API, and logs of requests with their responses: the form has the API's name, or `api-logs`.

    {"request": {"model": "m", "messages": [...]}, "response": {"choices": [...]}}
    {"model": "m", "input": [...], "output": [...]}

Spec: that of each API; https://platform.openai.com/docs/guides/batch for `body`.

Quirks: request and response stand under one of the pairs of names below, as objects, as strings of JSON, or, the
response, as the stream that was sent; or all members stand side by side in one object. Several choices are an example
each. An error is no answer: such a row is refused. A request that goes on with a conversation that the server keeps is
refused too, because the beginning is not in it. In a request without a response the last message is what was said. An
answer that did not come to its end, as at a limit of tokens, is an unfinished text: its end is not trained. One that
may have been cut off in a call is refused. A file of several APIs, as a gateway logs them, is `api-logs`: each row is
of the API that fits it best, or that its `url`, `path`, `endpoint` or `route` names; one that two fit alike is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from turnscript.apis.api import Api
from turnscript.convert.recording import api_of
from turnscript.convert.registry import apis, get_api, is_stream
from turnscript.core.conversation import Assistant, Conversation, Item, Request, Response, Text, Thinking
from turnscript.core.errors import InvalidInput, UpstreamError
from turnscript.core.events import fold
from turnscript.core.finish_reasons import is_cut
from turnscript.core.json_text import Json
from turnscript.core.unread_stream import BEHIND
from turnscript.datasets.form import Example, Form
from turnscript.datasets.members import (
    CONVERSATIONAL,
    Members,
    check_unread,
    embedded,
    first_byte,
    is_null,
    list_of,
    object_of,
    record,
    spelled,
    text,
)
from turnscript.datasets.members import record as members_of_row
from turnscript.datasets.problems import BadRow, Code
from turnscript.datasets.row_checks import check_items

_PAIRS = (
    ("request", "response"),
    ("request_body", "response_body"),
    ("inputs", "outputs"),
    ("input", "output"),
    ("body", "response"),
)
_ANSWERS = ("output", "choices", "response")
"""Members of an object that holds request and response side by side: where its answer stands."""
_OF_RESPONSES = frozenset({"output", "choices", "usage", "status", "object", "error", "incomplete_details", "id"})
_SETTINGS = frozenset({"audio", "options", "reasoning", "text", "thinking"})
_UNREAD = CONVERSATIONAL - _SETTINGS | {"previous_response_id"}
_CAPITAL = re.compile("(?<=[a-z])[A-Z]")
"""Matches where a word begins in a member that is written as `functionCall` is."""
_EMPTY = (b"null", b'""', b"[]", b"{}")

_LOOKED_AT = frozenset({"messages", "contents", "input", "prompt", "request", "request_body", "inputs", "body"})


class _Log(NamedTuple):
    """A request and what answered it. `at`: the member that each is, empty where both are the row itself."""

    request: Members
    response: Json | None
    request_at: str = ""
    response_at: str = ""


class _Claims:
    """What every API claims of a record. The forms of all APIs are asked about one, so the last answer is kept."""

    def __init__(self) -> None:
        self._last: tuple[Mapping[str, Any], tuple[_Log, dict[str, int]] | None] | None = None

    def of(self, record: Mapping[str, Any]) -> tuple[_Log, dict[str, int]] | None:
        """Return the log that a record is, and how surely each API could have answered; None if it is none."""
        last = self._last
        if last is None or last[0] is not record:
            last = self._last = record, self._look(record)
        return last[1]

    def _look(self, record: Mapping[str, Any]) -> tuple[_Log, dict[str, int]] | None:
        try:
            log = _log_of(members_of_row(json.dumps(record).encode()))
            return log, {api.name: api.claims(log.request) for api in map(get_api, apis()) if _can_answer(api, log)}
        except (InvalidInput, TypeError, ValueError, RecursionError):
            return None


_CLAIMS = _Claims()


class ApiLog(Form):
    """Rows that are requests of one API, maybe with their responses."""

    members = _LOOKED_AT

    def __init__(self, api: Api) -> None:
        self.api = api
        self.name = api.name  # type: ignore[misc]  # one class, as many forms as there are APIs
        self.title = f"Requests of {api.title}, with their responses if they were logged"  # type: ignore[misc]
        self.fields = "request, response (or the members of both side by side)"  # type: ignore[misc]

    def score(self, record: Mapping[str, Any]) -> tuple[float, str]:
        """Look for a request that this API claims before the others; a response makes it surer."""
        if record.keys().isdisjoint(_LOOKED_AT):
            return 0, ""
        found = _CLAIMS.of(record)
        if found is None:
            return 0, ""
        log, claims = found
        best = max(claims.values(), default=-1)
        if claims.get(self.name, -2) < best or not self._sure(log) or not (best or log.response is not None):
            return 0, ""
        if log.response is not None:
            where = (
                f"{log.request_at} and {log.response_at}" if log.response_at else "request and response in one object"
            )
            return 1, f"{where}, of {self.api.endpoint}"
        named = "model" in log.request
        score = (0.95 if named else 0.85) if best > 1 else 0.5 if named else 0.0
        return score, f"a request of {self.api.endpoint}" if score else ""

    def _sure(self, log: _Log) -> bool:
        """Return whether what it claims can be no text of another form."""
        text_like = [key for key in ("input", "prompt") if first_byte(log.request.get(key, _NULL)) == b'"']
        return "messages" in log.request or not text_like or (log.response is not None and "model" in log.request)

    def read(self, data: bytes) -> list[Example]:
        """Return the conversation, once for each answer that it got."""
        log = _log_of(record(data))
        request = self._request(log)
        if log.response is None:
            for item in request.conversation.items:
                item.open = False
            check_items(request.conversation.items)
            return [Example(request)]
        answers = list(self._responses(log))
        several = len(answers) > 1
        return [
            Example(_answered(request, answer, log), label=f"choice {index + 1}" if several else "")
            for index, answer in enumerate(answers)
        ]

    def _request(self, log: _Log) -> Request:
        prefix = f"$.{log.request_at}" if log.request_at else "$"
        try:
            request = self.api.parse_request(bytes(spelled(log.request)))
        except InvalidInput as error:
            raise _moved(error, prefix) from None
        for key in sorted(key for key in request.extra if _CAPITAL.sub(r"_\g<0>", key).lower() in _UNREAD):
            if bytes(request.extra[key]) not in _EMPTY:
                message = f"{self.api.endpoint} does not read this as a part of the conversation in the row"
                raise BadRow(Code.FORM, message, path=f"{prefix}.{key}")
        for item in request.conversation.items:
            item.at = prefix + item.at[1:] if item.at.startswith("$") else item.at
        return request

    def _responses(self, log: _Log) -> Iterator[Response]:
        assert log.response is not None
        at = f"$.{log.response_at}" if log.response_at else "$"
        for index, body in enumerate(_bodies(log.response, at)):
            try:
                response = self._response(body, at)
            except UpstreamError as error:
                raise BadRow(Code.SHAPE, f"the response is an error, or not whole: {error}", path=at) from None
            except InvalidInput as error:
                raise _moved(error, at) from None
            cut = is_cut(response.finish_reason)
            broken = [issue for issue in response.issues if issue.kind not in _HARMLESS]
            if broken:
                code = Code.UNFINISHED if cut else Code.SHAPE
                raise BadRow(code, f"the response is broken: {broken[0].detail}", path=at)
            for item in response.items:
                where = item.at.replace("choices[0]", f"choices[{index}]", 1)
                item.at = at + where[1:] if where.startswith("$") else at
            if cut and response.items:
                _leave_open(response)
            yield response

    def _response(self, body: Json, at: str) -> Response:
        if first_byte(body) != b'"':
            return self.api.parse_response(bytes(body))
        parser = self.api.stream_parser()
        return fold([*parser.feed(text(body, at).encode()), *parser.close()])


def _can_answer(api: Api, log: _Log) -> bool:
    """Return whether the response may be one of the API: requests without signs of their own are told apart by it."""
    if log.response is None:
        return True
    if first_byte(log.response) == b'"':
        stream = text(log.response, "$")
        try:
            return not is_stream(stream) or api_of(stream).name == api.name
        except InvalidInput:  # of nobody: the request decides
            return True
    try:
        return bool(api.parse_response(bytes(log.response)).items)
    except (InvalidInput, UpstreamError):
        return False


_NULL = Json(b"null")
_HARMLESS = frozenset(
    {
        "no_finish_reason",
        "missing_reason",
        "second_start",
        "changed_id",
        "missing_arguments",
        "invalid_count",
        "missing_count",
        BEHIND,
    }
)
"""Issues of a response that leave what the model wrote as it is."""


def _log_of(row: Members) -> _Log:
    for first, second in _PAIRS:
        request = _object(row.get(first))
        if request is not None:
            check_unread(row, (first, second), "of logs")
            request, body = _unwrapped(request)
            response = row.get(second)
            if response is None or is_null(response):
                return _Log(request, None, f"{first}{body}")
            inner, body_of_response = _unwrapped_response(response)
            return _Log(request, inner, f"{first}{body}", f"{second}{body_of_response}")
    return _side_by_side(row)


def _side_by_side(row: Members) -> _Log:
    found = next((key for key in _ANSWERS if first_byte(row.get(key, _NULL)) in (b"[", b"{")), None)
    if found is None:
        return _Log(row, None)
    for other in _ANSWERS:
        if other != found and bytes(row.get(other, _NULL)) not in _EMPTY:
            raise BadRow(Code.FORM, f"stands beside {found}, and only one of them can be the answer", path=f"$.{other}")
    if found == "response":
        inner, body = _unwrapped_response(row[found])
        return _Log({key: value for key, value in row.items() if key != found}, inner, "", f"{found}{body}")
    request = {key: value for key, value in row.items() if key not in _OF_RESPONSES}
    response = {key: value for key, value in row.items() if key in _OF_RESPONSES or key == "model"}
    return _Log(request, spelled(response))


def _object(value: Json | None) -> Members | None:
    """Return the members of an object, or of a string that holds one."""
    if value is None:
        return None
    if first_byte(value) == b'"':
        try:
            value = embedded(value, "$")
        except BadRow:
            return None
    return object_of(value, "$") if first_byte(value) == b"{" else None


def _unwrapped(members: Members) -> tuple[Members, str]:
    """Return a body out of the record of a call by HTTP."""
    inner = _object(members.get("body"))
    return (inner, ".body") if inner is not None else (members, "")


def _unwrapped_response(value: Json) -> tuple[Json, str]:
    """Return a response as its API writes it: out of a record of HTTP, with choices around a bare message."""
    members = _object(value)
    if members is not None:
        members, body = _unwrapped(members)
        if "role" in members and "message" not in members and "content" in members and "type" not in members:
            return _choices([spelled({"message": spelled(members)})]), body
        if "message" in members and first_byte(members["message"]) == b"{" and "choices" not in members:
            return _choices([spelled({"message": members["message"]})]), body
        return spelled(members), body
    if first_byte(value) == b"[":
        return _choices(list_of(value, "$")), ""
    return value, ""


def _choices(entries: list[Json]) -> Json:
    return Json(b'{"choices":[' + b",".join(map(bytes, entries)) + b"]}")


def _bodies(response: Json, at: str) -> Iterator[Json]:
    """Give the response once for each of its choices."""
    members = object_of(response, at) if first_byte(response) == b"{" else {}
    value = members.get("choices", _NULL)
    choices = list_of(value, f"{at}.choices") if first_byte(value) == b"[" else []
    if len(choices) < 2:
        yield response
        return
    for index, choice in enumerate(choices):
        entry = object_of(choice, f"{at}.choices[{index}]") | {"index": Json(b"0")}
        yield spelled(members | {"choices": Json(b"[" + bytes(spelled(entry)) + b"]")})


def _moved(error: InvalidInput, prefix: str) -> InvalidInput:
    if error.path.startswith("$"):
        error.path = prefix + error.path[1:]
    return error


def _answered(request: Request, response: Response, log: _Log) -> Request:
    """Return the request with its answer behind it, which is one text with a text that it goes on with."""
    if not response.items:
        raise BadRow(Code.EMPTY, "the response says nothing", path=f"$.{log.response_at}" if log.response_at else "$")
    before, after = list(request.conversation.items), list(response.items)
    if before and before[-1].open:
        before[-1:] = _continued(before[-1], after)
    conversation = Conversation(items=[*before, *after], tools=request.conversation.tools)
    check_items(conversation.items)
    return Request(conversation=conversation, settings=request.settings, origin=request.origin, words=request.words)


def _leave_open(response: Response) -> None:
    """Take the end off an answer that was cut. A last text that is empty says that a thought was cut."""
    items = response.items
    last = items[-1]
    if len(items) > 1 and isinstance(last, Assistant) and not any(getattr(one, "text", True) for one in last.content):
        items.pop()
        last = items[-1]
    if not isinstance(last, Assistant | Thinking):
        message = f"the answer was cut off ({response.finish_reason}), and its last item may not be whole; leave it out"
        raise BadRow(Code.UNFINISHED, message, path=last.at)
    last.open = True


def _continued(item: Item, after: list[Item]) -> list[Item]:
    """Return the text that the request began, whole; takes from the answer what belongs to it."""
    first = after[0]
    if isinstance(item, Assistant) and isinstance(first, Assistant) and item.content and first.content:
        begun, rest = item.content[-1], first.content[0]
        if isinstance(begun, Text) and isinstance(rest, Text):
            joined = Text(text=begun.text + rest.text)
            whole = Assistant(content=[*item.content[:-1], joined, *first.content[1:]], open=first.open, at=item.at)
            del after[0]
            return [whole]
    return [Assistant(content=item.content, at=item.at)] if isinstance(item, Assistant) else [item]


class ApiLogs(Form):
    """Rows that are requests of several APIs, each told by itself."""

    name = "api-logs"
    title = "Requests of several chat APIs, with their responses: each row is told by itself"
    fields = "request, response (or the members of both side by side), of any API"
    members = _LOOKED_AT
    covers = frozenset(apis())

    def __init__(self, each: Sequence[ApiLog]) -> None:
        self._each = each

    def score(self, record: Mapping[str, Any]) -> tuple[float, str]:
        """A little less than the form of the API that the row is of: a file of one API is that one's."""
        found, score, why = self._told(record)
        if len(found) > 1:
            return 0.3, f"a request that {' and '.join(form.name for form in found)} could be meant by"
        return max(score - _LESS, 0), why if score > _LESS else ""

    def read(self, data: bytes) -> list[Example]:
        """The conversation, as the API of the row says it."""
        members = record(data)
        try:
            decoded = msgspec.json.decode(spelled(members))
        except (msgspec.DecodeError, RecursionError):
            raise BadRow(
                Code.JSON, "it is nested too deep, or holds a number that nothing can read", path="$"
            ) from None
        found, _, _ = self._told(decoded)
        if not found:
            raise BadRow(Code.FORM, "it is no request of any chat API", path="$")
        if len(found) > 1:
            names = " or ".join(f"--from {form.name}" for form in found)
            message = f"it could be of either of two APIs; say which in a member `endpoint`, or for all rows ({names})"
            raise BadRow(Code.FORM, message, path="$")
        return found[0].read(data)

    def _told(self, record: Mapping[str, Any]) -> tuple[list[ApiLog], float, str]:
        """The forms that fit a record best, how surely, and why; none where none fits. A place that it names decides:
        a bare request of Messages could be one of Chat."""
        scores = [(form, *form.score(record)) for form in self._each]
        best = max(score for _, score, _ in scores)
        found = [(form, why) for form, score, why in scores if score == best >= _SURE]
        places = [str(record.get(key, "")).partition("?")[0].rstrip("/") for key in _WHERE]
        named = [form for form in self._each if any(place.endswith(form.api.endpoint) for place in places)]
        is_log = not record.keys().isdisjoint(_LOOKED_AT) and _CLAIMS.of(record) is not None
        if not named or not is_log or named[0] in [form for form, _ in found]:
            found = [(form, why) for form, why in found if form in named] or found
            return [form for form, _ in found], best if found else 0, found[0][1] if found else ""
        return named, _NAMED, f"a request that names {named[0].api.endpoint}"


_WHERE = ("url", "path", "endpoint", "route")
"""Members of a row in which logs say where a request went."""
_LESS, _SURE, _NAMED = 0.05, 0.5, 0.95
_EACH = tuple(ApiLog(get_api(name)) for name in apis())
FORMS = (*_EACH, ApiLogs(_EACH))
