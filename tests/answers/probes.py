"""Owns probes: a stream that a server could send and should not, and what the SDKs of each language make of it.

Each probe of spec apis A4 stands in `tests/answers/test_*_probes.py` with the rule of ours that it is the reason for;
there every rule is held on the streams of all answers, and must forbid its probe. Python's way first, then that of
JavaScript, where it is another one:

| API | what the SDKs do | rule, or the test |
|--|--|--|
| Chat | join a role, id or name that comes twice / keep the last one | `each_is_sent_once` |
| Chat | a call without a type has none / is refused; an answer without a role has none / is refused | the same |
| Chat | a call of free text is an error / is understood | `calls_are_functions` |
| Chat | choice 1 first is an error / is understood; call 1 first is an error | `numbers_from_0` |
| Chat | counts before the last chunk are lost / are kept unless a null follows | `usage_comes_last` |
| Chat | a nested `error` is raised; a flat one under a name means nothing / is raised | `errors_are_nested` |
| Chat | no `[DONE]` means nothing; no finish reason means nothing / is refused | `it_ends` |
| Chat | comments and names mean nothing | `test_signs_of_life_are_comments` |
| Chat | broken JSON is an error, of the SDK's own in JavaScript only | `all_is_json` |
| Responses | no `response.created` first is refused | `it_begins` |
| Responses | a piece of what was not announced, or without its number, is refused | `all_is_announced` |
| Responses | another id of an item that is done, or at the end, is refused | `ids_stay` |
| Responses | another id of an item in between means nothing / is refused | `all_is_announced` |
| Responses | no `sequence_number`, no `logprobs` means nothing | `numbers_count`, `texts_have_logprobs` |
| Responses | an item that is not done is refused, unless the end has it | `what_is_announced_is_done` |
| Responses | the output of the end is the output, even if it is empty | `the_end_has_all` |
| Responses | no end is refused / passes; what follows the end means nothing / is added | `it_ends` |
| Responses | a nested error is raised; a flat one is an error of another kind / is raised | `it_ends`, `it_begins` |
| Responses | `response.incomplete`, `response.failed` | `LIMITS`, `check_failure` in `test_agreement` |
| Responses | no names mean nothing; an unknown event means nothing / is refused | `names_are_types` |
| Messages | events without names are dropped, errors too | `names_are_types` |
| Messages | no `message_start`: nothing was said; a second one means nothing / is refused | `it_begins` |
| Messages | a gap in the numbers is an error / loses the text; blocks in turns are fine | `blocks_come_in_order` |
| Messages | a call without input is understood, without pieces it is `{}` | `inputs_are_objects` |
| Messages | half an object is what can be read of it; of two the first / an error; no JSON is an error | the same |
| Messages | large numbers survive / are rounded | `check_stream` in `test_agreement` (spelled as told) |
| Messages | of two signatures the last one counts; a text inside a thought is lost | `blocks_are_of_one_kind` |
| Messages | unknown events, blocks and pieces mean nothing | none: they do no harm |
| Messages | no `message_stop` means nothing / is refused; no `message_delta`: no reason | `it_ends` |
| Messages | `event: error` is raised, with status 200 / without any | `test_an_error_in_a_stream_has_...` |
| all | the class of each status; what is asked once more, and when not | `test_http_probes` |

The same on random answers: `check_grammar` in `tests/unit/test_openai_responses_streams.py`, the order of frames in
`tests/unit/test_anthropic_messages_streams.py`, and the SDKs' own view in `test_sdk_laws`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from msgspec import Struct

from tests.answers.corpus import WHOLE
from tests.answers.verdict import Verdict
from tests.answers.wanted import ending
from tests.answers.wires import stream
from turnscript.core.sse import SseReader, frame

Frame = tuple[str, Any]
"""An event of a stream: its name, and its payload (a text where that is no object)."""
Edit = Callable[[dict[str, Any]], list[Frame] | None]
"""Changes a payload, or gives what stands in its place."""


class Raises(Struct, frozen=True):
    """The SDK raises an error of that class, with those words in its message."""

    name: str
    words: str = ""


Rule = Callable[[list[Frame], bool], bool]
"""Whether a stream keeps it. The flag: the answer is a good one, and not an error."""


class Probe(Struct, frozen=True, kw_only=True):
    """A stream that is not as it should be. `rule`: which rule of ours forbids it; None: it does no harm.

    `look`: what of the accumulated answer shows what became of it. `javascript`: where that is not as in Python.
    """

    name: str
    data: bytes
    look: Callable[[Any], Any]
    python: Any
    javascript: Any = None
    rule: Rule | None = None

    def expected(self, language: str) -> Any:
        """What the SDK of a language makes of it."""
        return self.python if language == "python" or self.javascript is None else self.javascript

    def seen(self, verdict: Verdict, expected: Any) -> Any:
        """What an SDK made of it, in the words of what is expected."""
        if verdict.error is None:
            return self.look(verdict.result)
        words = expected.words if isinstance(expected, Raises) and expected.words in verdict.error.message else ""
        return Raises(verdict.error.name, words)


# Streams.


def frames(data: bytes) -> list[Frame]:
    """A stream taken apart."""
    reader = SseReader()
    return [(name, _read(text)) for name, text in reader.feed(data) + reader.close()]


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def sent(told: Iterable[Frame]) -> bytes:
    """A stream put together."""
    return b"".join(
        frame(payload if isinstance(payload, str) else json.dumps(payload, ensure_ascii=False), name)
        for name, payload in told
    )


def edited(told: Iterable[Frame], edit: Edit) -> bytes:
    """A stream in which each payload was changed."""
    out: list[Frame] = []
    for name, payload in frames(sent(told)):
        instead = edit(payload)
        out += [(name, payload)] if instead is None else instead
    return sent(out)


def without(told: Iterable[Frame], *types: str) -> bytes:
    """A stream without the events of those types."""
    return edited(told, lambda payload: [] if payload["type"] in types else None)


# Rules.


def broken(wire: str, rule: Rule) -> list[str]:
    """The names of the answers whose streams break a rule."""
    return [answer.name for answer in WHOLE if not rule(frames(stream(wire, answer)), ending(wire, answer) is not None)]
