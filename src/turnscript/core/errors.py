"""Owns the error tree: what can go wrong, with a status and a code, a place and a remedy.

    TurnscriptError
    ├─ InvalidInput (ValueError)       the caller's data is wrong: where, expected, got          400
    │  ├─ InvalidRequest               an API body, at a JSON path
    │  ├─ InvalidTranscript            a transcript, at a line and column
    │  └─ InvalidConversation          items built by hand that contradict each other
    ├─ Unsupported                     valid, but the target cannot express it                   422
    │  └─ LossyConversion              `strict` was asked for and something would be lost
    ├─ UnknownName (LookupError)       a format, API, profile, view or model that nobody registered   404
    ├─ ContextOverflow                 the prompt, or it and the answer, do not fit the model    400
    ├─ Unauthorized                    nobody knows who asks                                     401
    ├─ Forbidden                       it is known who asks, and that may not be had             403
    ├─ NotFound                        a model, a stored response, ... that is not there         404
    ├─ Conflict                        it cannot be done now, because of what else happens       409
    ├─ TooLarge                        the body is larger than a server reads                    413
    ├─ RateLimited                     the client asked too often: `retry_after`                 429
    ├─ Overloaded                      the server has no room for anybody: `retry_after`         503
    ├─ Timeout                         it took longer than it may                                504
    └─ UpstreamError                   a backend failed, or says what cannot be read             502
       ├─ UpstreamTimeout (Timeout)    it took too long                                          504
       └─ BackendDown                  it cannot be reached at all                               502

A status is that of most APIs: an API says each kind of failure with its own status, words and headers.
Not errors: what a model wrote badly (an issue of the response) and what a conversion dropped (a `Loss`).
To add one: subclass, set `status` and `code`, pass every field to `super().__init__` so that it stays picklable.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from turnscript.core.losses import Loss


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
    """What a program has put together wrongly, such as a tool call without a name, or a content that is no list."""

    code = "invalid_conversation"


class Unsupported(TurnscriptError):
    """The input is valid, but `target` has no way to say `feature`. `path`: where it was asked for."""

    status = 422
    code = "unsupported"

    def __init__(self, feature: str, target: str, message: str = "", path: str = "") -> None:
        super().__init__(feature, target, message, path)
        self.feature = feature
        self.target = target
        self.message: str = message or f"{target} cannot carry {feature}"
        self.path = path

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class LossyConversion(Unsupported):
    """`strict` was asked for and the target cannot carry everything: `losses` lists each field."""

    code = "lossy_conversion"

    def __init__(self, losses: Sequence[Loss], target: str) -> None:
        count = len(losses)
        lines = "".join(f"\n  {loss}" for loss in losses)
        what = "1 thing" if count == 1 else f"{count} things"
        super().__init__("the whole request", target, f"{what} would be lost in {target}:{lines}")
        self.losses: list[Loss] = list(losses)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.losses, self.target)


_FEW = 5
"""So many names can be listed as shortly as the nearest ones."""


class UnknownName(TurnscriptError, LookupError):
    """A name that nobody registered, or what is no name; the message offers the nearest ones."""

    status = 404
    code = "unknown_name"

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        self.kind = kind
        self.name = name
        self.known: list[str] = sorted(known)
        super().__init__(kind, name, self.known)

    def __str__(self) -> str:
        known = f"known: {', '.join(self.known)}" if self.known else "there is none"
        wrong, meant = _no_name(self.name, self.known)
        if wrong:
            return f"unknown {self.kind}: expected a str, got {wrong}; {f'write {meant!r}' if meant else known}"
        # Of a few names, all are shown rather than one that is hardly like it.
        cutoff = 0.6 if len(self.known) <= _FEW else 0.4
        close = difflib.get_close_matches(self.name, self.known, n=3, cutoff=cutoff)
        hint = f"did you mean {' or '.join(map(repr, close))}?" if close else known
        return f"unknown {self.kind} {self.name!r}; {hint}"


class ContextOverflow(TurnscriptError):
    """A prompt of `asked` tokens does not fit a model of `limit`, or not with `output` more tokens for the answer."""

    status = 400
    code = "context_length_exceeded"

    def __init__(self, asked: int, limit: int, output: int = 0) -> None:
        super().__init__(asked, limit, output)
        self.asked = asked
        self.limit = limit
        self.output = output

    def __str__(self) -> str:
        if self.output:
            return f"{self.asked} tokens and {self.output} for the answer do not fit a context of {self.limit} tokens"
        return f"{self.asked} tokens do not fit a context of {self.limit} tokens"


class Unauthorized(TurnscriptError):
    """Nobody knows who asks: the key is missing or wrong."""

    status = 401
    code = "unauthorized"


class Forbidden(TurnscriptError):
    """It is known who asks, and may not have that."""

    status = 403
    code = "forbidden"


class NotFound(TurnscriptError, LookupError):
    """A `kind` of thing (`model`, `response`, ...) called `name` that is not there. `path`: where it was asked for.

    Other than UnknownName it lists no other names: they may be none of the client's business.
    """

    status = 404
    code = "not_found"

    def __init__(self, kind: str, name: str, path: str = "") -> None:
        super().__init__(kind, name, path)
        self.kind = kind
        self.name = name
        self.path = path

    def __str__(self) -> str:
        return f"the {self.kind} {self.name!r} does not exist, or you do not have access to it"


class Conflict(TurnscriptError):
    """It cannot be done, because of something else that happened or is going on."""

    status = 409
    code = "conflict"


class TooLarge(TurnscriptError):
    """A body of more than `limit` bytes; of `size`, where that is known. `what`: all that is too large together."""

    status = 413
    code = "too_large"

    def __init__(self, limit: int, size: int | None = None, what: str = "the request") -> None:
        super().__init__(limit, size, what)
        self.limit = limit
        self.size = size
        self.what = what

    def __str__(self) -> str:
        what = self.what if self.size is None else f"{self.what} of {self.size} bytes"
        return f"{what} is larger than {self.limit} bytes, which is the most that is read"


class _Later(TurnscriptError):
    """Try again later: in `retry_after` seconds, if that is known."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message, retry_after)
        self.message = message
        self.retry_after = retry_after

    def __str__(self) -> str:
        return self.message


class RateLimited(_Later):
    """The client asked too often, or for too many tokens."""

    status = 429
    code = "rate_limited"


class Overloaded(_Later):
    """The server has no room for anybody: its queue is full."""

    status = 503
    code = "overloaded"


class Timeout(TurnscriptError):
    """It took longer than it may."""

    status = 504
    code = "timeout"


class UpstreamError(TurnscriptError):
    """A backend, or another server, failed or answered what cannot be read.

    `upstream` is its HTTP status if it gave one, `body` the beginning of what it said, `retryable` whether trying again
    may help, `retry_after` the seconds that it asked to wait, `headers` what the head of its answer said.
    """

    status = 502
    code = "upstream_error"

    def __init__(
        self,
        message: str,
        *,
        upstream: int | None = None,
        body: str = "",
        retryable: bool = False,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message, upstream, body, retryable, retry_after)
        self.message = message
        self.upstream = upstream
        self.body = body
        self.retryable = retryable
        self.retry_after = retry_after
        self.headers: Mapping[str, str] = {}

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[object, ...]:
        return _restored, (type(self), self.args, self.__dict__.copy())


class UpstreamTimeout(UpstreamError, Timeout):
    """A backend took too long."""

    status = 504
    code = "upstream_timeout"


class BackendDown(UpstreamError):
    """A backend cannot be reached at all. It may come back."""

    code = "backend_down"

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message, retryable=True, retry_after=retry_after)


def type_of(value: object) -> str:
    """What a message calls something that is of the wrong type."""
    return "None" if value is None else type(value).__name__


def half_a_pair(error: UnicodeEncodeError, what: str, path: str = "") -> InvalidConversation:
    """The error for a text that UTF-8 cannot hold. `what`: whose text it is; `path`: where, if that is known."""
    message = f"{what} holds half of a surrogate pair, which UTF-8 cannot carry"
    return InvalidConversation(message, path=path, got=ascii(error.object[error.start : error.end]))


def _no_name(given: object, known: Sequence[str]) -> tuple[str, str]:
    """The type of what is no name, and the name that may be meant: a path as text, that of a format or API."""
    if isinstance(given, str):
        return "", ""
    own = os.fspath(given) if isinstance(given, os.PathLike) else getattr(given, "name", "")
    return type_of(given), own if own in known or isinstance(given, os.PathLike) else ""


def _rebuild(cls: type[InvalidInput], fields: dict[str, object]) -> InvalidInput:
    error = cls(str(fields["message"]))
    error.__dict__.update(fields)
    return error


def _restored(cls: type[UpstreamError], args: tuple[object, ...], fields: dict[str, object]) -> UpstreamError:
    error = cls.__new__(cls, *args)
    error.__dict__.update(fields)
    return error
