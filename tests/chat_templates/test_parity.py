"""What a model's own template writes is what transformers makes of the same messages, tools and wishes."""

import json
from pathlib import Path

import pytest

import turnscript as ts
from tests.chat_templates.oracle import MODES, SAMPLES, TOKENS, written
from tests.templates import Template
from tools.parity.conversations import conversations


@pytest.fixture
def folder(tmp_path: Path, sample: Path) -> Path:
    """A model's folder with the template and the tokens of its tokenizer."""
    (tmp_path / "chat_template.jinja").write_bytes(sample.read_bytes())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(TOKENS), encoding="utf-8")
    return tmp_path


@pytest.mark.long
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_prompts_are_those_of_transformers(sample: Path, folder: Path, mode: str) -> None:
    template, fmt = Template(sample.read_text(encoding="utf-8")), ts.get_format(str(folder))
    taken, others = 0, []
    for conversation in conversations():
        for generates in (True, False):
            expected = written(template, conversation, mode, generates)
            if expected is None:
                continue
            taken += 1
            request = ts.parse(json.dumps(conversation.body, ensure_ascii=False), "openai-chat")
            request.settings.thinking = None if mode == "default" else ts.ThinkingMode(mode=mode)
            text = fmt.prompt(request).text if generates else fmt.render(request, view="prompt").value
            if expected != text:
                others.append((conversation.name, generates))
    assert taken >= 50
    assert [] == others


def test_there_are_samples_of_many_constructs() -> None:
    constructs = (
        *(
            "macro",
            "namespace(",
            "| trim",
            ".split(",
            "loop.previtem",
            "loop.nextitem",
            "strftime_now",
            "raise_exception",
        ),
        *(
            "generation",
            "indent=4",
            "| items",
            "dictsort",
            "continue",
            "selectattr(",
            "endset",
            "[::-1]",
            "reasoning_effort",
        ),
        *("| default(", "enable_thinking", "eos_token", "messages[1:]", ".startswith(", "is mapping", "endwith"),
    )
    together = "".join(sample.read_text(encoding="utf-8") for sample in SAMPLES)
    assert [] == [construct for construct in constructs if construct not in together]
    assert 12 <= len(SAMPLES)
