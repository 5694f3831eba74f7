"""Owns the proof that a model is not asked what it was trained on, and that a perfect one is found perfect."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import islice
from random import Random

import jsonschema_rs
import pytest

import turnscript
from tests.tiny.templates import fits, lines
from tiny import cases, evaluate, recipe, rows
from tiny.cases import FAMILIAR, HELD_COUNTS, UNSEEN_COUNTS, Case, normal
from tiny.dialogs import tools, values
from tiny.dialogs.conversations import conversation
from tiny.dialogs.phrases import say
from tiny.dialogs.topics import MORE, TOPICS, UNSEEN

TRAINED = 20_000


def said(row: dict[str, object]) -> list[str]:
    """What the users of a row say."""
    messages = row["messages"]
    assert isinstance(messages, list)
    return [message["content"] for message in messages if message["role"] == "user"]


# Training rows.


@pytest.mark.deep
@pytest.mark.long
def test_no_model_is_asked_what_it_was_trained_on() -> None:
    """One test, because to make the rows takes longer than all that is said of them."""
    trained = [json.loads(row) for row in rows.rows(TRAINED)]
    known = {normal(text) for row in trained for text in said(row)}
    every = cases.every(known)
    assert {normal(text) for row in trained[:1000] for text in said(row)} == cases.seen(1000)
    no_request_of_a_case_is_in_a_training_row(known, every)
    held_values_and_names_of_new_tools_are_in_no_training_row(trained)
    the_suites_have_their_sizes(every)
    arguments_that_are_wanted_are_what_the_tools_declare(every)


def no_request_of_a_case_is_in_a_training_row(known: set[str], every: list[Case]) -> None:
    assert len(known) > TRAINED
    assert [] == [case.text for case in every if normal(case.text) in known]


def held_values_and_names_of_new_tools_are_in_no_training_row(trained: list[dict[str, object]]) -> None:
    names = [name for topic in UNSEEN for name in topic.names]
    words = [
        *values.HELD_CITIES,
        *values.HELD_PEOPLE,
        *tools.HELD_VERBS,
        *tools.HELD_NOUNS,
        *tools.HELD_MEMBERS,
        *names,
    ]
    assert [] == [word for word in words if not re.fullmatch(r"\w+", word)]
    texts = [json.dumps(row, ensure_ascii=False).replace("\\n", " ") for row in trained]
    said = {word for text in texts for word in re.findall(r"\w+", text.lower())}
    assert set() == said & {word.lower() for word in words}
    chinese = (*values.HELD_CITIES_ZH, *values.HELD_PEOPLE_ZH)
    assert [] == [name for text in texts for name in chinese if name in text]


def the_suites_have_their_sizes(every: list[Case]) -> None:
    assert {"held": 300, "unseen": 100, "free": 60} == Counter(case.suite for case in every)
    assert HELD_COUNTS == Counter(case.kind for case in every if case.suite == "held")
    assert UNSEEN_COUNTS == Counter(case.kind for case in every if case.suite == "unseen")


def arguments_that_are_wanted_are_what_the_tools_declare(every: list[Case]) -> None:
    for case in every:
        declared = {tool["function"]["name"]: tool["function"]["parameters"] for tool in case.row.get("tools", [])}
        for name, arguments in case.calls:
            schema = {"additionalProperties": False, **declared[name]}
            jsonschema_rs.validator_for(schema).validate(arguments)


@pytest.mark.deep
def test_the_lines_that_are_told_apart_are_those_of_training() -> None:
    first = map(json.loads, islice(rows.rows(TRAINED), 500))
    assert [] == [text for row in first for text in said(row) if not fits(text)]


@pytest.mark.deep
def test_each_line_has_an_expression_that_tells_its_texts() -> None:
    known = {one.line: one for one in lines()}
    for topic in (*TOPICS, *MORE, *UNSEEN):
        random = Random(topic.name)
        for line, zh in [*((line, False) for line in topic.asks), *((line, True) for line in topic.asks_zh)]:
            values = tools._values(topic, random, zh, held=False)
            text = say(line, tools._spoken(topic, values) if zh else values, random)
            assert known[line].makes(text), f"{topic.name}: {text}"


@pytest.mark.deep
def test_no_line_of_training_makes_a_request_that_was_written_by_hand() -> None:
    assert sorted(FAMILIAR) == sorted(case.text for case in cases.free() if fits(case.text, made=False))


def test_held_values_are_in_no_list_of_training() -> None:
    held = {*values.HELD_CITIES, *values.HELD_CITIES_ZH, *values.HELD_PEOPLE}
    known = {*values.CITIES, *values.CITIES_ZH, *values.PEOPLE, *values.PEOPLE_ZH}
    assert set() == held & known
    assert set() == {*values.HELD_PEOPLE_ZH} & known
    assert set() == {*tools.HELD_VERBS} & {*values.VERBS}
    assert set() == {*tools.HELD_NOUNS} & {*values.NOUNS}
    assert set() == {*tools.HELD_MEMBERS} & {*tools.MEMBERS}


def test_names_of_new_tools_are_names_of_no_trained_tool() -> None:
    trained = {name for topic in (*TOPICS, *MORE) for name in topic.names}
    assert set() == trained & {name for topic in UNSEEN for name in topic.names}


def test_a_free_request_holds_the_texts_that_its_calls_have() -> None:
    for case in cases.free():
        for _, arguments in case.calls:
            assert [] == [value for value in arguments.values() if str(value) not in case.text and value != "off"], case


# Judging.


def perfect(row: dict[str, object]) -> list[tuple[Case, str]]:
    """The steps of a row, and what a perfect model writes in each: the rest of the transcript up to a stop."""
    known = turnscript.get_format(recipe.FORMAT)
    messages = row["messages"]
    assert isinstance(messages, list)
    for message in messages:
        message["content"] = message["content"] or "One moment."  # a prompt begins a text, so a model always says one
    whole = str(known.render(turnscript.parse({"model": "m", **row}, "openai-chat"), view="prompt").value)
    made = []
    for case in cases.steps("held", row):
        prompt = known.prompt(case.request, thinking=case.thinks)
        assert whole.startswith(prompt.text)
        rest = whole[len(prompt.text) :]
        ends = [rest.find(stop) for stop in prompt.stops if stop in rest]
        made.append((case, rest[: min(ends, default=len(rest))]))
    return made


def answered(text: str, prompt: str, stops: Sequence[str]) -> str:
    """A model that always writes the same."""
    return text


@pytest.mark.parametrize("number", range(60))
def test_a_perfect_answer_is_exact_and_a_changed_one_is_not(number: int) -> None:
    for case, right in perfect(conversation(Random(f"judge:{number}"))):
        outcome = evaluate.judge(case, partial(answered, right))
        assert outcome.exact, outcome
        wanted = next(iter(case.calls[0][1].values())) if case.calls else case.answer
        changed = right.replace(str(wanted), f"{wanted}7")
        assert not evaluate.judge(case, partial(answered, changed)).exact


def test_a_call_beside_an_answer_is_wrong() -> None:
    row = {"messages": [{"role": "user", "content": "Hi"}], "tools": [cases.plain(TOPICS[0])]}
    case = Case("held", "talk", row, answer="Hello!")
    assert evaluate.judge(case, lambda prompt, stops: "Hello!\n<<ASSISTANT_END>>\n\n").exact
    called = 'Hello!\n<<ASSISTANT_END>>\n\n<<TOOL_CALL name="get_weather" id="call_1">>\n{}\n<<END_TOOL_CALL>>'
    assert not evaluate.judge(case, lambda prompt, stops: called).exact


def test_numbers_and_texts_are_not_the_same_and_the_order_of_members_does_not_count() -> None:
    row = {"messages": [{"role": "user", "content": "Hi"}], "tools": [cases.plain(TOPICS[0])]}
    case = Case("held", "one call", row, (("get_weather", {"city": "1", "unit": "2"}),))

    def judged(arguments: str) -> bool:
        text = f'One moment.\n<<ASSISTANT_END>>\n\n<<TOOL_CALL name="get_weather" id="call_1">>\n{arguments}'
        return evaluate.judge(case, lambda prompt, stops: f"{text}\n<<END_TOOL_CALL>>\n\n").exact

    assert judged('{"unit":"2","city":"1"}')
    assert not judged('{"unit":2,"city":"1"}')
    assert not judged('{"city":"1"}')
