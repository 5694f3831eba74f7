"""Owns thoughts on their way through a client: sealed when an answer leaves, whole again when they come back.

A client keeps of a thought what its API gives it: the text, a summary, or nothing but a proof. So the text goes into
the proof. `sealed` puts a seal (see `signatures`) on every thought, which an API carries where its own proof would be;
`restore_thoughts` takes the text out of the seals in the next request. An API without proofs carries the text itself.

Nothing is stored: whoever has the key can restore. Only a seal of that key counts; one that is forged or cut short is
like the proof of another API, which is kept as it came and reported, and never an error.

A server with a chat API proves thoughts itself. `sealed_proofs` puts its proofs into the seal, with a name that says
whose they are: so any API carries them, and only the server that made them gets them back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import copy

from msgspec.structs import replace

from turnscript.core.conversation import Item, Request, Text, Thinking, text_content
from turnscript.core.events import Event, PartEnd
from turnscript.core.losses import Loss
from turnscript.core.signatures import Sealed, seal, unsealed

_PROOFS = (("signature", "signature"), ("encrypted", "encrypted_content"), ("redacted", "data"))
"""The fields that hold a proof, and the members that they are read from."""
_BY, _ID, _SUMMARY = "by", "id", "summary"


# Answers.


def sealed(events: Iterable[Event], key: bytes) -> list[Event]:
    """The events with a seal on every thought that ends. Events may be given in any batches; they are not changed."""
    return [_sealed_end(event, key) if type(event) is PartEnd else event for event in events]


def _sealed_end(event: PartEnd, key: bytes) -> PartEnd:
    if type(event.part) is not Thinking:
        return event
    return replace(event, part=_sealed_item(event.part, key))


def _sealed_item(item: Item, key: bytes) -> Item:
    """The item with a seal, if it is a thought whose text is known: where there is a proof and no text, it is not."""
    if type(item) is not Thinking or item.seal is not None or item.redacted is not None:
        return item
    text = text_content(item.content)
    if not text and (item.signature or item.encrypted or item.summary):
        return item
    whole = copy(item)
    whole.seal = seal(text, key)
    return whole


def unproved(item: Thinking, *, ids: bool) -> Thinking:
    """The thought without proofs, and without its id unless `ids`."""
    return replace(item, signature=None, encrypted=None, redacted=None, id=item.id if ids else None)


def sealed_proofs(item: Thinking, key: bytes, by: str, *, ids: bool) -> Thinking:
    """The thought of the server that is called `by` with its proofs in a seal. `ids`: whether its client is told its
    id, which the server may want back in any case."""
    proofs = {field: proof for field, _ in _PROOFS if (proof := getattr(item, field))}
    beside: dict[str, object] = {_BY: by, **proofs}
    text = text_content(item.content) or None
    if item.id:
        beside[_ID] = item.id
    if item.summary and text is None:
        beside[_SUMMARY] = [part.text for part in item.summary if isinstance(part, Text)]
    whole = unproved(item, ids=ids)
    whole.seal = seal(text, key, beside)
    return whole


# Requests.


def restore_thoughts(request: Request, key: bytes, former: Sequence[bytes] = (), by: str = "") -> list[Loss]:
    """Give the thoughts of a request their texts back, in place. Returns what the client changed, and a loss for each
    thought with a proof that neither this key has made nor a `former` one.

    A thought that is whole again has its `seal`, and no proof or summary that was made from it. `by`: the request goes
    to the server of this name, whose proofs are given back, and no others; only its own thoughts have a `seal` then.
    """
    request.locate()
    losses: list[Loss] = []
    items = request.items
    if Thinking in map(type, items):
        for item in [item for item in items if type(item) is Thinking]:
            _restore(item, (key, former), by, losses)
    return losses


def proofs(items: Iterable[Item]) -> Iterator[str]:
    """All that may be a seal on a thought."""
    for item in items:
        if type(item) is Thinking:
            yield from (proof for field, _ in _PROOFS if (proof := getattr(item, field)))


def _restore(item: Thinking, keys: tuple[bytes, Sequence[bytes]], by: str, losses: list[Loss]) -> None:
    foreign, ours = "", Sealed(None)
    for field, member in _PROOFS:
        proof = getattr(item, field)
        sealed = unsealed(proof, *keys) if proof else None
        if sealed is not None or by:
            setattr(item, field, None)
        if sealed is None:
            foreign = foreign or (member if proof else "")
        elif item.seal is None:
            item.seal, ours = proof, sealed
            foreign = foreign or (member if _proves(sealed) and sealed.beside.get(_BY) != by else "")
    if ours.text is not None:
        _put_text(item, ours.text, losses)
    if by and ours.beside.get(_BY) == by:
        _put_proofs(item, ours)
    elif by:
        item.seal = None
    if foreign:
        rest = "" if text_content(item.content) else ", and there is no text beside it"
        detail = f"only the API that made it can read it{rest}"
        losses.append(Loss(f"{item.at}.{foreign}", "dropped", detail))


def _proves(sealed: Sealed) -> bool:
    """Whether a seal holds what a server has proved."""
    return any(field in sealed.beside for field, _ in _PROOFS)


def _put_text(item: Thinking, text: str, losses: list[Loss]) -> None:
    told = text_content(item.content)
    if told and told != text:
        losses.append(Loss(item.at, "approximated", "the client changed this thought; what was sealed counts"))
    if told != text:
        item.content = [Text(text=text)]
    if item.summary and text_content(item.summary) == text:
        item.summary = []


def _put_proofs(item: Thinking, sealed: Sealed) -> None:
    """Give a thought back what its server has said of it."""
    for field, _ in _PROOFS:
        setattr(item, field, sealed.beside.get(field))
    item.id = sealed.beside.get(_ID, item.id)
    if _SUMMARY in sealed.beside:
        item.summary, item.content = [Text(text=text) for text in sealed.beside[_SUMMARY]], []
