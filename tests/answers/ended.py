"""Owns answers that end in every way there is: by the model, by a limit, by a filter, by a failure, or not at all."""

from __future__ import annotations

from tests.answers.answer import Answer, Asked, Fail, Gone, Idle, call, free, text, thought, told, until
from turnscript.core.errors import UpstreamError, UpstreamTimeout

CUT = call('{"city": "Os', "get_weather", "call_z9")
GONE = UpstreamError("the backend is gone")
OVERFLOW = UpstreamError("no", upstream=400, body="This model's maximum context length is 8 tokens")
SPEAKING = told(text("Hello, world."))
THINKING = told(thought("Hm. Let me see."), text("Yes."))
CALLING = told(text("Let me look."), call(), reason="tool_calls")

ANSWERS = [
    Answer(
        name="met a stop string of the client's",
        steps=told(text("Hello"), stop_sequence="END"),
        covers=("finish",),
        ending="client stop string",
        asked=Asked(stop=("###", "END")),
    ),
    Answer(
        name="met a stop string of the server's own",
        steps=told(text("Hello"), stop_sequence="\n\nUser:"),
        covers=("finish",),
        ending="gateway's own role-marker stop",
        asked=Asked(stop=("###", "END")),
    ),
    Answer(
        name="met a limit while speaking",
        steps=told(text("Hello, wor"), reason="length"),
        covers=("finish",),
        ending="max tokens",
    ),
    Answer(
        name="met a limit while thinking",
        steps=told(thought("Hm. Let me s"), reason="length"),
        covers=("thinking only",),
        ending="max tokens",
    ),
    Answer(name="met a limit at once", steps=told(reason="length"), covers=("empty reply",), ending="max tokens"),
    Answer(
        name="filled the context",
        steps=told(text("Hello, wor"), reason="model_context_window_exceeded"),
        covers=("finish",),
        ending="context full",
    ),
    Answer(
        name="met a limit in a call",
        steps=told(text("Let me look."), reason="length", cut=CUT),
        covers=("cut call",),
        ending="tool call cut by length",
    ),
    Answer(
        name="met a limit in the only call",
        steps=told(reason="length", cut=CUT),
        covers=("cut call",),
        ending="tool call cut by length",
    ),
    Answer(
        name="met a limit in the second call",
        steps=told(thought("Hm."), call(), reason="length", cut=CUT),
        covers=("cut call", "call.close"),
        ending="tool call cut by length",
    ),
    Answer(
        name="met a limit in free text",
        steps=told(text("Patching."), reason="length", cut=free("*** Beg")),
        covers=("cut call",),
        ending="tool call cut by length",
    ),
    Answer(
        name="was filtered",
        steps=told(text("Hello, wor"), reason="content_filter"),
        covers=("finish",),
        ending="filter",
    ),
    Answer(name="was filtered at once", steps=told(reason="content_filter"), covers=("empty reply",), ending="filter"),
    Answer(name="declined without words", steps=told(reason="refusal"), covers=("empty reply",), ending="filter"),
    Answer(
        name="paused for a server's tool",
        steps=told(text("Searching."), reason="pause_turn"),
        covers=("finish",),
        ending="server tool pause",
    ),
    Answer(
        name="made room",
        steps=told(text("In short: x"), reason="compaction"),
        covers=("finish",),
        ending="compaction",
    ),
    Answer(name="was steered", steps=told(text("Hello, wor"), reason="steered"), covers=("finish",), ending="steered"),
    Answer(name="nobody said why", steps=told(text("Hello."), reason=None), covers=("end",), ending="nobody said"),
    # Endings that are none.
    Answer(
        name="was cancelled",
        steps=told(text("Hello, wor"), reason="cancelled"),
        covers=("error",),
        ending="cancelled",
    ),
    Answer(
        name="failed while speaking",
        steps=until(SPEAKING, 3, Fail(GONE)),
        covers=("error",),
        ending="backend failure after first byte",
    ),
    Answer(
        name="failed while thinking",
        steps=until(THINKING, 3, Idle(), Fail(UpstreamTimeout("the backend took too long"))),
        covers=("error", "idle"),
        ending="backend failure after first byte",
    ),
    Answer(
        name="failed in a call",
        steps=until(CALLING, 9, Fail(GONE)),
        covers=("error", "fails in a call"),
        ending="backend failure after first byte",
    ),
    Answer(
        name="failed behind a call",
        steps=until(CALLING, len(CALLING()) - 1, Fail(GONE)),
        covers=("error", "call.close"),
        ending="backend failure after first byte",
    ),
    Answer(
        name="failed before it said anything",
        steps=until(SPEAKING, 0, Idle(), Fail(GONE)),
        covers=("error",),
        ending="backend failure after first byte",
    ),
    Answer(
        name="failed before the first byte",
        steps=until(SPEAKING, 0, Fail(GONE)),
        covers=("error",),
        ending="backend failure after first byte",
    ),
    Answer(
        name="failed because the context is full",
        steps=until(SPEAKING, 0, Idle(), Fail(OVERFLOW)),
        covers=("error", "overflow"),
        ending="backend failure after first byte",
    ),
    Answer(
        name="ended with a word for failure",
        steps=told(text("Hello, wor"), reason="failed"),
        covers=("error",),
        ending="backend failure after first byte",
    ),
    # Servers that are gone.
    Answer(name="gone while speaking", steps=until(SPEAKING, 3, Gone()), covers=("gone",), ending="cancelled"),
    Answer(name="gone while thinking", steps=until(THINKING, 3, Gone()), covers=("gone",), ending="cancelled"),
    Answer(name="gone in a call", steps=until(CALLING, 9, Gone()), covers=("gone",), ending="cancelled"),
]
