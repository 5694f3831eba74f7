"""Owns chat templates of our own for the tests of reading tables: each has another construct that real ones have."""

_TURNS = """
{%- for message in messages -%}
{%- if message.role == 'assistant' -%}
ANSWER
{%- elif message.role == 'tool' -%}
{{ '<~tool>\n' + message.content + '<~/>\n' }}
{%- else -%}
{{ '<~' + message.role + '>\n' + message.content + '<~/>\n' }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<~assistant>\n' }}{%- endif -%}
"""

_TOOLS = "{%- if tools -%}{{ '<~tools>' + tools | tojson + '<~/>\n' }}{%- endif -%}"


def with_answer(answer: str) -> str:
    """Return a template whose turns stand in tags, with this in place of what an answer is written as."""
    return _TOOLS + _TURNS.replace("ANSWER", answer)


_BEGIN = "{{ '<~assistant>\n' }}"
_THOUGHT = "{%- if message.reasoning_content -%}{{ '<muse>' + message.reasoning_content + '</muse>\n' }}{%- endif -%}"
_TEXT = "{{ message.content }}"
_END = "{{ '<~/>\n' }}"


def _calls(call: str, joint: str = "") -> str:
    between = "{%- if not loop.first -%}{{ '" + joint + "' }}{%- endif -%}" if joint else ""
    return f"{{%- for one in message.tool_calls or [] -%}}{between}{call}{{%- endfor -%}}"


TEXT_ONLY = with_answer(_BEGIN + _TEXT + _END)

JSON_IN_TAGS = with_answer(
    _BEGIN
    + _THOUGHT
    + _TEXT
    + _calls("{{ '\n<act>' + {'parameters': one.function.arguments, 'name': one.function.name} | tojson + '</act>' }}")
    + _END
)

ARRAY = with_answer(
    _BEGIN
    + _TEXT
    + "{%- if message.tool_calls -%}{{ '<acts>[' }}"
    + _calls("{{ {'name': one.function.name, 'arguments': one.function.arguments} | tojson }}", ", ")
    + "{{ ']</acts>' }}{%- endif -%}"
    + _END
)

NAMED = with_answer(
    _BEGIN
    + _THOUGHT
    + _TEXT
    + _calls("{{ '<act:' + one.function.name + '>' + one.function.arguments | tojson + '</act>' }}")
    + _END
)

NESTED_GROUP = with_answer(
    _BEGIN
    + _TEXT
    + "{%- if message.tool_calls -%}{{ '\n<acts>\n' }}"
    + _calls("{{ '<act>' + one.function.name + '<with>' + one.function.arguments | tojson + '</act>\n' }}")
    + "{{ '</acts>' }}{%- endif -%}"
    + _END
)

PARAMETERS = with_answer(
    _BEGIN
    + _THOUGHT
    + _TEXT
    + _calls(
        "{{ '\n<act>\n<fn:' + one.function.name + '>\n' }}"
        "{%- for key, value in one.function.arguments.items() -%}"
        "{{ '<arg:' + key + '>' + (value if value is string else value | tojson) + '</arg>\n' }}{%- endfor -%}"
        "{{ '</fn>\n</act>' }}"
    )
    + _END
)

TEXT_IN_TAGS = with_answer(
    _BEGIN
    + _THOUGHT
    + "{%- if message.content -%}{{ '<say>' + message.content + '</say>' }}{%- endif -%}"
    + _calls("{{ '<act>' + {'name': one.function.name, 'arguments': one.function.arguments} | tojson + '</act>' }}")
    + _END
)

ARGUMENTS_AS_TEXT = with_answer(
    _BEGIN + _TEXT + _calls("{{ '<act>' + one.function.name + '<with>' + one.function.arguments + '</act>' }}") + _END
)

UNKNOWN_CALLS = with_answer(
    _BEGIN
    + _TEXT
    + _calls("{{ '<act>' ~ one.function.name ~ one.function.arguments.items() | list | string ~ '</act>' }}")
    + _END
)

CHATML = """
{%- for message in messages -%}
{{ '<|im_start|>' + ('user' if message.role == 'tool' else message.role) + '\n' }}
{%- if message.role == 'tool' -%}
{{ '<tool_response>\n' + message.content + '\n</tool_response>' }}
{%- else -%}
{{ message.content }}
{%- for one in message.tool_calls or [] -%}
{{ '\n' if message.content or not loop.first }}
{{- '<tool_call>\n' + {'name': one.function.name, 'arguments': one.function.arguments} | tojson + '\n</tool_call>' }}
{%- endfor -%}
{%- endif -%}
{{ '<|im_end|>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\n' }}{%- endif -%}
"""

OPENED_THOUGHT = CHATML.replace("'<|im_start|>assistant\n' }}", "'<|im_start|>assistant\n<think>\n' }}")

LABELS = """
{%- for message in messages -%}
{%- if message.role == 'system' -%}{{ raise_exception('no instructions here') }}{%- endif -%}
{{ ('Guest' if message.role == 'user' else 'Host') + '>> ' + message.content + '\n\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ 'Host>>' }}{%- endif -%}
"""

ALWAYS_OPEN = TEXT_ONLY.replace("{%- if add_generation_prompt -%}", "{%- if true -%}")

NO_TURNS = "{%- for message in messages -%}{{ message.content }}{%- endfor -%}"

REFUSES = "{{ raise_exception('nothing is good enough') }}"

REMINDERS = JSON_IN_TAGS.replace(
    "{%- if add_generation_prompt -%}{{",
    "{%- if add_generation_prompt -%}{{ '<~reminder>\\nBe brief, and call a tool.<~/>\\n' }}{{",
)
