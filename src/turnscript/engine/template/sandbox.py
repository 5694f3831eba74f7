"""Owns the sandbox in which a chat template runs: transformers' settings, with every operation bounded by a meter."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from itertools import islice
from types import BuiltinMethodType, MethodType
from typing import Any

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context, LoopContext, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedEscapeFormatter, SandboxedFormatter
from jinja2.utils import Namespace

from turnscript.engine.template import meter as bounds
from turnscript.engine.template.frozen import FrozenDict, FrozenList
from turnscript.engine.template.meter import METHODS, Meter, Stop

COUNTED, WEIGHED, CHECKED = " counted", " weighed", " checked"
"""Filters that no template can name."""
CHEAP = frozenset(
    {"abs", "attr", "capitalize", "count", "d", "default", "first", "float", "last", "length", "lower", "trim", "upper"}
)
"""Filters whose result is no larger than what they are given."""
_ALONE = frozenset({"e", "escape", "int", "reverse", "round", "safe", "string", "title", "wordcount"})
"""Filters that take nothing of their environment, so that they may be called at once."""
FUNCTIONS = frozenset({"range", "dict", "cycler", "joiner", "namespace", "raise_exception", "strftime_now"})
_CHUNKS = 1000
_DICTS = frozenset({dict, FrozenDict})
_OF_DICT = frozenset(dir(FrozenDict))
_FREE: dict[type, frozenset[str]] = {
    str: frozenset(name for name in dir(str) if not name.startswith("_")) - {"format", "format_map"},
    dict: frozenset({"get", "items", "keys", "values", "copy"}),
    list: frozenset({"index", "count", "copy"}),
    LoopContext: frozenset(name for name in dir(LoopContext) if not name.startswith("_")),
}
_FREE[FrozenDict], _FREE[FrozenList] = _FREE[dict], _FREE[list]
"""Attributes that the sandbox allows, after it has looked at a dozen things."""


class Refusal(jinja2.TemplateError):
    """The template itself says that it cannot write a conversation."""


def _namespaces(meter: Meter) -> type[Namespace]:
    """Make the type of a template's namespaces, whose names do not begin with an underscore."""

    class Names(Namespace):
        def __init__(*args: Any, **names: Any) -> None:
            given = dict(*args[1:], **names)
            for name in given:
                _check_name(name)
            Namespace.__init__(args[0], given)

        def __setitem__(self, name: str, value: Any) -> None:
            _check_name(name)
            super().__setitem__(name, value)

        def __repr__(self) -> str:
            # Namespaces are never weighed, because what is in them changes. So their text is counted while it is made.
            meter.tick()
            return super().__repr__()

    return Names


def _check_name(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise jinja2.exceptions.SecurityError(f"a name in a namespace begins with an underscore: {name!r}")


class Dictionaries:
    """The function `dict`, without the attributes of the type."""

    def __call__(self, *args: Any, **names: Any) -> dict[Any, Any]:
        return dict(*args, **names)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        return dict.fromkeys(*args)


class Generation(Extension):
    """The tag around what the model writes. Its body is rendered; names that are set in it stay in it."""

    tags = {"generation"}  # noqa: RUF012 (as the class above has it)

    def parse(self, parser: Parser) -> jinja2.nodes.Node:
        line = next(parser.stream).lineno
        return jinja2.nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


def _appending(made: list[Any], meter: Meter) -> Callable[[Any], None]:
    """Return what puts a text or a number into a list; a list in it could hold itself."""

    def append(value: Any) -> None:
        if not isinstance(value, (str, int, float, type(None))):
            raise Stop("it puts more than a text or a number into a list that it made")
        meter.weights.pop(id(made), None)
        meter.weigh(value)
        meter.grow(1)
        made.append(value)

    return append


class _Formatting(SandboxedFormatter):
    """Fills in a text of braces, with widths that are bounded."""

    meter: Meter

    def format_field(self, value: Any, format_spec: str) -> Any:
        if format_spec and bounds.widest(format_spec) > bounds.WIDEST:
            raise Stop(f"it pads a text to more than {bounds.WIDEST} characters")
        self.meter.weigh(value)
        made = super().format_field(value, format_spec)
        self.meter.grow(len(made))
        return made


class _Escaping(_Formatting, SandboxedEscapeFormatter):
    """Fills in a text of braces that is safe, and makes safe what it is filled with."""


class Sandbox(ImmutableSandboxedEnvironment):
    """The environment of one template. Not for two threads at a time: its meter counts one rendering."""

    intercepted_binops = frozenset({"*", "**", "%", "//"})

    def __init__(self, meter: Meter) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
        self.meter = meter
        self._names = _namespaces(meter)
        self.concat = _concat(meter)  # type: ignore[method-assign]
        del self.globals["lipsum"]
        self.globals |= {
            "raise_exception": _refuse,
            "strftime_now": _clock(meter),
            "dict": Dictionaries(),
            "namespace": self._names,
        }
        self.filters |= _guarded(ImmutableSandboxedEnvironment(), meter)
        self.filters["tojson"] = _to_json(meter, self.concat)
        self.filters[COUNTED] = _passing(meter.counted)
        self.filters[WEIGHED] = _passing(meter.weigh)
        self.filters[CHECKED] = _passing(_checked(meter))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        _OPERATORS[operator](self.meter, left, right)
        return super().call_binop(context, operator, left, right)

    def getattr(self, obj: Any, attribute: str) -> Any:
        kind = type(obj)
        if kind in _DICTS and attribute not in _OF_DICT:
            try:
                return obj[attribute]
            except KeyError:
                return self.undefined(obj={}, name=attribute)
        if kind is self._names and attribute[0] != "_":
            try:
                return getattr(obj, attribute)
            except AttributeError:
                return super().getattr(obj, attribute)
        if kind in _FREE and attribute in _FREE[kind]:
            return getattr(obj, attribute)
        if kind is list and attribute == "append":  # what is given is frozen, so the template itself made it
            return _appending(obj, self.meter)
        return super().getattr(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        try:
            return obj[argument]
        except (TypeError, LookupError):
            # What is not there is told of a plain dictionary, whatever the caller froze.
            return super().getitem(dict(obj) if type(obj) is FrozenDict else obj, argument)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        wrapped = super().wrap_str_format(value)
        if wrapped is None:
            return None
        text, mapped = value.__self__, value.__name__ == "format_map"
        escape = getattr(text, "escape", None)
        escaping: Any = _Escaping  # its type says that it takes no options
        formatter: Any = _Formatting(self) if escape is None else escaping(self, escape=escape)
        formatter.meter = self.meter

        def fill(*args: Any, **names: Any) -> str:
            if not mapped:
                made: str = type(text)(formatter.vformat(text, args, names))
            elif names or len(args) != 1:
                made = wrapped(*args, **names)  # it says what is wrong
            else:
                made = type(text)(formatter.vformat(text, (), args[0]))
            return made

        return fill

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805 (a template may give an argument any name)
        meter = __self.meter
        meter.tick()
        kind = type(__obj)
        if kind is Macro:
            kwargs.pop("_loop_vars", None)
            kwargs.pop("_block_vars", None)
            return __obj(__context.eval_ctx, *args, **kwargs)  # its text was counted where it was joined
        if kind is BuiltinMethodType or kind is MethodType:
            name = __obj.__name__
            if kind is BuiltinMethodType and type(__obj.__self__) in _FREE:
                kwargs.pop("_loop_vars", None)
                kwargs.pop("_block_vars", None)
                if name not in METHODS:
                    made = __obj(*args, **kwargs)
                    return made if name == "get" else meter.result(made)
            if name in METHODS:
                args = __self._looked_at(__obj, args, kwargs)
        elif kind is LoopContext and args:
            args = (meter.counted(args[0]), *args[1:])
        elif args and kind is type:
            meter.weigh(args)
        return meter.result(super().call(__context, __obj, *args, **kwargs))

    def _looked_at(self, method: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """Look at what a method is given, which may make much of it."""
        names = {name: value for name, value in kwargs.items() if name not in ("_loop_vars", "_block_vars")}
        if method.__name__ == "join" and args and isinstance(args[0], Iterator):
            args = (list(self.meter.steadily(args[0])), *args[1:])
        METHODS[method.__name__](self.meter, method.__self__, args, names)
        return args


_OPERATORS: dict[str, Callable[[Meter, Any, Any], None]] = {
    "*": bounds.product,
    "**": bounds.power,
    "%": bounds.remainder,
    "//": bounds.quotient,
}


def _refuse(message: Any) -> None:
    raise Refusal(message)


def _clock(meter: Meter) -> Callable[[str], str]:
    def strftime_now(format: str) -> str:  # noqa: A002 (its name in transformers)
        if len(format) > 1000:
            raise Stop("it asks for a date in more than 1000 characters")
        return (meter.now or datetime.now()).strftime(format)

    return strftime_now


def _concat(meter: Meter) -> Callable[[Iterable[str]], str]:
    """Make what joins the pieces of a template's output, a thousand at a time."""

    def concat(pieces: Iterable[str]) -> str:
        if type(pieces) is list:  # of a macro: each loop and call in it was counted
            total = sum(map(len, pieces))
            meter.grow(total)
            return "".join(pieces)
        texts: list[str] = []
        total, source = 0, iter(pieces)
        while some := list(islice(source, _CHUNKS)):
            total += sum(map(len, some))
            if total > meter.characters:
                raise Stop(f"it wrote more than {meter.characters} characters")
            meter.tick(0)
            texts += some
        meter.grow(total)
        return "".join(texts)

    return concat


def _passing(function: Callable[[Any], Any]) -> Callable[..., Any]:
    # What wants the context is never computed while a template is compiled.
    @jinja2.pass_context
    def pass_on(_context: Context, value: Any) -> Any:
        return function(value)

    return pass_on


def _checked(meter: Meter) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        meter.tick(0)
        if isinstance(value, (str, list, tuple)):
            meter.grow(len(value))
        return value

    return check


def _to_json(meter: Meter, concat: Callable[[Iterable[str]], str]) -> Callable[..., str]:
    """Make the filter `tojson`, which keeps the encoder of each set of options."""
    encoders: dict[Any, json.JSONEncoder] = {}

    @jinja2.pass_context
    def to_json(
        _context: Context,
        x: Any,
        ensure_ascii: Any = False,
        indent: Any = None,
        separators: Any = None,
        sort_keys: Any = False,
    ) -> str:
        if isinstance(separators, list):
            separators = tuple(separators)
        if bounds.number(indent) > 100 or (isinstance(indent, str) and len(indent) > 100):
            raise Stop("it writes JSON with an indent of more than 100 characters")
        # True is 1, and an indent of 0 is not one of False, so the types are told too.
        options = (ensure_ascii, indent, type(indent), separators, sort_keys)
        texts = x._texts if isinstance(x, (FrozenDict, FrozenList)) else None
        if texts is not None and options in texts:
            return texts[options]
        encoder = encoders.get(options)
        if encoder is None:
            encoder = encoders[options] = json.JSONEncoder(
                ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
            )
        made = encoder.encode(x) if indent is None else concat(encoder.iterencode(x))
        meter.grow(len(made))
        if texts is not None:
            texts[options] = made
        return made

    return to_json


def _guarded(plain: jinja2.Environment, meter: Meter) -> dict[str, Callable[..., Any]]:
    """Make the filters that look at what they are given, and count what they return."""
    return {name: _guard(plain, meter, name) for name in plain.filters if name not in CHEAP}


def _guard(plain: jinja2.Environment, meter: Meter, name: str) -> Callable[..., Any]:
    check, function = _FILTERS.get(name), plain.filters[name] if name in _ALONE else None

    @jinja2.pass_context
    def run(context: Context, value: Any, *args: Any, **names: Any) -> Any:
        meter.tick(0)
        kind = type(value)
        if kind is str:
            if name == "string":
                return value
            if name == "replace" and len(args) == 2 and not names and type(args[0]) is type(args[1]) is str:
                bounds.replaced(meter, value, *args)
                made = value.replace(*args)
                meter.grow(len(made))
                return made
        elif kind in _FREE:
            if name == "items" and kind is not list and not args and not names:
                return iter(value.items())
        elif isinstance(value, Iterator):
            value = meter.steadily(value)
        if check is not None:
            value = check(meter, value, args, names)
        if function is not None:
            return meter.result(function(value, *args, **names))
        return meter.result(plain.call_filter(name, value, args, names, context=context))

    return run


def _option(args: tuple[Any, ...], names: dict[str, Any], place: int, name: str, default: Any = None) -> Any:
    return args[place] if len(args) > place else names.get(name, default)


def _wide(place: int, name: str) -> Callable[..., Any]:
    def check(meter: Meter, value: Any, args: tuple[Any, ...], names: dict[str, Any]) -> Any:
        meter.allow(bounds.number(_option(args, names, place, name)) * bounds.NODE)
        return value

    return check


def _indented(meter: Meter, value: Any, args: tuple[Any, ...], names: dict[str, Any]) -> Any:
    width = _option(args, names, 0, "width", 4)
    width = len(width) if isinstance(width, str) else bounds.number(width)
    if isinstance(value, str):
        meter.allow(len(value) + width)
        meter.allow(len(value) + width * (len(value.splitlines()) + 1))
    return value


def _joined(meter: Meter, value: Any, args: tuple[Any, ...], names: dict[str, Any]) -> Any:
    between = bounds.length(_option(args, names, 0, "d", ""))
    if isinstance(value, str):
        members: Any = value
        total = len(value)
    else:
        members = list(value) if hasattr(type(value), "__iter__") and not isinstance(value, dict) else value
        total = sum(map(meter.weight, members)) if hasattr(type(members), "__iter__") else 0
    meter.allow(total + between * bounds.length(members))
    return members


def _replaced(meter: Meter, value: Any, args: tuple[Any, ...], names: dict[str, Any]) -> Any:
    old, new = _option(args, names, 0, "old", ""), _option(args, names, 1, "new", "")
    bounds.replaced(meter, str(value), str(old), str(new))
    return value


def _formatted(meter: Meter, value: Any, args: tuple[Any, ...], names: dict[str, Any]) -> Any:
    bounds.printf(meter, str(value), names or args)
    return value


def _slow(meter: Meter, value: Any, args: tuple[Any, ...], names: dict[str, Any]) -> Any:
    bounds.slow(value)
    for one in (*args, *names.values()):
        if isinstance(one, str):
            meter.allow(bounds.length(value) * len(one))
    return value


def _rounded(meter: Meter, value: Any, args: tuple[Any, ...], names: dict[str, Any]) -> Any:
    if bounds.number(_option(args, names, 0, "precision", 0)) > 400:
        raise Stop("it rounds a number to more than 400 digits")
    return value


def _number(meter: Meter, value: Any, args: tuple[Any, ...], names: dict[str, Any]) -> Any:
    if isinstance(value, str) and len(value) > 5000:
        raise Stop("it reads a number of more than 5000 digits")
    return value


def _summed(meter: Meter, value: Any, args: tuple[Any, ...], names: dict[str, Any]) -> Any:
    if not isinstance(_option(args, names, 1, "start", 0), (int, float)):
        value = list(value)
        meter.allow(len(value) * sum(map(meter.weight, value)))
    return value


_FILTERS: dict[str, Callable[..., Any]] = {
    "batch": _wide(0, "linecount"),
    "center": _wide(0, "width"),
    "format": _formatted,
    "indent": _indented,
    "int": _number,
    "join": _joined,
    "pprint": _slow,
    "replace": _replaced,
    "round": _rounded,
    "slice": _wide(0, "slices"),
    "striptags": _slow,
    "sum": _summed,
    "title": _slow,
    "truncate": _wide(0, "length"),
    "urlize": _slow,
    "wordcount": _slow,
    "wordwrap": _slow,
    "xmlattr": _slow,
}
