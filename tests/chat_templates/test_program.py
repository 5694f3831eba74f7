"""Owns what a chat template writes: the settings of transformers, the errors, and what is remembered."""

import pickle
import sys
from datetime import datetime
from typing import Any

import pytest

from turnscript.core.errors import Unsupported
from turnscript.engine.template.frozen import frozen
from turnscript.engine.template.program import (
    InvalidTemplate,
    Program,
    TemplateFailed,
    TemplateLimit,
    TemplateRefused,
)

TOOL: dict[str, Any] = {"name": "search", "parameters": {"b": [1, 2.0, None], "a": "<城市 & 'x'>"}}
PLAIN = '{"name": "search", "parameters": {"b": [1, 2.0, null], "a": "<城市 & \'x\'>"}}'


def write(source: str, now: datetime | None = None, **variables: Any) -> str:
    return Program(source).render(variables, now=now)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("", PLAIN),
        ("(indent=none)", PLAIN),
        ("(sort_keys=true)", '{"name": "search", "parameters": {"a": "<城市 & \'x\'>", "b": [1, 2.0, null]}}'),
        ("(separators=(',', ':'))", PLAIN.replace(": ", ":").replace(", ", ",")),
        ("(separators=[',', ':'])", PLAIN.replace(": ", ":").replace(", ", ",")),
        ("(ensure_ascii=true)", PLAIN.replace("城市", "\\u57ce\\u5e02")),
        ("(true)", PLAIN.replace("城市", "\\u57ce\\u5e02")),
        (
            "(indent=1)",
            (
                '{\n "name": "search",\n "parameters": {\n  "b": [\n   1,\n   2.0,\n   null\n  ],\n'
                '  "a": "<城市 & \'x\'>"\n }\n}'
            ),
        ),
    ],
)
def test_json_is_spelled_as_its_options_say(options: str, expected: str) -> None:
    source = "{{ tool|tojson" + options + " }}"
    assert expected == write(source, tool=TOOL)
    program, remembered = Program(source), frozen(TOOL)
    assert [expected, expected] == [program.render({"tool": remembered}), program.render({"tool": remembered})]


def test_what_is_frozen_is_to_a_template_what_it_was() -> None:
    source = "{{ t }}{{ t.name }}{{ t['name'] }}{{ t.items()|list }}{{ t is mapping }}{{ t.parameters.b[1:] + [3] }}"
    assert write(source, t=TOOL) == write(source, t=frozen(TOOL))


def test_an_integer_indent_of_one_is_not_remembered_as_true() -> None:
    program, value = Program("{{ v|tojson(indent=how) }}"), frozen([1])
    assert ["[1]", "[\n 1\n]", "[\n1\n]"] == [program.render({"v": value, "how": how}) for how in (None, 1, 0)]


def test_lines_of_blocks_are_trimmed() -> None:
    assert "a\n  b\nc" == write("a\n  {% if true %}\n  b\n  {% endif %}\nc\n")


def test_loops_are_left_and_continued() -> None:
    source = (
        "{% for x in xs %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 4 %}{% break %}"
        "{% endif %}{{ x }}{% endfor %}"
    )
    assert "13" == write(source, xs=[1, 2, 3, 4, 5])


@pytest.mark.parametrize("count", [0, 1, 3, 40])
def test_a_loop_knows_where_it_is_however_it_is_counted(count: int) -> None:
    source = (
        "{% for x in xs %}{{ loop.index0 }}/{{ loop.length }}{{ loop.last }}"
        "{{ loop.nextitem|default('-') }};{% endfor %}"
    )
    expected = "".join(f"{i}/{count}{i == count - 1}{i + 1 if i + 1 < count else '-'};" for i in range(count))
    assert expected == write(source, xs=list(range(count)))


def test_a_loop_runs_over_what_a_filter_yields() -> None:
    source = (
        "{% for k, v in d|items %}{{ k }}={{ v }} {% endfor %}"
        "{% for x in xs|map('upper') if x != 'B' %}{{ x }}{% endfor %}"
    )
    assert "p=1 q=2 AC" == write(source, d={"p": 1, "q": 2}, xs=["a", "b", "c"])


def test_a_loop_that_calls_itself_sees_every_level() -> None:
    source = "{% for n in tree recursive %}{{ n.v }}({{ loop(n.c) }}){% endfor %}"
    assert "1(2()3())" == write(source, tree=[{"v": 1, "c": [{"v": 2, "c": []}, {"v": 3, "c": []}]}])


def test_what_the_model_writes_is_rendered_and_its_names_stay_in_it() -> None:
    source = (
        "{% set x = 1 %}{% for m in ms %}{% generation %}{% set x = m %}{{ x }}{{ loop.index }}"
        "{% endgeneration %}{% endfor %}{{ x }}"
    )
    assert "a1b21" == write(source, ms="ab")


def test_the_date_is_the_one_that_is_told() -> None:
    assert "28 Nov 2026" == write("{{ strftime_now('%d %b %Y') }}", datetime(2026, 11, 28))


def test_the_date_is_the_clocks_where_none_is_told() -> None:
    assert datetime.now().strftime("%Y") == write("{{ strftime_now('%Y') }}")


def test_what_is_not_there_is_empty_and_has_no_members() -> None:
    assert "||yes" == write("{{ a }}|{{ m.b }}|{{ 'yes' if m['c'] is not defined }}", m={})
    with pytest.raises(TemplateFailed, match="'dict object' has no attribute 'b'"):
        write("{{ m.b.c }}", m={})


def test_a_member_is_found_before_and_behind_the_methods_of_its_dictionary() -> None:
    assert "1|2|['get', 'x']" == write("{{ m.x }}|{{ m['get'] }}|{{ m.keys()|list|sort }}", m={"x": 1, "get": 2})


def test_text_is_taken_apart_by_pythons_methods() -> None:
    source = (
        "{{ c.split('</think>')[-1].lstrip('\\n') }}|{{ c[::-1][:2] }}|{{ c.startswith('<') }}|"
        "{{ '{}-{x}'.format(1, x=2) }}|{{ '%03d' % 7 }}"
    )
    assert "so|os|True|1-2|007" == write(source, c="<think>hm</think>\n\nso")


def test_macros_and_namespaces_keep_what_they_are_given() -> None:
    source = (
        "{% macro f(a, b='-') %}[{{ a }}{{ b }}]{% endmacro %}{% set n = namespace(t='') %}"
        "{% for x in 'ab' %}{% set n.t = n.t ~ f(x) + f(x, b=x) %}{% endfor %}{{ n.t }}"
    )
    assert "[a-][aa][b-][bb]" == write(source)


def test_the_names_that_a_template_reads_are_known() -> None:
    source = (
        "{% set own = 1 %}{{ own ~ bos_token }}{% for m in messages %}"
        "{{ m.role ~ strftime_now('%d') }}{{ namespace() }}{% endfor %}{{ tools is defined }}"
    )
    assert {"bos_token", "messages", "tools"} == Program(source).variables


def test_a_refusal_is_told_in_the_templates_own_words() -> None:
    with pytest.raises(TemplateRefused) as caught:
        Program("a\n{{ raise_exception('No tools, ' ~ who) }}", name="my.jinja").render({"who": "please"})
    assert ("No tools, please", 2) == (caught.value.said, caught.value.line)
    assert "my.jinja, line 2: the template refuses this conversation: No tools, please" == str(caught.value)


def test_an_error_names_the_template_and_the_line() -> None:
    with pytest.raises(InvalidTemplate, match=r"my\.jinja, line 2: .*endfor"):
        Program("a\n{% endfor %}", name="my.jinja")
    with pytest.raises(TemplateFailed, match=r"my\.jinja, line 3: .*TypeError"):
        Program("a\n\n{{ 1 + 'a' }}", name="my.jinja").render({})


@pytest.mark.parametrize("source", ["\n{{ raise_exception('no') }}", "\n{{ x.y.z }}", "\n{{ 'a' * 10**9 }}"])
def test_an_error_survives_pickling(source: str) -> None:
    with pytest.raises((TemplateRefused, TemplateFailed, TemplateLimit)) as caught:
        write(source)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(caught.value), str(caught.value), 2) == (type(again), str(again), again.line)


def test_a_program_survives_pickling() -> None:
    again = pickle.loads(pickle.dumps(Program("{{ x }}", name="mine")))
    assert ("mine", "1") == (again.name, again.render({"x": 1}))


def test_an_error_leaves_the_program_as_it_was() -> None:
    program = Program("{% for i in range(n) %}{{ 'a' * n }}{% endfor %}")
    with pytest.raises(TemplateLimit):
        program.render({"n": 90_000})
    assert "aaaa" == program.render({"n": 2})


def test_without_jinja2_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(Unsupported, match=r"pip install 'turnscript\[cli\]'"):
        Program("a")
