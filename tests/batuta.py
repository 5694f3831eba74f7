"""Owns what the tests of batuta's templates share: their literals as the source writes them, and items in short."""

from typing import Any

import pytest

import turnscript as ts

CHATML, LLAMA3, GENERIC = "batuta-chatml", "batuta-llama3", "batuta-generic"
NAMES = (CHATML, LLAMA3, GENERIC)
every_template = pytest.mark.parametrize("name", NAMES)

# What the source writes around a role and a text, before everything, and where the model goes on.
START = {CHATML: "", LLAMA3: "<|begin_of_text|>", GENERIC: ""}
TURN = {
    CHATML: "<|im_start|>{}\n{}<|im_end|>\n",
    LLAMA3: "<|start_header_id|>{}<|end_header_id|>\n\n{}<|eot_id|>",
    GENERIC: "<|{}|>\n{}\n<|end|>\n",
}
END = {
    CHATML: "<|im_start|>assistant\n",
    LLAMA3: "<|start_header_id|>assistant<|end_header_id|>\n\n",
    GENERIC: "<|assistant|>\n",
}
CALL = '<tool_call>\n{"name":"rag","input":{"query":"test"}}\n</tool_call>'
RESULT = "<tool_result>result data</tool_result>"


def said(kind: type[ts.System | ts.User | ts.Assistant], words: str) -> ts.Item:
    """An item of some kind with one text."""
    return kind(content=[ts.Text(text=words)])


def system(words: str) -> ts.Item:
    return said(ts.System, words)


def user(words: str) -> ts.Item:
    return said(ts.User, words)


def assistant(words: str) -> ts.Item:
    return said(ts.Assistant, words)


def request_of(*items: ts.Item, tools: list[ts.Tool] | None = None, **settings: Any) -> ts.Request:
    """A request built by hand, its items with places."""
    conversation = ts.Conversation(items=list(items), tools=tools or [])
    request = ts.Request(conversation=conversation, settings=ts.Settings(**settings))
    request.locate()
    return request


def turn(name: str, role: str, words: str) -> str:
    """A turn as the source writes it."""
    return TURN[name].format(role, words)
