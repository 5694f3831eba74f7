"""Owns that grammars hold texts and numbers to their lengths, patterns and ranges, or say that they do not."""

import json
import re
from decimal import Decimal
from time import process_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import turnscript as ts
from tests.acceptors import accepted_by_kbnf, accepted_by_llguidance
from tests.sampling import Writer
from turnscript.core.json_text import json_of
from turnscript.grammar.notations import NOTATIONS
from turnscript.grammar.patterns import pattern_node
from turnscript.grammar.rest import matches, stacks_behind
from turnscript.grammar.schema import json_text

FORMAT = ts.get_format("batuta-chatml")
ENDS = st.sampled_from([0, 1, 9, 10, 99, 100, 255, 65535, -1, -10, -99, -100, -250, 7, 42, -42, 1000, 10**12])
FRACTIONS = st.sampled_from(["", "", ".5", ".25", ".1", ".99", ".05", ".123"])
NEAR = st.sampled_from(["0", "1", "-1", "10", "-10", "0.1", "-0.1", "0.01", "-0.01", "0.001", "-0.0001", "0.5"])


def told(schema: Any, target: str = "gbnf") -> ts.Constraint:
    """The grammar of answers under a schema."""
    return FORMAT.answer_grammar(json_of(schema), target=target)


def holds(schema: dict[str, Any], number: Decimal) -> bool:
    """Whether a number is in the range of a schema, counted exactly."""
    ends = {word: Decimal(str(end)) for word, end in schema.items() if word != "type"}
    if not ends.get("minimum", number) <= number <= ends.get("maximum", number):
        return False
    low, high = ends.get("exclusiveMinimum"), ends.get("exclusiveMaximum")
    return (low is None or low < number) and (high is None or number < high)


@given(
    low=st.tuples(st.sampled_from(["minimum", "exclusiveMinimum", ""]), ENDS, FRACTIONS),
    high=st.tuples(st.sampled_from(["maximum", "exclusiveMaximum", ""]), ENDS, FRACTIONS),
    near=st.lists(NEAR, min_size=2, max_size=2),
    whole=st.booleans(),
    seed=st.integers(0, 1 << 20),
)
def test_numbers_are_held_to_their_range(
    low: tuple[str, int, str], high: tuple[str, int, str], near: list[str], whole: bool, seed: int
) -> None:
    """Integers exactly, decimals exactly but for exponents. A range without numbers is a loss."""
    schema: dict[str, Any] = {"type": "integer" if whole else "number"}
    for word, end, fraction in (low, high):
        if word:
            schema[word] = json.loads(f"{end}{fraction}")
    made = told(schema)
    if made.losses:
        middle = (Decimal(str(schema[low[0]])) + Decimal(str(schema[high[0]]))) / 2
        assert not holds(schema, round(middle) * Decimal(1) if whole else middle)
        return
    for number in range(4):
        written = Writer(made.rules, seed + number).text()
        assert holds(schema, Decimal(written)), (schema, written)
        assert not whole or "." not in written
    for word, end, fraction in (low, high):
        for step in ("0", *near):
            number_ = Decimal(f"{end}{fraction}") + Decimal(step) if word else Decimal(step)
            number_ = Decimal(int(number_)) if whole else number_
            if number_ or not f"{number_:f}".startswith("-"):
                assert matches(made.rules, f"{number_:f}") == holds(schema, number_), (schema, number_)


RANGES: list[tuple[dict[str, Any], list[str], list[str]]] = [
    ({"type": "integer", "minimum": 10, "maximum": 5_000}, ["10", "99", "100", "999", "5000"], ["9", "5001", "05"]),
    ({"type": "integer", "minimum": 0}, ["0", "7", "1234567890123456"], ["-1", "1.5", "01"]),
    ({"type": "integer", "maximum": -3}, ["-3", "-1234567890123456"], ["-2", "0", "3"]),
    ({"type": "integer", "minimum": 2.5, "maximum": 3.5}, ["3"], ["2", "4", "2.5"]),
    ({"type": "integer", "minimum": 1, "exclusiveMinimum": True}, ["2"], ["1"]),
    ({"type": "integer", "maximum": 2**63}, ["1234567890123456", "-5"], ["12345678901234567"]),
    ({"type": "number", "minimum": 0}, ["0", "2.5e-3", "1E9"], ["-0.5", "-1"]),
    ({"type": "number", "minimum": 0.25, "maximum": 0.75}, ["0.25", "0.3", "0.750"], ["0.2", "0.249", "0.76", "1"]),
    ({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}, ["0.01", "0.99"], ["0", "0.0", "1", "1.0"]),
    ({"type": "number", "minimum": -1.5, "maximum": 0}, ["-1.5", "-0.25", "0"], ["-1.51", "0.1", "-2"]),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "allowed", "others"), RANGES, ids=[json.dumps(case[0]) for case in RANGES])
def test_a_range_in_each_notation(schema: dict[str, Any], allowed: list[str], others: list[str]) -> None:
    made = told(schema)
    assert not made.losses
    assert [matches(made.rules, one) for one in allowed + others] == [True] * len(allowed) + [False] * len(others)
    lark, wrapped = told(schema, "lark").text, told({"type": "array", "items": schema}, "kbnf").text
    for one in allowed + others:
        assert accepted_by_llguidance(lark, one) == (one in allowed), one
        assert accepted_by_kbnf(wrapped, f"[{one}]") == (one in allowed), one


@pytest.mark.parametrize("schema", [
    {"type": "integer", "minimum": 3, "maximum": 2},
    {"type": "integer", "minimum": 10**16},
    {"type": "number", "exclusiveMinimum": 1, "maximum": 1},
    {"type": "number", "minimum": 1e-30},
    {"type": ["integer", "null"], "multipleOf": 5},
    {"minimum": 1},
    {"enum": [1, 2], "minimum": 2},
])  # fmt: skip
def test_a_range_that_is_not_told_is_a_loss(schema: dict[str, Any]) -> None:
    assert told(schema).losses


PATTERNS: dict[str, tuple[list[str], list[str]]] = {
    r"^[A-Z]{2}-\d{4}$": (["AB-0123"], ["A-0123", "AB-012", "AB-01234", "ab-0123"]),
    r"^[a-z0-9]+(-[a-z0-9]+)*$": (["a", "a-b-c9"], ["", "-a", "a-", "a--b"]),
    r"^\+?[0-9 ()]{3,6}$": (["+12 (3)", "123"], ["12", "++123", "1234567"]),
    r"^(?:yes|no)?$": (["", "yes", "no"], ["yesno", "y"]),
    r"^[^@\s]+@[^@\s]+\.[a-z]{2,}$": (["a.b@c.no"], ["a@b", "a b@c.no", "@c.no"]),
    r"^\"a\\b\n$": (['"a\\b\n'], ["a\\b\n", '"a\\b']),
    r"^[\"]\w\.\u0041\x42?$": (['"_.AB', '"x.A'], ["x.A", '"xxA']),
    r"^.\D\W\S$": (["aa-x"], ["a1-x", "aaax", "aa- "]),
    r"^[\w-]{1,3}[.\]]$": (["a-b.", "_]"], [".", "abcd.", "a["]),
    r"^(a+b?)+$": (["ab", "aab", "aaa"], ["", "b", "abb"]),
    r"^x*?$": (["", "xxx"], ["y"]),
}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_simple_patterns_are_held(pattern: str) -> None:
    allowed, others = PATTERNS[pattern]
    schema = {"type": "string", "pattern": pattern}
    made, kbnf, lark = told(schema), told(schema, "kbnf").text, told(schema, "lark").text
    assert not made.losses
    for text in allowed + others:
        assert bool(re.fullmatch(pattern[1:-1], text, re.ASCII)) == (text in allowed), text
        written = json_text(text)
        assert matches(made.rules, written) == (text in allowed), text
        assert accepted_by_kbnf(kbnf, written) == (text in allowed), text
        assert accepted_by_llguidance(lark, written) == (text in allowed), text
    for seed in range(20):
        text = json.loads(Writer(made.rules, seed).text())
        assert re.fullmatch(pattern[1:-1], text, re.ASCII), text


@pytest.mark.parametrize("pattern", [
    "abc", "^abc", "abc$", "^a|b$", r"^(?=a)b$", r"^(a)\1$", r"^\bword$", r"^(a*)*$", r"^\p{L}+$", "^[]$", "^[$",
    "^(a$", "^a{3,2}$", "^a{1001}$", "^(a{40}){40}$", r"^\ud83d$", "^*$", "^a**$", "^a++$", "^[z-a]$", r"^\$", "^a$b$",
    "^[\x07]$", "^a{2$", "^(a{0,30}){0,30}$", "^a{0,300}b{0,300}$", f"^{'(' * 20}a{')' * 20}$", f"^{'a' * 2000}$",
    r"^\x4$", r"^[a-\d]$",
])  # fmt: skip
def test_other_patterns_are_losses(pattern: str) -> None:
    made = told({"type": "string", "pattern": pattern})
    assert [loss.path for loss in made.losses] == ["$.schema.pattern"]
    assert matches(made.rules, '"any text"')


def test_no_pattern_has_very_many_ways_to_be_read() -> None:
    """A server keeps each of them, and tries all its tokens on it."""
    for pattern in (r"^(a?a?a?){5}a*$", r"^(a{0,15}){0,15}$", r"^a{0,100}a{0,100}$", r"^(a|a|aa)*$", r"^[a-z]{0,900}$"):
        node = pattern_node(pattern)
        assert node is not None, pattern
        rules = told({"type": "string", "pattern": pattern}).rules
        began = process_time()
        assert sum(1 for _ in stacks_behind(rules, '"' + "a" * 60)) < 300, pattern
        assert process_time() - began < 5, pattern


def test_characters_are_counted() -> None:
    schema = {"type": "string", "minLength": 2, "maxLength": 3}
    allowed, others = (
        ['"ab"', '"\\n\\u00e9b"', '"\U0001f44d\u5b57"'],
        ['"a"', '"abcd"', '"\\ud83d\\udc4d"', '"\\u00e9"'],
    )
    made = told(schema)
    assert not made.losses
    for text in allowed + others:
        assert matches(made.rules, text) == (text in allowed), text
        assert accepted_by_kbnf(told(schema, "kbnf").text, text) == (text in allowed), text
        assert accepted_by_llguidance(told(schema, "lark").text, text) == (text in allowed), text
    long = told({"type": "string", "maxLength": 1000}, "lark").text
    assert [accepted_by_llguidance(long, f'"{"é" * size}"') for size in (1000, 1001)] == [True, False]
    wide = told({"type": "string", "maxLength": 1000}, "kbnf").text
    assert [accepted_by_kbnf(wide, f'"{"é" * size}"') for size in (1000, 1001)] == [True, False]


LOST = {
    "qwen3": [],
    "ai00-v1": ["code", "name"],
    "qwen3-coder": ["code", "name"],
    "gemma4": ["code", "name"],
}


@pytest.mark.parametrize("name", LOST)
def test_what_a_format_writes_without_quotes_is_a_loss(name: str) -> None:
    """Numbers are held in all of them."""
    schema = {
        "type": "object",
        "properties": {
            "code": {"type": "string", "pattern": "^[a-z]+$"},
            "name": {"type": "string", "maxLength": 5},
            "age": {"type": "integer", "minimum": 0, "maximum": 9},
        },
        "required": ["code", "name", "age"],
    }
    made = ts.get_format(name).grammar([ts.Tool(name="f", parameters=json_of(schema))])
    words = {"code": "pattern", "name": "maxLength"}
    expected = [f"$.tools[0].parameters.properties.{key}.{words[key]}" for key in LOST[name]]
    assert [loss.path for loss in made.losses] == expected
    for seed in range(5):
        written = Writer(made.rules, seed).text()
        assert not re.search(r"age\W{1,6}\d\d", written), written


HOSTILE: dict[str, Any] = {
    "lengths": {"type": "string", "minLength": 500, "maxLength": 1000},
    "patterns": {"type": "string", "pattern": "^([a-z]{1,9}-){9}$"},
    "ranges": {"type": "number", "minimum": -1234567.8912345, "maximum": 9876543.1234567},
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_many_of_them_cost_no_more_than_their_size(kind: str) -> None:
    """Servers write all counts out, so what is counted in one grammar has a limit, and the rest is a loss."""
    for count in (5, 1_000):
        schema = json_of({"type": "object", "properties": {f"p{number}": HOSTILE[kind] for number in range(count)}})
        began = process_time()
        made = FORMAT.answer_grammar(schema)
        sizes = [len(write(made.rules)) for write in NOTATIONS.values()]
        assert process_time() - began < 4
        assert max(sizes) < 40 * len(bytes(schema)) + 60_000
        counts = re.findall(r"\{(\d+)(?:,(\d+))?\}", NOTATIONS["gbnf"](made.rules))
        assert sum(int(most or least) for least, most in counts) < 20_000
        assert bool(made.losses) == (count == 1_000)
