"""Owns what a chat template writes: the settings of transformers, the errors, and what is remembered."""

import pickle
import sys
import tomllib
from datetime import datetime
from pathlib import Path

import pytest

import turnscript as ts
from tests.chat_templates import reading_samples
from tests.chat_templates.loading import loaded
from turnscript.core.json_text import Json

CASES = tomllib.loads((Path(__file__).parents[1] / "cases" / "template_words.toml").read_text(encoding="utf-8"))["case"]
ERRORS = {
    "refuses": "{{ raise_exception('No tools, ' ~ 'please') }}",
    "fails": "{{ 1 + 'a' }}",
    "has no member": "{{ v.b.c }}",
    "is stopped": "{{ 'a' * 10**9 }}",
}
NAMES = [*(case["about"] for case in CASES), *ERRORS]


def frame() -> str:
    """A template that writes each of these where a tool has its number, and else conversations."""
    sources = [*(case["source"] for case in CASES), *(f"\n{source}" for source in ERRORS.values())]
    arms = [f"{{%- elif tools[0].function.name == 'case{at}' -%}}{source}" for at, source in enumerate(sources)]
    value = "{%- set v = tools[0].function.parameters if tools -%}"
    return f"{value}{{%- if not tools -%}}{reading_samples.CHATML.strip()}{''.join(arms)}{{%- endif -%}}"


@pytest.fixture(scope="module")
def format_(tmp_path_factory: pytest.TempPathFactory) -> ts.Format:
    return loaded(tmp_path_factory.mktemp("program"), frame())


def prompt_of(format_: ts.Format, name: str, value: str = "{}") -> str:
    """What the template writes of a case, or where it is wrong; the value is the parameters of a tool."""
    tool = ts.Tool(name=f"case{NAMES.index(name)}", parameters=Json(value.encode()))
    asked = ts.Request(conversation=ts.Conversation(items=[ts.User(content=[ts.Text(text="Hi")])], tools=[tool]))
    return format_.prompt(asked).text


@pytest.mark.parametrize("case", CASES, ids=[case["about"] for case in CASES])
def test_a_template_writes_what_transformers_would(format_: ts.Format, case: dict[str, str]) -> None:
    """Once and again: what is remembered of a tool changes nothing."""
    found = [prompt_of(format_, case["about"], case.get("v", "{}")) for _ in range(2)]
    assert [case["written"]] * 2 == found


def test_a_format_with_a_template_survives_pickling(format_: ts.Format) -> None:
    again = pickle.loads(pickle.dumps(format_))
    assert '{"a": 1}' == prompt_of(again, "json", '{"a": 1}')


def dated(folder: Path) -> ts.Format:
    return loaded(folder, "{{ 'Today: ' ~ strftime_now('%d %b %Y') ~ '\\n' }}" + reading_samples.CHATML)


def test_the_date_is_the_one_that_is_told_and_else_the_clocks(tmp_path: Path) -> None:
    asked = ts.Request(conversation=ts.Conversation(items=[ts.User(content=[ts.Text(text="Hi")])]))
    format_ = dated(tmp_path)
    assert format_.prompt(asked, now=datetime(2026, 11, 28)).text.startswith("Today: 28 Nov 2026\n")
    assert datetime.now().strftime("%Y\n") in format_.prompt(asked).text


def test_the_names_that_a_template_reads_are_known(tmp_path: Path) -> None:
    source = "{%- set own = 1 -%}{{ mood ~ bos_token ~ ('' if own else strftime_now('%d')) }}{{ namespace() and '' }}"
    template = loaded(tmp_path, source + reading_samples.CHATML).template
    assert template is not None
    assert ("mood",) == template.wishes
    assert {"bos_token", "messages", "add_generation_prompt", "mood"} == template.variables


@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [
        ("refuses", ts.Unsupported, ": the template refuses this conversation: No tools, please"),
        ("fails", ts.InvalidInput, ": the template fails on this conversation \\(TypeError: "),
        ("has no member", ts.InvalidInput, ".*UndefinedError: 'dict object' has no attribute 'b'"),
        ("is stopped", ts.InvalidInput, ": the template was stopped: it "),
    ],
)
def test_an_error_names_the_template_and_the_line(
    format_: ts.Format, name: str, kind: type[ts.TurnscriptError], said: str
) -> None:
    """It says a refusal in the template's own words, survives pickling, and leaves the template as it was."""
    with pytest.raises(kind, match=rf"my\.jinja, line \d+{said}") as caught:
        prompt_of(format_, name)
    line = frame().split(ERRORS[name])[0].count("\n") + 1
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(caught.value), str(caught.value), line) == (type(again), str(again), again.line)
    assert '{"a": 1}' == prompt_of(format_, "json", '{"a": 1}')


def test_what_is_no_template_is_an_error_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(ts.InvalidInput, match=r"my\.jinja, line 2: .*endfor"):
        loaded(tmp_path, "a\n{% endfor %}")


def test_without_jinja2_it_is_said_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ts.Unsupported, match=r"pip install 'turnscript\[cli\]'"):
        loaded(tmp_path, reading_samples.CHATML)
