"""Owns how workers begin where their beginning is not what a test is about: as forks of a program that is loaded."""

import subprocess

import pytest

from tests import forks


@pytest.fixture
def forked_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is a process of its own, as ever, which does not load the same libraries again."""
    forks.ready()
    monkeypatch.setattr(subprocess, "Popen", forks.Fork)
