"""Owns the checks of pictures, sounds and files in rows: no answer about one is learned without it, unless asked."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.datasets.jobs import built, plan_for, rejects, written
from turnscript.convert.registry import formats
from turnscript.datasets.problems import Code
from turnscript.datasets.verify import verify

PNG = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
ROWS: dict[str, tuple[dict[str, Any], str]] = {
    "messages": (
        {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "What?"},
                        {"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}},
                    ],
                },
                {"role": "assistant", "content": "A cat."},
            ]
        },
        "$.messages[0].content[1]",
    ),
    "anthropic-messages": (
        {
            "model": "m",
            "max_tokens": 5,
            "messages": [
                {"role": "user", "content": "Look"},
                {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]},
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "x"}, PNG]}
                    ],
                },
                {"role": "assistant", "content": "A cat."},
            ],
        },
        "$.messages[2].content[0].content[1]",
    ),
    "openai-responses": (
        {
            "model": "m",
            "input": [
                {"role": "user", "content": [{"type": "input_file", "file_data": "AAAA", "filename": "a.pdf"}]},
                {"role": "assistant", "content": "A cat."},
            ],
        },
        "$.input[0].content[0]",
    ),
}


@pytest.mark.parametrize("format_", formats())
@pytest.mark.parametrize("form", ROWS)
def test_a_picture_that_is_dropped_sets_its_row_aside(form: str, format_: str, tmp_path: Path) -> None:
    row, where = ROWS[form]
    file = written(tmp_path / "rows.jsonl", [json.dumps(row).encode()])
    report = built(plan_for(file, form=form, format=format_), tmp_path / "out")
    (aside,) = rejects(tmp_path / "out")
    assert ({Code.MEDIA: 1}, Code.MEDIA, where) == (report.rejected, aside["code"], aside["pointer"])
    assert "--media drop" in aside["message"]


def test_a_picture_is_left_out_where_somebody_says_so(tmp_path: Path) -> None:
    row, _ = ROWS["anthropic-messages"]
    file = written(tmp_path / "rows.jsonl", [json.dumps(row).encode()])
    report = built(plan_for(file, form="anthropic-messages", media="drop"), tmp_path / "out")
    assert (1, 1) == (report.written, sum("image" in kind for kind in report.loss_kinds))
    assert verify(tmp_path / "out").ok


def test_the_address_of_a_picture_is_no_picture(tmp_path: Path) -> None:
    """It is all that a prompt of the Universal transcript shows, and no model sees through it."""
    content = [{"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}]
    row = {"messages": [{"role": "user", "content": content}, {"role": "assistant", "content": "A cat."}]}
    file = written(tmp_path / "rows.jsonl", [json.dumps(row).encode()])
    assert {"E_MEDIA": 1} == built(plan_for(file, format="rwkv-universal"), tmp_path / "out").rejected
    assert 1 == built(plan_for(file, format="rwkv-universal", media="drop"), tmp_path / "all").written


@pytest.mark.parametrize("form", ["openai-completions", "prompt-completion", "text", "alpaca", "messages"])
def test_a_suffix_is_never_dropped(form: str, tmp_path: Path) -> None:
    """What goes on behind a hole is a part of what was asked."""
    chat = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]
    rows: dict[str, dict[str, Any]] = {
        "openai-completions": {
            "request": {"model": "m", "prompt": "def f("},
            "response": {"choices": [{"text": "x)"}]},
        },
        "prompt-completion": {"prompt": "def f(", "completion": "x)"},
        "text": {"text": "def f("},
        "alpaca": {"instruction": "a", "output": "b"},
        "messages": {"messages": chat},
    }
    rows[form].get("request", rows[form])["suffix"] = "    return x"
    file = written(tmp_path / "rows.jsonl", [json.dumps(rows[form]).encode()])
    report = built(plan_for(file, form=form), tmp_path / "out")
    (aside,) = rejects(tmp_path / "out")
    assert ({Code.FORM: 1}, "suffix") == (report.rejected, aside["pointer"].rpartition(".")[2])
