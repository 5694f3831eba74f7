"""What a model writes of a text is known, in the words of any template: after what its prompt opens, up to its end."""

from pathlib import Path

import pytest

import turnscript as ts

FRAME = (
    "{%- for m in messages %}"
    "{%- if m.role == 'assistant' %}{{ '<bot>' }}"
    "{{ '<part>thought<is>' + (m.reasoning_content or '') + '<over>thought<is><part>answer<is>' + m.content }}"
    "{{ '<over>answer<is><stop>' }}"
    "{%- else %}{{ '<' + m.role + '>' + m.content + '<stop>' }}{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<bot>' }}{%- endif %}"
)
SWITCHED = (
    "{%- for m in messages %}"
    "{%- if m.role == 'assistant' %}"
    "{{ '<bot><think>' + (m.reasoning_content or '') + '</think>' + m.content + '<stop>' }}"
    "{%- else %}{{ '<' + m.role + '>' + m.content + '<stop>' }}{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}"
    "{{ '<bot>' + ('<think>' if enable_thinking | default(true) else '<think></think>') }}"
    "{%- endif %}"
)
BRACKETS = (
    "{%- for m in messages %}{%- if m.role == 'assistant' %}{{ ' ' + m.content + '</s>' }}"
    "{%- elif m.role == 'tool' %}{{ '[DONE]' + m.content + ', id ' + m.tool_call_id + '[/DONE]' }}"
    "{%- else %}{{ '[ASK]' + m.content + '[/ASK]' }}{%- endif %}{%- endfor %}"
)


def spans(folder: Path, template: str, *items: ts.Item) -> list[ts.Span]:
    path = folder / "t.jinja"
    path.write_text(template)
    return ts.get_format(str(path)).spans(ts.Request(conversation=ts.Conversation(items=list(items))))


def trained(found: list[ts.Span]) -> str:
    return "".join(span.text for span in found if span.trainable)


def user(text: str) -> ts.User:
    return ts.User(content=[ts.Text(text=text)])


def answer(text: str) -> ts.Assistant:
    return ts.Assistant(content=[ts.Text(text=text)])


def thought(text: str) -> ts.Thinking:
    return ts.Thinking(content=[ts.Text(text=text)])


def test_a_tag_that_stands_inside_a_turn_ends_none(tmp_path: Path) -> None:
    found = spans(tmp_path, FRAME, user("Hi"), thought("Hm."), answer("Hello."), user("And?"), answer("So."))
    first = "<part>thought<is>Hm.<over>thought<is><part>answer<is>Hello.<over>answer<is><stop>"
    second = "<part>thought<is><over>thought<is><part>answer<is>So.<over>answer<is><stop>"
    assert first + second == trained(found)


@pytest.mark.parametrize(
    ("said", "expected"),
    [([answer("Hello.")], "Hello.<stop>"), ([thought("Hm."), answer("Hello.")], "Hm.</think>Hello.<stop>")],
)
def test_what_a_prompt_opens_is_not_what_the_model_writes(said: list[ts.Item], expected: str, tmp_path: Path) -> None:
    assert expected == trained(spans(tmp_path, SWITCHED, user("Hi"), *said))
    system = ts.System(content=[ts.Text(text="Be brief.")])
    assert expected == trained(spans(tmp_path, SWITCHED, system, user("Hi"), *said))


@pytest.mark.parametrize("asked", ["Hi", "Hi\n", "\n\nHi \n\n"])
def test_white_space_of_a_question_is_not_the_models(asked: str, tmp_path: Path) -> None:
    assert " Hello.</s>" == trained(spans(tmp_path, BRACKETS, user(asked), answer("Hello.")))


def test_what_closes_a_question_is_its_own_and_what_opens_an_answer_is_not(tmp_path: Path) -> None:
    found = spans(tmp_path, SWITCHED, user("Hi"), answer("Hello."))
    assert [("<stop>", 0), ("<bot>", 1)] == [(span.text, span.item) for span in found[2:4]]
