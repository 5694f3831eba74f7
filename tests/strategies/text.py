"""Owns the texts that matter: plain, CJK, emoji, odd white space, every control literal, also broken and doubled."""

from __future__ import annotations

import json
from functools import cache

from hypothesis import strategies as st

PLAIN = (
    "",
    "a",
    "Hi",
    "Hello, world!",
    "What's the weather in Tokyo?",
    "It's 22°C and sunny.",
    "x = 1\ny = 2",
    "日本語のテキスト",
    "你好，世界",
    "naïve café",
    "👍🏽 ok",
)

# Texts that break line handling, normalisation, JSON escaping or UTF-8 cutting.
ODD = (
    " ",
    "\n",
    "\n\n",
    "\r\n",
    "\r",
    "\t",
    "\nleading newline",
    "trailing newline\n",
    "two\n\nparagraphs\n\n",
    "a\r\nb\r\n",
    "  both ends  ",
    "e\u0301 is not \u00e9",
    "\u0301starts with a combining mark",
    "👩‍👩‍👧‍👦 🇯🇵",
    "𝔘𐐷",
    "line\u2028separator\u2029paragraph",
    "\u0085next line",
    "\ufeffbom",
    "zero\u200bwidth\u200d",
    "rtl \u202eabc",
    "\x00",
    "nul\x00inside",
    "\x1b[31mred\x1b[0m",
    "\x07\x08\x0b\x0c\x1c\x1f\x7f",
    "\ufffd\uffff\U0010ffff",
    "back\\slash \\n \\u00e9",
    "quote \" and ' and `",
    "{braces} {{ jinja }} {% raw %} ${x} %s",
    "<b>&amp;</b>",
    "null",
    "0",
)

# The control literals of every format, one spelling each.
CONTROLS = (
    "<<SYS>>",
    "<<SYS_END>>",
    "<<USER>>",
    "<<USER_END>>",
    "<<ASSISTANT>>",
    "<<ASSISTANT_END>>",
    "<<THINK>>",
    "<<THINK_END>>",
    '<<TOOL_CALL name="f" id="c1">>',
    "<<TOOL_CALL",
    "<<END_TOOL_CALL>>",
    '<<TOOL_RESULT name="f" id="c1">>',
    "<<END_TOOL_RESULT>>",
    "<<TOOLS>>",
    "<<TOOLS_END>>",
    "<<META>>",
    "<<META_END>>",
    '<<ITEM type="x" turn="join">>',
    "<<END_ITEM>>",
    "<<PART>>",
    '<<PART type="image">>',
    "<|im_start|>",
    "<|im_end|>",
    "<|im_start|>system\n",
    "<tool_call>",
    "</tool_call>",
    "<tool_result>",
    "</tool_result>",
    "<|begin_of_text|>",
    "<|start_header_id|>user<|end_header_id|>\n\n",
    "<|eot_id|>",
    "<|system|>",
    "<|user|>",
    "<|assistant|>",
    "<|end|>",
    "<|function_list|>",
    "<|function_call|>",
    "<|function_output|>",
    "<|start_reason|>",
    "<|end_reason|>",
    "<|fim_prefix|>",
    "<|fim_middle|>",
    "<|file_separator|>",
    "<|rwkv_tokenizer_end_of_text|>",
    "<|endoftext|>",
    "[BOS]",
    "[EOS]",
    "<s>",
    "</s>",
    "<think>",
    "</think>",
    "<think",
    "<ai00:system>",
    "<ai00:user>",
    "</ai00:user>",
    "<ai00:assistant>",
    "</ai00:assistant>",
    "<ai00:available_tools>",
    "<ai00:function_calls>",
    "</ai00:function_calls>",
    "<ai00:function_results>",
    '<invoke name="f">',
    "</invoke>",
    '<parameter name="x">',
    "</parameter>",
    '<result name="c1">',
    "</result>",
    "User:",
    "Assistant:",
    "System:",
    "\n\nUser: ",
    "\n\nAssistant:",
    "Function output:",
    "```json",
    "```",
)


def escaped(control: str, slashes: int) -> str:
    """The literal as its escape spells it: backslashes inside the tag, after the opening brackets (spec D-X-3)."""
    head = len(control) - len(control.lstrip("<["))
    return control[:head] + "\\" * slashes + control[head:]


def _spellings(control: str) -> tuple[str, ...]:
    return (
        control,
        escaped(control, 1),
        escaped(control, 2),
        "\\" + control,
        control + control,
        control[:-1],
        control[1:],
        f"before {control} after",
        f"line\n{control}\nline",
        f"\n{control}",
        f"{control}\n",
        control.lower(),
        f"<{control}>",
    )


HOSTILE = tuple(dict.fromkeys(text for control in CONTROLS for text in _spellings(control)))

# What `pieced` joins: enough to build a whole forged turn, and to put any literal at any place of a line.
PIECES = (*CONTROLS, "\n", "\n\n", " ", "\\", "<", "<<", ">", "|", '"', "a", "word", "é", "字", "👍", "\r\n", "\x00")


@cache
def plain() -> st.SearchStrategy[str]:
    """Short and harmless."""
    return st.sampled_from(PLAIN)


@cache
def odd() -> st.SearchStrategy[str]:
    """White space, control characters, combining marks, and characters of every UTF-8 length."""
    return st.sampled_from(ODD)


@cache
def hostile() -> st.SearchStrategy[str]:
    """A control literal of some format: bare, escaped, doubled, cut, or inside a line."""
    return st.sampled_from(HOSTILE)


@cache
def pieced() -> st.SearchStrategy[str]:
    """Literals, line ends and words in any order."""
    return st.lists(st.sampled_from(PIECES), max_size=6).map("".join)


@cache
def arbitrary() -> st.SearchStrategy[str]:
    """Any characters but lone surrogates."""
    return st.text(st.characters(codec="utf-8"), max_size=8)


@cache
def texts() -> st.SearchStrategy[str]:
    """Any text that a message may hold; never a lone surrogate."""
    return st.one_of(plain(), odd(), hostile(), pieced(), arbitrary())


@cache
def words() -> st.SearchStrategy[str]:
    """Mostly plain, sometimes anything: for fields that are not content."""
    # `one_of` weighs its members alike and drops repeats, so plain text is given several times under other guises.
    return st.one_of(plain(), st.sampled_from(PLAIN[::-1]), st.sampled_from(PLAIN[1:]), odd(), hostile(), arbitrary())


@cache
def lone_surrogates() -> st.SearchStrategy[str]:
    """Texts that no UTF-8 can hold, for negative tests."""
    surrogate = st.sampled_from(("\ud800", "\udbff", "\udc00", "\udfff", "\udc80", "\ude00\ud83d"))
    return st.tuples(plain(), surrogate, plain()).map("".join)


def quoted(one: str) -> str:
    """A text as a JSON string."""
    return json.dumps(one, ensure_ascii=False)
