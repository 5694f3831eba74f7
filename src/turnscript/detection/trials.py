"""Owns trials: what a chat template writes for each probe, and the places in it where the answer begins and ends."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Protocol

import msgspec

from turnscript.detection.edges import beginning, tail
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
from turnscript.errors import TurnscriptError

THOUGHT_KEYS = ("reasoning_content", "thinking", "reasoning")
"""Members of a message under which templates look for its thought, the usual one first."""


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
        """Where the answer's turn begins, where nothing opens it."""
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

        Where a prompt opens or closes a thought that the history does not have, the answer is that of the history.
        """
        if self.continues and len(self.prompt) >= inside:
            return self.prompt[inside:], self.whole[len(self.prompt) :]
        return "", self.whole[inside:]

    @property
    def continues(self) -> bool:
        """Whether the whole begins with the prompt."""
        return self.whole.startswith(self.prompt)

    @property
    def ahead(self) -> str:
        """What stands between the last content and the answer in its prompt."""
        last = str(self.probe.before[-1]["content"])
        return self.prompt[self.prompt.rfind(last) + len(last) :] if last in self.prompt else ""

    def differs_from(self, other: Trial | None, word: str, instead: str) -> bool:
        """Whether another trial is more than this one with one word in place of another."""
        return other is None or self.whole.replace(word, instead) != other.whole

    def shown(self, start: int) -> tuple[bool, bool, int]:
        """Return whether thought and text stand behind a place, and how many of the calls."""
        region = self.whole[start:]
        calls = sum(call.name in region for call in self.probe.calls)
        return THOUGHT in region, bool(self.probe.text) and TEXT in region, calls


class Trials:
    """All that is tried with one template. `refused` says in the template's own words what it does not take."""

    def __init__(self, render: Render, source: str = "") -> None:
        self._render, self.source = render, source
        self.manner = Manner()
        self.refused: dict[str, str] = {}
        self._known: dict[str, Trial | None] = {}
        self._opens_always: bool | None = None
        self._tried(TEXT_ONLY, self.manner)
        self._find_manner()

    def of(self, probe: Probe) -> Trial | None:
        """Return what the template writes for a probe; None where it refuses."""
        if probe.shows not in self._known:
            self._known[probe.shows] = self._tried(probe, self.manner)
        return self._known[probe.shows]

    @cached_property
    def all(self) -> list[tuple[Probe, Trial | None]]:
        """Every probe with what was written."""
        return [(probe, self.of(probe)) for probe in PROBES]

    def written(self, messages: Sequence[dict[str, Any]], tools: bool = False, prompt: bool = False) -> str | None:
        """Return other messages as the template writes them, None where it refuses."""
        for offered in (tools, True):
            try:
                return self._render(messages, list(DEFINITIONS) if offered else None, prompt)
            except TurnscriptError:
                continue
        return None

    @cached_property
    def followed(self) -> str:
        """What stands between the text of an answer and the next question; empty where that cannot be seen."""
        messages = [*TEXT_ONLY.messages(Manner()), {"role": "user", "content": LATER}]
        text = self.written(messages) or ""
        at, end = text.rfind(TEXT), text.rfind(LATER)
        return text[at + len(TEXT) : end] if 0 <= at < end else ""

    @cached_property
    def ended(self) -> str:
        """What stands behind the text of an answer at the end of all."""
        trial = self.of(TEXT_ONLY)
        at = -1 if trial is None else trial.whole.rfind(TEXT)
        return "" if trial is None or at < 0 else trial.whole[at + len(TEXT) :]

    @cached_property
    def asked(self) -> str:
        """What stands before the first question of a conversation."""
        trial = self.of(TEXT_ONLY)
        return "" if trial is None or USER not in trial.whole else trial.whole[: trial.whole.find(USER)]

    @cached_property
    def takes(self) -> dict[str, bool]:
        """What the template has a place for: `system`, `thoughts`, `calls`, `several calls`, `results`, `tools`."""
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
        self.manner = msgspec.structs.replace(self.manner, thoughts="")

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
        except TurnscriptError as error:
            self.refused[probe.shows] = str(error)
            return None
        self.refused.pop(probe.shows, None)
        return Trial(probe, *self._without_opening(plain, prompt, whole))

    def _without_opening(self, plain: str, prompt: str, whole: str) -> tuple[str, str, str]:
        """Take away the opening of a next answer, which some templates write whether it is asked for or not."""
        opening = tail(plain, whole) if plain == prompt else ""
        if not opening.strip():
            return plain, prompt, whole
        if self._opens_always is None:
            self._opens_always = TEXT in whole and not self._ends_as_it_goes_on(whole)
        if not self._opens_always:
            return plain, prompt, whole
        return plain[: -len(opening)], prompt, whole[: -len(opening)]

    def _ends_as_it_goes_on(self, whole: str) -> bool:
        """Whether what ends a conversation stands there too where it goes on."""
        return self.followed.startswith(whole[whole.rfind(TEXT) + len(TEXT) :])


__all__ = ["OTHER", "THOUGHT_KEYS", "Render", "Trial", "Trials"]
