"""Owns turns that others rendered with official templates: canitoolcall's fixtures, beside the same turns of ours."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import turnscript as ts
from tools.parity import writer
from tools.parity.conversations import Conversation, Message
from tools.parity.difference import cause
from tools.parity.oracle import Oracle, Refused
from tools.parity.places import Place

# Which template at hand is that of a fixture's model; the first that fits. A copy may be of another revision.
_TEMPLATES = (
    ("deepseek-ai/DeepSeek-V3.1", "deepseek-ai-DeepSeek-V3.1"),
    ("deepseek-ai/DeepSeek-V3.2", "deepseek-ai-DeepSeek-V3.2"),
    ("deepseek-ai/DeepSeek-V4.1", ""),
    ("deepseek-ai/DeepSeek-V4", "deepseek-ai-DeepSeek-V4"),
    ("google/gemma-4", "google-gemma-4-31B-it"),
    ("zai-org/GLM-4.5", "GLM-4.6"),
    ("zai-org/GLM-4.7", "GLM-4.7-Flash"),
    ("openai/gpt-oss", "openai-gpt-oss-120b"),
    ("moonshotai/Kimi-K2-Instruct", "Kimi-K2-Instruct"),
    ("moonshotai/Kimi-K3", "Kimi-K3"),
    ("meta-llama/Llama-3", "meta-llama-Llama-3.3-70B-Instruct"),
    ("mistralai/Mistral-Small-3.2", "Mistral-Small-3.2-24B-Instruct-2506"),
    ("mistralai/Ministral-3-14B-Reasoning", "mistralai-Ministral-3-14B-Reasoning-2512"),
    ("Qwen/Qwen3-0.6B", "Qwen-Qwen3-0.6B"),
    ("Qwen/Qwen3-Coder-30B", "Qwen3-Coder"),
    ("Qwen/Qwen3.5", "Qwen3.5-4B"),
)

_ASKED = {"role": "user", "content": "Please."}


def known(places: Iterable[Place]) -> bool:
    """Say if any of the templates is that of a fixture's model."""
    return any(place.name == name for place in places for _, name in _TEMPLATES)


def judged(places: Mapping[str, Place]) -> tuple[Counter[tuple[str, str]], dict[tuple[str, str], str]]:
    """Return how many turns each model's fixtures have of each verdict, and one fixture to try each with."""
    found: Counter[tuple[str, str]] = Counter()
    cases: dict[tuple[str, str], str] = {}
    loaded: dict[str, tuple[Oracle, ts.Format]] = {}
    with TemporaryDirectory(prefix="parity-") as root:
        for fixture in _fixtures():
            model = fixture["models"][0]
            place = places.get(next((name for start, name in _TEMPLATES if model.startswith(start)), ""))
            if place is None:
                verdict = "no template at hand"
            elif "expected" not in fixture:
                verdict = "cut or broken: there is no turn to write"
            else:
                try:
                    if place.name not in loaded:
                        loaded[place.name] = Oracle(place), writer.loaded(place.folder(Path(root)))
                    verdict = _verdict(*loaded[place.name], fixture)
                except writer.Failed as error:
                    verdict = f"fails: {error}"
            found[model, verdict] += 1
            cases.setdefault((model, verdict), fixture["id"])
    return found, cases


def _fixtures() -> Iterator[dict[str, Any]]:
    folder = Path(str(files("canitoolcall"))) / "_data" / "fixtures"
    for path in sorted(folder.glob("*/*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            fixture = json.loads(line)
            if fixture["provenance"]["kind"] == "template_render":
                yield fixture


def _verdict(oracle: Oracle, fmt: ts.Format, fixture: dict[str, Any]) -> str:
    """Return how our turn compares; where transformers does not write it with this template, that is the cause."""
    said = Conversation(fixture["id"], [_ASKED, _turn(fixture["expected"])], fixture["tools"])
    thinking = fixture.get("thinking")
    mode = "default" if thinking is None else "on" if thinking else "off"
    written = writer.text(fmt, said, mode, False)
    verdict = _found(written, fixture, said)
    if verdict is not None:
        return verdict
    try:
        theirs = oracle.text(said, mode, False)
    except Refused as error:
        return f"fixture's: this template refuses it in transformers ({error})"
    if _found(theirs, fixture, said) is None:
        same = "as we do" if written == theirs else f"and so do we: {cause(theirs, written)}"
        return f"fixture's: transformers writes it otherwise with this template, {same}"
    if any("marker" in tag or "control-token" in tag for tag in fixture["tags"]):
        return "other: control strings in its contents are protected"
    return f"other: {cause(theirs, written)}"


def _found(written: str, fixture: dict[str, Any], said: Conversation) -> str | None:
    """Return how a fixture's turn stands in a text, if it does."""
    turn = said.messages[-1]
    # What a prompt has opened already belongs to the turn as the history has it.
    opened = fixture.get("generation_prompt", "")
    for expected in (opened + fixture["raw_output"], fixture["raw_output"]):
        before, met, behind = written.rpartition(expected)
        if met and not _says(behind, turn) and not _says(before.rpartition(_ASKED["content"])[2], turn):
            whole = not opened or expected != fixture["raw_output"]
            return "equal" if whole else "equal, and its prompt opens what the history leaves out"
    return None


def _turn(expected: dict[str, Any]) -> Message:
    calls = [
        {"id": f"call{n:05d}", "type": "function", "function": {"name": call["name"], "arguments": call["arguments"]}}
        for n, call in enumerate(expected["tool_calls"] or [])
    ]
    message = {"role": "assistant", "content": expected["content"], "reasoning_content": expected["reasoning_content"]}
    return {key: value for key, value in message.items() if value is not None} | (
        {"tool_calls": calls} if calls else {}
    )


def _says(text: str, turn: Message) -> bool:
    """Say if a text holds anything of the turn, so that its rendering is not over there or has begun before."""
    told = [turn.get("content"), turn.get("reasoning_content")]
    names = [call["function"]["name"] for call in turn.get("tool_calls", [])]
    return any(one and one in text for one in [*told, *names])
