"""Owns metrics: what Prometheus reads at `/metrics`, each with its labels, in one place."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from typing import Protocol, TypeVar

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.utils import floatToGoString

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_FIRST = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_WHOLE = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_SPEED = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)
_PLACES = (0, 1, 2, 4, 8, 16, 32, 64)
_SHARE = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0)


class Kinded(Protocol):
    """What is counted by its kind: losses, issues, findings."""

    @property
    def kind(self) -> str: ...


class Number:
    """The number of one set of labels: None as long as nobody has changed it, and so nobody is to be told of it."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float | None = None

    def add(self, by: float = 1.0) -> None:
        """Change it."""
        value = self.value
        self.value = by if value is None else value + by


class Numbers:
    """A metric with a number for each set of labels: `family` says whether it only grows.

    The library's own metrics may be changed by any thread, for a lock and six calls each time. These are changed by the
    event loop alone, a dozen for each request; the library asks for them when somebody reads.
    """

    def __init__(
        self, family: type[CounterMetricFamily | GaugeMetricFamily], name: str, about: str, *labels: str
    ) -> None:
        self._family, self._name, self._about, self._labels = family, f"turnscript_{name}", about, labels
        self._numbers: dict[tuple[str, ...], Number] = {}
        if not labels:
            self.put(0.0)

    def of(self, *labels: str) -> Number:
        """The number of these labels, for who changes it often."""
        number = self._numbers.get(labels)
        if number is None:
            number = self._numbers[labels] = Number()
        return number

    def add(self, *labels: str, by: float = 1.0) -> None:
        """Change the number of these labels."""
        self.of(*labels).add(by)

    def put(self, value: float, *labels: str) -> None:
        """Set the number of these labels."""
        self.of(*labels).value = value

    def clear(self) -> None:
        """Forget all labels: what is still there is about to be told anew."""
        self._numbers.clear()

    def collect(self) -> Iterator[Metric]:
        """The metric as the library writes it."""
        family = self._family(self._name, self._about, labels=self._labels)
        for labels, number in self._numbers.items():
            if number.value is not None:
                family.add_metric(labels, number.value)
        yield family


class Seen:
    """What was seen of one set of labels: how many values each bucket has, and what they are together."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Note a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class Spread:
    """A histogram for each set of labels, in the same way. `bounds`: the most that each bucket holds, but the last."""

    def __init__(self, name: str, about: str, bounds: Sequence[float], *labels: str) -> None:
        self._name, self._about, self._labels = f"turnscript_{name}", about, labels
        self._bounds = [float(bound) for bound in bounds]  # compared with other floats, which takes a third of the time
        self._seen: dict[tuple[str, ...], Seen] = {}

    def of(self, *labels: str) -> Seen:
        """What was seen of these labels, for who notes values often."""
        seen = self._seen.get(labels)
        if seen is None:
            seen = self._seen[labels] = Seen(self._bounds)
        return seen

    def collect(self) -> Iterator[Metric]:
        """The metric as the library writes it."""
        family = HistogramMetricFamily(self._name, self._about, labels=self._labels)
        bounds = [*map(floatToGoString, self._bounds), "+Inf"]
        for labels, seen in self._seen.items():
            if any(seen.counts):
                family.add_metric(labels, list(zip(bounds, accumulate(seen.counts), strict=True)), seen.total)
        yield family


class Counts:
    """What is counted of each request of an API for a model, at hand: most of what it would cost is to look it up."""

    __slots__ = ("_requests", "duration", "first_token", "input", "output", "reuse", "running", "speed", "statuses")

    def __init__(self, metrics: Metrics, api: str, model: str) -> None:
        self._requests = partial(metrics.requests.of, api, model)
        self.statuses: dict[int, Number] = {}
        self.running = metrics.running.of(api, model)
        self.duration = metrics.duration.of(api, model)
        self.first_token = metrics.first_token.of(api, model)
        self.input = metrics.tokens.of(model, "input")
        self.output = metrics.tokens.of(model, "output")
        self.reuse = metrics.reuse.of(model)
        self.speed = metrics.speed.of(model)

    def ended(self, status: int, age: float) -> None:
        """A request is over."""
        number = self.statuses.get(status)
        if number is None:
            number = self.statuses[status] = self._requests(str(status))
        number.add()
        self.duration.observe(age)


MetricT = TypeVar("MetricT", Numbers, Spread)


class Metrics:
    """All that is counted. Labels are names from the configuration and stable words, never what a client wrote."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._counts: dict[tuple[str, str], Counts] = {}
        of_request = ("api", "model")
        self.requests = self._counter("requests", "Answered requests, by how they ended", *of_request, "status")
        self.running = self._gauge("running", "Requests that are being answered", *of_request)
        self.waiting = self._gauge("queue", "Requests that wait for a place", "model")
        about = "How many waited before a request, when it began to wait"
        self.queue_place = self._histogram("queue_place", about, _PLACES, "model")
        self.queue_seconds = self._histogram("queue_seconds", "How long requests that had to wait did", _FIRST, "model")
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
        self.grammars_refused = self._counter("grammars_refused", "Grammars that backends did not take", "model")
        self.backend_up = self._gauge("backend_up", "Whether a backend answers", "model", "url")
        about = "States of conversations that backends wrote to files and put back, or failed to"
        self.slot_files = self._counter("slot_files", about, "model", "url", "done")
        about = "Bytes of the requests that are here, with all that they name and all that their seals hold"
        self.held = self._gauge("request_bytes", about)
        about = "How many of these there may be"
        self.holdable = self._gauge("request_bytes_limit", about)
        about = "Requests that were refused because those that are here have so many bytes"
        self.crowded = self._counter("crowded", about)

    def _counter(self, name: str, about: str, *labels: str) -> Numbers:
        return self._registered(Numbers(CounterMetricFamily, name, about, *labels))

    def _gauge(self, name: str, about: str, *labels: str) -> Numbers:
        return self._registered(Numbers(GaugeMetricFamily, name, about, *labels))

    def _histogram(self, name: str, about: str, bounds: Sequence[float], *labels: str) -> Spread:
        return self._registered(Spread(name, about, bounds, *labels))

    def _registered(self, metric: MetricT) -> MetricT:
        self._registry.register(metric)
        return metric

    def note_waiting(self, model: str, place: int, seconds: float) -> None:
        """A request that had to wait is over: where it stood first, and for how long it stood."""
        self.queue_place.of(model).observe(place)
        self.queue_seconds.of(model).observe(seconds)

    def of(self, api: str, model: str) -> Counts:
        """What is counted of each request of an API for a model."""
        counts = self._counts.get((api, model))
        if counts is None:
            counts = self._counts[api, model] = Counts(self, api, model)
        return counts

    def count_each(self, counter: Numbers, first: str, found: Iterable[Kinded]) -> None:
        """Add one for each of what was found, by its kind."""
        for one in found:
            counter.add(first, one.kind)

    def text(self) -> bytes:
        """All metrics as Prometheus reads them."""
        return generate_latest(self._registry)
