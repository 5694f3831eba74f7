"""Owns templates that mean harm: each ends soon, with an error that says why, and gets at nothing."""

from pathlib import Path
from time import perf_counter

import pytest

import turnscript as ts
from tests.chat_templates import reading_samples
from tests.chat_templates.loading import loaded

ENDLESS = {
    "loops in loops": "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
    "short loops in loops": "{% for a in 'abcdef' %}" * 12 + "{% endfor %}" * 12,
    "a text that doubles": "{% set n = namespace(x='ab') %}{% for i in range(90) %}{% set n.x = n.x ~ n.x %}"
    "{% endfor %}",
    "a sum that doubles": "{% set n = namespace(x='ab') %}{% for i in range(90) %}{% set n.x = n.x + n.x %}"
    "{% endfor %}",
    "a list that doubles": "{% set n = namespace(x=[1]) %}{% for i in range(90) %}{% set n.x = n.x + n.x %}"
    "{% endfor %}",
    "a list in itself": "{% set n = namespace(x=[1]) %}{% for i in range(90) %}{% set n.x = [n.x, n.x] %}{% endfor %}",
    "a tuple as a key": "{% set n = namespace(x=(1,)) %}{% for i in range(90) %}{% set n.x = (n.x, n.x) %}"
    "{% endfor %}{{ {n.x: 1} }}",
    "a dictionary in itself": "{% set n = namespace(x=1) %}{% for i in range(90) %}{% set n.x = dict(a=n.x, b=n.x) %}"
    "{% endfor %}",
    "namespaces in each other": "{% set n = namespace(x=1) %}{% for i in range(90) %}"
    "{% set n.x = namespace(a=n.x, b=n.x) %}{% endfor %}{{ n.x }}",
    "members of a cycler": "{% set n = namespace(x=1) %}{% for i in range(90) %}{% set n.x = cycler(n.x, n.x).items %}"
    "{% endfor %}",
    "arguments of a macro": "{% macro f(d) %}{{ f(d - 1, varargs, varargs) if d else varargs }}{% endmacro %}"
    "{{ f(60, 1, 1) }}",
    "what a loop is called with": "{% for x in [[1, 1]] recursive %}{% if loop.depth < 60 %}{{ loop([[x, x]]) }}"
    "{% else %}{{ x }}{% endif %}{% endfor %}",
    "defaults of a map": "{% set n = namespace(x=1) %}{% for i in range(90) %}"
    "{% set n.x = [0, 0]|map('default', n.x, true)|list %}{% endfor %}",
    "many names": "{% set a0 = [1, 1] %}" + "".join(f"{{% set a{i + 1} = [a{i}, a{i}] %}}" for i in range(60)),
    "blocks of text": "{% set x %}ab{% endset %}" + "{% set x %}{{ x }}{{ x }}{% endset %}" * 60,
    "quotes of quotes": "{% set n = namespace(x='\\'\"') %}{% for i in range(90) %}{% set n.x = [n.x]|string %}"
    "{% endfor %}",
    "a macro that calls itself": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "a macro that calls itself twice": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}"
    "{% endmacro %}{{ f(60) }}",
    "a block in itself": "{% block a %}{{ self.a() }}{% endblock %}",
    "a loop that calls itself": "{% for x in [[1]] recursive %}{{ loop([x]) }}{% endfor %}",
    "a cycler without end": "{% set c = cycler(1, 2) %}{% for i in range(9999) %}{% for j in range(9999) %}"
    "{{ c.next() }}{% endfor %}{% endfor %}",
    "a list that grows": "{% set n = namespace(x=[]) %}{% for i in range(99999) %}{% set n.x = n.x + [i] %}"
    "{% endfor %}",
    "a huge output": "{% for i in range(99999) %}{{ 'a' * 9999 }}{% endfor %}",
    "many large texts": "".join(f"{{% set a{i} = 'a' * 4000000 ~ {i} %}}" for i in range(400)),
    "a chain of joints": "{% set a = 'a' * 4000000 %}{{ (" + "~".join("a" * 3000) + ")|length }}",
    "sorting again and again": "{% set a = range(99999)|list %}{% for i in range(999) %}"
    "{% set b = a|sort(attribute='x') %}{% endfor %}",
    "a sum of lists": "{{ (['ab'] * 99999)|map('list')|sum(start=[]) }}",
}
HUGE = {
    "width": "{{ 'a'|center(10**10) }}",
    "method": "{{ 'a'.center(10**10) }}",
    "zeros": "{{ 'a'.zfill(9999999999) }}",
    "tabs": "{{ '\t\t'.expandtabs(999999999) }}",
    "indent": "{{ 'a\nb'|indent(9999999999) }}",
    "indent by text": "{{ ('a\n' * 99999)|indent('x' * 99999) }}",
    "percent": "{{ '%9999999999d'|format(1) }}",
    "star": "{{ '%*d' % (999999999, 1) }}",
    "braces": "{{ '{:999999999}'.format(1) }}",
    "braces in braces": "{{ '{:{}}'.format(1, 999999999) }}",
    "mapped": "{{ '{a:999999999}'.format_map({'a': 1}) }}",
    "fields": "{{ ('{0}' * 9999).format('x' * 9999) }}",
    "names": "{{ ('%(a)s' * 9999) % {'a': 'x' * 9999} }}",
    "safe text": "{{ ('{:9999999999}'|safe).format('a') }}",
    "product": "{{ 'a' * 10**10 }}",
    "list": "{{ [0] * 10**10 }}",
    "lists": "{{ [[['a' * 9999] * 999] * 999] * 999 }}",
    "power": "{{ (9**9999)**9999 }}",
    "square": "{% set n = namespace(x=99) %}{% for i in range(9999) %}{% set n.x = n.x * n.x %}{% endfor %}",
    "replace": "{{ ('a' * 9999)|replace('a', 'b' * 9999) }}",
    "replace method": "{{ ('a' * 9999).replace('', 'b' * 9999) }}",
    "join": "{{ range(99999)|join('x' * 99999) }}",
    "join method": "{{ ('x' * 99999).join(range(999)|map('string')) }}",
    "wrap": "{{ ('a' * 49999)|wordwrap(1, true, 'x' * 99999) }}",
    "batch": "{{ [1]|batch(9999999999, 'x')|list }}",
    "slice": "{{ [1]|slice(9999999999)|list }}",
    "links": "{{ ('http://a.b ' * 4000)|urlize(rel='x' * 9999) }}",
    "tags": "{{ ('<a>' * 999999)|striptags }}",
    "json": "{{ [1]|tojson(indent=999999999) }}",
    "keys": "{{ {}.fromkeys(range(99999), 'x' * 99999) }}",
    "translate": "{{ ('a' * 99999).translate({97: 'x' * 99999}) }}",
    "bytes": "{{ (5).to_bytes(9999999999, 'big') }}",
    "codec": "{{ ('ä' * 999999).encode('punycode') }}",
    "search": "{{ ('a' * 4000000).rfind('b' + 'a' * 2000000) }}",
    "round": "{{ 5|round(-999999999) }}",
    "digits": "{{ ('f' * 4000000)|int(base=16) % 7 }}",
    "date": "{{ strftime_now('%Y' * 1000000) }}",
    "block": "{% filter center(9999999999) %}a{% endfilter %}",
    "set": "{% set x | center(9999999999) %}a{% endset %}",
}
NOSY = {
    "classes": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "classes by filter": "{{ (''|attr('__class__')).mro() }}",
    "classes by format": "{{ '{0.__class__.__mro__}'.format(1) }}",
    "a function's module": "{{ raise_exception.__globals__.os }}",
    "a type's module": "{{ namespace.__init__.__globals__ }}",
    "a macro's function": "{% macro f() %}{% endmacro %}{{ f._func.__globals__ }}",
    "a change of the messages": "{{ messages.append(1) }}",
    "a change of a dictionary": "{{ {}.update(a=1) }}",
    "a hidden name": "{% set n = namespace() %}{% set n.__class__ = 1 %}",
    "another template": "{% include 'a.jinja' %}",
    "a module": "{% import 'os' as os %}",
}
UNREADABLE = {
    "parentheses": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "blocks": "{% if 1 %}" * 3000 + "{% endif %}" * 3000,
    "loops": "{% for a in [1] %}" * 30 + "{% endfor %}" * 30,
    "digits": "{{ " + "9" * 5000 + " }}",
    "text": "a" * 999_999,
    "comparisons": "{{ [" + "a==b," * 10000 + "1] }}",
    "minus": "{{ " + "-" * 900 + "1 }}",
}
SOON = 12.0
"""Seconds: six times what is allowed, because the machine may have other things to do."""
STOPPED = r"^.*my\.jinja(, line \d+)?: the template was stopped: it .*; use another template$"


@pytest.mark.parametrize("source", [*ENDLESS.values(), *HUGE.values()], ids=[*ENDLESS, *HUGE])
def test_what_would_not_end_or_not_fit_is_stopped(tmp_path: Path, source: str) -> None:
    """Where it is loaded: nobody needs to know whether it would do better on other conversations."""
    begun = perf_counter()
    with pytest.raises(ts.InvalidInput, match=STOPPED) as caught:
        loaded(tmp_path, source)
    assert "template_limit" == caught.value.code
    assert perf_counter() - begun < SOON


@pytest.mark.parametrize("source", NOSY.values(), ids=NOSY)
def test_what_is_none_of_its_business_is_refused(tmp_path: Path, source: str) -> None:
    with pytest.raises(ts.InvalidInput, match=r"my\.jinja, line 1: .*the template fails on this conversation"):
        loaded(tmp_path, source)


@pytest.mark.parametrize("source", UNREADABLE.values(), ids=UNREADABLE)
def test_what_is_too_large_to_be_compiled_is_refused(tmp_path: Path, source: str) -> None:
    begun = perf_counter()
    with pytest.raises(ts.InvalidInput):
        loaded(tmp_path, source)
    assert perf_counter() - begun < SOON


def test_what_does_not_end_on_one_conversation_alone_is_stopped_there(tmp_path: Path) -> None:
    """And the next one is written as if nothing had been."""
    endless = "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}"
    rare = f"{{% if messages|length > 40 %}}{endless}{{% endif %}}"
    format_ = loaded(tmp_path, rare + reading_samples.CHATML)
    few, many = ([ts.User(content=[ts.Text(text="Hi")])] * count for count in (1, 50))
    before = format_.prompt(ts.Request(conversation=ts.Conversation([*few]))).text
    with pytest.raises(ts.InvalidInput, match=STOPPED):
        format_.prompt(ts.Request(conversation=ts.Conversation([*many])))
    assert before == format_.prompt(ts.Request(conversation=ts.Conversation([*few]))).text
