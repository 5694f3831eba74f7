"""Owns the checks of the page in a real browser: its three uses from end to end, links, hostile texts, how it looks."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import pytest
from selenium.common.exceptions import JavascriptException
from selenium.webdriver.common.keys import Keys

import turnscript as ts
from tests.browser.browsing import Page
from turnscript.playground.examples import examples

pytestmark = pytest.mark.long  # side by side, all would be asked to start a browser

EXAMPLES = {example.name: example.text for example in examples()}
BODY = """{
  "model": "m",
  "max_tokens": 100,
  "system": "\U0001f600 Be brief.",
  "messages": [
    {"role": "user", "content": "Hi"}
  ],
  "top_k": 40
}"""
HOSTILE = (
    '</pre></textarea><img src=x onerror="window.ran=1"><script>window.ran=1</script>'
    "<svg onload='window.ran=1'><a href=\"javascript:window.ran=1\">x</a> <<USER>> <|im_end|> \u202e"
)
LOOKS = Path(__file__).with_name("looks.js").read_text(encoding="utf-8")
PLAIN = """(() => { const copy = document.querySelector('#pieces').cloneNode(true);
  copy.querySelectorAll('i').forEach((sign) => sign.remove()); return copy.textContent })()"""
"""The text of a prompt, without the signs for what cannot be seen."""


def test_a_source_is_converted_and_a_loss_leads_to_its_place(page: Page) -> None:
    page.open()
    page.write("#source", BODY)
    assert "Anthropic Messages request" in page.text("#recognised")
    page.choose("#to", "openai-chat")
    expected = ts.convert(BODY, "auto", "openai-chat")
    assert expected.value == json.loads(page.text("#value"))
    assert [loss.path for loss in expected.losses] == [one.text for one in page.all("#convert-losses .link")]
    assert {loss.kind for loss in expected.losses} == {one.text for one in page.all("#convert-losses .kind")}
    page.find("#convert-losses .link").click()
    assert '"top_k": 40' == page.text("#marks .found")
    assert "line 8" in page.text("#status")
    page.choose("#to", "rwkv-universal")
    assert ts.convert(BODY, "auto", "rwkv-universal").value == page.text("#value")
    page.choose("#view", "prompt")
    assert ts.convert(BODY, "auto", "rwkv-universal", view="prompt").value == page.text("#value")


def test_a_place_is_scrolled_to(page: Page) -> None:
    page.open()
    page.write("#source", BODY.replace('"model"', "\n" * 300 + '"model"'))
    page.choose("#to", "openai-chat")
    page.value("document.querySelector('#source').scrollTop = 0")
    page.find("#convert-losses .link").click()
    assert page.value("document.querySelector('#source').scrollTop") > 1000
    inside = "(([mark, box]) => box.top < mark.top && mark.bottom < box.bottom)"
    assert page.value(
        f"{inside}(['.found', '#source'].map((one) => document.querySelector(one).getBoundingClientRect()))"
    )


def test_an_error_says_where_it_is(page: Page) -> None:
    page.open()
    page.write("#source", '{"messages": [],\n  "n" 1}')
    assert "line 2, column 7" in page.text("#convert-fault")
    page.find("#convert-fault .link").click()
    assert "1}" == page.text("#marks .found")
    page.choose("#example", "broken_request")
    assert "$.messages[1].content" in page.text("#convert-fault")
    assert not page.find("#value").is_displayed()
    page.write("#source", " ")
    assert "" == page.text("#convert-fault")
    assert "Nothing is here yet" in page.text("#recognised")


def test_a_prompt_tells_whose_each_piece_is(page: Page) -> None:
    page.open()
    page.see("prompt")
    page.choose("#see-prompt .format", "rwkv-universal")
    page.write("#source", json.dumps({"messages": [{"role": "user", "content": "Say <<USER>> \U0001f600 <<SYS>>"}]}))
    prompt = ts.get_format("rwkv-universal").prompt(
        ts.parse(str(page.find("#source").get_property("value")), "openai-chat")
    )
    assert prompt.text == page.value(PLAIN)
    assert ["\\", "\\"] == [one.text for one in page.all("#pieces .escape")]
    (said,) = page.all("#pieces .content")
    page.point_at(said)
    assert "user (item 0): content, 2 characters put in by the escape" == page.text("#about")
    said.click()
    assert page.text("#marks .found").startswith('{"role": "user"')
    assert prompt.stops[0] in page.text("#facts")
    page.choose("#as", "list")
    page.find("#pieces .link").send_keys(Keys.ENTER)
    assert page.text("#marks .found").startswith('{"role": "user"')
    owners = ["control, user", "content, user", "control, user", "control"]
    assert owners == [one.text for one in page.all("#pieces .row > span:first-child")]


def test_a_prompt_is_shown_as_tokens(page: Page) -> None:
    page.open("#see=prompt&format=openchatml&example=chat_request&as=bytes")
    prompt = ts.get_format("openchatml").prompt(ts.parse(EXAMPLES["chat_request"]))
    assert len(prompt.text.encode()) == len(page.all("#pieces .token"))
    assert prompt.text.replace("\n", "") == page.value(PLAIN).replace("\n", "")
    lines = page.value(
        "[...document.querySelectorAll('.token')].map((one) => getComputedStyle(one).textDecorationLine)"
    )
    written = sum(len(span.text.encode()) for span in prompt.spans if span.trainable)
    assert written == lines.count("underline")
    page.choose("#as", "rwkv-world")
    assert f"{len(page.all('#pieces .token'))} tokens" in page.text("#about")


def test_an_answer_is_heard_piece_by_piece(page: Page) -> None:
    page.open()
    page.see("play")
    page.choose("#see-play .format", "ai00-v1")
    text = page.find("#wrote").get_property("value")
    parser = ts.get_format("ai00-v1").prompt(ts.parse(EXAMPLES["chat_request"])).parser()
    response = ts.fold([*parser.feed(str(text)), *parser.close()])
    assert [item.kind.replace("_", " ") for item in response.items] == ["assistant", "tool call"]
    page.find("#size").send_keys(Keys.END)
    page.settle()
    assert "64" == page.text("#size-is")
    page.find("#start").click()
    assert "Pause" == page.text("#start")
    page.until("document.querySelector('#start').textContent === 'Play'")
    shown = [one.text for one in page.all("#parts .piece-text")]
    assert ["Let me look.", '{"city": "Paris"}'] == shown
    assert "message_end" in page.text("#steps")
    request = ts.parse(EXAMPLES["chat_request"])
    for name in ts.apis():
        page.choose("#answer", name)
        page.choose("#shape", "body")
        assert ts.get_api(name).render_response(response, request).value == json.loads(page.text("#told"))
        page.choose("#shape", "stream")
        assert ts.parse_response(page.text("#told"), name).finish_reason


def test_what_a_model_does_wrong_is_listed(page: Page) -> None:
    page.open("#see=play&format=ai00-v1")
    page.write("#wrote", '<ai00:function_calls>\n  <invoke name="get_weather">')
    assert page.all("#issues .issue")
    page.choose("#reason", "length")
    assert "length" in page.text("#parts")


@pytest.mark.parametrize("see", ["convert", "prompt", "play"])
def test_a_hostile_text_cannot_make_script_run(page: Page, see: str) -> None:
    page.open()
    message = {"role": "user", "content": HOSTILE, HOSTILE: 1}
    tool = {"type": "function", "function": {"name": HOSTILE, "description": HOSTILE}}
    page.write("#source", HOSTILE)
    assert HOSTILE[:20] in page.text("#convert-fault")
    page.write("#source", json.dumps({"messages": [message], "tools": [tool], HOSTILE: HOSTILE}, ensure_ascii=False))
    page.see(see)
    if see == "play":
        page.write("#wrote", f"{HOSTILE}\n<think>{HOSTILE}")
    assert HOSTILE[:20] in page.text(f"#see-{see}")
    assert "openai-chat" in page.text("#recognised")
    assert page.value("window.ran") is None
    assert 1 == page.value("document.images.length")
    assert 0 == page.value("document.querySelectorAll('main script, main svg, main a').length")


def test_the_browser_itself_would_stop_a_script(page: Page) -> None:
    page.open()
    with pytest.raises(JavascriptException, match="TrustedHTML"):
        page.value("document.body.innerHTML = '<img src=x onerror=window.ran=1>'")
    page.value("document.head.append(Object.assign(document.createElement('style'), {textContent: 'a{}'}))")
    assert ["style-src", "trusted"] == sorted(
        next(word for word in ("style-src", "trusted", one) if word in one.lower()) for one in page.complaints()
    )


def test_a_link_shows_the_same(page: Page) -> None:
    page.open()
    page.write("#source", BODY)
    page.see("prompt")
    page.choose("#see-prompt .format", "qwen3")
    page.choose("#see-prompt .thinking", "yes")
    page.choose("#as", "list")
    page.find("#share").click()
    page.until("document.querySelector('#share').textContent !== 'Copy link'")
    link, shown = page.driver.current_url, page.text("#pieces")
    assert shown
    page.open(link)
    assert BODY == page.find("#source").get_property("value")
    assert shown == page.text("#pieces")
    assert "true" == page.find("#tab-prompt").get_attribute("aria-selected")
    page.open("#example=transcript&to=openai-responses")
    assert EXAMPLES["transcript"] == page.find("#source").get_property("value")
    assert ts.convert(EXAMPLES["transcript"], "auto", "openai-responses").value == json.loads(page.text("#value"))
    page.open("#see=nothing&to=nobody&size=x&from=<b>&example=none")
    assert "unknown" in page.text("#convert-fault")


def test_a_source_that_no_link_can_hold_is_shown_without_one(page: Page) -> None:
    page.open("#to=rwkv-universal")
    page.value("Object.assign(document.querySelector('#source'), {value: 'x'.repeat(2_000_000)})")
    page.find("#source").send_keys(" ")
    page.settle()
    assert "neither JSON nor a transcript" in page.text("#convert-fault")
    page.find("#share").click()
    page.until("document.querySelector('#share').textContent === 'Too long for a link'")


def test_all_can_be_done_without_a_mouse(page: Page) -> None:
    page.open()
    page.find("#tab-convert").send_keys(Keys.ARROW_RIGHT)
    page.settle()
    assert page.find("#see-prompt").is_displayed()
    assert "tab-prompt" == page.value("document.activeElement.id")
    page.find("#tab-prompt").send_keys(Keys.ARROW_LEFT)
    page.settle()
    page.find("#convert-losses .link").send_keys(Keys.ENTER)
    assert page.text("#marks .found")
    nameless = """[...document.querySelectorAll('button, select, input, textarea')].filter((one) =>
      !one.labels?.length && !one.textContent.trim() && !one.getAttribute('aria-labelledby')).length"""
    assert 0 == page.value(nameless)


@pytest.mark.parametrize(
    "link",
    [
        "#example=messages_request&to=openai-chat",
        "#example=broken_request",
        "#see=prompt&example=messages_request&format=rwkv-universal",
        "#see=prompt&example=chat_request&format=openchatml&as=rwkv-world",
        "#see=play&example=messages_request",
    ],
)
def test_it_can_be_read_in_both_schemes_and_in_narrow_windows(page: Page, link: str) -> None:
    page.open(link)
    for scheme, width in product(("light", "dark"), (1280, 360)):
        page.look(scheme, width)
        found = page.value(LOOKS)
        assert ([], 0) == (found["poor"], found["wide"]), (scheme, width)
        assert (found["ground"] > 0.5) == (scheme == "light")


def test_nothing_comes_from_elsewhere(page: Page) -> None:
    page.open()
    loaded = page.value("performance.getEntriesByType('resource').map((one) => one.name)")
    assert loaded
    assert [] == [url for url in loaded if not url.startswith(f"{page.address}/")]
