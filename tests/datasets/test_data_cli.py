"""`turnscript data`: every command from the outside, what it writes, what it says, and how it ends."""

import json
import re
import shutil
import signal
import sys
from pathlib import Path

import pytest

from tests.cli.running import EXAMPLES, live, process, read_rows, rows, run, typed
from tests.cli.test_processes import on_terminal
from tests.datasets.test_data_stats import read
from turnscript.cli.data.group import COMMANDS, EXTRAS
from turnscript.convert.registry import get_format
from turnscript.datasets.encoding import Encoder, Sample
from turnscript.datasets.magic import trainer_change
from turnscript.datasets.opened import open_rows
from turnscript.datasets.tokenizers import get_tokenizer
from turnscript.datasets.train import WORDS, Train

ROWS = EXAMPLES / "training_rows.jsonl"
LINES = ROWS.read_bytes().splitlines(keepends=True)
BAD = (7, 8, 10)
GOOD = b"".join(line for number, line in enumerate(LINES, 1) if number not in BAD)
TO = ("--to", "rwkv-universal", "--tokenizer", "bytes")
OUTPUT_FILES = ("train.bin", "train.idx", "train.mask.bin", "train.mask.idx", "rejects.jsonl", "manifest.json")


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rows.jsonl").write_bytes(GOOD)
    shutil.copy(ROWS, "all.jsonl")


def data(*arguments: str, code: int = 0) -> str:
    """A command of the group in this process; gives its standard output."""
    result = run("data", *arguments)
    assert code == result.exit_code, result.output
    return result.stdout


def built(*arguments: str, code: int = 0) -> str:
    return data("build", *arguments, *TO, "--from", "messages", code=code)


def wrong(*arguments: str) -> str:
    """What is said to a wrong command line."""
    result = run("data", *arguments)
    assert (2, "") == (result.exit_code, result.stdout)
    return result.stderr


def outputs(folder: str) -> dict[str, bytes]:
    return {name: Path(folder, name).read_bytes() for name in OUTPUT_FILES}


# The group and its help.


def test_the_commands_are_the_modules_that_have_one() -> None:
    folder = Path(sys.modules["turnscript.cli.data.group"].__file__ or "").parent
    assert sorted(COMMANDS) == sorted(
        path.stem
        for path in folder.glob("*.py")
        if re.search(r'click\.command\(\s*"', path.read_text(encoding="utf-8"))
    )
    for name in COMMANDS:
        assert re.search(rf"^  {name} +{re.escape(COMMANDS[name])}$", data("--help"), re.MULTILINE)


def help_examples() -> list[str]:
    found = []
    for command in ([], *([name] for name in COMMANDS)):
        section = re.search(r"  Examples:\n((?:    .+\n)+)", run("data", *command, "--help").output)
        assert section, f"{command} has no examples"
        found += [line.strip() for line in section[1].splitlines()]
    return found


@pytest.mark.parametrize("command", ["build", "check", "inspect"])
def test_files_of_a_folder_that_are_not_read_are_named(command: str) -> None:
    Path("chats").mkdir()
    shutil.copy("rows.jsonl", "chats/a.jsonl")
    more = (
        () if command == "inspect" else (*TO, "--from", "messages", *(("--out", "run") if command == "build" else ()))
    )
    assert "not read" not in run("data", command, "chats", *more).stderr
    for name in ("b.csv", "c", "d.md", "e.docx"):
        Path("chats", name).write_text("x", encoding="utf-8")
    said = run("data", command, "chats", *more).stderr
    assert "4 files are not read, because of the name: chats/b.csv, chats/c, chats/d.md and 1 more; " in said
    assert "not read" not in (run("data", command, "chats", *more, "--quiet").stderr if command == "build" else "")


@pytest.mark.parametrize("line", help_examples())
def test_an_example_in_the_help_is_true(line: str) -> None:
    Path("chats").mkdir()
    Path("logs").mkdir()
    for name in ("chats/a.jsonl", "logs/b.json"):
        Path(name).write_bytes(GOOD if name.endswith("l") else b"[" + b",".join(GOOD.splitlines()) + b"]")
    facts = {"inputs": ["rows.jsonl"], "format": "rwkv-universal", "tokenizer": "bytes"}
    Path("plan.toml").write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in facts.items()))
    if " run" in line and " --out run" not in line:
        data("build", "--plan", "plan.toml", "--out", "run")
    code, stdout, stderr = typed(line)
    assert 0 == code, stderr
    assert stdout or "--html" in line or "--shard" in line


@pytest.mark.parametrize("command", COMMANDS)
def test_help_says_every_exit_code_and_ends_well(command: str) -> None:
    text = data(command, "--help")
    assert re.search(r"Exit code:\n    0 .+\n    1 .+\n    2 ", text)
    assert text == data(command, "-h")


def test_a_command_that_is_not_there_is_wrong_usage() -> None:
    assert "no such command 'bild'; did you mean 'build'?" in wrong("bild")
    assert "there are inspect, check, preview" in wrong("zzz")


def test_a_list_of_commands_loads_no_numpy() -> None:
    code = "import sys, turnscript.cli.commands as c; c.group(['data', '--help'], standalone_mode=False)"
    done = process(code=f"{code}; print([name for name in ('numpy', 'pyarrow', 'tokenizers') if name in sys.modules])")
    assert done.stdout.endswith(b"[]\n"), done.stderr


@pytest.mark.parametrize(
    ("package", "arguments"),
    [
        ("numpy", "check rows.jsonl"),
        ("pyarrow", "build rows.jsonl --format parquet"),
        ("ray", "build rows.jsonl --ray"),
    ],
)
def test_a_missing_extra_is_one_line_that_says_what_to_install(package: str, arguments: str) -> None:
    words = ["data", *arguments.split(), *(["--out", "run"] if "build" in arguments else []), *TO]
    code = f"import sys; sys.modules[{package!r}] = None; from turnscript.cli.main import main; main()"
    done = process(*words, code=code)
    assert done.returncode in (1, 2), done.stdout
    assert f"pip install 'turnscript[{EXTRAS[package]}]'" in done.stderr.decode()
    assert b"Traceback" not in done.stderr


# Preview.


def test_the_pieces_of_a_preview_joined_are_the_text_of_the_row() -> None:
    format_ = get_format("rwkv-universal")
    for number, row in enumerate(open_rows("rows.jsonl", "messages"), 1):
        found = json.loads(data("preview", "rows.jsonl", *TO, "--row", str(number), "--json"))
        (example,) = found["examples"]
        text = "".join(run["text"] for run in example["runs"])
        assert format_.render(row.examples[0].request, view="prompt").value == text


def test_a_preview_shows_what_the_encoder_makes() -> None:
    encoder = Encoder(get_format("rwkv-goose"), get_tokenizer("rwkv-world"), Train())
    row = list(open_rows("rows.jsonl", "messages"))[2]
    (sample,) = encoder.encode(row.examples)
    assert isinstance(sample, Sample)
    found = json.loads(
        data("preview", "rows.jsonl", "--to", "rwkv-goose", "--tokenizer", "rwkv-world", "--row", "3", "--json")
    )
    (example,) = found["examples"]
    assert sample.ids.tolist() == [number for run in example["runs"] for number in run["ids"]]
    assert sample.weights.tolist() == [weight for run in example["runs"] for weight in run["weights"]]
    assert (sample.trained, len(sample.ids)) == (example["trained"], example["tokens"])


def test_in_a_pipe_each_piece_has_a_mark_and_a_name() -> None:
    text = data("preview", "rows.jsonl", *TO, "--row", "2")
    assert "\x1b" not in text
    assert re.search(r"^= user 0 +What is 12 times 12\?$", text, re.MULTILINE)
    assert re.search(r"^\+ assistant 1 +144\.$", text, re.MULTILINE)
    assert text.startswith("rows.jsonl, row 2: messages; rwkv-universal, bytes, mode ")


def test_a_message_that_its_row_does_not_want_trained_is_context() -> None:
    text = data("preview", "all.jsonl", *TO, "--row", "5")
    assert re.search(r"^= assistant 1 +Nine\.$", text, re.MULTILINE)
    assert re.search(r"^\+ assistant 3 +You are right\. Seven is\.$", text, re.MULTILINE)


def test_every_token_has_a_line_if_that_is_wanted() -> None:
    text = data("preview", "rows.jsonl", "--to", "rwkv-goose", "--tokenizer", "bytes", "--row", "4", "--tokens")
    lines = text.split("\n\n", 1)[1].splitlines()
    count = re.search(r"^(\d+) tokens, ", text, re.MULTILINE)
    assert count is not None
    assert int(count[1]) == len(lines)
    assert any(line.endswith(r"\xe4") for line in lines), "a piece of a character is an escape"


def test_on_a_terminal_tokens_are_coloured_unless_nobody_wants_that() -> None:
    words = ("preview", "rows.jsonl", *TO, "--row", "2")
    code, seen = on_data_terminal(*words)
    assert (0, True) == (code, "\x1b[" in seen)
    for trained in "144.":
        assert re.search(rf"\x1b\[38;5;16m\x1b\[48;5;(114|150)m{re.escape(trained)}\x1b\[0m", seen)
    assert "\x1b" not in on_data_terminal(*words, NO_COLOR="1")[1]


def on_data_terminal(*arguments: str, **variables: str) -> tuple[int, str]:
    return on_terminal("data", *arguments, stdin=b"", stdout=True, also=variables)


def test_the_page_of_a_preview_is_a_file() -> None:
    result = run("data", "preview", "rows.jsonl", *TO, "--html", "row.html")
    assert (0, "") == (result.exit_code, result.stdout)
    assert "rows.jsonl, row 1" in read(Path("row.html").read_text(encoding="utf-8")).said


@pytest.mark.parametrize(("row", "code"), [(7, "E_ARGS"), (8, "E_JSON"), (10, "E_NO_TRAINED_TOKEN")])
def test_a_row_that_cannot_be_used_says_why(row: int, code: str) -> None:
    assert code in data("preview", "all.jsonl", *TO, "--row", str(row), code=1)


def test_a_row_that_is_not_there_is_bad_input() -> None:
    result = run("data", "preview", "rows.jsonl", *TO, "--row", "99")
    assert (1, "") == (result.exit_code, result.stdout)
    assert "99" in result.stderr


# Build, merge, check.


def test_every_row_is_written_a_duplicate_or_set_aside() -> None:
    text = built("all.jsonl", "--out", "run", "--dedup", "exact", code=1)
    assert re.search(r"^all\.jsonl +messages +10 +6 +1 +3$", text, re.MULTILINE)
    report = json.loads(Path("run/manifest.json").read_text(encoding="utf-8"))["report"]
    assert (10, 6, 1, 3) == (report["rows"], report["written"], report["duplicates"], sum(report["rejected"].values()))
    rejects = read_rows(Path("run/rejects.jsonl"))
    assert list(BAD) == [reject["line"] for reject in rejects]
    assert [LINES[line - 1].rstrip(b"\n").decode() for line in BAD] == [reject["row"] for reject in rejects]
    for reject in rejects:
        assert reject["code"] in text
        assert f"all.jsonl:{reject['line']}: " in text


def test_good_rows_end_well_and_a_quiet_build_says_nothing() -> None:
    result = run("data", "build", "rows.jsonl", *TO, "--out", "run", "--quiet")
    assert (0, "", "") == (result.exit_code, result.stdout, result.stderr)
    assert Path("run/train.bin").exists()


def test_programs_get_the_report_as_json() -> None:
    found = json.loads(built("all.jsonl", "--out", "run", "--json", "--ctx-len", "16", code=1))
    assert (10, 3) == (found["report"]["rows"], sum(found["report"]["rejected"].values()))
    assert found["trainer_line"].startswith(f"--my_exit_tokens {found['report']['tokens']} --magic_prime ")
    assert found["trainer_line"].endswith(" --ctx_len 16")
    assert {"E_ARGS", "E_JSON", "E_NO_TRAINED_TOKEN"} == set(found["rejects"])


def test_the_trainers_line_is_there_or_why_it_is_not() -> None:
    assert "RWKV-LM: --data_type binidx --data_file run/train --my_exit_tokens " in built(
        "rows.jsonl", "--out", "run", "--ctx-len", "16"
    )
    assert "RWKV-LM: no magic prime: " in built("rows.jsonl", "--out", "run", "--ctx-len", "100000")
    assert "RWKV-LM" not in built("rows.jsonl", "--out", "other", "--format", "jsonl")


@pytest.mark.parametrize("more", [(), ("--pack", "stream:64"), ("--repeat", "2")])
def test_the_repetition_that_is_named_is_what_to_write(more: tuple[str, ...]) -> None:
    refused = built("rows.jsonl", "--out", "run", "--ctx-len", "256", *more)
    (named,) = re.findall(r"; (--repeat) (\d+) would do$", refused, re.MULTILINE)
    assert " --magic_prime " in built("rows.jsonl", "--out", "run", "--ctx-len", "256", *more, *named)


def test_how_the_trainer_reads_the_mask_is_said() -> None:
    """Without it the mask is a file that nobody opens."""
    said = built("rows.jsonl", "--out", "run", "--ctx-len", "16", "--weights", "scaled")
    change = trainer_change(255)
    assert said.endswith("".join(f"  {line}\n" for line in change.splitlines()))
    assert change == json.loads(built("rows.jsonl", "--out", "run", "--weights", "scaled", "--json"))["trainer_change"]
    whole = ("rows.jsonl", "--out", "whole", "--ctx-len", "16", "--train", "all,end,no-flags")
    assert "change" not in built(*whole)
    assert "" == json.loads(built(*whole, "--json"))["trainer_change"]


@pytest.mark.usefixtures("forked_workers")
def test_workers_and_shards_do_not_change_a_byte() -> None:
    built("all.jsonl", "--out", "one", code=1)
    built("all.jsonl", "--out", "two", "--workers", "2", "--shards", "5", code=1)
    assert outputs("one") == outputs("two")


def test_parts_and_a_merge_are_a_build() -> None:
    built("all.jsonl", "--out", "one", code=1)
    for part in ("1/2", "2/2"):
        result = run(
            "data", "build", "all.jsonl", *TO, "--from", "messages", "--out", "two", "--shards", "4", "--shard", part
        )
        assert 0 == result.exit_code, result.output
        assert f"part {part[0]} of 2 is done" in result.stderr
        assert "turnscript data merge two" in result.stderr
        if part == "1/2":
            early = run("data", "merge", "two")
            assert (1, True) == (early.exit_code, "2 of 4 shards are not finished: 2, 4" in early.stderr)
    assert "REJECTED" in data("merge", "two", code=1)
    assert outputs("one") == outputs("two")


def test_a_plan_in_a_file_is_the_options_and_options_go_before_it() -> None:
    Path("plan.toml").write_text(
        'inputs = ["all.jsonl"]\nformat = "rwkv-universal"\ntokenizer = "bytes"\nform = "messages"\ndedup = "exact"\n',
        encoding="utf-8",
    )
    data("build", "--plan", "plan.toml", "--out", "one", code=1)
    built("all.jsonl", "--out", "two", "--dedup", "exact", code=1)
    assert outputs("one") == outputs("two")
    data("build", "--plan", "plan.toml", "--dedup", "none", "rows.jsonl", "--out", "three")
    report = json.loads(Path("three/manifest.json").read_text(encoding="utf-8"))["report"]
    assert (7, 7) == (report["rows"], report["written"])


def test_a_fault_in_a_plan_file_names_the_file_and_the_field() -> None:
    Path("plan.toml").write_text('format = "x"\nspeed = 7\n', encoding="utf-8")
    result = run("data", "build", "--plan", "plan.toml", "--out", "run")
    assert 1 == result.exit_code
    assert "plan.toml" in result.stderr


def test_a_build_can_stop_at_the_first_bad_row() -> None:
    result = run("data", "build", "all.jsonl", *TO, "--from", "messages", "--out", "run", "--on-bad", "stop")
    assert (1, "") == (result.exit_code, result.stdout)
    assert "all.jsonl, row 7" in result.stderr
    assert "E_ARGS" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["rows.jsonl", "--tokenizer", "bytes", "--out", "run"], "missing --to or --template; say it"),
        (["rows.jsonl", "--out", "run"], "missing --to or --template and --tokenizer; say it"),
        ([*TO, "--out", "run"], "missing PATH; say it"),
        (["rows.jsonl", *TO], "--out"),
        (["rows.jsonl", *TO, "--out", "run", "--pack", "best:9"], "choose none, bfd:4096 or stream:4096"),
        (["rows.jsonl", *TO, "--out", "run", "--overflow", "cut"], "--overflow: 'cut' needs max_tokens"),
        (["rows.jsonl", *TO, "--out", "run", "--shard", "3/2"], "write the first of 64 as 1/64"),
        (["rows.jsonl", *TO, "--out", "run", "--shard", "0/2"], "write the first of 64 as 1/64"),
        (["rows.jsonl", *TO, "--out", "run", "--workers", "0.5"], "neither a number from 1 on nor auto"),
        (["rows.jsonl", *TO, "--out", "run", "--format", "binidx,,jsonl"], "empty name"),
        (["rows.jsonl", *TO, "--out", "run", "--shard", "1/2", "--ray"], "--ray and --shard"),
        ([*TO, "--out", "run", "rows.jsonl", "--ray", "rows.jsonl"], "name the inputs before --ray"),
        (["rows.jsonl", "--to", "rwkv-goos", "--tokenizer", "bytes", "--out", "run"], "did you mean 'rwkv-goose'"),
        (["rows.jsonl", *TO, "--out", "run", "--format", "binidxx"], "did you mean 'binidx'"),
        (["rows.jsonl", *TO, "--out", "run", "--train", "assistants"], "'assistants' is nothing that can be trained"),
    ],
)
def test_a_wrong_command_line_says_what_to_write_and_writes_nothing(arguments: list[str], said: str) -> None:
    assert said in wrong("build", *arguments)
    assert not Path("run").exists()


def test_check_says_what_a_build_says_and_keeps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    room = tmp_path / "room"
    room.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(room))
    before = sorted(path.name for path in Path().iterdir())
    checked = data("check", "all.jsonl", *TO, "--dedup", "exact", "--ctx-len", "16", code=1)
    assert before == sorted(path.name for path in Path().iterdir())
    assert [] == list(room.iterdir())
    written = built("all.jsonl", "--out", "run", "--dedup", "exact", "--ctx-len", "16", code=1)
    common = [line for line in written.splitlines() if not line.startswith(("in run:", "RWKV-LM"))]
    assert [] == [line for line in common if line not in checked.splitlines()]
    (line,) = re.findall(r"^RWKV-LM: .*$", written, re.MULTILINE)
    assert line.replace("--data_type binidx --data_file run/train ", "") in checked.splitlines()


def test_check_gives_programs_figures_too() -> None:
    found = json.loads(data("check", "rows.jsonl", *TO, "--json"))
    assert found["report"]["tokens"] == found["stats"]["tokens"]
    assert found["report"]["trained"] == found["stats"]["trained_tokens"]
    assert {"assistant", "user"} <= set(found["stats"]["roles"])


def test_a_file_without_rows_is_looked_at_like_any_other() -> None:
    Path("empty.jsonl").write_bytes(b"")
    assert "no row was usable" in data("check", "empty.jsonl", *TO, code=1)
    whole = json.loads(data("check", "rows.jsonl", "empty.jsonl", *TO, "--json"))
    assert whole["stats"] == json.loads(data("check", "rows.jsonl", *TO, "--json"))["stats"]


def test_the_help_names_every_word_of_what_is_trained() -> None:
    told = " ".join(data("build", "--help").split())
    assert f"with commas: {', '.join(WORDS)}" in told


# Stats, verify, tokens.


def test_the_figures_are_there_without_the_map() -> None:
    roles = '[roles]\nuser = "user"\nassistant = "assistant"\n'
    fields = 'messages = "messages"\nrole = "role"\ncontent = "content"\n'
    Path("map.toml").write_text(fields + roles, encoding="utf-8")
    Path("two.jsonl").write_bytes(b"".join(LINES[place] for place in (1, 3)))
    data("build", "two.jsonl", *TO, "--map", "map.toml", "--out", "run")
    whole = json.loads(data("stats", "run", "--json"))
    Path("map.toml").unlink()
    found = json.loads(data("stats", "run", "--json"))
    assert (whole["tokens"], 0) == (found["tokens"], found["looked_at"])


def test_the_figures_are_those_of_the_report() -> None:
    built("all.jsonl", "--out", "run", code=1)
    report = json.loads(Path("run/manifest.json").read_text(encoding="utf-8"))["report"]
    found = json.loads(data("stats", "run", "--json"))
    for ours, theirs in (("samples", "samples"), ("tokens", "tokens"), ("trained_tokens", "trained")):
        assert report[theirs] == found[ours]
    assert report["rejected"] == found["rejects"]
    assert {"messages": 10} == found["forms"]
    assert all(share["trained"] <= share["tokens"] for share in found["roles"].values())
    assert 0 == found["roles"]["user"]["trained"]
    text = data("stats", "run")
    assert f"{report['samples']} samples, {report['tokens']:,} tokens, {report['trained']:,} (" in text


def test_the_figures_are_there_without_the_inputs() -> None:
    built("rows.jsonl", "--out", "run")
    Path("rows.jsonl").unlink()
    found = json.loads(data("stats", "run", "--json"))
    assert (7, {}) == (found["samples"], found["roles"])


def test_packed_documents_are_counted_beside_their_windows() -> None:
    built("rows.jsonl", "--out", "run", "--pack", "stream:64")
    found = json.loads(data("stats", "run", "--json"))
    assert (64, 64, 7) == (found["length"]["shortest"], found["length"]["longest"], found["documents"])
    assert "7 documents are packed in them" in data("stats", "run")


def test_the_page_of_figures_is_a_file() -> None:
    built("rows.jsonl", "--out", "run")
    assert "" == data("stats", "run", "--html", "stats.html")
    assert any("7 samples" in text for text in read(Path("stats.html").read_text(encoding="utf-8")).said)


@pytest.mark.parametrize("command", ["stats", "verify", "merge"])
def test_a_folder_without_a_build_is_bad_input(command: str) -> None:
    result = run("data", command, "nowhere")
    assert (1, "") == (result.exit_code, result.stdout)
    assert "nowhere" in result.stderr


def test_verify_finds_nothing_wrong_and_then_what_was_changed() -> None:
    built("rows.jsonl", "--out", "run")
    assert "everything is as it should be" in data("verify", "run")
    assert json.loads(data("verify", "run", "--json"))["ok"] is True
    mask = Path("run/train.mask.bin")
    mask.write_bytes(bytes(1 - byte for byte in mask.read_bytes()))
    result = run("data", "verify", "run")
    assert 1 == result.exit_code
    assert "wrong: train.mask.bin: " in result.stderr
    found = json.loads(data("verify", "run", "--json", code=1))
    assert (False, True) == (found["ok"], found["faults"] > 1)


def test_tokens_are_told_and_a_written_file_is_a_tokenizer() -> None:
    words = ("tokens", "--to", "openchatml", "--tokenizer", "rwkv-world")
    told = json.loads(data(*words, "--json"))
    assert [65530 + at for at in range(6)] == sorted(told["added"].values()) == told["train"]
    assert not Path("tokens.json").exists()
    result = run("data", *words, "--write", "tags.json")
    spec = re.search(r"use it as --tokenizer (\S+)", result.stderr)
    assert spec is not None
    assert told["added"].items() <= dict(get_tokenizer(spec[1]).controls).items()
    found = json.loads(data("preview", "rows.jsonl", "--to", "openchatml", "--tokenizer", spec[1], "--json"))
    assert "ids" == found["mode"]


# Being interrupted.


@pytest.mark.deep
@pytest.mark.long
def test_a_build_that_is_interrupted_says_how_to_go_on_and_does() -> None:
    Path("many.jsonl").write_bytes(GOOD * 4000)
    words = ("data", "build", "many.jsonl", *TO, "--out", "run", "--workers", "1", "--shards", "12")
    with live(*words) as command:
        command.until(lambda: any(Path("run/shards").glob("*.json")) if Path("run/shards").exists() else False)
        command.process.send_signal(signal.SIGINT)
        code = command.wait()
        said = command.stderr.read().decode()
    assert 130 == code, said
    assert "To go on: turnscript data build many.jsonl" in said
    assert "Traceback" not in said
    made = {path.name: path.stat().st_mtime_ns for path in Path("run/shards").glob("*.json")}
    assert 0 < len(made) < 12
    assert 0 == process(*words).returncode
    assert 0 == process(*words[:5], *TO[2:], "--out", "whole", *words[-4:-2]).returncode
    assert outputs("whole") == outputs("run")


def test_rows_of_two_files_are_told_apart() -> None:
    Path("more.jsonl").write_bytes(rows(*[json.loads(line) for line in GOOD.splitlines()][:2]))
    text = built("rows.jsonl", "more.jsonl", "--out", "run")
    assert re.search(r"^more\.jsonl +messages +2 +2 +0 +0$", text, re.MULTILINE)
    assert re.search(r"^all +9 +9 +0 +0$", text, re.MULTILINE)
