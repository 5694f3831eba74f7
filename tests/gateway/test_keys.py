"""API keys: who gets in, what the file holds, and that a damaged file locks nobody out and lets nobody in."""

import hashlib
import json
import logging
import os
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.clocks import run_time
from turnscript.core.errors import UnknownName
from turnscript.gateway.config import Limits, Policy, fields_of
from turnscript.gateway.keys import KEY_LIMITS, Keys, add_key, digest_of, read_entries, remove_key
from turnscript.gateway.kinds import InvalidConfig, Secret


class Clock:
    """A clock that a test turns."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys.jsonl"


def name_of(keys: Keys, bearer: str | None, x_api_key: str | None = None) -> str | None:
    found = keys.check(bearer, x_api_key)
    return found.name if found else None


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]


def test_a_made_key_gets_in_by_either_header(path: Path) -> None:
    one, other = add_key(path, "one").reveal(), add_key(path, "other").reveal()
    keys = Keys(path)
    assert 2 == len(keys)
    assert ["one", "other"] == [name_of(keys, one), name_of(keys, None, other)]
    assert ["one", "one"] == [name_of(keys, one, "stale"), name_of(keys, "stale", one)]
    assert "one" == name_of(keys, one, other)


def test_nothing_else_gets_in(path: Path) -> None:
    token = add_key(path, "one").reveal()
    keys = Keys(path)
    stored = lines(path)[0]
    wrong = [
        None,
        "",
        "x",
        token[:-1],
        f"{token}x",
        f" {token}",
        f"{token}\n",
        token.upper(),
        token[:-1] + ("A" if token[-1] != "A" else "B"),
        token.replace("tsk-", "tsk_"),
        f"Bearer {token}",
        f"tsk-{'a' * 12}-{'A' * 43}",
        f"tsk-{stored['id']}-{'A' * 43}",
        f"tsk-{stored['id']}-{stored['hash'][:43]}",
        stored["hash"],
        "tsk-\udcff",
        "x" * 1_000_000,
    ]
    assert [None] * len(wrong) == [name_of(keys, one) for one in wrong]
    assert [None] * len(wrong) == [name_of(keys, None, one) for one in wrong]


@given(st.text(max_size=80))
def test_no_text_gets_in_or_raises(text: str) -> None:
    data = b'{"name":"a","id":"aaaaaaaaaaaa","salt":"%s","hash":"%s"}' % (b"0" * 32, b"0" * 64)
    entries = read_entries(data, "keys")
    assert 1 == len(entries)
    assert not entries["aaaaaaaaaaaa"].fits(text.encode("ascii", "ignore").decode())


def test_keys_are_long_and_differ_and_so_do_salts(path: Path) -> None:
    tokens = [add_key(path, f"k{number}").reveal() for number in range(20)]
    assert (
        20
        == len(set(tokens))
        == len({line["salt"] for line in lines(path)})
        == len({line["id"] for line in lines(path)})
    )
    assert all(token.startswith("tsk-") and len(token.split("-", 2)[2]) == 43 for token in tokens)


def test_a_hash_is_of_the_salt_and_the_whole_key() -> None:
    assert hashlib.sha256(b"salttsk-a").digest() == digest_of("tsk-a", b"salt")
    assert digest_of("tsk-a", b"salt") != digest_of("tsk-a", b"tlas")


def test_the_file_holds_no_key_and_only_its_owner_reads_it(path: Path) -> None:
    secret = add_key(path, "one", {"running": 2}, {"losses": "error"})
    text = path.read_text(encoding="utf-8")
    assert secret.reveal() not in text
    assert secret.reveal().split("-", 2)[2] not in text
    assert 0o600 == stat.S_IMODE(path.stat().st_mode)
    (line,) = lines(path)
    assert {"name", "id", "salt", "hash", "created", "limits", "policy"} == set(line)
    assert line["hash"] == digest_of(secret.reveal(), bytes.fromhex(line["salt"])).hex()
    assert [path.name] == [found.name for found in path.parent.iterdir()]


def test_a_key_has_limits_and_policies_of_its_own(path: Path) -> None:
    add_key(path, "plain")
    token = add_key(path, "own", {"running": 2, "wait": "5 s", "tokens_per_minute": 0}, {"losses": "error"}).reveal()
    key = Keys(path).check(token, None)
    assert key
    common = Limits(running=9, queue=7, tokens_per_minute=100, backend_running=3)
    assert Limits(running=2, queue=7, wait=5.0, backend_running=3) == key.limits(common)
    assert Policy(losses="error", hosted_tools="refuse") == key.policy(Policy(hosted_tools="refuse"))
    assert "hash" not in repr(key)


def test_each_limit_but_that_of_backends_can_be_a_keys_own() -> None:
    assert {"backend_running"} == set(fields_of(Limits)) - set(KEY_LIMITS)


@pytest.mark.parametrize(
    ("limits", "policy", "words"),
    [
        ({"runningg": 1}, {}, "did you mean 'running'"),
        ({"backend_running": 1}, {}, "unknown setting 'backend_running'"),
        ({"running": -1}, {}, "running: expected an integer of at least 0, 0 for no limit, found the integer -1"),
        ({}, {"losses": "warn"}, 'losses: expected "ignore", "report" or "error"'),
    ],
)
def test_settings_of_a_key_are_checked_before_it_is_made(
    path: Path, limits: dict[str, Any], policy: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidConfig) as caught:
        add_key(path, "x", limits, policy)
    assert words in str(caught.value)
    assert not path.exists()


@pytest.mark.parametrize("name", ["", " a", "a ", "a\nb", "\x7f", "\udcff", "x" * 65, f"tsk-{'a' * 12}-{'A' * 43}"])
def test_a_key_needs_a_name(path: Path, name: str) -> None:
    with pytest.raises(InvalidConfig, match="a key needs a name"):
        add_key(path, name)


def test_a_name_is_taken_once(path: Path) -> None:
    add_key(path, "one")
    before = path.read_bytes()
    with pytest.raises(InvalidConfig, match="there is a key called 'one' already"):
        add_key(path, "one")
    assert before == path.read_bytes()


def test_a_removed_key_is_out_and_the_rest_of_the_file_stays(path: Path) -> None:
    one, two = add_key(path, "one").reveal(), add_key(path, "two").reveal()
    with path.open("a", encoding="utf-8") as file:
        file.write("\n# a comment\n")
    remove_key(path, "one")
    keys = Keys(path)
    assert [None, "two"] == [name_of(keys, one), name_of(keys, two)]
    assert "# a comment" in path.read_text(encoding="utf-8")
    with pytest.raises(UnknownName, match="did you mean 'two'"):
        remove_key(path, "tow")


def test_rights_stay_and_never_grow(path: Path) -> None:
    add_key(path, "one")
    for mode, expected in ((0o640, 0o640), (0o666, 0o640), (0o400, 0o400)):
        path.chmod(mode)
        add_key(path, f"with {mode}")
        assert expected == stat.S_IMODE(path.stat().st_mode)


def test_what_is_no_plain_file_is_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for change in (lambda: add_key(tmp_path / "pipe", "a"), lambda: remove_key(tmp_path / "pipe", "a")):
        with pytest.raises(InvalidConfig, match="no plain file"):
            change()
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    assert ["pipe"] == os.listdir(tmp_path)


def test_a_link_to_the_file_stays_a_link(path: Path) -> None:
    real = path.with_name("real")
    path.symlink_to(real)
    add_key(path, "one")
    assert path.is_symlink()
    assert 1 == len(Keys(real)) == len(Keys(path))


@pytest.mark.deep
def test_no_change_of_several_processes_is_lost(path: Path) -> None:
    code = """
import sys
from pathlib import Path
from turnscript.gateway.keys import add_key
for number in range(20):
    add_key(Path(sys.argv[1]), f"{sys.argv[2]} {number}")
"""
    running = [subprocess.Popen([sys.executable, "-c", code, str(path), str(start)]) for start in range(3)]
    assert [0, 0, 0] == [process.wait(60) for process in running]
    assert 60 == len(Keys(path))


# Files that change.


def test_a_changed_file_is_taken_over_when_the_clock_says_so(path: Path) -> None:
    clock = Clock()
    one = add_key(path, "one").reveal()
    keys = Keys(path, clock=clock, every=1.0)
    two = add_key(path, "two").reveal()
    remove_key(path, "one")
    assert ["one", None] == [name_of(keys, one), name_of(keys, two)]
    clock.now = 1.0
    assert [None, "two"] == [name_of(keys, one), name_of(keys, two)]


def test_a_reload_does_not_wait_for_the_clock(path: Path) -> None:
    keys_before = add_key(path, "one").reveal()
    keys = Keys(path, clock=Clock())
    remove_key(path, "one")
    assert keys.reload()
    assert name_of(keys, keys_before) is None


@pytest.mark.parametrize("damage", ["cut", "gone", "garbage", "folder"])
def test_a_damaged_file_changes_nothing_until_it_is_good_again(
    path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    clock = Clock()
    one = add_key(path, "one").reveal()
    good = path.read_bytes()
    keys = Keys(path, clock=clock)
    path.unlink()
    if damage == "folder":
        path.mkdir()
    elif damage != "gone":
        path.write_bytes(good[:-20] if damage == "cut" else b"\xff\x00")
    clock.now = 1.0
    assert "one" == name_of(keys, one)
    assert keys.trouble is not None
    assert str(path) in str(keys.trouble)
    assert [f"the file of keys was not read again, the last good keys stay: {keys.trouble}"] == said(caplog)
    assert not keys.reload()
    if damage == "folder":
        path.rmdir()
    path.write_bytes(good.replace(b'"one"', b'"uno"'))
    clock.now = 2.0
    assert ["uno", None] == [name_of(keys, one), keys.trouble]
    assert "the file of keys was read again; keys: 1" == said(caplog)[-1]


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the log says of keys."""
    return [getattr(record, "fields", {}).get("said", "") for record in caplog.records]


def test_a_file_without_keys_lets_nobody_in(path: Path) -> None:
    path.write_text("# none yet\n\n", encoding="utf-8")
    keys = Keys(path)
    assert (0, None) == (len(keys), name_of(keys, f"tsk-{'a' * 12}-{'A' * 43}"))


def test_a_server_does_not_start_without_its_file_of_keys(path: Path) -> None:
    with pytest.raises(InvalidConfig, match="turnscript keys add") as caught:
        Keys(path)
    assert str(path) == caught.value.path


GOOD = {"name": "a", "id": "a" * 12, "salt": "0" * 32, "hash": "0" * 64}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("planted", "not a line of a file of keys"),
        ('{"name": "planted"', "not a line"),
        ('["planted"]', "not a line"),
        (json.dumps(GOOD | {"planted": 1}), "not a line"),
        (json.dumps({key: value for key, value in GOOD.items() if key != "hash"}), "not a line"),
        (json.dumps(GOOD | {"id": "planted"}), "the id is not as"),
        (json.dumps(GOOD | {"hash": "planted"}), "the hash is not as"),
        (json.dumps(GOOD | {"salt": ""}), "the salt is not as"),
        (json.dumps(GOOD | {"name": "a\nb"}), "a key needs a name"),
        (json.dumps(GOOD | {"limits": {"running": "sk-planted"}}), "running: expected an integer"),
        (json.dumps(GOOD | {"policy": {"lossess": "error"}}), "did you mean 'losses'"),
        (json.dumps(GOOD | {"limits": []}), "not a line"),
        ("[" * 5000, "not a line"),
        ('{"name": "\\ud800', "not a line"),
    ],
)
def test_a_bad_line_is_told_with_its_number_and_not_quoted(path: Path, line: str, words: str) -> None:
    path.write_text(f"# keys\n{json.dumps(GOOD | {'id': 'b' * 12, 'name': 'b'})}\n{line}\n", encoding="utf-8")
    with pytest.raises(InvalidConfig) as caught:
        Keys(path)
    assert f"{path}:3" == caught.value.path
    assert words in caught.value.message
    assert "planted" not in f"{caught.value} {caught.value.__dict__}"


def test_two_lines_of_a_name_or_an_id_are_told(path: Path) -> None:
    for other in ({"name": "b"}, {"id": "b" * 12}):
        path.write_text(f"{json.dumps(GOOD)}\n{json.dumps(GOOD | other)}\n", encoding="utf-8")
        with pytest.raises(InvalidConfig, match="is there twice") as caught:
            Keys(path)
        assert f"{path}:2" == caught.value.path


def test_ten_thousand_keys_cost_no_more_than_one(path: Path) -> None:
    token = add_key(path, "one").reveal()
    few = Keys(path)
    with path.open("a", encoding="utf-8") as file:
        for number in range(10_000):
            id_ = "".join("abcdefghij"[int(digit)] for digit in f"{number:012}")
            file.write(json.dumps(GOOD | {"name": f"k{number}", "id": id_}) + "\n")
    begun = run_time()
    many = Keys(path)
    assert run_time() - begun < 5
    assert 10_001 == len(many)

    def cost(keys: Keys) -> float:
        begun = time.perf_counter()
        for _ in range(500):
            assert keys.check(None, token)
        return time.perf_counter() - begun

    cost(few), cost(many)
    assert min(cost(many) for _ in range(5)) < 3 * min(cost(few) for _ in range(5)) + 0.01


def test_an_unknown_id_costs_a_comparison_too(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_key(path, "one")
    keys = Keys(path)
    compared: list[bytes] = []
    real = __import__("hmac").compare_digest

    def counted(first: bytes, second: bytes) -> bool:
        compared.append(second)
        return bool(real(first, second))

    monkeypatch.setattr("turnscript.gateway.keys.hmac.compare_digest", counted)
    assert name_of(keys, f"tsk-{'a' * 12}-{'A' * 43}") is None
    assert 1 == len(compared)


def test_a_made_key_is_a_secret(path: Path) -> None:
    made = add_key(path, "one")
    assert isinstance(made, Secret)
    assert made.reveal() not in repr(made)


def test_a_folder_that_is_not_there_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        add_key(tmp_path / "none" / "keys", "x")


def test_nothing_is_left_behind_where_nothing_can_be_written(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_key(path, "one")
    before = path.read_bytes()

    def full(_file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        add_key(path, "two")
    assert before == path.read_bytes()
    assert [path] == list(path.parent.iterdir())
