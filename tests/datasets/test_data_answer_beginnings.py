"""Owns the checks of calls at once: trained is what a model must write at its prompt, and what a server reads."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import turnscript as ts
from tests import corpora
from tests.datasets.beginnings import calls_at_once, text_of, turns_of
from tests.datasets.jobs import built, documents, plan_for, written
from turnscript.convert.registry import load_formats, model_formats
from turnscript.core.json_spelling import shown
from turnscript.datasets import verify
from turnscript.datasets.encoding import Encoder, Sample
from turnscript.datasets.form import Example
from turnscript.datasets.form_registry import get_form
from turnscript.datasets.ordercheck import CALL_ALONE, SHOWN_ANEW
from turnscript.datasets.sample_checks import Checker
from turnscript.datasets.tokenizers import get_tokenizer
from turnscript.datasets.train import Train, parse_train
from turnscript.tableio import dump_format

UNIVERSAL = ts.get_format("rwkv-universal")
WORLD = get_tokenizer("rwkv-world")
USER = ts.User(content=[ts.Text(text="Weather?")])
CALL = ts.ToolCall(name="get", arguments='{"at": "Oslo"}', id="c1")
SECOND = ts.ToolCall(name="get", arguments='{"at": "Rome"}', id="c2")
RESULT = ts.ToolResult(content=[ts.Text(text="rain")], name="get", id="c1")
ANSWER = ts.Assistant(content=[ts.Text(text="Rain.")])
NOTHING = ts.Assistant(content=[ts.Text(text="")])
THOUGHT = ts.Thinking(content=[ts.Text(text="Hm.")])
BEFORE = "<<ASSISTANT>>\n<<ASSISTANT_END>>\n\n"


def talk(*items: ts.Item) -> ts.Request:
    tools = [ts.Tool(name=name) for name in dict.fromkeys(one.name for one in items if isinstance(one, ts.ToolCall))]
    return ts.Request(conversation=ts.Conversation(items=list(items), tools=tools))


def sampled(encoder: Encoder, example: Example) -> Sample:
    [found] = encoder.encode([example])
    assert isinstance(found, Sample), found
    return found


def text_in(encoder: Encoder, sample: Sample) -> str:
    ids = sample.ids[: len(sample.ids) - (encoder.end is not None)]
    return encoder.tokenizer.decode(ids.tolist()).decode()


def trained_in(encoder: Encoder, example: Example) -> str:
    return b"".join(token.text for token in encoder.explain(example) if token.weight).decode()


def test_a_call_at_once_is_trained_behind_the_answer_that_its_prompt_opens() -> None:
    """In the mode `text` too the ids of the prompt are a beginning: no token lies across where it ends."""
    encoder = Encoder(UNIVERSAL, WORLD, Train())
    example = Example(talk(USER, CALL, SECOND))
    sample = sampled(encoder, example)
    prompt = UNIVERSAL.prompt(asked(example.request, 1))
    assert prompt.text.endswith("<<USER_END>>\n\n<<ASSISTANT>>\n")
    calls = UNIVERSAL.render(talk(CALL, SECOND)).value.partition("\n\n")[2]
    assert prompt.text + f"<<ASSISTANT_END>>\n\n{calls}" == text_in(encoder, sample)
    ids = encoder.prompt_ids(prompt.spans)
    assert ids == sample.ids[: len(ids)].tolist()
    assert [0] * len(ids) == sample.weights[: len(ids)].tolist()
    assert sample.weights[len(ids) :].all()
    assert {"tool_call"} == {token.kind for token in encoder.explain(example) if token.weight} - {"end"}
    assert [0, 1, 2] == sorted({token.item for token in encoder.explain(example)} - {-1})


def asked(request: ts.Request, at: int) -> ts.Request:
    """What is asked before an item."""
    return ts.Request(conversation=ts.Conversation(items=request.items[:at], tools=request.tools))


LEFT_ALONE = {
    "a word before it": (USER, ANSWER, CALL),
    "a thought before it": (USER, THOUGHT, CALL),
    "no call": (USER, ANSWER),
    "a thought and a word": (USER, THOUGHT, ANSWER, CALL),
    "a name without a word": (USER, ts.Assistant(content=[ts.Text(text="")], name="Bot"), CALL),
}


@pytest.mark.parametrize("items", LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_where_a_prompt_leads_to_it_a_turn_is_as_it_is_rendered(items: tuple[ts.Item, ...]) -> None:
    encoder, example = Encoder(UNIVERSAL, WORLD, Train()), Example(talk(*items))
    assert UNIVERSAL.write(example.request).text == text_in(encoder, sampled(encoder, example))


AT_ONCE = {
    "first of all": ((CALL, RESULT, ANSWER), 1),
    "after a result": ((USER, CALL, RESULT, SECOND), 2),
    "in parallel": ((USER, CALL, SECOND, RESULT, ANSWER), 1),
    "after instructions": ((ts.System(content=[ts.Text(text="Be brief.")]), CALL), 1),
    "after a thought of an earlier turn": ((USER, THOUGHT, CALL, RESULT, SECOND), 1),
    "cut off": ((USER, ts.ToolCall(name="get", arguments='{"at', open=True)), 1),
}


@pytest.mark.parametrize(("items", "count"), AT_ONCE.values(), ids=AT_ONCE)
@pytest.mark.parametrize("train", ["assistant", "calls", "last", "all", "user,assistant"])
def test_each_turn_that_begins_with_a_call_has_what_its_model_writes(
    items: tuple[ts.Item, ...], count: int, train: str
) -> None:
    encoder, example = Encoder(UNIVERSAL, WORLD, parse_train(train)), Example(talk(*items))
    sample = sampled(encoder, example)
    text = text_in(encoder, sample)
    assert count == text.count(BEFORE)
    assert text_of(UNIVERSAL, example.request) == text
    if train == "calls":
        assert trained_in(encoder, example).count("<<ASSISTANT_END>>\n\n<<TOOL_CALL") == count
    checker = Checker(encoder)
    assert [] == checker.faults(example, sample)
    assert 0 == checker.counts.opened


def test_what_is_not_trained_has_it_too_because_the_model_has_written_it() -> None:
    """By the weight of a row, and as context: the text does not hang on the mask."""
    encoder = Encoder(UNIVERSAL, WORLD, Train())
    request = talk(USER, CALL, RESULT, SECOND)
    whole = sampled(encoder, Example(request))
    for changes in ({"weights": {1: 0.0}}, {"context": frozenset({1})}):
        example = Example(request, **changes)
        sample = sampled(encoder, example)
        assert whole.ids.tolist() == sample.ids.tolist()
        assert whole.digest != sample.digest
        assert trained_in(encoder, example).startswith('<<ASSISTANT_END>>\n\n<<TOOL_CALL name="get" id="c2">>')
        checker = Checker(encoder)
        assert [] == checker.faults(example, sample)
        assert 1 == checker.counts.prompts


def test_an_empty_word_before_a_call_is_the_same_sample_and_still_there_in_an_archive() -> None:
    encoder = Encoder(UNIVERSAL, WORLD, Train())
    said, bare = talk(USER, NOTHING, CALL, RESULT, ANSWER), talk(USER, CALL, RESULT, ANSWER)
    strict = Encoder(UNIVERSAL, WORLD, Train(), strict=True)  # that it is told is asked for, so nothing is refused
    samples = [sampled(strict, Example(request)) for request in (said, bare)]
    assert samples[0].digest == samples[1].digest
    assert [["items[1]"], []] == [[loss.path for loss in sample.losses] for sample in samples]
    for request, sample in zip((said, bare), samples, strict=True):
        assert request.items == UNIVERSAL.parse(UNIVERSAL.render(request).value).items
        assert bare.items == UNIVERSAL.parse(text_in(encoder, sample)).items
        assert [] == Checker(encoder).faults(Example(request), sample)


def test_bare_calls_are_a_transcript() -> None:
    request = talk(USER, CALL, RESULT, NOTHING, SECOND)
    encoder = Encoder(UNIVERSAL, WORLD, Train(), bare_calls=True)
    sample = sampled(encoder, Example(request))
    assert UNIVERSAL.write(request).text == text_in(encoder, sample)
    checker = Checker(encoder)
    assert [] == checker.faults(Example(request), sample)
    assert (1, 1) == (checker.counts.prompts, checker.counts.opened)


def test_losses_and_errors_stand_where_they_did_in_the_conversation() -> None:
    """Also where items do not say where they stand, and others come before them."""
    odd = ts.Assistant(content=[ts.Text(text="x")], phase="commentary")
    request = talk(USER, CALL, RESULT, odd)
    plain, bare = [Encoder(UNIVERSAL, WORLD, Train(), bare_calls=one) for one in (False, True)]
    assert [one.path for one in sampled(bare, Example(request)).losses] == ["items[3].phase"]
    assert sampled(bare, Example(request)).losses == sampled(plain, Example(request)).losses
    assert [""] * 4 == [item.at for item in request.items]


def responses(format_: ts.Format, request: ts.Request) -> Iterator[tuple[int, int, str, ts.Response, ts.Prompt]]:
    """A session as a server has it: each turn is prompted, with the turns before as they were generated, and the model
    writes what was trained: where a turn begins and ends, what was written, what was read, and the prompt."""
    text = text_of(format_, request)
    encoder = Encoder(format_, get_tokenizer("bytes"), Train(), end=False)
    replays: list[tuple[int, int, ts.Generated]] = []
    for start, end in turns_of(request.items):
        thinks = isinstance(request.items[start], ts.Thinking)
        prompt = format_.prompt(asked(request, start), thinking=thinks, replays=replays)
        assert text.startswith(prompt.text)
        others = frozenset(range(len(request.items))) - frozenset(range(start, end))
        response = read(prompt, trained_in(encoder, Example(request, context=others)))
        turn = prompt.generated(response)
        if turn is None:
            assert [] == response.items  # an empty answer: nobody has anything to send back
            continue
        replays.append((start, end, turn))
        yield start, end, turn.text, response, prompt


def read(prompt: ts.Prompt, text: str) -> ts.Response:
    """What a model's text is behind a prompt."""
    parser = prompt.parser()
    return ts.fold(parser.feed(text) + parser.close())


@corpora.on_every
def test_a_server_goes_on_from_what_was_trained_byte_for_byte(name: str) -> None:
    """At its prompt a model writes what was trained, that is read as the turn, and the next prompt begins a sample."""
    request = shown(corpora.load(name), lambda _: False)  # as prompts and samples spell its JSON
    known = {tool.name for tool in request.tools}
    called = {item.name for item in request.items if isinstance(item, ts.ToolCall)} - known
    request.conversation.tools += [ts.Tool(name=one) for one in sorted(called)]
    text = text_of(UNIVERSAL, request)
    assert UNIVERSAL.parse(UNIVERSAL.write(request).text).items == UNIVERSAL.parse(text).items
    at_once = calls_at_once(request.items)
    for start, end, generated, response, prompt in responses(UNIVERSAL, request) if at_once else ():
        if start not in at_once:
            continue
        assert generated.startswith("<<ASSISTANT_END>>\n\n<<TOOL_CALL ")
        items = request.items[start:end]
        if "invalid_arguments" in corpora.needs(name):
            assert response.issues
            continue
        assert [] == response.issues
        assert items == response.items
        behind = next((one for one, _ in turns_of(request.items) if one >= end), len(request.items))
        following = request.items[end:behind]
        if following and not (behind < len(request.items) and isinstance(request.items[behind], ts.Thinking)):
            longer = prompt.extend(read(prompt, generated), following)
            assert longer is not None
            assert longer.text.startswith(prompt.text + generated)
            assert behind == len(request.items) or text.startswith(longer.text)


def dialect(*changes: tuple[str, str]) -> ts.Format:
    """The Universal template under another name, and with other words."""
    text = dump_format(UNIVERSAL).replace('name = "rwkv-universal"', 'name = "mine"', 1)
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    [found] = load_formats(text)
    return found


TIGHT = "<<ASSISTANT>>\n<<ASSISTANT_END>>\n\n"
DIALECTS = {
    "other words": (("ASSISTANT", "MODEL"), "<<MODEL>>\n<<MODEL_END>>\n\n"),
    "another shape of calls": (('body = "call-arguments"', 'body = "json-call"'), TIGHT),
    "no stop but the end": (
        ('stops_with_tools = ["<<USER", "<<TOOL_RESULT", "<<SYS"]', 'stops_with_tools = ["<<ASSISTANT_END>>"]'),
        "",
    ),
}


@pytest.mark.parametrize(("change", "before"), DIALECTS.values(), ids=DIALECTS)
def test_the_table_says_what_is_written_and_not_the_name(change: tuple[str, str], before: str) -> None:
    """Where a model stops at the end of an answer, no call can follow one, and nothing would lead to it."""
    format_ = dialect(change)
    encoder, example = Encoder(format_, WORLD, Train()), Example(talk(USER, CALL, RESULT, SECOND))
    sample = sampled(encoder, example)
    first, *rest = format_.write(example.request).text.split("<<TOOL_CALL ")
    assert "".join([first, *[f"{before}<<TOOL_CALL {one}" for one in rest]]) == text_in(encoder, sample)
    checker = Checker(encoder)
    assert [] == checker.faults(example, sample)
    assert (2, 0) == (checker.counts.prompts, checker.counts.opened) if before else (0, 2)


def test_a_thought_that_prompts_do_not_show_leads_to_no_call() -> None:
    format_ = dialect(('kind = "thinking"', 'kind = "thinking"\nprompt = false'))
    encoder, example = Encoder(format_, WORLD, Train()), Example(talk(USER, THOUGHT, CALL))
    sample = sampled(encoder, example)
    assert f"<<USER_END>>\n\n{TIGHT}<<TOOL_CALL" in text_in(encoder, sample)
    checker = Checker(encoder)
    assert [] == checker.faults(example, sample)
    assert 1 == checker.counts.prompts
    remembered = Encoder(format_.remembering(), WORLD, Train())
    assert TIGHT not in text_in(encoder, sampled(remembered, example))


@pytest.mark.deep
@pytest.mark.parametrize("name", [*ts.formats(), *model_formats()])
def test_of_formats_whose_calls_stand_in_an_answer_nothing_is_written_otherwise(name: str) -> None:
    format_ = ts.get_format(name)
    plain, bare = [Encoder(format_, WORLD, Train(), mode="text", bare_calls=one) for one in (False, True)]
    for case in corpora.names():
        examples = [Example(corpora.load(case))]
        found, expected = [
            [one.ids.tolist() if isinstance(one, Sample) else one for one in encoder.encode(examples)]
            for encoder in (plain, bare)
        ]
        # A prompt opens a text there, which an answer that is a call alone must end before.
        at_once = name in ("rwkv-universal", "kimi-k3") and calls_at_once(examples[0].request.items)
        assert bool(at_once) == (found != expected), case


ROWS: list[dict[str, Any]] = [
    {
        "messages": [
            {"role": "user", "content": "Weather?"},
            {
                "role": "assistant",
                **content,
                "tool_calls": [{"id": "c1", "function": {"name": "f", "arguments": "{}"}}],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "rain"},
            {"role": "assistant", "content": "Rain."},
        ]
    }
    for content in ({"content": None}, {"content": ""}, {"weight": 0}, {"reasoning_content": "Hm."})
]


@pytest.mark.parametrize("expand", ["none", "turns"])
@pytest.mark.parametrize("bare", [False, True])
def test_a_build_is_verified_and_its_messages_are_those_of_the_rows(tmp_path: Path, bare: bool, expand: str) -> None:
    file = written(tmp_path / "rows.jsonl", [json.dumps(row).encode() for row in ROWS])
    plan = plan_for(file, format="rwkv-universal", outputs=("jsonl",), bare_calls=bare, expand=expand, dedup="exact")
    report = built(plan, tmp_path / "out")
    assert (4, int(not bare)) == (report.rows, report.duplicates)
    assert (2 if bare and expand == "none" else 0) == report.warnings.get(SHOWN_ANEW, 0)
    assert 3 == report.warnings[CALL_ALONE]
    found = verify(tmp_path / "out")
    assert found.ok, found.findings
    # A thought leads to its call; a call at once that is bare has no prompt, unless an empty word stands before it.
    assert (6 if bare else 7, 1 if bare else 0) == (found.checks.prompts, found.checks.opened)
    assert (0, found.checks.prompts) == (found.checks.later, found.checks.exact)
    [example] = get_form("messages").read(json.dumps(ROWS[0]).encode())
    for one in documents(tmp_path / "out"):
        assert [] == [message for message in one["messages"] if message.get("content") == "" and not bare]
    assert isinstance(example.request.items[1], ts.ToolCall)
