"""Owns the error tree: what can go wrong, with a status and a code, a place and a remedy.

    TurnscriptError
    ├─ InvalidInput (ValueError)       the caller's data is wrong: where, expected, got          400
    │  ├─ InvalidRequest               an API body, at a JSON path
    │  ├─ InvalidTranscript            a transcript, at a line and column
    │  └─ InvalidConversation          items built by hand that contradict each other
    ├─ Unsupported                     valid, but the target cannot express it                   422
    │  └─ LossyConversion              `strict` was asked for and something would be lost
    └─ UnknownName (LookupError)       a format, API, profile, view or model that nobody registered   404

Not errors: what a model wrote badly (an issue of the response) and what a conversion dropped (a `Loss`).
To add one: subclass, set `status` and `code`, pass every field to `super().__init__` so that it stays picklable.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from turnscript.losses import Loss


class TurnscriptError(Exception):
    """Anything that turnscript raises on purpose. `status` is an HTTP status, `code` a stable word for programs."""

    status = 500
    code = "internal_error"


class InvalidInput(TurnscriptError, ValueError):
    """Data that cannot be what it claims to be.

    `path` is a JSON path (`$.messages[2].role`); `line` and `column` count from 1, columns in characters.
    `expected` and `got` are short phrases for people; empty where they do not apply.
    """

    status = 400
    code = "invalid_input"

    def __init__(
        self,
        message: str,
        *,
        path: str = "",
        line: int = 0,
        column: int = 0,
        expected: str = "",
        got: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.path = path
        self.line = line
        self.column = column
        self.expected = expected
        self.got = got

    @property
    def where(self) -> str:
        """The place in words: a JSON path, or a line and column, or nothing."""
        if self.path:
            return self.path
        return f"line {self.line}, column {self.column}" if self.line else ""

    def __str__(self) -> str:
        return f"{self.where}: {self.message}" if self.where else self.message

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.__dict__.copy())


class InvalidRequest(InvalidInput):
    """An API body that is not what its API takes."""

    code = "invalid_request"


class InvalidTranscript(InvalidInput):
    """A transcript that breaks the grammar of its format."""

    code = "invalid_transcript"


class InvalidConversation(InvalidInput):
    """Items built by hand that no transcript could hold, such as a tool call without a name."""

    code = "invalid_conversation"


class Unsupported(TurnscriptError):
    """The input is valid, but `target` has no way to say `feature`."""

    status = 422
    code = "unsupported"

    def __init__(self, feature: str, target: str, message: str = "") -> None:
        super().__init__(feature, target, message)
        self.feature = feature
        self.target = target
        self.message = message or f"{target} cannot carry {feature}"

    def __str__(self) -> str:
        return self.message


class LossyConversion(Unsupported):
    """`strict` was asked for and the target cannot carry everything: `losses` lists each field."""

    code = "lossy_conversion"

    def __init__(self, losses: Sequence[Loss], target: str) -> None:
        count = len(losses)
        lines = "".join(f"\n  {loss}" for loss in losses)
        what = "1 thing" if count == 1 else f"{count} things"
        super().__init__("the whole request", target, f"{what} would be lost in {target}:{lines}")
        self.losses = list(losses)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.losses, self.target)


class UpstreamError(TurnscriptError):
    """A backend, or another server, failed or answered what cannot be read.

    `upstream` is its HTTP status if it gave one, `body` the beginning of what it said, `retryable` whether trying again
    may help.
    """

    status = 502
    code = "upstream_error"

    def __init__(self, message: str, *, upstream: int | None = None, body: str = "", retryable: bool = False) -> None:
        super().__init__(message, upstream, body, retryable)
        self.message = message
        self.upstream = upstream
        self.body = body
        self.retryable = retryable

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_upstream, (type(self), self.message, self.upstream, self.body, self.retryable)


class UpstreamTimeout(UpstreamError):
    """A backend took too long."""

    status = 504
    code = "upstream_timeout"


class UnknownName(TurnscriptError, LookupError):
    """A name that nobody registered; the message offers the nearest ones."""

    status = 404
    code = "unknown_name"

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        self.kind = kind
        self.name = name
        self.known = sorted(known)
        super().__init__(kind, name, self.known)

    def __str__(self) -> str:
        close = difflib.get_close_matches(self.name, self.known, n=3, cutoff=0.4)
        hint = f"did you mean {' or '.join(map(repr, close))}?" if close else f"known: {', '.join(self.known)}"
        return f"unknown {self.kind} {self.name!r}; {hint}"


def _rebuild(cls: type[InvalidInput], fields: dict[str, object]) -> InvalidInput:
    error = cls(str(fields["message"]))
    error.__dict__.update(fields)
    return error


def _rebuild_upstream(
    cls: type[UpstreamError], message: str, upstream: int | None, body: str, retryable: bool
) -> UpstreamError:
    return cls(message, upstream=upstream, body=body, retryable=retryable)
