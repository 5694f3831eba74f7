"""Owns the law of what a model cannot see: every prompt says that it was left out, and it is a loss at its place.

On every registered format, every shipped table, and a chat template.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import turnscript as ts
from tests.templates import Body, Template, parsed
from turnscript.core.conversation import Audio, Document, Image, Part, Text, ToolCall, ToolResult, User, is_unseen
from turnscript.formats.format import Format

FORMATS = [*ts.formats(), *ts.model_formats()]
PARTS: dict[str, Part] = {
    "an image": Image(data="aGVsbG8=", media_type="image/png"),
    "an image by its URL": Image(url="https://example.com/a.png"),
    "an image by its id": Image(file_id="file-1"),
    "a sound": Audio(data="aGVsbG8=", format="wav"),
    "a file": Document(data="aGVsbG8=", media_type="application/pdf", filename='re"port\n.pdf'),
    "a file by its id": Document(file_id="file-1"),
}
CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def is_told(format_: Format, part: Part) -> None:
    """The prompt says it between the texts around it, alone in its message, and in what a tool has answered."""
    around: list[Part] = [Text(text="Look at"), part, Text(text="and tell")]
    for content, before, behind in ((around, "Look at", "and tell"), ([part], "", "")):
        request = ts.Request()
        request.conversation.items.append(User(content=content))
        prompt = format_.prompt(request)
        said = prompt.text[prompt.text.index(before) : prompt.text.rindex(behind) or None]
        assert "was left out" in said or "<<PART type=" in said, prompt.text
        [loss] = filter(is_unseen, prompt.losses)
        assert (f"items[0].content[{content.index(part)}]", "dropped") == (loss.path, loss.kind)
    request = ts.Request()
    request.conversation.items += [
        User(content=[Text(text="?")]),
        ToolCall(name="f", arguments="{}", id="call_1"),
        ToolResult(id="call_1", content=[part]),
    ]
    prompt = format_.prompt(request)
    if not any((loss.path, loss.kind) == ("items[2]", "dropped") for loss in prompt.losses):  # no place for results
        assert "was left out" in prompt.text or "<<PART type=" in prompt.text, prompt.text
        assert [loss for loss in prompt.losses if is_unseen(loss)]


@pytest.mark.parametrize("what", PARTS)
@pytest.mark.parametrize("name", FORMATS)
def test_what_a_model_cannot_see_is_said_in_its_place(name: str, what: str) -> None:
    is_told(ts.get_format(name), PARTS[what])


@pytest.mark.deep
@pytest.mark.parametrize("name", FORMATS)
def test_an_exported_template_says_the_same(name: str) -> None:
    """But for the format whose parts have lines of their own: its export lists that they are left out."""
    format_ = ts.get_format(name)
    content = [
        {"type": "text", "text": "Look at"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGVsbG8="}},
        {"type": "input_audio", "input_audio": {"data": "aGVsbG8=", "format": "wav"}},
        {"type": "file", "file": {"filename": 're"port.pdf', "file_data": "data:application/pdf;base64,aGVsbG8="}},
        {"type": "file", "file": {"file_id": "file-1"}},
        {"type": "text", "text": "and tell"},
    ]
    body: Body = {"model": "m", "messages": [{"role": "user", "content": content}]}
    exported = format_.jinja()
    said = Template(exported.value).render(body)
    if name == "rwkv-universal":
        assert [loss for loss in exported.losses if "left out" in loss.detail]
        return
    assert format_.prompt(parsed(body)).text == said
    assert 4 == said.count("was left out")


@pytest.mark.parametrize("what", PARTS)
def test_a_chat_template_is_given_the_same_words(tmp_path: Path, what: str) -> None:
    place = tmp_path / "chat_template.jinja"
    place.write_text(CHATML, encoding="utf-8")
    is_told(ts.get_format(str(place)), PARTS[what])
