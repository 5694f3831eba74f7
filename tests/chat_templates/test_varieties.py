"""Whatever marks turns, thoughts and calls, what a template writes of them is read back."""

import pytest

from tests.chat_templates.loading import reading_of
from tests.chat_templates.varieties import CALLS, FRAMES, THOUGHTS, template

PAIRS = [
    *((frame, "none", calls) for frame in FRAMES for calls in CALLS),
    *((frame, thought, "objects in tags") for frame in FRAMES for thought in THOUGHTS if thought != "none"),
    *(("tags", thought, calls) for thought in THOUGHTS for calls in CALLS if thought != "none"),
]


@pytest.mark.deep
@pytest.mark.parametrize(("frame", "thought", "calls"), PAIRS)
def test_what_is_written_in_any_marks_is_read_back(frame: str, thought: str, calls: str) -> None:
    reading = reading_of(template(frame, thought, calls))
    assert [] == [(one.probe, one.sentence) for one in reading.verdicts if one.result == "differs"]
    assert (thought != "none", calls != "none") == (reading.takes["thoughts"], reading.takes["calls"])
