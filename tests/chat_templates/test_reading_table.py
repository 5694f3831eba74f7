"""Which table reads what a template writes: known ones first, with a verdict on each probe."""

import time

import pytest

import turnscript as ts
from tests.chat_templates import reading_samples
from tests.chat_templates.loading import reading_of
from turnscript.core.errors import InvalidInput
from turnscript.detection.probes import PROBES
from turnscript.detection.reading_table import seed_of


def test_a_known_table_that_reads_all_is_taken() -> None:
    reading = reading_of(reading_samples.CHATML)
    assert (True, "") == (reading.exact, reading.learned)
    assert reading.format.name in ts.model_formats()
    assert ("<|im_end|>",) == reading.stops


def test_between_equals_the_likely_one_is_taken() -> None:
    assert "qwen25" == reading_of(reading_samples.CHATML, names=("qwen2.5-7b-instruct",)).format.name
    assert "hermes" == reading_of(reading_samples.CHATML, names=("hermes-3-llama-3.1-8b",)).format.name


def test_a_likely_table_that_reads_less_is_not_taken() -> None:
    assert "llama31" != reading_of(reading_samples.CHATML, names=("llama-3.1-8b-instruct",)).format.name


def test_every_probe_has_a_verdict() -> None:
    reading = reading_of(reading_samples.CHATML)
    assert [probe.shows for probe in PROBES] == [one.probe for one in reading.verdicts]


def test_what_a_template_leaves_out_is_no_fault_of_the_table() -> None:
    reading = reading_of(reading_samples.TEXT_ONLY)
    refused = {one.probe for one in reading.verdicts if one.result == "refused"}
    assert {"a call", "two calls", "a second round of calls"} <= refused
    assert reading.exact


def test_what_a_template_refuses_is_told_in_its_words() -> None:
    source = reading_samples.CHATML.replace(
        "{%- for one in message.tool_calls or [] -%}",
        "{%- if message.tool_calls and message.tool_calls | length > 1 -%}{{ raise_exception('one at a time') }}"
        "{%- endif -%}{%- for one in message.tool_calls or [] -%}",
    )
    reading = reading_of(source)
    [verdict] = [one for one in reading.verdicts if one.probe == "two calls"]
    assert "refused" == verdict.result
    assert "one at a time" in verdict.sentence
    assert (True, False) == (reading.exact, reading.takes["several calls"])


def test_what_a_template_has_a_place_for_is_found() -> None:
    everything = {"system", "thoughts", "tools", "calls", "several calls", "results"}
    assert dict.fromkeys(sorted(everything), True) == dict(sorted(reading_of(reading_samples.NAMED).takes.items()))
    labels = reading_of(reading_samples.LABELS).takes
    assert not any(labels[what] for what in ("system", "thoughts", "tools", "calls", "several calls"))


@pytest.mark.parametrize("key", ["reasoning_content", "thinking", "reasoning"])
def test_the_key_of_thoughts_is_found(key: str) -> None:
    source = reading_samples.JSON_IN_TAGS.replace("reasoning_content", key)
    reading = reading_of(source)
    assert (True, key) == (reading.exact, reading.thoughts)


def test_a_template_that_joins_arguments_to_text_gets_them_as_text() -> None:
    reading = reading_of(reading_samples.ARGUMENTS_AS_TEXT)
    assert (True, True) == (reading.exact, reading.text_arguments)


@pytest.mark.parametrize("cut", ["split('</think>')[-1]", "split('</muse>')[-1]"])
def test_a_thought_that_a_template_cuts_out_of_contents_is_read(cut: str) -> None:
    reading = reading_of(reading_samples.CHATML.replace("{{ message.content }}", f"{{{{ message.content.{cut} }}}}"))
    assert (True, False) == (reading.exact, reading.takes["thoughts"])
    assert "a thought that the template takes out of contents" in [one.probe for one in reading.verdicts]


def test_a_table_that_reads_otherwise_is_told_by_what_differs() -> None:
    reading = reading_of(reading_samples.UNKNOWN_CALLS)
    [verdict] = [one for one in reading.verdicts if one.probe == "a text of several lines"]
    assert "exact" == verdict.result
    assert f"{reading.right} of {reading.asked} probes exactly" in reading.sentence


def test_a_template_that_refuses_a_plain_conversation_is_an_error_with_its_words() -> None:
    with pytest.raises(InvalidInput, match="nothing is good enough"):
        reading_of(reading_samples.REFUSES)


def test_the_seed_is_what_a_prompt_writes_of_the_turn() -> None:
    document = reading_of(reading_samples.CHATML).format.document
    assert seed_of(document, "<|im_end|>\n<|im_start|>assistant\n<think>\n") == "<think>\n"
    assert seed_of(document, "<|im_end|>\n<|im_start|>assistant\n") is None
    assert seed_of(document, "<|im_end|>\n") is None


def test_a_choice_takes_less_than_a_second() -> None:
    source = reading_samples.CHATML
    start = time.perf_counter()
    reading_of(source)
    assert time.perf_counter() - start < 1.0


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (reading_samples.TEXT_LAST, "the template writes the text last"),
        (reading_samples.CALLS_APART, "the template writes the call in a turn of its own"),
    ],
)
def test_where_a_template_puts_the_parts_of_an_answer_is_told(source: str, sentence: str) -> None:
    reading = reading_of(source)
    [verdict] = [one for one in reading.verdicts if one.probe == "a text and a call"]
    assert (True, "exact", sentence) == (reading.exact, verdict.result, verdict.sentence)


def test_the_token_that_ends_answers_need_not_be_the_tables_own() -> None:
    source = reading_samples.CHATML.replace("{{ '<|im_end|>\\n' }}", "{{ eos_token + '\\n' }}")
    reading = reading_of(source, eos="<|over|>")
    assert (True, "") == (reading.exact, reading.learned)
