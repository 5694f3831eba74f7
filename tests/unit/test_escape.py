"""Owns the laws of the escape for any rules: it is undone exactly, and nothing that it protects is left."""

from hypothesis import given
from hypothesis import strategies as st

from turnscript.engine.escape import Escape

LEADS = ["<<", "<", "[", "```", "#"]
RESTS = ["A", "AB", "A_END", "/A", "|x|", "B>"]
RULES = st.lists(
    st.tuples(st.sampled_from(LEADS), st.lists(st.sampled_from(RESTS), min_size=1, max_size=3)), min_size=1
)
TAGS = [f"{lead}{rest}" for lead in LEADS for rest in RESTS]
TEXTS = st.lists(st.sampled_from([*TAGS, *LEADS, *RESTS, "\\", "\\\\", "<", " ", "é"]), max_size=12).map("".join)


@given(rules=RULES, text=TEXTS)
def test_what_is_escaped_is_had_again(rules: list[tuple[str, list[str]]], text: str) -> None:
    """Also where the lead of one rule is the end of another's: `<A` and `<<A_END`."""
    escape = Escape(*rules)
    escaped = escape.apply(text)
    assert text == escape.remove(escaped)
    assert (escaped != text) == escape.holds(text)
    for lead, rests in rules:
        assert not any(f"{lead}{rest}" in escaped for rest in rests)


@given(rules=RULES, text=TEXTS)
def test_a_place_gets_one_backslash_whichever_rules_meet_there(rules: list[tuple[str, list[str]]], text: str) -> None:
    escape = Escape(*rules)
    assert escape.apply(text) == Escape(*reversed(rules)).apply(text)
    assert len(escape.apply(text)) <= len(text) + sum(text.count(lead[-1]) for lead in LEADS)


def test_a_lead_that_ends_another_is_broken_once() -> None:
    assert r"<<\A_END> <\A" == Escape(("<", ["A"]), ("<<", ["A_END"])).apply("<<A_END> <A")
