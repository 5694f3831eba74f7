"""Owns data URLs: base64 text and its media type in one string, taken apart only where the two make it up again."""

from __future__ import annotations

_BASE64 = ";base64,"


def split_data_url(url: str) -> tuple[str, str] | None:
    """Media type and base64 text of a data URL in its plain form, which `data_url` joins again; else None."""
    if not url.startswith("data:"):
        return None
    media_type, found, data = url[5:].partition(_BASE64)
    plain_form = found and "/" in media_type and ";" not in media_type and "," not in media_type
    return (media_type, data) if plain_form else None


def data_url(media_type: str, data: str) -> str:
    """The data URL of base64 text. The text itself is never touched."""
    return f"data:{media_type}{_BASE64}{data}"
