"""Owns the habits of formats that laws are about: how their prompts follow on each other."""

from collections.abc import Callable

import turnscript as ts
from turnscript.formats.format import Format


def keeps(format_: Format) -> bool:
    """Whether prompts show for ever what they have shown, and what a model has thought."""
    segments = [segment for turn in format_.document.turns for segment in turn.segments]
    hidden = any(one.until or (one.kind == "thinking" and not one.prompt) for one in segments)
    return not format_.document.generation.prefill and not hidden


def resumes(format_: Format) -> bool:
    """Whether an answer goes on in a prompt as it stands in later ones, with no line end or empty thought between."""
    asked: list[ts.Item] = [ts.User(content=[ts.Text(text="Hi")])]
    answered = [*asked, ts.Assistant(content=[ts.Text(text="Hello.")])]
    prompt = format_.prompt(ts.Request(conversation=ts.Conversation(items=asked)), thinking=False).text
    shown = str(format_.render(ts.Request(conversation=ts.Conversation(items=answered)), view="prompt").value)
    lead = " " if format_.document.flattened else ""  # which the model writes itself
    return shown.startswith((f"{prompt}Hello.", f"{prompt}{lead}Hello."))


HABITS: dict[str, Callable[[Format], bool]] = {"keeps": keeps, "resumes": resumes}
"""What a law may be about besides: how a format's prompts follow on each other."""
