"""Owns asking for answers that are made apart from their clients, and looking at how far they are."""

from __future__ import annotations

import re
from typing import Any

import httpx2
import pytest

from tests.gateway.scripted import STREAM, Script, chunk, event
from tests.gateway.stage import APIS, Stage, answer, named, piece
from turnscript.apis.api import Api

STORING = [api for api in APIS if api.serving.stored]
EACH = pytest.mark.parametrize("api", STORING, ids=named)
BEGUN: Script = [STREAM, chunk(event(piece("Once upon a time")))]
ENDS = answer(" there was", " a king.")[1:]


def begun(stage: Stage, api: Api, **more: Any) -> str:
    """The id of an answer that is being made."""
    told = stage.ask(api, stream=False, background=True, **more)
    assert (200, "queued", []) == (told.status, told.json["status"], told.json["output"])
    return str(told.json["id"])


def look(stage: Stage, api: Api, id_: str) -> Any:
    return stage.client.get(f"{api.endpoint}/{id_}").json()


def until_over(stage: Stage, api: Api, id_: str) -> Any:
    stage.until(lambda: look(stage, api, id_)["status"] not in ("queued", "in_progress"))
    return look(stage, api, id_)


def events_of(body: bytes) -> list[Any]:
    """The events of a stream, as data."""
    found = re.findall(rb"^data: (.*)$", body, re.MULTILINE)
    return [httpx2.Response(200, content=one).json() for one in found]
