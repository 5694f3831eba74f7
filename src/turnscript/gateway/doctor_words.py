"""Owns what the doctor asks about words: whose those of a model's prompts are, and what its server would write."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from turnscript.core.errors import TurnscriptError
from turnscript.detection.nearness import Example, difference, examples, nearness
from turnscript.formats.format import Format
from turnscript.gateway.doctor_findings import Check, Findings
from turnscript.gateway.doctor_probe import Patient
from turnscript.gateway.nearness import NOT_OWN, guessed

_SAY = "say `template` (or --template): a .jinja file, the model's folder or its GGUF file"
_ENOUGH = 8
"""So many prompts are asked for."""


async def words(patient: Patient) -> Check:
    """Return whether prompts have the model's own words, and whether its server would write the same."""
    found, model, format_ = Findings("words"), patient.served.model, patient.format
    if format_ is None:
        found.say("no prompt is written yet")
        return found.check
    template = format_.template
    if model.guess:
        found.warn(guessed(model), _SAY)
    if model.older:
        found.say(model.older)
    for note in model.notes:
        found.say(note)
    if template is None:
        found.say("the words are those of the format" if model.settled else NOT_OWN)
    else:
        near = nearness(format_)
        found.say(f"{model.why}; {template.sentence}")
        found.figures |= {"equal": near.equal, "asked": near.asked, "read_as": template.read_as}
        if near.differences:
            found.warn(f"{near}; {near.differences[0]}", "nothing needs to be done; answers may be a little worse")
        else:
            found.say(str(near))
        if not template.reads_calls:
            found.warn("calls of this model may stay text", "say `format`: the name of the table that reads its calls")
    await _beside_server(patient, format_, found)
    return found.check


async def _beside_server(patient: Patient, format_: Format, found: Findings) -> None:
    """Compare prompts with those that the server writes by its own means."""
    equal, asked, differences, now = 0, 0, list[str](), datetime.now()
    for example in examples()[:_ENOUGH]:
        written = await patient.upstream.written([_wire(one) for one in example.messages], example.tools)
        if written is None:
            continue
        asked += 1
        ours = _ours(format_, example, now)
        if ours == _unbegun(written, patient.facts.bos_token, ours):
            equal += 1
        else:
            differences.append(f"{example.shows}: {difference(written, ours)}")
    if not asked:
        return
    found.figures |= {"equal_to_server": equal, "asked_of_server": asked}
    said = f"prompts equal those that the server writes for chats: {equal} of {asked}"
    found.say(f"{said}; {differences[0]}" if differences else said)


def _ours(format_: Format, example: Example, now: datetime) -> str:
    try:
        return replace(format_, words=False).prompt(example.request, now=now).text
    except TurnscriptError as error:
        return f"({error})"


def _wire(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message as a chat API has it, with the arguments of calls as text."""
    calls = [
        call | {"function": call["function"] | {"arguments": json.dumps(call["function"]["arguments"])}}
        for call in message.get("tool_calls", ())
    ]
    return dict(message) | ({"tool_calls": calls} if calls else {})


def _unbegun(written: str, token: str | None, ours: str) -> str:
    """Return a prompt without the token that servers put before it, where ours leaves that to them."""
    return written.removeprefix(token) if token and not ours.startswith(token) else written
