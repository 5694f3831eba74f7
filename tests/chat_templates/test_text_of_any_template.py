"""Owns what every template must give: answers are read as text, whatever stands around turns."""

from pathlib import Path

import pytest

import turnscript as ts

_LOOP = "{% for m in messages %}{% if m.role == 'user' %}USER{% else %}ANSWER{% endif %}{% endfor %}"
_TURNS = {
    "letters": ("Q {{ m.content }} ", "A {{ m.content }} ", "A "),
    "one character": ("/ {{ m.content }} /", "/{{ m.content }}//", ""),
    "bars that end as they begin": ("||U||{{ m.content }}||/||", "||M||{{ m.content }}||/||", "||M||"),
    "two bars": ("||{{ m.content }}||", "||| {{ m.content }}||", "||| "),
    "nothing at all": ("{{ m.content }}", "{{ m.content }}", ""),
}


@pytest.mark.parametrize("name", _TURNS)
def test_an_answer_is_read_as_text(name: str, tmp_path: Path) -> None:
    user, answer, opening = _TURNS[name]
    place = tmp_path / "chat_template.jinja"
    loop = _LOOP.replace("USER", user).replace("ANSWER", answer)
    place.write_text(f"{loop}{{% if add_generation_prompt %}}{opening}{{% endif %}}", encoding="utf-8")
    fmt = ts.get_format(str(place))
    assert fmt.template is not None
    assert fmt.template.sentence
    question = ts.User(content=[ts.Text(text="Why?")])
    prompt = fmt.prompt(ts.Request(conversation=ts.Conversation([question])))
    assert not any("never" in stop or "no-" in stop for stop in prompt.stops)
    parser = prompt.parser()
    response = ts.fold([*parser.feed("Because a < b."), *parser.close(finish_reason="stop")])
    assert [item.content for item in response.items] == [[ts.Text(text="Because a < b.")]]  # type: ignore[attr-defined]


_CHATML = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
_OPENED = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"


def of(text: str, folder: Path) -> ts.Format:
    place = folder / "chat_template.jinja"
    place.write_text(text, encoding="utf-8")
    return ts.get_format(str(place))


def asked(*tools: ts.Tool) -> ts.Request:
    return ts.Request(conversation=ts.Conversation([ts.User(content=[ts.Text(text="Why?")])], list(tools)))


def test_a_thought_that_a_wish_opens_is_read(tmp_path: Path) -> None:
    opened = _OPENED.replace("assistant\n", "assistant\n<think>\n{% if not enable_thinking %}</think>{% endif %}")
    fmt = of(_CHATML + opened, tmp_path)
    parser = fmt.prompt(asked(), thinking=True).parser()
    response = ts.fold([*parser.feed("Hm.\n</think>\n\nSo."), *parser.close(finish_reason="stop")])
    assert [item.kind for item in response.items] == ["thinking", "assistant"]


def test_tools_are_given_as_text_where_a_template_cannot_do_without(tmp_path: Path) -> None:
    fmt = of("Tools: {{ functions + '\n' + datetime }}\n" + _CHATML + _OPENED, tmp_path)
    text = fmt.prompt(asked(ts.Tool(name="look_up", description="Find."))).text
    assert '"name": "look_up"' in text


def test_a_template_may_keep_a_list_of_its_own(tmp_path: Path) -> None:
    kept = "{% set seen = namespace(ids=[]) %}{% for m in messages %}{% set _ = seen.ids.append(m.role) %}{% endfor %}"
    fmt = of(f"{kept}{{{{ seen.ids | join('+') }}}}\n{_CHATML}{_OPENED}", tmp_path)
    assert fmt.prompt(asked()).text.startswith("user\n<|im_start|>user")


@pytest.mark.parametrize("change", ["messages.append(1)", "messages[0].append(1)", "tools.append(1)"])
def test_no_template_changes_what_it_is_given(change: str, tmp_path: Path) -> None:
    with pytest.raises(ts.TurnscriptError):
        of(f"{{% set _ = {change} %}}{_CHATML}{_OPENED}", tmp_path)


def test_no_list_is_put_into_itself(tmp_path: Path) -> None:
    with pytest.raises(ts.TurnscriptError):
        of("{% set own = [] %}{% set _ = own.append(own) %}{{ own }}" + _CHATML + _OPENED, tmp_path)
