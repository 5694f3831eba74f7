"""`turnscript detect`: formats with their reasons, unknown models as errors, rules of further formats."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import turnscript as ts
from tests.chat_templates import reading_samples
from tests.cli.running import EXAMPLES, as_nobody, process, run
from tests.clues import template_of
from tests.modelfiles import folder, header, text
from turnscript.detection import nearness

UNIVERSAL = "rwkv7-universal-1.5b-20251001"

PLUGIN = """
from msgspec.structs import replace
from turnscript.core.clues import Clue
from turnscript.formats.rwkv_universal import FORMATS as BASE

FORMATS = (
    replace(
        BASE[0],
        name="zebra",
        clues=(
            Clue(rule="stripes", evidence="stem", pattern="", reason="everything has stripes"),
            Clue(evidence="name", pattern="zebra", order=1, thinks="zebra", reason="it says so"),
        ),
    ),
)
"""


def test_the_format_is_shown_with_the_reason() -> None:
    result = run("detect", UNIVERSAL)
    assert (0, "") == (result.exit_code, result.stderr)
    heads, row = result.stdout.splitlines()
    assert ["MODEL", "FORMAT", "THINKING", "WHY"] == heads.split()
    assert [UNIVERSAL, "rwkv-universal", "unknown"] == row.split()[:3]
    assert row.endswith(ts.detect(UNIVERSAL).reason)


def test_programs_read_everything_as_json() -> None:
    result = run("detect", UNIVERSAL, "--json")
    detected = ts.detect(UNIVERSAL)
    expected = {
        "model": UNIVERSAL,
        "format": "rwkv-universal",
        "reason": detected.reason,
        "thinking": None,
        "date": "20251001",
        "family": detected.family,
        "variant": None,
        "evidence": "name",
        "guess": False,
        **dict.fromkeys(("exact", "right", "asked", "variables", "recurrent", "nearness", "missing_tokens")),
        "learned": False,
    }
    assert [expected] == json.loads(result.stdout)


def test_files_and_folders_are_looked_into(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(header(text("tokenizer.chat_template", template_of("rwkv-universal"))))
    place = folder(tmp_path / "m", tokenizer_config={"chat_template": template_of("rwkv-universal")})
    result = run("detect", path, place, "--json")
    told = json.loads(result.stdout)
    assert (0, [("rwkv-universal", True)] * 2) == (
        result.exit_code,
        [(one["format"], one["thinking"]) for one in told],
    )
    assert [(True, False)] * 2 == [(one["exact"], one["guess"]) for one in told]


@pytest.mark.deep
def test_how_near_the_prompts_are_to_the_template_is_told(tmp_path: Path) -> None:
    place = tmp_path / "model.jinja"
    place.write_text(template_of("qwen3"), encoding="utf-8")
    result = run("detect", place, "--json")
    near = json.loads(result.stdout)[0]["nearness"]
    assert (near["equal"], []) == (near["asked"], near["differences"])
    assert near["asked"] == len(nearness.examples())
    shown = run("detect", place).stdout
    assert f"  prompts equal the model's own template: {near['asked']} of {near['asked']} probes\n" in shown
    assert "enable_thinking" in shown
    assert "the model has no state that cannot go back" in shown


@pytest.mark.deep
def test_a_model_with_a_state_is_told(tmp_path: Path) -> None:
    values = text("general.architecture", "rwkv7"), text("tokenizer.chat_template", template_of("rwkv-goose"))
    path = tmp_path / "model.gguf"
    path.write_bytes(header(*values))
    assert "its turns are kept as they were generated: the model has a state" in run("detect", path).stdout


def test_a_learned_table_is_one_that_can_be_used(tmp_path: Path) -> None:
    place = tmp_path / "model.jinja"
    place.write_text(reading_samples.NAMED, encoding="utf-8")
    result = run("detect", place)
    assert (0, "") == (result.exit_code, result.stderr)
    assert ["learned", "yes"] == result.stdout.splitlines()[1].split()[1:3]


def test_a_guess_is_called_a_guess() -> None:
    result = run("detect", "QwQ-32B")
    assert 1 == result.exit_code
    assert "QwQ-32B  qwen3-thinking (a guess)  yes" in result.stdout
    assert result.stderr.startswith("turnscript: error: QwQ-32B: qwen3-thinking is a guess: its name has 'qwq': ")
    assert "name its chat template" in result.stderr
    assert True is json.loads(run("detect", "QwQ-32B", "--json").stdout)[0]["guess"]


def test_a_broken_template_is_told_with_its_line(tmp_path: Path) -> None:
    place = tmp_path / "model.jinja"
    place.write_text("{% for m in messages %}\n{{ m.content }\n{% endfor %}", encoding="utf-8")
    result = run("detect", place)
    assert (1, "") == (result.exit_code, result.stdout)
    assert f"{place}, line 2" in result.stderr
    assert "mend the template there" in result.stderr


@pytest.mark.deep
@pytest.mark.parametrize("name", ["llama-3-8b.gguf", "model.gguf", "qwen3-8b.gguf"])
def test_the_name_of_a_file_changes_nothing(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(header(text("tokenizer.chat_template", template_of("glm"))))
    assert "glm" == json.loads(run("detect", path, "--json").stdout)[0]["format"]


def test_an_unknown_model_is_an_error_and_the_others_are_still_shown() -> None:
    result = run("detect", "no-such-family", UNIVERSAL, "nothing-known")
    assert 1 == result.exit_code
    assert 2 == len(result.stdout.splitlines())
    assert result.stderr.startswith(
        "turnscript: error: no-such-family: cannot tell the format: "
        "no known format has a clue for the name 'no-such-family'\n"
        "  choose one that `turnscript formats` lists\n"
    )
    assert "turnscript: error: nothing-known: cannot tell the format: " in result.stderr


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("models/nothing-known.gguf", "there is no such file, and no known"),
        ("./nothing-known", "there is no such file, and no known"),
        ("some/nothing-known", "no known"),
        ("there", "this folder has no tokenizer_config.json or config.json, and no known"),
    ],
)
def test_a_file_that_is_not_there_is_told(
    model: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("there").mkdir()
    result = run("detect", model)
    assert (1, True) == (result.exit_code, f"{model}: cannot tell the format: {said} " in result.stderr), result.stderr


def test_an_empty_name_is_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("detect", "")
    assert 1 == result.exit_code
    assert result.stderr.startswith("turnscript: error: cannot tell the format: no known format has a clue for a model")


def test_without_any_known_model_there_is_no_table() -> None:
    result = run("detect", "no-such-family")
    assert (1, "") == (result.exit_code, result.stdout)


def test_in_json_an_unknown_model_has_no_format() -> None:
    result = run("detect", "no-such-family", "--json")
    assert (1, [None]) == (result.exit_code, [one["format"] for one in json.loads(result.stdout)])
    assert "cannot tell the format" in result.stderr


def test_a_bad_file_is_told_and_the_others_are_still_shown(tmp_path: Path) -> None:
    path = tmp_path / "universal.gguf"
    path.write_bytes(b"GGUF\x03\x00\x00\x00")
    result = run("detect", path, UNIVERSAL)
    assert (1, 2) == (result.exit_code, len(result.stdout.splitlines()))
    assert result.stderr.startswith(f"turnscript: error: {path}: the file ends after 8 bytes, inside the number of ")


def test_a_file_that_may_not_be_read_is_told(tmp_path: Path) -> None:
    path = tmp_path / "universal.gguf"
    path.write_bytes(header())
    path.chmod(0)
    with as_nobody():
        result = run("detect", path)
    assert (1, "") == (result.exit_code, result.stdout)
    assert f"turnscript: error: {path}: cannot read this: permission denied" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "missing argument 'MODEL...'"),
        (["m", "--rule", "defaultt"], "invalid value for '--rule': 'defaultt' is not one of "),
        (["m", "--rules"], "no such option '--rules'"),
    ],
)
def test_wrong_usage_is_told(arguments: list[str], message: str) -> None:
    result = run("detect", *arguments)
    assert (2, "") == (result.exit_code, result.stdout)
    assert result.stderr.startswith(f"turnscript: error: {message}")


def test_a_name_that_would_move_the_cursor_is_shown_as_escapes() -> None:
    result = run("detect", "universal\x1b[2J", "none\x1b[2J")
    assert "\x1b" not in result.stdout + result.stderr
    assert r"universal\x1b[2J" in result.stdout


@pytest.mark.deep
def test_a_name_of_other_bytes_than_utf_8_is_no_trouble() -> None:
    for options in ([], ["--json"]):
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                "from turnscript.cli.main import main; main()",
                "detect",
                b"rwkv-universal-\xff",
                *options,
            ],
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert (0, b"") == (done.returncode, done.stderr)
        assert b"universal-?" in done.stdout


@pytest.fixture
def plugin(tmp_path: Path) -> dict[str, str]:
    """The environment of a process that has one more format, installed as a package of its own."""
    (tmp_path / "zebra_format.py").write_text(PLUGIN, encoding="utf-8")
    metadata = tmp_path / "zebra-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: zebra\nVersion: 1\n", encoding="utf-8")
    (metadata / "entry_points.txt").write_text("[turnscript.formats]\nzebra = zebra_format:FORMATS\n", encoding="utf-8")
    paths = [str(tmp_path), os.environ.get("PYTHONPATH", "")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}


@pytest.mark.deep
def test_a_format_from_elsewhere_brings_its_own_clues_and_rules(plugin: dict[str, str]) -> None:
    done = process("detect", "zebra-7b", "--json", env=plugin)
    assert ("zebra", True) == tuple(json.loads(done.stdout)[0][key] for key in ("format", "thinking"))
    done = process("detect", "--rule", "stripes", UNIVERSAL, env=plugin)
    assert 0 == done.returncode, done.stderr.decode()
    assert [UNIVERSAL, "zebra", "unknown", "everything"] == done.stdout.decode().splitlines()[1].split()[:4]
    assert b"'default'" in process("detect", "--rule", "spots", "m", env=plugin).stderr
    assert b"'stripes'" in process("detect", "--rule", "spots", "m", env=plugin).stderr


def test_formats_in_a_file_bring_their_clues(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    clue = '{ evidence = "name", pattern = "okapi", reason = "so" }'
    path.write_text(f'[[format]]\nname = "stripes"\nbased_on = "rwkv-universal"\nclue = [{clue}]\n', "utf-8")
    result = run("detect", "okapi-7b", "--formats", path, "--json")
    assert (0, "stripes") == (result.exit_code, json.loads(result.stdout)[0]["format"])
    assert 1 == run("detect", "okapi-7b").exit_code
    missing = run("detect", "okapi-7b", "--formats", tmp_path / "none.toml")
    assert (1, "") == (missing.exit_code, missing.stdout)
    assert "cannot read the format file" in missing.stderr


def own_file(path: Path, clue: str) -> Path:
    """A file with one format, and a clue that fits any okapi."""
    head = 'name = "stripes"\nbased_on = "rwkv-universal"'
    path.write_text(f"[[format]]\n{head}\n{clue}\n", "utf-8")
    return path


OKAPI = 'clue = [{{ evidence = "stem", pattern = "okapi", reason = "so", order = 0, rule = "{rule}" }}]'


def test_formats_in_a_file_count_for_the_rules_that_their_clues_name(tmp_path: Path) -> None:
    """R-B-5: another program's rule is its own, unless a clue says that it belongs there."""
    told = own_file(tmp_path / "told.toml", OKAPI.format(rule="batuta"))
    result = run("detect", "okapi-7b", "--rule", "batuta", "--formats", told, "--json")
    assert (0, "stripes") == (result.exit_code, json.loads(result.stdout)[0]["format"])
    result = run("detect", "okapi-7b", "--rule", "batuta", "--json")
    assert (0, "batuta-chatml") == (result.exit_code, json.loads(result.stdout)[0]["format"])


def test_a_file_may_bring_a_rule(tmp_path: Path) -> None:
    path = own_file(tmp_path / "own.toml", OKAPI.format(rule="mine"))
    result = run("detect", "okapi-7b", "--rule", "mine", "--formats", path, "--json")
    assert (0, "stripes") == (result.exit_code, json.loads(result.stdout)[0]["format"])
    result = run("detect", "okapi-7b", "--rule", "mines", "--formats", path)
    assert (2, "") == (result.exit_code, result.stdout)
    assert "invalid value for '--rule': 'mines' is not one of 'batuta', 'default', 'mine'" in result.stderr


@pytest.mark.parametrize("rule", ["default", "batuta"])
@pytest.mark.parametrize("clue", ["", OKAPI.format(rule="other")])
def test_a_file_without_a_clue_of_the_rule_is_wrong_usage(tmp_path: Path, rule: str, clue: str) -> None:
    """Nothing in it could count, which nobody asks for."""
    path = own_file(tmp_path / "own.toml", clue)
    result = run("detect", "okapi-7b", "--formats", path, *(["--rule", rule] if rule != "default" else []))
    assert (2, "") == (result.exit_code, result.stdout)
    assert f"invalid value for '--formats': {path} has no clue of the rule {rule!r}" in result.stderr
    assert f'[[format.clue]] with rule = "{rule}"' in result.stderr


@pytest.mark.deep
def test_a_rule_that_goes_by_the_file_name_does_not_read_the_file(tmp_path: Path, plugin: dict[str, str]) -> None:
    """R-B-2."""
    path = tmp_path / "no-model.gguf"
    path.write_bytes(b"not GGUF")
    assert 0 == process("detect", "--rule", "stripes", path, env=plugin).returncode
    assert 1 == process("detect", path, env=plugin).returncode


def test_a_shell_can_complete_rules(plugin: dict[str, str]) -> None:
    variables = {
        "_TURNSCRIPT_COMPLETE": "bash_complete",
        "COMP_WORDS": "turnscript detect --rule str",
        "COMP_CWORD": "3",
    }
    assert b"plain,stripes\n" == process(env=plugin | variables).stdout


def examples() -> list[list[str]]:
    """Every command line under `Examples:` in the help."""
    section = re.search(r"  Examples:\n((?:    .+\n)+)", run("detect", "--help").output)
    assert section
    return [line.split() for line in section[1].splitlines()]


@pytest.mark.parametrize("line", examples(), ids=" ".join)
def test_an_example_in_the_help_is_true(line: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert "turnscript" == line[0]
    monkeypatch.chdir(EXAMPLES)
    result = run(*line[1:])
    assert (0, "") == (result.exit_code, result.stderr)
    assert result.stdout
