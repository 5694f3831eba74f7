"""Owns what the doctor asks of a server's tokens: who counts them, which tags are tokens, which of them one sees."""

from __future__ import annotations

from msgspec import Struct

from turnscript.core.conversation import Request, Text, User
from turnscript.core.errors import UpstreamError, UpstreamTimeout
from turnscript.formats.format import Format
from turnscript.gateway.doctor_findings import Check, Findings
from turnscript.gateway.doctor_probe import Patient
from turnscript.gateway.generation import LENGTH

_FORCED = 4
"""So many control tokens are tried."""
_MOST = 64
"""So many control tokens of a tokenizer are asked about that no tag of the format is."""
_STRONGLY = 100.0
_BLANK = "\n\n"
_FORCES = "logit_bias"


class Tag(Struct, frozen=True):
    """A literal, its tokens in a prompt, and whether it is a control token: one that text is only read as."""

    text: str
    ids: list[int]
    control: bool

    @property
    def single(self) -> bool:
        """Whether it is a token of its own."""
        return len(self.ids) == 1


async def _tags(patient: Patient, format_: Format) -> list[Tag] | None:
    """The literals that matter, the format's stop strings first; None if the server has no tokenizer to ask."""
    facts = patient.facts
    control = patient.served.model.control[:_MOST]
    texts = [*format_.stops, *format_.special_tokens, *control, facts.end_token or "", facts.bos_token or ""]
    found = []
    for text in dict.fromkeys(filter(None, texts)):
        ids, plain = await patient.tokens(text), await patient.upstream.tokens(text, plain=True)
        if ids is None or plain is None:
            return None
        found.append(Tag(text, ids, len(ids) == 1 and ids != plain))
    return found


async def tokenizer(patient: Patient) -> Check:
    """Whether tokens can be counted, which tags are tokens of their own, and whether users can forge one."""
    found = Findings("tokenizer")
    counted = await patient.upstream.count(patient.prompt)
    found.figures = {"exact": counted is not None}
    if counted is None:
        found.warn(
            "there is no tokenizer to ask: token counts are estimates",
            "nothing needs to be done; set `context` a little lower than it is if prompts are refused",
        )
        return found.check
    used = patient.sample.usage
    if used is not None and used.input and used.input != counted:
        found.warn(
            f"its tokenizer counts {counted} tokens where its answers count {used.input}",
            "check that the server has one model only; counts before an answer are a little off",
        )
    else:
        found.say("counts are exact")
    format_ = patient.format
    tags = await _tags(patient, format_) if format_ is not None else None
    if format_ is not None and tags is not None:
        own = set(format_.special_tokens)
        single = [tag.text for tag in tags if tag.single and tag.text in own]
        found.say(f"{len(single)} of the format's {len(own)} tags are tokens of their own")
        found.figures |= {"tags": len(own), "tags_that_are_tokens": len(single)}
        await _forgery(patient, format_, tags, found)
    return found.check


async def _forgery(patient: Patient, format_: Format, tags: list[Tag], found: Findings) -> None:
    """Whether the text of a control token in what a user says becomes that token."""
    control = [tag for tag in tags if tag.control]
    usual = await patient.tokens(_prompt(format_, "one two"))
    forged = []
    for tag in control:
        ids = await patient.tokens(_prompt(format_, f"one {tag.text} two"))
        if ids is not None and usual is not None and ids.count(tag.ids[0]) > usual.count(tag.ids[0]):
            forged.append(tag.text)
    found.figures["forged"] = forged
    if forged:
        found.warn(
            f"what a user writes can become a control token: {_listed(forged)} is not protected by the format",
            "use the format that the model was trained on: it protects its own tags",
        )
    elif control:
        found.say("what a user writes cannot become a control token")


def _prompt(format_: Format, words: str) -> str:
    request = Request()
    request.conversation.items.append(User(content=[Text(text=words)]))
    return format_.prompt(request).text


async def special_tokens(patient: Patient) -> Check:
    """Whether the format's tags are in the text where the model writes them, and what ends its turns."""
    found, format_ = Findings("special tokens"), patient.format
    tags = await _tags(patient, format_) if format_ is not None else None
    if format_ is None or tags is None:
        found.say(
            "cannot be looked at from outside; if tool calls below are not found, let the server show its tags (vLLM, "
            "SGLang: `extra = { skip_special_tokens = false }` in the configuration)"
        )
        return found.check
    own = {*format_.stops, *format_.special_tokens}
    control = [tag for tag in tags if tag.control and tag.text in own]
    found.figures = {"control": [tag.text for tag in control], "end_token": patient.facts.end_token}
    if not control:
        found.say("no tag of the format is a control token, so all of them are in the text")
    elif not patient.can(_FORCES):
        found.say(f"control tokens: {_listed([tag.text for tag in control])}; whether they are shown was not tried")
    else:
        await _visible(patient, format_, control, found)
    await _ends(patient, format_, control, found)
    return found.check


async def _visible(patient: Patient, format_: Format, control: list[Tag], found: Findings) -> None:
    """Let the model write some of them."""
    visible = [*patient.served.model.visible, *format_.special_tokens]
    hidden = [tag.text for tag in control[:_FORCED] if tag.text not in await _forced(patient, tag.ids[0], visible)]
    found.figures["hidden"] = hidden
    if hidden:
        found.fault(
            f"{_listed(hidden)} is not in the text where the model writes it, so calls and ends of turns are missed",
            "start the server so that it shows special tokens (llama.cpp: `--special`), or use a newer version of it",
        )
    else:
        shown = _listed([tag.text for tag in control])
        found.say(f"control tokens are shown as text where the gateway asks for them: {shown}")


async def _forced(patient: Patient, token: int, visible: list[str]) -> str:
    """What is in the text if the model writes nothing but this token."""
    sampling = {_FORCES: [[token, _STRONGLY]]}
    ask = patient.ask(patient.prompt, 2, endless=False, sampling=sampling, visible=visible)
    return (await patient.hear(ask)).text


async def _ends(patient: Patient, format_: Format, control: list[Tag], found: Findings) -> None:
    """What ends a turn. A file of a model may name the blank line: then nothing behind one is ever written."""
    may_end = await _may_end(patient)
    ending = [tag.text for tag in control if tag.text in format_.stops]
    found.figures["ends_ignored"] = not may_end
    if not may_end and ending:
        found.fault(
            f"the server does not let the model end: {_listed(ending)} is never written, and every answer runs on",
            "start the server without its option to ignore ends (llama.cpp: `--ignore-eos`)",
        )
    ids = await patient.upstream.tokens(_BLANK, plain=True)
    if ids is None or len(ids) != 1 or not patient.can(_FORCES):
        return
    sampling = {_FORCES: [[ids[0], _STRONGLY]]}
    heard = await patient.hear(patient.ask(patient.prompt, 3, endless=False, sampling=sampling))
    found.figures["blank_line_ends"] = ends = heard.finish != LENGTH and not heard.text.strip()
    if ends and may_end:
        found.warn(
            "the model's file says that a blank line ends its turn: every answer ends at its first one",
            "let it ignore ends (llama.cpp: `--ignore-eos`, or `extra = { ignore_eos = true }` in the configuration; "
            "the format's stop strings end an answer then), or start it with another token for it (`--override-kv "
            "tokenizer.ggml.eot_token_id=int:0`, or `eos_token_id`)",
        )
    elif ends:
        found.say("the model's file says that a blank line ends its turn, which the server ignores")


async def _may_end(patient: Patient) -> bool:
    """Whether the model's own end ends an answer. A server may be told to ignore it: then a grammar has no end."""
    if not patient.obeys_grammars:
        return True
    try:
        heard = await patient.hear(patient.ask("Say it:", 4, endless=False, grammar='root ::= "a"'))
    except UpstreamTimeout:
        raise
    except UpstreamError:
        return False
    return heard.finish != LENGTH


def _listed(texts: list[str]) -> str:
    return ", ".join(map(repr, texts))
