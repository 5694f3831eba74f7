"""Owns RWKV Goose as it is served: the day in a model's name, and the tokens before its prompts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.cli.running import run
from tests.gateway.running import Running
from tests.gateway.scripted import END, Asked, Script, said, sse
from tests.gateway.stage import CHATS, NO_TLS, Threaded, Told, answer, body_of, named
from tests.gateway.test_doctor import look
from turnscript.apis.api import Api
from turnscript.backends.backend import Facts
from turnscript.convert.registry import get_api
from turnscript.core.errors import InvalidInput
from turnscript.gateway.config import Config, Model
from turnscript.gateway.configfile import load
from turnscript.gateway.kinds import InvalidConfig

OLD, NEW = "rwkv7-g1-2.9b-20250801-ctx4096", "rwkv7-g1a-2.9b-20250922-ctx4096"
TOO_OLD = "its name says 20250801, and models from before 20250922 were not trained to think when asked"
CHAT = get_api("openai-chat")


class Server:
    """A server of text completions that calls its model by some name. `asks`: the bodies of completions."""

    def __init__(self, model: str) -> None:
        self.model = model
        self.asks: list[Any] = []

    def __call__(self, asked: Asked) -> Script:
        """What it answers."""
        if asked.line.startswith("GET"):
            return said({"data": [{"id": self.model}]})
        self.asks.append(asked.json)
        return answer(">\nSo.\n</think>\nHi" if asked.json["prompt"].endswith("<think") else " Hi")


@contextmanager
def gateway(server: Callable[[Asked], Script], format_: str | None = "rwkv-goose", **model: Any) -> Iterator[str]:
    """The URL of a gateway before a server."""
    with ExitStack() as stack:
        url = stack.enter_context(stack.enter_context(Threaded()).server(server)).url
        model = {"kind": "completions"} | model
        place = url if model["kind"] == "llamacpp" else f"{url}/v1"
        config = Config.for_backend(place, format_, **model)
        yield stack.enter_context(Running(config)).url


def ask(url: str, api: Api = CHAT, *, stream: bool = True, **members: Any) -> Told:
    body = body_of(api, stream=stream, **members)
    response = httpx2.post(url + api.endpoint, content=body, verify=NO_TLS, timeout=20)
    return Told(api, response.status_code, dict(response.headers), response.content)


def losses(url: str, told: Told) -> list[str]:
    """What an answer's report says was lost."""
    report = httpx2.get(url + told.headers["x-turnscript-report"], verify=NO_TLS).json()
    return [loss["detail"] for loss in report["losses"]]


THINKS: dict[str, dict[str, Any]] = {
    "openai-chat": {"reasoning_effort": "high"},
    "openai-responses": {"reasoning": {"effort": "high"}},
    "anthropic-messages": {"thinking": {"type": "adaptive"}},
    "gemini": {"generationConfig": {"thinkingConfig": {"thinkingLevel": "HIGH"}}},
}


@pytest.mark.parametrize("api", CHATS, ids=named)
@pytest.mark.parametrize("format_", ["rwkv-goose", None], ids=["set", "detected"])
def test_a_model_that_is_too_old_to_be_asked_to_think_is_not_and_that_is_told(api: Api, format_: str | None) -> None:
    """R-G-8, D-G-6: the thought is opened, without the word that asks for it."""
    server = Server(OLD)
    with gateway(server, format_) as url:
        told = ask(url, api, **THINKS[api.name])
        assert any(TOO_OLD in one for one in losses(url, told)), losses(url, told)
        assert "User: Hello\n\nAssistant: <think" == server.asks[-1]["prompt"]
        told = ask(url, api)
        assert (200, "User: Hello\n\nAssistant:") == (told.status, server.asks[-1]["prompt"])
        assert not any(TOO_OLD in one for one in losses(url, told))


@pytest.mark.parametrize("format_", ["rwkv-goose", None], ids=["set", "detected"])
@pytest.mark.parametrize("name", [NEW, "rwkv7-g1"])
def test_one_of_that_day_and_one_without_a_day_is_asked_to_think(name: str, format_: str | None) -> None:
    server = Server(name)
    with gateway(server, format_) as url:
        told = ask(url, thinking={"type": "enabled"})
        assert not any("were not trained" in one for one in losses(url, told))
    prompt = server.asks[-1]["prompt"]
    assert prompt.startswith("User: Hello think"), prompt
    assert prompt.endswith("\n\nAssistant: <think")


def test_a_variant_that_is_set_stays_and_what_the_model_cannot_do_is_told_nevertheless() -> None:
    server = Server(OLD)
    with gateway(server, variant="paren") as url:
        told = ask(url, thinking={"type": "enabled"})
        assert any(TOO_OLD in one for one in losses(url, told))
    assert "User: Hello (think" in server.asks[-1]["prompt"]


def configured(tmp_path: Path, name: str, **settings: str) -> Model:
    lines = [f"[models.'{name}']", *(f"{key} = {value!r}" for key, value in settings.items())]
    path = tmp_path / "turnscript.toml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    (model,) = load(path, {}).models
    return model


WEB = "http://127.0.0.1:9"


@pytest.mark.parametrize(
    ("name", "settings", "facts", "older"),
    [
        (OLD, {"backend": WEB}, Facts(), True),
        (NEW, {"backend": WEB}, Facts(), False),
        ("main", {"backend": WEB, "upstream_model": OLD}, Facts(), True),
        ("main", {"backend": WEB}, Facts(model=f"{OLD}.gguf"), True),
        ("main", {"backend": WEB}, Facts(model="m", root=f"BlinkDL/{OLD}"), True),
        ("main", {"backend": WEB}, Facts(model="m", file=f"/models/{OLD}.pth"), True),
        (OLD, {"backend": WEB}, Facts(model=f"{NEW}.gguf"), False),
        ("20240101", {"backend": WEB, "upstream_model": NEW}, Facts(), False),
        ("main-20251399", {"backend": WEB}, Facts(), False),
        (OLD, {"backend": WEB, "format": "rwkv-universal"}, Facts(), False),
        (OLD, {"backend": WEB, "format": "rwkv-goose-hermes"}, Facts(), True),
        (OLD, {"backend": WEB, "format": "rwkv-goose-observation"}, Facts(), True),
    ],
)
def test_the_surest_name_tells_the_day(
    tmp_path: Path, name: str, settings: dict[str, str], facts: Facts, older: bool
) -> None:
    model = configured(tmp_path, name, **({"format": "rwkv-goose"} | settings))
    for told in (model.told(facts), model.told(facts).told(facts)):
        assert older == bool(told.older)
        assert told.takes is not None
        assert (not older) == bool(told.takes.document.generation.hints or told.takes.name == "rwkv-universal")
        assert ("set", True) == (told.why, told.settled)


def test_a_day_holds_with_other_ends_and_once_a_server_runs_another_model(tmp_path: Path) -> None:
    model = configured(tmp_path, OLD, backend=WEB, format="rwkv-goose", first_token="<s>")
    for facts, asks in ((Facts(), False), (Facts(model=NEW), True), (Facts(model=OLD), False)):
        takes = model.told(facts).takes
        assert takes is not None
        assert ("<s>", asks) == (takes.document.start, bool(takes.document.generation.hints))


def test_the_start_the_doctor_the_list_of_models_and_the_page_of_the_format_say_it() -> None:
    server = Server(OLD)
    with Threaded() as thread, thread.server(server) as upstream:
        told = look(f"{upstream.url}/v1", "rwkv-goose", kind="completions")
        assert TOO_OLD in told["words"].detail
        config = Config.for_backend(f"{upstream.url}/v1", "rwkv-goose", kind="completions")
        with Running(config) as running:
            (served,) = running.service.models()
            running.run(served.ready())
            assert any(TOO_OLD in sentence for sentence in served.sentences)
            assert not served.card().thinks
    shown = " ".join(run("show", "rwkv-goose").stdout.split())
    assert "A model whose name has a day before 20250922 takes the variant unhinted" in shown


# Tokens before a prompt.


class LlamaCpp(Server):
    """llama.cpp's server. `adds`: what it puts before a text, `sees`: whether its model takes pictures."""

    def __init__(self, adds: Sequence[int] = (), *, sees: bool = False) -> None:
        super().__init__(NEW)
        self.adds, self.sees = list(adds), sees

    def __call__(self, asked: Asked) -> Script:
        if asked.line == "GET /props":
            settings = {"n_ctx": 4096}
            own = {"total_slots": 1, "model_alias": self.model, "modalities": {"vision": self.sees}}
            return said({"default_generation_settings": settings} | own)
        if asked.line == "POST /tokenize":
            text = asked.json["content"]
            return said({"tokens": [*(self.adds if asked.json["add_special"] else []), *range(70, 70 + len(text))]})
        if asked.line != "POST /completion":
            return said("", status=404)
        self.asks.append(asked.json)
        begins, limit = asked.json["prompt"], asked.json["n_predict"]
        length = sum(1 if isinstance(one, int) else len(one) for one in begins) if isinstance(begins, list) else 0
        words = ">\nSo" if str(begins).endswith("<think']") else " Hi"
        last = {"content": "", "stop": True, "stop_type": "eos", "tokens_evaluated": length, "tokens_predicted": limit}
        return sse({"content": words, "stop": False}, last, end=(END,))


class Vllm(Server):
    """vLLM's. A token is a character. `counts`: whether it tells tokens."""

    def __init__(self, *, counts: bool = True, owner: str = "vllm") -> None:
        super().__init__(NEW)
        self.counts, self.owner = counts, owner

    def __call__(self, asked: Asked) -> Script:
        if asked.line.startswith("GET"):
            return said({"data": [{"id": self.model, "owned_by": self.owner}]})
        if asked.line == "POST /tokenize":
            if not self.counts:
                return said("", status=404)
            bos = [1] if asked.json.get("add_special_tokens", True) else []
            return said({"tokens": [*bos, *map(ord, asked.json["prompt"])], "token_strs": None})
        self.asks.append(asked.json)
        return answer(" Hi")


PROMPT = "User: Hello\n\nAssistant:"


@pytest.mark.parametrize("api", CHATS, ids=named)
def test_llamacpp_gets_the_ids_and_then_the_text(api: Api) -> None:
    server = LlamaCpp(adds=[1])
    with gateway(server, kind="llamacpp", prepend_tokens=(0,)) as url:
        told = ask(url, api)
        assert (200, []) == (told.status, losses(url, told))
    assert [[0, PROMPT]] == [one["prompt"] for one in server.asks]


@pytest.mark.parametrize("api", CHATS, ids=named)
def test_vllm_gets_a_prompt_of_ids_without_the_first_one_of_its_own(api: Api) -> None:
    server = Vllm()
    with gateway(server, prepend_tokens=(0, 5)) as url:
        told = ask(url, api)
        assert (200, []) == (told.status, losses(url, told))
    assert [[0, 5, *map(ord, PROMPT)]] == [one["prompt"] for one in server.asks]


def test_a_bare_text_has_them_before_it_and_a_prompt_of_ids_stays_as_it_is() -> None:
    server = LlamaCpp()
    with gateway(server, kind="llamacpp", prepend_tokens=(0,)) as url:
        for prompt in ("Once", [7, 8]):
            body = {"model": "m", "prompt": prompt, "max_tokens": 5}
            reply = httpx2.post(f"{url}/v1/completions", json=body, verify=NO_TLS, timeout=20)
            assert (200, "0") == (reply.status_code, reply.headers["x-turnscript-losses"])
    assert [[0, "Once"], [7, 8]] == [one["prompt"] for one in server.asks]


def test_they_are_counted() -> None:
    server = LlamaCpp()
    with gateway(server, kind="llamacpp", prepend_tokens=(0, 0)) as url:
        body = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
        reply = httpx2.post(f"{url}/v1/messages/count_tokens", json=body, verify=NO_TLS, timeout=20)
        assert {"input_tokens": len(PROMPT) + 2} == reply.json()


def test_an_answer_that_is_gone_on_with_has_them_too() -> None:
    """The budget of thought is spent, so the thought is ended from outside."""
    server = LlamaCpp()
    with gateway(server, kind="llamacpp", prepend_tokens=(0,), thinking="on") as url:
        ask(url, thinking={"type": "enabled", "budget_tokens": 1})
    first, *more = [one["prompt"] for one in server.asks]
    assert 0 == first[0]
    assert more
    assert all(later[0] == 0 and later[1].startswith(first[1]) for later in more)


def test_before_pictures_nothing_can_stand_which_is_a_loss() -> None:
    server = LlamaCpp(sees=True)
    shown = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    with gateway(server, kind="llamacpp", prepend_tokens=(0,)) as url:
        told = ask(url, messages=[{"role": "user", "content": [{"type": "text", "text": "Look"}, shown]}])
        assert (200, True) == (told.status, "cannot stand before a prompt with pictures" in losses(url, told)[-1])
    assert ["iVBORw0KGgo="] == server.asks[-1]["prompt"]["multimodal_data"]


@pytest.mark.parametrize(
    "server", [Server(NEW), Vllm(counts=False), Vllm(owner="somebody")], ids=["plain", "without a path", "others"]
)
def test_a_server_that_tells_no_tokens_cannot_be_told_which_is_a_loss(server: Server) -> None:
    unprepended = "`prepend_tokens` [0] cannot be told to OpenAI-style text completions"
    with gateway(server, prepend_tokens=(0,)) as url:
        told = ask(url)
        assert 200 == told.status
        assert [True] == [one.startswith(unprepended) for one in losses(url, told)]
    assert PROMPT == server.asks[-1]["prompt"]
    with Threaded() as thread, thread.server(server) as upstream:
        about = look(f"{upstream.url}/v1", "rwkv-goose", kind="completions", prepend_tokens=(0,))["about"]
    assert ("warning", True) == (about.state, unprepended in about.detail)


def test_tokens_that_are_not_told_when_they_are_needed_are_an_error_and_nothing_is_sent_without() -> None:
    server = Vllm()
    with gateway(server, prepend_tokens=(0,)) as url:
        assert 200 == ask(url).status
        server.counts = False
        assert 500 <= ask(url).status
    assert 1 == len(server.asks)


def test_for_ai00_the_setting_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "turnscript.toml"
    path.write_text(f"[models.a]\nbackend = '{WEB}'\nkind = 'ai00'\nformat = 'rwkv-goose'\nprepend_tokens = [0]\n")
    with pytest.raises(InvalidConfig, match=r"models\.a\.prepend_tokens: .*prepares the state"):
        load(path, {})
    error = pytest.raises(InvalidInput, match="Leave out `prepend_tokens`")
    with Threaded() as thread, thread.server(Server(NEW)) as upstream, error:
        look(f"{upstream.url}/api/oai/v1", "rwkv-goose", prepend_tokens=(0,))


@pytest.mark.parametrize("value", ["0", "['0']", "[-1]", "[true]", "[0.0]", "[2147483648]", "{}"])
def test_what_is_no_list_of_ids_is_refused(tmp_path: Path, value: str) -> None:
    path = tmp_path / "turnscript.toml"
    path.write_text(f"[models.a]\nbackend = '{WEB}'\nformat = 'rwkv-goose'\nprepend_tokens = {value}\n")
    with pytest.raises(InvalidConfig, match="expected an array of token ids"):
        load(path, {})


def test_a_variable_says_them_too(tmp_path: Path) -> None:
    env = {"TURNSCRIPT_MODELS_A_BACKEND": WEB, "TURNSCRIPT_MODELS_A_FORMAT": "rwkv-goose"}
    for said_so, ids in (("0", (0,)), ("[0, 5]", (0, 5)), ("0, 5", (0, 5))):
        (model,) = load(None, env | {"TURNSCRIPT_MODELS_A_PREPEND_TOKENS": said_so}).models
        assert ids == model.prepend_tokens


@pytest.mark.parametrize(
    ("adds", "settings", "expected"),
    [
        ([], {}, "does not put tokens [0] before a prompt, which models of rwkv-goose want"),
        ([0], {}, "it puts tokens [0] before each prompt, as models of rwkv-goose want"),
        ([], {"prepend_tokens": (0,)}, "tokens [0] stand before each prompt, as `prepend_tokens` says"),
        ([1], {"prepend_tokens": (0,)}, "tokens [0] stand before each prompt in place of [1]"),
    ],
)
def test_the_doctor_says_what_stands_before_a_prompt(adds: list[int], settings: Any, expected: str) -> None:
    with Threaded() as thread, thread.server(LlamaCpp(adds)) as upstream:
        about = look(upstream.url, "rwkv-goose", kind="llamacpp", **settings)["about"]
    assert ("ok", True) == (about.state, expected in about.detail), about.detail


def test_the_doctor_says_that_ai00_needs_none_and_what_nobody_knows_of_others() -> None:
    with Threaded() as thread, thread.server(Server(NEW)) as upstream:
        assert "tokens [0] are not needed" in look(f"{upstream.url}/api/oai/v1", "rwkv-goose")["about"].detail
        about = look(f"{upstream.url}/v1", "rwkv-goose", kind="completions")["about"]
        assert "does not tell whether it puts tokens [0]" in about.detail
        about = look(f"{upstream.url}/v1", "rwkv-universal", kind="completions")["about"]
        assert "tokens [0]" not in about.detail


@pytest.mark.parametrize("api", CHATS, ids=named)
def test_a_real_llamacpp_reads_one_token_more(api: Api, rwkv: str) -> None:
    counted = []
    for ids in ((), (0,)):
        with ExitStack() as stack:
            config = Config.for_backend(rwkv, "rwkv-goose", prepend_tokens=ids)
            url = stack.enter_context(Running(config)).url
            told = ask(url, api, stream=False, limit=2)
            assert (200, False) == (told.status, "prepend_tokens" in str(losses(url, told)))
            assert told.usage is not None
            counted.append(told.usage.input)
    assert counted[0] + 1 == counted[1]
