"""Owns shapes: tools that are made up of a thing and something to do with it, with the ways in which one asks for such.

A shape has `{noun}` and `{verb}` in its names and lines, so that each is hundreds of tools: what a model learns from them
is to read a declaration, and not to know a tool.
"""

from __future__ import annotations

from random import Random

from tiny.dialogs.topics import Parameter, Topic
from tiny.dialogs.values import VERBS, made_word, noun_of

_NAMES = ("{noun}_status", "get_{noun}_status", "check_{noun}", "{noun}_state", "{noun}_info", "find_{noun}")
_POLITE = "[can you |could you |please |would you |i want you to |i'd like you to |]"
_CHOICES = (
    ("small", "medium", "large"),
    ("public", "private"),
    ("fast", "slow"),
    ("daily", "weekly", "monthly"),
    ("left", "right"),
    ("hot", "cold"),
    ("red", "green", "blue"),
    ("normal", "urgent"),
    ("draft", "final"),
    ("easy", "hard"),
    ("short", "long"),
    ("day", "night"),
)


def shaped(random: Random) -> Topic:
    """A tool of one of the shapes, its thing and its verb chosen or made up."""
    shape = random.choice(_SHAPES)
    words = {"{noun}": noun_of(random), "{verb}": made_word(random) if random.random() < 0.2 else random.choice(VERBS)}
    choices: tuple[str, ...] = random.choice(_CHOICES)
    if random.random() < 0.25:
        choices = tuple(made_word(random) for _ in range(3))

    def filled(text: str) -> str:
        for mark, word in words.items():
            text = text.replace(mark, word).replace(mark.upper(), word.capitalize())
        return text

    parameters = tuple(
        Parameter(
            one.slot,
            tuple(map(filled, one.names)),
            one.kind,
            one.type,
            filled(one.about),
            one.optional,
            choices if one.kind == "choice" else (),
        )
        for one in shape.parameters
    )
    return Topic(
        "shaped",
        tuple(map(filled, shape.names)),
        tuple(map(filled, shape.about)),
        parameters,
        tuple(map(filled, shape.asks)),
        result={filled(name): kind for name, kind in shape.result.items()},
        several=shape.several,
    )


_SHAPES = (
    Topic(
        "state",
        _NAMES,
        ("Status of a {noun}", "Tells how a {noun} is doing", "Looks up a {noun} by its number", "{NOUN} information"),
        (
            Parameter(
                "code", ("{noun}", "{noun}_id", "{noun}_number", "id", "number", "code", "ref"), "code", about="Which {noun}"
            ),
        ),
        (
            "[what is|what's|tell me|give me|i need|get me] the [status|state|condition|latest] of [the |my |our |]{noun} {code}[?|.| please]",
            "[how is|what about|what happened to|is there anything new about] [my |the |our |]{noun} {code}?",
            "is [my |the |our |]{noun} {code} [ready|done|ok|there yet|broken|finished|alright]?",
            "[look up|check|check on|inspect] [the |my |]{noun} {code}[.| please|, please|]",
            "{noun} {code}[?|, please|: any news?]",
            "my {noun} has [the number|number|the code] {code}, [how is it|is it ready|what is going on]?",
            "i am [waiting for|worried about] {noun} {code}[, can you check it?|. Any news?|.]",
        ),
        result={"status": "word", "id": "small"},
        several="code",
    ),
    Topic(
        "level",
        ("set_{noun}", "{noun}_level", "adjust_{noun}", "change_{noun}", "{noun}"),
        ("Sets the {noun}", "Changes the level of the {noun}", "Adjust the {noun}"),
        (Parameter("level", ("level", "value", "percent", "amount", "to", "{noun}"), "percent", "integer", "The new level"),),
        (
            "[set|turn|put|bring|change|move] the {noun} to {level}[ percent|%|][.|| please|, please]",
            "{noun} to {level}[, please|.||!]",
            "i [want|need|would like] the {noun} at {level}[ percent|][.|]",
            "[can you|could you] [turn|set|move|bring] the {noun} [up|down] to {level}?",
            "the {noun} [should be|has to be|must be] at {level}[.| now.|]",
            "{level} [is better|would be better] for the {noun}[.|]",
        ),
        result={"{noun}": "@level"},
    ),
    Topic(
        "room",
        ("set_{noun}", "control_{noun}", "{verb}_{noun}", "room_{noun}", "{noun}_control"),
        ("Sets the {noun} of a room", "Controls the {noun} in a room", "Changes the {noun} somewhere in the house"),
        (
            Parameter("room", ("room", "where", "area", "place", "location"), "room", about="Which room"),
            Parameter("level", ("level", "value", "{noun}", "setting", "percent"), "percent", "integer", "The new value"),
        ),
        (
            "[set|put|turn|change] the {noun} in the {room} to {level}[.|| please]",
            "[set|put|turn|change] the {room} {noun} to {level}[.|| please]",
            "{room} {noun} [to|at] {level}[.||, please]",
            "i want [a {noun} of|the {noun} at] {level} in the {room}[.|]",
            "in the {room}, [make|set|put] the {noun} [to |]{level}[.|| please]",
        ),
        result={"room": "@room", "value": "@level"},
        several="room",
    ),
    Topic(
        "person",
        ("{verb}", "{verb}_user", "{verb}_person", "{verb}_someone", "user_{verb}", "{verb}_member"),
        ("{VERB} a person", "{VERB}s somebody", "{VERB} a member of the team"),
        (Parameter("person", ("name", "person", "user", "who", "member", "user_name"), "person", about="Name of the person"),),
        (
            _POLITE + "{verb} {person}[.|| please|?]",
            "[i want to|i'd like to|let us|let's|we should|i have to] {verb} {person}[.|]",
            "{person} [deserves it|has asked for it|is waiting|is ready][, so|:|. Please] {verb} [them|the poor soul|this person][.|]",
        ),
        result={"status": "=ok", "name": "@person"},
        several="person",
    ),
    Topic(
        "entry",
        ("create_{noun}", "new_{noun}", "add_{noun}", "{noun}_create", "post_{noun}", "make_{noun}"),
        ("Creates a {noun}", "Make a new {noun}", "Adds a {noun}"),
        (
            Parameter("text", ("text", "title", "content", "subject", "message", "description", "name"), "phrase", about="What it says"),
            Parameter("choice", ("kind", "type", "level", "class", "mode", "category"), "choice", about="Kind of {noun}"),
        ),
        (
            "[create|open|add|post|make|write|start] a {choice} {noun}[:| saying| that says| with the text| called|] \"{text}\"[.|| please]",
            "[create|open|add|post|make|write] a {noun} \"{text}\"[,| and make it| as|, kind] {choice}[.|| please]",
            "i need a {choice} {noun}[:| for|,] \"{text}\"[.|]",
            "\"{text}\" [should be|has to be|becomes|goes into] a {choice} {noun}[.|]",
        ),
        result={"id": "small", "kind": "@choice"},
    ),
    Topic(
        "order",
        ("order_{noun}", "buy_{noun}", "request_{noun}s", "{noun}_order", "get_{noun}s"),
        ("Orders a number of {noun}s", "Buys {noun}s", "Ask for {noun}s"),
        (
            Parameter("count", ("count", "number", "amount", "quantity", "how_many", "n"), "few", "integer", "How many"),
            Parameter("person", ("person", "for", "receiver", "customer", "who"), "person", about="Who gets them", optional=True),
        ),
        (
            "[order|buy|get|get me|send me|i need|i want|we need] {count} {noun}s[.|| please]",
            "[order|buy|get|send|bring|book] {count} {noun}s for {person}[.|| please]",
            "{person} [needs|wants|would like|has asked for] {count} {noun}s[.|, please order them.|]",
            "[we are|i am] [short of|out of] {noun}s, [order|get|buy] {count}[.|| please]",
        ),
        result={"status": "=ordered", "count": "@count"},
    ),
    Topic(
        "thing",
        ("{verb}_{noun}", "{noun}_{verb}", "{verb}", "do_{verb}", "{verb}_a_{noun}"),
        ("{VERB} a {noun}", "{VERB}s the {noun} of that name", "{VERB} something", "{VERB} one {noun}"),
        (Parameter("word", ("name", "{noun}", "id", "{noun}_name", "which", "target", "item"), "label", about="Name of the {noun}"),),
        (
            _POLITE + "{verb} [the |my |our |]{noun} [called |named |]{word}[.|| please]",
            "[i want to|i'd like to|we have to|it is time to] {verb} [the |]{noun} {word}[.|]",
            "{verb} {word}[, the {noun}|][.|| please|, please]",
            "[there is|i have] a {noun} [called|named] {word}[, please {verb} it|. {VERB} it][.|]",
        ),
        result={"status": "word", "name": "@word"},
        several="word",
    ),
    Topic(
        "move",
        ("move_{noun}", "send_{noun}", "{verb}_{noun}", "transfer_{noun}", "ship_{noun}"),
        ("Moves a {noun}", "Takes a {noun} from one place to another", "Sends a {noun} somewhere"),
        (
            Parameter("city", ("from", "source", "origin", "start"), "city", about="Where it is"),
            Parameter("other", ("to", "destination", "target", "end"), "city2", about="Where it goes"),
        ),
        (
            "[move|send|bring|carry|transfer|take|ship] [the |a |my |this ]{noun} from {city} to {other}[.|| please]",
            "{noun} from {city} to {other}[.||, please]",
            "[the|my|our] {noun} [is in|is still in|sits in] {city} [and|but] [should be|has to be|must go] [in|to] {other}[.|]",
        ),
        result={"status": "word"},
    ),
    Topic(
        "plan",
        ("plan_{noun}", "book_{noun}", "schedule_{noun}", "reserve_{noun}", "{noun}_booking"),
        ("Plans a {noun}", "Books a {noun} at a time", "Reserve a {noun}"),
        (
            Parameter("day", ("day", "date", "when", "on"), "day", about="Which day"),
            Parameter("time", ("time", "at", "hour", "start"), "time", about="Time as HH:MM"),
        ),
        (
            "[plan|book|reserve|schedule|get me|i need] a {noun} [on|for] {day} at {time}[.|| please]",
            "[on |]{day}[,| at] {time}[:|, book a|, i need a] {noun}[.|| please]",
            "is there a {noun} [on|for] {day} at {time}? [book it|reserve it|i take it][.|]",
        ),
        result={"status": "=booked", "id": "small"},
    ),
)
