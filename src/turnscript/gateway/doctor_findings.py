"""Owns what a check of a model server found: a state, what was seen, what to do about it, and figures."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from turnscript.backends.shared.json_reader import UNSAID
from turnscript.core.error_kinds import fault_of
from turnscript.core.errors import BackendDown, TurnscriptError, UpstreamError, UpstreamTimeout

State = Literal["ok", "warning", "fault"]
Figure = bool | int | float | str | list[str] | None
STATES: tuple[State, ...] = ("ok", "warning", "fault")
_NO_REASON = "use a version of the server that says `finish_reason`; without it, nobody can tell an answer that was cut"
LOG = "look into the log of the model server: it says why"


class Check(Struct, frozen=True, kw_only=True):
    """What one check found. `remedy` is empty only where nothing is to be done."""

    name: str
    state: State
    detail: str
    remedy: str = ""
    figures: dict[str, Figure] = {}


class Findings:
    """Collects what a check finds, in sentences; the worst ones are told first."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._said: list[tuple[State, str]] = []
        self._remedies: list[str] = []
        self.figures: dict[str, Figure] = {}

    def say(self, detail: str) -> None:
        """Something that is as it should be, or that one may want to know."""
        self._said.append(("ok", detail))

    def warn(self, detail: str, remedy: str) -> None:
        """Something that the gateway can do without."""
        self._add("warning", detail, remedy)

    def fault(self, detail: str, remedy: str) -> None:
        """Something that makes answers wrong, late or impossible."""
        self._add("fault", detail, remedy)

    def failed(self, error: TurnscriptError, what: str = "") -> None:
        """A request that failed and should not have."""
        self.fault(f"{what}: {error}" if what else str(error), remedy_for(error))

    def _add(self, state: State, detail: str, remedy: str) -> None:
        self._said.append((state, detail))
        if remedy not in self._remedies:
            self._remedies.append(remedy)

    @property
    def check(self) -> Check:
        """All of it."""
        ranked = sorted(self._said, key=lambda one: -STATES.index(one[0]))
        return Check(
            name=self._name,
            state=ranked[0][0],
            detail="; ".join(detail for _, detail in ranked),
            remedy="; ".join(self._remedies),
            figures=self.figures,
        )


def remedy_for(error: TurnscriptError) -> str:
    """What to do where a request has failed."""
    if UNSAID in str(error):
        return _NO_REASON
    if fault_of(error).kind == "overflow":
        return "give the model server a longer context"
    if isinstance(error, BackendDown):
        return "start the model server, or correct its URL"
    if isinstance(error, UpstreamTimeout):
        return "wait until the model server has loaded its model and is not busy with others, then run this again"
    if not isinstance(error, UpstreamError):
        return "correct the configuration"
    return _BY_STATUS.get(error.upstream or 0, LOG)


GIVE_KEY = (
    "give the key of this server: `api_key_env` or `api_key_file` of the model in the configuration, or with --backend "
    "the variable TURNSCRIPT_MODELS_DEFAULT_API_KEY; what a proxy before it wants is in `headers_env`, or in "
    "TURNSCRIPT_MODELS_DEFAULT_HEADERS"
)
_PATH = "correct the path of the server's URL, or say which kind of server it is: `kind` in the configuration"
_MEMBERS = (
    "say which kind of server it is (`kind` in the configuration), and what it calls its model (`upstream_model`)"
)
_BUSY = "wait until the model server is ready and not busy, then run this again"
_BY_STATUS = {
    400: _MEMBERS,
    401: GIVE_KEY,
    403: GIVE_KEY,
    404: _PATH,
    405: _PATH,
    422: _MEMBERS,
    429: _BUSY,
    501: _PATH,
    503: _BUSY,
}
