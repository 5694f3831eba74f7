"""Tables that are learned from a template: what they read, what they say of what they could not learn."""

import pytest

import turnscript as ts
from tests.chat_templates import reading_samples
from tests.chat_templates.loading import reading_of
from turnscript.convert.registry import load_formats
from turnscript.core.conversation import ToolCall
from turnscript.tableio import dump_format

LEARNED = ("TEXT_ONLY", "JSON_IN_TAGS", "ARRAY", "NAMED", "NESTED_GROUP", "PARAMETERS", "TEXT_IN_TAGS", "ALWAYS_OPEN")


@pytest.mark.parametrize("name", LEARNED)
def test_what_a_template_of_no_known_format_writes_is_read_exactly(name: str) -> None:
    reading = reading_of(getattr(reading_samples, name))
    wrong = [(one.probe, one.sentence) for one in reading.verdicts if one.result == "differs"]
    assert (True, []) == (bool(reading.learned), wrong)
    assert reading.exact


@pytest.mark.parametrize("name", LEARNED)
def test_a_learned_table_is_a_file_that_reads_the_same(name: str) -> None:
    reading = reading_of(getattr(reading_samples, name))
    [loaded] = load_formats(reading.learned)
    assert dump_format(reading.format) == dump_format(loaded)


def test_calls_are_read_in_pieces_by_a_learned_table() -> None:
    reading = reading_of(reading_samples.PARAMETERS)
    parser = reading.format.parser(None, prefill=None)
    answer = "Let me see.\n<act>\n<fn:weather>\n<arg:city>Oslo</arg>\n<arg:days>3</arg>\n</fn>\n</act><~/>"
    events = [event for letter in answer for event in parser.feed(letter)] + parser.close()
    calls = [item for item in ts.fold(events).items if isinstance(item, ToolCall)]
    assert [("weather", '{"city": "Oslo", "days": 3}')] == [(call.name, call.arguments) for call in calls]


def test_the_thought_that_only_a_prompt_opens_is_learned() -> None:
    reading = reading_of(reading_samples.OPENED_THOUGHT.replace("im_", "of_"))
    parser = reading.format.parser(None, prefill="<think>\n")
    items = ts.fold(parser.feed("hm\n</think>\n\nYes.<|of_end|>") + parser.close()).items
    assert ["thinking", "assistant"] == [item.kind for item in items]


def test_calls_that_no_payload_can_say_leave_text_and_a_sentence() -> None:
    reading = reading_of(reading_samples.UNKNOWN_CALLS)
    assert not reading.exact
    assert not reading.calls
    [sentence] = reading.unlearned
    assert sentence.startswith("tool calls were not learned: ")
    texts = [one.result for one in reading.verdicts if one.probe in ("a text", "a text of several lines")]
    assert ["exact", "exact"] == texts


def test_turns_that_labels_open_are_learned_with_the_stop() -> None:
    reading = reading_of(reading_samples.LABELS)
    assert reading.exact
    assert ("Guest>>",) == reading.stops


def test_a_learned_stop_ends_the_answer() -> None:
    reading = reading_of(reading_samples.JSON_IN_TAGS)
    assert ("<~/>",) == reading.stops


def test_a_template_without_marks_leaves_its_texts() -> None:
    reading = reading_of(reading_samples.NO_TURNS)
    assert (True, False, ()) == (reading.exact, reading.takes["calls"], reading.stops)


def test_a_closing_that_openings_begin_with_leaves_texts_and_a_sentence() -> None:
    reading = reading_of(reading_samples.JSON_IN_TAGS.replace("<~/>", "<~"))
    texts = [one.result for one in reading.verdicts if one.probe in ("a text", "a text of several lines")]
    assert ["exact", "exact"] == texts
    assert any("could confuse them" in sentence for sentence in reading.unlearned)


def test_instructions_that_only_a_prompt_has_are_no_part_of_the_turn() -> None:
    reading = reading_of(reading_samples.REMINDERS)
    assert (True, "<~assistant>\n") == (reading.exact, reading.format.document.turns[1].open)
