"""Owns holding a model to a grammar: for which answers one is sent, and what is done where a server does not take it.

A grammar is sent to servers of a kind that is known to take its notation, and to no others: some die of one. It is for
answers that can be nothing else than calls, and for answers in JSON; a model that may write a text is left free. What a
schema demands and no grammar tells is checked once the answer is there, as for every other server.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from turnscript.backend import Backend, Completion
from turnscript.conversation import Request
from turnscript.engine.constraint import Constraint
from turnscript.engine.prompt import Prompt
from turnscript.errors import Unsupported, UpstreamError
from turnscript.gateway.config import Model
from turnscript.gateway.forcing import NOT_ENFORCED
from turnscript.grammar.notations import NOTATIONS
from turnscript.grammar.rest import behind
from turnscript.losses import Loss

OWN_MEMBERS = frozenset({"grammar", "bnf_schema", "json_schema"})
"""Members with which a configuration constrains a server itself; where it does, or drops one, nothing is added."""
_LARGEST = 400_000
"""Characters of a grammar: servers compile it for each answer."""
_REFUSED = frozenset({400, 422})
"""How servers refuse a grammar: llama.cpp with 400, others as a member that they cannot read."""
_NO_ROOM = ("context", "too long", "too large")


def constraint_of(
    prompt: Prompt, request: Request, backends: Iterable[Backend], model: Model, losses: list[Loss]
) -> Constraint | None:
    """The grammar for the answer behind a prompt; None for one that is free, or cannot be held to one.

    With one, what was lost because nothing holds the answer to its shape is no loss any more.
    """
    notation = _notation(backends)
    if notation is None or model.grammar == "off" or not _wants(request):
        return None
    try:
        found = prompt.grammar(notation)
    except Unsupported:
        return None
    if found is None or found.lazy or len(found.text) > _LARGEST:
        return None
    at = next((index for index, loss in enumerate(losses) if loss.detail == NOT_ENFORCED), None)
    if at is not None:
        losses[at : at + 1] = _left_over(losses[at].path, found)
    return found


def ask_by(ask: Completion, constraint: Constraint | None, generated: str = "") -> Completion:
    """The same, held to a grammar where so much is written already: what is left of it, or nothing."""
    if constraint is None or not generated:
        return ask if constraint is None else replace(ask, grammar=constraint.text)
    rest = behind(constraint.rules, generated)
    return replace(ask, grammar=None if rest is None else NOTATIONS[constraint.notation](rest))


def is_refused(error: UpstreamError, constraint: Constraint | None, generated: str) -> bool:
    """Whether a server may have refused the grammar, before it has written anything by it."""
    said = f"{error} {error.body}".lower()
    return (
        constraint is not None
        and not generated
        and ("grammar" in said or (error.upstream in _REFUSED and not any(word in said for word in _NO_ROOM)))
    )


def refused(request: Request, error: UpstreamError) -> Loss:
    """The loss where an answer was not held to its grammar after all."""
    field = "tool_choice" if request.settings.response_format is None else "response_format"
    detail = f"the model server refused the grammar ({str(error)[:200]}), and was asked without it"
    return Loss(request.paths.get(field, f"$.{field}"), "approximated", detail)


def _wants(request: Request) -> bool:
    """Whether an answer is anything else than free: one look, because it is taken for every request."""
    settings = request.settings
    choice = settings.tool_choice
    return settings.response_format is not None or (choice is not None and choice.mode not in ("auto", "none"))


def _notation(backends: Iterable[Backend]) -> str | None:
    """The first notation that every server of a model takes."""
    common: list[str] | None = None
    for backend in backends:
        own = OWN_MEMBERS & (backend.extra.keys() | backend.drop)
        if own or backend.extra.get("ignore_eos"):  # which leaves a model nothing to write behind the end
            return None
        taken = [one for one in backend.grammars if one in NOTATIONS]
        common = taken if common is None else [one for one in common if one in taken]
    return common[0] if common else None


def _left_over(path: str, found: Constraint) -> list[Loss]:
    """What of the shape is left to the check of the answer."""
    told = [loss for loss in found.losses if loss.path.startswith("$.schema")]
    if not told:
        return []
    place = told[0].path.removeprefix("$.schema").lstrip(".") or "the schema"
    more = f" and {len(told) - 1} more" if len(told) > 1 else ""
    return [Loss(path, "approximated", f"no grammar tells {place}{more}: the answer is checked when it is complete")]
