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
