"""Owns conversations that are longer than what a model was trained with: nobody refuses them, and everybody is told.

A recurrent model has no context that could be full: it reads on, and what it makes of it gets worse without a word.
"""

from __future__ import annotations

import logging
from collections import OrderedDict

from turnscript.gateway.headers import Told
from turnscript.gateway.logs import say
from turnscript.gateway.preparing import Prepared

_SESSIONS = 10_000


class Trained:
    """Warns of prompts that are longer than the model's setting `trained_context` says, in the log once a session."""

    def __init__(self, sessions: int = _SESSIONS) -> None:
        self._most = sessions
        self._warned: OrderedDict[str, None] = OrderedDict()

    def warn(self, request_id: str, prepared: Prepared, told: Told) -> None:
        """Say so of a prompt that is too long for it, in what its answer tells of itself and in the log."""
        served, tokens = prepared.served, prepared.tokens
        trained = served.model.trained_context
        if trained is None or tokens <= trained:
            return
        told.trained = f"{tokens}/{trained}"
        session = prepared.session.key
        known = session in self._warned
        self._warned[session] = None
        self._warned.move_to_end(session)
        while len(self._warned) > self._most:
            self._warned.popitem(last=False)
        if not known:
            say(
                logging.WARNING,
                "longer than trained",
                request=request_id,
                model=served.name,
                session=session,
                tokens=tokens,
                trained=trained,
            )


def warnings(told: Told) -> list[str]:
    """What the report of an answer says of it."""
    if not told.trained:
        return []
    tokens, _, trained = told.trained.partition("/")
    return [f"the prompt has about {tokens} tokens, and the model was trained with {trained}: it may answer worse"]
