"""Owns topics: what users ask of tools, as data: how the tool may be declared, how one asks, what comes back.

A topic has parameters with several names each, so that a model must read them from the declaration; requests in English
and Chinese; and the shape of a result. Values are drawn by kind, see `values`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tiny.dialogs.phrases import lines_of

_KINDS = Path(__file__).with_name("kinds")


@dataclass(frozen=True)
class Parameter:
    """A parameter: the `slot` of requests that fills it, its possible names, and the kind of its values.

    `type`: as JSON Schema has it. An optional one is only filled by requests that mention its slot.
    `choices`: its values are one of these, whatever its kind.
    """

    slot: str
    names: tuple[str, ...]
    kind: str
    type: str = "string"
    about: str = ""
    optional: bool = False
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Topic:
    """What one asks of one tool. `result`: names of members and kinds of their values; `@slot` repeats an argument,
    `=word` is always that word.

    `said`: how an answer tells the result, in English and Chinese; without it the members are listed.
    """

    name: str
    names: tuple[str, ...]
    about: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    asks: tuple[str, ...]
    asks_zh: tuple[str, ...] = ()
    result: dict[str, str] = field(default_factory=dict)
    said: str = ""
    said_zh: str = ""
    several: str = ""
    """The slot that requests may name two or three of; that makes as many calls."""


def _read() -> Iterator[Topic]:
    """The topics of `kinds/*.toml`: the same members as here, with lists."""
    for path in sorted(_KINDS.glob("*.toml")):
        for told in tomllib.loads(path.read_text(encoding="utf-8"))["topic"]:
            parameters = tuple(Parameter(**_tuples(one)) for one in told.pop("parameters"))
            yield Topic(parameters=parameters, **_tuples(told))


def _tuples(members: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in members.items()}


TOPICS = (
    Topic(
        "weather",
        (
            "get_weather", "weather", "current_weather", "get_current_weather", "fetch_weather", "weather_lookup",
            "check_weather", "weather_report", "getWeather", "get_forecast", "forecast", "weather_now",
        ),
        ("Weather of a city", "Get the current weather", "Current weather in a place", "Looks up the weather.", "Weather"),
        (
            Parameter("city", ("city", "location", "place", "city_name", "town", "where"), "city", about="Name of the city"),
            Parameter("unit", ("unit", "units", "scale", "temperature_unit"), "degree", about="celsius or fahrenheit", optional=True),
        ),
        *lines_of("asks/weather"),
        {"temperature": "temperature", "condition": "sky"},
        "It is {temperature} degrees and {condition} in {city}.",
        "{city}现在{temperature}度，{condition}。",
        several="city",
    ),
    Topic(
        "calculator",
        ("calculator", "calculate", "calc", "evaluate", "math", "compute", "eval_expression", "do_math", "arithmetic"),
        ("Evaluate an arithmetic expression", "A calculator", "Does arithmetic.", "Computes the value of an expression"),
        (Parameter("expression", ("expression", "expr", "formula", "input", "query", "calculation"), "expression", about="Such as 2 + 2"),),
        *lines_of("asks/calculator"),
        {"result": "number"},
        "The result is {result}.",
        "结果是{result}。",
        several="expression",
    ),
    Topic(
        "clock",
        ("get_time", "clock", "current_time", "time_in", "get_current_time", "world_clock", "what_time", "local_time", "getTime"),
        ("Current time in a city", "Tells the time", "Time of day in a place", "Local time of a city."),
        (Parameter("city", ("city", "location", "place", "zone", "city_name", "timezone"), "city", about="City whose time is wanted"),),
        *lines_of("asks/clock"),
        {"time": "time"},
        "It is {time} in {city}.",
        "{city}现在是{time}。",
        several="city",
    ),
    Topic(
        "units",
        ("convert_units", "convert", "unit_converter", "convert_unit", "units", "unit_conversion", "converter"),
        ("Convert a value from one unit to another", "Unit conversion", "Converts units."),
        (
            Parameter("value", ("value", "amount", "number", "quantity", "x"), "quantity", "number", "The number to convert"),
            Parameter("unit", ("from", "from_unit", "source", "unit", "source_unit"), "unit", about="Unit to convert from"),
            Parameter("target", ("to", "to_unit", "target", "target_unit", "into"), "unit2", about="Unit to convert to"),
        ),
        *lines_of("asks/units"),
        {"result": "decimal"},
        "{value} {unit} is {result} {target}.",
        "{value}{unit}是{result}{target}。",
    ),
    Topic(
        "currency",
        ("convert_currency", "exchange", "currency", "exchange_rate", "currency_converter", "to_currency"),
        ("Convert money between currencies", "Currency conversion", "Exchanges an amount of money."),
        (
            Parameter("amount", ("amount", "value", "sum", "money"), "quantity", "number", "How much"),
            Parameter("currency", ("from", "from_currency", "source", "base"), "currency", about="Code of the currency"),
            Parameter("target", ("to", "to_currency", "target", "quote"), "currency2", about="Code of the wanted currency"),
        ),
        *lines_of("asks/currency"),
        {"amount": "decimal", "currency": "@target"},
    ),
    Topic(
        "translate",
        ("translate", "translate_text", "translator", "translation", "to_language"),
        ("Translate a text", "Translates text into a language", "Machine translation"),
        (
            Parameter("text", ("text", "sentence", "input", "phrase", "source_text"), "phrase", about="What to translate"),
            Parameter("language", ("language", "target", "to", "target_language", "lang"), "language", about="Language to translate into"),
        ),
        *lines_of("asks/translate"),
        {"translation": "foreign"},
    ),
    Topic(
        "reminder",
        ("set_reminder", "remind", "add_reminder", "create_reminder", "reminder", "remind_me"),
        ("Set a reminder", "Reminds the user of something", "Creates a reminder at a time."),
        (
            Parameter("task", ("text", "task", "message", "what", "title", "note"), "task", about="What to be reminded of"),
            Parameter("time", ("time", "at", "when", "due"), "time", about="Time as HH:MM"),
        ),
        *lines_of("asks/reminder"),
        {"status": "=done", "id": "small"},
    ),
    Topic(
        "message",
        ("send_message", "message", "send_text", "text_message", "send_sms", "sms", "notify"),
        ("Send a message to somebody", "Sends a text message", "Send an SMS"),
        (
            Parameter("person", ("to", "recipient", "name", "contact", "person", "receiver"), "person", about="Who gets it"),
            Parameter("text", ("text", "message", "body", "content"), "phrase", about="What it says"),
        ),
        *lines_of("asks/message"),
        {"status": "=sent", "to": "@person"},
        several="person",
    ),
    Topic(
        "lights",
        ("set_light", "lights", "switch_light", "light", "control_light", "toggle_light"),
        ("Switch a light on or off", "Controls the lights of a room", "Sets a light."),
        (
            Parameter("room", ("room", "where", "location", "place", "lamp"), "room", about="Which room"),
            Parameter("state", ("state", "on", "action", "switch", "value"), "onoff", about="on or off"),
        ),
        *lines_of("asks/lights"),
        {"room": "@room", "state": "@state"},
        several="room",
    ),
    Topic(
        "timer",
        ("set_timer", "timer", "start_timer", "countdown", "create_timer"),
        ("Start a timer", "Starts a countdown", "A kitchen timer"),
        (Parameter("minutes", ("minutes", "duration", "length", "mins", "time"), "minutes", "integer", "How many minutes"),),
        *lines_of("asks/timer"),
        {"status": "=started", "minutes": "@minutes"},
    ),
    Topic(
        "search",
        ("search", "web_search", "google", "search_web", "find_online", "lookup", "internet_search"),
        ("Search the web", "Finds pages on the internet", "Web search"),
        (Parameter("query", ("query", "q", "text", "term", "keywords", "search_term"), "subject", about="What to look for"),),
        *lines_of("asks/search"),
        {"results": "small", "first": "site"},
        several="query",
    ),
    Topic(
        "music",
        ("play_music", "play", "play_song", "music", "start_music"),
        ("Play a song", "Plays music", "Starts a song of an artist."),
        (
            Parameter("title", ("song", "title", "track", "name"), "title", about="Title of the song"),
            Parameter("artist", ("artist", "by", "singer", "band"), "person", about="Who sings it", optional=True),
        ),
        *lines_of("asks/music"),
        {"playing": "@title"},
    ),
    Topic(
        "stock",
        ("stock_price", "get_stock", "stock", "quote", "get_stock_price", "share_price"),
        ("Price of a stock", "Current share price", "Looks up a stock by its symbol."),
        (Parameter("symbol", ("symbol", "ticker", "stock", "code"), "symbol", about="Ticker symbol"),),
        *lines_of("asks/stock"),
        {"symbol": "@symbol", "price": "decimal"},
        several="symbol",
    ),
    Topic(
        "note",
        ("save_note", "add_note", "note", "write_note", "create_note", "remember"),
        ("Save a note", "Writes something down", "Stores a note"),
        (Parameter("text", ("text", "note", "content", "body"), "phrase", about="The note"),),
        *lines_of("asks/note"),
        {"status": "=saved", "id": "small"},
    ),
    Topic(
        "event",
        ("create_event", "add_event", "calendar", "schedule", "schedule_meeting", "new_event", "book_meeting"),
        ("Create an event in the calendar", "Adds a calendar entry", "Schedules a meeting."),
        (
            Parameter("title", ("title", "name", "subject", "what", "event"), "meeting", about="What it is"),
            Parameter("day", ("date", "day", "on", "when"), "day", about="Which day"),
            Parameter("time", ("time", "at", "start", "hour"), "time", about="Time as HH:MM", optional=True),
        ),
        *lines_of("asks/event"),
        {"status": "=created", "title": "@title", "day": "@day"},
    ),
    Topic(
        "distance",
        ("get_distance", "distance", "route", "how_far", "travel_distance"),
        ("Distance between two cities", "How far it is", "Computes the distance of two places."),
        (
            Parameter("city", ("from", "origin", "start", "source", "city_a"), "city", about="Where from"),
            Parameter("other", ("to", "destination", "end", "target", "city_b"), "city2", about="Where to"),
        ),
        *lines_of("asks/distance"),
        {"kilometres": "thousand"},
        "It is {kilometres} kilometres from {city} to {other}.",
        "{city}到{other}有{kilometres}公里。",
    ),
    Topic(
        "file",
        ("read_file", "open_file", "cat", "get_file", "view_file", "Read"),
        ("Read a file", "Shows what a file holds", "Reads a text file."),
        (Parameter("path", ("path", "file", "filename", "file_path", "name"), "path", about="Path of the file"),),
        *lines_of("asks/file"),
        {"content": "phrase"},
        several="path",
    ),
    Topic(
        "command",
        ("run_command", "shell", "bash", "execute", "terminal", "Bash", "run"),
        ("Run a shell command", "Executes a command", "Runs a command in a terminal."),
        (Parameter("command", ("command", "cmd", "script", "line"), "command", about="The command"),),
        *lines_of("asks/command"),
        {"output": "word", "code": "zero"},
    ),
    Topic(
        "define",
        ("define", "dictionary", "define_word", "get_definition", "lookup_word", "meaning"),
        ("Meaning of a word", "A dictionary", "Looks up what a word means."),
        (Parameter("word", ("word", "term", "entry", "text"), "word", about="The word"),),
        *lines_of("asks/define"),
        {"definition": "phrase"},
        several="word",
    ),
    Topic(
        "volume",
        ("set_volume", "volume", "change_volume", "sound_level"),
        ("Set the volume", "Changes how loud it is", "Sound volume in percent"),
        (Parameter("level", ("level", "volume", "percent", "value"), "percent", "integer", "0 to 100"),),
        *lines_of("asks/volume"),
        {"volume": "@level"},
    ),
    Topic(
        "contact",
        ("find_contact", "contact", "get_phone", "phone_number", "lookup_contact", "contacts"),
        ("Phone number of a contact", "Finds a person in the address book", "Looks up a contact."),
        (Parameter("person", ("name", "person", "contact", "who"), "person", about="Name of the person"),),
        *lines_of("asks/contact"),
        {"name": "@person", "phone": "phone"},
        several="person",
    ),
    Topic(
        "book_table",
        ("book_table", "reserve", "reservation", "book_restaurant", "reserve_table"),
        ("Book a table in a restaurant", "Reserves a table", "Restaurant reservation"),
        (
            Parameter("place", ("restaurant", "place", "where", "name"), "place", about="Name of the restaurant"),
            Parameter("people", ("people", "guests", "persons", "party_size", "seats"), "few", "integer", "How many people"),
            Parameter("time", ("time", "at", "hour"), "time", about="Time as HH:MM"),
        ),
        *lines_of("asks/book_table"),
        {"status": "=booked", "place": "@place", "people": "@people"},
    ),
)
"""What is trained, with many wordings for each."""

MORE = tuple(_read())
"""What is trained, too, with fewer wordings: most of the breadth of what tools may be."""

UNSEEN = (
    Topic(
        "flight",
        ("flight_status", "track_flight"),
        ("Status of a flight",),
        (Parameter("flight", ("flight", "flight_number", "number"), "code", about="Number of the flight"),),
        *lines_of("asks/flight"),
        {"status": "word", "gate": "small"},
    ),
    Topic(
        "parcel",
        ("track_parcel", "package_status"),
        ("Where a parcel is",),
        (Parameter("code", ("tracking_code", "parcel", "package_id"), "code", about="Code of the parcel"),),
        *lines_of("asks/parcel"),
        {"status": "word", "city": "city"},
    ),
    Topic(
        "thermostat",
        ("set_temperature", "thermostat"),
        ("Set the temperature of a room",),
        (
            Parameter("room", ("room", "zone"), "room", about="Which room"),
            Parameter("degrees", ("degrees", "target_temperature"), "minutes", "integer", "Degrees"),
        ),
        *lines_of("asks/thermostat"),
        {"room": "@room", "degrees": "@degrees"},
    ),
    Topic(
        "ticket",
        ("create_ticket", "open_ticket"),
        ("Open a support ticket",),
        (
            Parameter("title", ("summary", "headline"), "phrase", about="What is wrong"),
            Parameter("priority", ("priority", "urgency"), "priority", about="low, medium or high"),
        ),
        *lines_of("asks/ticket"),
        {"ticket": "small", "priority": "@priority"},
    ),
    Topic(
        "vote",
        ("cast_vote", "vote_for"),
        ("Vote for somebody",),
        (Parameter("person", ("candidate", "nominee"), "person", about="Who gets the vote"),),
        *lines_of("asks/vote"),
        {"votes": "small", "candidate": "@person"},
    ),
)
"""What is only asked when the model is judged."""
