"""Owns the checks of telling a file's form: a clear majority wins, and a doubt is a refusal that says what to do."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import turnscript as ts
from tests.datasets.jobs import built, plan_for, rejects, written
from tests.datasets.samples import GUESSED, WITH_FILES, files_of, rows_of, samples_of, what_is_said
from turnscript.apis.api import Api
from turnscript.convert.registry import apis, named_formats
from turnscript.core.events import unfold
from turnscript.datasets import form_registry
from turnscript.datasets.form import TRANSCRIPT, Example, Form
from turnscript.datasets.form_detection import MOST, Verdict, detect_form
from turnscript.datasets.forms import api_logs
from turnscript.datasets.opened import open_rows
from turnscript.datasets.problems import BadRow, Code, Problem
from turnscript.datasets.rows import RawRow

CHAT = {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo"}]}
SHARED = {"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Yo"}]}
ODD = {"dialog": [{"who": "a", "said": "Hi"}]}


def detect(*rows: Any, file: str = "rows.jsonl") -> Verdict:
    data = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
    return detect_form([RawRow(file, number, 0, one) for number, one in enumerate(data, 1)], file)


def test_the_verdict_says_how_many_rows_fit_and_what_was_found() -> None:
    verdict = detect(*[CHAT] * 9, ODD)
    assert ("messages", 0.9, 10, "") == (verdict.form, verdict.share, verdict.rows, verdict.refusal)
    assert verdict.reasons == ["9 of 10 rows: messages with role and content"]


def test_a_row_is_read_once_for_all_apis(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them ask the same of it, and a file of long logs would take several times as long."""
    asked: list[str] = []
    can_answer = api_logs._can_answer

    def counted(api: Api, log: Any) -> bool:
        asked.append(api.name)
        return can_answer(api, log)

    monkeypatch.setattr(api_logs, "_can_answer", counted)
    assert "messages" == detect(*[CHAT] * 5).form
    assert sorted(apis() * 5) == sorted(asked)


@pytest.mark.parametrize("name", GUESSED)
def test_a_record_without_the_members_of_a_form_is_none_of_it(name: str) -> None:
    form = form_registry.get_form(name)
    records = [json.loads(row.data) for other in WITH_FILES for path in files_of(other) for row in _records(path)]
    assert len(records) > 40
    for record in records:
        rest = {key: value for key, value in record.items() if key not in form.members}
        assert not form.members or not form.score(rest)[0]


@pytest.mark.parametrize("name", WITH_FILES)
def test_whoever_is_asked_the_verdict_is_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [(samples_of(path), str(path)) for path in files_of(name)]
    quickly = [detect_form(*file) for file in files]
    for each in {type(form_registry.get_form(other)) for other in GUESSED}:
        monkeypatch.setattr(each, "members", frozenset())
    assert quickly == [detect_form(*file) for file in files]


def _records(path: Path) -> list[RawRow]:
    return [row for row in samples_of(path) if row.data[:1] == b"{"]


@pytest.mark.parametrize(("good", "told"), [(7, True), (6, False)])
def test_less_than_two_thirds_is_no_clear_majority(good: int, told: bool) -> None:
    verdict = detect(*[CHAT] * good, *[ODD] * (10 - good))
    assert told == bool(verdict.form)
    if not told:
        assert "only 6 of 10 rows" in verdict.refusal
        assert verdict.runners_up == [("messages", 0.6)]


def test_a_shape_that_nobody_knows_is_refused_with_its_members_and_a_remedy() -> None:
    refusal = detect(ODD, ODD, {"dialog": [], "id": 1}).refusal
    for piece in ("rows.jsonl", "no form fits", "'dialog' (3)", "'id' (1)", "--from FORM", "--map FILE"):
        assert piece in refusal


def test_two_forms_in_one_file_are_refused() -> None:
    verdict = detect(*[CHAT] * 5, *[SHARED] * 5)
    assert verdict.form == ""
    assert {"messages", "sharegpt"} == {name for name, _ in verdict.runners_up}
    hardly = detect(*[CHAT] * 95, *[SHARED] * 5)
    assert (hardly.form, "sharegpt fits 5 of 100 better" in hardly.refusal) == ("", True)


def test_a_stray_row_of_another_form_does_not_spoil_a_file() -> None:
    assert detect(*[CHAT] * 99, SHARED).form == "messages"


def test_plain_turns_among_tagged_calls_are_refused_until_somebody_names_the_form() -> None:
    tagged = [json.loads(row) for row in rows_of("hermes") if b"conversations" in row]
    verdict = detect(*[SHARED] * 8, *tagged)
    assert verdict.form == ""
    assert "hermes" in verdict.refusal


def test_unknown_roles_are_named() -> None:
    row = {"conversations": [{"from": "customer", "value": "Hi"}, {"from": "agent", "value": "Yo"}]}
    verdict = detect(row, row)
    assert verdict.form == ""
    assert "'customer'" in verdict.refusal
    assert "'robot'" in detect({"messages": [{"role": "robot", "content": "x"}]}).refusal


def test_members_that_a_form_does_not_read_make_it_doubtful() -> None:
    row = {"instruction": "a", "input": "", "output": "b", "passage": "c"}
    verdict = detect(row)
    assert verdict.form == ""
    assert "also passage" in verdict.refusal


@pytest.mark.parametrize(
    ("row", "form"),
    [
        (CHAT | {"id": 1, "model": "m"}, "messages"),
        (CHAT | {"system": "x"}, "messages"),
        (CHAT | {"text": "copy"}, ""),
        ({"instruction": "a", "output": "b"}, "alpaca"),
        ({"question": "a", "answer": "b"}, "prompt-completion"),
        ({"question": "a", "answer": 3, "choices": ["x"]}, ""),
        ({"text": "a", "label": 1}, "text"),
        ({"prompt": "a"}, ""),
        ({"input": "a", "output": "b"}, "prompt-completion"),
        ({"a": 1}, ""),
        ({}, ""),
    ],
)
def test_single_shapes(row: dict[str, Any], form: str) -> None:
    assert detect(row).form == form


@pytest.mark.parametrize("name", ["openai-chat", "anthropic-messages"])
def test_a_recorded_stream_tells_whose_request_it_answers(name: str) -> None:
    """The request says nothing that only one API has."""
    request = {"model": "m", "max_tokens": 9, "messages": CHAT["messages"][:1]}
    answer = ts.Response(items=[ts.Assistant(content=[ts.Text(text="Yo")])], finish_reason="stop")
    renderer = ts.get_api(name).stream_renderer(ts.parse(request, name))
    stream = (renderer.send(unfold(answer)) + renderer.close()).decode()
    assert name == detect(*[{"request": request, "response": stream}] * 3).form
    assert "openai-chat" == detect(*[{"request": request, "response": "data: what nobody knows\n\n"}] * 3).form


LOGGED = [json.loads(row) for row in rows_of("api-logs")]


def test_a_log_of_several_apis_is_told_row_by_row() -> None:
    """Even if hardly a row is of another one; a log of one API stays that one's."""
    chat, message = LOGGED[:2]
    assert ("api-logs", "") == (detect(*LOGGED).form, detect(*LOGGED).refusal)
    assert "api-logs" == detect(*[chat] * 40, *[message] * 3).form
    assert "openai-chat" == detect(*[chat] * 40).form
    assert "" == detect(*[chat] * 5, *[SHARED] * 5).form
    assert "" == detect(*LOGGED, *[SHARED] * 2).form


def test_a_row_that_names_its_endpoint_is_of_that_api() -> None:
    """Nothing else tells a bare request of Messages from one of Chat."""
    row = {"endpoint": "https://x/v1/messages?beta=true", "body": {"model": "m", "max_tokens": 9, **CHAT}}
    verdict = detect(row, row)
    assert ("api-logs", ["2 of 2 rows: a request that names /v1/messages"]) == (verdict.form, verdict.reasons)
    (example,) = form_registry.get_form("api-logs").read(json.dumps(row).encode())
    assert ts.get_api("anthropic-messages").origin == example.request.origin
    assert "openai-chat" == detect({"url": "/v1/chat/completions", "body": {"model": "m", **CHAT}}).form


def test_a_row_that_two_apis_could_mean_is_refused() -> None:
    each = [form for form in map(form_registry.get_form, apis()) if isinstance(form, api_logs.ApiLog)]
    form = api_logs.ApiLogs([*each, *each])
    with pytest.raises(BadRow) as caught:
        form.read(json.dumps(LOGGED[0]).encode())
    assert Code.FORM == caught.value.reason
    assert "--from openai-chat" in str(caught.value)
    assert 0.3 == form.score(LOGGED[0])[0]


def test_only_the_first_rows_are_looked_at() -> None:
    assert detect(*[CHAT] * MOST, *[SHARED] * MOST).rows == MOST


def test_rows_that_cannot_be_read_do_not_vote() -> None:
    verdict = detect(CHAT, b"{", b"", b"\xff", b'"x"', b"[" * 9000)
    assert ("messages", 1) == (verdict.form, verdict.rows)
    bad = RawRow("x.jsonl", 1, 0, b"{", Problem(Code.TRUNCATED, "the file ends in the middle"))
    assert "the file ends in the middle" in detect_form([bad], "x.jsonl").refusal
    assert "x.jsonl: it is empty: there is no row in it" == detect_form([], "x.jsonl").refusal
    assert "it is empty" in detect(b" \n").refusal


@pytest.mark.parametrize("name", [name for name in named_formats() if form_registry.get_form(name).row == TRANSCRIPT])
def test_a_text_is_taken_for_a_transcript_only_if_somebody_says_so(name: str) -> None:
    """Nor for a plain text, of which every token would be trained, be it a file or a member of rows.

    Mistral's are those of Llama 2 too, and either form reads the same of them.
    """
    request = ts.parse(CHAT, "openai-chat")
    text = str(ts.render(request, name).value)
    for plain, verdict in {
        "text-file": detect(text.encode(), file="a.txt"),
        "text": detect({"text": text}, {"text": text}, {"text": "Once upon a time."}),
    }.items():
        if verdict.form:
            both = [form_registry.get_form(one).read(text.encode()) for one in (verdict.form, name)]
            assert what_is_said(both[0]) == what_is_said(both[1])
            continue
        assert name in re.split(r"[ ,)]+", verdict.refusal)
        assert f"--from {plain})" in verdict.refusal


def test_a_few_texts_that_begin_like_transcripts_are_texts() -> None:
    rows = [{"text": "User: Hi\n\nAssistant: Yo"}, *[{"text": "Once upon a time."}] * 3]
    assert "text" == detect(*rows).form


@pytest.mark.parametrize("text", ["[note] All is well.", "[gMASK]<sop>", "Once upon a time."])
def test_a_file_of_text_is_that_by_its_name(text: str) -> None:
    assert "text-file" == detect(text.encode(), file="a.txt").form
    assert text[:9] in detect(text.encode(), file="a.jsonl").refusal
    assert "" == detect(b'{"a": ', file="a.txt").form
    assert "" == detect(b'["a", ', file="a.txt").form


@pytest.mark.parametrize("value", [None, 1, "x", [], {}, [[]], [None], [{"role": 1}], {"a": {}}])
def test_odd_values_under_known_names_are_never_an_error(value: Any) -> None:
    for key in (
        "messages",
        "conversations",
        "prompt",
        "chosen",
        "text",
        "segments",
        "request",
        "input",
        "chat",
        "traj",
    ):
        detect({key: value, "rejected": value, "response": value, "completion": value})


@pytest.mark.parametrize("kind", [None, 1, [], ["text"], {}, {"a": 1}])
def test_a_part_of_an_odd_type_is_never_an_error(kind: Any) -> None:
    messages = [{"role": "user", "content": [{"type": kind, "text": "Hi"}]}]
    assert "" == detect({"messages": messages}).form
    assert "" == detect({"prompt": messages, "completion": messages}).form


class Broken(Form):
    """A form with a defect."""

    name, title, fields = "broken", "Broken", "any"

    def score(self, record: Mapping[str, Any]) -> tuple[float, str]:
        raise KeyError("score")

    def read(self, data: bytes) -> list[Example]:
        raise TypeError("read")


@pytest.fixture
def broken() -> Iterator[None]:
    form_registry._forms()["broken"] = Broken()
    yield
    form_registry._forms.cache_clear()


@pytest.mark.usefixtures("broken")
def test_a_form_that_fails_on_a_row_has_no_vote() -> None:
    assert ("messages", "") == (detect(CHAT).form, detect(CHAT).refusal)


@pytest.mark.usefixtures("broken")
def test_a_row_on_which_its_form_fails_is_set_aside_as_a_defect(tmp_path: Path) -> None:
    file = written(tmp_path / "a.jsonl", [b'{"a": 1}'])
    report = built(plan_for(file, form="broken"), tmp_path / "out")
    (aside,) = rejects(tmp_path / "out")
    assert (0, 1, "E_INTERNAL") == (report.written, report.rejects, aside["code"])
    assert aside["message"] == "turnscript failed on it (TypeError: read); please report this row"
    (row,) = open_rows(str(file), "broken")
    assert row.problem is not None
    assert Code.INTERNAL == row.problem.code


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (b'{"messages": "h\xe9"}', "column 16: byte 0xe9 is not UTF-8"),
        (b'{"messages": [', "column 15: not valid JSON: the input ends in the middle of a value"),
    ],
)
def test_a_row_that_would_be_an_object_says_why_it_is_none(row: bytes, told: str) -> None:
    refusal = detect(row, row).refusal
    assert f": no row is a JSON object; the first is none: {told}" in refusal
    assert "transcript" not in refusal


TURNS = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo"}]


@pytest.mark.parametrize(
    ("row", "typo", "meant", "form"),
    [
        ({"mssages": TURNS}, "mssages", "messages", "messages"),
        ({"Messages": TURNS}, "Messages", "messages", "messages"),
        ({"messages": [{"rol": "user", "content": "Hi"}]}, "rol", "role", "messages"),
        ({"conversations": [{"form": "human", "value": "Hi"}]}, "form", "from", "sharegpt"),
        ({"instruction": "a", "outputt": "b", "id": 7}, "outputt", "output", "alpaca"),
        ({"prompt": "a", "chosn": "b", "rejected": "c"}, "chosn", "chosen", "preference"),
        ({"textt": "Once upon a time."}, "textt", "text", "text"),
    ],
)
def test_a_typo_in_a_key_names_the_form_that_it_nearly_is(row: Any, typo: str, meant: str, form: str) -> None:
    verdict = detect(row, row)
    assert "" == verdict.form
    told = f"{typo!r} is nearly {meant!r}, and with that they would be of the form {form}; name the form"
    assert told in verdict.refusal


def test_what_is_nearly_nothing_says_nothing_of_it() -> None:
    deep: Any = []
    for _ in range(500):
        deep = [deep]
    for row in (ODD, {"a": 1}, {"mssages": deep}, {f"mssages{at}": at for at in range(3000)}):
        assert "nearly" not in detect(row).refusal


def test_one_row_is_not_called_rows() -> None:
    assert ["1 of 1 row: messages with role and content"] == detect(CHAT).reasons
    assert "members of 1 row: " in detect({"odd": 1}).refusal
