"""Owns reports: all that is to be said about an answer, kept for a while for whoever asked for it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from turnscript.conversation import Issue
from turnscript.errors import NotFound
from turnscript.gateway.checks import CallFinding
from turnscript.losses import Loss

PATH = "/turnscript/reports/"
_KEPT = 2000


class Reported(Struct):
    """What is known of one answer. No text of the conversation is in it, only places and sentences."""

    caller: str
    model: str
    losses: Sequence[Loss]
    findings: Sequence[CallFinding] = ()
    issues: Sequence[Issue] = ()
    reused: int = 0
    total: int = 0
    usage: dict[str, Any] = {}
    finish_reason: str | None = None


class Reports:
    """The last reports, by the id of the request."""

    def __init__(self, most: int = _KEPT) -> None:
        self._most = most
        self._reports: OrderedDict[str, Reported] = OrderedDict()

    def keep(self, request_id: str, report: Reported) -> None:
        """Keep one, and forget the oldest if there are too many."""
        self._reports[request_id] = report
        if len(self._reports) > self._most:
            self._reports.popitem(last=False)

    def body(self, request_id: str, caller: str) -> bytes:
        """A report as JSON. Raises NotFound for one that is not there, or that somebody else asked for."""
        report = self._reports.get(request_id)
        if report is None or report.caller != caller:
            raise NotFound("report", request_id)
        told = msgspec.to_builtins(report) | {"request_id": request_id, "losses": [_loss(one) for one in report.losses]}
        return msgspec.json.encode(told)


def _loss(loss: Loss) -> dict[str, str]:
    return {"path": loss.path, "kind": loss.kind, "detail": loss.detail}
