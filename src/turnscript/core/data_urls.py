"""Owns data URLs: base64 text and its media type in one string, taken apart only where the two make it up again."""

from __future__ import annotations

_SCHEME = "data:"
_BASE64 = ";base64,"


def split_data_url(url: str) -> tuple[str, str] | None:
    """Media type and base64 text of a data URL in its plain form, which `data_url` joins again; else None."""
    if not url.startswith(_SCHEME):
        return None
    media_type, found, data = url[len(_SCHEME) :].partition(_BASE64)
    plain_form = found and "/" in media_type and ";" not in media_type and "," not in media_type
    return (media_type, data) if plain_form else None


def data_url(media_type: str, data: str) -> str:
    """The data URL of base64 text. The text itself is never touched."""
    return f"{_SCHEME}{media_type}{_BASE64}{data}"


def taken_apart(url: str) -> tuple[str, str] | None:
    """Media type and base64 text of a data URL in any form, without what else it says; None for one without base64."""
    head, found, data = url.partition(",")
    if not (found and is_data_url(url)):
        return None
    media_type, *more = head[len(_SCHEME) :].split(";")
    return (media_type.strip(), data) if more and more[-1].strip().lower() == "base64" else None


def is_data_url(url: str) -> bool:
    """Whether a URL says that what it leads to stands in itself."""
    return url[: len(_SCHEME)].lower() == _SCHEME
