"""Owns that engines which are not Python's render the chat templates of formats alike: minijinja's, and llama.cpp's."""

import importlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import minijinja
import pytest

import turnscript as ts
from tests import corpora
from tests.templates import Body, chat, parsed, with_objects
from turnscript.formats.format import Format
from turnscript.gateway.shipped import FILE

Render = Callable[[Body, bool], str]
# Both read numbers as doubles and write them in their own way: `1.0` becomes `1`.
NUMBERS = {"arguments_numbers"}
# A result that is JSON: of this format the losses of the export say so.
EMBEDDED = {"openchatml": {"c1", "c3", "ends_with_result", "one_call", "text_and_parallel_calls"}}
# llama.cpp gives a tool a description and parameters if it has none, takes every developer for a system, reads no
# arguments that are not JSON, and drops thoughts that are empty.
LLAMA = NUMBERS | {"schema_bare", "developer_only", "developer_role", "arguments_invalid", "thinking_empty"}

SHOWN = {
    "c1",
    "c2",
    "c3",
    "arguments_types",
    "blank_lines_inside",
    "several_systems",
    "text_and_parallel_calls",
    "user_twice",
}
"""What llama.cpp is asked, beside the hostile: it takes long to answer."""


def thinking(format_: Format) -> list[bool]:
    kinds = {one.kind for turn in format_.document.turns for one in turn.segments}
    return [False, True] if "thinking" in kinds else [False]


def asked(name: str) -> Body:
    """A conversation in which the user has the last word: llama.cpp goes on from an answer that stands last."""
    body = chat(corpora.load(name))
    body["messages"].append({"role": "user", "content": "Go on."})
    return body


def differing(format_: Format, render: Render, names: list[str]) -> dict[str, tuple[str, str]]:
    """The conversations of which an engine makes another prompt."""
    found = {}
    for name in names:
        for thinks in thinking(format_):
            body = asked(name)
            expected, actual = format_.prompt(parsed(body), thinking=thinks).text, render(body, thinks)
            if expected != actual:
                found[name] = expected, actual
    return found


def known(format_: Format, names: set[str]) -> list[str]:
    """The conversations of which that is not to be expected."""
    results = [name for name in corpora.names() if name.startswith("result_json")] if format_.name in EMBEDDED else []
    return [name for name in corpora.names() if name not in names | EMBEDDED.get(format_.name, set()) | {*results}]


@pytest.mark.parametrize("name", ts.formats())
def test_minijinja_renders_a_template_alike(name: str) -> None:
    format_ = ts.get_format(name)
    environment = minijinja.Environment(templates={"chat": format_.jinja().value})
    environment.trim_blocks = environment.lstrip_blocks = True
    environment.add_filter("tojson", _to_json)  # its own writes HTML's escapes

    def render(body: Body, thinks: bool) -> str:
        given = with_objects(body)
        return environment.render_template(
            "chat",
            messages=given["messages"],
            tools=given.get("tools"),
            add_generation_prompt=True,
            enable_thinking=thinks,
        )

    assert {} == differing(format_, render, known(format_, NUMBERS))


def _to_json(value: Any, indent: int | None = None, separators: Any = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent, separators=separators)


@contextmanager
def llama(template: str) -> Iterator[Render]:
    """llama.cpp's server, which tells how it renders a request."""
    library: Any = importlib.import_module("xllamacpp")
    parameters = library.CommonParams()
    parameters.model.path, parameters.chat_template = str(FILE), template
    parameters.use_jinja, parameters.warmup, parameters.port, parameters.n_ctx = True, False, 0, 256
    parameters.cpuparams.n_threads = 1
    server = library.Server(parameters)
    with httpx2.Client(base_url=server.listening_address, trust_env=False) as client:

        def render(body: Body, thinks: bool) -> str:
            options = {"chat_template_kwargs": {"enable_thinking": thinks}}
            answer = client.post("/apply-template", json=body | options)
            assert answer.is_success, answer.text
            return str(answer.json()["prompt"])

        yield render


@pytest.mark.deep
@pytest.mark.long
@pytest.mark.parametrize("name", [*ts.formats(), "qwen3", "llama31", "deepseek", "kimi"])
def test_llama_cpp_renders_a_template_alike(name: str) -> None:
    format_ = ts.get_format(name)
    names = [one for one in known(format_, LLAMA) if one in SHOWN or one.startswith("hostile")]
    with llama(format_.jinja().value) as render:
        assert {} == differing(format_, render, names)


def test_llama_cpp_reads_the_marks_of_a_template_that_has_some() -> None:
    format_ = ts.get_format("rwkv-goose")
    template = format_.jinja(generation=True).value
    with llama(template) as render:
        assert {} == differing(format_, render, ["c1", "c2", "c3"])


def test_llama_cpp_differs_where_it_is_known_to() -> None:
    """What is said above is still true. As soon as it is not, more conversations can be compared."""
    format_ = ts.get_format("rwkv-universal")
    names = sorted(LLAMA - {"arguments_invalid"})
    with llama(format_.jinja().value) as render:
        assert names == sorted(differing(format_, render, names))
        with pytest.raises(AssertionError, match="Failed to parse tool call arguments"):
            render(asked("arguments_invalid"), False)
