"""`turnscript show`: the page of a format says what its table says, and the guide to formats is true."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import turnscript as ts
from tests.cli.running import EXAMPLES, process, run
from tests.cli.test_faults import assert_shape
from tests.cli.test_processes import on_terminal
from turnscript.convert.format_reference import Limit, Reference, example, reference

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "formats.md"
HEADINGS = [
    "A conversation",
    "The prompt for its first answer",
    "The same, where the model is to think first",
    "What ends an answer",
    "Special tokens",
    "What it cannot carry",
    "What the example lost",
    "How content is kept apart from tags",
    "Good to know",
]


def page(name: str) -> str:
    """The page as it goes into a pipe."""
    result = run("show", name)
    assert (0, "") == (result.exit_code, result.stderr)
    return result.stdout


def section(text: str, heading: str) -> list[str]:
    """The lines under a heading, without their indent."""
    body = text.split(f"\n{heading}\n\n", 1)[1]
    return [line[2:] for line in re.split(r"\n\n(?=\S)", body, maxsplit=1)[0].removesuffix("\n").split("\n")]


FILES = "Files, and texts with a hole"


def limits(name: str) -> dict[str, Limit]:
    return {limit.what: limit for limit in reference(ts.get_format(name)).limits}


@pytest.mark.parametrize("name", ts.formats())
def test_a_page_has_every_section_and_begins_with_the_name(name: str) -> None:
    text = page(name)
    assert text.startswith(f"{name}: {ts.get_format(name).title}\n\nA conversation\n")
    shown = re.findall(r"^(\S.*)$", text, re.MULTILINE)[1:]
    format_ = ts.get_format(name)
    more: dict[str, object] = {FILES: format_.document.files, "Sampling presets": format_.presets}
    more["Variants"] = format_.variants
    assert HEADINGS == [heading for heading in shown if heading not in more]
    assert {heading for heading, there in more.items() if there} == set(shown) - set(HEADINGS)
    assert "\x1b" not in text


@pytest.mark.parametrize("name", [name for name in ts.formats() if ts.get_format(name).document.files])
def test_every_order_of_a_hole_is_shown_with_an_example_that_is_read_so(name: str) -> None:
    format_, shown = ts.get_format(name), reference(ts.get_format(name)).files
    assert shown is not None
    lines = "\n".join(section(page(name), FILES))
    for order in shown.orders:
        assert order.example in lines
        sequence = format_.parse_files(order.example, order=order.name)
        assert order.example == format_.render_files(sequence, order=order.name).value
        assert order.prompts == (order.name != "spec")
    assert shown.separator in lines


@pytest.mark.parametrize("name", ts.formats())
def test_the_example_is_what_the_format_writes(name: str) -> None:
    format_, request = ts.get_format(name), example()
    rendered = format_.render(request, view="prompt")
    assert str(rendered.value).removesuffix("\n").split("\n") == section(page(name), "A conversation")
    expected = [str(loss) for loss in rendered.losses] or ["nothing"]
    assert expected == section(page(name), "What the example lost")


@pytest.mark.parametrize("name", ts.formats())
def test_the_prompts_end_as_the_format_ends_them(name: str) -> None:
    request = example()
    del request.items[2:]
    for heading, thinking in zip(HEADINGS[1:3], (False, True), strict=True):
        made = ts.get_format(name).prompt(request, thinking=thinking)
        *lines, _, note = section(page(name), heading)
        shown = "\n".join(lines[1:] if lines[0] == "..." else lines)
        assert made.text.removesuffix("\n").endswith(shown)
        assert ("no newline" in note) != made.text.endswith("\n")
        assert (" belongs to the answer" in note) == bool(made.prefill)


def test_a_page_shows_stops_and_special_tokens_with_their_white_space() -> None:
    text = page("rwkv-goose")
    assert ['"\\n\\nUser:"', '"\\n\\nSystem:"'] == section(text, "What ends an answer")
    assert ["<think>", "</think>"] == section(text, "Special tokens")
    tools = section(page("ai00-v1"), "What ends an answer")
    assert ["without tools: </ai00:assistant>", "with tools: </ai00:assistant>, </ai00:function_calls>"] == tools


def test_a_page_of_a_format_without_special_tokens_says_so(tmp_path: Path) -> None:
    file = tmp_path / "plain.toml"
    file.write_text(
        """
        [[format]]
        name = "plain"
        flattened = true
        [[format.turn]]
        role = "user"
        open = "Q: "
        segment = [{ kind = "user", body = "text" }]
        [[format.turn]]
        role = "assistant"
        open = "A: "
        segment = [{ kind = "assistant", body = "text", model = true }]
        [format.generation]
        stops = ["\\n\\nQ:"]
        """,
        encoding="utf-8",
    )
    assert ["none"] == section(page(str(file)), "Special tokens")


def test_a_page_says_what_the_format_cannot_carry() -> None:
    ids, names = "the ids of a call and its result", "the name of a speaker"
    blanks = "blank lines, and white space at the ends of a text"
    assert {ids, names, blanks} <= set(limits("rwkv-goose"))
    assert names in limits("ai00-v1")
    assert not {ids, blanks} & set(limits("ai00-v1"))
    assert not {ids, names, blanks} & set(limits("rwkv-universal"))
    lines = section(page("rwkv-goose"), "What it cannot carry")
    assert re.fullmatch(rf"{ids} +dropped: .+", lines[1])
    assert "  A blank line ends a turn: blank lines inside a text become single newlines" in page("rwkv-goose")


FEATURES: dict[str, list[ts.Item]] = {
    "the ids of a call and its result": [
        ts.User(content=[ts.Text(text="Hi")]),
        ts.ToolCall(name="get_weather", id="call_7"),
        ts.ToolResult(content=[ts.Text(text="done")], name="get_weather", id="call_7"),
    ],
    "whether a tool failed": [
        ts.User(content=[ts.Text(text="Hi")]),
        ts.ToolCall(name="get_weather"),
        ts.ToolResult(content=[ts.Text(text="done")], name="get_weather", status="error"),
    ],
    "the name of a speaker": [ts.User(content=[ts.Text(text="Hi")], name="Ada")],
    "blank lines, and white space at the ends of a text": [ts.User(content=[ts.Text(text="a\n\nb ")])],
    "several texts in one message": [ts.User(content=[ts.Text(text="a"), ts.Text(text="b")])],
}


@pytest.mark.parametrize("what", FEATURES)
@pytest.mark.parametrize("name", ts.formats())
def test_a_format_cannot_carry_exactly_what_its_page_says(name: str, what: str) -> None:
    format_, items = ts.get_format(name), FEATURES[what]
    request = ts.Request(conversation=ts.Conversation(items=items, tools=example().tools))
    again = format_.parse(str(format_.render(request, view="prompt").value)).items
    assert (what in limits(name)) == (items != [item for item in again if item.kind != "system"])


@pytest.mark.parametrize("name", ts.formats())
def test_escapes_add_one_backslash_and_reading_takes_it_out(name: str) -> None:
    format_ = ts.get_format(name)
    escapes = reference(format_).escapes
    assert escapes
    for one in escapes:
        assert one.literal.replace("\\", "") == one.written.replace("\\", "")
        assert len(one.literal) < len(one.written)
        if "user" in one.kinds:
            asked: list[ts.Item] = [ts.User(content=[ts.Text(text=f"a {one.literal} b")])]
            written = str(format_.render(ts.Request(conversation=ts.Conversation(items=asked))).value)
            assert f"a {one.written} b" in written
            texts = [item.content for item in format_.parse(written).items if isinstance(item, ts.User)]
            assert [asked[0].content] == texts  # type: ignore[attr-defined]


def test_a_page_lists_escapes_and_whose_texts_have_them() -> None:
    lines = section(page("ai00-v1"), "How content is kept apart from tags")
    assert ["IN A TEXT", "WRITTEN", "TEXTS OF"] == re.split(r" {2,}", lines[2])
    assert ["<ai00:user>", "<\\ai00:user>", "all"] in [re.split(r" {2,}", line) for line in lines]
    assert ["<think>", "<\\think>", "assistant"] in [re.split(r" {2,}", line) for line in lines]


@pytest.mark.parametrize("name", ts.formats())
def test_programs_read_the_page_as_json(name: str) -> None:
    format_, request = ts.get_format(name), example()
    shown: dict[str, Any] = json.loads(run("show", name, "--json").stdout)
    assert set(Reference.__struct_fields__) == set(shown)
    assert format_.render(request, view="prompt").value == shown["conversation"]
    del request.items[2:]
    for key, thinking in (("prompt", False), ("thinking", True)):
        made = format_.prompt(request, thinking=thinking)
        assert {"text": made.text, "prefill": made.prefill} == shown[key]
    assert (format_.stops, format_.special_tokens) == (shown["stops"], shown["special_tokens"])
    assert {"what", "losses"} == set(shown["limits"][0])
    assert {"literal", "written", "kinds"} == set(shown["escapes"][0])


def test_a_format_without_thoughts_has_no_prompt_for_them() -> None:
    whole = ts.get_format("rwkv-universal")
    turn = whole.document.turns[0]
    segments = tuple(segment for segment in turn.segments if segment.kind != "thinking")
    document = replace(whole.document, turns=(replace(turn, segments=segments),))
    shown = reference(replace(whole, document=document))
    assert shown.thinking is None
    assert "I need to look that up." not in shown.text
    assert ["items[2]"] == [loss.path for loss in shown.losses]


def test_notes_follow_the_table() -> None:
    whole = ts.get_format("rwkv-universal")
    assert any("fills a line" in note for note in reference(whole).notes)
    loose = replace(whole, document=replace(whole.document, anchored=False, grows="it shrinks"))
    notes = reference(loose).notes
    assert ["A prompt may not begin the next one: it shrinks."] == notes


def test_a_page_says_when_the_arguments_of_a_call_are_told() -> None:
    """D-O-10: where the name stands behind them, not before it is known."""
    said = {name: " ".join(reference(ts.get_format(name)).notes) for name in ts.formats()}
    assert ["openchatml"] == [name for name, notes in said.items() if "arguments before its name" in notes]


def test_colours_are_for_terminals_only() -> None:
    code, seen = on_terminal("show", "rwkv-goose", stdin=b"", stdout=True)
    assert (0, True) == (code, seen.startswith("\x1b[1mrwkv-goose: "))
    assert "  \x1b[34m\x1b[2mUser: \x1b[0mWhat is the weather in Tokyo?" in seen
    assert "\x1b[4mIt is sunny in Tokyo, at 22 degrees.\x1b[0m" in seen
    _, seen = on_terminal("show", "rwkv-goose", stdin=b"", stdout=True, also={"NO_COLOR": "1"})
    assert page("rwkv-goose") == seen.replace("\r\n", "\n")
    assert page("rwkv-goose").encode() == process("show", "rwkv-goose").stdout


def test_a_page_that_nobody_reads_is_no_traceback() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = process("show", "ai00-v1", stdout=writer)
    os.close(writer)
    assert (141, b"") == (done.returncode, done.stderr)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "missing argument 'FORMAT'"),
        (["rwkv-gose"], "unknown format 'rwkv-gose'; did you mean 'rwkv-goose'"),
        (["openai-chat"], "this is an API; `turnscript formats` lists the formats"),
        ([f"{EXAMPLES / 'formats' / 'tagged.toml'}#no"], "give a name that the file declares, as in FILE#NAME"),
        (["ai00-v1", "ai00-v0"], "unexpected extra argument (ai00-v0)"),
    ],
)
def test_wrong_usage_is_told(arguments: list[str], message: str) -> None:
    result = run("show", *arguments)
    assert (2, "") == (result.exit_code, result.stdout)
    assert message in result.stderr
    assert_shape(result.stderr)


def test_a_shell_completes_the_names_of_formats() -> None:
    variables = {"_TURNSCRIPT_COMPLETE": "bash_complete", "COMP_WORDS": "turnscript show open", "COMP_CWORD": "2"}
    assert [b"plain,openchatml"] == process(env=os.environ | variables).stdout.split()


def _commands() -> list[tuple[str, str]]:
    """Every command of the guide, and what it prints there."""
    blocks = re.findall(r"^```console\n(.*?)^```$", GUIDE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [found for block in blocks for found in re.findall(r"^\$ (.+)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE)]


@pytest.mark.parametrize(("command", "expected"), _commands())
def test_the_guide_shows_what_its_commands_print(command: str, expected: str) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    done = subprocess.run(
        ["/bin/sh", "-c", command], env=os.environ | {"PATH": path}, timeout=60, check=True, **streams
    )
    # Both streams are one here, and which of them comes first is the system's choice.
    assert sorted(expected.splitlines()) == sorted(done.stdout.decode().splitlines())
