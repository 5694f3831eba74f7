"""Owns the checks of the formats of models and of `examples/formats`: what they write and read, and for which models.

Every file of both folders is checked, and every format of a file.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

import turnscript as ts
from tests import corpora, modelfiles
from tests.clues import template_of
from tests.conformance.test_parser_laws import (
    after_opening,
    answers,
    check_events,
    events_behind,
    said,
    written_by_model,
)
from turnscript.convert.registry import load_formats
from turnscript.core.json_spelling import shown_items
from turnscript.detection import detect
from turnscript.formats.format import Format
from turnscript.tableio import dump_format, read_formats

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "formats"
EXAMPLES = {format_.name: format_ for path in sorted(FOLDER.glob("*.toml")) for format_ in load_formats(path)}
MODELS = {name: ts.get_format(name) for name in ts.model_formats()}
FORMATS = EXAMPLES | MODELS
SHOWN = ("c1", "c2", "c3", "thinking_text_call", "several_systems")
"""A call and its result, thoughts, calls at once, thoughts before and after a call, and two instructions."""


def kinds(format_: Format) -> set[str]:
    return {segment.kind for turn in format_.document.turns for segment in turn.segments}


@pytest.fixture(params=FORMATS)
def example(request: pytest.FixtureRequest) -> Format:
    """Each format in turn."""
    return FORMATS[request.param]


def test_an_example_writes_what_it_wrote(example: Format, golden: Callable[[str, str], None]) -> None:
    """F1: what the model's own template writes, but for the words around the tools and what the documents tell."""
    pages = {shown: example.render(corpora.load(shown), view="prompt").value for shown in SHOWN}
    first = corpora.load("c2")
    first.conversation.items = first.items[:2]
    pages["prompt"] = example.prompt(first, thinking=False).text
    if "thinking" in kinds(example):
        pages["prompt, thinking"] = example.prompt(first, thinking=True).text
    golden(f"examples/{example.name}.txt", "".join(f"--- {title}\n{text}\n" for title, text in pages.items()))


def test_an_example_comes_back_from_its_dump(example: Format) -> None:
    [again] = read_formats(dump_format(example), {})
    assert dump_format(example) == dump_format(again)
    assert example.render(corpora.load("c1")).value == again.render(corpora.load("c1")).value


@pytest.mark.deep
def test_a_transcript_is_written_again_byte_for_byte(example: Format) -> None:
    """L3."""
    for shown in corpora.names():
        transcript = str(example.render(corpora.load(shown)).value)
        assert transcript == example.render(example.parse(transcript)).value, shown


@pytest.mark.deep
def test_what_is_written_for_the_model_is_read_in_pieces(example: Format) -> None:
    """F2, F3, as for every registered format: an answer as the renderer writes it, cut in two and into characters."""
    for request, items in some_answers():
        written = written_by_model(example, request, items)
        if written is None:
            continue
        written = after_opening(example, written)
        prompt = example.prompt(request, thinking=False)
        whole = check_events(events_behind(prompt, [written]), written)
        if all((one.kind, next_.kind) in example.document.joints for one, next_ in pairwise(items)):
            rendered = example.render(ts.Request(conversation=ts.Conversation(items=items, tools=request.tools)))
            if not rendered.losses:  # a prompt shows the characters that JSON has as escapes
                assert said(list(shown_items(items, lambda _: False))) == said(whole.items)
        for pieces in (list(written), [written[: len(written) // 2], written[len(written) // 2 :]]):
            assert whole == check_events(events_behind(prompt, pieces), written)


def some_answers() -> Iterator[tuple[ts.Request, list[ts.Item]]]:
    for name in corpora.names():
        if name.startswith(("arguments", "thinking", "hostile", "text", "c1", "c3")):
            yield from answers(corpora.load(name))


def test_an_empty_text_before_a_call_is_seen_or_told(example: Format) -> None:
    if "tool_call" not in kinds(example):
        return
    items = [
        ts.User(content=[ts.Text(text="Rain?")]),
        ts.Assistant(content=[ts.Text(text="")]),
        ts.ToolCall(name="get_weather", arguments='{"city": "Oslo"}'),
        ts.ToolResult(name="get_weather", content=[ts.Text(text="no")]),
    ]
    rendered = example.render(ts.Request(conversation=ts.Conversation(items=items)))
    told = {loss.path for loss in rendered.losses}
    shown = [item.kind for index, item in enumerate(items) if f"items[{index}]" not in told]
    assert shown == [item.kind for item in example.parse(str(rendered.value)).items]


# Which models they are for.


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("Qwen3-8B-Q4_K_M.gguf", "qwen3"),
        ("qwen/qwen3-30b-a3b", "qwen3"),
        ("Qwen3-Coder-30B-A3B-Instruct-Q4_K_M.gguf", "qwen3-coder"),
        ("Hermes-3-Llama-3.1-8B.Q4_K_M.gguf", "hermes"),
        ("NousResearch/Hermes-2-Pro-Llama-3-8B", "hermes"),
        ("Meta-Llama-3.1-8B-Instruct-Q8_0.gguf", "llama31"),
        ("Llama-3.3-70B-Instruct", "llama31"),
        ("gemma-3-12b-it-q4_0.gguf", "gemma"),
        ("google/gemma-2-9b-it", "gemma"),
        ("google/gemma-4-31B-it", "gemma4"),
        ("GLM-4.5-Air-Q4_K_M.gguf", "glm"),
        ("zai-org/GLM-4.6", "glm"),
        ("granite-4.0-h-tiny-Q8_0.gguf", "granite"),
        ("granite-4.1-8b-Q4_K_M.gguf", "granite41"),
        ("granite-3.3-8b-instruct", "granite33"),
        ("MiniMaxAI/MiniMax-M2", "minimax"),
        ("MiniMaxAI/MiniMax-M3", "minimax-m3"),
        ("MiniMax-M1-80k", "minimax-m1"),
        ("ai-sage/GigaChat3.1-10B-A1.8B", "gigachat"),
        ("GigaChat3-10B-A1.8B", "gigachat3"),
        ("RekaAI/reka-edge-2603", "reka"),
        ("muse-glimmer-4b", "muse"),
        ("meetkai/functionary-small-v3.2", "functionary32"),
        ("Salesforce/Llama-xLAM-2-8b-fc-r", "xlam"),
        ("upstage/Solar-Open-100B", "solar"),
        ("Phi-3.5-mini-instruct-Q4_K_M.gguf", "phi3"),
        ("ServiceNow-AI/Apriel-1.5-15b-Thinker", "apriel"),
        ("Apriel-1.6-15b-Thinker", "apriel16"),
        ("functionary-medium-v3.1", "functionary31"),
        ("fireworks-ai/llama-3-firefunction-v2", "firefunction"),
        ("microsoft_Phi-4-mini-instruct-Q6_K.gguf", "phi4-mini"),
        ("Ministral-3-14B-Instruct-2512", "mistral"),
        ("Devstral-Small-2-24B-Instruct-2512", "mistral"),
        ("Magistral-Small-2509-Q4_K_M.gguf", "mistral"),
        ("Mistral-Small-3.2-24B-Instruct-2506-Q4_K_M.gguf", "mistral-v11"),
        ("Devstral-Small-2507", "mistral"),
        ("devstral-small-1.1", "mistral"),
        ("Mistral-Small-24B-Instruct-2501", "mistral-v7"),
        ("Mistral-Small-3.1-24B-Instruct-2503", "mistral-v7"),
        ("moonshotai/Kimi-K2-Instruct", "kimi"),
        ("Kimi-K2-Instruct-0905-Q2_K_XL", "kimi"),
        ("Kimi-K2-Thinking", "kimi-thinking"),
        ("openai/gpt-oss-20b", "harmony"),
        ("gpt-oss-120b-mxfp4-00001-of-00003.gguf", "harmony"),
        ("LiquidAI/LFM2-8B-A1B", "lfm2"),
        ("LFM2.5-1.2B-Instruct-Q8_0.gguf", "lfm2"),
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", "llama4"),
        ("allenai/Olmo-3-7B-Instruct", "olmo3"),
        ("allenai/OLMo-2-1124-7B-Instruct", "olmo2"),
        ("OLMoE-1B-7B-0125-Instruct", "olmo2"),
        ("OLMo-7B-Instruct", None),
        ("swiss-ai/Apertus-8B-Instruct-2509", "apertus"),
        ("openbmb/MiniCPM5-1B", "minicpm5"),
        ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "nemotron3"),
        ("NVIDIA-Nemotron-Nano-9B-v2-Q4_K_M.gguf", "nemotron-nano2"),
        ("stepfun-ai/Step-3.5-Flash", "step35"),
        ("ByteDance-Seed/Seed-OSS-36B-Instruct", "seed-oss"),
        ("Spark-2.5-Q4_K_M.gguf", "spark25"),
        ("inclusionAI/Ling-3.0-flash", "ling3"),
        ("tencent/Hy3-preview", "hy3"),
        ("poolside/Laguna-S-2.1", "laguna"),
        ("Laguna-XS.2-Q8_0.gguf", "laguna-xs"),
        ("moonshotai/Kimi-K3", "kimi-k3"),
        ("DeepSeek-V3.1", "deepseek"),
        ("deepseek-ai/DeepSeek-V3.2", "deepseek-v32"),
        ("DeepSeek-V4-Flash-Q2_K.gguf", "deepseek-v4"),
        ("deepseek-ai/DeepSeek-V4.1-Flash", "deepseek-v41"),
        ("Mistral-Nemo-Instruct-2407-Q4_K_M.gguf", "mistral-nemo"),
        ("speakleash/Bielik-11B-v3.0-Instruct", "bielik"),
        ("CohereLabs/command-a-03-2025", "command-a"),
        ("c4ai-command-r7b-12-2024-Q4_K_M.gguf", "command-r7b"),
        ("c4ai-command-r-plus-08-2024", "command-r"),
        ("DeepSeek-R1-Distill-Qwen-7B", "deepseek-r1"),
        ("DeepSeek-V3-0324", "deepseek-r1"),
        ("Mistral-7B-Instruct-v0.3", "mistral-7b"),
        ("Mistral-7B-Instruct-v0.2", None),
        ("Mixtral-8x22B-Instruct-v0.1", "mistral-7b"),
        ("Ministral-8B-Instruct-2410", "mistral-nemo"),
        ("Ministral-3-3B-Instruct-2512", "mistral"),
        ("Mistral-Large-3-675B-Instruct-2512", "mistral"),
        ("Mistral-Small-4-119B-2603", "mistral"),
        ("NousResearch/Hermes-4-14B", "hermes4"),
        ("Hermes-4-70B", "hermes4-llama"),
        ("Hermes-4.3-36B", "hermes4-llama"),
        ("Salesforce/xLAM-2-3b-fc-r", "xlam-qwen"),
        ("Team-ACE/ToolACE-2-Llama-3.1-8B", "toolace"),
        ("HuggingFaceTB/SmolLM2-1.7B-Instruct", "smollm2"),
        ("SmolLM3-3B", "smollm3"),
        ("microsoft/phi-4", "phi4"),
        ("Phi-4-reasoning-plus", "phi4"),
        ("internlm/internlm2_5-7b-chat", "internlm"),
        ("internlm3-8b-instruct", "internlm"),
        ("LGAI-EXAONE/EXAONE-4.0-32B", "exaone4"),
        ("K-EXAONE-236B-A23B", None),
        ("baidu/ERNIE-4.5-21B-A3B-Thinking", "ernie"),
        ("ERNIE-4.5-21B-A3B-PT", None),
        ("tencent/Hunyuan-7B-Instruct", "hunyuan"),
        ("Hunyuan-A13B-Instruct", None),
        ("granite-3.0-8b-instruct", "granite33"),
        ("moonshotai/Kimi-K2.6", "kimi-thinking"),
        ("DeepSeek-R1-0528-Qwen3-8B-Q4_K_M.gguf", "deepseek-r1"),
        ("Qwen3.5-35B-A3B-Q4_K_M.gguf", "qwen35"),
        ("Qwen/Qwen3.6-27B", "qwen35"),
        ("Qwen3.8-27B", "qwen35"),
        ("Qwen2.5-7B-Instruct-Q4_K_M.gguf", "qwen25"),
        ("Qwen2.5-Coder-32B-Instruct", "qwen25"),
        ("Qwen2-7B-Instruct", "qwen25"),
        ("qwen3_8b", "qwen3"),
        ("Qwen3-30B-A3B-Instruct-2507-Q4_K_M.gguf", "qwen3-instruct"),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", "qwen3-instruct"),
        ("Qwen3-4B-Thinking-2507", "qwen3-thinking"),
        ("Qwen/Qwen3-VL-8B-Thinking", "qwen3-thinking"),
        ("Qwen3-VL-8B-Instruct", "qwen3-instruct"),
        ("Qwen2.5-VL-7B-Instruct", "qwen25"),
        ("QwQ-32B", "qwen3-thinking"),
        ("Qwen3-Coder-480B-A35B-Instruct", "qwen3-coder"),
        ("Qwen3.5-9B-Instruct", "qwen35"),
        ("GLM-4.7-Flash", "glm47"),
        ("zai-org/GLM-5-FP8", "glm47"),
        ("zai-org/GLM-5.1", "glm47"),
        ("GLM-5.3", "glm47"),
    ],
)
def test_a_model_is_known_by_its_name(model: str, name: str | None) -> None:
    assert name == detect(model).format


TWINS = {
    "granite41": "granite",
    "step35": "nemotron3",
    "gigachat3": "gigachat",
    "qwen25": "qwen3-instruct",
    "qwen3-thinking": "qwen3",
    "smollm3": "qwen3",
    "mistral-nemo": "mistral-7b",
}
"""Of formats whose answers look the same, the one that a template without any name is put to."""
PARTLY = frozenset({"gemma4", "harmony", "muse"})
"""Those that have a place for calls, and whose templates write more than one reads back: one of two."""


@pytest.mark.deep
@pytest.mark.parametrize("name", MODELS)
def test_a_model_file_is_known_by_its_template(name: str, tmp_path: Path) -> None:
    """Whatever it is called: the template is tried. Without a place for calls not all of it comes back."""
    file = tmp_path / "model.gguf"
    file.write_bytes(modelfiles.header(modelfiles.text("tokenizer.chat_template", template_of(name))))
    found = detect(file)
    assert TWINS.get(name, name) == found.format, f"{found.reason}: if its answers look the same, add {name} to TWINS"
    assert (MODELS[name].features.calls and name not in PARTLY) is found.exact, found.reason
    assert found.right is not None
    assert found.right > 0
