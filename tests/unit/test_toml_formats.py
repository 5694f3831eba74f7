"""Owns the checks of formats in TOML: dumps that come back, files as names, inheritance, ai00's [prompts]."""

import doctest
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import turnscript as ts
from tests import corpora
from tests.cli.running import convert
from tests.conformance.test_format_laws import check_inverse
from turnscript.convert.registry import is_format, load_formats
from turnscript.core.clues import Clue
from turnscript.core.conversation import Item, text_content
from turnscript.tableio import bodies, dump_format, prompts, read_formats
from turnscript.tableio.keys import Key, document_keys, keys_of
from turnscript.tableio.structs import data_of
from turnscript.tableio.writing import write_toml

ROOT = Path(__file__).resolve().parents[2]
TABLES = ROOT / "src" / "turnscript" / "formats" / "tables"
EXAMPLES = [*sorted((ROOT / "examples" / "formats").glob("*.toml")), *sorted(TABLES.glob("*.toml"))]
TAGGED = (ROOT / "tests" / "formats" / "tagged.toml").read_text(encoding="utf-8")
DOC = (ROOT / "docs" / "toml-formats.md").read_text(encoding="utf-8")
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def load(text: str) -> list[ts.Format]:
    return read_formats(text, {name: ts.get_format(name) for name in ts.formats()})


def said(*texts: str) -> ts.Request:
    """A conversation in which user and assistant speak by turns."""
    items: list[Item] = []
    for index, text in enumerate(texts):
        content: list[ts.Part] = [ts.Text(text=text)]
        items.append(ts.Assistant(content=content) if index % 2 else ts.User(content=content))
    return ts.Request(conversation=ts.Conversation(items=items))


def texts(items: Sequence[Item]) -> list[str]:
    return [text_content(getattr(item, "content", [])) for item in items]


def same_behaviour(first: ts.Format, second: ts.Format) -> None:
    """Assert that two formats write, ask, stop and read alike, for every conversation of the corpus."""
    assert (first.stops, first.special_tokens) == (second.stops, second.special_tokens)
    for name in corpora.names():
        for view in ("archive", "prompt"):
            expected = first.render(corpora.load(name), view=view)
            actual = second.render(corpora.load(name), view=view)
            assert (expected.value, expected.losses) == (actual.value, actual.losses)
            assert first.parse(str(expected.value)) == second.parse(str(expected.value))
        asked, again = (format_.prompt(corpora.load(name), thinking=True) for format_ in (first, second))
        assert (asked.text, asked.stops, asked.prefill) == (again.text, again.stops, again.prefill)


# A table is whole in TOML.


@pytest.mark.parametrize("name", [*ts.formats(), str(ROOT / "tests" / "formats" / "switches.toml")])
def test_a_format_comes_back_from_its_dump(name: str) -> None:
    """The table as TOML is complete: dumped and loaded, a format writes the same bytes and has the same stops."""
    format_ = ts.get_format(name)
    [loaded] = load(dump_format(format_))
    assert (format_.name, format_.title, format_.clues) == (loaded.name, loaded.title, loaded.clues)
    same_behaviour(format_, loaded)
    assert dump_format(format_) == dump_format(loaded)


@pytest.mark.parametrize("name", ts.formats())
def test_what_a_model_writes_is_read_alike_after_a_dump(name: str) -> None:
    [loaded] = load(dump_format(ts.get_format(name)))
    for case in corpora.hard_cases().cases:
        if case.format == name:
            expected, actual = (
                parser.feed(case.output) + parser.close() for parser in (ts.get_format(name).parser(), loaded.parser())
            )
            assert expected == actual


@pytest.mark.parametrize("name", ts.formats())
def test_a_format_that_changes_nothing_is_the_one_that_it_is_based_on(name: str) -> None:
    [loaded] = load(f'[[format]]\nname = "mine"\nbased_on = "{name}"\n')
    assert ("mine", "mine", ()) == (loaded.name, loaded.title, loaded.clues)
    assert data_of(loaded) | {"name": "", "title": "", "clue": 0} == data_of(ts.get_format(name)) | {
        "name": "",
        "title": "",
        "clue": 0,
    }


def test_fields_of_every_item_are_read_by_their_names_of_before() -> None:
    dumped = dump_format(ts.get_format("rwkv-universal")).replace('name = "rwkv-universal"', 'name = "own"')
    before = re.sub(r'path = "(slot|turn|envelope)"', r'path = "hints.\1"', dumped)
    assert 3 == len({*re.findall(r"hints\.\w+", before)})
    assert [*map(dump_format, load(dumped))] == [*map(dump_format, load(before))]
    with pytest.raises(ts.InvalidInput, match="no such field of the item 'shape'"):
        load(before.replace("hints.slot", "hints.shape"))


def test_clues_are_written_too() -> None:
    clue = Clue(evidence="name", pattern=r"my[\d]+", reason="so it is", also=("x",), order=3)
    format_ = ts.Format("mine", "Mine", ts.get_format(ts.formats()[0]).document, (clue,))
    assert (clue,) == load(dump_format(format_))[0].clues


_DATA = st.recursive(
    st.text() | st.booleans() | st.integers(-(2**60), 2**60),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(data=st.dictionaries(st.text() | st.sampled_from(["turn", "segment", "format"]), _DATA))
def test_any_data_comes_back_from_the_written_toml(data: dict[str, Any]) -> None:
    assert data == tomllib.loads(write_toml(data))


@given(text=st.text(alphabet='a"\\\n\r\t\x00\x7f\u2028', min_size=40, max_size=90))
def test_long_texts_come_back_from_several_lines(text: str) -> None:
    assert {"a": text} == tomllib.loads(write_toml({"a": text}))


# Examples and the page.


@pytest.mark.deep
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
@corpora.on_every
def test_conversations_read_back_in_the_example_formats(path: Path, name: str) -> None:
    """What every registered format must do, a format from a file does: parse(render(c)) == c, or a loss says so."""
    for format_ in load_formats(path):
        check_inverse(format_, corpora.load(name))


def blocks(language: str) -> list[str]:
    return [code for name, code in _BLOCK.findall(DOC) if name == language]


INLINE = """
[[format]]
name = "inline"
separator = "SEPARATOR"
turn = [
  { role = "user", open = "[INST]", close = "[/INST]", segment = [{ kind = "user", body = "text" }] },
  { role = "assistant", open = "[A]", close = "</s>", segment = [{ kind = "assistant", body = "text", model = true }] },
]
generation = { stops = ["</s>"] }
"""


@pytest.mark.parametrize("separator", ["", "\\n", "\\n\\n"])
def test_line_ends_in_contents_stay_where_tags_have_no_lines_of_their_own(separator: str) -> None:
    """D-X-8: the line ends of a file are told by its tags' lines, and the first line may be a content's."""
    [inline] = load(INLINE.replace("SEPARATOR", separator))
    for text in ("a\r\nb", "\r\n", "a\r\n\r\nb", "\r\n[INST]\r\n"):
        transcript = str(inline.render(said(text, "x\ny", text)).value)
        assert [text, "x\ny", text] == texts(inline.parse(transcript).items)
    windows = str(inline.render(said("a\nb", "c")).value).replace("\n", "\r\n")
    assert ["a\nb" if separator else "a\r\nb", "c"] == texts(inline.parse(windows).items)


def test_the_page_shows_the_example_file() -> None:
    assert (ROOT / "examples" / "formats" / "tagged.toml").read_text(encoding="utf-8") == blocks("toml")[0]


def test_every_format_on_the_page_can_be_loaded() -> None:
    names = [load(block)[0].name for block in blocks("toml")]
    assert names == ["tagged", "going-on", "hashes", "goose-paren", "ai00-v1"]


def test_python_does_what_the_page_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    test = doctest.DocTestParser().get_doctest("\n".join(blocks("python")), {}, "toml-formats.md", None, 0)
    output: list[str] = []
    assert test.examples
    assert 0 == doctest.DocTestRunner().run(test, out=output.append).failed, "".join(output)


def names_of(keys: Mapping[str, Key]) -> Iterator[str]:
    """The names of keys, and of those in the tables that stand at them."""
    for name, key in keys.items():
        yield name
        if key.type.form in ("table", "tables"):
            yield from names_of(keys_of(key.type.inner))


def test_the_page_names_every_key_body_and_option() -> None:
    words = {*names_of(document_keys())}
    shapes = {**bodies.BODIES, **bodies.TOOL_LISTS}
    words |= {*shapes, *bodies.SHAPES, *prompts.KEYS}
    words |= {option for made, _ in shapes.values() for option in bodies.options_of(made)}
    assert [] == sorted(word for word in words if not re.search(rf"(?<![\w-]){word}(?![\w-])", DOC))


# Files where names are taken.

BODY = b'{"messages": [{"role": "user", "content": "Hi"}]}'


def test_a_file_is_taken_where_a_name_is(tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    path.write_text(TAGGED, encoding="utf-8")
    before = ts.formats()
    for name in (str(path), f"{path}#tagged"):
        assert is_format(name)
        assert "tagged" == ts.get_format(name).name
        assert (
            "<user>\nHi\n</user>"
            == ts.convert(b'{"messages": [{"role": "user", "content": "Hi"}]}', "auto", name).value
        )
        assert "Hi" == text_content(ts.parse("<user>\nHi\n</user>", name).items[0].content)  # type: ignore[attr-defined]
    assert before == ts.formats()


def test_the_same_file_gives_the_same_format_until_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    path.write_text(TAGGED, encoding="utf-8")
    first = ts.get_format(str(path))
    assert first is ts.get_format(str(path))
    path.write_text(TAGGED.replace("<user>", "<human>"), encoding="utf-8")
    assert "<human>" in ts.get_format(str(path)).special_tokens


def test_a_file_with_several_formats_needs_a_name() -> None:
    path = str(ROOT / "examples" / "formats" / "changed.toml")
    with pytest.raises(ts.InvalidFormat, match=r"declares 2 formats; say which: .*#goose-paren or .*#chatml-quiet"):
        ts.get_format(path)
    with pytest.raises(ts.UnknownName, match="did you mean 'chatml-quiet'"):
        ts.get_format(f"{path}#chatml-quite")
    assert "chatml-quiet" == ts.get_format(f"{path}#chatml-quiet").name


def test_a_file_that_cannot_be_read_is_told_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(ts.InvalidFormat, match=r"cannot read the format file .*none\.toml: No such file"):
        ts.get_format(str(tmp_path / "none.toml"))
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ts.InvalidFormat, match="it is not UTF-8 text"):
        ts.get_format(str(tmp_path / "bytes.toml"))
    (tmp_path / "bad.toml").write_text(TAGGED.replace("close", "closes", 1), encoding="utf-8")
    with pytest.raises(ts.InvalidFormat, match=r"format\[0\]\.turn\[0\]\.closes: unknown key.*\(in .*bad\.toml\)"):
        ts.get_format(str(tmp_path / "bad.toml"))
    for name in ("my.tom", "#x", "x#my.toml.bak", "my.toml#"):
        with pytest.raises(ts.UnknownName):
            ts.get_format(name)


def test_formats_load_from_a_text_and_from_a_path(tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    path.write_text(f"\ufeff{TAGGED}", encoding="utf-8", newline="\r\n")
    expected = [data_of(one) for one in load_formats(TAGGED)]
    assert expected == [data_of(one) for one in load_formats(path)]
    assert expected == [data_of(one) for one in load_formats(str(path))]


def test_the_command_line_takes_a_file(tmp_path: Path) -> None:
    path = ROOT / "examples" / "formats" / "tagged.toml"
    done = convert("-", "--to", path, "--quiet", stdin=BODY)
    assert (0, "<user>\nHi\n</user>") == (done.exit_code, done.stdout.rstrip("\n"))
    done = convert("-", "--to", tmp_path / "none.toml", stdin=BODY)
    assert 1 == done.exit_code
    assert "cannot read the format file" in done.stderr


# Based on another format.

BARE = """
[[format]]
name = "bare"
title = "Two speakers and nothing else"

[[format.turn]]
role = "user"
open = "<user>\\n"
close = "</user>\\n"

[[format.turn.segment]]
kind = "user"
body = "text"

[[format.turn]]
role = "model"
open = "<model>\\n"
close = "</model>\\n"

[[format.turn.segment]]
kind = "assistant"
body = "text"
model = true

[format.generation]
stops = ["</model>"]
"""


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "f"}}])
def test_a_call_that_must_be_is_a_loss_in_a_format_without_calls(choice: Any) -> None:
    (bare,) = load(BARE)
    tools = [{"type": "function", "function": {"name": "f"}}]
    asked = {"messages": [{"role": "user", "content": "a"}], "tools": tools}
    prompt = bare.prompt(ts.parse(asked | {"tool_choice": choice}, "openai-chat"))
    assert bare.prompt(ts.parse(asked, "openai-chat")).text == prompt.text
    assert {"$.tools[0]", "$.tool_choice"} <= {loss.path for loss in prompt.losses}
    parser = prompt.parser()
    answer = ts.fold([*parser.feed("Hi.</model>"), *parser.close()])
    assert ["Hi."] == texts(answer.items)


BASED = TAGGED + '\n[[format]]\nname = "mine"\nbased_on = "tagged"\n'


def based(text: str) -> dict[str, Any]:
    return data_of(load(BASED + text)[1])


def test_what_a_file_says_goes_over_its_base() -> None:
    mine = based(
        'separator = ""\n\n[format.joints]\n"thinking assistant" = " "\n\n[format.tools]\nopen = "<functions>\\n"\n'
    )
    assert "" == mine["separator"]
    assert (" ", "\n") == (mine["joints"]["thinking assistant"], mine["joints"]["thinking tool_call"])
    assert ("<functions>\n", "\n</tools>") == (mine["tools"]["open"], mine["tools"]["close"])


def test_turns_are_joined_by_role_and_segments_by_kind() -> None:
    head = '[[format.turn]]\nrole = "assistant"\n[[format.turn.segment]]\nkind = "tool_call"\n'
    mine = based(f'{head}body = {{ name = "json-call", arguments = "input" }}\n')
    assert ["system", "user", "assistant", "tool"] == [turn["role"] for turn in mine["turn"]]
    assert ["thinking", "assistant", "tool_call"] == [one["kind"] for one in mine["turn"][2]["segment"]]
    call = mine["turn"][2]["segment"][2]
    assert ({"name": "json-call", "arguments": "input"}, "<call>\n") == (call["body"], call["open"])


def test_other_stops_are_those_where_tools_are_offered_too() -> None:
    """Unless the base has others there."""
    stops = '[format.generation]\nstops = ["</mine>"]\n'
    mine = load(BASED + stops)[1].document.generation
    assert (("</mine>",), ("</mine>",)) == (mine.stops, mine.stops_with_tools)
    others = BASED.replace("stops = [", 'stops_with_tools = ["</theirs>"]\nstops = [', 1)
    mine = load(others + stops)[1].document.generation
    assert (("</mine>",), ("</theirs>",)) == (mine.stops, mine.stops_with_tools)


def test_without_takes_away_what_the_base_has() -> None:
    mine = based(
        'without = ["tools", "turn.tool", "joints.thinking assistant", "joints.thinking tool_call"]\n'
        '[[format.turn]]\nrole = "assistant"\nwithout = ["segment.thinking"]\n'
    )
    assert "tools" not in mine
    assert ["system", "user", "assistant"] == [turn["role"] for turn in mine["turn"]]
    assert ["assistant", "tool_call"] == [one["kind"] for one in mine["turn"][2]["segment"]]
    assert {"assistant tool_call": "\n", "tool_call tool_call": "\n"} == mine["joints"]
    with pytest.raises(
        ts.InvalidFormat, match=r"format\[1\]\.without\[0\]: cannot take away 'turn.tol'; did you mean 'turn.tool'"
    ):
        based('without = ["turn.tol"]\n')
    with pytest.raises(ts.InvalidFormat, match=r"format\[0\]\.without: unknown key"):
        load(TAGGED.replace("separator", 'without = ["tools"]\nseparator'))


def test_a_turn_without_a_closing_ends_before_a_separator_and_the_next_opening() -> None:
    table = TAGGED.replace('close = "\\n</user>"\n', "")
    assert table != TAGGED
    [mine] = load(table)
    request = said("a\n", "b", "<user>\nc", "d")
    text = str(mine.render(request).value)
    assert text.startswith("<user>\na\n\n<assistant>\nb\n</assistant>\n<user>")
    assert ["a\n", "b", "<user>\nc", "d"] == texts(mine.parse(text).items)
    with pytest.raises(
        ts.InvalidFormat, match="where contents are flattened, that takes a `separator` with a blank line"
    ):
        load(table.replace("separator", "flattened = true\nseparator"))


def test_a_fault_in_what_is_inherited_names_the_base() -> None:
    with pytest.raises(ts.InvalidFormat) as caught:
        based('[[format.turn]]\nrole = "user"\nopen = "<tool>\\n"\n')
    assert ("tagged.turn[3].open", True) == (caught.value.path, "format[1].turn[0].open" in str(caught.value))


# ai00's [prompts].

TAGS = """[prompts]
role_user = "user"
role_assistant = "assistant"
role_system = "system"
assistant_prefix = "<ai00:assistant>\\n"
assistant_prefix_thinking = "<ai00:assistant>\\n<think>\\n"
default_stop_sequences = ["</ai00:assistant>"]
"""
LABELS = """[prompts]
role_user = "User"
role_assistant = "Assistant"
role_system = "System"
assistant_prefix = "Assistant:"
assistant_prefix_thinking = "Assistant: <think"
thinking_suffix_short = " think a bit"
thinking_suffix_standard = " think"
thinking_suffix_extended = " think a lot"
"""


def prompts_of(text: str) -> ts.Format:
    [format_] = load(f"[prompts]\n{text}\n" if not text.startswith("[") else text)
    return format_


@pytest.mark.parametrize(("name", "text"), [("ai00-v1", TAGS), ("ai00-v1", "[prompts]"), ("ai00-v0", LABELS)])
def test_the_documented_defaults_are_the_registered_formats(name: str, text: str) -> None:
    """R-A-19, R-G-23: a section that says what holds anyway gives the same bytes."""
    assert name == prompts_of(text).name
    same_behaviour(ts.get_format(name), prompts_of(text))


def test_names_of_roles_change_tags_for_writing_reading_and_escaping() -> None:
    """R-A-19, D-A-19: a role's name is its tag; content cannot hold the new tag, and may hold the old one."""
    format_ = prompts_of('role_user = "human"\nrole_assistant = "bot"\nrole_system = "rules"')
    request = said("a </ai00:human> b </ai00:user>", "c </ai00:bot>")
    text = "<ai00:human>\na <\\/ai00:human> b </ai00:user>\n</ai00:human>\n\n<ai00:bot>\nc <\\/ai00:bot>\n</ai00:bot>"
    assert text == format_.render(request).value
    assert texts(request.items) == texts(format_.parse(text).items)
    assert (["</ai00:bot>"], ["</ai00:bot>", "</ai00:function_calls>"]) == (
        format_.stops,
        list(format_.document.generation.stops_with_tools),
    )
    prompt = format_.prompt(said("Hi"), thinking=True)
    assert prompt.text.endswith("<ai00:bot>\n<think>\n")
    response = ts.fold((parser := prompt.parser()).feed("Hm.\n</think>\nHo.\n</ai00:bot>") + parser.close())
    assert ["thinking", "assistant"] == [item.kind for item in response.items]
    with pytest.raises(ts.InvalidTranscript):
        format_.parse("<ai00:user>\nHi\n</ai00:user>")


def test_roles_can_change_their_names_with_each_other() -> None:
    format_ = prompts_of('role_user = "assistant"\nrole_assistant = "user"')
    assert "<ai00:assistant>\nHi\n</ai00:assistant>\n\n<ai00:user>\n" == format_.prompt(said("Hi")).text
    assert ["</ai00:user>"] == format_.stops


def test_labels_are_names_of_roles_too() -> None:
    """R-G-23, D-G-13: where the prefix is a label, names are labels, and the stops follow them."""
    format_ = prompts_of(
        'assistant_prefix = "Bot:"\nrole_assistant = "Bot"\nrole_user = "Human"\nrole_system = "Rules"'
    )
    text = "Human: Hi\n\nBot: Ho"
    assert text == format_.render(said("Hi", "Ho")).value
    assert ["user", "assistant"] == [item.kind for item in format_.parse(text).items]
    assert ["\n\nHuman:", "\n\nRules:"] == format_.stops
    assert "Human: Hi\n\nBot:" == format_.prompt(said("Hi")).text


def test_changed_prefixes_are_obeyed() -> None:
    """R-A-19, R-G-23: a prefix opens the model's turn, and the parser knows what it leaves to the model."""
    bare = prompts_of('assistant_prefix = "<ai00:assistant>"').prompt(said("Hi"))
    assert bare.text.endswith("\n\n<ai00:assistant>")
    response = ts.fold((parser := bare.parser()).feed("\nHo.\n</ai00:assistant>") + parser.close())
    assert ["Ho."] == texts(response.items)
    other = prompts_of('assistant_prefix = "<ai00:bot>\\n"')
    assert "<ai00:bot>\nHo\n</ai00:assistant>" == str(other.render(said("Hi", "Ho")).value).split("\n\n")[1]
    half = prompts_of('assistant_prefix_thinking = "<ai00:assistant>\\n<think"').prompt(said("Hi"), thinking=True)
    assert half.text.endswith("<ai00:assistant>\n<think")
    none = prompts_of('assistant_prefix_thinking = "<ai00:assistant>\\n"').prompt(said("Hi"), thinking=True)
    assert none.text.endswith("\n\n<ai00:assistant>\n")
    spaced = prompts_of('assistant_prefix = "Assistant: "').prompt(said("Hi"))
    assert "User: Hi\n\nAssistant: " == spaced.text


def test_changed_stops_suffixes_and_texts_around_tools_are_obeyed() -> None:
    """R-A-19, R-G-23: stops, the words that ask for thinking, header and footer of the tool list."""
    stops = prompts_of('default_stop_sequences = ["</ai00:assistant>", "<stop>"]')
    assert ["</ai00:assistant>", "<stop>"] == stops.stops
    assert ("</ai00:assistant>", "<stop>", "</ai00:function_calls>") == stops.document.generation.stops_with_tools
    format_ = prompts_of(
        'assistant_prefix = "Assistant:"\nthinking_suffix_standard = " (think)"\n'
        'tool_header = "\\n\\n## Functions\\n\\nCall them:\\n"\ntool_footer = "That is all."\n'
    )
    request = corpora.load("one_call")
    text = str(format_.render(request).value)
    assert text.startswith("System: ## Functions\nCall them:\n{")
    assert "}\nThat is all.\n\nUser: " in text
    assert request.tools == format_.parse(text).tools
    assert format_.prompt(said("Hi"), thinking=True).text == "User: Hi (think)\n\nAssistant: <think"
    system = ts.Request(conversation=ts.Conversation(items=[ts.System(content=[ts.Text(text="## Functions\nNone.")])]))
    assert system.items == format_.parse(str(format_.render(system).value)).items


def test_another_header_of_the_tools_leaves_the_tags_in_system_texts_broken() -> None:
    format_ = prompts_of('assistant_prefix = "Assistant:"\ntool_header = "## Functions\\nCall them:"\n')
    for text, written in (
        ("a <think> b", "a <\\think> b"),
        ("</tool_call>", "<\\/tool_call>"),
        ("## Functions\n-", ""),
    ):
        system = ts.Request(conversation=ts.Conversation(items=[ts.System(content=[ts.Text(text=text)])]))
        rendered = str(format_.render(system).value)
        assert rendered == f"System: {written}" if written else "\\" in rendered
        assert system.items == format_.parse(rendered).items


PROMPT_FAULTS = {
    'rol_user = "x"': ("rol_user", "did you mean 'role_user'?"),
    "role_user = 1": ("role_user", "expected a string, found the integer 1"),
    'role_user = "a b"': ("role_user", "the name of a tag"),
    'role_user = "assistant"': ("role_user", "is that of the role 'assistant' too"),
    'role_user = "Q:"\nassistant_prefix = "A:"': ("role_user", "a label without `:`"),
    'assistant_prefix = "<"': ("assistant_prefix", "must open the model's turn"),
    'assistant_prefix_thinking = "<think>\\n"': ("assistant_prefix_thinking", "and then '<think>\\n' or its beginning"),
    "default_stop_sequences = []": ("default_stop_sequences", "at least one string"),
    "default_stop_sequences = [1]": ("default_stop_sequences[0]", "expected a string"),
    'tool_header = "x"': ("tool_header", 'with assistant_prefix = "Assistant:" it has'),
    'tool_header = ""\nassistant_prefix = "Assistant:"': ("tool_header", "finds the tool list by this text"),
    'role_user = "function_calls"': ("", "a reader could not tell the two apart"),
}


@pytest.mark.parametrize("text", PROMPT_FAULTS)
def test_a_fault_of_the_section_is_told_with_its_key(text: str) -> None:
    """R-A-19, R-G-23: what cannot be obeyed is refused."""
    key, words = PROMPT_FAULTS[text]
    with pytest.raises(ts.InvalidFormat) as caught:
        prompts_of(text)
    assert f"prompts.{key}".rstrip(".") == caught.value.path
    assert words in str(caught.value)


def test_the_section_and_formats_can_share_a_file_with_other_programs() -> None:
    text = f'{TAGS}\n[model]\nname = "x"\n\n[[format]]\nname = "mine"\nbased_on = "ai00-v1"\n'
    configured, mine = load(text.replace('role_user = "user"', 'role_user = "human"'))
    assert ("ai00-v1", "mine") == (configured.name, mine.name)
    assert configured.special_tokens == mine.special_tokens
    assert "<ai00:human>" in mine.special_tokens
