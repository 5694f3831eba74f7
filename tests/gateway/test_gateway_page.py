"""The page about the gateway lists exactly what there is."""

import re
from pathlib import Path
from typing import Any

from starlette.routing import Route

from turnscript.gateway import headers
from turnscript.gateway.app import Application
from turnscript.gateway.config import Config
from turnscript.gateway.service import Service

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "gateway.md").read_text(encoding="utf-8")
NOT_SHOWN = {"/api/event_logging/batch"}
"""Taken and forgotten."""


def told() -> dict[str, set[str]]:
    rows = re.findall(r"^\| `(/[^`]*)` \| ([A-Z, ]+) \|", PAGE, re.MULTILINE)
    return {path: set(methods.split(", ")) for path, methods in rows}


def served() -> dict[str, set[str]]:
    found = {}
    for route in Application(Service(Config())).routes:
        assert isinstance(route, Route)
        endpoint: Any = route.endpoint
        found[route.path.replace(":path", "")] = set(endpoint.methods)
    unversioned = {path for path in found if f"/v1{path}" in found}
    return {path: methods for path, methods in found.items() if path not in unversioned | NOT_SHOWN}


def test_the_page_lists_every_path_with_its_methods() -> None:
    assert served() == told()


def test_the_page_lists_every_header_of_an_answer() -> None:
    shown = set(re.findall(r"^\| `(x-turnscript-[a-z-]+)`", PAGE, re.MULTILINE))
    assert {headers.LOSSES, headers.PREFIX, headers.REPORT, headers.COUNTED, headers.TRAINED, headers.UPSTREAM} == shown
