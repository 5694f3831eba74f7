"""Owns the laws of the escape for any rules: it is undone exactly, and nothing that it protects is left."""

import json

from hypothesis import assume, given
from hypothesis import strategies as st

import turnscript as ts
from turnscript.convert.registry import load_formats

LEADS = ["<<", "<", "[", "```", "#"]
RESTS = ["A", "AB", "A_END", "/A", "|x|", "B>"]
Rules = list[tuple[str, list[str]]]
RULES = st.lists(
    st.tuples(st.sampled_from(LEADS), st.lists(st.sampled_from(RESTS), min_size=1, max_size=3)), min_size=1
)
TAGS = [f"{lead}{rest}" for lead in LEADS for rest in RESTS]
BROKEN = [f"{lead}\\{rest}" for lead in LEADS for rest in RESTS]
TEXTS = st.lists(st.sampled_from([*TAGS, *BROKEN, *LEADS, *RESTS, "\\", "\\\\", "<", " ", "é"]), max_size=12).map(
    "".join
)
TABLE = """
[[format]]
name = "any"
separator = ""
escape = %s

[[format.turn]]
role = "user"
open = "@user:"
close = "@end:"
segment = [{ kind = "user", body = "text" }]

[[format.turn]]
role = "assistant"
open = "@model:"
close = "@end:"
segment = [{ kind = "assistant", body = "text", model = true }]

[format.generation]
stops = ["@end:"]
"""


def format_of(rules: Rules) -> ts.Format:
    """A format whose own marks no text here holds, and which protects more."""
    own = ("@", ["user:", "model:", "end:"])
    said = [f"{{ lead = {json.dumps(lead)}, rest = {json.dumps(rests)} }}" for lead, rests in (own, *rules)]
    try:
        [format_] = load_formats(TABLE % f"[{', '.join(said)}]")
    except ts.InvalidFormat:
        assume(False)
    return format_


def written(format_: ts.Format, text: str) -> str:
    """The text as it stands in a transcript, and is read from there."""
    asked = ts.Request(conversation=ts.Conversation(items=[ts.User(content=[ts.Text(text=text)])]))
    transcript = str(format_.render(asked).value)
    assert asked.items == format_.parse(transcript).items
    escaped = transcript.removeprefix("@user:").removesuffix("@end:")
    assert {text} == format_.unescaped(escaped)
    return escaped


@given(rules=RULES, text=TEXTS)
def test_what_is_escaped_is_had_again(rules: Rules, text: str) -> None:
    """Also where the lead of one rule is the end of another's: `<A` and `<<A_END`."""
    format_ = format_of(rules)
    escaped = written(format_, text)
    assert (escaped != text) == format_.protects(text)
    for lead, rests in rules:
        assert not any(f"{lead}{rest}" in escaped for rest in rests)


@given(rules=RULES, text=TEXTS)
def test_a_place_gets_one_backslash_whichever_rules_meet_there(rules: Rules, text: str) -> None:
    escaped = written(format_of(rules), text)
    assert escaped == written(format_of(rules[::-1]), text)
    assert len(escaped) <= len(text) + sum(text.count(lead[-1]) for lead in LEADS)


def test_a_lead_that_ends_another_is_broken_once() -> None:
    assert r"<<\A_END> <\A" == written(format_of([("<", ["A"]), ("<<", ["A_END"])]), "<<A_END> <A")
