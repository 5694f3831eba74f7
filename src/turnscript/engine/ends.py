"""Owns the strings of well-known base models around a document, in a format where others only stand for those."""

from __future__ import annotations

from turnscript.core.losses import Loss
from turnscript.engine.read import claims_document
from turnscript.engine.table import Document, with_ends

STARTS = (
    "<s>",
    "<bos>",
    "<|begin_of_text|>",
    "<|startoftext|>",
    "<|endoftext|>",
    "<\uff5cbegin\u2581of\u2581sentence\uff5c>",
)
ENDS = ("</s>", "<eos>", "<|end_of_text|>", "<|endoftext|>", "<\uff5cend\u2581of\u2581sentence\uff5c>")
_AROUND = "\ufeff \t\r\n"


def based(document: Document, text: str) -> tuple[Document, list[Loss]]:
    """Return the document with the strings of a base model that a text begins or ends with, and what they are read as.

    The document itself where there are none, or where its strings stand for no others. Only what stands right before
    the first turn, and right behind the last one, is such a string.
    """
    if not document.stand_ins:
        return document, []
    said = text.strip(_AROUND)
    start = next((one for one in STARTS if said.startswith(one)), "")
    if start and not claims_document(document, said.removeprefix(start)):
        start = ""
    end = next((one for one in ENDS if said.endswith(one)), "")
    if end and not said.removesuffix(end).rstrip().endswith(_closings(document)):
        end = ""
    if not start and not end:
        return document, []
    own = document.start if said.startswith(document.start) else "", document.end if said.endswith(document.end) else ""
    told = [(1, start, document.start)] if start else []
    told += [(text.rstrip().count("\n") + 1, end, document.end)] if end else []
    losses = [
        Loss(f"line {line}", "approximated", f"{literal}, which is a base model's own, is read as {stands}")
        for line, literal, stands in told
    ]
    return with_ends(document, start or own[0], end or own[1]), losses


def _closings(document: Document) -> tuple[str, ...]:
    return tuple(turn.close.strip() for turn in document.turns if turn.close.strip())
