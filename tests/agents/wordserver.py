"""Owns an MCP server on standard input: one of its many tools reads the word. A program, which imports no tests."""

import json
import sys
from pathlib import Path
from typing import Any

_NAMES = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
_TOOLS = [
    {"name": f"{verb}_{thing}", "description": f"{verb.title()}s the {thing} of the project.", "inputSchema": _NAMES}
    for verb in ("read", "write", "drop", "list")
    for thing in ("word", "note", "page", "book", "letter", "poem")
]


def _answer(method: str, parameters: dict[str, Any]) -> dict[str, Any]:
    if method == "initialize":
        about = {"name": "words", "version": "1"}
        return {"protocolVersion": parameters["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": about}
    if method == "tools/list":
        return {"tools": _TOOLS}
    if method == "tools/call" and parameters["name"] == "read_word":
        return {"content": [{"type": "text", "text": Path("word.txt").read_text(encoding="utf-8")}]}
    return {}


if __name__ == "__main__":
    for line in sys.stdin:
        asked = json.loads(line)
        if "id" in asked:
            result = _answer(asked["method"], asked.get("params", {}))
            sys.stdout.write(f"{json.dumps({'jsonrpc': '2.0', 'id': asked['id'], 'result': result})}\n")
            sys.stdout.flush()
