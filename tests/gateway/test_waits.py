"""Owns the checks of when to try again, as a model server says it, on machines whose clocks stand elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from turnscript.gateway.refusals import seconds_to_wait

NOW = "Wed, 21 Oct 2026 07:27:15 GMT"


@pytest.fixture(params=["UTC", "America/New_York", "Asia/Tokyo"])
def _zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", request.param)
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("_zone")
@pytest.mark.parametrize(
    "said",
    [
        "Wed, 21 Oct 2026 07:28:00 GMT",
        "Wednesday, 21-Oct-26 07:28:00 GMT",
        "Wed Oct 21 07:28:00 2026",
        "Wed, 21 Oct 2026 07:28:00",
        "Wed, 21 Oct 2026 07:28:00 -0000",
    ],
)
def test_every_form_of_a_date_means_the_same_wherever_the_gateway_runs(said: str) -> None:
    """HTTP has three, all in GMT; the oldest names no zone."""
    assert 45.0 == seconds_to_wait({"retry-after": said, "date": NOW})
    assert 45.0 == seconds_to_wait({"retry-after": said, "date": "Wed Oct 21 07:27:15 2026"})


@pytest.mark.parametrize("said", ["Wed, 21 Oct 9999 07:28:00 GMT", "Wed, 21 Oct 2076 07:28:00 GMT", "1e9"])
def test_nobody_is_told_to_wait_for_decades(said: str) -> None:
    assert seconds_to_wait({"retry-after": said, "date": NOW}) is None


def test_less_than_no_time_has_no_sign() -> None:
    assert "0.0" == str(seconds_to_wait({"retry-after": "-0"}))
