"""Owns the unit tests of thoughts on their way through a client: what is sealed, and what counts as whole."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.conformance.test_thought_laws import sealed_answer
from turnscript.convert.registry import get_api, get_format
from turnscript.core.conversation import Assistant, Conversation, Item, Request, Response, Text, Thinking, text_content
from turnscript.core.events import Event, MessageEnd, PartDelta, PartEnd, PartStart
from turnscript.core.losses import Loss
from turnscript.core.sealed_thoughts import restore_thoughts, sealed, sealed_proofs
from turnscript.core.signatures import seal, unseal

KEY = b"0123456789abcdef"
SEAL = seal("Hm.", KEY)


def thought(text: str = "Hm.", **members: Any) -> Thinking:
    return Thinking(content=[Text(text=text)], **members)


def restored(item: Thinking, key: bytes = KEY) -> list[Loss]:
    return restore_thoughts(Request(conversation=Conversation(items=[item])), key)


# Sealing.


def test_only_the_end_of_a_thought_changes_in_a_stream_and_in_any_batches() -> None:
    events: list[Event] = [
        PartStart(0, Thinking()),
        PartDelta(0, "Hm."),
        PartEnd(0, thought(), "raw", "anthropic"),
        PartStart(1, Assistant()),
        PartEnd(1, Assistant(content=[Text(text="x")])),
        PartEnd(2, None),
        MessageEnd("stop"),
    ]
    told = sealed(events, KEY)
    assert [PartEnd(0, thought(seal=SEAL), "raw", "anthropic")] == [told[2]]
    assert events[:2] + events[3:] == told[:2] + told[3:]
    assert told == [event for one in events for event in sealed([one], KEY)]
    assert PartEnd(0, thought(), "raw", "anthropic") == events[2]


def test_the_same_for_a_whole_response() -> None:
    items: list[Item] = [thought(), Assistant(content=[Text(text="x")])]
    response = Response(items=items, finish_reason="stop", id="r")
    assert Response(items=[thought(seal=SEAL), items[1]], finish_reason="stop", id="r") == sealed_answer(response, KEY)
    assert [thought(), items[1]] == response.items


@pytest.mark.parametrize(
    "item",
    [
        thought(seal="ts1.already"),
        Thinking(redacted="data"),
        Thinking(signature="s"),
        Thinking(encrypted="e"),
        Thinking(summary=[Text(text="In short.")]),
    ],
    ids=["sealed", "redacted", "signed", "encrypted", "summarised"],
)
def test_a_thought_whose_text_is_not_known_gets_no_seal(item: Thinking) -> None:
    assert [item] == sealed_answer(Response(items=[item]), KEY).items


def test_an_empty_thought_is_sealed_as_that() -> None:
    (item,) = sealed_answer(Response(items=[Thinking()]), KEY).items
    assert isinstance(item, Thinking)
    assert "" == unseal(item.seal or "", KEY)


@pytest.mark.parametrize(
    ("name", "member", "proof"),
    [("anthropic-messages", "signature", "signature"), ("openai-responses", "encrypted_content", "encrypted")],
)
def test_an_apis_own_proof_goes_before_our_seal(name: str, member: str, proof: str) -> None:
    api = get_api(name)
    item = thought(**{proof: "theirs"})
    response = sealed_answer(Response(items=[item], finish_reason="stop"), KEY)
    value: Any = api.render_response(response, Request()).value
    blocks = value.get("content") or value["output"]
    assert "theirs" == blocks[0][member]


# Restoring.


@pytest.mark.parametrize("proof", ["signature", "encrypted", "redacted"])
@pytest.mark.parametrize("content", [[], [Text(text="")], [Text(text="Hm.")], [Text(text="H"), Text(text="m.")]])
def test_a_thought_with_our_seal_is_whole_wherever_the_seal_stands(proof: str, content: list[Any]) -> None:
    item = Thinking(content=list(content))
    setattr(item, proof, SEAL)
    assert [] == restored(item)
    assert ("Hm.", SEAL, None) == (text_content(item.content), item.seal, getattr(item, proof))


def test_a_summary_that_was_made_from_the_thought_goes_and_another_stays() -> None:
    made, written = Thinking(summary=[Text(text="Hm.")], encrypted=SEAL), Thinking(summary=[Text(text="H")])
    written.encrypted = SEAL
    assert ([], []) == (restored(made), restored(written))
    assert ([], [Text(text="H")]) == (made.summary, written.summary)


def test_what_a_client_changed_in_a_thought_is_reported_and_does_not_count() -> None:
    item = thought("Hm, no.", signature=SEAL, at="$.messages[1].content[0]")
    assert [("$.messages[1].content[0]", "approximated")] == [(loss.path, loss.kind) for loss in restored(item)]
    assert "Hm." == text_content(item.content)


@pytest.mark.parametrize(
    "proof", ["foreign", "ts1.", SEAL[:-1], SEAL + "A", SEAL.replace(SEAL[40], "A" if SEAL[40] != "A" else "B", 1)]
)
@pytest.mark.parametrize("field", ["signature", "encrypted", "redacted"])
@pytest.mark.parametrize("text", ["Hm.", ""])
def test_a_foreign_forged_or_cut_proof_is_kept_and_reported_once(proof: str, field: str, text: str) -> None:
    def made() -> Thinking:
        thinking = Thinking(content=[Text(text=text)] if text else [], at="$.input[1]")
        setattr(thinking, field, proof)
        return thinking

    item = made()
    member = {"signature": "signature", "encrypted": "encrypted_content", "redacted": "data"}[field]
    (loss,) = restored(item)
    assert (f"$.input[1].{member}", "dropped") == (loss.path, loss.kind)
    assert ("no text" in loss.detail) == (not text)
    assert made() == item


def test_a_seal_of_another_key_is_foreign() -> None:
    item = thought("", signature=SEAL)
    assert ["items[0].signature"] == [loss.path for loss in restored(item, b"another key")]
    assert "" == text_content(item.content)


def test_a_thought_with_two_foreign_proofs_is_reported_once_and_our_seal_beside_one_is_opened() -> None:
    assert ["items[0].signature"] == [loss.path for loss in restored(thought(signature="a", encrypted="b"))]
    item = Thinking(signature="theirs", encrypted=SEAL)
    assert ["items[0].signature"] == [loss.path for loss in restored(item)]
    assert ("Hm.", "theirs") == (text_content(item.content), item.signature)


def test_thoughts_without_a_proof_and_all_else_are_left_alone() -> None:
    request = Request(conversation=Conversation(items=[thought(signature=""), thought(), Assistant()]))
    assert [] == restore_thoughts(request, KEY)
    assert [thought(signature=""), thought(), Assistant()] == request.items


@pytest.mark.parametrize("name", ["openai-chat", "openai-responses", "anthropic-messages"])
def test_a_restored_thought_goes_to_any_api_and_prompt_without_a_loss_of_the_seal(name: str) -> None:
    item = thought("", signature=SEAL)
    request = Request(conversation=Conversation(items=[item, Assistant(content=[Text(text="x")])]))
    restore_thoughts(request, KEY)
    assert not [loss for loss in get_api(name).render_request(request).losses if "seal" in loss.path + loss.detail]
    assert SEAL.encode() not in get_api(name).render_request(request).data
    rendered = get_format("rwkv-goose").render(request)
    assert "Hm." in str(rendered.value)
    assert not [loss for loss in rendered.losses if "seal" in loss.path]


# Proofs of servers with a chat API.


@pytest.mark.parametrize("field", ["signature", "encrypted", "redacted"])
@pytest.mark.parametrize("content", [[Text(text="Hm.")], []], ids=["text", "hidden"])
def test_what_a_server_proved_comes_back_to_it_and_to_nobody_else(field: str, content: list[Any]) -> None:
    proved = Thinking(content=content, id="rs_1", **{field: "proof"})  # type: ignore[arg-type]
    if field == "encrypted" and not content:
        proved.summary = [Text(text="In short.")]
    told = sealed_proofs(proved, KEY, "server-1", ids=False)
    assert (None, None, None, None) == (told.signature, told.encrypted, told.redacted, told.id)
    for by in ("server-1", "server-2", ""):
        shown = [*content, *proved.summary]  # as Messages shows a thought that has a summary alone
        came = Thinking(content=shown, signature=told.seal, at="$.messages[0]")
        request = Request(conversation=Conversation([came]))
        losses = restore_thoughts(request, KEY, by=by)
        if by == "server-1":
            assert [] == losses
            assert came == replace(proved, seal=told.seal)
        else:
            assert ["$.messages[0].signature"] == [loss.path for loss in losses]
            assert (None, None, None) == (came.signature, came.encrypted, came.redacted)
            assert by == "" or came.seal is None


def test_a_raw_proof_is_taken_off_where_only_a_servers_own_go_back() -> None:
    came = Thinking(content=[Text(text="Hm.")], signature="theirs", at="$.messages[0]")
    assert 1 == len(restore_thoughts(Request(conversation=Conversation([came])), KEY, by="server-1"))
    assert (None, None) == (came.signature, came.seal)
