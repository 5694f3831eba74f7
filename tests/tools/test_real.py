"""Owns `make real`: verdicts are right about answers right and wrong, tasks can be solved, a run tells what came."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

import turnscript as ts
from tools.real.__main__ import INTERRUPTED, main
from tools.real.rounds import MODES, Outcome, Round
from tools.real.schemas import CASES, verdict_of
from tools.real.systems import APIS, Answer, Systems
from tools.real.tasks import FILE, KINDS, Step, Task, Tasks, chosen, read_tasks
from tools.real.verdicts import Call, Made, check, fits, judge_calls, judge_text
from turnscript.core.conversation import text_content
from turnscript.gateway import shipped

TASKS = read_tasks()
RIGHT: dict[str, Any] = {"exact": lambda value: value, "any": lambda values: values[0], "has": lambda words: words[0]}


@pytest.mark.parametrize(
    ("checker", "right", "wrong"),
    [
        ("Paris", ["Paris", " paris "], ["Pari", None, 1]),
        (5, [5, 5.0], ["5", 6, True]),
        (True, [True], [1, "true", False]),
        (1, [1], [True]),
        ({"exact": "km"}, ["km"], ["KM", " km"]),
        ({"any": [100, "100"]}, [100, "100"], [1, "1000"]),
        ({"has": ["成都", "Chengdu"]}, ["四川成都", "chengdu, China"], ["Cheng", 1, None]),
        ({"match": r"\d+:\d\d"}, ["9:30"], ["9:30 h", 9]),
        ({"type": "integer"}, [0], [True, 1.5, "1"]),
        ({"type": "number"}, [0, 1.5], [True, "1"]),
        ({"type": "boolean"}, [False], [0]),
        ({"fields": {"a": 1, "b": {"optional": True, "any": [2]}}}, [{"a": 1}, {"a": 1, "b": 2}],
         [{}, {"a": 1, "b": 3}, {"a": 1, "c": 1}, [1]]),
        ({"list": ["a", {"type": "string"}]}, [["a", "x"]], [["x", "a"], ["a"], "ax"]),
        ({"set": ["a", "b"]}, [["b", "a"]], [["a", "a"], ["a", "b", "b"], {"a": 1}]),
        ({"set": [{"any": ["a", "b"]}, "a"]}, [["a", "b"], ["b", "a"], ["a", "a"]], [["b", "b"]]),
    ],
)  # fmt: skip
def test_a_checker_takes_what_it_says_and_nothing_else(checker: Any, right: list[Any], wrong: list[Any]) -> None:
    check(checker)
    assert [] == [value for value in right if not fits(checker, value)]
    assert [] == [value for value in wrong if fits(checker, value)]


@pytest.mark.parametrize(
    "checker", [{}, {"is": 1}, {"any": [1], "has": ["a"]}, {"list": [{"fields": {"a": {"is": 1}}}]}]
)
def test_what_is_no_checker_is_an_error(checker: Any) -> None:
    with pytest.raises(ValueError, match="a checker has one of exact, any, has"):
        check(checker)


def made(*calls: tuple[str, Any]) -> list[Made]:
    return [Made(name, value if isinstance(value, str) else json.dumps(value)) for name, value in calls]


OSLO, ROME = (
    Call("get_weather", {"city": city, "unit": {"optional": True, "any": ["c"]}}) for city in ("Oslo", "Rome")
)


def test_calls_may_come_in_any_order_and_the_verdict_tells_which_is_which() -> None:
    answer = made(("get_weather", {"city": "rome", "unit": "c"}), ("get_weather", {"city": "Oslo"}))
    verdict = judge_calls([OSLO, ROME], answer)
    assert (True, (1, 0)) == (verdict.right, verdict.order)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ([], "no call"),
        ([("get_time", {})], "calls get_time instead of get_weather"),
        ([("get_weather", {"city": "Rome"})], 'get_weather.city is "Rome"'),
        ([("get_weather", {})], "get_weather.city is missing"),
        ([("get_weather", {"city": "Oslo", "unit": "f"})], 'get_weather.unit is "f"'),
        ([("get_weather", {"city": "Oslo", "day": 1})], "get_weather.day was not asked for"),
        ([("get_weather", '{"city": "Os')], "are no JSON"),
        ([("get_weather", '["Oslo"]')], "are no object"),
        ([("get_weather", {"city": "Oslo"})] * 2, "2 calls instead of 1"),
    ],
)
def test_an_answer_with_wrong_calls_is_wrong_and_says_why(answer: Sequence[tuple[str, Any]], why: str) -> None:
    verdict = judge_calls([OSLO], made(*answer))
    assert not verdict.right
    assert why in verdict.why


@pytest.mark.parametrize(
    ("text", "calls", "why"),
    [
        ("It is PARIS.", [], ""),
        ("It is Rome.", [], "lacks Paris or Parigi"),
        (" \n", [], "neither a call nor text"),
        ("It is Paris.", [("get_weather", {})], "calls get_weather instead of text"),
        ('Paris {"name": "get_weather", "arguments": {}}', [], "a call of get_weather written as text"),
        ("Paris {'name': 'get_weather'}", [], "a call of get_weather written as text"),
        ("Paris <function=get_weather>", [], "a call of get_weather written as text"),
        ("Paris [get_weather(city='Paris')]", [], "a call of get_weather written as text"),
        ("Paris; the tool get_weather tells more.", [], ""),
        ('Paris {"name": "Nora"}', [], ""),
    ],
)
def test_an_answer_in_text_is_right_only_without_any_call(text: str, calls: list[tuple[str, Any]], why: str) -> None:
    verdict = judge_text([["Paris", "Parigi"]], made(*calls), text, ["get_weather"])
    assert (not why, True) == (verdict.right, why in verdict.why)


def test_there_are_enough_tasks_of_each_kind_and_each_offers_few_tools() -> None:
    kinds = [task.kind for task in TASKS.tasks]
    assert len(kinds) >= 40
    assert min(kinds.count(kind) for kind in KINDS) >= 8
    assert [] == [task.id for task in TASKS.tasks if not 2 <= len(task.tools) <= 4]
    assert all(any(step.is_asked for step in task.steps) for task in TASKS.tasks)


def test_a_few_tasks_are_of_all_kinds() -> None:
    assert list(KINDS) == [task.kind for task in chosen(TASKS.tasks, limit=4)]
    assert TASKS.tasks[0].id in [task.id for task in chosen(TASKS.tasks, [TASKS.tasks[0].id, "none"])]
    assert {"none"} == {task.kind for task in chosen(TASKS.tasks, ["none"])}
    assert [] == chosen(TASKS.tasks, ["no such task"])


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"kind": "odd"}, "no kind 'odd'"),
        ({"tools": ["no_tool"]}, "no tool 'no_tool'"),
        ({"steps": [{"say": "Hi"}]}, "one of calls, text and given"),
        ({"steps": [{"calls": [{"name": "t"}]}, {"text": []}]}, "each call needs a result"),
        ({"steps": [{"calls": [{"name": "u"}]}]}, "'u' is not offered"),
        ({"steps": [{"calls": [{"name": "t", "arguments": {"b": 1}}]}]}, "t has no argument 'b'"),
        ({"steps": [{"calls": [{"name": "t", "arguments": {"a": {"is": 1}}}]}]}, "a checker has one of"),
        ({"step": []}, "unknown field `step`"),
    ],
)
def test_a_task_that_nobody_could_solve_is_an_error(tmp_path: Path, change: dict[str, Any], why: str) -> None:
    task = {"id": "one", "kind": "single", "tools": ["t"], "steps": [{"say": "Hi", "text": []}]}
    tool = {"description": "", "parameters": {"type": "object", "properties": {"a": {}}}}
    file = tmp_path / "tasks.json"
    for tasks, right in (([task], True), ([task | change], False), ([task, task], False)):
        file.write_text(json.dumps({"tools": {"t": tool}, "tasks": tasks}), encoding="utf-8")
        if right:
            assert ["one"] == [one.id for one in read_tasks(file).tasks]
        else:
            with pytest.raises(ValueError, match=re.escape(why) if len(tasks) == 1 else "'one': there are two"):
                read_tasks(file)


def solved(checker: Any) -> Any:
    """A value that a checker takes."""
    if not isinstance(checker, dict):
        return checker
    (name,) = [one for one in checker if one != "optional"]
    said = checker[name]
    if name == "fields":
        return {key: solved(one) for key, one in said.items() if not (isinstance(one, dict) and one.get("optional"))}
    if name in ("list", "set"):
        return [solved(one) for one in said]
    return RIGHT[name](said)


class Solver:
    """A model that solves every task, but those steps whose number it is told to fail at. `asked`: its requests."""

    def __init__(self, fails: int = 0) -> None:
        self.asked: list[ts.Request] = []
        self._fails = fails
        self._steps: list[Step] = []

    def take(self, task: Task) -> None:
        self._steps = [step for step in task.steps if step.is_asked]

    def ask(self, system: str, request: ts.Request) -> Answer:
        self.asked.append(request)
        step = self._steps.pop(0)
        items: list[ts.Item] = [
            ts.ToolCall(name=call.name, arguments=json.dumps(solved({"fields": call.arguments})), id=f"c{number}")
            for number, call in enumerate(reversed(step.calls))
        ] or [ts.Assistant([ts.Text(" ".join(["So:", *(words[0] for words in step.text or [])]))])]
        if len(self.asked) == self._fails:
            return Answer(1.0, error="503: busy")
        return Answer(1.0, ts.Response(items=items, finish_reason="stop"), prompt="...", raw="...")


def outcomes(tasks: Sequence[Task], solver: Solver, modes: Sequence[str] = MODES) -> list[Outcome]:
    found: list[Outcome] = []
    for task in tasks:
        for mode in modes:
            one = Round(TASKS, [task], ["chat"], [mode], 100)
            solver.take(task)
            found += one.run(solver, lambda number, what: None)
    return found


def test_every_task_can_be_solved() -> None:
    assert [] == [(one.task, one.turns[-1].why) for one in outcomes(TASKS.tasks, Solver()) if not one.right]


def test_a_call_is_demanded_only_where_one_is_right() -> None:
    solver = Solver()
    found = outcomes(TASKS.tasks, solver, ["required"])
    assert {"single", "several", "multi-turn"} == {one.kind for one in found}
    for one in found:
        task = next(task for task in TASKS.tasks if task.id == one.task)
        asked = [step for step in task.steps if step.is_asked]
        assert ["required" if step.calls else "auto" for step in asked] == [turn.choice for turn in one.turns]


def test_results_stand_behind_the_calls_that_they_are_of() -> None:
    task = Task("two", "several", ["get_weather"], [
        Step(say="Oslo and Rome?", calls=[Call("get_weather", {"city": "Oslo"}), Call("get_weather", {"city": "Rome"})],
             results=[{"t": 1}, {"t": 30}]),
        Step(text=[["Rome"]]),
    ])  # fmt: skip
    solver = Solver()
    (one,) = outcomes([task], solver, ["auto"])
    assert one.right
    shown = [item for item in solver.asked[-1].conversation.items if not isinstance(item, ts.User)]
    calls = [json.loads(item.arguments)["city"] for item in shown if isinstance(item, ts.ToolCall)]
    told = [(item.id, text_content(item.content)) for item in shown if isinstance(item, ts.ToolResult)]
    assert (["Rome", "Oslo"], [("c0", '{"t": 30}'), ("c1", '{"t": 1}')]) == (calls, told)


def test_after_a_step_that_is_wrong_none_is_asked() -> None:
    task = next(task for task in TASKS.tasks if task.id == "contact-mail")
    (one,) = outcomes([task], Solver(fails=1), ["auto"])
    assert (False, ["no answer: 503: busy"]) == (one.right, [turn.why for turn in one.turns])


def test_a_model_is_asked_through_every_api_and_all_answers_are_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The tiny model of the package calls a tool for two cities; only its own format has the words that it knows."""
    kept = tmp_path / "answers.jsonl"
    options = ["--format", "rwkv-universal", "--tasks", "weather-now,two-cities", "--json", str(kept)]
    assert 0 == main([str(shipped.FILE), *options])
    shown = capsys.readouterr().out.splitlines()
    rows = {tuple(re.split("  +", line)[:2]): re.split("  +", line)[2:] for line in shown}
    for name in ("chat", "responses", "messages"):
        for mode in MODES:
            assert ["1 of 1", "1 of 1", "-", "-", "2 of 2"] == rows[f"turnscript {name}", mode][:5]
    assert ("llama.cpp", "auto") in rows
    found = [json.loads(line) for line in kept.read_bytes().splitlines()]
    assert 2 * len(APIS) * len(MODES) == len(found)
    turn = next(one for one in found if (one["system"], one["mode"]) == ("messages", "auto"))["turns"][0]
    assert "What is the weather in Lisbon" in turn["prompt"]
    assert "Lisbon" in turn["raw"]
    assert [{"name": "get_weather", "arguments": '{"city": "Lisbon"}'}] == turn["calls"]


@pytest.mark.deep
def test_twenty_schemas_are_asked_for_and_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By the tiny model, which writes what its grammar leaves it. An instance that came to its end is valid."""
    kept = tmp_path / "answers.jsonl"
    options = ["--schemas", "--tasks", "enum,tagged,below zero", "--format", "rwkv-universal", "--json", str(kept)]
    assert 0 == main([str(shipped.FILE), *options])
    shown = capsys.readouterr().out
    assert "3 schemas, 6 rounds" in shown
    assert re.search(r"^turnscript chat +3 of 3 +3 of 3 ", shown, re.MULTILINE), shown
    assert re.search(r"^llama.cpp +\d of 3 ", shown, re.MULTILINE)
    found = [json.loads(line) for line in kept.read_bytes().splitlines()]
    assert ["enum"] * 2 + ["tagged"] * 2 + ["below zero"] * 2 == [one["schema"] for one in found]
    assert all(json.loads(one["text"]) for one in found if one["valid"])


def test_an_answer_that_is_no_instance_says_why() -> None:
    case = next(case for case in CASES if case.name == "range")
    texts = {
        '{"stars": 5, "age": 30}': "",
        '{"stars": 6, "age": 30}': "not valid: ",
        "five": "no JSON: ",
        "{": "no JSON: ",
    }
    assert list(texts.values()) == [verdict_of(case, text, True)[: len(why) or 99] for text, why in texts.items()]
    assert "cut by the limit of tokens" == verdict_of(case, '{"stars": 5, "age": 30}', False)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "make real MODEL=file.gguf"),
        (["no.gguf", "--tasks", "no such"], "no task is called or of the kind no such"),
        (["no.gguf", "--file", "no.json"], "no.json"),
        (["no.gguf", "--schemas", "--tasks", "no such"], "no schema is called no such"),
    ],
)
def test_what_cannot_be_asked_is_told_in_a_sentence(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 2 == main(arguments)
    assert told in capsys.readouterr().err


@pytest.mark.deep
def test_ctrl_c_prints_what_is_there(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    asked = Systems.ask

    def ask(systems: Systems, system: str, request: ts.Request) -> Answer:
        if system == "responses":
            raise KeyboardInterrupt
        return asked(systems, system, request)

    monkeypatch.setattr(Systems, "ask", ask)
    options = ["--format", "rwkv-universal", "--tasks", "weather-now", "--modes", "auto"]
    assert INTERRUPTED == main([str(shipped.FILE), *options])
    shown = capsys.readouterr().out
    assert "interrupted after 2 of 4 rounds" in shown
    assert re.search(r"turnscript chat +auto +1 of 1 ", shown)
    assert re.search(r"turnscript responses +auto +- ", shown)


def test_a_file_that_is_no_model_is_told_in_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert 1 == main([str(FILE)])
    assert "is no GGUF file" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--only", "--modes"])
def test_names_that_there_are_not_are_refused(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["m.gguf", option, "auto,odd" if option == "--modes" else "chat,odd"])
    assert "'odd' is none of" in capsys.readouterr().err


def test_tasks_are_written_as_they_are_read() -> None:
    assert TASKS == msgspec.json.decode(msgspec.json.encode(TASKS), type=Tasks)
