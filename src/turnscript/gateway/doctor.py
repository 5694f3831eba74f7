"""Owns looking at a model server as the gateway uses it: which checks there are, in which order, and what stops them.

Each check is a function from a `Patient` to a `Check`, a value; who shows them is told as soon as each is there. The
server is asked one thing at a time but for the check of that, and every answer is left at once when it has told enough.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from time import time
from typing import Protocol

from msgspec.structs import replace

from turnscript.core.errors import TurnscriptError, UpstreamError
from turnscript.gateway import doctor_chat, doctor_load, doctor_server, doctor_suite, doctor_tokens, doctor_words
from turnscript.gateway.config import Config, Model
from turnscript.gateway.doctor_findings import Check, Findings
from turnscript.gateway.doctor_probe import PATIENCE, Patient
from turnscript.gateway.served import Served
from turnscript.gateway.transport import shown

Look = Callable[[Patient], Awaitable[Check]]

FIRST: dict[str, Look] = {
    "reachable": doctor_server.reachable,
    "about": doctor_server.about,
    "words": doctor_words.words,
    "streams": doctor_server.streams,
}
"""Where one of these finds nothing to go on with, the others are not made."""
REST: dict[str, Look] = {
    "stop strings": doctor_server.stops,
    "special tokens": doctor_tokens.special_tokens,
    "tokenizer": doctor_tokens.tokenizer,
    "UTF-8": doctor_server.characters,
    "limits": doctor_server.limits,
    "prefix reuse": doctor_load.prefix,
    "cancel": doctor_load.cancel,
    "parallel": doctor_load.parallel,
}
CHAT: dict[str, Look] = {
    "reachable": doctor_server.reachable,
    "about": doctor_chat.about,
    "answers": doctor_chat.answers,
}
"""All that is looked at where the server has a chat API: it makes its prompts itself, and reads what comes of them."""
SUITE: dict[str, Look] = {"tool calls": doctor_suite.tool_calls}

_START = "start the model server, wait until it has loaded its model, or correct its URL"


class Listener(Protocol):
    """Who is told."""

    def server(self, model: str, url: str) -> None:
        """A server is looked at now."""
        ...

    def begin(self, name: str) -> None:
        """A check begins."""
        ...

    def tell(self, check: Check) -> None:
        """And is done."""
        ...


async def examine(model: Model, config: Config, listener: Listener, *, quick: bool = False) -> None:
    """Look at all servers of a model. `quick`: without the suite. Raises InvalidInput for what cannot be a server."""
    served = Served(replace(model, timeouts=PATIENCE), config, int(time()))
    try:
        try:
            await served.ready()
        except UpstreamError as error:
            address = model.backend[0]
            listener.server(model.name, shown(address.target) if address.is_web else str(address))
            found = Findings("reachable")
            found.fault(str(error), _START)
            listener.tell(found.check)
            return
        for member in served.pool.members:
            listener.server(model.name, member.upstream.url)
            await _look_at(Patient(served, member.upstream, config), listener, quick=quick)
    finally:
        await served.close()


async def _look_at(patient: Patient, listener: Listener, *, quick: bool) -> None:
    relays = patient.served.model.relays
    for name, look in (CHAT if relays else FIRST).items():
        check = await _checked(name, look, patient, listener)
        if check.state == "fault" and (name == "reachable" or (name == "streams" and not patient.sample.text)):
            return
    if relays:
        return
    for name, look in REST.items():
        await _checked(name, look, patient, listener)
    if not quick and patient.format is not None:
        for name, look in SUITE.items():
            await _checked(name, look, patient, listener)


async def _checked(name: str, look: Look, patient: Patient, listener: Listener) -> Check:
    listener.begin(name)
    try:
        check = await look(patient)
    except TurnscriptError as error:
        check = _failed(name, error)
    listener.tell(check)
    return check


def _failed(name: str, error: TurnscriptError) -> Check:
    found = Findings(name)
    found.failed(error)
    return found.check
