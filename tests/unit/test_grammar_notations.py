"""Owns the exact grammars of one tool: requirements 5.3, and how each notation spells what is hard to spell."""

import json
from pathlib import Path
from textwrap import dedent

import pytest

import turnscript as ts
from tests.gbnf import read_gbnf
from turnscript.core.json_text import json_of
from turnscript.grammar.nodes import Grammar, Literal, Repeat, Token, Without, chars, choice, sequence
from turnscript.grammar.notations import NOTATIONS
from turnscript.grammar.rest import matches, stacks_behind

WEATHER = ts.Tool(
    name="get_weather",
    parameters=json_of(
        {
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
                "days": {"type": "integer"},
            },
            "required": ["city"],
        }
    ),
)

FOLDER = Path(__file__).parents[1] / "golden" / "grammars"


@pytest.mark.parametrize("file", sorted(FOLDER.iterdir()), ids=lambda file: str(file.name))
def test_the_grammars_that_were_agreed_on(file: Path) -> None:
    """To the letter. A file is named for a format and a notation; of `-single` ones, the model calls one tool."""
    format_ = ts.get_format(file.stem.removesuffix("-single"))
    told = format_.grammar([WEATHER], target=file.suffix[1:], parallel=not file.stem.endswith("-single"))
    assert told.text == file.read_text(encoding="utf-8")
    assert not told.losses


ENDS = {
    "batuta-chatml": "'\\n' call)* '<|im_end|>';",
    "batuta-llama3": "'\\n' call)* '<|eot_id|>';",
    "batuta-generic": "'\\n' call)* '\\n<|end|>';",
    "openchatml": "'\\n' call)* '\\n<|im_end|>';",
    "rwkv-goose": "'\\n' call)* '\\n\\nUser:';",
    "qwen3": "'\\n' call)* '<|im_end|>';",
}


@pytest.mark.parametrize("format_name", ENDS)
def test_what_ends_a_list_of_calls_where_it_would_end_too_early(format_name: str) -> None:
    """KBNF is over as soon as it can be. In the others, a model ends its turn as it always does."""
    format_ = ts.get_format(format_name)
    assert format_.grammar([WEATHER], target="kbnf").text.partition("\n")[0].endswith(ENDS[format_name])
    end = ENDS[format_name].rpartition(")* ")[2].strip(";")
    assert f'"{end[1:-1]}"?' in format_.grammar([WEATHER], target="gbnf").text.partition("\n")[0]
    assert end[1:-1] not in format_.grammar([WEATHER], target="lark").text.partition("\n")[0]


HARD = "\"'\\\n\t\r\x01é"


def test_hard_characters_in_each_notation() -> None:
    """Quotes, backslashes, classes that hold what means something in classes, and texts without several strings."""
    hard = Grammar(
        sequence(
            "\"'\\\n\t\r\x01é", Token(Repeat(chars("]", "^", "[", "a", "-"), 1, 2)), Without(("<a>", "<b")), "<a>"
        ),
        {"rule_1": choice(Literal("'"), Literal('"'))},
    )
    assert (
        NOTATIONS["gbnf"](hard)
        == dedent(r"""
        root ::= "\"'\\\n\t\r\u0001é" [\]\[a^-]{1,2} raw-0 "<a>"
        raw-0 ::= "" | [^<] raw-0 | [<] raw-1
        raw-1 ::= "" | [^<ab] raw-0 | [<] raw-1 | [a] raw-2
        raw-2 ::= "" | [^<>] raw-0 | [<] raw-1
        rule-1 ::= "'" | "\""
        """).lstrip()
    )
    assert NOTATIONS["kbnf"](hard) == dedent(r"""
        start ::= '"\'\\\n\t\réé' #'[\\]\\^\\[a-]{1,2}' (#ex'<a>|<b')? '<a>';
        rule_1 ::= '\'' | '"';
        """).lstrip().replace("éé", "\x01é")
    assert (
        NOTATIONS["lark"](hard)
        == dedent(r"""
        start: "\"'\\\n\t\r\u0001é" T1 T2
        rule_1: "'" | "\""
        T1: /[\]\^\[a-]{1,2}/
        T2: /(?s:.*)<a>/ & ~/(?s:.*)(<a>|<b)(?s:.*)<a>/
        """).lstrip()
    )


def test_counted_repetitions_are_written_out_where_a_notation_counts_none() -> None:
    """One inside the other, so that there is one way to read them."""
    counted = Grammar(
        sequence(Repeat(Literal("a"), 2, 4), Repeat(Literal("b"), 1, None), Repeat(Literal("c"), 2, None))
    )
    assert NOTATIONS["kbnf"](counted) == "start ::= ('a') ('a') (('a') ('a')?)? ('b')+ ('c') ('c') ('c')*;\n"
    assert NOTATIONS["gbnf"](counted) == 'root ::= "a"{2,4} "b"+ "c"{2,}\n'
    assert NOTATIONS["lark"](counted) == 'start: "a"{2,4} "b"+ "c"{2,}\n'


def test_a_prompt_takes_what_it_has_written_off_the_front() -> None:
    """A named tool's call is begun; what is left is its arguments and what closes it."""
    request = ts.Request(
        conversation=ts.Conversation(items=[ts.User(content=[ts.Text(text="Hi")])], tools=[WEATHER]),
        settings=ts.Settings(tool_choice=ts.ToolChoice("named", name="get_weather"), parallel_tool_calls=False),
    )
    told = ts.get_format("qwen3").prompt(request, thinking=False).grammar("kbnf")
    assert told is not None
    first = told.text.partition("\n")[0]
    assert first == "start ::= get_weather_args_1 '}\\n</tool_call>';"
    assert "call ::=" not in told.text
    assert json.loads('"' + told.trigger + '"') == "<tool_call>"


@pytest.mark.deep
def test_many_words_are_a_tree_of_what_they_begin_with() -> None:
    """A server of the real size tries a hundred thousand tokens on each alternative that may go on."""
    words: list[object] = [f"v{number}" for number in range(3000)] + [1, 12, 123, 'e"x', 'e"y', "\u5b57"]
    told = ts.get_format("batuta-chatml").answer_grammar(json_of({"enum": words}))
    rules = read_gbnf(told.text)
    for word in words[::7] + words[-6:]:
        text = json.dumps(word, ensure_ascii=False)
        assert matches(rules, text), text
        assert not matches(rules, text[:-1]) or text in ("12", "123"), text
        for end in range(len(text)):
            assert sum(1 for _ in stacks_behind(rules, text[:end])) < 20, text[:end]
    assert len(told.text) < 2 * len(json.dumps(words))
    few = ts.get_format("batuta-chatml").answer_grammar(json_of({"enum": ["ab", "ac"]}))
    assert few.text.startswith('root ::= "\\"ab\\"" | "\\"ac\\""')


def test_words_that_all_begin_alike_do_not_nest_without_end() -> None:
    words = ["a" * size for size in range(1, 400)]
    told = ts.get_format("batuta-chatml").answer_grammar(json_of({"enum": words}))
    rules = read_gbnf(told.text)
    assert all(matches(rules, json.dumps(word)) for word in words[::40])
    assert not matches(rules, json.dumps("a" * 400))
    assert told.text.count("(") < 50
