"""The file map in AGENTS.md: written from the first docstring line of every module, so that it cannot go stale."""

import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("src", "tests", "tools")
LEFTOVERS = {"build", "dist", "htmlcov", "PKG-INFO"}  # the last is in a source distribution
START = "<!-- map: start, written by `make map` -->"
END = "<!-- map: end -->"

_MAP = re.compile(f"(?<={re.escape(START)}\n).*?(?={re.escape(END)})", re.DOTALL)
_HEAD = re.compile(r'"""(?:[^"\\]|\\.|"(?!""))*"""$', re.MULTILINE | re.DOTALL)
_LISTED = re.compile(r"^- `([^`]+)` - ", re.MULTILINE)


def modules(root: Path) -> list[Path]:
    """Every Python module that the map must list, relative to the root and in path order."""
    found = (path.relative_to(root) for folder in FOLDERS for path in (root / folder).rglob("*.py"))
    return sorted(path for path in found if "__pycache__" not in path.parts)


def summary(path: Path) -> str:
    """What the module owns: the first line of its docstring."""
    source = path.read_text(encoding="utf-8")
    head = _HEAD.match(source)  # what comes behind it is most of a module, and says nothing of this
    docstring = ast.get_docstring(ast.parse(head[0] if head else source, filename=str(path)))
    if not docstring:
        raise ValueError(f"{path} has no docstring: its first line must say what the module owns")
    return docstring.splitlines()[0].strip()


def render(root: Path) -> str:
    """The lines between the two markers."""
    lines = (f"- `{path.as_posix()}` - {summary(root / path)}\n" for path in modules(root))
    return "".join(lines)


def update(text: str, root: Path) -> str:
    """The text of AGENTS.md with its map as it should be."""
    if len(_MAP.findall(text)) != 1:
        raise ValueError(f"AGENTS.md needs one line {START!r} and after it one line {END!r}")
    lines = render(root)
    return _MAP.sub(lambda _: lines, text)


def listed(text: str) -> list[str]:
    """Every path that AGENTS.md gives a line to, in the map and in the hand-written groups."""
    return _LISTED.findall(text)


def unlisted(text: str, root: Path) -> list[str]:
    """The visible top-level files and folders that no line of AGENTS.md speaks of."""
    known = {path.split("/")[0] for path in listed(text)} | {"AGENTS.md"} | LEFTOVERS
    return sorted(path.name for path in root.iterdir() if not path.name.startswith(".") and path.name not in known)


def main() -> int:
    path = ROOT / "AGENTS.md"
    try:
        path.write_text(update(path.read_text(encoding="utf-8"), ROOT), encoding="utf-8")
    except (ValueError, SyntaxError) as error:
        print(f"agents_map: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
