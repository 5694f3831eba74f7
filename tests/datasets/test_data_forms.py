"""Owns the laws of forms: each reads its own rows, refuses what it does not understand, and no other misreads them."""

import itertools
import json
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import pytest

from tests.datasets.samples import GUESSED, WITH_FILES, files_of, rows_of, samples_of, what_is_said
from tests.every import every
from turnscript.convert.registry import formats
from turnscript.core.errors import InvalidInput, UnknownName
from turnscript.datasets import forms as package
from turnscript.datasets.form import WHOLE, Example
from turnscript.datasets.form_detection import detect_form
from turnscript.datasets.form_registry import forms, get_form
from turnscript.datasets.labelled_texts import STYLES
from turnscript.datasets.members import CONVERSATIONAL
from turnscript.datasets.problems import problem_of

DEEP: Any = "x"
for _ in range(60):
    DEEP = [DEEP]
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2**70, 1.5, "", " ", "text", "null", "[]", "{}", '{"a": 1}', "[1]", '"x"'),
    *([], {}, [None], [1], ["text"], [[]], [{}], {"a": 1}, {"name": "f", "arguments": {}}, DEEP),
    *("\ud800", "user", "assistant", "tool", "robot", "<tool_call>", "</tool_call>", "<tools>[", "USER:", "{'a': 1}"),
)


def read(form: str, data: bytes) -> list[Example] | None:
    """What a form makes of a row; None for one that it refuses. Any other error fails the test."""
    try:
        examples = get_form(form).read(data)
    except InvalidInput as error:
        return None if problem_of(error).message else pytest.fail(f"{form} refuses a row and does not say why")
    assert examples, "a form gives at least one example, or refuses"
    return examples


GUARDED = [name for name in GUESSED if hasattr(sys.modules[type(get_form(name)).__module__], "check_unread")]
"""Forms that check for members that they do not read."""


# The registry.


def test_every_module_of_the_package_is_registered() -> None:
    declared = [form.name for module in modules() for form in sys.modules[module].FORMS]
    assert forms()
    assert sorted(declared) == sorted(forms())
    assert len(set(forms())) == len(forms())


def modules() -> list[str]:
    return [f"{package.__name__}.{found.name}" for found in iter_modules(package.__path__)]


def test_an_unknown_form_names_the_nearest() -> None:
    with pytest.raises(UnknownName, match="sharegpt"):
        get_form("share-gpt")


def test_an_installed_package_adds_a_form_by_its_entry_point(tmp_path: Path) -> None:
    (tmp_path / "haiku.py").write_text(
        textwrap.dedent(
            """
            from turnscript.datasets.form import Form
            class Haiku(Form):
                name = "haiku"; title = "Haiku"; fields = "lines"
                def score(self, record): return 0, ""
                def read(self, data): return []
            FORMS = (Haiku(),)
            """
        )
    )
    installed = tmp_path / "haiku-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: haiku\nVersion: 1\n")
    (installed / "entry_points.txt").write_text("[turnscript.forms]\nhaiku = haiku:FORMS\n")
    script = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
    script += "from turnscript.datasets.form_registry import forms, get_form\n"
    script += "print(forms()[-1], get_form('haiku').title)"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout.split() == ["haiku", "Haiku"]


@pytest.mark.parametrize("form", forms())
def test_a_form_says_what_it_is(form: str) -> None:
    found = get_form(form)
    assert found.title
    assert found.fields
    doc = sys.modules[type(found).__module__].__doc__ or ""
    assert "\n    " in doc, "the module shows an example of a row"


# The sample rows.


@pytest.mark.parametrize("form", WITH_FILES)
def test_every_form_has_sample_rows(form: str) -> None:
    assert files_of(form), f"add tests/datasets/rows/{form}.jsonl with rows in the shape of public data"


@pytest.mark.parametrize("form", forms())
def test_a_form_reads_all_its_sample_rows(form: str) -> None:
    rows = rows_of(form)
    assert rows
    for row in rows:
        for example in get_form(form).read(row):
            assert example.is_document or example.request.items


@pytest.mark.parametrize("form", GUESSED)
def test_sample_files_are_told_to_be_of_their_form(form: str) -> None:
    for path in files_of(form):
        verdict = detect_form(samples_of(path), path.name)
        assert (form, "") == (verdict.form, verdict.refusal)
        assert verdict.share == 1 or get_form(form).row == WHOLE
        assert verdict.reasons


LABELLED = [style.name for style in STYLES]


@pytest.mark.parametrize("form", forms())
def test_another_form_refuses_the_row_or_reads_the_same(form: str) -> None:
    plain = "text-file"  # takes anything for what it is, a text; it is never guessed for JSON
    others = set(forms()) - ({"text"} if form in LABELLED else set())  # which takes a chat for a text where it is named
    for row in rows_of(form):
        said = what_is_said(get_form(form).read(row))
        for other in others:
            if plain not in (form, other) and (examples := read(other, row)) is not None:
                assert what_is_said(examples) == said, f"{other} misreads {row[:200]!r}"


@pytest.mark.parametrize("form", forms())
def test_reading_a_row_twice_gives_the_same(form: str) -> None:
    for row in rows_of(form):
        first, second = get_form(form).read(row), get_form(form).read(row)
        assert what_is_said(first) == what_is_said(second)
        assert [(one.weights, one.context) for one in first] == [(one.weights, one.context) for one in second]


# What is wrong.


def records(form: str) -> Iterator[Any]:
    """The sample records of a form, decoded. A row of many lines gives its first ones."""
    for row in rows_of(form):
        for line in [row] if get_form(form).row != WHOLE else row.splitlines()[:6]:
            yield json.loads(line)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value in a value."""
    yield path
    if isinstance(value, dict):
        for key, member in value.items():
            yield from places(member, (*path, key))
    elif isinstance(value, list):
        for index, member in enumerate(value):
            yield from places(member, (*path, index))


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """A value with another at a path. What is beside the path is that of the first."""
    if not path:
        return new
    copied = value.copy()
    copied[path[0]] = changed(value[path[0]], path[1:], new)
    return copied


def without(value: Any, path: tuple[Any, ...]) -> Any:
    """A value without what is at a path."""
    copied = value.copy()
    if path[1:]:
        copied[path[0]] = without(value[path[0]], path[1:])
    else:
        del copied[path[0]]
    return copied


def line(value: Any) -> bytes:
    return json.dumps(value).encode()  # half a surrogate pair becomes an escape


@pytest.mark.parametrize("form", GUESSED)
def test_any_value_in_place_of_any_other_is_read_or_refused(form: str) -> None:
    for record in records(form):
        for number, path in enumerate(places(record)):
            for value in VALUES[number % 4 :: 4] if len(path) > 2 else VALUES:
                read(form, line(changed(record, path, value)))


@pytest.mark.parametrize("form", GUESSED)
def test_a_row_without_any_of_its_members_is_read_or_refused(form: str) -> None:
    for record in records(form):
        for path in places(record):
            if path:
                read(form, line(without(record, path)))


@pytest.mark.parametrize("form", GUESSED)
def test_a_row_with_anything_twice_is_read_or_refused(form: str) -> None:
    for record in records(form):
        for path in places(record):
            if path and isinstance(path[-1], int):
                parent = record
                for key in path[:-1]:
                    parent = parent[key]
                read(form, line(changed(record, path[:-1], [*parent[: path[-1] + 1], *parent[path[-1] :]])))


@pytest.mark.parametrize("form", forms())
def test_broken_bytes_are_read_or_refused(form: str) -> None:
    for row in rows_of(form):
        for cut in range(0, len(row), max(1, len(row) // 40)):
            read(form, row[:cut])
            read(form, row[:cut] + b"\xff" + row[cut:])
            read(form, row[:cut] + b"\x00" + row[cut:])


@pytest.mark.parametrize("form", GUESSED)
@every("data", [b"", b"  ", b"null", b"[]", b"{}", b"7", b'"x"', b"{", b'{"a": NaN}', b"[" * 5000])
def test_what_is_no_record_is_refused(form: str, data: bytes) -> None:
    assert read(form, data) is None


@pytest.mark.parametrize("form", GUESSED)
def test_deep_nesting_is_refused_and_never_crashes(form: str) -> None:
    for record in records(form):
        for key in record if isinstance(record, dict) else ():
            data = line(changed(record, (key,), "DEEP")).replace(b'"DEEP"', b"[" * 2000 + b"]" * 2000)
            read(form, data)
            get_form(form).score(changed(record, (key,), DEEP))


@pytest.mark.parametrize("form", GUESSED)
def test_scores_never_raise_and_stay_between_0_and_1(form: str) -> None:
    for other in GUESSED:
        for record in itertools.islice(records(other), 2):
            before = line(record)
            for number, path in enumerate(places(record)):
                if 0 < len(path) < 4:
                    for value in VALUES[number % 6 :: 6]:
                        score, why = get_form(form).score(changed(record, path, value))
                        assert 0 <= score <= 1
                        assert why or not score
            assert before == line(record), "a score changes what it looks at"


# Nothing is left out.

MARKER = "zzqx marker"


def holds_marker(examples: list[Example]) -> bool:
    return any(MARKER in repr(said) for said in what_is_said(examples)) or any(
        MARKER in repr(tool) for example in examples for tool in example.request.tools
    )


CHECKED = [name for name in GUESSED if get_form(name).row != WHOLE]


@pytest.mark.parametrize("form", GUARDED)
def test_another_member_of_a_conversation_is_read_or_refused(form: str) -> None:
    settings = {"audio", "options", "reasoning", "text", "thinking"}  # of API requests; `text` is Alpaca's own copy
    for record in records(form):
        for key in sorted(CONVERSATIONAL - record.keys() - settings):
            for value in (MARKER, [MARKER], {"content": MARKER}):
                examples = read(form, line(record | {key: value}))
                assert examples is None or holds_marker(examples), f"{form} leaves out {key}"


TURNS = {
    "hermes": ("conversations", "messages"),
    "llama-factory": ("messages",),
    "nemo-chat": ("conversations",),
    "oasst": ("thread", "prompt"),
    "preference": ("conversations",),
    "sharegpt": ("conversations",),
    "taskmaster": ("utterances",),
    "toolbench": ("conversations",),
}
"""Forms whose turns are of their own making, and the members that hold them."""


def turns_in(value: Any) -> Iterator[dict[str, Any]]:
    """The turns in a member: one, a list of them, or a tree, of which a branch that was refused is not looked at."""
    if isinstance(value, list):
        yield from (one for one in value if isinstance(one, dict))
    elif isinstance(value, dict) and not value.get("deleted") and value.get("review_result") is not False:
        yield value
        yield from (one for reply in value.get("replies", []) for one in turns_in(reply))


@pytest.mark.parametrize(("form", "lists"), TURNS.items())
def test_another_member_of_a_turn_is_read_or_refused(form: str, lists: tuple[str, ...]) -> None:
    """A thought, a call or a picture beside what a turn says is not left out without a word."""
    seen = 0
    for record in records(form):
        for turn in (turn for name in lists for turn in turns_in(record.get(name))):
            for key in ("thinking", "reasoning_content", "tool_calls", "function_call", "images", "system"):
                turn[key] = MARKER
                examples = read(form, line(record))
                assert examples is None or holds_marker(examples), f"{form} leaves out {key} of a turn"
                turn[key] = None if key != "tool_calls" else []
                assert read(form, line(record)) is not None
                del turn[key]
                seen += 1
    assert seen >= 6


@pytest.mark.parametrize("form", CHECKED)
def test_notes_about_a_row_change_nothing(form: str) -> None:
    for record in records(form):
        noted = line(record | {"my_note": MARKER, "quality": 0.5, "language": None})
        assert what_is_said(get_form(form).read(noted)) == what_is_said(get_form(form).read(line(record)))


def test_formats_are_forms_too() -> None:
    assert set(formats()) <= set(forms())
