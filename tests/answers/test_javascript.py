"""Owns the checks of the way to the JavaScript SDKs: pinned, installed or missed aloud, one process for all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.answers.corpus import BY_NAME
from tests.answers.javascript import FOLDER, JavaScript, JavaScriptMissing, missing
from tests.answers.wires import Server, stream


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project like ours, with its SDKs installed as far as `missing` looks."""
    folder = tmp_path / "js"
    folder.mkdir()
    wanted = {"openai": "7.55.0", "@anthropic-ai/sdk": "1.11.0"}
    (folder / "package.json").write_text(json.dumps({"dependencies": wanted}), encoding="utf-8")
    for name, version in wanted.items():
        place = folder / "node_modules" / name
        place.mkdir(parents=True)
        (place / "package.json").write_text(json.dumps({"version": version}), encoding="utf-8")
    return folder


def test_the_sdks_are_here_in_the_versions_that_are_wanted(project: Path) -> None:
    assert "" == missing(project)
    assert "" == missing()


def test_an_sdk_that_is_not_installed_is_named_with_what_to_do(project: Path) -> None:
    (project / "node_modules" / "openai" / "package.json").unlink()
    expected = "the JavaScript SDK openai 7.55.0 is not installed: run `make setup`, which needs the npm registry"
    assert expected == missing(project)
    with pytest.raises(JavaScriptMissing, match="is not installed: run `make setup`"):
        JavaScript(project)


def test_an_sdk_of_another_version_is_named_with_what_to_do(project: Path) -> None:
    place = project / "node_modules" / "@anthropic-ai/sdk" / "package.json"
    place.write_text('{"version": "1.10.0"}', encoding="utf-8")
    assert missing(project).startswith(
        "the JavaScript SDK @anthropic-ai/sdk is of version 1.10.0, not 1.11.0: run `make"
    )


def test_a_process_that_ends_says_its_last_words(project: Path, server: Server) -> None:
    (project / "oracle.mjs").write_text('throw new Error("no such oracle");', encoding="utf-8")
    with JavaScript(project) as broken, pytest.raises(JavaScriptMissing, match="no such oracle"):
        broken.ask("chat", server)


def test_a_process_is_over_with_its_block(server: Server) -> None:
    with JavaScript() as opened:
        server.serve(stream("chat", BY_NAME["text"]))
        assert opened.ask("chat.stream", server).error is None
        process = opened.process
        assert process.poll() is None
    assert 0 == process.returncode


def test_the_sdks_are_pinned_and_the_lock_names_no_registry() -> None:
    wanted = json.loads((FOLDER / "package.json").read_text(encoding="utf-8"))["dependencies"]
    lock = (FOLDER / "package-lock.json").read_text(encoding="utf-8")
    locked = {path.removeprefix("node_modules/"): one for path, one in json.loads(lock)["packages"].items() if path}
    assert wanted == {name: locked[name]["version"] for name in wanted}
    assert all(one["integrity"] for one in locked.values())
    assert "resolved" not in lock
    assert "://" not in lock
