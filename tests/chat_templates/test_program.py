"""Owns what a chat template writes: the settings of transformers, the errors, and what is remembered."""

import pickle
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import turnscript as ts
from tests.chat_templates import reading_samples
from tests.chat_templates.loading import loaded
from turnscript.core.json_text import json_of

PARAMETERS: dict[str, Any] = {"b": [1, 2.0, None], "a": "城市 & 'x'"}
PLAIN = """{"b": [1, 2.0, null], "a": "城市 & 'x'"}"""
INDENTED = """{\n "b": [\n  1,\n  2.0,\n  null\n ],\n "a": "城市 & 'x'"\n}"""
COUNTED = "".join(
    f"{{% for x in range({count}) %}}{{{{ loop.index0 }}}}/{{{{ loop.length }}}}{{{{ loop.last }}}}"
    "{{ loop.nextitem|default('-') }};{% endfor %}|"
    for count in (0, 1, 3, 40)
)
CASES: dict[str, tuple[str, Any, str]] = {
    "json": ("{{ v|tojson }}", PARAMETERS, PLAIN),
    "json with no indent": ("{{ v|tojson(indent=none) }}", PARAMETERS, PLAIN),
    "json with sorted keys": (
        "{{ v|tojson(sort_keys=true) }}",
        PARAMETERS,
        """{"a": "城市 & 'x'", "b": [1, 2.0, null]}""",
    ),
    "json with separators": (
        "{{ v|tojson(separators=(',', ':')) }}",
        PARAMETERS,
        PLAIN.replace(": ", ":").replace(", ", ","),
    ),
    "json with a list of separators": (
        "{{ v|tojson(separators=[',', ':']) }}",
        PARAMETERS,
        PLAIN.replace(": ", ":").replace(", ", ","),
    ),
    "json in ascii": ("{{ v|tojson(ensure_ascii=true) }}", PARAMETERS, PLAIN.replace("城市", "\\u57ce\\u5e02")),
    "json in ascii by place": ("{{ v|tojson(true) }}", PARAMETERS, PLAIN.replace("城市", "\\u57ce\\u5e02")),
    "json over lines": ("{{ v|tojson(indent=1) }}", PARAMETERS, INDENTED),
    "an indent of one, which is not remembered as true": (
        "{{ v|tojson(indent=none) }}{{ v|tojson(indent=1) }}{{ v|tojson(indent=0) }}{{ v|tojson(indent=1) }}",
        {"a": 1},
        '{"a": 1}{\n "a": 1\n}{\n"a": 1\n}{\n "a": 1\n}',
    ),
    "what is remembered, as it was": (
        "{{ v }}{{ v.a }}{{ v['a'] }}{{ v.items()|list }}{{ v is mapping }}{{ v.b[1:] + [3] }}",
        {"a": "x", "b": [1, 2]},
        "{'a': 'x', 'b': [1, 2]}xx[('a', 'x'), ('b', [1, 2])]True[2, 3]",
    ),
    "lines of blocks, trimmed": ("a\n  {% if true %}\n  b\n  {% endif %}\nc", {}, "a\n  b\nc"),
    "loops that are left and continued": (
        "{% for x in v %}{% if x == 2 %}{% continue %}{% elif x == 4 %}{% break %}{% endif %}{{ x }}{% endfor %}",
        [1, 2, 3, 4, 5],
        "13",
    ),
    "loops that know where they are": (
        COUNTED,
        {},
        "".join(
            "".join(f"{i}/{count}{i == count - 1}{i + 1 if i + 1 < count else '-'};" for i in range(count)) + "|"
            for count in (0, 1, 3, 40)
        ),
    ),
    "loops over what a filter yields": (
        (
            "{% for k, v in v.a|items %}{{ k }}={{ v }} {% endfor %}"
            "{% for x in v.b|map('upper') if x != 'B' %}{{ x }}{% endfor %}"
        ),
        {"a": {"p": 1, "q": 2}, "b": ["a", "b", "c"]},
        "p=1 q=2 AC",
    ),
    "a loop that calls itself": (
        "{% for n in v.a recursive %}{{ n.v }}({{ loop(n.c) }}){% endfor %}",
        {"a": [{"v": 1, "c": [{"v": 2, "c": []}, {"v": 3, "c": []}]}]},
        "1(2()3())",
    ),
    "what the model writes, whose names stay in it": (
        (
            "{% set x = 1 %}{% for m in v.a %}{% generation %}{% set x = m %}{{ x }}{{ loop.index }}"
            "{% endgeneration %}{% endfor %}{{ x }}"
        ),
        {"a": "ab"},
        "a1b21",
    ),
    "what is not there": ("{{ a }}|{{ v.b }}|{{ 'yes' if v['c'] is not defined }}", {}, "||yes"),
    "a member before and behind the methods of its dictionary": (
        "{{ v.x }}|{{ v['get'] }}|{{ v.keys()|list|sort }}",
        {"x": 1, "get": 2},
        "1|2|['get', 'x']",
    ),
    "text that is taken apart by Python's methods": (
        (
            "{{ v.a.split('(/b)')[-1].lstrip('\\n') }}|{{ v.a[::-1][:2] }}|{{ v.a.startswith('(') }}|"
            "{{ '{}-{x}'.format(1, x=2) }}|{{ '%03d' % 7 }}"
        ),
        {"a": "(b)hm(/b)\n\nso"},
        "so|os|True|1-2|007",
    ),
    "macros and namespaces": (
        (
            "{% macro f(a, b='-') %}[{{ a }}{{ b }}]{% endmacro %}{% set n = namespace(t='') %}"
            "{% for x in 'ab' %}{% set n.t = n.t ~ f(x) + f(x, b=x) %}{% endfor %}{{ n.t }}"
        ),
        {},
        "[a-][aa][b-][bb]",
    ),
}
"""By what they are about, expressions of a template, a value `v` that it has from a tool, and what it writes of it."""
ERRORS = {
    "refuses": "{{ raise_exception('No tools, ' ~ 'please') }}",
    "fails": "{{ 1 + 'a' }}",
    "has no member": "{{ v.b.c }}",
    "is stopped": "{{ 'a' * 10**9 }}",
}
NAMES = [*CASES, *ERRORS]


def frame() -> str:
    """A template that writes each of these where a tool has its number, and else conversations."""
    sources = [source for source, *_ in CASES.values()] + [f"\n{source}" for source in ERRORS.values()]
    arms = [f"{{%- elif tools[0].function.name == 'case{at}' -%}}{source}" for at, source in enumerate(sources)]
    value = "{%- set v = tools[0].function.parameters if tools -%}"
    return f"{value}{{%- if not tools -%}}{reading_samples.CHATML.strip()}{''.join(arms)}{{%- endif -%}}"


@pytest.fixture(scope="module")
def format_(tmp_path_factory: pytest.TempPathFactory) -> ts.Format:
    return loaded(tmp_path_factory.mktemp("program"), frame())


def prompt_of(format_: ts.Format, name: str, value: Any = None, now: datetime | None = None) -> str:
    """What the template writes where a tool has this name, and these parameters."""
    tool = ts.Tool(name=f"case{NAMES.index(name)}", parameters=json_of({} if value is None else value))
    asked = ts.Request(conversation=ts.Conversation(items=[ts.User(content=[ts.Text(text="Hi")])], tools=[tool]))
    return format_.prompt(asked, now=now).text


@pytest.mark.parametrize("name", CASES)
def test_a_template_writes_what_transformers_would(format_: ts.Format, name: str) -> None:
    """Once and again: what is remembered of a tool changes nothing."""
    _, value, expected = CASES[name]
    assert [expected] * 2 == [prompt_of(format_, name, value) for _ in range(2)]


def test_a_format_with_a_template_survives_pickling(format_: ts.Format) -> None:
    again = pickle.loads(pickle.dumps(format_))
    assert PLAIN == prompt_of(again, "json", PARAMETERS)


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
    assert PLAIN == prompt_of(format_, "json", PARAMETERS)


def test_what_is_no_template_is_an_error_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(ts.InvalidInput, match=r"my\.jinja, line 2: .*endfor"):
        loaded(tmp_path, "a\n{% endfor %}")


def test_without_jinja2_it_is_said_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ts.Unsupported, match=r"pip install 'turnscript\[cli\]'"):
        loaded(tmp_path, reading_samples.CHATML)
