"""Owns counting the tokens of a request that is not sent: its prompt is made, and counted as an answer would count."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from turnscript.apis.api import Api
from turnscript.core.errors import TurnscriptError
from turnscript.gateway.headers import COUNTED
from turnscript.gateway.logs import say
from turnscript.gateway.service import CLIENT_GONE, Service
from turnscript.gateway.visit import ClientGone, Visit


class Count:
    """Counts for one API."""

    def __init__(self, service: Service, api: Api) -> None:
        self._service = service
        self._api = api

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        visit = Visit(self._api, scope, receive, send)
        service, count = self._service, self._api.serving.count
        assert count is not None
        try:
            caller = service.admit(visit.headers, counted=False)
            share = service.room.share(caller.tally)
            body = await visit.body(service.config.server, share)
            prepared = await service.prepare(visit, caller, body, fits=False)
            tokens, exact = await service.tokens(prepared)
            visit.told = prepared.told
            service.note_count(visit, prepared, tokens)
            visit.more_headers = [(COUNTED.encode(), b"exact" if exact else b"estimated")]
            await visit.answer(count(max(1, tokens)))
        except TurnscriptError as error:
            visit.error = error
            visit.settle()
            await visit.refuse(error)
        except ClientGone:
            visit.status = CLIENT_GONE
        except asyncio.CancelledError:
            if not visit.ended_by:
                raise
            visit.take_back()
            visit.status = CLIENT_GONE
            await visit.gone()
        finally:
            visit.settle()
            visit.release()
            visit.forget()
            say(logging.INFO, "counted", request=visit.request_id, path=visit.path, status=visit.status)
