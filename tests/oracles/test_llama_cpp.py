"""Owns the comparison with llama.cpp: the tests that its server has for our APIs, run against an own gateway.

`make setup` takes them from the sources of llama-cpp-python. The tiny model answers, as with `turnscript serve` alone.
What is about llama.cpp itself is left out: tests that ask for what only its server has, lines about its own words and
counts, and what its models say. All else runs as it is, tests for large models included: one model answers them all.
"""

from __future__ import annotations

import ast
import fnmatch
import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit
from xml.etree import ElementTree as ET

import pytest

from tests.gateway.running import Running
from turnscript.gateway import shipped
from turnscript.gateway.configfile import load

THEIRS = Path(sys.prefix, "llama.cpp")
FILES = ("chat_completion", "compat_anthropic", "compat_oai_responses", "completion", "tool_call")
CONTEXT = 512  # what the longest of their prompts is too long for
AT_LEAST = 214

OWN = {
    '"/completion"': "its own endpoint",
    '"/tokenize"': "its own endpoint",
    '"/apply-template"': "its own endpoint",
    '"/chat/completions/input_tokens"': "its own endpoint",
    '"__verbose"': "its own prompt, in the answer",
    '"timings"': "its own measures",
    '"return_progress"': "its own measures",
    '"grammar"': "a grammar in its own notation",
    '"json_schema": json_schema': "its own member for a schema",
    '"continue_final_message"': "a member for its templates",
    "get_test_image_base64()": "a picture that is fetched from elsewhere",
}
"""What a test is left out for, where it stands anywhere in it."""
OWN_LINES = {
    "system_fingerprint": "the number of its build",
    '["model"] ==': "the name that its server is started with",
    "== n_prompt": "how many tokens its prompt has",
    "== n_cache": "how many of them it keeps",
    '["error"]["type"] ==': "a word of its own; clients look for OpenAI's code",
    '["error"]["n_': "a word of its own",
    "os.path.exists(server.chat_template_file)": "the template of its model",
}
"""Which assertions are left out of tests."""
SAID = (
    r"But she couldn't",
    r"(Suddenly)+|\\{ \" Sarax.",
    r"(Suddenly)+",
    r"^ blue",
    r"(Aside|she|felter|alonger)+",
    r"Whillicter",
    r"(going|bed)+",
    r"[\\s\\S]*?\\*\\*\\s*0.5($|\\*\\*)",
    r"^The sum of 102 and 7 is 109[\\s\\S]*",
    r"To find the sum of[\\s\\S]*",
    r"Sure, here's one for[\\s\\S]*|Sure! Here's one for you[\\s\\S]*",
)
"""What its models say. A test that looks for it finds any text."""

OTHERWISE = {
    "chat_completion::test_chat_completion*-128-*": "what the tiny model says has fewer tokens",
    "chat_completion::test_completion_with_response_format?response_format4-*": "a shape that nobody knows is a loss",
    "chat_completion::test_completion_with_response_format?response_format[67]-*": (
        "a schema with faults is shown to the model, and that nothing holds the answer to it is a loss"
    ),
    "chat_completion::test_invalid_chat_completion_req?messages7?": "a turn may be several messages",
    "compat_anthropic::test_anthropic_*_image": "a picture that a model cannot see is a loss: agents go on",
    "compat_anthropic::test_anthropic_vision_format_accepted": "the same",
    "compat_anthropic::test_anthropic_empty_messages": "Anthropic refuses a request without messages",
    "tool_call::test_hello_world*": "the tiny model writes no programs",
    "tool_call::test_thoughts?1024-*": "the tiny model thinks when it is asked to",
}
"""The cases that are red, by patterns of their names, each with the reason."""


def adapted(source: str) -> str:
    """A file of tests without what is about llama.cpp itself."""
    for words in SAID:
        source = source.replace(f'"{words}"', '""')
    for mark in OWN_LINES:
        source = re.sub(rf"(?m)^( *)assert .*{re.escape(mark)}.*$", r"\1pass", source)
    lines = source.splitlines()
    for test in ast.parse(source).body:
        if isinstance(test, ast.FunctionDef) and test.name.startswith("test_"):
            place = slice(min([test.lineno, *(one.lineno for one in test.decorator_list)]) - 1, test.end_lineno)
            if any(mark in line for line in lines[place] for mark in OWN):
                lines[place] = [""] * len(lines[place])
    return "\n".join(lines)


def theirs(file: str) -> str:
    """One of their files."""
    assert THEIRS.is_dir(), "the tests of llama.cpp are missing: `make setup` fetches them"
    return (THEIRS / file).read_text(encoding="utf-8")


def green(folder: Path) -> dict[str, bool]:
    """Whether each case is green, as they are run in a folder."""
    (folder / "wget.py").touch()  # would fetch models
    (folder / "utils.py").write_text(theirs("utils.py"), encoding="utf-8")
    for name in FILES:
        (folder / f"{name}.py").write_text(adapted(theirs(f"unit/test_{name}.py")), encoding="utf-8")
    config = load(None, {}, {}, shipped=shipped.settings() | {"models.tiny.context": CONTEXT})
    with Running(config) as gateway:
        where = {"DEBUG_EXTERNAL": "1", "PORT": str(urlsplit(gateway.url).port)}
        options = ["-q", "-p", "no:cacheprovider", "-o", "markers=slow", "--junitxml=found.xml"]
        command = [sys.executable, "-m", "pytest", *options, *(f"{name}.py" for name in FILES)]
        subprocess.run(command, cwd=folder, env=os.environ | where, stdout=subprocess.DEVNULL, check=False)
    cases = ET.parse(folder / "found.xml").iter("testcase")
    return {f"{case.get('classname')}::{case.get('name')}": not len(case) for case in cases}


@pytest.mark.long
def test_answers_are_as_llama_cpp_wants_them(tmp_path: Path) -> None:
    results = green(tmp_path)
    named = {pattern: fnmatch.filter(results, pattern) for pattern in OTHERWISE}
    assert all(named.values()), named
    assert {case for cases in named.values() for case in cases} == {
        case for case, passed in results.items() if not passed
    }
    assert AT_LEAST <= sum(results.values())


def test_all_that_is_left_out_is_there() -> None:
    files = "".join(theirs(f"unit/test_{name}.py") for name in FILES)
    assert [] == [mark for mark in (*OWN, *OWN_LINES, *SAID) if mark not in files]
