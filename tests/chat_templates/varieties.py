"""Owns chat templates made of parts: every way to mark turns goes with every way to write thoughts and calls."""

FRAMES = {
    "tags": ("<|turn>user\n", "<turn|>\n", "<|turn>model\n", "<turn|>\n"),
    "brackets": ("[ASK] ", " [/ASK]", " ", "</s>"),
    "brackets without spaces": ("[ASK]", "[/ASK]", "", "</s>"),
    "openings alone": ("<|person|>", "", "<|bot|>", ""),
    "openings and line ends": ("<|person|>\n", "\n", "<|bot|>\n", "\n"),
    "headings": ("### Person:\n", "\n\n", "### Robot:\n", "\n\n"),
    "labels": ("Person: ", "\n\n", "Robot: ", "\n\n"),
    "headers": ("<|h|>user<|/h|>\n\n", "<|over|>", "<|h|>assistant<|/h|>\n\n", "<|over|>"),
    "elements": ("<user>\n", "\n</user>\n", "<assistant>\n", "\n</assistant>\n"),
    "wide bars": ("<｜Person｜>", "", "<｜Bot｜>", "<｜over｜>"),
}
"""Opening and closing of a question, then of an answer."""

THOUGHTS = {
    "none": None,
    "elements": ("<think>\n", "\n</think>\n\n"),
    "brackets": ("[MUSE]", "[/MUSE]"),
    "bars": ("<|begin_of_thought|>", "<|end_of_thought|>\n"),
    "capitals": ("<|START_T|>", "<|END_T|>"),
}

_ONE = "{%- for c in m.tool_calls %}"
_ARRAY = _ONE + "{{ ', ' if not loop.first }}"
_PAIRS = "{%- for k, v in c.function.arguments.items() %}"
_VALUE = "{{ v if v is string else v | tojson }}"
_OBJECT = "{{ {'name': c.function.name, 'arguments': c.function.arguments} | tojson }}"
_END = "{%- endfor %}"

CALLS = {
    "none": "",
    "objects in tags": _ONE
    + "{{ '\n' if m.content or not loop.first }}{{ '<call>\n' }}"
    + _OBJECT
    + "{{ '\n</call>' }}"
    + _END,
    "arguments as strings": _ONE
    + "<call>{{ {'name': c.function.name, 'arguments': c.function.arguments | tojson} | tojson }}</call>"
    + _END,
    "an open array": "[CALLS] ["
    + _ARRAY
    + "{{ {'name': c.function.name, 'parameters': c.function.arguments} | tojson }}"
    + _END
    + "]",
    "a closed array with ids": "<calls>["
    + _ARRAY
    + "{{ {'name': c.function.name, 'arguments': c.function.arguments, 'id': c.id} | tojson }}"
    + _END
    + "]</calls>",
    "an array of lines": "{{ '<calls>[' }}"
    + _ONE
    + "{{ ',' if not loop.first }}{{ '\n    ' }}"
    + _OBJECT
    + _END
    + "{{ '\n]</calls>' }}",
    "wrapped objects": "<calls>{{ m.tool_calls | tojson }}</calls>",
    "names in tags": _ONE + "<function={{ c.function.name }}>{{ c.function.arguments | tojson }}</function>" + _END,
    "names and marks": _ONE + "[CALL]{{ c.function.name }}[ARGS]{{ c.function.arguments | tojson }}" + _END,
    "a section": "<|calls_begin|>"
    + _ONE
    + "<|call_begin|>{{ c.function.name }}<|sep|>{{ c.function.arguments | tojson }}<|call_end|>"
    + _END
    + "<|calls_end|>",
    "bare objects": _ONE + "{{ '\n' if not loop.first }}" + _OBJECT + _END,
    "fences": _ONE + "{{ '\n```json\n' }}" + _OBJECT + "{{ '\n```' }}" + _END,
    "parameters": _ONE
    + "{{ '\n<call>\n<fn=' + c.function.name + '>\n' }}"
    + _PAIRS
    + "{{ '<arg=' + k + '>\n' }}"
    + _VALUE
    + "{{ '\n</arg>\n' }}"
    + _END
    + "{{ '</fn>\n</call>' }}"
    + _END,
    "attributes": "{{ '<calls>\n' }}"
    + _ONE
    + "{{ '<invoke name=\"' + c.function.name + '\">\n' }}"
    + _PAIRS
    + "{{ '<parameter name=\"' + k + '\">' }}"
    + _VALUE
    + "{{ '</parameter>\n' }}"
    + _END
    + "{{ '</invoke>\n' }}"
    + _END
    + "</calls>",
    "keys and values": _ONE
    + "<call>{{ c.function.name }}"
    + _PAIRS
    + "<k>{{ k }}</k><v>"
    + _VALUE
    + "</v>"
    + _END
    + "</call>"
    + _END,
}


def template(frame: str, thought: str = "none", calls: str = "none") -> str:
    """Return a template of these parts."""
    user_open, user_close, open_, close = (part.replace("\n", "\\n") for part in FRAMES[frame])
    marks = THOUGHTS[thought]
    said = ""
    if marks is not None:
        opens, closes = (mark.replace("\n", "\\n") for mark in marks)
        said = f"{{%- if m.reasoning_content %}}{{{{ '{opens}' + m.reasoning_content + '{closes}' }}}}{{%- endif %}}"
    said += "{{ m.content }}"
    if CALLS[calls]:
        said += "{%- if m.tool_calls %}{{ '' }}" + CALLS[calls] + "{%- endif %}"
    question = f"{{{{ '{user_open}' + m.content + '{user_close}' }}}}"
    answer = f"{{{{ '{open_}' }}}}{said}{{{{ '{close}' }}}}"
    turns = f"{{%- if m.role == 'assistant' %}}{answer}{{%- else %}}{question}{{%- endif %}}"
    prompt = f"{{%- if add_generation_prompt %}}{{{{ '{open_.rstrip()}' }}}}{{%- endif %}}"
    return f"{{%- for m in messages %}}{turns}{{%- endfor %}}{prompt}"
