"""Owns the laws of formats: what is written reads back, content never becomes control, and nothing is lost unsaid."""

import re
import time
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

import turnscript as ts
from tests.strategies import conversations, text
from turnscript.format import Format


@given(request=conversations.requests())
def test_an_archive_reads_back_equal(format_name: str, request: ts.Request) -> None:
    """L1: parse(render(c)) == c for the whole typed request."""
    rendered = ts.get_format(format_name).render(request)
    assert rendered.losses == []
    assert ts.get_format(format_name).parse(str(rendered.value)) == request


@given(request=conversations.requests())
def test_a_canonical_transcript_is_written_again_byte_for_byte(format_name: str, request: ts.Request) -> None:
    """L3: render(parse(t)) == t where t is what the format writes."""
    transcript = str(ts.get_format(format_name).render(request).value)
    assert transcript == ts.get_format(format_name).render(ts.get_format(format_name).parse(transcript)).value


@given(request=conversations.requests(settings=False))
def test_a_prompt_is_a_transcript_too(format_name: str, request: ts.Request) -> None:
    """The prompt view reads back without an error, and reading it again changes nothing more."""
    format_ = ts.get_format(format_name)
    prompt = str(format_.render(request, view="prompt").value)
    again = format_.render(format_.parse(prompt), view="prompt")
    assert prompt == again.value


@given(texts=st.lists(text.hostile() | text.pieced(), min_size=1, max_size=4))
def test_hostile_content_never_makes_a_control_span(format_name: str, texts: list[str]) -> None:
    """F6: whatever a content holds, the document has as many blocks as items, and each content reads back equal."""
    items: list[ts.Item] = [ts.User(content=[ts.Text(text=one) for one in texts]) for _ in range(2)]
    request = ts.Request(conversation=ts.Conversation(items=items))
    format_ = ts.get_format(format_name)
    spans = format_.spans(request, view="archive")
    controls = {span.text.strip() for span in spans if span.control and span.text.strip()}
    literals = re.compile("|".join(map(re.escape, sorted(controls, key=len, reverse=True))))
    assert not any(literals.search(span.text) for span in spans if not span.control)
    assert items == format_.parse(str(format_.render(request).value)).items


@given(request=conversations.requests())
def test_spans_join_to_the_text_and_only_the_model_writes_what_is_trainable(
    format_name: str, request: ts.Request
) -> None:
    """F8: the spans are the document, and a trainable one belongs to an item that a model writes."""
    format_ = ts.get_format(format_name)
    spans = format_.spans(request, view="archive")
    assert format_.render(request).value == "".join(span.text for span in spans)
    models = (ts.Assistant, ts.Thinking, ts.ToolCall)
    assert all(isinstance(request.items[span.item], models) for span in spans if span.trainable)


@given(request=conversations.requests(settings=False), cut=st.integers(0, 6))
def test_prompts_only_grow(format_name: str, request: ts.Request, cut: int) -> None:
    """F9: the archive and the prompt of the first items begin the document of all of them, tools being equal."""
    for item in request.items:
        item.open = False
    head = ts.Request(conversation=ts.Conversation(items=request.items[:cut], tools=request.tools))
    if cut < len(request.items) and all(isinstance(item, ts.System) for item in head.items):
        return  # the tool list stands behind the leading instructions, and those are not complete yet
    for view in ("archive", "prompt"):
        whole = str(ts.get_format(format_name).render(request, view=view).value)
        assert whole.startswith(str(ts.get_format(format_name).render(head, view=view).value))


def test_reading_and_writing_are_linear(format_name: str) -> None:
    """F7: four times the text takes less than ten times as long, for long texts, many blocks and near misses."""
    format_ = ts.get_format(format_name)
    pieces: dict[str, Callable[[int], list[ts.Item]]] = {
        "text": lambda n: [ts.User(content=[ts.Text(text="word << word\n" * n)])],
        "blocks": lambda n: [ts.User(content=[ts.Text(text="a")]) for _ in range(n)],
        "near misses": lambda n: [ts.User(content=[ts.Text(text="<<USER <\n<<\\\\\\\n" * n)])],
        "parts": lambda n: [ts.User(content=[ts.Text(text="a") for _ in range(n)])],
        "calls": lambda n: [ts.ToolCall(name="f", id=f"c{i}", arguments='{"a": 1}') for i in range(n)],
    }
    for shape, make in pieces.items():
        small, large = (_least_time(format_, make(size)) for size in (2_000, 8_000))
        assert large < 10 * small + 0.02, f"{shape}: {small} s, four times as much {large} s"


def _least_time(format_: Format, items: list[ts.Item]) -> float:
    """CPU seconds to write and read some items: the least of three, because a collector's pass is nobody's fault."""
    request = ts.Request(conversation=ts.Conversation(items=items))
    times = []
    for _ in range(3):
        start = time.process_time()
        format_.parse(str(format_.render(request).value))
        times.append(time.process_time() - start)
    return min(times)
