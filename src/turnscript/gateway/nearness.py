"""Owns what people are told of the words of a model's prompts: whose they are, how near, and what is not understood."""

from __future__ import annotations

from turnscript.core.conversation import Request
from turnscript.core.losses import Loss
from turnscript.detection.nearness import Nearness, nearness
from turnscript.gateway.config import Model

NOT_OWN = "no chat template of this model is at hand: its prompts have the words of the format, not the model's own"


def wordlosses(model: Model, request: Request, *, thinks: bool = False) -> list[Loss]:
    """Return what is lost because of how a model is spoken to, for each of its answers. `thinks`: it is to think."""
    losses = []
    if model.older and thinks:
        asked = next((name for name in ("thinking", "effort") if getattr(request.settings, name) is not None), "model")
        losses.append(Loss(request.paths.get(asked, f"$.{asked}"), "approximated", model.older))
    if model.guess:
        losses.append(Loss("$.model", "approximated", guessed(model)))
    template = model.takes.template if model.takes is not None else None
    if template is not None and not template.reads_calls and request.tools:
        losses.append(Loss("$.tools", "approximated", f"calls of this model may stay text: {template.sentence}"))
    return losses


def guessed(model: Model) -> str:
    """Return the sentence that calls a format a guess."""
    name = model.takes.name if model.takes is not None else "nothing"
    return f"the format {name} is a guess ({model.why}): say `template` or `format` to be sure"


def unflagged(model: Model) -> list[str]:
    """Return a sentence where the settings name kinds of thought that the model cannot be asked for."""
    if model.takes is None or not model.thoughts:
        return []
    flags = model.takes.document.flags
    known = () if flags is None else tuple(flags.tags)
    unknown = [kind for kind in model.thoughts if kind not in known]
    has = f"it has {', '.join(known)}" if known else "it has none"
    return [f"thoughts: the format {model.takes.name} has no flag for {', '.join(unknown)}; {has}"] if unknown else []


def sentences(model: Model, near: Nearness | None = None) -> list[str]:
    """Return what people are told of a model's words when it is served, each a line. `near`: if that is known."""
    if model.takes is None:
        return list(model.notes)
    template = model.takes.template
    told = [guessed(model)] if model.guess else []
    told += [model.older] if model.older else []
    told += unflagged(model)
    if template is None:
        return [*told, *model.notes] if model.notes or model.settled else [*told, NOT_OWN]
    told += [model.why, template.sentence]
    if near is None:
        near = nearness(model.takes)
    told.append(str(near) + (f"; {near.differences[0]}" if near.differences else ""))
    if model.takes.history == "generated":
        told.append("turns of the model stay in its prompts as they were generated")
    return [*told, *model.notes]
