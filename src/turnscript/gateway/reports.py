"""Owns reports: all that is to be said about an answer, kept for a while for whoever asked for it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from turnscript.core.conversation import Issue, Usage
from turnscript.core.errors import NotFound
from turnscript.core.losses import Loss
from turnscript.gateway.checks import CallFinding

PATH = "/turnscript/reports/"
_KEPT = 2000
_ENTRIES = 100_000
"""How many losses, findings and issues the reports hold together: each takes about 250 bytes."""


class Reported(Struct):
    """What is known of one answer: places and sentences. Of the conversation they quote short pieces, such as an
    argument that a schema refuses. `answer`: its id. `session`: the key of its session. `warnings`: what nothing
    was lost by, and may still make it worse. `words`: whose those of the prompt are, and how near to the model's."""

    caller: str
    model: str
    losses: Sequence[Loss]
    findings: Sequence[CallFinding] = ()
    issues: Sequence[Issue] = ()
    reused: int = 0
    total: int = 0
    usage: Usage | dict[str, int] = {}
    finish_reason: str | None = None
    answer: str | None = None
    session: str = ""
    warnings: Sequence[str] = ()
    words: Sequence[str] = ()

    @property
    def entries(self) -> int:
        """How much there is to be said."""
        return len(self.losses) + len(self.findings) + len(self.issues)


class Reports:
    """The last reports, by the id of the request: at most so many, and so many entries in all but the very last."""

    def __init__(self, most: int = _KEPT, entries: int = _ENTRIES) -> None:
        self._most, self._most_entries = most, entries
        self._entries = 0
        self._reports: OrderedDict[str, Reported] = OrderedDict()

    def __len__(self) -> int:
        return len(self._reports)

    def keep(self, request_id: str, report: Reported) -> None:
        """Keep one, and forget the oldest if there are too many."""
        before = self._reports.pop(request_id, None)
        self._entries += report.entries - (before.entries if before is not None else 0)
        self._reports[request_id] = report
        reports = self._reports
        while len(reports) > self._most or (self._entries > self._most_entries and len(reports) > 1):
            self._entries -= reports.popitem(last=False)[1].entries

    def get(self, request_id: str) -> Reported | None:
        """A report."""
        return self._reports.get(request_id)

    def find(self, caller: str, name: str, session: str) -> str | None:
        """The id of a caller's request: `name` itself, or that of the last whose answer or session is called so, or
        whose session has the key `session`."""
        known = self._reports.get(name)
        if known is not None:
            return name if known.caller == caller else None
        for id_, one in reversed(self._reports.items()):
            if one.caller == caller and (one.answer == name or one.session in (name, session)):
                return id_
        return None

    def body(self, request_id: str, caller: str) -> bytes:
        """A report as JSON. Raises NotFound for one that is not there, or that somebody else asked for."""
        report = self._reports.get(request_id)
        if report is None or report.caller != caller:
            raise NotFound("report", request_id)
        told = msgspec.to_builtins(report) | {"request_id": request_id, "losses": [_loss(one) for one in report.losses]}
        return msgspec.json.encode(told)


def _loss(loss: Loss) -> dict[str, str]:
    return {"path": loss.path, "kind": loss.kind, "detail": loss.detail}
