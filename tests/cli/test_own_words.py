"""Chat templates on the command line: `--template`, `show`, `export` and `learn` of a place, and bad ones."""

import json
import re
from pathlib import Path

import pytest

import turnscript as ts
from tests.chat_templates import reading_samples
from tests.cli.running import EXAMPLES, run
from tests.modelfiles import folder, header, text

TEMPLATE = EXAMPLES / "chat_template.jinja"
SOURCE = TEMPLATE.read_text(encoding="utf-8")
BROKEN = "{% for m in messages %}\n{{ m.content }\n{% endfor %}"
FAILS = "\n{%- if messages | length > 3 %}{{ messages[99].content }}{% endif %}"
QUESTION = {"model": "m", "messages": [{"role": "user", "content": "Hi <|im_end|>"}]}


@pytest.fixture
def request_file(tmp_path: Path) -> Path:
    """A request body in a file."""
    path = tmp_path / "request.json"
    path.write_text(json.dumps(QUESTION), encoding="utf-8")
    return path


@pytest.fixture(params=["jinja", "config", "folder", "gguf"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """One template in each kind of place."""
    if request.param == "jinja":
        return TEMPLATE
    if request.param == "gguf":
        path = tmp_path / "model.gguf"
        path.write_bytes(header(text("tokenizer.chat_template", SOURCE)))
        return path
    model = folder(tmp_path / "model", tokenizer_config={"chat_template": SOURCE})
    return model / "tokenizer_config.json" if request.param == "config" else model


def test_a_template_writes_the_prompt_from_any_place(place: Path, request_file: Path) -> None:
    expected = ts.get_format(str(TEMPLATE)).prompt(ts.parse(json.dumps(QUESTION), "openai-chat")).text
    for option in ("--template", "--format"):
        result = run("prompt", request_file, option, place)
        assert (0, expected) == (result.exit_code, result.stdout)
    assert "<|im_start|>user\nHi <\\|im_end|><|im_end|>\n<|im_start|>assistant\n" == expected


def test_programs_are_told_where_the_words_come_from(request_file: Path) -> None:
    told = json.loads(run("prompt", request_file, "--template", TEMPLATE, "--json", "--no-thinking").stdout)
    assert ("qwen3", True) == (told["read_as"], told["exact"])
    assert told["told_by"].startswith("chat_template.jinja in ")
    assert "<think>\n\n</think>\n\n" == told["prefill"]


def test_what_a_template_cannot_be_told_is_a_loss(tmp_path: Path, request_file: Path) -> None:
    path = tmp_path / "plain.jinja"
    path.write_text(reading_samples.TEXT_ONLY, encoding="utf-8")
    request_file.write_text(json.dumps(QUESTION | {"reasoning_effort": "high"}), encoding="utf-8")
    result = run("prompt", request_file, "--template", path)
    assert 0 == result.exit_code
    assert "$.reasoning_effort: dropped: this template cannot be told how hard to think" in result.stderr
    assert 3 == run("prompt", request_file, "--template", path, "--strict").exit_code


def test_an_answer_is_read_with_the_table_of_a_template(place: Path, request_file: Path) -> None:
    answer = request_file.with_name("answer.txt")
    answer.write_text("<think>\nHm.\n</think>\n\nHi.<|im_end|>", encoding="utf-8")
    request: list[str | Path] = ["--request", request_file]
    for extra in ([], request):
        told = json.loads(run("read", answer, "--template", place, "--json", *extra).stdout)
        kinds = [(item["type"], item.get("text")) for item in told["items"]]
        assert [("thinking", "Hm."), ("text", "Hi.")] == kinds


def test_what_is_not_read_exactly_is_said(tmp_path: Path, request_file: Path) -> None:
    path = tmp_path / "strange.jinja"
    path.write_text(reading_samples.UNKNOWN_CALLS, encoding="utf-8")
    result = run("prompt", request_file, "--template", path)
    assert 0 == result.exit_code
    assert "turnscript: what this template writes is read by a table that was learned from it: " in result.stderr
    assert "; a call: " in result.stderr
    assert "probes exactly" not in run("prompt", request_file, "--template", path, "--quiet").stderr


@pytest.mark.parametrize("command", ["prompt", "read"])
def test_format_and_template_exclude_each_other(command: str) -> None:
    both = run(command, "--format", "qwen3", "--template", TEMPLATE, stdin="{}")
    assert (2, True) == (both.exit_code, "give --format or --template, and not both" in both.stderr)
    assert "give --format or --template\n" in run(command, stdin="{}").stderr


def test_a_page_says_what_a_template_takes(place: Path) -> None:
    result = run("show", place)
    assert (0, "") == (result.exit_code, result.stderr)
    page = result.stdout
    assert "The model's own words" in page
    assert "  read by          the table qwen3\n" in page
    assert "  has a place for  instructions, thoughts, tools, tool calls, results of tools\n" in page
    assert "  thinking         enable_thinking = true or false\n" in page
    assert re.search(r"^  <\|im_end\|> +<\\\|im_end\|> +all$", page, re.MULTILINE)
    told = json.loads(run("show", place, "--json").stdout)["template"]
    assert ({"enable_thinking": [True, False]}, False) == (told["switches"], told["dated"])


def test_a_page_says_why_prompts_do_not_grow(tmp_path: Path) -> None:
    path = tmp_path / "forgetful.jinja"
    forgets = SOURCE.replace("if message.reasoning_content", "if message.reasoning_content and loop.last")
    path.write_text(forgets, encoding="utf-8")
    assert "A prompt may not begin the next one: the template leaves thoughts out" in run("show", path).stdout


def test_a_page_of_a_template_that_refuses_the_example_says_so(tmp_path: Path) -> None:
    path = tmp_path / "short.jinja"
    path.write_text("{% if tools %}{{ raise_exception('No tools here.') }}{% endif %}" + SOURCE, encoding="utf-8")
    result = run("show", path)
    assert 0 == result.exit_code
    assert "It refuses the whole example, so a shorter one is shown" in result.stdout
    assert "No tools here." in result.stdout


def test_a_template_is_exported_as_it_is(place: Path) -> None:
    result = run("export", "jinja", "--format", place)
    assert (0, SOURCE.rstrip("\n")) == (result.exit_code, result.stdout.rstrip("\n"))
    refused = run("export", "jinja", "--format", place, "--generation")
    assert (2, True) == (refused.exit_code, "this one is the model's own" in refused.stderr)


def test_grammars_and_response_templates_are_those_of_the_table_that_reads(place: Path) -> None:
    tools = EXAMPLES / "chat_request.json"
    grammar = run("export", "grammar", "--format", place, "--tools", tools)
    assert (0, run("export", "grammar", "--format", "qwen3", "--tools", tools).stdout) == (
        grammar.exit_code,
        grammar.stdout,
    )
    assert 0 == run("export", "response-template", "--format", place).exit_code


def test_a_table_is_learned_from_any_place(place: Path) -> None:
    result = run("learn", place, "--check")
    assert (0, "") == (result.exit_code, result.stderr)
    assert result.stdout.startswith("What this template writes is read by the table 'qwen3': ")


# Bad input.


@pytest.mark.parametrize("command", ["prompt", "show", "learn", "detect"])
def test_a_broken_template_is_told_with_its_file_and_line(command: str, tmp_path: Path, request_file: Path) -> None:
    path = tmp_path / "broken.jinja"
    path.write_text(BROKEN, encoding="utf-8")
    arguments: list[str | Path] = [request_file, "--template", path] if command == "prompt" else [path]
    result = run(command, *arguments)
    assert (1, "") == (result.exit_code, result.stdout)
    assert f"{path}, line 2: " in result.stderr
    assert "mend the template there, or take the one that the model came with" in result.stderr


def test_a_token_that_nobody_knows_is_told(tmp_path: Path, request_file: Path) -> None:
    path = tmp_path / "alone.jinja"
    path.write_text("{{ bos_token }}" + SOURCE, encoding="utf-8")
    sentence = "the chat template writes bos_token, and what that is nobody says here: left empty"
    assert sentence in run("prompt", request_file, "--template", path).stderr
    assert sentence in run("detect", path).stdout
    assert ["bos_token"] == json.loads(run("detect", path, "--json").stdout)[0]["missing_tokens"]
    assert "does not know    bos_token: left empty" in run("show", path).stdout
    folder(tmp_path, tokenizer_config={"bos_token": "<s>"})
    result = run("prompt", request_file, "--template", path)
    assert ("<s><|im_start|>", True) == (result.stdout[:15], sentence not in result.stderr)


def test_a_gguf_file_without_a_template_is_told(tmp_path: Path, request_file: Path) -> None:
    path = tmp_path / "qwen3-8b.gguf"
    path.write_bytes(header(text("general.name", "Qwen3 8B")))
    result = run("prompt", request_file, "--template", path)
    assert (1, "") == (result.exit_code, result.stdout)
    assert f"{path}: has no tokenizer.chat_template" in result.stderr
    assert "name the model's .jinja file" in result.stderr
    assert "qwen3" == json.loads(run("detect", path, "--json").stdout)[0]["format"]


def test_a_configuration_without_a_template_is_told(tmp_path: Path, request_file: Path) -> None:
    path = folder(tmp_path / "m", tokenizer_config={"bos_token": "<s>"}) / "tokenizer_config.json"
    result = run("prompt", request_file, "--template", path)
    assert (1, "") == (result.exit_code, result.stdout)
    assert f"{path}: has no chat_template, and there is no chat_template.jinja beside it" in result.stderr
    assert "take the folder of the chat model, or name a .jinja file" in result.stderr


def test_a_template_that_fails_on_one_conversation_is_told_with_its_line(tmp_path: Path, request_file: Path) -> None:
    path = tmp_path / "fails.jinja"
    path.write_text(SOURCE + FAILS, encoding="utf-8")
    assert 0 == run("prompt", request_file, "--template", path).exit_code
    messages = [*QUESTION["messages"], {"role": "assistant", "content": "Hi."}] * 3
    request_file.write_text(json.dumps(QUESTION | {"messages": [*messages, *QUESTION["messages"]]}), encoding="utf-8")
    result = run("prompt", request_file, "--template", path)
    assert (1, "") == (result.exit_code, result.stdout)
    line = (SOURCE + FAILS).count("\n") + 1
    assert f"{path}, line {line}: the template fails on this conversation (UndefinedError" in result.stderr
    assert "it may want another order of turns" in result.stderr


def test_a_template_that_never_ends_is_stopped(tmp_path: Path, request_file: Path) -> None:
    path = tmp_path / "endless.jinja"
    path.write_text("{% for a in range(10 ** 9) %}{% for b in range(10 ** 9) %}x{% endfor %}{% endfor %}", "utf-8")
    result = run("prompt", request_file, "--template", path)
    assert (1, "") == (result.exit_code, result.stdout)
    assert f"{path}, line 1: " in result.stderr
