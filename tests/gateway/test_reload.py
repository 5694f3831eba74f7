"""The configuration is read again while a server runs, and the key for thoughts stays the same."""

import asyncio
import logging
import re
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from turnscript.core.errors import RateLimited
from turnscript.core.signatures import seal, unseal
from turnscript.gateway.config import Config, Limits, Logs, Memory, Server, Signing, Store
from turnscript.gateway.configfile import Reloader, load
from turnscript.gateway.keys import add_key
from turnscript.gateway.kinds import InvalidConfig, Secret
from turnscript.gateway.limits import Callers
from turnscript.gateway.service import Service
from turnscript.gateway.signing import former_keys, signing_key

MAIN = '[models.main]\nbackend = "http://h"\nformat = "rwkv-goose"\n'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "turnscript.toml"
    file.write_text(MAIN, encoding="utf-8")
    return file


def test_a_server_does_not_start_with_a_bad_configuration(path: Path) -> None:
    path.write_text("[server]\nprot = 1\n", encoding="utf-8")
    with pytest.raises(InvalidConfig, match="did you mean 'port'"):
        Reloader(path, {})


def test_a_good_change_is_in_force_at_once(path: Path) -> None:
    reloader = Reloader(path, {})
    assert reloader.config == load(path, {})
    path.write_text(
        MAIN + 'aliases = ["x"]\n[limits]\nrunning = 3\n[models.more]\nbackend = "http://m"\n', encoding="utf-8"
    )
    new = reloader.reload()
    assert new is reloader.config
    assert new == load(path, {})
    assert {"limits.running", "models.main.aliases", "models.more"} <= set(reloader.report.changed)
    assert not any(name.startswith("models.main.b") for name in reloader.report.changed)
    assert (None, ()) == (reloader.report.error, reloader.report.restart)
    assert "limits.running" in reloader.report.sentences[0]


def test_without_a_change_nothing_is_said_to_have_changed(path: Path) -> None:
    reloader = Reloader(path, {})
    old = reloader.config
    assert old == reloader.reload()
    assert ("the configuration was read again; changed: nothing",) == reloader.report.sentences


@pytest.mark.parametrize("text", ["[server", "[server]\nprot = 1\n[logs]\nlevel = 1\n", MAIN + "context = 0", None])
def test_a_bad_change_leaves_the_last_good_one_in_force(path: Path, text: str | None) -> None:
    reloader = Reloader(path, {})
    old = reloader.config
    if text is None:
        path.unlink()
    else:
        path.write_text(text, encoding="utf-8")
    assert old is reloader.reload() is reloader.config
    assert reloader.report.error is not None
    sentence, *more = reloader.report.sentences
    assert "the last good one stays in force" in sentence
    assert str(path) in sentence
    wrong = [] if text is None or "prot" not in text else [str(error) for error in reloader.report.error.others]
    assert [f"this is wrong in it, too: {error}" for error in wrong] == more
    assert ("logs.level" in "".join(more)) == (text is not None and "prot" in text)
    path.write_text(MAIN + "context = 9", encoding="utf-8")
    assert 9 == reloader.reload().models[0].context
    assert reloader.report.error is None


@pytest.mark.parametrize("text", ["", "\n \n"])
def test_a_file_that_is_about_to_be_written_leaves_the_last_good_one_in_force(path: Path, text: str) -> None:
    """Editors and tools that write a file in place empty it first; a server without a model answers nobody."""
    reloader = Reloader(path, {})
    old = reloader.config
    path.write_text(text, encoding="utf-8")
    assert old is reloader.reload()
    [sentence] = reloader.report.sentences
    assert "the last good one stays in force" in sentence
    assert (
        f"there is nothing in it; a file that is being written is empty first: reload it when it is whole (in {path})"
        in (sentence)
    )
    path.write_text("# no model any more\n", encoding="utf-8")
    assert () == reloader.reload().models
    assert reloader.report.error is None


def test_a_file_that_was_empty_from_the_start_may_stay_so(path: Path) -> None:
    path.write_text("", encoding="utf-8")
    reloader = Reloader(path, {"TURNSCRIPT_LIMITS_RUNNING": "3"})
    assert (reloader.config, None) == (reloader.reload(), reloader.report.error)


def test_a_file_that_was_empty_at_the_start_is_written_in_place_later_as_any_other(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    path.write_text("", encoding="utf-8")
    reloader = Reloader(path, {})
    path.write_text(text, encoding="utf-8")
    written = reloader.reload()
    assert written.models
    path.write_text("", encoding="utf-8")
    assert written is reloader.reload()
    assert "the last good one stays in force" in reloader.report.sentences[0]


def test_a_bad_file_of_keys_leaves_the_last_good_configuration_in_force(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(path.parent))
    monkeypatch.setattr("turnscript.gateway.service.set_up", lambda *levels, **looks: None)  # for other tests, too
    keys, section = path.parent / "keys", '[server]\nkeys = "keys"\n'
    keys.write_bytes(b"")
    path.write_text(section + MAIN, encoding="utf-8")

    async def run() -> None:
        reloader = Reloader(path, {})
        service = Service(reloader.config, reloader)
        old = reloader.config
        keys.write_bytes(b"broken\n")
        path.write_text(section + MAIN.replace("main", "other"), encoding="utf-8")
        service.reload()
        assert reloader.config is service.config is old
        assert ["main"] == [served.name for served in service.models()]
        assert "main" == service.served_for("main").name
        keys.write_bytes(b"")
        service.reload()
        assert service.config is reloader.config
        assert "other" == service.served_for("other").name
        assert {"models.main", "models.other"} <= set(reloader.report.changed)
        await service.stop()

    with caplog.at_level(logging.ERROR):
        asyncio.run(run())
    told = [getattr(record, "fields", {}).get("said", "") for record in caplog.records]
    assert any("the last good one stays in force" in said and f"{keys}:1" in said for said in told)


def test_what_counts_at_the_start_only_stays_and_is_told_each_time(path: Path) -> None:
    reloader = Reloader(path, {})
    path.write_text(
        '[server]\nport = 9\nkeepalive = 3\n[memory]\npath = "m"\n[metrics]\nenabled = false\n' + MAIN, encoding="utf-8"
    )
    for _ in range(2):
        new = reloader.reload()
        assert (8400, 3.0, True) == (new.server.port, new.server.keepalive, new.metrics.enabled)
        assert new.memory.path is None
        assert ("server.port", "memory.path", "metrics.enabled") == reloader.report.restart
        assert "start" in reloader.report.sentences[1]
        shown = {setting.path: (setting.value, setting.where) for setting in new.describe()}
        assert ("8400", "default") == shown["server.port"]
        assert ("3 s", str(path)) == shown["server.keepalive"]
    path.write_text(MAIN, encoding="utf-8")
    reloader.reload()
    assert () == reloader.report.restart


def test_where_an_old_value_came_from_is_kept_with_it(path: Path) -> None:
    path.write_text("[server]\nport = 5\n" + MAIN, encoding="utf-8")
    reloader = Reloader(path, {})
    path.write_text(MAIN, encoding="utf-8")
    shown = {setting.path: (setting.value, setting.where) for setting in reloader.reload().describe()}
    assert ("5", str(path)) == shown["server.port"]


def test_a_server_that_others_reach_never_loses_its_keys_by_a_reload(path: Path) -> None:
    path.write_text('[server]\nhost = "0.0.0.0"\nkeys = "k"\n' + MAIN, encoding="utf-8")
    reloader = Reloader(path, {})
    path.write_text(MAIN, encoding="utf-8")  # alone it is right: it listens on this machine only
    kept = reloader.reload()
    assert ("0.0.0.0", path.parent / "k") == (kept.server.host, kept.server.keys)
    assert reloader.report.error is not None
    assert "0.0.0.0" in str(reloader.report.error)
    path.write_text("[server]\npublic = true\n" + MAIN, encoding="utf-8")
    assert (None, True) == (reloader.reload().server.keys, reloader.config.server.public)
    assert ("server.host",) == reloader.report.restart


def test_a_secret_that_changed_is_told_without_being_shown(path: Path) -> None:
    (path.parent / "key").write_text("planted-1", encoding="utf-8")
    path.write_text(MAIN + 'api_key_file = "key"', encoding="utf-8")
    reloader = Reloader(path, {})
    (path.parent / "key").write_text("planted-2", encoding="utf-8")
    assert Secret("planted-2") == reloader.reload().models[0].key
    assert ("models.main.key",) == reloader.report.changed
    assert "planted" not in f"{reloader.report!r} {reloader.report.sentences}"


def test_a_changed_file_of_formats_is_read_again(path: Path) -> None:
    tagged = Path(__file__).resolve().parents[2] / "examples" / "formats" / "tagged.toml"
    (path.parent / "own.toml").write_text(tagged.read_text(encoding="utf-8"), encoding="utf-8")
    path.write_text(MAIN.replace("rwkv-goose", "own.toml"), encoding="utf-8")
    reloader = Reloader(path, {})
    changed = tagged.read_text(encoding="utf-8").replace("</assistant>", "</bot>").replace("<assistant>", "<bot>")
    (path.parent / "own.toml").write_text(changed, encoding="utf-8")
    takes = reloader.reload().models[0].takes
    assert takes is not None
    assert ["</bot>"] == takes.stops
    assert ("models.main.format",) == reloader.report.changed


def test_a_reload_gives_nobody_another_minute(tmp_path: Path) -> None:
    """Who has used up its requests goes on waiting, unless its own limits are others now."""
    keys = tmp_path / "keys"
    headers = {"x-api-key": add_key(keys, "anna").reveal()}
    for server in (Server(), Server(keys=keys)):
        config = Config(server=server, limits=Limits(requests_per_minute=1))
        callers = Callers(config)
        callers.caller(headers).budget.admit()
        again = Callers(replace(config, logs=Logs(level="debug")), callers)
        with pytest.raises(RateLimited):
            again.caller(headers).budget.admit()
        Callers(replace(config, limits=Limits(requests_per_minute=2)), again).caller(headers).budget.admit()


def test_a_server_that_is_down_is_asked_once_however_often_the_configuration_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else each time leaves one behind who asks it for as long as it is down."""
    monkeypatch.setattr("turnscript.gateway.service.set_up", lambda *levels, **looks: None)  # for other tests, too
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # and nobody listens there
        config = Config.for_backend(f"http://127.0.0.1:{held.getsockname()[1]}", "rwkv-universal")

        async def run() -> None:
            service = Service(replace(config, memory=Memory(path=None), store=Store(path=None)))
            for _ in range(5):
                service._take(config)
            async with asyncio.timeout(20):
                while len(service._tasks) > 1:
                    await asyncio.sleep(0.01)
            await service.stop()

        asyncio.run(run())


def test_overrides_hold_after_a_reload_too(path: Path) -> None:
    reloader = Reloader(path, {"TURNSCRIPT_LIMITS_QUEUE": "5"}, {"limits.running": 2})
    path.write_text("[limits]\nrunning = 9\nqueue = 9\n" + MAIN, encoding="utf-8")
    limits = reloader.reload().limits
    assert (2, 5) == (limits.running, limits.queue)


def test_without_a_file_there_is_nothing_to_read_but_the_rest() -> None:
    reloader = Reloader(None, {}, {"models.default.backend": "http://h"})
    assert reloader.config == reloader.reload()


# A model in the place of the gateway.


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8400"),
        ("127.0.0.1", "http://localhost:8400/v1"),
        ("localhost", "http://[::1]:8400"),
        ("::1", "http://localhost.:8400"),
        ("0.0.0.0", "http://127.0.0.1:8400"),
        ("Gateway.example", "http://gateway.example:8400"),
        ("0.0.0.0", "http://127.0.0.9:8400"),
        ("0.0.0.0", f"http://{socket.gethostname()}:8400"),
    ],
)
def test_a_gateway_that_would_ask_itself_does_not_start(path: Path, host: str, url: str) -> None:
    server = f'[server]\nhost = "{host}"\npublic = true\n'
    path.write_text(f'{server}[models.main]\nbackend = ["http://127.0.0.1:1", "{url}"]\n', encoding="utf-8")
    with pytest.raises(InvalidConfig, match="where the gateway itself listens") as caught:
        Reloader(path, {})
    assert "models.main.backend" == caught.value.path
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8401"),
        ("127.0.0.1", "http://127.0.0.2:8400"),
        ("127.0.0.1", "http://10.0.0.1:8400"),
        ("127.0.0.1", "http://127.0.0.1"),
        ("10.0.0.2", "http://127.0.0.1:8400"),
        ("0.0.0.0", "http://192.0.2.1:8400"),
        ("0.0.0.0", "http://models.example.org:8400"),
    ],
)
def test_another_server_beside_it_may_have_its_port_or_its_name(path: Path, host: str, url: str) -> None:
    server = f'[server]\nhost = "{host}"\npublic = true\n'
    path.write_text(f'{server}[models.main]\nbackend = "{url}"\n', encoding="utf-8")
    assert url == Reloader(path, {}).config.models[0].backend[0].target


def test_a_model_is_not_moved_to_the_place_of_the_gateway(path: Path) -> None:
    """The port that counts is the one that it was started with."""
    reloader = Reloader(path, {})
    old = reloader.config
    path.write_text('[server]\nport = 9\n[models.main]\nbackend = "http://127.0.0.1:8400"\n', encoding="utf-8")
    assert old is reloader.reload()
    assert "where the gateway itself listens" in str(reloader.report.error)


# The key for thoughts.


def test_the_key_is_made_once_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    file = tmp_path / "a" / "b" / "signing.key"
    first = signing_key(Signing(file=file))
    assert 32 == len(first)
    assert first == signing_key(Signing(file=file))
    assert 0o600 == stat.S_IMODE(file.stat().st_mode)
    assert 0o700 == stat.S_IMODE(file.parent.stat().st_mode)
    assert [file] == list(file.parent.iterdir())
    assert "a thought" == unseal(seal("a thought", first), signing_key(Signing(file=file)))


def test_where_no_file_can_be_kept_the_remedy_is_one_without_a_file_too(tmp_path: Path) -> None:
    """As on the first start in a container whose disk cannot be written."""
    (tmp_path / "home").write_text("no folder", encoding="utf-8")
    with pytest.raises(InvalidConfig, match="not a directory") as caught:
        signing_key(Signing(file=tmp_path / "home" / "signing.key"))
    found = re.search(r"\((\w+)=(\S+)\)", str(caught.value))
    assert found is not None
    assert load(None, {found[1]: found[2]}).signing.file is None


def test_without_a_file_each_start_has_a_key_of_its_own() -> None:
    assert signing_key(Signing()) != signing_key(Signing())


def test_a_key_of_ones_own_is_the_same_everywhere(tmp_path: Path) -> None:
    own = load(None, {"K": "a key of my own 123 "}, {"signing.key_env": "K"})
    (tmp_path / "k").write_text("a key of my own 123\n", encoding="utf-8")
    assert signing_key(own.signing) == signing_key(Signing(file=tmp_path / "k"))
    assert signing_key(own.signing) != signing_key(Signing(key=Secret("another key of mine")))


def test_a_short_key_is_none(tmp_path: Path) -> None:
    (tmp_path / "k").write_text("short   \n" + " " * 20, encoding="utf-8")
    for signing, place in (
        (Signing(file=tmp_path / "k"), "signing.file"),
        (Signing(key=Secret("planted")), "signing.key_env"),
    ):
        with pytest.raises(InvalidConfig, match="at least 16") as caught:
            signing_key(signing)
        assert place == caught.value.path
        assert "planted" not in str(caught.value)
        assert (str(signing.file) in str(caught.value)) == (signing.file is not None)


@pytest.mark.parametrize("damaged", [b"", b"ab\n", b"\0" * 8])
def test_a_damaged_key_is_told_with_its_file_and_a_remedy(tmp_path: Path, damaged: bytes) -> None:
    file = tmp_path / "signing.key"
    file.write_bytes(damaged)
    with pytest.raises(InvalidConfig) as caught:
        signing_key(Signing(file=file))
    told = str(caught.value)
    assert (True, True, True) == (str(file) in told, "put back a copy" in told, "remove it" in told)
    file.unlink()
    assert signing_key(Signing(file=file)) == signing_key(Signing(file=file))


def test_a_place_where_no_key_can_be_kept_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidConfig, match=":memory:"):
        signing_key(Signing(file=tmp_path / "file" / "key"))


FORMER = """
[signing]
former = ["old.key", "older.key"]
former_env = ["OLD"]
"""


def test_former_keys_are_read_from_files_and_variables(path: Path) -> None:
    path.write_text(FORMER + path.read_text(encoding="utf-8"), encoding="utf-8")
    keys = [f"a key of the time number {number}" for number in range(3)]
    for name, key in zip(("old.key", "older.key"), keys, strict=False):
        (path.parent / name).write_text(f"{key}\n", encoding="utf-8")
    found = load(path, {"OLD": keys[2]}, {})
    assert [signing_key(Signing(key=Secret(key))) for key in keys] == former_keys(found.signing)
    assert keys[2] not in repr(found)
    (path.parent / "older.key").unlink()
    with pytest.raises(InvalidConfig, match=r"older\.key") as caught:
        former_keys(found.signing)
    assert "signing.former" == caught.value.path
    with pytest.raises(InvalidConfig, match="not set") as caught:
        load(path, {}, {})
    assert "signing.former_env" == caught.value.path


@pytest.mark.parametrize(
    "wrong", ["former = 'old.key'", "former = ['']", "former_env = ['planted-key']", "former_env = 'planted-key'"]
)
def test_what_is_no_former_key_is_told_and_not_shown(path: Path, wrong: str) -> None:
    path.write_text(f"[signing]\n{wrong}\n" + path.read_text(encoding="utf-8"), encoding="utf-8")
    with pytest.raises(InvalidConfig) as caught:
        load(path, {}, {})
    assert caught.value.path == f"signing.{wrong.partition(' ')[0]}"
    assert "planted" not in str(caught.value)


@pytest.mark.deep
def test_servers_that_start_at_once_share_the_key(tmp_path: Path) -> None:
    code = """
import sys
from pathlib import Path
from turnscript.gateway.config import Signing
from turnscript.gateway.signing import former_keys, signing_key
sys.stdin.read()
sys.stdout.write(signing_key(Signing(file=Path(sys.argv[1]))).hex())
"""
    command = [sys.executable, "-c", code, str(tmp_path / "key")]
    running = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(4)]
    for process in running:
        assert process.stdin
        process.stdin.close()  # now they go
        process.stdin = None
    found = {process.communicate(timeout=60)[0] for process in running}
    assert [64] == [len(key) for key in found]
    assert ["key"] == [file.name for file in tmp_path.iterdir()]
