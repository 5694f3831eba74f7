"""Owns metrics: what Prometheus reads at `/metrics`, each with its labels, in one place."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Generic, Protocol, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_FIRST = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_WHOLE = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_SPEED = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)
_SHARE = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0)


MetricT = TypeVar("MetricT", Counter, Gauge, Histogram)


class Kinded(Protocol):
    """What is counted by its kind: losses, issues, findings."""

    @property
    def kind(self) -> str: ...


class Labelled(Generic[MetricT]):
    """A metric whose labels are looked up fast."""

    def __init__(self, metric: MetricT) -> None:
        self._metric: MetricT = metric
        self._known: dict[tuple[str, ...], MetricT] = {}

    def labels(self, *values: str) -> MetricT:
        """The metric with these labels."""
        known = self._known.get(values)
        if known is None:
            known = self._known[values] = self._metric.labels(*values)
        return known

    def clear(self) -> None:
        """Forget all labels: what is still there is about to be told anew."""
        self._metric.clear()
        self._known.clear()


class Metrics:
    """All that is counted. Labels are names from the configuration and stable words, never what a client wrote."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        of_request = ("api", "model")
        self.requests = self._counter("requests", "Answered requests, by how they ended", *of_request, "status")
        self.running = self._gauge("running", "Requests that are being answered", *of_request)
        self.waiting = self._gauge("queue", "Requests that wait for a place", "model")
        self.cancelled = self._counter("cancelled", "Answers that were broken off", *of_request, "reason")
        about = "From the request to the first text of the model"
        self.first_token = self._histogram("first_token_seconds", about, _FIRST, *of_request)
        about = "From the request to the end of its answer"
        self.duration = self._histogram("answer_seconds", about, _WHOLE, *of_request)
        about = "Tokens of an answer in a second, from the first to the last"
        self.speed = self._histogram("tokens_per_second", about, _SPEED, "model")
        self.tokens = self._counter("tokens", "Tokens read and generated", "model", "direction")
        about = "How much of a prompt is what the backend has seen already in this session"
        self.reuse = self._histogram("prefix_reuse_ratio", about, _SHARE, "model")
        about = "What models wrote that is not as it should be"
        self.issues = self._counter("parse_issues", about, "model", "kind")
        self.losses = self._counter("losses", "What a prompt or an answer could not carry", "api", "kind")
        self.findings = self._counter("call_findings", "Tool calls that are not valid", "model", "kind")
        self.backend_errors = self._counter("backend_errors", "Failures of backends", "model", "kind")
        self.backend_up = self._gauge("backend_up", "Whether a backend answers", "model", "url")
        registry = self._registry
        about = "Bytes of the requests that are here, with all that they name and all that their seals hold"
        self.held = Gauge("turnscript_request_bytes", about, registry=registry)
        about = "How many of these there may be"
        self.holdable = Gauge("turnscript_request_bytes_limit", about, registry=registry)
        about = "Requests that were refused because those that are here have so many bytes"
        self.crowded = Counter("turnscript_crowded", about, registry=registry)

    def _counter(self, name: str, about: str, *labels: str) -> Labelled[Counter]:
        return Labelled(Counter(f"turnscript_{name}", about, labels, registry=self._registry))

    def _gauge(self, name: str, about: str, *labels: str) -> Labelled[Gauge]:
        return Labelled(Gauge(f"turnscript_{name}", about, labels, registry=self._registry))

    def _histogram(self, name: str, about: str, buckets: Sequence[float], *labels: str) -> Labelled[Histogram]:
        return Labelled(Histogram(f"turnscript_{name}", about, labels, buckets=buckets, registry=self._registry))

    def count_each(self, counter: Labelled[Counter], first: str, found: Iterable[Kinded]) -> None:
        """Add one for each of what was found, by its kind."""
        counts: dict[str, int] = {}
        for one in found:
            counts[one.kind] = counts.get(one.kind, 0) + 1
        for kind, count in counts.items():
            counter.labels(first, kind).inc(count)

    def text(self) -> bytes:
        """All metrics as Prometheus reads them."""
        return generate_latest(self._registry)
