"""Owns answers that say or think something: texts, thoughts, refusals, odd characters, counts of tokens."""

from __future__ import annotations

from tests.answers.answer import Answer, Asked, refusal, text, thought, told, with_pauses
from turnscript.core.conversation import Text, Thinking, Usage

TEXT = "text.open/delta/close"
THINK = ("think.open", "think.delta", "think.close")

# One family of people, a flag, a skin tone: several characters each that belong together.
EMOJI = "👨‍👩‍👧‍👦🏳️‍🌈👍🏽 1️⃣"
COMBINING = "e\u0301 o\u0308\u0323 क्षि 한국 \u202eabc\u202c עברית"
ASTRAL = "𝔘𝔫𝔦 𐍈 𠮷 🀄 \U0010fffd"
# What some readers of lines take for the end of one, and what servers of events write themselves.
LINES = "a\nb\r\nc\rd\u2028e\u2029f\u0085g\x0bh\x0ci\x1cj\n\n"
FRAMES = 'data: [DONE]\n\nevent: error\ndata: {"error":{"message":"no"}}\n\n: comment\n\n'
CONTROL = 'quote " backslash \\ slash / nul \x00 escape \x1b delete \x7f \ufeff \\u0041 \\n end\\'
COUNTED = Usage(120, 30, 100, 15, 12)

ANSWERS = [
    # Texts.
    Answer(name="text", steps=told(text("Hello, world.")), covers=("start", TEXT, "finish", "usage", "end")),
    Answer(name="text in one piece", steps=told(text("Hello, world."), size=1000), covers=(TEXT,)),
    Answer(name="text in single characters", steps=told(text("Hello, world."), size=1), covers=(TEXT,)),
    Answer(name="two texts", steps=told(text("One. "), text("Two.")), covers=(TEXT,)),
    Answer(name="text with pauses", steps=with_pauses(told(text("Hello."), size=2)), covers=("idle",)),
    Answer(name="a thousand deltas", steps=told(text("né 字👍" * 200), size=1), covers=("1,000 deltas",)),
    Answer(name="only white space", steps=told(text("\n \t\n"), size=1), covers=(TEXT,)),
    # Thoughts.
    Answer(name="thought and text", steps=told(thought("Hm. Let me see."), text("Yes.")), covers=THINK),
    Answer(name="thought with pauses", steps=with_pauses(told(thought("Hm."), text("Yes."))), covers=("idle", *THINK)),
    Answer(
        name="thought with a signature",
        steps=told(thought("Hm. Let me see.", signature="EqQBCkYIBxgCKkDs=="), text("Yes.")),
        covers=(*THINK, "signature"),
    ),
    Answer(
        name="thought with an encrypted copy",
        steps=told(thought("Hm.", encrypted="gAAAAABo-_sealed=="), text("Yes.")),
        covers=("encrypted",),
    ),
    Answer(
        name="thought that the client wants omitted",
        steps=told(thought("secret", signature="EqQBsealed"), text("Yes.")),
        covers=("omitted", "signature"),
        asked=Asked(display="omitted"),
    ),
    Answer(
        name="redacted thought",
        steps=told(Thinking(redacted="EmwKAhgBEgy3va3pzix/LafPsn4a"), text("Yes.")),
        covers=("redacted",),
    ),
    Answer(
        name="thought with a summary",
        steps=told(Thinking(summary=[Text(text="First."), Text(text="Then.")]), text("Yes.")),
        covers=("summary",),
    ),
    Answer(
        name="thought shown as the summary that was asked for",
        steps=told(thought("Hm. Let me see."), text("Yes.")),
        covers=(*THINK, "summary"),
        asked=Asked(summary="auto"),
    ),
    Answer(name="thinking only", steps=told(thought("Hm.")), covers=("thinking only",)),
    Answer(
        name="thinking in between", steps=told(text("A. "), thought("Hm."), text("B.")), covers=("thinking between",)
    ),
    Answer(
        name="two thoughts and two texts",
        steps=told(thought("Hm."), text("A. "), thought("Ah."), text("B.")),
        covers=("thinking between",),
    ),
    Answer(name="a thousand deltas of thinking", steps=told(thought("abcd " * 200), size=1), covers=("1,000 deltas",)),
    # Nothing.
    Answer(name="nothing at all", steps=told(), covers=("empty reply",)),
    Answer(name="an empty text", steps=told(text("")), covers=("empty reply",)),
    Answer(name="an empty text behind a thought", steps=told(thought("Hm."), text("")), covers=("thinking only",)),
    # Refusals.
    Answer(
        name="refusal in words",
        steps=told(refusal("I can't help with that.")),
        covers=("refusal",),
        ending="refusal in words",
    ),
    Answer(
        name="text and refusal",
        steps=told(text("Hm. "), refusal("No.")),
        covers=("refusal", TEXT),
        ending="refusal in words",
    ),
    # Odd characters, one at a time.
    Answer(name="emoji", steps=told(thought(EMOJI), text(EMOJI), size=1), covers=("emoji",)),
    Answer(name="combining characters", steps=told(thought(COMBINING), text(COMBINING), size=1), covers=("combining",)),
    Answer(name="astral characters", steps=told(thought(ASTRAL), text(ASTRAL), size=1), covers=("astral",)),
    Answer(name="ends of lines", steps=told(thought(LINES), text(LINES), size=1), covers=("ends of lines",)),
    Answer(name="text like frames", steps=told(text(FRAMES), size=5), covers=("ends of lines",)),
    Answer(name="control characters", steps=told(thought(CONTROL), text(CONTROL), size=1), covers=("control",)),
    # What the answer says of itself.
    Answer(name="counts in detail", steps=told(text("Hi."), usage=COUNTED), covers=("usage", "cached and reasoning")),
    Answer(name="counts unknown", steps=told(text("Hi."), usage=None), covers=("no usage",)),
    Answer(
        name="counts not asked for",
        steps=told(text("Hi."), usage=COUNTED),
        covers=("usage not asked for",),
        asked=Asked(usage=False),
    ),
    Answer(name="an id of the server's", steps=told(text("Hi."), id="given_0aZ-9"), covers=("id",)),
]
