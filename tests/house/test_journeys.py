"""Journeys through the code grow no longer: a reader who follows one enters so many files, and no more."""

import json
import subprocess
import sys

import pytest

MOST = {"convert": 19, "archive": 25, "prompt": 16, "parse": 15, "command line": 33, "gateway": 80}
"""The most files that each trip enters. They are to be fewer: lower a number with each that it does without."""


@pytest.fixture(scope="module")
def journeys() -> dict[str, list[str]]:
    """The files of each trip, of a process in which nothing else has run."""
    command = [sys.executable, "-m", "tests.house.journeys"]
    run = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    found: dict[str, list[str]] = json.loads(run.stdout)
    return found


@pytest.mark.parametrize("trip", MOST)
def test_a_journey_is_no_longer_than_it_was(journeys: dict[str, list[str]], trip: str) -> None:
    files = journeys[trip]
    assert len(files) <= MOST[trip], f"{trip} enters {len(files)} files: {' '.join(files)}"


def test_every_trip_has_its_limit(journeys: dict[str, list[str]]) -> None:
    assert MOST.keys() == journeys.keys()
