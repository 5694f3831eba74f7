"""Owns holding a model to a grammar: for which answers one is sent, and what is done where a server does not take it.

A grammar is sent to servers of a kind that is known to take its notation, and to no others: some die of one. It is for
answers that can be nothing else than calls, and for answers in JSON; a model that may write a text is left free. Where
a server holds more of an answer's schema than a grammar does, it is sent the schema itself. What a schema demands and
neither tells is checked once the answer is there, as for every other server.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from turnscript.backends.backend import Backend, Completion, Facts
from turnscript.core.conversation import Request
from turnscript.core.errors import TurnscriptError, UpstreamError
from turnscript.core.json_text import Json
from turnscript.core.losses import Loss
from turnscript.engine.constraint import Constraint
from turnscript.engine.escape import tags_in
from turnscript.engine.prompt import Prompt
from turnscript.gateway.config import Model
from turnscript.gateway.forcing import NOT_ENFORCED
from turnscript.grammar.nodes import Ending, Literal, children
from turnscript.grammar.notations import NOTATIONS
from turnscript.grammar.rest import behind

OWN_MEMBERS = frozenset({"grammar", "bnf_schema", "json_schema", "structured_outputs", "ebnf"})
"""Members with which a configuration constrains a server itself; where it does, or drops one, nothing is added."""
_LARGEST = 400_000
"""Characters of a grammar: servers compile it for each answer."""
_REFUSED = frozenset({400, 422})
"""How servers refuse a grammar: llama.cpp with 400, others as a member that they cannot read."""
_NO_ROOM = ("context", "too long", "too large")


class Held(Struct, frozen=True):
    """The grammar that an answer is held to. `owner`: whose server it is, where that tells how to send it. `schema`:
    what the server is sent instead, as long as nothing is written.
    """

    constraint: Constraint
    owner: str | None = None
    schema: Json | None = None

    def ask(self, ask: Completion, generated: str = "") -> Completion:
        """The same, held to the grammar where so much is written already: to what is left of it, or to nothing."""
        told = self.constraint
        if not generated and self.schema is not None:
            return replace(ask, grammar=None, schema=self.schema)
        if not generated:
            return replace(ask, grammar=told.text, schema=None, owner=self.owner)
        rest = behind(told.rules, generated)
        if rest is None:
            return replace(ask, grammar=None, schema=None)
        return replace(ask, grammar=NOTATIONS[told.notation](rest), schema=None, owner=self.owner)


def wants(request: Request) -> bool:
    """Whether an answer is anything else than free: one look, because it is taken for every request."""
    choice, shape = request.settings.tool_choice, request.settings.response_format
    if choice is not None and (choice.mode in ("required", "named") or (choice.mode == "allowed" and choice.required)):
        return True
    return shape is not None and shape.type in ("json_object", "json_schema")


def held(prompt: Prompt, servers: Iterable[tuple[Backend, Facts]], model: Model, losses: list[Loss]) -> Held | None:
    """What the answer behind a prompt is held to; None for one that is free, or cannot be held to anything.

    With a grammar, what was lost because nothing holds the answer to its shape is no loss any more.
    """
    if not wants(prompt.request):
        return None
    servers = list(servers)
    notation, owner = _notation(servers, model)
    if not notation:
        return None
    try:
        found = prompt.grammar(notation)
    except TurnscriptError:  # no grammar tells it; what else is wrong with the request, others say
        return None
    if found is None or found.lazy or len(found.text) > _LARGEST or (owner is not None and _has_tags(found)):
        return None
    schema, left = _passed_on(prompt, found, servers)
    at = next((index for index, loss in enumerate(losses) if loss.detail == NOT_ENFORCED), None)
    if at is not None:
        losses[at : at + 1] = _left_over(losses[at].path, left)
    return Held(found, owner, schema)


def _passed_on(
    prompt: Prompt, found: Constraint, servers: Sequence[tuple[Backend, Facts]]
) -> tuple[Json | None, Sequence[Loss]]:
    """Return the schema of the answer, if its servers hold more of it than the grammar does, and what is lost."""
    shape = prompt.request.settings.response_format
    if not found.bare or shape is None or shape.schema is None or len({type(backend) for backend, _ in servers}) != 1:
        return None, found.losses
    left = servers[0][0].left_of(shape.schema, found.losses)
    return (None, found.losses) if left is None else (shape.schema, left)


def takes_grammars(servers: Iterable[tuple[Backend, Facts]], model: Model) -> bool:
    """Whether the servers of a model take grammars, as far as is known of them now."""
    return bool(_notation(servers, model)[0])


def is_refused(error: UpstreamError, held: Held | None, generated: str) -> bool:
    """Whether a server may have refused the grammar, before it has written anything by it."""
    said = f"{error} {error.body}".lower()
    return (
        held is not None
        and not generated
        and ("grammar" in said or (error.upstream in _REFUSED and not any(word in said for word in _NO_ROOM)))
    )


def without(held: Held, request: Request, error: UpstreamError) -> tuple[Held | None, list[Loss]]:
    """Return what an answer is held to where a server refused what it was to be held to, and what is lost by that."""
    field = "tool_choice" if request.settings.response_format is None else "response_format"
    path = request.paths.get(field, f"$.{field}")
    if held.schema is not None:
        return replace(held, schema=None), _left_over(path, held.constraint.losses)
    detail = f"the model server refused the grammar ({str(error)[:200]}), and was asked without it"
    return None, [Loss(path, "approximated", detail)]


def _notation(servers: Iterable[tuple[Backend, Facts]], model: Model) -> tuple[str, str | None]:
    """The first notation that every server of a model takes, none if empty, and whose they are if that matters."""
    if model.grammar == "off":
        return "", None
    common: tuple[str, ...] | None = None
    owners: set[str | None] = set()
    for backend, facts in servers:
        own = OWN_MEMBERS & (backend.extra.keys() | backend.drop)
        if own or backend.extra.get("ignore_eos"):  # which leaves a model nothing to write behind the end
            return "", None
        taken = backend.grammars or backend.owned.get(facts.owner or "", ())
        owners.add(None if backend.grammars else facts.owner)
        common = tuple(one for one in taken if one in NOTATIONS and (common is None or one in common))
    return (common[0], owners.pop()) if common and len(owners) == 1 else ("", None)


def _has_tags(found: Constraint) -> bool:
    """Whether a literal has a tag, which may be a token of its own. xgrammar lets a model write none of these, so it
    would have to spell it, which it has never seen."""
    waiting = [found.rules.start, *found.rules.rules.values()]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Literal | Ending) and tags_in(node.text):
            return True
        waiting += children(node)
    return False


def _left_over(path: str, losses: Sequence[Loss]) -> list[Loss]:
    """What of the shape is left to the check of the answer."""
    told = [loss for loss in losses if loss.path.startswith("$.schema")]
    if not told:
        return []
    place = told[0].path.removeprefix("$.schema").lstrip(".") or "the schema"
    more = f" and {len(told) - 1} more" if len(told) > 1 else ""
    return [Loss(path, "approximated", f"no grammar tells {place}{more}: the answer is checked when it is complete")]
