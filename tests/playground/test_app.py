"""Owns the checks of the playground over HTTP: who is answered, with which headers, and what is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

import turnscript as ts
import turnscript.playground
from tests.playground.serving import serving
from tests.sdks import NO_TLS
from turnscript.playground import app
from turnscript.playground.examples import examples

PAGE = Path(turnscript.playground.__file__).parent / "page"
ASKS: list[tuple[str, dict[str, Any]]] = [
    ("/api/convert", {"source": examples()[0].text, "to": "openai-responses"}),
    ("/api/prompt", {"source": examples()[0].text, "format": "rwkv-universal"}),
    ("/api/play", {"source": examples()[0].text, "format": "rwkv-universal"}),
]


@pytest.fixture(scope="module")
def web() -> Iterator[httpx2.Client]:
    with serving() as address, httpx2.Client(base_url=address, timeout=20, verify=NO_TLS) as client:
        yield client


@pytest.mark.parametrize(("path", "file"), [(path, name) for path, (name, _) in app._PAGE.items()])
def test_the_page_is_served_as_it_is(web: httpx2.Client, path: str, file: str) -> None:
    answer = web.get(path)
    assert (200, (PAGE / file).read_bytes()) == (answer.status_code, answer.content)


def test_every_file_of_the_page_is_served() -> None:
    assert {name for name, _ in app._PAGE.values()} == {path.name for path in PAGE.iterdir()}


def test_the_page_loads_nothing_from_elsewhere_and_holds_no_script_of_its_own() -> None:
    for path in PAGE.iterdir():
        text = path.read_text(encoding="utf-8")
        assert path.name == "icon.svg" or not re.search(r"https?:", text), path
        assert len(text.splitlines()) <= 500, path
    html = (PAGE / "index.html").read_text(encoding="utf-8")
    assert not re.search(r"<script(?! src=\"/)|<style|\son\w+=|\sstyle=|javascript:", html)
    script = (PAGE / "page.js").read_text(encoding="utf-8")
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|Function\(", script)


def test_the_page_knows_no_format_and_no_api() -> None:
    """It is told what there is."""
    texts = [path.read_text(encoding="utf-8") for path in PAGE.iterdir()]
    names = [*ts.apis(), *ts.formats(), *ts.model_formats()]
    assert [] == [name for name in names for text in texts if re.search(rf"\b{re.escape(name)}\b", text)]


def test_the_names_are_all_that_can_be_chosen(web: httpx2.Client) -> None:
    told = web.get("/api/names").json()
    assert ts.apis() == [one["name"] for one in told["apis"]]
    assert ts.formats() == [one["name"] for one in told["formats"]]
    assert ts.model_formats() == [one["name"] for one in told["models"]]
    assert [example.text for example in examples()] == [one["text"] for one in told["examples"]]
    assert ["rwkv-world", "bytes"] == told["tokenizers"]


@pytest.mark.parametrize(("path", "asked"), ASKS)
def test_what_is_asked_is_answered(web: httpx2.Client, path: str, asked: dict[str, Any]) -> None:
    answer = web.post(path, json=asked)
    assert 200 == answer.status_code
    told = answer.json()
    assert None is told["fault"]
    assert told["recognised"]["name"] in ts.apis()


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"{", "application/json", 400),
        (b"[]", "application/json", 400),
        (b'{"source": 3}', "application/json", 400),
        (b'{"source": "a", "to": "b", "file": "/etc/passwd"}', "application/json", 400),
        (b"\xff", "application/json", 400),
        (b"[" * 100_000, "application/json", 400),
        (b'{"source": "", "to": ""}', "text/plain", 422),
        (b'{"source": "", "to": ""}', "application/x-www-form-urlencoded", 422),
        (b" " * (app.LIMIT + 1), "application/json", 413),
    ],
)
def test_what_the_page_would_not_ask_is_refused(web: httpx2.Client, body: bytes, kind: str, status: int) -> None:
    answer = web.post("/api/convert", content=body, headers={"content-type": kind})
    assert status == answer.status_code
    assert answer.json()["fault"]["message"]


def test_a_body_without_a_length_is_read_no_further_than_its_limit(web: httpx2.Client) -> None:
    pieces = (b" " * 65_536 for _ in range(app.LIMIT // 65_536 + 2))
    answer = web.post("/api/convert", content=pieces, headers={"content-type": "application/json"})
    assert 413 == answer.status_code


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "example.com"},
        {"host": "127.0.0.1.example.com"},
        {"host": "192.168.1.7:8401"},
        {"host": "["},
        {"origin": "https://example.com"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1.example.com"},
    ],
)
@pytest.mark.parametrize("path", ["/", "/api/names", "/api/convert", "/nothing"])
def test_strangers_are_not_answered(web: httpx2.Client, path: str, headers: dict[str, str]) -> None:
    for method in ("GET", "POST"):
        answer = web.request(method, path, headers=headers)
        assert 403 == answer.status_code
        assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:1", "LOCALHOST", "[::1]:7", "a.localhost"])
def test_names_of_this_machine_are_answered(web: httpx2.Client, host: str) -> None:
    assert 200 == web.get("/", headers={"host": host, "origin": f"http://{host}"}).status_code


@pytest.mark.parametrize("path", ["/", "/page.js", "/api/names", "/api/convert", "/nothing", "/../secret"])
def test_every_answer_forbids_scripts_of_others(web: httpx2.Client, path: str) -> None:
    policy = web.get(path).headers["content-security-policy"]
    told = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert "'none'" == told["default-src"]
    assert "'self'" == told["script-src"]
    assert "'script'" == told["require-trusted-types-for"]
    assert "'none'" == told["frame-ancestors"]
    assert "nosniff" == web.get(path).headers["x-content-type-options"]


def test_a_bug_is_told_and_logged(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def fails(_: object) -> Any:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(app, "converted", fails)
    with serving() as address, httpx2.Client(base_url=address, verify=NO_TLS) as client:
        answer = client.post("/api/convert", content=json.dumps(ASKS[0][1]), headers={"content-type": app._JSON})
    assert 500 == answer.status_code
    assert "terminal" in answer.json()["fault"]["message"]
    assert "ZeroDivisionError" in caplog.text
