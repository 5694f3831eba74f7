"""One document: what comes out, in which spacing, and what is said about losses."""

import json
import re
from pathlib import Path
from typing import Required, get_origin, get_type_hints

import pytest
from anthropic.types.message_create_params import MessageCreateParamsBase
from openai.types.chat.completion_create_params import CompletionCreateParamsBase
from openai.types.completion_create_params import CompletionCreateParamsBase as TextParams

import turnscript as ts
from tests.cli.running import CHAT, EXAMPLES, LOSSY, MESSAGES, TRANSCRIPT, convert, read_rows
from turnscript.apis.api import Api
from turnscript.convert import registry

REQUESTS = sorted(EXAMPLES.glob("*_request.json"))
NAMES = [*ts.apis(), *ts.formats()]


def lookup(name: str) -> Api:
    found = registry.lookup(name)
    assert isinstance(found, Api)
    return found


def test_a_transcript_is_written_byte_for_byte() -> None:
    result = convert("--from", "rwkv-universal", "--to", "rwkv-universal", stdin=TRANSCRIPT)
    assert (0, TRANSCRIPT) == (result.exit_code, result.stdout)


@pytest.mark.parametrize("target", NAMES)
@pytest.mark.parametrize("path", REQUESTS, ids=lambda path: path.stem)
def test_the_payload_is_what_the_library_gives(path: Path, target: str) -> None:
    result = convert(path, "--to", target)
    expected = ts.convert(path.read_bytes(), "auto", target)
    assert 0 == result.exit_code
    if target in ts.formats():
        assert expected.data == result.stdout_bytes
    else:
        assert json.loads(expected.data) == json.loads(result.stdout_bytes)
        assert 1 == result.stdout_bytes.count(b"\n")
        assert result.stdout_bytes.endswith(b"}\n")


@pytest.mark.parametrize("path", REQUESTS, ids=lambda path: path.stem)
def test_an_archive_goes_back_to_the_request_without_loss(path: Path) -> None:
    origin = ts.detect_api(path.read_bytes())
    archive = convert(path, "--to", "rwkv-universal", "--strict")
    back = convert("--to", origin, "--strict", stdin=archive.stdout_bytes)
    assert (0, 0) == (archive.exit_code, back.exit_code)
    assert json.loads(path.read_bytes()) == json.loads(back.stdout_bytes)


@pytest.mark.parametrize("dash", [[], ["-"]])
def test_standard_input_is_read_without_a_file_or_with_a_dash(dash: list[str]) -> None:
    result = convert(*dash, "--to", "openai-chat", stdin=TRANSCRIPT)
    assert ["system", "user", "assistant"] == [message["role"] for message in json.loads(result.stdout)["messages"]]


def test_a_file_in_utf_8_with_a_byte_order_mark_is_read() -> None:
    result = convert("--to", "rwkv-universal", "--view", "prompt", stdin=b"\xef\xbb\xbf" + json.dumps(CHAT).encode())
    assert "<<USER>>\nHi\n<<USER_END>>" == result.stdout


def test_indenting_changes_no_number_no_escape_and_no_key() -> None:
    body = '{"messages":[{"role":"user","content":"\\u00e9"}],"x":{"a":1.0,"a":1e5,"n":123456789012345678901,"e":[]}}'
    result = convert("--to", "openai-chat", "--pretty", stdin=body)
    assert (
        '  "x": {\n    "a": 1.0,\n    "a": 1e5,\n    "n": 123456789012345678901,\n    "e": []\n  }\n' in result.stdout
    )


def test_a_body_of_many_lines_becomes_one_line() -> None:
    result = convert("--to", "openai-chat", stdin=json.dumps(CHAT | {"x": {"a": [1, {"b": 2}]}}, indent=4))
    assert 1 == result.stdout.count("\n")


def test_white_space_goes_only_if_asked() -> None:
    body = '{"messages": [{"role": "user", "content": "a  b"}], "x": {"a": 1.0,  "b":\n [1,   2]}}'
    assert '"x":{"a": 1.0,  "b":  [1,   2]}' in convert("--to", "openai-chat", stdin=body).stdout
    for lines in ("--no-lines", "--lines"):
        data = body.replace("\n", "")
        assert (
            '"a  b"}],"x":{"a":1.0,"b":[1,2]}}\n'
            in convert("--to", "openai-chat", "--compact", lines, stdin=data).stdout
        )


def test_nesting_is_indented_or_refused_at_any_depth() -> None:
    for depth, style in [
        (depth, style) for depth in (*range(850, 1000, 3), 5_000) for style in ("--pretty", "--compact")
    ]:
        body = json.dumps(CHAT)[:-1] + ', "x": ' + "[" * depth + "]" * depth + "}"
        result = convert("--to", "openai-chat", style, stdin=body)
        assert result.exit_code == 0 or "nested too deep" in result.stderr, depth


def test_profile_view_and_flags_reach_the_target() -> None:
    body = json.dumps(CHAT)
    seed = convert("--to", "anthropic-messages", "--profile", "seed", stdin=json.dumps(MESSAGES))
    assert [{"type": "text", "text": "Hi"}] == json.loads(seed.stdout)["messages"][0]["content"]
    blocks = convert("--to", "anthropic-messages", "--set", "system=blocks", stdin=TRANSCRIPT)
    assert [{"type": "text", "text": "Be brief."}] == json.loads(blocks.stdout)["system"]
    assert "<<META>>" in convert("--to", "rwkv-universal", stdin=body).stdout
    assert "<<META>>" not in convert("--to", "rwkv-universal", "--view", "prompt", stdin=body).stdout


def test_losses_are_summed_up_on_stderr_and_listed() -> None:
    result = convert("--to", "openai-chat", stdin=json.dumps(LOSSY))
    assert 0 == result.exit_code
    assert "turnscript: 1 loss: 1 dropped\n  $.top_k: dropped: openai-chat has no such setting\n" == result.stderr


def test_a_conversion_without_loss_says_so() -> None:
    assert "turnscript: no losses\n" == convert("--to", "openai-chat", stdin=json.dumps(CHAT)).stderr


@pytest.mark.parametrize("target", ts.apis())
def test_what_a_request_still_lacks_is_said_and_is_no_loss(target: str) -> None:
    bare, to = "<<USER>>\nHi\n<<USER_END>>\n", ("--from", "rwkv-universal", "--to", target)
    needs = lookup(target).serving.needs
    note = f"turnscript: {' and '.join(f'no `{name}`' for name in needs)} yet, which {target} insists on\n"
    one = convert(*to, "--strict", stdin=bare)
    assert (0, f"{note if needs else ''}turnscript: no losses\n") == (one.exit_code, one.stderr)
    row = json.dumps({"text": bare})
    rows = convert(*to, "--strict", "--lines", stdin=f"{row}\n{row}\n").stderr
    summary = "turnscript: 2 rows converted, 0 rejected, no losses\n"
    assert summary + (re.sub("(`[a-z_]+`)", r"\1 in 2 rows", note) if needs else "") == rows
    assert "" == convert(*to, "--quiet", stdin=bare).stderr


@pytest.mark.parametrize("target", ts.apis())
def test_a_request_with_all_that_it_needs_is_left_alone(target: str) -> None:
    """What was made for it is told as a loss, an answer asks for nothing, and its own API's body is as it came."""
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
    assert "insists" not in convert("--to", target, stdin=json.dumps(body)).stderr
    answer = convert(EXAMPLES / "chat_response.json", "--to", target)
    assert (0, True) == (answer.exit_code, "insists" not in answer.stderr)
    bare = convert("--from", "rwkv-universal", "--to", target, "--quiet", stdin="<<USER>>\nHi\n<<USER_END>>\n").stdout
    assert "turnscript: no losses\n" == convert("--from", target, "--to", target, stdin=bare).stderr


@pytest.mark.parametrize(
    ("target", "body"),
    [
        ("openai-chat", CompletionCreateParamsBase),
        ("openai-completions", TextParams),
        ("anthropic-messages", MessageCreateParamsBase),
    ],
)
def test_what_a_request_needs_is_what_the_official_client_demands(target: str, body: type) -> None:
    """Beside what was said, which is always written."""
    types = get_type_hints(body, include_extras=True)
    demanded = {name for name, type_ in types.items() if get_origin(type_) is Required}
    assert {"messages", "prompt"} & demanded
    assert set(lookup(target).serving.needs) == demanded - {"messages", "prompt"}


def test_quiet_reports_nothing_but_writes_the_losses(tmp_path: Path) -> None:
    lost = tmp_path / "lost.jsonl"
    result = convert("--to", "openai-chat", "--quiet", "--losses", lost, stdin=json.dumps(LOSSY))
    assert (0, "") == (result.exit_code, result.stderr)
    assert ["$.top_k"] == [loss["path"] for loss in read_rows(lost)]


def test_at_most_twenty_losses_are_listed_and_the_file_has_all(tmp_path: Path) -> None:
    lost = tmp_path / "lost.jsonl"
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}] * 23}
    ]
    body = json.dumps(MESSAGES | {"messages": messages})
    result = convert("--from", "anthropic-messages", "--to", "openai-chat", stdin=body)
    lines = result.stderr.splitlines()
    assert 22 == len(lines)
    assert "  and 3 more; --losses FILE writes all" == lines[-1]
    result = convert("--from", "anthropic-messages", "--to", "openai-chat", "--losses", lost, stdin=body)
    assert f"  and 3 more; all are in {lost}" == result.stderr.splitlines()[-1]
    assert 23 == len(read_rows(lost))
    assert {"path", "kind", "detail"} == set(read_rows(lost)[0])


def test_the_file_of_losses_is_there_even_if_it_is_empty(tmp_path: Path) -> None:
    lost = tmp_path / "lost.jsonl"
    convert("--to", "openai-chat", "--losses", lost, stdin=json.dumps(CHAT))
    assert b"" == lost.read_bytes()


def test_losses_on_standard_output_come_after_the_payload() -> None:
    result = convert("--to", "openai-chat", "--losses", "-", stdin=json.dumps(LOSSY))
    payload, loss = result.stdout.splitlines()
    assert "messages" in json.loads(payload)
    assert {"path": "$.top_k", "kind": "dropped", "detail": "openai-chat has no such setting"} == json.loads(loss)
    assert "turnscript: 1 loss: 1 dropped\n" == result.stderr


def test_losses_after_a_transcript_begin_on_a_line_of_their_own() -> None:
    result = convert("--to", "rwkv-universal", "--view", "prompt", "--losses", "-", stdin=json.dumps(CHAT))
    assert "<<USER_END>>" == result.stdout.splitlines()[-2]
    assert "$.model" == json.loads(result.stdout.splitlines()[-1])["path"]


def test_losses_have_standard_output_to_themselves_if_the_payload_goes_to_a_file(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    result = convert("--to", "openai-chat", "--losses", "-", "--output", out, stdin=json.dumps(LOSSY))
    assert ["$.top_k"] == [json.loads(line)["path"] for line in result.stdout.splitlines()]
    assert "messages" in json.loads(out.read_bytes())


def test_strict_writes_the_losses_and_no_payload(tmp_path: Path) -> None:
    out, lost = tmp_path / "out.json", tmp_path / "lost.jsonl"
    result = convert("--to", "openai-chat", "--strict", "--output", out, "--losses", lost, stdin=json.dumps(LOSSY))
    assert (3, "") == (result.exit_code, result.stdout)
    assert not out.exists()
    assert ["$.top_k"] == [loss["path"] for loss in read_rows(lost)]
    assert result.stderr.startswith("turnscript: error: <stdin>: openai-chat cannot carry everything")
    assert "  $.top_k: dropped: " in result.stderr


def test_strict_lets_an_exact_conversion_pass() -> None:
    result = convert("--to", "rwkv-universal", "--strict", stdin=json.dumps(LOSSY))
    assert (0, "turnscript: no losses\n") == (result.exit_code, result.stderr)


CALLS = {
    "messages": [
        {"role": "user", "content": "Weather?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"t":1.0}'}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": '{"sun":[1,2]}'},
    ]
}


@pytest.mark.parametrize("target", ["rwkv-universal", "openai-chat"])
def test_json_is_spelled_in_one_way_where_that_is_asked_for(target: str) -> None:
    given = ("--to", target, "--normalize-json", "--strict")
    document = convert(*given, stdin=json.dumps(CALLS))
    row = convert("--lines", *given, stdin=json.dumps(CALLS))
    for result in (document, row):
        assert 0 == result.exit_code
        assert ("1.0" in result.stdout, "[1, 2]" in result.stdout) == (True, True)
        assert "2 losses: 2 approximated" in result.stderr
        assert "normalize_json asks for it" in result.stderr


def test_strict_refuses_the_other_losses_of_a_row_beside_what_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = ts.convert(json.dumps(CALLS), "openai-chat", "rwkv-universal").value
    row = json.dumps({"text": text, "note": 1})
    result = convert("--lines", "--to", "openai-chat", "--normalize-json", "--strict", stdin=row)
    (reject,) = read_rows(Path("turnscript.rejects.jsonl"))
    assert (3, "$.note") == (result.exit_code, reject["path"])


ANSWER = EXAMPLES / "chat_response.json"
ASKED = EXAMPLES / "chat_request.json"


def test_an_answer_is_converted_and_comes_back() -> None:
    archive = convert(ANSWER, "--to", "rwkv-universal", "--strict")
    back = convert("--to", "openai-chat", "--strict", stdin=archive.stdout_bytes)
    assert (0, 0) == (archive.exit_code, back.exit_code)
    assert json.loads(ANSWER.read_bytes()) == json.loads(back.stdout_bytes)
    other = json.loads(convert(ANSWER, "--to", "anthropic-messages").stdout_bytes)
    assert ("message", "end_turn") == (other["type"], other["stop_reason"])


def test_an_answer_and_its_request_are_one_transcript_and_two_bodies_again() -> None:
    archive = convert(ANSWER, "--request", ASKED, "--to", "rwkv-universal", "--strict")
    assert 0 == archive.exit_code
    for side, path in (("request", ASKED), ("response", ANSWER)):
        body = convert("--to", "openai-chat", "--side", side, "--strict", stdin=archive.stdout_bytes)
        assert json.loads(path.read_bytes()) == json.loads(body.stdout_bytes)
    unsaid = convert("--to", "openai-chat", stdin=archive.stdout_bytes)
    assert 1 == unsaid.exit_code
    assert "--side request or --side response says it" in unsaid.stderr


def test_rows_may_be_requests_answers_and_transcripts_of_them() -> None:
    answer = json.dumps(json.loads(ANSWER.read_bytes()))
    archived = json.dumps({"text": ts.convert(answer, "auto", "rwkv-universal").value})
    rows = "\n".join([json.dumps(CHAT), answer, archived]) + "\n"
    result = convert("--lines", "--to", "openai-chat", stdin=rows)
    assert ["messages" in json.loads(line) for line in result.stdout.splitlines()] == [True, False, False]
    assert json.loads(answer) == json.loads(result.stdout.splitlines()[2])


def test_what_cannot_be_meant_with_a_request_is_refused(tmp_path: Path) -> None:
    given = ("--to", "rwkv-universal", "--request")
    assert "is no answer" in convert(ANSWER, *given, ASKED, "--side", "request").stderr
    assert "only one input" in convert("-", *given, "-", stdin="{}").stderr
    copy = tmp_path / "request.json"
    copy.write_bytes(ASKED.read_bytes())
    assert "would overwrite the input" in convert(ANSWER, *given, copy, "--output", copy).stderr
    copy.write_bytes(b"{}")
    broken = convert(ANSWER, *given, copy)
    assert (1, True) == (broken.exit_code, str(copy) in broken.stderr)
    assert 1 == convert(ASKED, *given, ASKED).exit_code


def test_several_answers_have_one_place_in_a_transcript() -> None:
    body = json.loads(ANSWER.read_bytes())
    body["choices"].append(body["choices"][0] | {"index": 1})
    result = convert("--to", "rwkv-universal", stdin=json.dumps(body))
    assert "answer 2 of 2 has no place in a transcript" in result.stderr
    assert 3 == convert("--to", "rwkv-universal", "--strict", stdin=json.dumps(body)).exit_code


def test_an_option_that_no_answer_has_is_to_be_left_out() -> None:
    result = convert(EXAMPLES / "chat_response.json", "--to", "anthropic-messages", "--profile", "seed")
    assert (1, "") == (result.exit_code, result.stdout)
    assert result.stderr.endswith("an answer of anthropic-messages has no option 'profile'; leave it out\n")
