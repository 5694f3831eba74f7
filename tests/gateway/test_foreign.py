"""Owns what other servers have left in a conversation: proofs, what only they can read, and changes in the middle.

A client may go on here with a conversation that it led elsewhere. Whatever cannot be read is kept where it is kept for
the client, stands in no prompt, and is one loss with its place; it is a refusal for nobody who did not ask for that.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import anthropic
import openai
import pytest

from tests.gateway.stage import APIS, Stage, Told, answer
from tests.sdks import anthropic_sdk, openai_sdk
from turnscript.gateway.headers import LOSSES, POLICY, REPORT

BLOB = "EmwKAhgBEgy3va3pzixLafPsn4aDFIT2XlxhcrqpPgAAAAABm"
BOTH = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])


class Left(NamedTuple):
    """What another server has left: in which member it stands, its place, and what a prompt shows of it."""

    member: str
    value: dict[str, Any]
    path: str
    shown: str | None = None


MESSAGES, INPUT = "$.messages[1].content[0]", "$.input[1]"
ITEM = {"type": "reasoning", "id": "rs_1", "encrypted_content": BLOB}
PROOFS = {
    "redacted": Left("messages", {"type": "redacted_thinking", "data": BLOB}, f"{MESSAGES}.data"),
    "signed": Left(
        "messages",
        {"type": "thinking", "thinking": "It rains.", "signature": BLOB},
        f"{MESSAGES}.signature",
        "It rains.",
    ),
    "omitted": Left("messages", {"type": "thinking", "thinking": "", "signature": BLOB}, f"{MESSAGES}.signature"),
    "encrypted": Left("input", ITEM | {"summary": []}, f"{INPUT}.encrypted_content"),
    "summary": Left(
        "input",
        ITEM | {"summary": [{"type": "summary_text", "text": "It rains."}], "content": None},
        f"{INPUT}.encrypted_content",
        "It rains.",
    ),
    "raw": Left(
        "input",
        ITEM | {"summary": [], "content": [{"type": "reasoning_text", "text": "It rains."}]},
        f"{INPUT}.encrypted_content",
        "It rains.",
    ),
}
OTHERS = {
    "compaction of Messages": Left(
        "messages", {"type": "compaction", "content": None, "encrypted_content": BLOB}, MESSAGES
    ),
    "compaction": Left("input", {"type": "compaction", "id": "cmp_1", "encrypted_content": BLOB}, INPUT),
    "trigger": Left("input", {"type": "compaction_trigger"}, INPUT),
    "form": Left("input", {"type": "configuration_update", "text": {"format": {"type": "text"}}}, INPUT),
}


def history(left: Left) -> dict[str, Any]:
    """A conversation in which it stands, as a body has it."""
    ask, again = ({"role": "user", "content": said} for said in ("Weather?", "And now?"))
    if left.member == "messages":
        before = {"role": "assistant", "content": [left.value, {"type": "text", "text": "Sunny."}]}
        return {"max_tokens": 50, "messages": [ask, before, again]}
    return {"input": [ask, left.value, {"role": "assistant", "content": "Sunny."}, again]}


def ask(stage: Stage, left: Left, *, stream: bool = False, policy: str = "report") -> Told:
    """What a client is told that goes on with it."""
    stage.play(answer("Still sunny."))
    wanted = "/v1/messages" if left.member == "messages" else "/v1/responses"
    api = next(api for api in APIS if api.endpoint == wanted)
    body = {"model": "m", "stream": stream, **history(left)}
    return stage.post(api, json.dumps(body).encode(), {POLICY: policy})


@BOTH
@pytest.mark.parametrize("name", PROOFS)
def test_a_proof_of_another_server_is_one_loss_and_in_no_prompt(stage: Stage, name: str, stream: bool) -> None:
    left = PROOFS[name]
    told = ask(stage, left, stream=stream)
    assert (200, "Still sunny.", "1") == (told.status, told.text, told.headers[LOSSES])
    report = stage.client.get(told.headers[REPORT]).json()
    assert [(left.path, "dropped")] == [(loss["path"], loss["kind"]) for loss in report["losses"]]
    [asked] = stage.asks[0]
    prompt = asked.json["prompt"]
    assert BLOB not in prompt
    assert "Sunny." in prompt
    assert (left.shown is not None) == ("THINK" in prompt), "a thought that says nothing is none"
    assert (left.shown or "") in prompt


@pytest.mark.parametrize("name", PROOFS)
def test_who_wants_no_losses_is_told_the_place(stage: Stage, name: str) -> None:
    told = ask(stage, PROOFS[name], policy="error")
    assert (400, []) == (told.status, stage.asks[0])
    assert PROOFS[name].path in told.json["error"]["message"]


@pytest.mark.parametrize("name", OTHERS)
def test_what_only_another_server_can_do_is_a_loss(stage: Stage, name: str) -> None:
    left = OTHERS[name]
    told = ask(stage, left)
    assert (200, "Still sunny.", "1") == (told.status, told.text, told.headers[LOSSES])
    report = stage.client.get(told.headers[REPORT]).json()
    assert [(left.path, "dropped")] == [(loss["path"], loss["kind"]) for loss in report["losses"]]


@pytest.mark.parametrize("name", [name for name in (*PROOFS, *OTHERS) if (PROOFS | OTHERS)[name].member == "input"])
def test_what_is_kept_for_a_client_has_it_as_it_was(stage: Stage, name: str) -> None:
    left = (PROOFS | OTHERS)[name]
    id_ = ask(stage, left).json["id"]
    items = stage.client.get(f"/v1/responses/{id_}/input_items", params={"order": "asc"}).json()["data"]
    assert left.value.items() <= items[1].items()


def test_the_sdks_go_on_with_them(stage: Stage) -> None:
    with openai_sdk(stage.url) as first, anthropic_sdk(stage.url) as second:
        told: list[Any] = []
        for left in (PROOFS | OTHERS).values():
            stage.play(answer("Still sunny."))
            body: Any = history(left)
            if left.member == "messages":
                message: anthropic.types.Message = second.messages.create(model="m", **body)
                told.append(message.content[0].model_dump()["text"])
            else:
                response: openai.types.responses.Response = first.responses.create(model="m", **body)
                told.append(response.output_text)
    assert ["Still sunny."] * len(told) == told
