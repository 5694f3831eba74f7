"""Owns what the doctor asks of a server's time: what it need not read again, whether it lets go, whether it shares."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from secrets import token_hex

from msgspec.structs import replace

from turnscript.backends.backend import Completion, SlotAction
from turnscript.core.errors import UpstreamError, UpstreamTimeout
from turnscript.gateway.doctor_findings import Check, Findings
from turnscript.gateway.doctor_probe import Heard, Patient
from turnscript.gateway.upstream import LONGEST_ERROR, whole

_STORY = " The keeper of the lighthouse wrote down every ship that passed, its name, its flag and the hour."
_CHARACTERS = 1600
_SHARED = 24
_MOST = 4
_LONG = 1500
_AT_ONCE = 1.0
"""Seconds after which a server that was left must have begun with the next request."""
_TELLING = 0.5
"""Seconds that something must take before its time tells anything."""
_FASTER = 0.5
_KNOWN = 0.9
_ALIKE = 0.7
"""The share of a prompt that is known at least where a model can go back to what two conversations begin with."""
_FILE = "turnscript-doctor"
_CACHE = (
    "switch on the server's prefix cache (vLLM: `--enable-prefix-caching`; SGLang: leave out `--disable-radix-cache`; "
    "llama.cpp: leave out `--no-cache-prompt`)"
)


def _pinned(patient: Patient, ask: Completion) -> Completion:
    """In one place of the server, if it has such."""
    return replace(ask, slot=_slot_of(patient)) if patient.upstream.backend.pins else ask


def _slot_of(patient: Patient) -> int:
    return (patient.facts.slots or 1) - 1


async def prefix(patient: Patient) -> Check:
    """Whether a prompt that begins as one before is read from there on."""
    found = Findings("prefix reuse")
    length = min(_CHARACTERS, (patient.context or 2 * _CHARACTERS) // 2)
    text = (f"Diary {token_hex(8)}." + _STORY * (length // len(_STORY) + 1))[:length]
    turns: list[Heard] = []
    prompt = text
    for more in ("", "", " And then?"):
        prompt = text + turns[0].text + more if more else text
        turns.append(await patient.hear(_pinned(patient, patient.ask(prompt, 4))))
    cached = [turn.usage.cached if turn.usage is not None else 0 for turn in turns]
    first, again, longer = (turn.first for turn in turns)
    read = turns[2].usage.input if turns[2].usage is not None else None
    found.figures = {
        "cached": " ".join(map(str, cached)),
        "prompt_tokens": read,
        "seconds": f"{first:.3f} {again:.3f} {longer:.3f}",
    }
    if cached[2] > 0:
        found.say(f"of {read} tokens, {cached[2]} were there already")
    elif cached[1] > 0:
        found.warn("a prompt is known when it comes again, but not when it goes on", _CACHE)
    elif first < _TELLING / 5:
        found.say("it tells of no cache, and reads too fast for it to matter")
    elif longer < _FASTER * first:
        found.say(
            f"it tells of no cache, but a prompt that goes on is begun in {longer:.2f} s instead of {first:.2f} s"
        )
    else:
        found.warn("each turn of a conversation is read from its beginning", _CACHE)
    _slot(patient, turns[2], found)
    if patient.upstream.backend.pins and cached[2] > 0:
        await _return(patient, text, f"{prompt}{turns[2].text} Then?", found)
    return found.check


async def _return(patient: Patient, text: str, prompt: str, found: Findings) -> None:
    """Whether a conversation goes on that has lost its slot to another one, which begins as it does."""
    keeps = patient.served.model.saved_slots > 0
    if keeps and not await _filed(patient, "save", found):
        return
    await patient.hear(_pinned(patient, patient.ask(f"{text[: len(text) * 3 // 4]} Elsewhere:", 1)))
    if keeps and not await _filed(patient, "restore", found):
        return
    usage = (await patient.hear(_pinned(patient, patient.ask(prompt, 1)))).usage
    if usage is None:
        return
    found.figures["cached_after_another"] = usage.cached
    if usage.cached >= _KNOWN * usage.input:
        found.say("it is known again after another one was in its slot")
    elif keeps:
        found.warn(
            "a slot that was saved is put back, and its conversation is read from its beginning nevertheless",
            "use a version of llama.cpp that saves the checkpoints of a slot with it, and no `--ctx-checkpoints 0`",
        )
    elif usage.cached >= _ALIKE * usage.input:
        found.say("another one in its slot costs it what they do not share")
    else:
        found.say(
            f"another one in its slot costs it {usage.input - usage.cached} of {usage.input} tokens, because the model "
            "cannot go back: with `--parallel 16` there are slots for more conversations, and `slots` of the model "
            "says how many are answered at once; or set `saved_slots`"
        )


async def _filed(patient: Patient, action: SlotAction, found: Findings) -> bool:
    """Have the slot of the checks saved or put back. Returns whether it was."""
    upstream = patient.upstream
    async with asyncio.timeout(upstream.timeouts.total):
        reply = await upstream.transport.send(upstream.backend.slot_call(action, _slot_of(patient), _FILE))
        try:
            body = await whole(reply, LONGEST_ERROR)
        finally:
            reply.close()
    if reply.status < 300:
        return True
    said = upstream.backend.read_error(reply.status, upstream.mask.body(body))
    found.fault(
        f"a slot is not {'saved' if action == 'save' else 'put back'}: {said}",
        "start llama.cpp with `--slot-save-path FOLDER`, or leave out `saved_slots`",
    )
    return False


def _slot(patient: Patient, heard: Heard, found: Findings) -> None:
    if not patient.upstream.backend.pins:
        return
    asked = _slot_of(patient)
    if heard.slot == asked:
        found.say("a conversation keeps its slot")
    elif heard.slot is not None:
        found.warn(
            f"slot {asked} was asked for, and slot {heard.slot} answered",
            "let nobody else use the server while this runs; else conversations push each other out of their slots",
        )


async def cancel(patient: Patient) -> Check:
    """Whether a server stops writing when nobody listens any more."""
    found = Findings("cancel")
    limit = min(_LONG, (patient.context or 2 * _LONG) - 200)
    long = _pinned(patient, patient.ask(patient.prompt, max(limit, 1)))
    heard = await patient.hear(long, lambda so_far: len(so_far.texts) >= 2)
    speed = patient.sample.speed or 0.0
    left = (limit - heard.tokens) / speed if speed and heard.left else 0.0
    try:
        waited = (await patient.hear(_pinned(patient, patient.ask(patient.prompt, 1)))).first
    except UpstreamTimeout as error:
        waited = patient.upstream.timeouts.first_byte
        found.say(str(error))
    usual = patient.sample.first
    found.figures = {"next_began_seconds": round(waited, 3), "usual_seconds": round(usual, 3)}
    if waited <= usual + _AT_ONCE:
        fast = "; it writes too fast to tell more" if left < _TELLING else ""
        found.say(f"after an answer was left, the next one began within {waited * 1000:.0f} ms{fast}")
    else:
        found.fault(
            f"an answer was left, and the next one had to wait for {waited:.1f} s: the server goes on for nobody",
            "update the model server, or let the proxy before it close connections that its client has closed",
        )
    return found.check


async def parallel(patient: Patient) -> Check:
    """Whether several requests are answered at a time."""
    found = Findings("parallel")
    count = min(max(patient.facts.slots or 2, 2), _MOST)
    asks = [patient.ask(f"{number}. {patient.prompt}", _SHARED) for number in range(count)]
    heard = await asyncio.gather(*map(patient.hear, asks), return_exceptions=True)
    for one in heard:
        if isinstance(one, BaseException) and not isinstance(one, UpstreamError):
            raise one
    refused = [one for one in heard if isinstance(one, UpstreamError)]
    answered = sorted((one for one in heard if isinstance(one, Heard)), key=lambda one: one.first)
    found.figures = {"asked": count, "answered": len(answered)}
    if refused:
        found.fault(
            f"{len(refused)} of {count} requests at a time failed: {refused[0]}",
            f"set `backend_running = {max(len(answered), 1)}` under [limits] in the configuration: others wait then",
        )
        return found.check
    took = max(one.took for one in answered)
    serial = all(later.first >= earlier.last for earlier, later in pairwise(answered))
    found.figures["seconds"] = round(took, 3)
    if serial and took >= _TELLING:
        found.warn(
            f"{count} requests at a time are answered one after another",
            "give the server more slots (llama.cpp: `--parallel`), or let clients wait: `backend_running = 1`",
        )
    else:
        found.say(f"{count} requests at a time are answered in {took:.2f} s")
    return found.check
