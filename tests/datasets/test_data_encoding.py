"""Owns the laws of encoding: ids give the text back, content is never a control, a prompt begins the sample."""

import itertools
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import turnscript as ts
from tests import corpora
from tests.datasets import tinytokenizers
from tests.datasets.beginnings import joined, prompts_of, spans_of, text_of, turns_of
from tests.datasets.samples import WITH_FILES, rows_of
from turnscript.convert.registry import load_formats
from turnscript.core.errors import InvalidInput
from turnscript.core.json_text import Json, json_string
from turnscript.datasets.encoding import Encoder, Sample
from turnscript.datasets.form import Example
from turnscript.datasets.form_registry import get_form
from turnscript.datasets.plan import Plan
from turnscript.datasets.preparation import encoder_of
from turnscript.datasets.problems import Problem
from turnscript.datasets.sample_checks import Checker
from turnscript.datasets.tokenizer import Tokenizer
from turnscript.datasets.tokenizers import get_tokenizer
from turnscript.datasets.train import MODEL, Train
from turnscript.formats.format import Format

FORMATS = ts.formats()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tokenizers")


def tokenizer_for(format_: Format, kind: str, folder: Path) -> Tokenizer:
    """A tokenizer in which all tags of the format are control tokens; `text` stands for one that has none."""
    if kind == "text":
        return get_tokenizer("rwkv-world")
    path = folder / f"{format_.name}.json"
    if not path.exists():
        tinytokenizers.byte_level(path, ("<|endoftext|>", *format_.special_tokens))
    return get_tokenizer(str(path), end="<|endoftext|>")


def examples() -> Iterator[tuple[str, Example]]:
    for name in corpora.names():
        yield name, Example(corpora.load(name))


def examples_of_rows() -> Iterator[tuple[str, Example]]:
    """The conversations among the sample rows of all forms: some of their turns have the weight 0, or are context."""
    for form in WITH_FILES:
        for row in rows_of(form):
            with suppress(InvalidInput):
                yield from ((form, one) for one in get_form(form).read(row) if one.text is None and not one.mask)


def encoded(encoder: Encoder, example: Example) -> Sample:
    found = encoder.encode([example])[0]
    assert isinstance(found, Sample), found
    return found


@pytest.mark.parametrize("kind", ["ids", "text"])
@pytest.mark.parametrize("name", FORMATS)
def test_ids_decode_to_what_the_format_writes(name: str, kind: str, folder: Path) -> None:
    format_ = ts.get_format(name)
    tokenizer = tokenizer_for(format_, kind, folder)
    encoder = Encoder(format_, tokenizer, Train(everything=True))
    assert kind == encoder.mode
    named = [*examples()]
    found = encoder.encode([example for _, example in named])
    assert len(found) == len(named)
    for (case, example), sample in zip(named, found, strict=True):
        if isinstance(sample, Problem):
            assert not any(map(_says, example.request.items)), (case, sample)
            continue
        text = text_of(format_, example.request)
        assert (case, text.encode()) == (case, tokenizer.decode(sample.ids.tolist()))
        assert sample.ids[-1] == tokenizer.end
        assert tokenizer.end not in sample.ids[:-1]
        last = example.request.items[-1]
        written = format_.spans(example.request)[-1].trainable and not last.open
        late = written and format_.ends_late(last)  # then only the end of the document ends the model's turn
        assert [1] * (len(sample.ids) - 1) + [int(late)] == sample.weights.tolist()


def _says(item: ts.Item) -> bool:
    return not hasattr(item, "content") or any(getattr(part, "text", "") for part in item.content)


@pytest.mark.parametrize("name", FORMATS)
def test_what_is_trained_is_what_a_model_writes(name: str, folder: Path) -> None:
    """With control tokens and cuts where the model begins and ends, to the byte, or to the end of a tag."""
    format_ = ts.get_format(name)
    tokenizer = tokenizer_for(format_, "ids", folder)
    encoder = Encoder(format_, tokenizer, Train())
    seen = 0
    for case, example in examples():
        spans = spans_of(format_, example.request)
        model = bytearray(span.trainable for span in spans for _ in span.text)
        across = [tag for tag in _tags_of(format_, spans) if model[tag.start()] and not model[tag.end() - 1]]
        for tag in across:
            model[tag.start() : tag.end()] = b"\1" * len(tag[0])
        expected = "".join(itertools.compress("".join(span.text for span in spans), model))
        sample = encoder.encode([example])[0]
        if isinstance(sample, Sample):
            trained = tokenizer.decode(sample.ids[sample.weights > 0].tolist())
            assert (case, expected.encode()) == (case, trained)
            assert len(across) == sample.straddling
            seen += 1
        else:
            assert not expected or sample.code == "E_EMPTY", (case, sample)
    assert seen > 60


@pytest.mark.parametrize("name", FORMATS)
def test_a_turn_that_is_closed_trains_its_end(name: str, folder: Path) -> None:
    format_ = ts.get_format(name)
    tokenizer = tokenizer_for(format_, "ids", folder)
    request = corpora.load("plain")
    closing = [span.text for span in format_.spans(request) if span.trainable and span.control]
    sample = encoded(Encoder(format_, tokenizer, Train()), Example(request))
    tags = [tag for tag in format_.special_tokens if any(closing) and closing[-1].strip() == tag]
    for tag in tags:
        assert sample.weights[sample.ids == tokenizer.controls[tag]].any()


@pytest.mark.parametrize("name", FORMATS)
def test_every_tag_of_the_format_is_its_token(name: str, folder: Path) -> None:
    """Also one in which what the model writes ends, as `<<USER` of `<<USER>>` does: a server reads it as one token."""
    format_ = ts.get_format(name)
    tokenizer = tokenizer_for(format_, "ids", folder)
    encoder = Encoder(format_, tokenizer, Train(), mode="ids")
    numbers = {tokenizer.controls[tag] for tag in format_.special_tokens}
    for case, example in examples():
        sample = encoder.encode([example])[0]
        if isinstance(sample, Sample):
            tags = [tokenizer.controls[tag[0]] for tag in _tags_of(format_, spans_of(format_, example.request))]
            assert (case, tags) == (case, [number for number in sample.ids.tolist() if number in numbers])


def _tags_of(format_: Format, spans: Sequence[ts.Span]) -> list[re.Match[str]]:
    """Where tags stand in what the format itself writes."""
    tags = sorted(format_.special_tokens, key=len, reverse=True)
    pattern = re.compile("|".join(map(re.escape, tags)) or "(?!)")
    own = "".join(["c" if span.control else "-" for span in spans for _ in span.text])
    found = pattern.finditer("".join([span.text for span in spans]))
    return [tag for tag in found if "-" not in own[tag.start() : tag.end()]]


@pytest.mark.deep
@pytest.mark.parametrize("kind", ["ids", "text"])
@pytest.mark.parametrize("name", FORMATS)
def test_a_prompt_is_the_beginning_of_what_was_trained(name: str, kind: str, folder: Path) -> None:
    """At every trained turn the text of a prompt begins the sample's, and so do its ids (mode `ids`).

    What the model has said before stands in the prompt as the model has written it. What ends a turn is trained.
    """
    format_ = ts.get_format(name)
    encoder = Encoder(format_, tokenizer_for(format_, kind, folder), Train(), mode="ids" if kind == "ids" else "auto")
    checker, seen = Checker(encoder), 0
    for case, example in (*examples(), *examples_of_rows()):
        request = example.request
        sample = encoder.encode([example])[0]
        if isinstance(sample, Problem):
            continue
        text, counts = text_of(format_, request), encoder.counts(example)
        for start, end in turns_of(request.items):
            if any(counts[start:end]):
                prompts = [spans for spans in prompts_of(format_, request, start) if text.startswith(joined(spans))]
                found = [encoder.prompt_ids(spans) for spans in prompts]
                assert prompts, (case, start)
                if kind == "ids":
                    assert any(ids == sample.ids[: len(ids)].tolist() for ids in found), (case, start)
                else:
                    assert joined(prompts[0]).encode() == encoder.tokenizer.decode(found[0])
                seen += 1
        assert [] == checker.faults(example, sample), case
    assert seen > 330
    assert (0, 0) == (checker.counts.opened, checker.counts.later)


HOSTILE = st.lists(
    st.sampled_from(
        [
            *dict.fromkeys(tag for name in FORMATS for tag in ts.get_format(name).special_tokens),
            *("<|endoftext|>", "\n\nUser:", "<<", ">>", "\\", "<|", "|>", "\n", "a", " ", "\n\n", "é", "\U0001f600"),
        ]
    ),
    min_size=1,
    max_size=8,
).map("".join)


@pytest.mark.parametrize("escape", ["auto", "none"])
@given(said=HOSTILE, wrote=HOSTILE, name=st.sampled_from(FORMATS))
def test_no_content_becomes_a_control_token(folder: Path, escape: str, said: str, wrote: str, name: str) -> None:
    """As many control tokens as with harmless texts, whatever is said, even where nothing is escaped."""
    format_ = ts.get_format(name)
    tokenizer = tokenizer_for(format_, "ids", folder)
    encoder = Encoder(format_, tokenizer, Train(), escape=escape)
    controls = {*tokenizer.controls.values()}

    def count(user: str, system: str, answer: str) -> list[int]:
        written = json_string(user)
        items = [
            ts.System(content=[ts.Text(text=system)]),
            ts.User(content=[ts.Text(text=user)], name=system),
            ts.Thinking(content=[ts.Text(text=f"x{answer}x")]),
            ts.ToolCall(name=f"n{answer}", arguments=f'{{"a": {written}, {written}: 1}}', id=f"c{user}"),
            ts.ToolResult(content=[ts.Text(text=f"x{user}x")], id=f"c{user}", name=f"n{answer}"),
            ts.Assistant(content=[ts.Text(text=f"x{answer}x")]),
        ]
        tool = ts.Tool(name=f"n{answer}", description=system, parameters=Json(f'{{"title": {written}}}'.encode()))
        conversation = ts.Conversation(items=items, tools=[tool])
        sample = encoded(encoder, Example(ts.Request(conversation=conversation)))
        return [int(one) for one in sample.ids if one in controls]

    assert count("x", "x", "x") == count(f"x{said}x", f"x{wrote}x", wrote)


@given(st.lists(st.sampled_from(corpora.names()), min_size=1, max_size=12), st.sampled_from(FORMATS), st.booleans())
def test_a_batch_gives_what_its_rows_give_alone(folder: Path, names: list[str], format_name: str, ids: bool) -> None:
    format_ = ts.get_format(format_name)
    encoder = Encoder(format_, tokenizer_for(format_, "ids" if ids else "text", folder), Train())
    rows = [Example(corpora.load(name)) for name in names]
    together = encoder.encode(rows)
    for example, found in zip(rows, together, strict=True):
        alone = encoder.encode([example])[0]
        if isinstance(found, Problem) or isinstance(alone, Problem):
            assert found == alone
            continue
        assert (found.ids.tolist(), found.weights.tolist()) == (alone.ids.tolist(), alone.weights.tolist())
        assert (found.trained, found.straddling) == (alone.trained, alone.straddling)
        assert (found.losses, found.digest) == (alone.losses, alone.digest)


@pytest.mark.parametrize("kind", ["ids", "text"])
@pytest.mark.parametrize("name", FORMATS)
def test_an_explanation_is_the_sample_token_by_token(name: str, kind: str, folder: Path) -> None:
    format_ = ts.get_format(name)
    encoder = Encoder(format_, tokenizer_for(format_, kind, folder), Train())
    for case in ("two_rounds", "unicode_emoji", "thinking_text_call", "hostile_generic"):
        example = Example(corpora.load(case))
        sample, tokens = encoded(encoder, example), encoder.explain(example)
        assert sample.ids.tolist() == [token.id for token in tokens]
        assert sample.weights.tolist() == [token.weight for token in tokens]
        text = text_of(format_, example.request)
        assert text.encode() == b"".join(token.text for token in tokens)
        assert sample.straddling == sum(token.straddles for token in tokens)
        assert {"end"} == {token.kind for token in tokens[-1:]}
        for token in tokens:
            assert not token.weight or token.straddles or token.kind in (*MODEL, "end")
            assert token.kind in ("", "end") or token.kind == example.request.items[token.item].kind


@pytest.mark.parametrize("kind", ["ids", "text"])
@pytest.mark.parametrize("name", FORMATS)
def test_an_explanation_of_a_prompt_is_the_prompt_token_by_token(name: str, kind: str, folder: Path) -> None:
    format_ = ts.get_format(name)
    encoder = Encoder(format_, tokenizer_for(format_, kind, folder), Train(), end=False)
    for case in ("two_rounds", "unicode_emoji", "thinking_text_call", "hostile_generic"):
        request = corpora.load(case)
        prompt = format_.prompt(request)
        tokens = encoder.explain_prompt(prompt.spans, request.items)
        assert encoder.prompt_ids(prompt.spans) == [token.id for token in tokens]
        assert prompt.text.encode() == b"".join(token.text for token in tokens)
        assert {True} == {token.kind in MODEL or token.item < 0 or token.straddles for token in tokens if token.weight}
    assert [] == encoder.explain_prompt([], [])


def test_of_two_tags_that_begin_alike_the_longer_one_counts(folder: Path) -> None:
    format_ = ts.get_format("batuta-chatml").with_ends(start="<s", end="<s>")
    tokenizer = get_tokenizer(tinytokenizers.byte_level(folder / "alike.json", ("<s", "<s>", "<|im_end|>")))
    sample = encoded(Encoder(format_, tokenizer, Train()), Example(corpora.load("plain")))
    assert tokenizer.controls["<s>"] == sample.ids[-1]


def test_tags_in_square_brackets_are_tokens_whatever_is_in_them(folder: Path) -> None:
    """`[gMASK]<sop>` are two tokens and `[/USER]` is one, and a text holds none of them."""
    turns = [(role, f"[{role.upper()}]", f"[/{role.upper()}]") for role in ("user", "assistant")]
    declared = [
        f"""[[format.turn]]\nopen = "{open_}"\nclose = "{close}"
        segment = [{{ kind = "{role}", body = "text", model = {"true" if role == "assistant" else "false"} }}]"""
        for role, open_, close in turns
    ]
    head = '[[format]]\nname = "brackets"\nstart = "[gMASK]<sop>"\nseparator = ""\n'
    tail = '\n[format.generation]\nstops = ["[/ASSISTANT]"]'
    format_ = load_formats("\n".join([head, *declared, tail]))[0]
    tags = ["[gMASK]", "<sop>", "[USER]", "[/USER]", "[ASSISTANT]", "[/ASSISTANT]"]
    assert tags == format_.special_tokens
    tokenizer = tokenizer_for(format_, "ids", folder)
    item = ts.User(content=[ts.Text(text="".join(tags))])
    answer = ts.Assistant(content=[ts.Text(text="[/USER] [USER_2]")])
    request = ts.Request(conversation=ts.Conversation(items=[item, answer]))
    sample = encoded(Encoder(format_, tokenizer, Train()), Example(request))
    numbers = {number: tag for tag, number in tokenizer.controls.items()}
    assert [*tags, "<|endoftext|>"] == [numbers[one] for one in sample.ids.tolist() if one in numbers]
    assert request.items == format_.parse(str(format_.render(request).value)).items


def test_a_name_in_an_opening_is_no_tag(folder: Path) -> None:
    """What stands in attributes was somebody's word, even where nothing is escaped."""
    items = [ts.User(content=[ts.Text(text="Hi")], name="x[BOS]x"), ts.Assistant(content=[ts.Text(text="Hello.")])]
    request = ts.Request(conversation=ts.Conversation(items=items))
    format_ = ts.get_format("openchatml")
    tokenizer = tokenizer_for(format_, "ids", folder)
    sample = encoded(Encoder(format_, tokenizer, Train(), escape="none"), Example(request))
    assert b" name=x[BOS]x\n" in tokenizer.decode(sample.ids.tolist())
    assert "[BOS]" not in tokenizer.controls


def test_a_sample_stands_between_the_ends_of_the_model_that_is_trained(folder: Path) -> None:
    """OpenChatML has those of whatever model it is: as its tokenizer's folder names them, and RWKV's is a number."""
    items = [ts.User(content=[ts.Text(text="Hi <s>")]), ts.Assistant(content=[ts.Text(text="Hello.")])]
    request = ts.Request(conversation=ts.Conversation(items=items))
    turns = b"<|im_start|>user\nHi <s>\n<|im_end|>\n<|im_start|>assistant\nHello.\n<|im_end|>"
    named = folder / "named"
    named.mkdir()
    tags = [*ts.get_format("openchatml").special_tokens, "<s>", "</s>"]
    spec = tinytokenizers.byte_level(named / "tokenizer.json", tags)
    (named / "tokenizer_config.json").write_text('{"bos_token": "<s>", "eos_token": "</s>"}')
    ours, theirs = turns.replace(b"<s>", b"<\\s>"), b"<s>%b</s>"
    for tokenizer, expected in (
        (spec, theirs % ours),
        (f"{spec}?end=</s>", b"<s>" + ours),  # and the token that separates documents, which stands for no text
        ("rwkv-world", turns),
        ("bytes", turns),
    ):
        encoder = encoder_of(Plan(inputs=("-",), format="openchatml", tokenizer=tokenizer))
        assert expected == encoder.tokenizer.decode(encoded(encoder, Example(request)).ids.tolist()), tokenizer
