"""Owns the three verbs on names: parse, render and convert between any two APIs and formats, and API detection.

An API spells the settings of its requests in its own way, and a format knows no API. So an archive keeps a request's
options as their origin spelled them: `render` folds the typed settings back into that spelling, and `parse` types them
again.
"""

from __future__ import annotations

from collections.abc import Sequence

from turnscript.api import Api, Source, body_bytes
from turnscript.conversation import Request
from turnscript.errors import InvalidInput, InvalidRequest, InvalidTranscript, UnknownName
from turnscript.format import Format
from turnscript.jsontext import read_object, utf8
from turnscript.losses import Loss
from turnscript.registry import apis, formats, get_api, get_format, is_format
from turnscript.rendered import Rendered
from turnscript.respelling import respelled
from turnscript.sources import in_source_words

AUTO = "auto"
FORMAT_OPTIONS = ("view", "escape", "variant")


def parse(source: Source, name: str = AUTO) -> Request:
    """An API body (bytes, str or dict) or a transcript (str or UTF-8 bytes) as a `Request`.

    `name` is an API, a format, or `auto` to tell from the source. Raises InvalidRequest or InvalidTranscript with the
    place, UnknownName for a name that nobody registered.

    >>> parse({"model": "m", "messages": [{"role": "user", "content": "Hi"}]}, "openai-chat").items[0].content[0].text
    'Hi'
    """
    source = _wrap_bare_list(source) if name == AUTO else source
    target = _lookup(detect_api(source) if name == AUTO else name)
    if isinstance(target, Api):
        return target.parse_request(source)
    request = target.parse(_transcript(source))
    if request.origin is not None and request.extra:
        api = _origin_of(request)
        if api is not None:
            _unfold(api, request)
    return request


def render(
    request: Request, name: str, *, strict: bool = False, normalize_json: bool = False, **options: str
) -> Rendered:
    """A request as an API body or a transcript, with the losses.

    Options: `profile` and each API's own flags for an API, `view`, `escape` and `variant` for a format.
    `normalize_json` spells the JSON of calls and results in one way, `{"city": "Tokyo"}`, or as the format spells JSON.
    That is a loss, told where it changes anything. `strict` raises LossyConversion for every other one.
    """
    target = _lookup(name)
    if isinstance(target, Api):
        asked: list[Loss] = []
        if normalize_json:
            request, asked = respelled(request)
        rendered = target.render_request(request, strict=strict, **options)
        rendered.losses[:0] = in_source_words(request, asked)
        return rendered
    unknown = set(options) - set(FORMAT_OPTIONS)
    if unknown:
        raise UnknownName(f"option of {name}", min(unknown), FORMAT_OPTIONS)
    variant = options.pop("variant", None)
    target = target.variant(variant) if variant is not None else target
    if options.get("view", "archive") == "archive":
        request = _folded(request)
    return target.render(request, strict=strict, normalize_json=normalize_json, **options)


def convert(
    source: Source, from_: str, to: str, *, strict: bool = False, normalize_json: bool = False, **options: str
) -> Rendered:
    """`render(parse(source, from_), to)`.

    >>> body = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "Hi"}]}
    >>> print(convert(body, "anthropic-messages", "rwkv-universal", view="prompt").value)
    <<USER>>
    Hi
    <<USER_END>>
    """
    return render(parse(source, from_), to, strict=strict, normalize_json=normalize_json, **options)


def detect_api(source: Source) -> str:
    """The name of the API or format that an unlabelled source is in, by requirements D-U-21.

    Raises InvalidInput when nothing fits, naming what was looked for.
    """
    text = source if isinstance(source, str) else None
    if isinstance(source, bytes):
        text = utf8(source).decode()
    if text is not None and not text.lstrip().startswith(("{", "[")):
        return _detect_format(text)
    members = read_object(body_bytes(_wrap_bare_list(source)))
    claims = {name: get_api(name).claims(members) for name in apis()}
    best = max(claims, key=lambda name: claims[name])
    if not claims[best]:
        keys = ", ".join(map(repr, list(members)[:8])) or "no member"
        message = f"cannot tell which API this body is for (it has {keys}); name it, one of: {', '.join(apis())}"
        raise InvalidRequest(message, path="$", expected="'messages', 'input' or 'prompt'", got=keys)
    return best


def _detect_format(text: str) -> str:
    for name in formats():
        if get_format(name).claims(text):
            return name
    first = text.strip().split("\n", 1)[0][:40]
    message = f"neither JSON nor a transcript of a known format (it begins {first!r}); name the format"
    raise InvalidInput(message, line=1, column=1, expected=f"JSON or one of: {', '.join(formats())}", got=first)


def _lookup(name: str) -> Api | Format:
    if is_format(name):
        return get_format(name)
    try:
        return get_api(name)
    except UnknownName:
        raise UnknownName("API or format", name, [*apis(), *formats()]) from None


def _wrap_bare_list(source: Source) -> Source:
    """A bare list of messages as a body that holds it."""
    if isinstance(source, Sequence) and not isinstance(source, str | bytes):
        return {"messages": source}
    if isinstance(source, bytes) and source.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"[":
        return b'{"messages":' + source.removeprefix(b"\xef\xbb\xbf") + b"}"
    if isinstance(source, str) and source.lstrip().startswith("["):
        return f'{{"messages":{source}}}'
    return source


def _transcript(source: Source) -> str:
    if isinstance(source, bytes):
        return utf8(source).decode()
    if isinstance(source, str):
        try:
            source.encode()
        except UnicodeEncodeError as error:
            line, column = source.count("\n", 0, error.start) + 1, error.start - source.rfind("\n", 0, error.start)
            message = "half of a surrogate pair, which no UTF-8 text can hold"
            raise InvalidTranscript(message, line=line, column=column, expected="a whole character") from None
        return source
    message = f"expected the text of a transcript, got a {type(source).__name__}"
    raise InvalidTranscript(message, expected="a str or UTF-8 bytes", got=type(source).__name__)


def _origin_of(request: Request) -> Api | None:
    """The API that a request came from, if it is registered here."""
    try:
        return get_api(request.origin) if request.origin else None
    except UnknownName:
        return None


def _unfold(api: Api, request: Request) -> None:
    try:
        api.unfold(request)
    except InvalidRequest as error:
        message = f"the archive's options are not what {api.name} takes: {error}"
        raise InvalidTranscript(message, line=1, column=1, expected=error.expected, got=error.got) from error


def _folded(request: Request) -> Request:
    api = _origin_of(request)
    return api.fold(request) if api is not None else request
