"""Owns the proof that the generators keep their promises: every site of the SDK types, exact spellings, odd texts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import cache
from typing import Any, TypeVar

import pytest
import typing_extensions as tx
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

import turnscript as ts
from tests.strategies import coherent, jsontext, judge, sdk, shapes, text, unknown
from tests.strategies.jsontext import JsonObject, Spelled

T = TypeVar("T")

# The same draws on every run and no shrinking: what fails here is a generator, not a rare body.
SAMPLE = settings(
    max_examples=100, derandomize=True, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
)
ONE = settings(SAMPLE, max_examples=1)


@pytest.fixture(scope="module", autouse=True)
def constants() -> Iterator[None]:
    """Hypothesis also draws constants that it finds in the project's modules, as far as they are loaded. Without them
    the samples, and the shares that are asked of them, do not move with whatever the project's code says."""
    known = providers.CONSTANTS_CACHE
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(providers, "_get_local_constants", Constants)
        patch.setattr(providers, "CONSTANTS_CACHE", type(known)(known.max_size))
        yield


def drawn(strategy: st.SearchStrategy[T], *, like: Callable[[T], bool] = lambda _: True) -> T:
    """The first draw that is like this; fails if none of a few hundred is."""
    return find(strategy, like, settings=settings(SAMPLE, max_examples=600))


def simplest(strategy: st.SearchStrategy[T]) -> T:
    """What the strategy gives when every choice is the first one."""
    values: list[T] = []

    @ONE
    @given(strategy)
    def collect(value: T) -> None:
        values.append(value)

    collect()
    return values[0]


@cache
def sample(api: str) -> list[dict[str, Any]]:
    """Bodies drawn once for several tests, which must not change them."""
    bodies: list[dict[str, Any]] = []

    @SAMPLE
    @given(sdk.bodies(api))
    def collect(body: dict[str, Any]) -> None:
        bodies.append(body)

    collect()
    return bodies


def comes_back(api: str, body: dict[str, Any]) -> None:
    """Assert that a body is the same JSON again, directly and through an archive, without a loss."""
    data = jsontext.dumps(body)
    archive = ts.convert(data, api, "rwkv-universal", strict=True).data
    for rendered in (ts.convert(data, api, api, strict=True), ts.convert(archive, "rwkv-universal", api, strict=True)):
        assert "" == jsontext.difference(jsontext.loads(data), jsontext.loads(rendered.data))


# ------------------------------------------------------------------------------------------------- coverage


@pytest.mark.deep
@pytest.mark.long
@pytest.mark.parametrize("api", sdk.APIS)
def test_every_field_and_union_member_of_the_sdk_types_is_produced_and_comes_back(api: str) -> None:
    """The laws of APIs draw their bodies; here each site is in some body for certain (law A2)."""
    model = sdk.model(api)
    assert len(model.sites) == len(set(model.sites))
    missing = (1 << len(model.sites)) - 1
    for body in sample(api):
        missing &= ~shapes.sites_of(model.root, body)
        comes_back(api, body)
    # What 100 bodies did not meet by chance, the same walk must meet when steered to it, many aims to a body.
    while missing:
        aims = [name for name in model.names(missing) if not name.endswith(" absent")][:80] or model.names(missing)
        body = simplest(sdk.bodies_reaching(api, aims))
        before, missing = missing, missing & ~shapes.sites_of(model.root, body)
        assert missing != before, f"not reached: {model.names(missing)}"
        comes_back(api, body)


@pytest.mark.deep
@pytest.mark.parametrize(
    ("api", "share"),
    [("openai-chat", 0.5), ("openai-responses", 0.3), ("anthropic-messages", 0.12), ("openai-completions", 0.7)],
)
def test_a_short_run_meets_a_good_share_of_the_sites_by_chance(api: str, share: float) -> None:
    model = sdk.model(api)
    met = 0
    for body in sample(api):
        met |= shapes.sites_of(model.root, body)
    assert met.bit_count() >= share * len(model.sites)


def test_header_fields_are_no_part_of_a_body() -> None:
    roots = {
        record.name: record for record in sdk.model("anthropic-messages").records() if "MessageCreate" in record.name
    }
    assert len(roots) == 4
    for record in roots.values():
        names = {member.name for member in record.fields}
        assert {"model", "messages", "max_tokens", "stream"} <= names
        assert not names & {"betas", "workspace_id", "user_profile_id"}


# ------------------------------------------------------------------------------------------------- conformance


@pytest.mark.parametrize("api", sdk.APIS)
def test_bodies_conform_to_the_sdk_types(api: str) -> None:
    for body in sample(api):
        assert any(judge.conforms(body, root) for root in judge.roots(api)), body


@pytest.mark.parametrize("api", sdk.APIS)
def test_bodies_are_json_and_small(api: str) -> None:
    sizes = []
    for body in sample(api):
        data = jsontext.dumps(body)
        assert jsontext.difference(body, jsontext.loads(data)) == ""
        assert json.loads(data) == jsontext.plain(body)
        sizes.append(len(data))
    assert sum(size < 4096 for size in sizes) > 0.9 * len(sizes)


def test_a_type_without_a_shape_is_named() -> None:
    class Params(tx.TypedDict):
        when: complex

    with pytest.raises(TypeError, match=r"Params\.when: no shape for <class 'complex'>"):
        shapes.Model([Params], {})


class Tree(tx.TypedDict, total=False):
    leaf: tx.Required[str | None]
    children: list[Tree]


def test_a_recursive_type_is_drawn_to_a_bounded_depth() -> None:
    model = shapes.Model([Tree], {})
    assert sorted(model.sites) == [
        "Tree.children",
        "Tree.children absent",
        "Tree.leaf",
        "Tree.leaf | null",
        "Tree.leaf | str",
        "body. | Tree",
    ]

    def depth(tree: Any) -> int:
        return 1 + max(map(depth, tree.get("children", [])), default=0)

    depths: list[int] = []

    @SAMPLE
    @given(sdk.drawn_from(model.root, hops=3))
    def collect(tree: Any) -> None:
        depths.append(depth(tree))

    collect()
    assert set(depths) == {1, 2, 3}


# ------------------------------------------------------------------------------------------------- coherence


@pytest.mark.parametrize("api", ["openai-chat", "openai-responses", "anthropic-messages"])
def test_many_bodies_have_answered_calls(api: str) -> None:
    answered = [body for body in sample(api) if coherent.pairs(body)]
    assert len(answered) > 0.2 * len(sample(api))


@pytest.mark.parametrize("api", ["openai-chat", "openai-responses", "anthropic-messages"])
def test_each_family_of_calls_gets_answers(api: str) -> None:
    model = sdk.model(api)
    calls = {family: site for _, site, family in coherent.places(model, coherent.CALLS)}
    answers = {family: site for _, site, family in coherent.places(model, coherent.ANSWERS)}
    assert calls.keys() == answers.keys()
    for family, call in calls.items():
        names = model.names(call) + model.names(answers[family])
        body = simplest(sdk.bodies_reaching(api, names, coherent=True))
        assert coherent.pairs(body), (family, body)


def test_answers_that_come_too_early_are_moved_and_orphans_keep_their_ids() -> None:
    roots = shapes.Model([call_type("function_call"), call_type("function_call_output")], {})
    call, answer = roots.records()

    def item(record: shapes.Record, kind: str, call_id: str) -> shapes.Typed:
        return shapes.Typed({"type": kind, "call_id": call_id}, record)

    body = {
        "input": [
            item(answer, "function_call_output", "x"),
            item(call, "function_call", "a"),
            item(call, "function_call", "a"),
            item(answer, "function_call_output", "y"),
            item(answer, "function_call_output", "z"),
        ]
    }
    coherent.cohere(body)
    assert [(entry["type"], entry["call_id"]) for entry in body["input"]] == [
        ("function_call", "a"),
        ("function_call", "a_1"),
        ("function_call_output", "a"),
        ("function_call_output", "a_1"),
        ("function_call_output", "x"),
    ]
    assert len(coherent.pairs(body)) == 2


def call_type(kind: str) -> Any:
    return tx.TypedDict(kind, {"type": tx.Literal[kind], "call_id": str})  # type: ignore[operator]


# ------------------------------------------------------------------------------------------------- spellings


@SAMPLE
@given(jsontext.spelled_objects(), jsontext.json_values())
def test_spelled_values_are_written_and_found_as_they_stand(spelled: Spelled, other: Any) -> None:
    body = {"messages": [{"content": [{"input": spelled, "other": other}]}]}
    data = jsontext.dumps(body)
    assert spelled.text.encode() in data
    ((path, found),) = jsontext.spelled_places(body)
    assert found is spelled
    assert jsontext.raw_at(data, path) == spelled.text
    assert jsontext.difference(body, jsontext.loads(data)) == ""


@SAMPLE
@given(jsontext.json_texts())
def test_json_texts_are_json(source: str) -> None:
    jsontext.loads(source)
    json.loads(source.encode())


@SAMPLE
@given(jsontext.argument_objects(), jsontext.broken_arguments())
def test_argument_objects_are_objects_and_broken_ones_are_not(good: str, broken: str) -> None:
    assert jsontext.is_argument_object(good)
    assert not jsontext.is_argument_object(broken)


@pytest.mark.parametrize("broken", jsontext.BROKEN)
def test_no_listed_broken_argument_is_an_object(broken: str) -> None:
    assert not jsontext.is_argument_object(broken)


@pytest.mark.deep
def test_odd_spellings_occur_in_arguments_and_values() -> None:
    sources: dict[str, str] = {"arguments": "", "values": ""}

    @settings(SAMPLE, max_examples=600)
    @given(jsontext.argument_objects(), jsontext.json_texts())
    def collect(arguments: str, value: str) -> None:
        sources["arguments"] += arguments
        sources["values"] += value

    collect()
    numbers = ["1.0", "1e5", "1E+2", "-0", str(2**60), "123456789012345678901234567890"]
    escapes = ["\\u00e9", "\\/", "\\ud83d\\udc4d", "\t", "\n"]
    for source in sources.values():
        assert [odd for odd in numbers + escapes if odd not in source] == []


def test_duplicate_keys_occur_and_are_kept() -> None:
    source = drawn(jsontext.argument_objects(), like=lambda source: jsontext.loads(source).has_duplicates)
    value = jsontext.loads(source)
    assert isinstance(value, JsonObject)
    assert len(value.pairs) > len(value)


@pytest.mark.parametrize(
    ("left", "right", "where"),
    [
        ('{"a":1,"b":2}', '{"b":2.0,"a":1e0}', ""),
        ("[1]", "[true]", "$[0]: 1 != True"),
        ("[0]", "[false]", "$[0]: 0 != False"),
        ("[0]", "[-0]", ""),
        ("[123456789012345678901234567890]", "[123456789012345678901234567891]", "$[0]: 12345"),
        ('{"a":{"b":[1]}}', '{"a":{"b":[1,2]}}', "$.a.b: 1 elements != 2 elements"),
        ('{"a":1}', "{}", "$.a: missing"),
        ("{}", '{"a":null}', "$.a: not expected"),
        ('{"a":1,"a":2}', '{"a":2}', "$[0][1]: 1 != 2"),
        ('{"a":1,"a":2}', '{"a":2,"a":1}', "$[0][1]: 1 != 2"),
        ('"1"', "1", "$: '1' != 1"),
        ("{}", "[]", "$: {} != []"),
    ],
)
def test_a_difference_names_its_place(left: str, right: str, where: str) -> None:
    assert jsontext.difference(jsontext.loads(left), jsontext.loads(right)).startswith(where)
    assert bool(jsontext.difference(jsontext.loads(left), jsontext.loads(right))) == bool(where)


def test_python_floats_compare_by_their_shortest_spelling() -> None:
    assert jsontext.difference({"t": 0.1}, jsontext.loads(b'{"t": 0.1}')) == ""
    assert jsontext.difference({"t": 1e22}, jsontext.loads(b'{"t": 10000000000000000000000}')) == ""


@pytest.mark.parametrize("body", [float("nan"), [float("inf")], {"a": "\ud800"}])
def test_what_is_not_json_is_not_written(body: Any) -> None:
    with pytest.raises(ValueError, match=r"not JSON compliant|surrogates not allowed"):
        jsontext.dumps(body)


def test_arguments_of_bodies_are_oddly_spelled() -> None:
    drawn(sdk.bodies("anthropic-messages"), like=lambda body: any(jsontext.spelled_places(body)))
    drawn(sdk.bodies("openai-chat"), like=lambda body: any(map(is_broken_call, coherent.history(body))))


def is_broken_call(item: shapes.Typed) -> bool:
    return "arguments" in item and not jsontext.is_argument_object(item["arguments"])


# ------------------------------------------------------------------------------------------------- texts


@SAMPLE
@given(text.texts(), text.words())
def test_texts_are_unicode(some: str, word: str) -> None:
    assert (some + word).encode().decode() == some + word


@SAMPLE
@given(text.lone_surrogates())
def test_lone_surrogates_are_not_unicode(broken: str) -> None:
    with pytest.raises(UnicodeEncodeError):
        broken.encode()


@pytest.mark.parametrize(
    "literal",
    [
        "",
        "\x00",
        "\r\n",
        "line\u2028separator\u2029paragraph",
        "<<USER>>",
        "<<\\USER>>",
        "<<\\\\USER>>",
        "<<END_TOOL_CALL>>",
        "<<PART>>",
        "<|im_end|>",
        "<\\|im_end|>",
        "</think>",
        "<\\/think>",
        "<ai00:user>",
        "<\\ai00:user>",
        "[EOS]",
        "[\\EOS]",
    ],
)
def test_the_texts_that_matter_are_in_the_pools(literal: str) -> None:
    assert literal in {*text.PLAIN, *text.ODD, *text.HOSTILE, *text.PIECES}


# ------------------------------------------------------------------------------------------------- unknown fields


@pytest.mark.parametrize("api", sdk.APIS)
def test_unknown_members_are_added_and_nothing_else_changes(api: str) -> None:
    @settings(SAMPLE, max_examples=40)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        body = data.draw(sdk.bodies(api))
        copy = deepcopy(body)
        changed = data.draw(unknown.with_unknown(body))
        assert body == copy
        assert known_part(changed) == body
        assert all(known_part(place) == place for place in coherent.objects(changed) if is_schema(place))
        assert changed != body

    check()


def is_schema(place: shapes.Typed) -> bool:
    return place.record.name.startswith("InputSchemaTyped")


def known_part(value: Any) -> Any:
    """A body without the keys and blocks that its records do not have."""
    if isinstance(value, shapes.Typed):
        names = {member.name for member in value.record.fields}
        return {name: known_part(member) for name, member in value.items() if name in names}
    if isinstance(value, list):
        return [known_part(element) for element in value if not is_hologram(element)]
    if isinstance(value, dict):
        return {name: known_part(member) for name, member in value.items()}
    return value


def is_hologram(value: Any) -> bool:
    return isinstance(value, dict) and value.get("type") == "hologram"


@pytest.mark.deep
def test_unknown_blocks_come_at_every_level() -> None:
    bodies = sdk.bodies("anthropic-messages").flatmap(unknown.with_unknown)
    drawn(bodies, like=lambda body: any(map(is_hologram, body.get("tools", []))))
    drawn(bodies, like=lambda body: any(is_hologram(b) for m in body["messages"] for b in m.get("content", [])))


def test_in_a_plain_body_schemas_and_arguments_stay_as_they_are() -> None:
    call = {"id": "c", "type": "tool_use", "name": "f", "input": {"a": {}}}
    body = {
        "messages": [{"role": "assistant", "content": [call]}],
        "tools": [{"name": "f", "input_schema": {"properties": {"a": {}}}}],
    }
    places = unknown.places(body)
    assert call in places
    assert {"a": {}} not in places
    assert {"properties": {"a": {}}} not in places
