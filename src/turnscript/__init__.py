"""turnscript: one transcript for every chat API and every prompt format.

    import turnscript as ts
    rendered = ts.convert(body, "anthropic-messages", "openai-chat")
    rendered.value, rendered.losses

Owns the public names; everything else may move.
"""

import turnscript.cli.loading  # noqa: F401  (before all that takes its time)
from turnscript.apis.api import Api, Reply
from turnscript.apis.streams import StreamParser, StreamRenderer
from turnscript.convert.recognition import detect_api
from turnscript.convert.registry import apis, formats, get_api, model_formats
from turnscript.convert.verbs import convert, parse, parse_exchange, parse_response, render
from turnscript.core.conversation import (
    Assistant,
    Audio,
    Conversation,
    Document,
    Image,
    Issue,
    Item,
    Opaque,
    Part,
    Raw,
    Refusal,
    Request,
    Response,
    ResponseFormat,
    Settings,
    System,
    Text,
    Thinking,
    ThinkingMode,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
    ToolsChange,
    Usage,
    User,
)
from turnscript.core.errors import (
    InvalidConversation,
    InvalidInput,
    InvalidRequest,
    InvalidTranscript,
    LossyConversion,
    TurnscriptError,
    UnknownName,
    Unsupported,
    UpstreamError,
)
from turnscript.core.events import Event, MessageEnd, PartDelta, PartEnd, PartStart, fold
from turnscript.core.exchange import Exchange
from turnscript.core.logprobs import TokenLogprob
from turnscript.core.losses import Loss
from turnscript.core.payloads import Rendered, Source
from turnscript.core.presets import Preset, get_preset, presets
from turnscript.detection import Detected, detect
from turnscript.detection.template_format import get_format
from turnscript.engine.constraint import Constraint
from turnscript.engine.files import FileSequence, Fill, FillPrompt
from turnscript.engine.lines import Finding
from turnscript.engine.parse import TurnParser
from turnscript.engine.prompt import Prompt
from turnscript.engine.replay import Generated
from turnscript.engine.spans import Span
from turnscript.formats.format import Format
from turnscript.tableio import InvalidFormat

__version__ = "0.1.0"

__all__ = [
    "Api",
    "Assistant",
    "Audio",
    "Constraint",
    "Conversation",
    "Detected",
    "Document",
    "Event",
    "Exchange",
    "FileSequence",
    "Fill",
    "FillPrompt",
    "Finding",
    "Format",
    "Generated",
    "Image",
    "InvalidConversation",
    "InvalidFormat",
    "InvalidInput",
    "InvalidRequest",
    "InvalidTranscript",
    "Issue",
    "Item",
    "Loss",
    "LossyConversion",
    "MessageEnd",
    "Opaque",
    "Part",
    "PartDelta",
    "PartEnd",
    "PartStart",
    "Preset",
    "Prompt",
    "Raw",
    "Refusal",
    "Rendered",
    "Reply",
    "Request",
    "Response",
    "ResponseFormat",
    "Settings",
    "Source",
    "Span",
    "StreamParser",
    "StreamRenderer",
    "System",
    "Text",
    "Thinking",
    "ThinkingMode",
    "TokenLogprob",
    "Tool",
    "ToolCall",
    "ToolChoice",
    "ToolResult",
    "ToolsChange",
    "TurnParser",
    "TurnscriptError",
    "UnknownName",
    "Unsupported",
    "UpstreamError",
    "Usage",
    "User",
    "apis",
    "convert",
    "detect",
    "detect_api",
    "fold",
    "formats",
    "get_api",
    "get_format",
    "get_preset",
    "model_formats",
    "parse",
    "parse_exchange",
    "parse_response",
    "presets",
    "render",
]


def __dir__() -> list[str]:
    """What a shell completes: the public names, without the modules that they come from."""
    return [*__all__, "__version__"]
