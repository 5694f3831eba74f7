"""Owns chats in one text whose turns have labels, such as `USER:` and `ASSISTANT:`: the classic fine-tuning sets.

A style is a row of a table: how its texts begin, and its labels by side. A text is taken apart only where its turns
alternate, so a label that somebody quotes refuses the text rather than moving words from one side to the other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from turnscript.datasets.problems import BadRow, Code

_SYSTEM, _USER, _INPUT, _ASSISTANT = "system", "user", "input", "assistant"
"""The sides, which are the names of the groups in `labels`. An input goes on with what the user says."""


class Style(NamedTuple):
    """One way to label turns. `example`: for people. `begins`: how a text begins, behind white space and a `<s>`.

    `labels`: its labels, each in a group with the name of its side. `foreign`: what only texts of another format hold.
    `instructs`: instructions that stand in the first question. `announces`: words before the first label that belong to
    the style; all others are instructions.
    """

    name: str
    title: str
    example: str
    begins: re.Pattern[str]
    labels: re.Pattern[str]
    foreign: re.Pattern[str] | None = None
    instructs: re.Pattern[str] | None = None
    announces: re.Pattern[str] | None = None


STYLES = (
    Style(
        "llama2",
        "Llama 2 and Mistral: questions in [INST]",
        "text: [INST] <<SYS>>...<</SYS>> question [/INST] answer",
        re.compile(r"\[INST\]"),
        re.compile(r"(?P<user>\[INST\])|(?P<assistant>\[/INST\])"),
        foreign=re.compile(r"\[(?:AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|SYSTEM_PROMPT|THINK|IMG)\]"),
        instructs=re.compile(r"\s*<<SYS>>(.*?)<</SYS>>", re.DOTALL),
    ),
    Style(
        "vicuna",
        "Vicuna: USER: and ASSISTANT:",
        "text: A chat between ... USER: question ASSISTANT: answer",
        re.compile(r"(?:A chat between .{1,2000}?\s|SYSTEM:.{1,20000}?\s)?USER:", re.DOTALL),
        re.compile(r"(?:(?<!\S)|(?<=</s>))(?:(?P<system>SYSTEM)|(?P<user>USER)|(?P<assistant>ASSISTANT)):"),
    ),
    Style(
        "guanaco",
        "Guanaco and the first Vicuna: ### Human: and ### Assistant:",
        "text: ### Human: question### Assistant: answer",
        re.compile(r"(?:A chat between .{1,2000}?)?### (?:Human|User|System):", re.DOTALL),
        re.compile(r"### (?:(?P<system>System)|(?P<user>Human|User)|(?P<assistant>Assistant)):"),
    ),
    Style(
        "alpaca-prompt",
        "Alpaca's prompt: ### Instruction: and ### Response:",
        "text: Below is an instruction ... ### Instruction: ... ### Input: ... ### Response: ...",
        re.compile(r"(?:Below is an instruction.{1,400}?)?### Instruction:", re.DOTALL),
        re.compile(r"^### (?:(?P<user>Instruction)|(?P<input>Input)|(?P<assistant>Response)):", re.MULTILINE),
        announces=re.compile(
            r"Below is an instruction that describes a task[^#]*appropriately completes the request\.?"
        ),
    ),
    Style(
        "human-assistant",
        "Anthropic's sets and older prompts: Human: and Assistant:",
        "text: Human: question Assistant: answer",
        re.compile(r"Human:"),
        re.compile(r"^(?:(?P<user>Human)|(?P<assistant>Assistant|AI)):", re.MULTILINE),
    ),
)
"""Shapes: https://github.com/meta-llama/llama (README, `llama-2-chat`), https://github.com/lm-sys/FastChat
(`conversation.py`), https://huggingface.co/datasets/timdettmers/openassistant-guanaco,
https://github.com/tatsu-lab/stanford_alpaca (README), https://huggingface.co/datasets/Anthropic/hh-rlhf."""

_BEGIN = re.compile(r"(?:\s|<s>)*")
_ENDS = re.compile(r"</s>|<s>|<\|endoftext\|>|<\|end_of_text\|>")
"""What stands around turns as tokens of their own."""


def style_of(text: str) -> Style | None:
    """Return the style that a text begins in and has an answer in, None if there is none."""
    start = _BEGIN.match(text)
    at = start.end() if start else 0
    for style in STYLES:
        if style.begins.match(text, at) and not (style.foreign and style.foreign.search(text)):
            return style if any(mark.lastgroup == _ASSISTANT for mark in style.labels.finditer(text)) else None
    return None


def turns_of(style: Style, text: str, at: str) -> Iterator[tuple[str, str]]:
    """Yield the side and the words of each turn; sides alternate, behind at most one system turn.

    White space around turns is not kept. Raises BadRow with `at` as its place for a text of another style, and for one
    whose turns cannot be told for sure.
    """
    if style_of(text) is not style:
        raise BadRow(Code.FORM, f"the text does not begin as {style.title}", path=at)
    before = ""
    for side, said in _joined(_pieces(style, text, at), at):
        if not said and side != _ASSISTANT:
            raise BadRow(Code.EMPTY, f"a turn of the {side} is empty", path=at)
        if not _follows(side, before):
            message = f"a turn of the {side} stands behind one of the {before or 'beginning'}, so a label may be quoted"
            raise BadRow(Code.SHAPE, message, path=at)
        before = side
        yield side, said


def _follows(side: str, before: str) -> bool:
    allowed = {_SYSTEM: ("",), _USER: ("", _SYSTEM, _ASSISTANT), _ASSISTANT: (_USER,)}
    return before in allowed[side]


def _joined(pieces: Iterator[tuple[str, str]], at: str) -> Iterator[tuple[str, str]]:
    """The turns, each input with the instruction before it. An empty answer at the end is a prompt without one."""
    waiting: tuple[str, str] | None = None
    for side, said in pieces:
        if side == _INPUT:
            if waiting is None or waiting[0] != _USER:
                raise BadRow(Code.SHAPE, "an input stands behind no instruction", path=at)
            waiting = (_USER, f"{waiting[1]}\n{said}" if said else waiting[1])
            continue
        if waiting is not None:
            if waiting == (_ASSISTANT, ""):
                raise BadRow(Code.EMPTY, "an answer is empty", path=at)
            yield waiting
        waiting = (side, said)
    if waiting is not None and waiting != (_ASSISTANT, ""):
        yield waiting


def _pieces(style: Style, text: str, at: str) -> Iterator[tuple[str, str]]:
    """What stands behind each label, and what stands before the first one."""
    marks = list(style.labels.finditer(text))
    before = _bare(text[: marks[0].start()], at)
    if before and not (style.announces and style.announces.fullmatch(before)):
        yield _SYSTEM, before
    ends = [mark.start() for mark in marks[1:]] + [len(text)]
    for mark, end in zip(marks, ends, strict=True):
        said = text[mark.end() : end]
        found = style.instructs.match(said) if style.instructs and mark is marks[0] else None
        if found is not None:
            if instructions := found[1].strip():
                yield _SYSTEM, instructions
            said = said[found.end() :]
        yield str(mark.lastgroup), _bare(said, at)


def _bare(said: str, at: str) -> str:
    """A turn without white space and end tokens around it."""
    parts = [part.strip() for part in _ENDS.split(said)]
    words = [part for part in parts if part]
    if len(words) > 1:
        raise BadRow(Code.SHAPE, "a turn holds the end of another, so its own end cannot be told", path=at)
    return words[0] if words else ""


__all__ = ["STYLES", "Style", "style_of", "turns_of"]
