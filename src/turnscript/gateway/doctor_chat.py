"""Owns what the doctor asks of a server with a chat API: whether it lists the model, and one short answer."""

from __future__ import annotations

from time import monotonic

from turnscript.backends.backend import HttpCall
from turnscript.backends.shared.listed_models import read_models
from turnscript.core.conversation import Request, Text, User
from turnscript.gateway.doctor_findings import LOG, Check, Findings
from turnscript.gateway.doctor_probe import Patient
from turnscript.gateway.generation import Controls
from turnscript.gateway.relay import RelayedAnswer, asked_of

_SHORT = 64
_NAME = "say what the server calls its model: `upstream_model` in the configuration, `serve --upstream-model`"


async def about(patient: Patient) -> Check:
    """Whether it lists the model that it is asked for."""
    found, served = Findings("about"), patient.served
    body = await patient.upstream.told(HttpCall("GET", "/models"))
    listed = [model.id for model in read_models(body or b"{}") if model.id]
    name = served.model.upstream_model or served.facts.asked_as
    if name is None:
        told = f"it lists {len(listed)} models" if listed else "it lists no models"
        found.warn(f"{told}, so it is asked for whatever name a client says", _NAME)
    elif listed and name not in listed:
        found.warn(f"it is asked for the model {name}, which it does not list", _NAME)
    else:
        found.say(f"model {name}")
    for sentence in served.shortfalls:
        found.warn(sentence, "set `preset` and `sampling` as the server takes them, or name its member in `also`")
    found.figures = {"model": name, "listed": listed, "context": patient.context}
    return found.check


async def answers(patient: Patient) -> Check:
    """Whether it answers a short question, as a stream that comes to its end. Raises UpstreamError if not."""
    found, served, upstream = Findings("answers"), patient.served, patient.upstream
    request = Request()
    request.items.append(User(content=[Text(text="Say hello.")]))
    settings = request.settings
    settings.model = served.model.upstream_model or served.facts.asked_as or served.name
    settings.max_tokens, settings.stream = _SHORT, True
    answer, began, first = RelayedAnswer(Controls(), 0, served.estimate), monotonic(), 0.0
    ask, _ = asked_of(upstream.backend, request)
    async with upstream.open(ask) as pieces:
        async for some in pieces:
            answer.feed(some)
            first = first or monotonic() - began
    answer.close()
    response, usage = answer.response, answer.usage
    if not response.items:
        found.fault("the answer says nothing", LOG)
        return found.check
    found.say(f"the first of it after {first * 1000:.0f} ms; it ends with {response.finish_reason!r}")
    if answer.counted:
        found.say(f"counts tokens: {usage.input} and {usage.output}")
    else:
        found.warn("it does not count tokens, so clients are told estimates", "use a version of the server that does")
    found.figures = {"first_seconds": round(first, 4), "finish_reason": response.finish_reason, "usage": answer.counted}
    return found.check
