"""Owns the recipe of the model: which rows, and which tokens it has in any case; the rest is in the Makefile."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import turnscript
from tiny import vocabulary
from tiny.dialogs.values import SIGNS

SEED = "train3"
COUNT = 150_000
SIZE = 1664
FORMAT = "rwkv-universal"
SAMPLE = 5_000
"""How many rows the vocabulary is chosen from."""

TAGS = (
    *("<<SYS>>\n", "\n<<SYS_END>>", "<<TOOLS>>\n", "\n<<TOOLS_END>>", "<<USER>>\n", "\n<<USER_END>>"),
    *("<<ASSISTANT>>\n", "\n<<ASSISTANT_END>>", "<<THINK>>\n", "\n<<THINK_END>>"),
    *("<<TOOL_CALL", "\n<<END_TOOL_CALL>>", "<<TOOL_RESULT", "\n<<END_TOOL_RESULT>>", "\n\n"),
)
"""Each is one token wherever it stands."""

JOINTS = (
    *('{"', '": ', '": "', '", "', '"}', '": {"', '"}, "', '{"type": "string"}'),
    *('{"type": "string", "description": "', '"type": "object", "properties": {"', '{"name": "', '", "description": "'),
    *('", "parameters": {"type": "object", "properties": {"', '}, "required": ["', '"]}}', ' name="', '" id="call_'),
    *('">>\n', '": {"type": "', '{"type": "integer"', '{"type": "number"', '"]', '":"', '","'),
    '", "additionalProperties": false}}',
)
"""What stands between the words of a transcript."""

WORDS = (
    *(" a ", " an ", " and ", " at ", " for ", " from ", " i ", " in ", " is ", " it ", " me ", " my ", " of ", " on "),
    *(" or ", " please ", " that ", " the ", " to ", " with ", " you "),
)
"""Small words with the spaces around them: whatever follows begins a piece of its own."""


def sample(lines: Iterator[bytes]) -> str:
    """Rows as the model reads them, one behind another."""
    known = turnscript.get_format(FORMAT)
    texts = [known.render(turnscript.parse(line, "openai-chat"), view="prompt").value for line in lines]
    return "".join(f"{text}\n\n" for text in texts)


def main() -> None:
    """Choose the vocabulary for the rows of a file."""
    parser = argparse.ArgumentParser(prog="python -m tiny.recipe", description=main.__doc__)
    parser.add_argument("rows", type=Path, help="JSON Lines, from tiny.rows")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    with given.rows.open("rb") as file:
        text = sample(islice(file, SAMPLE))
    chosen = vocabulary.build([text], SIZE, tags=TAGS, pieces=(*JOINTS, *WORDS, *SIGNS))
    chosen.save(given.out)
    print(f"{len(chosen)} ids, {len(text.encode()) / len(chosen.encode(text)):.2f} bytes a token")


if __name__ == "__main__":
    main()
