"""Owns trials: what a chat template writes for each probe, and the places in it where the answer begins and ends."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol

import msgspec

from turnscript.core.errors import TurnscriptError
from turnscript.detection.edges import beginning, head
from turnscript.detection.probes import (
    CALL,
    DEFINITIONS,
    LATER,
    ONE_CALL,
    OTHER,
    PROBES,
    RESULT,
    SYSTEM,
    TEXT,
    TEXT_ONLY,
    THOUGHT,
    THOUGHT_CALL,
    THOUGHT_TEXT,
    TWO_CALLS,
    USER,
    Manner,
    Probe,
)
from turnscript.engine.template.program import TemplateLimit

THOUGHT_KEYS = ("reasoning_content", "thinking", "reasoning")
"""Members of a message under which templates look for its thought, the usual one first."""


_TAKEN_OUT = re.compile(r"""split\(\s*['"](?:\\n)*</([^<>/\s'"]+)>|['"](?:\\n)*</([^<>/\s'"]+)>(?:\\n)*['"]\s+in\s""")
"""How templates find the end of a thought in a content, to show only what stands behind it."""
_OPENED = re.compile(r"<([^<>/\s|]+)>\s*$")


class Render(Protocol):
    """A chat template as a function. It raises a TurnscriptError for what the template refuses."""

    def __call__(
        self,
        messages: Sequence[dict[str, Any]],
        tools: Sequence[dict[str, Any]] | None = None,
        add_generation_prompt: bool = False,
        **variables: Any,
    ) -> str:
        """Return the text of a conversation."""
        ...


class Trial:
    """What the template wrote for a probe: `plain` before the answer, `prompt` for it, and the `whole` with it.

    `after` is where the last content before the answer ends in the whole; `shared` how far the whole is like `plain`.
    """

    def __init__(self, probe: Probe, plain: str, prompt: str, whole: str) -> None:
        self.probe, self.plain, self.prompt, self.whole = probe, plain, prompt, whole
        last = str(probe.before[-1]["content"])
        self.after = whole.rfind(last) + len(last) if last in whole else 0
        self.shared = len(beginning(plain, whole))

    @property
    def start(self) -> int:
        """Return where the answer's turn begins, where nothing opens it."""
        return max(self.after, self.shared)

    def opened(self, opening: str) -> int | None:
        """Return where the inside of the answer begins, behind the opening of its turn; None where that is not there.

        White space at the end of the opening need not be there.
        """
        core = opening.rstrip()
        at = self.whole.find(core, max(self.after, self.shared - len(core)))
        if at < 0:
            return None
        end, space = at + len(core), opening[len(core) :]
        return end + len(space) if self.whole.startswith(space, end) else end

    def cut(self, inside: int) -> tuple[str, str]:
        """Return what the prompt has of the answer already, and the rest.

        Where a prompt opens or closes a thought that the history does not have, the answer is that of the history;
        where the history has the thought and not what opens it, that is the prompt's.
        """
        if self.continues and len(self.prompt) >= inside:
            return self.prompt[inside:], self.whole[len(self.prompt) :]
        answer = self.whole[inside:]
        return (self.opening(inside), answer.lstrip()) if answer.lstrip().startswith(THOUGHT) else ("", answer)

    def opening(self, inside: int) -> str:
        """Return what the prompt has behind the opening of the turn."""
        return self.prompt[inside:] if self.prompt[:inside] == self.whole[:inside] else ""

    @property
    def continues(self) -> bool:
        """Return whether the whole begins with the prompt."""
        return self.whole.startswith(self.prompt)

    @property
    def written(self) -> str:
        """Return what stands between the last content and the answer in the whole, as far as a prompt has it too."""
        return self.whole[self.after : len(self.prompt)] if self.continues else ""

    @property
    def ahead(self) -> str:
        """Return what stands between the last content and the answer in its prompt."""
        last = str(self.probe.before[-1]["content"])
        return self.prompt[self.prompt.rfind(last) + len(last) :] if last in self.prompt else ""

    def differs_from(self, other: Trial | None, word: str, instead: str) -> bool:
        """Return whether another trial is more than this one with one word in place of another."""
        return other is None or self.whole.replace(word, instead) != other.whole

    def shown(self, start: int) -> tuple[bool, bool, int]:
        """Return whether thought and text stand behind a place, and how many of the calls."""
        region = self.whole[start:]
        calls = sum(call.name in region for call in self.probe.calls)
        return THOUGHT in region, bool(self.probe.text) and TEXT in region, calls


class Trials:
    """All that is tried with one template. `refused` says in the template's own words what it does not take."""

    def __init__(
        self, render: Render, source: str = "", *, eos: str = "", wishes: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        self.wishes = wishes
        self._render, self.source, self.eos = render, source, eos
        self.manner = Manner()
        self.refused: dict[str, str] = {}
        self._known: dict[str, Trial | None] = {}
        self._opening: str | None = None  # what it writes behind each turn; not known yet
        self._tried(TEXT_ONLY, self.manner)
        self._find_manner()

    def of(self, probe: Probe) -> Trial | None:
        """Return what the template writes for a probe; None where it refuses."""
        if probe.shows not in self._known:
            self._known[probe.shows] = self._tried(probe, self.manner)
        return self._known[probe.shows]

    @cached_property
    def all(self) -> list[tuple[Probe, Trial | None]]:
        """Return every probe with what was written."""
        return [(probe, self.of(probe)) for probe in PROBES]

    def written(self, messages: Sequence[dict[str, Any]], tools: bool = False, prompt: bool = False) -> str | None:
        """Return other messages as the template writes them, None where it refuses."""
        for offered in (tools, True):
            try:
                return self._render(messages, list(DEFINITIONS) if offered else None, prompt)
            except TemplateLimit:
                raise
            except TurnscriptError:
                continue
        return None

    @cached_property
    def followed(self) -> str:
        """Return what stands between the text of an answer and the next question; empty where that cannot be seen."""
        messages = [*TEXT_ONLY.messages(self.manner), {"role": "user", "content": LATER}]
        text = self.written(messages) or ""
        at, end = text.rfind(TEXT), text.rfind(LATER)
        return text[at + len(TEXT) : end] if 0 <= at < end else ""

    @cached_property
    def aheads(self) -> list[str]:
        """Return what stands behind a question in prompts that the wishes make, and that no history begins with."""
        plain, found = self.of(TEXT_ONLY), dict[str, None]()
        messages = TEXT_ONLY.messages(self.manner)
        for wish in self.wishes:
            try:
                prompt = self._render(messages[:-1], None, True, **wish)
                whole = self._render(messages, None, False, **wish)
            except TemplateLimit:
                raise
            except TurnscriptError:
                continue
            ahead = prompt[prompt.rfind(USER) + len(USER) :] if USER in prompt else ""
            if ahead and not whole.startswith(prompt) and (plain is None or ahead != plain.ahead):
                found[ahead] = None
        return list(found)

    @cached_property
    def ended(self) -> str:
        """Return what stands behind the text of an answer at the end of all."""
        trial = self.of(TEXT_ONLY)
        at = -1 if trial is None else trial.whole.rfind(TEXT)
        return "" if trial is None or at < 0 else trial.whole[at + len(TEXT) :]

    @cached_property
    def asked(self) -> str:
        """Return what stands before the first question of a conversation."""
        trial = self.of(TEXT_ONLY)
        return "" if trial is None or USER not in trial.whole else trial.whole[: trial.whole.find(USER)]

    @cached_property
    def taken_out(self) -> str:
        """Return the word of the tag at whose end a template cuts thoughts out of contents, if it shows none itself."""
        found = _TAKEN_OUT.search(self.source)
        if found is None or self.manner.thoughts or self.manner.closes:
            return ""
        return found[1] or found[2]

    @cached_property
    def takes(self) -> dict[str, bool]:
        """Return what the template has a place for: `system`, `thoughts`, `calls`, `several calls`, `results`,
        `tools`."""
        one, two, behind = self.of(ONE_CALL), self.of(TWO_CALLS), self.of(PROBES[15])
        system = self.written([{"role": "system", "content": SYSTEM}, *TEXT_ONLY.messages(self.manner)[:1]])
        return {
            "system": system is not None and SYSTEM in system,
            "thoughts": any(
                trial is not None and THOUGHT in trial.whole for trial in map(self.of, (THOUGHT_TEXT, THOUGHT_CALL))
            ),
            "tools": one is not None and CALL in one.prompt,
            "calls": one is not None and one.shown(one.start)[2] == 1,
            "several calls": two is not None and two.shown(two.start)[2] == 2,
            "results": behind is not None and RESULT in behind.prompt,
        }

    def _find_manner(self) -> None:
        """Find how the template takes arguments, ids and thoughts, by what it shows of them."""
        call = self._tried(ONE_CALL, self.manner)
        if call is None or "'glimfort'" in call.whole[call.start :]:
            texts = msgspec.structs.replace(self.manner, text_arguments=True)
            if (again := self._tried(ONE_CALL, texts)) is not None:
                self.manner, call = texts, again
        if call is not None and CALL not in call.whole[call.start :]:
            named = msgspec.structs.replace(self.manner, named_ids=True)
            if (again := self._tried(ONE_CALL, named)) is not None and CALL in again.whole[again.start :]:
                self.manner = named
        self.refused.clear()
        for key in THOUGHT_KEYS:
            manner = msgspec.structs.replace(self.manner, thoughts=key)
            for probe in (THOUGHT_TEXT, THOUGHT_CALL):
                trial = self._tried(probe, manner)
                if trial is not None and THOUGHT in trial.whole:
                    self.manner = manner
                    return
        self.refused.clear()
        closes = self._closing_in_content()
        self.manner = msgspec.structs.replace(self.manner, thoughts="", closes=closes)

    def _closing_in_content(self) -> str:
        """Return what ends a thought within a content, where the template opens one before each."""
        plain = self._tried(TEXT_ONLY, self.manner)
        found = _OPENED.search(plain.prompt) if plain is not None else None
        if plain is None or found is None or not plain.whole.startswith(plain.prompt + TEXT):
            return ""
        closing = f"</{found[1]}>"
        is_turn = closing in plain.whole[len(plain.prompt) :] or closing not in self.source
        return "" if is_turn else f"\n{closing}\n\n"

    def _tried(self, probe: Probe, manner: Manner) -> Trial | None:
        """Try a probe. A template that cannot do without tools gets them."""
        trial = self._tried_with(probe, manner, offered=probe.tools)
        if trial is None and not probe.tools:
            trial = self._tried_with(probe, manner, offered=True)
        return trial

    def _tried_with(self, probe: Probe, manner: Manner, offered: bool) -> Trial | None:
        tools = list(DEFINITIONS) if offered else None
        try:
            before = probe.messages(manner)[:-1]
            plain = self._render(before, tools, False)
            prompt = self._render(probe.messages(manner)[:-1], tools, True)
            whole = self._render(probe.messages(manner), tools, False)
        except TemplateLimit:
            raise
        except TurnscriptError as error:
            self.refused[probe.shows] = str(error)
            return None
        self.refused.pop(probe.shows, None)
        return Trial(probe, *self._without_opening(plain, prompt, whole))

    def _without_opening(self, plain: str, prompt: str, whole: str) -> tuple[str, str, str]:
        """Take away the opening of a next answer, which some templates write whether it is asked for or not."""
        if plain != prompt:
            return plain, prompt, whole
        if self._opening is None and TEXT in whole:
            ended = whole[whole.rfind(TEXT) + len(TEXT) :]
            opening = ended[len(head(ended, self.followed)) :] if self.followed else ""
            self._opening = opening if opening.strip() and plain.endswith(opening) else ""
        opening = self._opening or ""
        if not opening or not (plain.endswith(opening) and whole.endswith(opening)):
            return plain, prompt, whole
        return plain[: -len(opening)], prompt, whole[: -len(opening)]


__all__ = ["OTHER", "THOUGHT_KEYS", "Render", "Trial", "Trials"]
