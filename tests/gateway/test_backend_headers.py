"""Owns the headers of a model's own: where their values come from, that every request carries them, and none shows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.ailing import Model
from tests.gateway.scripted import Asked, Script, Scripted, said
from tests.gateway.upstreams import ASK, pieces_of
from turnscript.gateway.config import Config
from turnscript.gateway.configfile import Reloader, load
from turnscript.gateway.doctor import examine
from turnscript.gateway.doctor_findings import Check
from turnscript.gateway.kinds import InvalidConfig, Secret
from turnscript.gateway.served import Served
from turnscript.gateway.transport import secrets_of

MAIN = '[models.main]\nbackend = "http://h"\nformat = "rwkv-universal"\n'
BASIC = "Basic cGxhbnRlZDpwbGFudGVk"


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., Config]:
    """Reads a configuration with that text in its file; two files with values lie beside it."""
    (tmp_path / "basic").write_text(f"{BASIC}\n", encoding="utf-8")
    (tmp_path / "lines").write_text("planted\nplanted\n", encoding="utf-8")
    path = tmp_path / "turnscript.toml"
    path.touch(mode=0o600)

    def reading(text: str, env: dict[str, str] | None = None) -> Config:
        path.write_text(text, encoding="utf-8")
        return load(path, env or {})

    return reading


def sent(config: Config) -> dict[str, str]:
    return {name: value.reveal() for name, value in config.models[0].sends.items()}


def test_headers_come_from_the_file_variables_and_files(read: Callable[..., Config]) -> None:
    text = MAIN + "headers = { X-A = ' one two ' }\nheaders_env = { X-B = 'B' }\nheaders_file = { X-C = 'basic' }\n"
    assert {"X-A": "one two", "X-B": "two", "X-C": BASIC} == sent(read(text, {"B": " two\n"}))
    table = MAIN + "[models.main.headers_env]\nCF-Access-Client-Id = 'B'\n"
    assert {"CF-Access-Client-Id": "two"} == sent(read(table, {"B": "two"}))
    assert {} == sent(read(MAIN))


@pytest.mark.parametrize("value", ['{ X-A = "one", X-B = "t:wo" }', "X-A: one\nX-B:  t:wo\n"])
def test_a_variable_has_them_as_http_or_as_toml(read: Callable[..., Config], value: str) -> None:
    assert {"X-A": "one", "X-B": "t:wo"} == sent(read(MAIN, {"TURNSCRIPT_MODELS_MAIN_HEADERS": value}))
    named = {"TURNSCRIPT_MODELS_MAIN_HEADERS_ENV": "X-A: ONE", "ONE": "one"}
    assert {"X-A": "one"} == sent(read(MAIN, named))


def test_no_value_of_a_header_shows_where_settings_are_shown(read: Callable[..., Config]) -> None:
    text = MAIN + "headers = { X-A = 'planted' }\nheaders_env = { X-B = 'B' }\nheaders_file = { X-C = 'basic' }\n"
    found = read(text, {"B": "planted"})
    assert 3 == len(found.models[0].sends)
    shown = {one.path: one.value for one in found.describe()}
    assert "X-A = <secret>" == shown["models.main.headers"]
    assert "X-B = B" == shown["models.main.headers_env"]
    for secret in ("planted", BASIC):
        assert secret not in f"{found!r} {found} {found.describe()} {found.notes}"


def test_headers_in_a_file_that_others_may_read_are_worth_a_word(tmp_path: Path) -> None:
    path = tmp_path / "turnscript.toml"
    path.write_text(MAIN + "headers = { X-A = 'planted' }", encoding="utf-8")
    path.chmod(0o644)
    assert [f"{path} holds models.main.headers"] == [note.partition(" and")[0] for note in load(path, {}).notes]


WRONG = [
    ("headers = 'X-A: planted'\n", "a table of headers, each with a secret"),
    ("headers = { 'X A' = 'planted' }\n", "no name of a header"),
    ("headers = { 'planted:' = 'a' }\n", "no name of a header"),
    ("headers = { X-A = '' }\n", "X-A: this is empty"),
    ("headers = { X-A = 1 }\n", "X-A: this is empty or no string"),
    ('headers = { X-A = "planted\\r\\nX-B: planted" }\n', "X-A: this has characters"),
    ("headers = { X-A = 'plantedé' }\n", "X-A: this has characters"),
    ("headers = { Content-Length = 'planted' }\n", "the gateway itself says what Content-Length is"),
    ("headers = { host = 'planted' }\n", "the gateway itself says what host is"),
    ("headers_env = { X-A = 'planted planted' }\n", "X-A: expected the name of an environment variable"),
    ("headers_env = { X-A = 'planted' }\n", "is not set"),
    ("headers_env = { X-A = 'ODD' }\n", "has characters"),
    ("headers_file = { X-A = 'lines' }\n", "must hold one key"),
    ("headers_file = { X-A = 'planted' }\n", "cannot read the file"),
    ("headers = { X-A = 'planted' }\nheaders_env = { x-a = 'B' }\n", "given twice"),
    ("headers = { X-A = 'planted', x-a = 'planted' }\n", "given twice"),
    ("api_key = 'planted'\nheaders = { authorization = 'planted' }\n", "give one of the two"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), WRONG, ids=[message for _, message in WRONG])
def test_what_is_no_header_is_an_error_that_shows_no_secret(
    read: Callable[..., Config], text: str, message: str
) -> None:
    with pytest.raises(InvalidConfig, match=message) as caught:
        read(MAIN + text, {"B": "planted", "ODD": "planted\x01"})
    for error in (caught.value, *caught.value.others):
        assert error.path.startswith("models.main.headers")
        assert "planted" not in f"{error} {error!r} {error.expected} {error.got} {error.__dict__}"


def test_a_changed_value_is_told_without_being_shown(tmp_path: Path) -> None:
    path = tmp_path / "turnscript.toml"
    path.write_text(MAIN + 'headers_file = { X-A = "a" }', encoding="utf-8")
    (tmp_path / "a").write_text("planted-1", encoding="utf-8")
    reloader = Reloader(path, {})
    (tmp_path / "a").write_text("planted-2", encoding="utf-8")
    assert {"X-A": Secret("planted-2")} == reloader.reload().models[0].sends
    assert ("models.main.headers",) == reloader.report.changed
    assert "planted" not in f"{reloader.report!r} {reloader.report.sentences}"


# What goes over the wire.


def guarded(status: int) -> Callable[[Asked], Script]:
    """A proxy that lets nobody through to the server behind it who has not the header."""
    server = Model()

    def play(asked: Asked) -> Script:
        return server(asked) if asked.headers.get("x-pass") == "planted" else said({"error": "no pass"}, status=status)

    return play


def config_for(url: str, **settings: Any) -> Config:
    return Config.for_backend(url, "rwkv-universal", **settings)


@pytest.mark.parametrize("path", ["", "/v1"])
def test_every_request_to_the_server_carries_them(path: str) -> None:
    async def run() -> list[Asked]:
        async with Scripted(guarded(403)) as server:
            config = config_for(server.url + path, headers={"X-Pass": Secret("planted"), "user-agent": Secret("me")})
            served = await Served(config.models[0], config, 0).ready()
            upstream = served.pool.members[0].upstream
            assert await pieces_of(upstream, ASK)
            assert await upstream.healthy()
            assert 1000 == served.context
            assert not served.wants_key
            await served.close()
            return server.asked

    asked = asyncio.run(run())
    assert len(asked) > 3
    assert {("planted", "me")} == {(one.headers["x-pass"], one.headers["user-agent"]) for one in asked}


class Told:
    """Hears what the doctor finds."""

    def __init__(self) -> None:
        self.checks: list[Check] = []

    def server(self, model: str, url: str) -> None:
        """A server is looked at now."""

    def begin(self, name: str) -> None:
        """A check begins."""

    def tell(self, check: Check) -> None:
        """And is done."""
        self.checks.append(check)


@pytest.mark.parametrize("status", [401, 403])
def test_the_doctor_says_where_the_pass_belongs_that_a_server_wants(status: int) -> None:
    async def run() -> list[Check]:
        async with Scripted(guarded(status)) as server:
            told, config = Told(), config_for(server.url)
            await examine(config.models[0], config, told, quick=True)
            return told.checks

    first = next(check for check in asyncio.run(run()) if check.state == "fault")
    assert ("reachable" if status == 401 else "streams") == first.name
    assert "`headers_env`" in first.remedy
    assert "TURNSCRIPT_MODELS_DEFAULT_HEADERS" in first.remedy


def test_a_recording_holds_no_value_of_a_header_and_what_is_short_stays_as_it_is() -> None:
    found = secrets_of("http://h", None, {"Authorization": BASIC, "X-Tenant": "a", "X-Api-Key": "planted-key"})
    assert [BASIC, BASIC.removeprefix("Basic "), "planted-key"] == found
