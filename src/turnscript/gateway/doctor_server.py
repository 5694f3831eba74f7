"""Owns what the doctor asks first: whether a server answers, what it is, whether it streams, stops and keeps limits."""

from __future__ import annotations

from urllib.parse import urlsplit

from turnscript.apis.serving import ModelCard
from turnscript.backends.backend import Facts
from turnscript.core.error_kinds import fault_of
from turnscript.core.errors import UnknownName, UpstreamError
from turnscript.core.events import PartDelta
from turnscript.core.presets import words_of
from turnscript.detection import detect_told
from turnscript.engine.scanner import TextParser
from turnscript.formats.format import Format
from turnscript.gateway.doctor_findings import LOG, Check, Findings
from turnscript.gateway.doctor_probe import COUNTING, OTHER, Heard, Patient
from turnscript.gateway.generation import LENGTH
from turnscript.gateway.kinds import AUTO
from turnscript.gateway.states import shown

SAMPLE = 48
"""Tokens of the answer that the checks compare with."""
_LONGEST_CONTEXT = 300_000
"""A context that is longer than this many tokens is not filled to see what happens."""
_BUFFERED = 0.8
"""The share of an answer's time that may pass before its first text, where nothing holds it back."""
_SEVERAL = 8
_NOTICEABLE = 0.3
"""Seconds that somebody who waits would notice."""
_CUT = "\ufffd"
_DONE = b"[DONE]"
_PROXY = (
    "switch off buffering between here and the model (nginx: `proxy_buffering off`), and the server's own option to "
    "send texts late"
)


# Who it is.


async def reachable(patient: Patient) -> Check:
    """Whether it answers, and which kind of server it is taken for."""
    found, upstream = Findings("reachable"), patient.upstream
    trouble = await upstream.trouble()
    if trouble is not None:
        found.failed(trouble)
        return found.check
    patient.facts = await upstream.facts()
    if upstream.wants_key:
        found.failed(UpstreamError(f"{upstream.url} answers that it wants a key, or another one", upstream=401))
        return found.check
    title, why = upstream.backend.title, _why(patient)
    found.say(f"{upstream.url} answers; it is taken for {title} {why}")
    found.figures = {"kind": upstream.backend.name, "why": why}
    return found.check


def _why(patient: Patient) -> str:
    model, backend = patient.served.model, patient.upstream.backend
    if model.kind != AUTO:
        return "as configured"
    if urlsplit(patient.upstream.url).path.rstrip("/"):
        return "because of the path in its URL"
    if patient.facts == Facts() and backend.generic:
        return "because it tells nothing of itself"
    return "because it tells of itself as those do"


async def about(patient: Patient) -> Check:
    """What it tells of itself, and the format of its prompts."""
    found, facts, model = Findings("about"), patient.facts, patient.served.model
    found.say(f"model {facts.model or model.upstream_model or 'without a name'}")
    if facts.owner == ModelCard(id="").owner:
        found.fault(
            "this is a gateway as turnscript serves it, and no model server", "say the URL of the server behind it"
        )
    if patient.context is None:
        found.warn(
            "nobody knows how long its context is, so a prompt that is too long is not refused in advance",
            "say `context` in the configuration",
        )
    else:
        found.say(f"a context of {patient.context} tokens")
    _look_at_trained(found, model.trained_context, patient.context)
    if model.sampling_values:
        found.say(f"samples with {words_of(model.sampling_values)}, where a request does not say")
    for sentence in patient.served.shortfalls:
        found.warn(sentence, "set `preset` and `sampling` as the server takes them, or name its member in `also`")
    if facts.slots is not None:
        found.say(f"{facts.slots} {'slot' if facts.slots == 1 else 'slots'}")
    found.figures = {"model": facts.model, "context": patient.context, "slots": facts.slots, "build": facts.build}
    _senses(facts, found)
    await _states(patient, found)
    format_ = patient.format
    if format_ is None:
        found.fault(
            "nothing tells which prompt format the model takes",
            "say --format NAME, or `format` in the configuration; `turnscript formats` lists them",
        )
        return found.check
    found.say(
        f"format {format_.name} ({model.why}{_told_besides(facts, format_.name, own=format_.template is not None)})"
    )
    found.figures["format"] = format_.name
    if model.fills:
        found.say(f"a text with a hole is written in the order {model.fills!r}")
        found.figures["fill_order"] = model.fills
    start = format_.seen.start
    ids = await patient.upstream.tokens(f"{start}Hi") if start else None
    if ids is not None and facts.adds_bos and ids[:1] == ids[1:2]:
        found.fault(
            f"it puts {start!r} before each prompt and so does the format: the model reads it twice",
            "leave out `first_token` for this model in the configuration",
        )
    elif facts.adds_bos and facts.bos_token:
        found.say(f"it puts {facts.bos_token!r} before each prompt")
    await _before(patient, format_, found)
    return found.check


def _senses(facts: Facts, found: Findings) -> None:
    """What its model takes beside text."""
    found.figures |= {"sees": facts.sees, "hears": facts.hears}
    senses = [what for what, has in (("sees pictures", facts.sees), ("hears sounds", facts.hears)) if has]
    if senses:
        found.say(f"it {' and '.join(senses)}")


async def _before(patient: Patient, format_: Format, found: Findings) -> None:
    """The tokens that stand before a prompt, whoever puts them there, and those that models of the format want."""
    served, upstream, wanted = patient.served, patient.upstream, list(format_.prepend_tokens)
    told, own = list(served.before), await upstream.tokens("")
    found.figures |= {"prepended": told == list(served.model.prepend_tokens) if served.model.prepend_tokens else None}
    if told:
        instead = f" in place of {own}" if own else ""
        found.say(f"tokens {told} stand before each prompt{instead}, as `prepend_tokens` says")
    elif not wanted:
        return
    elif upstream.backend.no_ids:
        found.say(f"tokens {wanted} are not needed before a prompt: {upstream.backend.no_ids}")
    elif own is not None and own[: len(wanted)] == wanted:
        found.say(f"it puts tokens {wanted} before each prompt, as models of {format_.name} want")
    else:
        unlike = "does not put" if own is not None else "does not tell whether it puts"
        found.say(
            f"it {unlike} tokens {wanted} before a prompt, which models of {format_.name} want where a server prepares "
            f"no state for them: `prepend_tokens = {wanted}` in the configuration puts them there"
        )


async def _states(patient: Patient, found: Findings) -> None:
    """The states that it has, and whether the one is among them from which the model is to begin."""
    upstream, wanted = patient.upstream, patient.served.model.state
    states = await upstream.listed.states() if upstream.backend.begins else None
    if states is not None:
        found.figures["states"] = [shown(state) for state in states]
    if states:
        found.say(f"states to begin from: {', '.join(map(shown, states))}")
    if wanted is None:
        return
    try:
        id_ = await upstream.listed.id_of(wanted)
    except UnknownName as error:
        found.fault(str(error), "correct `state` in the configuration, or load that state in the model server")
    else:
        found.say(f"answers begin from {id_}")


def _look_at_trained(found: Findings, trained: int | None, context: int | None) -> None:
    """Whether anybody would be warned of a conversation that is longer than what the model was trained with."""
    if trained is None:
        return
    if context is not None and trained >= context:
        found.warn(
            f"`trained_context` is {trained} and the context {context}, so nobody is warned before it is full",
            "correct the smaller one in the configuration",
        )
    else:
        found.say(f"trained with {trained} tokens, beyond which the gateway warns")


def _told_besides(facts: Facts, format_: str, *, own: bool = False) -> str:
    """What the server tells of the model, if that is another format."""
    if own:
        return ""
    told = detect_told((facts.model or "", facts.root or ""), facts.template or "")
    if told.format in (None, format_):
        return ""
    return f"; its {'chat template' if told.evidence == 'template' else 'name'} tells {told.format}"


# Streams.


async def streams(patient: Patient) -> Check:
    """Whether an answer arrives while it is written, and how it ends. Raises UpstreamError if there is none."""
    found, heard = Findings("streams"), Heard()
    for prompt in (COUNTING, OTHER):
        patient.prompt = prompt
        heard = patient.sample = await patient.hear(patient.ask(prompt, SAMPLE))
        if len(heard.texts) > 1:
            break
    if _at_once(heard):  # or it had to load its model first
        heard = patient.sample = await patient.hear(patient.ask(patient.prompt, SAMPLE))
    if not heard.text:
        found.fault(
            "an answer has no text, whatever is asked",
            "check which model the server has loaded; where it hides all special tokens, let it show them",
        )
        return found.check
    speed = heard.speed
    found.figures = {
        "first_text_seconds": round(heard.first, 4),
        "tokens_per_second": None if speed is None else round(speed, 1),
        "tokens": heard.tokens,
        "finish_reason": heard.finish,
        "done": _DONE in patient.watched.tail,
        "usage": heard.usage is not None,
    }
    pace = "" if speed is None else f", then {speed:.0f} tokens a second"
    found.say(f"the first text after {heard.first * 1000:.0f} ms{pace}")
    _pieces(found, heard)
    _end(found, heard, done=_DONE in patient.watched.tail)
    return found.check


def _at_once(heard: Heard) -> bool:
    """Whether all of an answer came at its end."""
    ends = heard.finished or heard.took
    return heard.tokens >= _SEVERAL and ends >= _NOTICEABLE and heard.first > _BUFFERED * ends


def _pieces(found: Findings, heard: Heard) -> None:
    if _at_once(heard):
        found.fault(f"the answer does not stream: all of it comes at its end, after {heard.first:.1f} s", _PROXY)
    elif len(heard.texts) == 1 and heard.tokens >= _SEVERAL:
        found.warn(f"{heard.tokens} tokens came in one piece", _PROXY)
    elif len(heard.texts) > 1:
        found.say(f"{len(heard.texts)} pieces, one by one")


def _end(found: Findings, heard: Heard, *, done: bool) -> None:
    found.say(f"ends with a reason{' and [DONE]' if done else ''}")
    if heard.usage is None:
        found.warn(
            "it does not count tokens, so clients are told estimates",
            "use a version of the server that knows `stream_options.include_usage`, if there is one",
        )
    else:
        found.say("counts tokens")
    late = heard.took - (heard.finished or heard.took)
    if late > _NOTICEABLE:
        found.warn(
            f"an answer's end comes {late:.1f} s after its last text",
            "use a version of the server that ends its streams with [DONE], or closes them",
        )


# Stop strings.


async def stops(patient: Patient) -> Check:
    """What it does about a stop string, and that the gateway finds it whatever that is."""
    found, sample = Findings("stop strings"), patient.sample
    stop = stop_in(sample.texts)
    if stop is None:
        found.warn(
            "could not be tried: the model wrote nothing to stop at",
            "run this again once the model writes text; the gateway looks for stop strings itself",
        )
        return found.check
    expected = sample.text.partition(stop)[0]
    heard = await patient.hear(patient.ask(patient.prompt, SAMPLE, stops=[stop]))
    found.figures = {"stop": stop, "named": heard.stop == stop}
    if not heard.text.startswith(expected) and not expected.startswith(heard.text):
        found.warn(
            "could not be told: the same prompt is continued differently each time, at temperature 0",
            "let the server keep to `temperature` 0; else run this again while nobody else uses the server",
        )
        return found.check
    _stopped(found, heard, expected, stop, len(sample.text))
    if _cut_by_gateway(heard, stop) == expected:
        found.say("the gateway finds it")
    else:
        found.fault(
            f"where a text should end before {stop!r} it does not: the server changes what it holds back for stops",
            "update the model server; in the meantime its answers may end too soon",
        )
    return found.check


def stop_in(texts: list[str]) -> str | None:
    """A string that spans two pieces of a text and is nowhere before."""
    text = "".join(texts)
    ends = [len("".join(texts[:count])) for count in range(1, len(texts))] or list(range(len(text)))
    for size in (2, 1):
        for end in ends:
            start, found = end - size, text[end - size : end + size]
            whole = start > 0 and len(found) == 2 * size and found.strip() == found and _CUT not in found
            if whole and text.find(found) == start:
                return found
    return None


def _stopped(found: Findings, heard: Heard, expected: str, stop: str, whole: int) -> None:
    """What the server did. `whole`: the characters of the text if nothing stops it."""
    if heard.text == expected:
        found.figures["done"] = "cut"
        if heard.finish == LENGTH:
            found.fault(
                "an answer that ends at a stop string is said to be cut off at its limit",
                "update the model server: clients take these answers for incomplete",
            )
        else:
            found.say("the server stops there and cuts it off")
    elif heard.text.startswith(expected + stop) and len(heard.text) < whole:
        found.figures["done"] = "echoed"
        found.warn(
            "the server stops there but leaves it in the text",
            "nothing needs to be done: the gateway cuts it off (vLLM: leave out `include_stop_str_in_output`)",
        )
    elif heard.text.startswith(expected + stop):
        found.figures["done"] = "missed"
        found.warn(
            "the server goes on past it",
            "check that the server knows `stop`; the gateway ends such answers itself, a few tokens later",
        )
    else:
        found.figures["done"] = "lost"


def _cut_by_gateway(heard: Heard, stop: str) -> str:
    """The text as the gateway passes it on."""
    parser = TextParser([stop])
    events = [event for text in heard.texts for event in parser.feed(text)] + parser.close(heard.finish)
    return "".join([event.text for event in events if isinstance(event, PartDelta)])


# Limits.


async def limits(patient: Patient) -> Check:
    """Whether an answer has as many tokens as it may, says so, and a prompt that is too long is refused."""
    found, heard = Findings("limits"), Heard()
    sample = patient.sample
    for limit in (1, 5):
        if sample.finish != LENGTH and sample.tokens <= limit:
            found.say(f"more than {limit} tokens were not tried: the model writes no more")
            break
        heard = await patient.hear(patient.ask(patient.prompt, limit))
        written = heard.usage.output if heard.usage is not None and heard.usage.output else None
        if written is not None and written > limit:
            found.warn(
                f"{written} tokens were written where {limit} {'was' if limit == 1 else 'were'} asked for",
                "nothing needs to be done: the gateway stops a server that writes much more than it was asked for",
            )
        if heard.finish != LENGTH:
            found.fault(
                f"an answer that was cut off after {limit} tokens is said to have ended by itself ({heard.finish!r})",
                "update the model server: clients take such answers for complete",
            )
            break
        if len(heard.text) >= len(sample.text):
            found.fault(
                f"{limit} tokens were asked for, and the server does not keep to it",
                f"check that this kind of server is right: `kind` in the configuration; else {LOG}",
            )
            break
    else:
        found.say("keeps `max_tokens`, also of 1, and says so")
    await _overflow(patient, found)
    return found.check


async def _overflow(patient: Patient, found: Findings) -> None:
    context = patient.facts.context
    if context is None or context > _LONGEST_CONTEXT:
        found.say("a prompt that is too long was not tried")
        return
    ask = patient.ask(" one two three" * (context // 2), 1)
    try:
        await patient.hear(ask, lambda heard: bool(heard.texts))
    except UpstreamError as error:
        if fault_of(error).kind == "overflow":
            found.say("a prompt that is too long is refused clearly")
            found.figures["overflow"] = "refused"
            return
        said = str(error)
    else:
        said = "it is answered"
    found.figures["overflow"] = said
    found.warn(
        f"a prompt that is longer than the context is not clearly refused ({said})",
        f"set `context = {context}` in the configuration, so that the gateway refuses it",
    )


# Characters.

_CHARACTERS = "é字👍🏽 naïve Ж"
_LIKE = "👍é字Ж 👍é字Ж 👍é字Ж 👍é字Ж 👍é字Ж 👍é"


async def characters(patient: Patient) -> Check:
    """Whether characters of several bytes arrive whole."""
    found = Findings("UTF-8")
    remedy = "update the model server, or switch off what decodes each token alone"
    if patient.obeys_grammars:
        ask = patient.ask("Say it:", 4 * len(_CHARACTERS) + 4, grammar=f'root ::= "{_CHARACTERS}" [a-z]*')
        heard = await patient.hear(ask)
        if heard.text.startswith(_CHARACTERS):
            found.say("characters that are cut between tokens arrive whole")
        else:
            found.fault(f"{_CHARACTERS!r} arrives as {heard.text!r}", remedy)
        return found.check
    ask = patient.ask(_LIKE, 24)
    heard, whole = await patient.hear(ask), await patient.whole(ask)
    if _CUT in heard.text and _CUT not in whole.text:
        found.fault("characters that are cut between tokens are broken in a stream, and not in a whole answer", remedy)
    elif _CUT in heard.text:
        found.warn(
            "there are broken characters: either the model wrote them, or the server decodes each token alone",
            "ask for some text with emoji; if they are broken there too, update the model server",
        )
    elif heard.text.isascii():
        found.say("nothing is broken (the model wrote no character that could be)")
    else:
        found.say("characters that are cut between tokens arrive whole")
    return found.check
