"""Owns the example formats of models that many people run: the bytes that they write, and which models they are for."""

from collections.abc import Callable
from pathlib import Path

import pytest

import turnscript as ts
from tests import corpora
from turnscript.registry import load_formats
from turnscript.tableio import dump_format, read_formats

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "formats"
EXAMPLES = [FOLDER / name for name in ("deepseek.toml", "mistral.toml")]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_write_what_they_wrote(path: Path, golden: Callable[[str, str], None]) -> None:
    """Checked against the chat templates of the models, which write the same bytes."""
    pages = []
    for format_ in load_formats(path):
        written = {name: format_.render(corpora.load(name), view="prompt").value for name in ("c1", "c2", "c3")}
        pages += [f"{format_.name} {name}\n{text}\n" for name, text in written.items()]
        for thinking in (False, True):
            first = corpora.load("c2")
            first.conversation.items = first.items[:2]
            pages.append(f"{format_.name} prompt\n{format_.prompt(first, thinking=thinking).text}\n")
    golden(f"examples/{path.stem}.txt", "\n".join(pages))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_such_a_table_comes_back_from_its_dump(path: Path) -> None:
    for format_ in load_formats(path):
        [again] = read_formats(dump_format(format_), {})
        assert dump_format(format_) == dump_format(again)
        assert format_.render(corpora.load("c1")).value == again.render(corpora.load("c1")).value


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("Ministral-3-14B-Instruct-2512", "mistral"),
        ("Devstral-Small-2-24B-Instruct-2512", "mistral"),
        ("Magistral-Small-2509-Q4_K_M.gguf", "mistral"),
        ("Mistral-Small-3.2-24B-Instruct-2506-Q4_K_M.gguf", "mistral-v11"),
        ("Devstral-Small-2507", "mistral-v11"),
        ("Mistral-Small-24B-Instruct-2501", "mistral-v7"),
        ("Mistral-Small-3.1-24B-Instruct-2503", "mistral-v7"),
        ("DeepSeek-V3.1", "deepseek"),
        ("DeepSeek-R1-Distill-Qwen-7B", "deepseek-r1"),
        ("DeepSeek-V3-0324", "deepseek-r1"),
        ("Mistral-7B-Instruct-v0.3", None),
    ],
)
def test_the_examples_know_their_models_by_name(model: str, name: str | None) -> None:
    own = [format_ for path in EXAMPLES for format_ in load_formats(path)]
    assert name == ts.detect(model, own=own).format


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("'[TOOL_CALLS]' + name + '[ARGS]' + arguments", "mistral"),
        ("'[TOOL_CALLS]' + name + '[CALL_ID]' + id + '[ARGS]' + arguments", "mistral-v11"),
        ("'[SYSTEM_PROMPT]' + system + '[/SYSTEM_PROMPT]' + '[INST]' + text + '[TOOL_CALLS][' + call", "mistral-v7"),
        ("'<｜User｜>' + text + '<｜Assistant｜></think>' + answer", "deepseek"),
        ("'<｜User｜>' + text + '<｜Assistant｜>' + answer", "deepseek-r1"),
    ],
)
def test_the_examples_know_their_models_by_template(template: str, name: str, tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_text(template, encoding="utf-8")
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    own = [format_ for path in EXAMPLES for format_ in load_formats(path)]
    assert name == ts.detect(str(tmp_path), own=own).format
