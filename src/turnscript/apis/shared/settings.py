"""Owns settings that several APIs have alike: stop strings, and an effort where another API has a budget of thought."""

from __future__ import annotations

from msgspec.structs import replace

from turnscript.apis.api import Rendering, own_setting, setting
from turnscript.core.conversation import Request, ThinkingMode
from turnscript.core.json_text import Json
from turnscript.core.wire import Reader

_read_strings: Reader[str | list[str]] = Reader(str | list[str])
_BUDGETS = ((2048, "low"), (8192, "medium"), (24576, "high"))
_LARGEST = "xhigh"


def _read_stop(request: Request, value: Json, path: str) -> None:
    stop = _read_strings(value, path)
    request.settings.stop = [stop] if isinstance(stop, str) else stop


STOP = replace(setting("stop", "stop", list[str]), read=_read_stop, wire=Json)
"""Stop strings: a list of them, or one."""

OWN_STOP = replace(own_setting("stop", "stop", list[str]), read=_read_stop)
"""Stop strings where no official API has them: they are sent only if they came that way."""


def effort_for(rendering: Rendering, thinking: ThinkingMode) -> str | None:
    """The effort that comes nearest to another API's thinking (spec apis A8.5)."""
    effort = rendering.request.settings.effort
    path = rendering.request.paths.get("thinking", "$.thinking")
    rendering.put_extra({}, thinking.extra, path)
    rendering.lose_unplaced(thinking, path)
    if thinking.mode == "disabled":
        if effort not in (None, "none"):
            rendering.lose_setting("effort", "dropped", "thinking is off, which is itself an effort here")
        rendering.lose(path, "approximated", "thinking that is off is written as the effort 'none'")
        return "none"
    if effort is not None:
        rendering.lose(path, "dropped", f"an effort is given besides; {thinking.mode!r} cannot be said here")
        return effort
    if thinking.budget is None:
        rendering.lose(path, "dropped", f"thinking of mode {thinking.mode!r} cannot be said here")
        return None
    effort = next((word for limit, word in _BUDGETS if thinking.budget < limit), _LARGEST)
    rendering.lose(path, "approximated", f"a budget of {thinking.budget} tokens is written as the effort {effort!r}")
    return effort
