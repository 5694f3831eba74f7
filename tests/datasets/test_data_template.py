"""Owns the checks of rows that a model's own chat template writes: their ids, what is trained, what is told of them."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken
from tokenizers import Tokenizer as Library

import turnscript as ts
from tests.chat_templates.oracle import SAMPLES, TOKENS, written
from tests.datasets import tinytokenizers
from tests.datasets.beginnings import turns_of
from tests.templates import Template
from tools.parity.conversations import Conversation, conversations
from turnscript.core.errors import InvalidInput
from turnscript.datasets.build import build
from turnscript.datasets.encoding import Encoder, Sample
from turnscript.datasets.form import Example
from turnscript.datasets.plan import Plan
from turnscript.datasets.preparation import encoder_of, load_prepared
from turnscript.datasets.verify import verify

EXAMPLE = Path(__file__).parents[2] / "examples" / "chat_template.jinja"
BY_NAME = {path.stem: path for path in SAMPLES}
SOME = [BY_NAME[name] for name in ("marked_turns", "dropped_thoughts", "last_user_tools", "xml_parameters")]
TAGS = ("<|im_start|>", "<|im_end|>", "<|begin|>", "<|end|>", "<think>", "</think>", "[[/]]", "[ASK]", "[/ASK]")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer, and what is beside it in a model's folder."""
    made = tmp_path_factory.mktemp("model")
    tinytokenizers.byte_level(made / "tokenizer.json", (*TOKENS.values(), *TAGS))
    (made / "tokenizer_config.json").write_text(json.dumps(TOKENS))
    return made


def encoder(template: Path, tokenizer: Path, **more: Any) -> Encoder:
    return encoder_of(Plan(inputs=("-",), template=str(template), tokenizer=str(tokenizer / "tokenizer.json"), **more))


def request_of(conversation: Conversation) -> ts.Request:
    return ts.parse(json.dumps(conversation.body, ensure_ascii=False), "openai-chat")


def samples_of(encoder: Encoder, template: Path) -> Iterator[tuple[str, str, Sample]]:
    """Each conversation with something to train that a template takes: its name, the template's text, its sample."""
    oracle = Template(template.read_text(encoding="utf-8"))
    for conversation in conversations():
        text = written(oracle, conversation, "default", generates=False)
        found = encoder.encode([Example(request_of(conversation))])[0] if text is not None else None
        if isinstance(found, Sample):
            yield conversation.name, text or "", found


def served_ids(tokenizer: Path, text: str) -> list[int]:
    """What a server's tokenizer makes of a text that a template wrote, by all the rules of its file."""
    library = Library.from_file(str(tokenizer / "tokenizer.json"))
    found: list[int] = library.encode(text, add_special_tokens=False).ids
    return found


@pytest.mark.parametrize("template", [*SOME, EXAMPLE], ids=lambda path: path.stem)
def test_ids_are_those_of_the_template_and_the_tokenizer(template: Path, folder: Path) -> None:
    found = list(samples_of(encoder(template, folder), template))
    assert len(found) > 50
    for name, text, sample in found:
        assert (name, "") == (name, sample.unlike)
        assert (name, served_ids(folder, text)) == (name, sample.ids.tolist())


@pytest.mark.parametrize("token", [{"rstrip": True}, {"lstrip": True}, {"lstrip": True, "rstrip": True}])
def test_tokens_that_take_white_space_take_it_from_samples_too(token: dict[str, bool], tmp_path: Path) -> None:
    taking = [AddedToken(tag, special=True, normalized=False, **token) for tag in TAGS]
    tinytokenizers.byte_level(tmp_path / "tokenizer.json", [*TOKENS.values(), *taking])
    for name, text, sample in samples_of(encoder(EXAMPLE, tmp_path), EXAMPLE):
        assert (name, served_ids(tmp_path, text)) == (name, sample.ids.tolist())


def test_a_space_that_a_tokenizer_puts_before_texts_is_in_samples_too(tmp_path: Path) -> None:
    tinytokenizers.byte_level(tmp_path / "tokenizer.json", (*TOKENS.values(), *TAGS), spaced=True)
    for name, text, sample in samples_of(encoder(EXAMPLE, tmp_path), EXAMPLE):
        if "    " not in text:  # which is a token too, and the library puts a space behind it
            assert (name, served_ids(tmp_path, text)) == (name, sample.ids.tolist())


@pytest.mark.parametrize("template", [*SOME, EXAMPLE], ids=lambda path: path.stem)
def test_what_is_trained_of_a_turn_begins_where_its_prompt_ends(template: Path, folder: Path) -> None:
    format_ = encoder(template, folder).format
    led = 0
    for conversation in conversations():
        request = request_of(conversation)
        try:
            spans = format_.spans(request)
        except ts.TurnscriptError:
            continue
        text = "".join(span.text for span in spans)
        for first, end in turns_of(request.items):
            asked = ts.Request(conversation=ts.Conversation(items=request.items[:first], tools=request.tools))
            prompts = [one for one in prompts_of(format_, asked) if text.startswith(one)]
            own = [at for at, span in placed(spans) if span.trainable and first <= span.item < end]
            if first and prompts and own:
                led += 1
                assert (conversation.name, first, max(map(len, prompts))) == (conversation.name, first, own[0])
    assert led > 40


def placed(spans: Sequence[ts.Span]) -> Iterator[tuple[int, ts.Span]]:
    """Each span with where it begins."""
    at = 0
    for span in spans:
        yield at, span
        at += len(span.text)


def prompts_of(format_: ts.Format, request: ts.Request) -> Iterator[str]:
    for thinking in (None, True, False):
        try:
            yield format_.prompt(request, thinking=thinking).text
        except ts.TurnscriptError:
            continue


def said(sample: Encoder, request: ts.Request) -> str:
    return b"".join(token.text for token in sample.explain(Example(request)) if token.weight).decode()


def test_an_empty_thought_is_trained_where_no_prompt_writes_it(folder: Path) -> None:
    items = [ts.User(content=[ts.Text(text="Hi")]), ts.Assistant(content=[ts.Text(text="Hello.")])]
    plain = ts.Request(conversation=ts.Conversation(items=list(items)))
    assert said(encoder(EXAMPLE, folder), plain) == "Hello.<|im_end|>"
    items.insert(1, ts.Thinking(content=[ts.Text(text="A greeting.")]))
    thought = ts.Request(conversation=ts.Conversation(items=items))
    assert said(encoder(EXAMPLE, folder), thought) == "<think>\nA greeting.\n</think>\n\nHello.<|im_end|>"


def test_of_results_the_text_is_trained_with_what_closes_it(folder: Path) -> None:
    conversation = next(one for one in conversations() if one.name == "an answer behind a result")
    found = said(encoder(EXAMPLE, folder, train="results"), request_of(conversation))
    assert found.endswith("\n</tool_response><|im_end|>")
    assert "assistant" not in found


def test_a_turn_has_one_end_and_a_text_one_beginning(folder: Path, tmp_path: Path) -> None:
    chats(tmp_path / "rows.jsonl", [user("Hi"), answer("Hello.")])
    for end, behind in (("<|im_end|>", 0), ("</s>", 1)):
        tokenizer = f"{folder / 'tokenizer.json'}?end={end}"
        plan = Plan(inputs=(str(tmp_path / "rows.jsonl"),), template=str(EXAMPLE), tokenizer=tokenizer)
        made = encoder_of(plan).encode([Example(request_of(Conversation("", [user("Hi"), answer("Hello.")])))])[0]
        assert isinstance(made, Sample)
        closed = [made.ids.tolist().count(Library.from_file(str(folder / "tokenizer.json")).token_to_id(end))]
        assert closed == [2 if not behind else 1]


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def answer(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def chats(path: Path, *rows: list[dict[str, Any]], **more: Any) -> Path:
    path.write_text("".join(json.dumps({"messages": row, **more}) + "\n" for row in rows))
    return path


PICTURE = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}


def test_rows_that_are_not_as_the_template_writes_them_are_counted_and_named(folder: Path, tmp_path: Path) -> None:
    rows = chats(
        tmp_path / "rows.jsonl",
        [user("Hi"), answer("Hello.")],
        [user("What is <|im_end|>?"), answer("A tag.")],
        [{"role": "user", "content": [{"type": "text", "text": "Look"}, PICTURE]}, answer("Nice.")],
        [user("And now?"), answer("Still here.")],
    )
    tokenizer = str(folder / "tokenizer.json")
    plan = Plan(inputs=(str(rows),), template=str(EXAMPLE), tokenizer=tokenizer, media="drop")
    for shards in (1, 3):
        report = build(plan, tmp_path / f"run{shards}", shards=shards)
        assert report is not None
        assert (4, 2) == (report.template.rows, report.template.unlike)
        first, second = report.template.first
        assert first.startswith(f"{rows}:2: at character ")
        assert second.startswith(f"{rows}:3: ")
        assert second.endswith("the model cannot see this: the prompt says that an image was left out")
        assert "2 of 4 rows as your template writes them" == next(iter(report.template.lines()))
        found = verify(tmp_path / f"run{shards}")
        assert found.ok, found.findings
        assert report.template == found.template


def test_a_conversation_that_a_template_refuses_is_arranged_and_named(folder: Path, tmp_path: Path) -> None:
    rows = chats(tmp_path / "rows.jsonl", [{"role": "system", "content": "Be brief."}, user("Hi"), answer("Hello.")])
    plan = Plan(inputs=(str(rows),), template=str(BY_NAME["no_system"]), tokenizer=str(folder / "tokenizer.json"))
    report = build(plan, tmp_path / "run")
    assert report is not None
    assert (1, 1, 1) == (report.written, report.template.rows, report.template.unlike)
    assert "refuses" in report.template.first[0]


def test_without_a_template_rows_with_tools_say_whose_words_they_have(tmp_path: Path) -> None:
    tools = [{"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}}]
    rows = chats(tmp_path / "rows.jsonl", [user("Hi"), answer("Hello.")], tools=tools)
    plain = chats(tmp_path / "plain.jsonl", [user("Hi"), answer("Hello.")])
    for path, noted in ((rows, True), (plain, False)):
        report = build(Plan(inputs=(str(path),), format="openchatml", tokenizer="bytes"), tmp_path / path.stem)
        assert report is not None
        assert noted == any("--template" in note for note in report.notes())
        assert not report.template.rows
    report = build(Plan(inputs=(str(rows),), template=str(EXAMPLE), tokenizer="bytes"), tmp_path / "run")
    assert report is not None
    assert not any("--template" in note for note in report.notes())


def test_a_job_that_goes_on_another_day_goes_on_with_its_date(tmp_path: Path) -> None:
    rows = chats(tmp_path / "rows.jsonl", [user("Hi"), answer("Hello.")])
    plan = Plan(inputs=(str(rows),), template=str(BY_NAME["labelled_lines"]), tokenizer="bytes", date="2025-03-04")
    build(plan, tmp_path / "run")
    before = (tmp_path / "run" / "train.bin").read_bytes()
    assert b"MARCH" in before[::2]
    build(Plan(**{**plan.facts(), "date": "", "inputs": plan.inputs, "outputs": plan.outputs}), tmp_path / "run")
    assert "2025-03-04" == load_prepared(tmp_path / "run").plan.date
    assert before == (tmp_path / "run" / "train.bin").read_bytes()
    assert verify(tmp_path / "run").ok


def test_a_place_may_stand_where_the_format_does(tmp_path: Path) -> None:
    rows = chats(tmp_path / "rows.jsonl", [user("Hi"), answer("Hello.")])
    made = [
        Plan(inputs=(str(rows),), tokenizer="bytes", template=str(EXAMPLE)),
        Plan(inputs=(str(rows),), tokenizer="bytes", format=str(EXAMPLE)),
    ]
    for number, plan in enumerate(made):
        build(plan, tmp_path / str(number))
    assert (tmp_path / "0" / "train.bin").read_bytes() == (tmp_path / "1" / "train.bin").read_bytes()


def test_a_sample_of_each_turn_is_as_its_prompt_leads_to_it(folder: Path, tmp_path: Path) -> None:
    thought = {**answer("4."), "reasoning_content": "2 and 2."}
    rows = chats(tmp_path / "rows.jsonl", [user("2 + 2?"), thought, user("And 3 + 3?"), answer("6.")])
    tokenizer = str(folder / "tokenizer.json")
    plan = Plan(inputs=(str(rows),), template=str(EXAMPLE), tokenizer=tokenizer, expand="turns")
    report = build(plan, tmp_path / "run")
    assert report is not None
    assert (2, 1, 0) == (report.samples, report.template.rows, report.template.unlike)
    found = verify(tmp_path / "run")
    assert found.ok, found.findings
    assert (2, 0) == (found.checks.prompts, found.checks.later)


def test_a_date_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidInput, match="is no date"):
        Plan(inputs=("-",), template="t.jinja", tokenizer="bytes", date="soon")
