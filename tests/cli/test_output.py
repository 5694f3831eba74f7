"""Files appear whole or not at all, and keep what they were."""

import json
import os
import stat
from pathlib import Path

import pytest

from tests.cli.running import CHAT, LOSSY, convert, live, process

GOOD = json.dumps(CHAT)
TO_CHAT = ("--to", "openai-chat")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_failed_conversion_leaves_the_old_output_alone(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    out.write_text("old", encoding="utf-8")
    for bad in ("{", '{"messages": 5}'):
        assert 1 == convert(*TO_CHAT, "--output", out, "--losses", tmp_path / "lost", stdin=bad).exit_code
    assert ("old", ["out.json"]) == (out.read_text(encoding="utf-8"), names(tmp_path))


def test_what_a_killed_conversion_left_is_removed_by_the_next_and_what_one_writes_is_not(tmp_path: Path) -> None:
    """Only the system knows who still writes: a file's lock is gone with the process that held it."""

    def parts() -> list[str]:
        return [name for name in names(tmp_path) if name.endswith(".part")]

    def begun() -> str:
        running.send(GOOD.encode() + b"\n")
        running.until(lambda: set(parts()) > {"my.part"})
        [name] = set(parts()) - {"my.part"}
        return name

    (tmp_path / "my.part").touch()
    rows = ("convert", "--lines", *TO_CHAT, "--output", tmp_path / "out.jsonl")
    with live(*rows) as running:
        left = begun()
        running.process.kill()
        running.process.wait()
        assert left in parts()
    assert 0 == convert(*TO_CHAT, "--output", tmp_path / "other.json", stdin=GOOD).exit_code
    assert ["my.part"] == parts()
    with live(*rows) as running:
        mine = begun()
        assert 0 == convert(*TO_CHAT, "--output", tmp_path / "other.json", stdin=GOOD).exit_code
        assert {mine, "my.part"} == set(parts())


def test_a_failure_in_one_file_leaves_none_of_them(tmp_path: Path) -> None:
    result = convert(*TO_CHAT, "--output", tmp_path / "out.json", "--losses", "/dev/full", stdin=json.dumps(LOSSY))
    assert (1, []) == (result.exit_code, names(tmp_path))


def test_a_new_file_has_the_usual_permissions_and_an_old_one_keeps_its_own(tmp_path: Path) -> None:
    new, old = tmp_path / "new.json", tmp_path / "old.json"
    old.touch()
    old.chmod(0o640)
    mask = os.umask(0o022)
    try:
        assert [0, 0] == [convert(*TO_CHAT, "--output", path, stdin=GOOD).exit_code for path in (new, old)]
    finally:
        os.umask(mask)
    assert [0o644, 0o640] == [stat.S_IMODE(path.stat().st_mode) for path in (new, old)]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    target, link = tmp_path / "target.json", tmp_path / "link.json"
    link.symlink_to(target)
    assert 0 == convert(*TO_CHAT, "--output", link, stdin=GOOD).exit_code
    assert link.is_symlink()
    assert CHAT == json.loads(target.read_bytes())


def test_a_device_is_written_and_not_replaced() -> None:
    assert 0 == convert(*TO_CHAT, "--output", os.devnull, stdin=GOOD).exit_code
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "link"])
def test_a_stream_behind_a_redirection_is_written_where_the_shell_says(tmp_path: Path, name: str) -> None:
    if name == "link":
        (tmp_path / name).symlink_to("/dev/stdout")
        name = str(tmp_path / name)
    (tmp_path / "log").write_bytes(b"OLD\n")
    with (tmp_path / "log").open("ab") as log:
        body = json.dumps(LOSSY).encode()
        done = process("convert", *TO_CHAT, "--quiet", "--losses", name, input=body, stdout=log)
    assert (0, b"") == (done.returncode, done.stderr)
    old, converted, *losses = (tmp_path / "log").read_bytes().splitlines()
    assert (b"OLD", True) == (old, "messages" in json.loads(converted))
    assert ["$.top_k"] == [json.loads(line)["path"] for line in losses if b"top_k" in line]


@pytest.mark.parametrize("length", [1, 200, 255])
def test_a_name_may_be_as_long_as_the_system_allows(tmp_path: Path, length: int) -> None:
    out = tmp_path / ("x" * length)
    assert 0 == convert(*TO_CHAT, "--output", out, stdin=GOOD).exit_code
    assert ["x" * length] == names(tmp_path)


def test_a_name_that_is_not_utf_8_is_written_and_shown(tmp_path: Path) -> None:
    name = os.fsdecode(b"\xff.jsonl")
    (tmp_path / name).write_text("{\n", encoding="utf-8")
    result = convert(tmp_path / name, *TO_CHAT, "--output", tmp_path / f"out{name}")
    assert 1 == result.exit_code
    (reject,) = [json.loads(line) for line in (tmp_path / f"out{name}.rejects.jsonl").read_bytes().splitlines()]
    assert reject["file"].endswith("\ufffd.jsonl")
