"""Owns declaring tools in many ways, inventing some, and calls of them: what is asked, the call, its result, the answer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from tiny.dialogs.declared import JsonObject, declared
from tiny.dialogs.phrases import drawn, filled, slots_of
from tiny.dialogs.topics import Parameter, Topic
from tiny.dialogs.values import NOUNS, VERBS, draw, draw_several, draw_units, made_word, noun_of, word

_SWITCH_ZH = {"on": "打开", "off": "关闭"}
_NUMBERS = {
    "number",
    "decimal",
    "small",
    "thousand",
    "temperature",
    "zero",
    "minutes",
    "percent",
    "few",
    "quantity",
    "degrees_high",
}
MEMBERS = "mode speed size colour level count name code label angle depth width target source owner region format color weight index key tag shape batch zone user_id item_id color_name max_size first_name start_date".split()
HELD_VERBS = "calibrate etch dredge hoist glaze thaw braid rinse inflate prune solder graft".split()
HELD_NOUNS = "turbine anvil canopy spindle ladder lantern funnel saddle beacon vault hinge quilt".split()
HELD_MEMBERS = "pressure voltage serial pattern lane carrier duration_ms coating torque docket".split()
_FAILURES = (
    "not found",
    "no connection",
    "permission denied",
    "timeout",
    "server error",
    "unknown value",
    "too many requests",
    "service is down",
)
_LABELLED = (" ", " ", " = ", " set to ", ": ", "=", " is ", " of ")
FAILED = ("That did not work: ", "出错了：")
_INVENTED = (
    "[use|call|run|start|please use|please call|try|invoke|execute] {tool} [with|for|using|on] {list}[.|| please]",
    "{verb} the {noun} with {list}[.|| please|, please]",
    (
        "[please |can you |could you |i want you to |you should |now |]{verb} [a|the|my|this] {noun}"
        "[:|,| with|, with|, using| for] {list}[.|]"
    ),
    "{tool}: {list}[.|]",
    "[the|a|my] {noun} [needs|wants|is waiting for] you to {verb} it[:|, with|,] {list}[.|]",
    "[i need|we need|i want] [a|the|this] {noun} to {verb}[:|,| with|, with] {list}[.|]",
    "with {list}, {verb} [a|the] {noun}[.|| please]",
    "{list}: [use|take|that is for] {tool}[.|| please]",
)
_INVENTED_ZH = (
    "[请|帮我|]用{tool}[，|：]{list}[。|]",
    "[调用|运行|执行]{tool}[，参数是|：|，]{list}[。|]",
)
_GENERIC = ("arg", "value", "input", "data", "x", "param", "item", "text", "field", "arg1", "a", "p1", "key", "option")
_PREFIXES = ("do_", "fn_", "api_", "tool_", "my_", "run_", "mcp__", "x_", "get_", "the_")
_SUFFIXES = ("_tool", "_v2", "_fn", "_api", "_now", "_1", "_call", "_action", "Tool")


@dataclass(frozen=True)
class Offered:
    """A tool as one conversation declares it. `names`: the parameters' names by slot."""

    topic: Topic
    name: str
    names: Mapping[str, str]
    declared: JsonObject


@dataclass(frozen=True)
class Call:
    """One call: the arguments and the result as JSON texts, and the answer that tells it."""

    tool: Offered
    arguments: str
    result: str
    answer: str


def offer(topic: Topic, random: Random, *, strange: float = 0.2) -> Offered:
    """A topic's tool, declared in one of its ways; `strange`: how often under names that say nothing.

    What a name does not say, a description does: from every declaration one can tell what belongs where.
    """
    odd = random.random() < strange
    name = _strange_name(topic, random) if odd else random.choice(topic.names)
    if not odd and random.random() < 0.04:
        name = f"mcp__{made_word(random)}__{name}"
    names = _member_names(topic, random, odd)
    return Offered(topic, name, names, declared(topic, name, names, random, told=odd))


def _member_names(topic: Topic, random: Random, odd: bool) -> dict[str, str]:
    """The parameters' names by slot; a strange tool has strange ones, too, more often than not."""
    names: dict[str, str] = {}
    for one in topic.parameters:
        made = random.choice(one.names)
        while made in names.values() or (odd and made in one.names and random.random() < 0.6):
            made = random.choice(_GENERIC) if random.random() < 0.3 else _joined(random)
        names[one.slot] = made
    return names


def _joined(random: Random) -> str:
    """A made-up name of one word or two, as programs have them."""
    first = made_word(random)
    if random.random() < 0.6:
        return first
    second = made_word(random) if random.random() < 0.5 else random.choice(MEMBERS)
    return random.choice((f"{first}_{second}", f"{first}_{second}", f"{first}{second.title().replace('_', '')}"))


def _strange_name(topic: Topic, random: Random) -> str:
    kind = random.random()
    if kind < 0.5:
        return _joined(random)
    if kind < 0.65:
        return random.choice(_PREFIXES) + made_word(random)
    if kind < 0.8:
        return made_word(random) + random.choice(_SUFFIXES)
    return f"{made_word(random)}_{random.choice(topic.names)}"


def invented(random: Random, *, held: bool = False) -> Topic:
    """A tool that there is nowhere else, asked for by its parameters. `held`: of words that no tool in training has."""
    verb = random.choice(HELD_VERBS if held else VERBS)
    noun = random.choice(HELD_NOUNS if held else NOUNS)
    if random.random() < 0.3:
        noun = word(random, 1, 2) if held else noun_of(random)
    if not held and random.random() < 0.3:
        verb = made_word(random)
    members = random.sample(HELD_MEMBERS if held else MEMBERS, random.randint(1, 3))
    if not held:
        members = [_joined(random) if random.random() < 0.4 else member for member in members]
    kinds = ("word", "number", "phrase", "code", "small", "word")
    parameters = []
    for member in dict.fromkeys(members):
        kind = random.choice(kinds)
        parameters.append(Parameter(member, (member,), kind, "number" if kind in _NUMBERS else "string"))
    asks = tuple(line.replace("{verb}", verb).replace("{noun}", noun) for line in _INVENTED)
    name = random.choice((f"{verb}_{noun}", f"{verb}_{noun}", f"{noun}_{verb}", f"{verb}{noun.title()}"))
    about = f"{verb.title()} a {noun}"
    result = random.choice(({"status": "word"}, {"status": "word", "id": "small"}, {"result": "word"}, {noun: "word"}))
    return Topic(
        "invented",
        (name,),
        (about, f"{verb.title()}s the {noun}."),
        tuple(parameters),
        asks,
        _INVENTED_ZH,
        result=result,
    )


def ask(tool: Offered, random: Random, *, zh: bool, held: bool, several: bool) -> tuple[str, list[Call]]:
    """What the user says, and the calls that it takes. `several`: of one topic that can be asked twice at once."""
    topic = tool.topic
    line = random.choice(topic.asks_zh if zh else topic.asks)
    values = _values(topic, random, zh, held)
    if "{list}" in line:
        line = line.replace("{tool}", tool.name).replace("{list}", _listed(tool, values, random))
    asked = [values]
    if several and topic.several:
        more = _several(topic, random, zh=zh, held=held)
        asked = [values | {topic.several: one} for one in more]
        joint, last = ("、", "和") if zh else (", ", " and ")
        values = values | {topic.several: joint.join(more[:-1]) + last + more[-1]}
    text = drawn(line, random)
    said = slots_of(text) or {one.slot for one in topic.parameters}
    return filled(text, _spoken(topic, values) if zh else values), [_call(tool, one, said, random, zh) for one in asked]


def _spoken(topic: Topic, values: Mapping[str, str]) -> dict[str, str]:
    """Values as a Chinese user says them: a switch is on or off in the call only."""
    switches = {one.slot for one in topic.parameters if one.kind == "onoff"}
    return {slot: _SWITCH_ZH[value] if slot in switches else value for slot, value in values.items()}


def _several(topic: Topic, random: Random, *, zh: bool, held: bool) -> list[str]:
    """Different values of the slot that a request may name two or three of."""
    one = next(one for one in topic.parameters if one.slot == topic.several)
    count = random.choice((2, 2, 3))
    if one.choices:
        return random.sample(one.choices, min(count, len(one.choices)))
    return draw_several(one.kind, random, count, zh=zh, held=held)


def _values(topic: Topic, random: Random, zh: bool, held: bool) -> dict[str, str]:
    values = {
        one.slot: random.choice(one.choices) if one.choices else draw(one.kind, random, zh=zh, held=held)
        for one in topic.parameters
        if one.kind not in ("unit", "unit2")
    }
    for one in topic.parameters:
        if one.kind == "unit":
            values["unit"], values["target"] = draw_units(random, zh=zh)
        while one.kind.endswith("2") and one.kind != "unit2" and values[one.slot] in _others(values, one.slot):
            values[one.slot] = draw(one.kind, random, zh=zh, held=held)
    return values


def _others(values: Mapping[str, str], slot: str) -> list[str]:
    return [value for name, value in values.items() if name != slot]


def _listed(tool: Offered, values: Mapping[str, str], random: Random) -> str:
    said = []
    same = random.random() < 0.5
    joint = random.choice(_LABELLED)
    for one in tool.topic.parameters:
        joint = joint if same else random.choice(_LABELLED)
        label = tool.names[one.slot].replace("_", random.choice((" ", "_")))
        value = f'"{values[one.slot]}"' if one.kind == "phrase" else values[one.slot]
        said.append(f"{label}{joint}{value}")
    return said[0] if len(said) == 1 else ", ".join(said[:-1]) + random.choice((" and ", ", ", ", and ")) + said[-1]


def _call(tool: Offered, values: Mapping[str, str], said: set[str], random: Random, zh: bool) -> Call:
    arguments: JsonObject = {}
    for one in tool.topic.parameters:
        if one.slot in said:
            arguments[tool.names[one.slot]] = _typed(values[one.slot], one.type != "string")
    result, told = _result(tool.topic, values, random, zh)
    return Call(tool, json.dumps(arguments, ensure_ascii=False), result, told)


def _typed(value: str, number: bool) -> Any:
    return json.loads(value) if number else value


def _result(topic: Topic, values: Mapping[str, str], random: Random, zh: bool) -> tuple[str, str]:
    """What the tool answers, and how it is told."""
    if random.random() < 0.07:
        return _failure(random, zh)
    members: JsonObject = {}
    numbers = {f"@{one.slot}" for one in topic.parameters if one.type != "string"} | _NUMBERS
    for name, kind in topic.result.items():
        value = _member(kind, values, random, zh)
        members[name] = _typed(value, True) if kind in numbers else value
    spaced = random.choice(((", ", ": "), (",", ":")))
    if topic.said:
        line = topic.said_zh if zh else topic.said
        told = line.format(**{**values, **{name: _plain(value) for name, value in members.items()}})
        if random.random() < 0.2:
            members[word(random)] = random.choice((word(random), random.randint(0, 99)))
    elif random.random() < 0.12:
        text = " ".join(str(_plain(value)) for value in members.values())
        return text, text
    else:
        told = listing(members, zh)
    return json.dumps(members, ensure_ascii=False, separators=spaced), told


def _member(kind: str, values: Mapping[str, str], random: Random, zh: bool) -> str:
    if kind[0] in "@=":
        return values[kind[1:]] if kind[0] == "@" else kind[1:]
    return draw(kind, random, zh=zh)


def listing(members: Mapping[str, Any], zh: bool) -> str:
    """A result without words of its own: its members one behind another."""
    said = [f"{name.replace('_', ' ')} {_plain(value)}" for name, value in members.items()]
    return f"完成：{'，'.join(said)}。" if zh else f"Done: {', '.join(said)}."


def _failure(random: Random, zh: bool) -> tuple[str, str]:
    reason = (
        random.choice(_FAILURES)
        if random.random() < 0.6
        else f"{random.choice(('no', 'unknown', 'bad', 'missing'))} {word(random)}"
    )
    result = random.choice((json.dumps({"error": reason}), f"Error: {reason}"))
    return result, f"{FAILED[zh]}{reason}{'。' if zh else '.'}"


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def asked_of(topics: Sequence[Topic], zh: bool) -> list[Topic]:
    """The topics that can be asked in a language."""
    return [topic for topic in topics if not zh or topic.asks_zh]
