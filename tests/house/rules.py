"""The house rules as functions over syntax trees: each takes a module and yields `path:line: what is wrong`."""

import ast
import importlib
import pkgutil
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
FILE_LINES = 700
FUNCTION_LINES = 80

# What may need an extra. Every other top-level module must work after a bare `pip install turnscript`.
EXTRAS = frozenset({"cli", "playground", "gateway", "datasets"})
# These find formats by listing packages and may read files; what lies below them is pure computation.
ABOVE_CONTRACTS = EXTRAS | {"__init__", "__main__", "convert", "detection", "gguf", "reference", "registry", "tableio"}
THIRD_PARTY = frozenset({"msgspec"})
ENGINE = "turnscript.engine"
# A model's own chat template needs jinja2, an extra: only what is loaded with the first template imports it.
OF_TEMPLATES = PurePosixPath("src/turnscript/engine/template")
TEMPLATE_ENGINE = frozenset({"jinja2"})
WAITS = frozenset(
    {"asyncio", "concurrent", "http", "multiprocessing", "select", "selectors", "signal", "socket", "ssl"}
    | {"subprocess", "threading", "urllib"}
)
# A group that is repeated possessively; and one of which nothing can fail behind what repeats in it.
_POSSESSIVE = re.compile(r"\)(?:[*+?]|\{[\d,]+\})\+")
_FAILS_AT_ONCE = re.compile(r"\(\?:\\\\(?:\.|\{\})(?:\[\^[^\]]+\]\*\+|\{\})\)\*\+")
PUBLIC_THOUGH_UNDERSCORED = frozenset({"_asdict", "_exit", "_fields", "_make", "_replace"})
"""Of named tuples and `os`, which describe them."""
HTTP = frozenset({"aiohttp", "h11", "httptools", "starlette", "uvicorn", "uvloop"})
HTTP_BASES = frozenset({"starlette.responses.Response", "starlette.responses.StreamingResponse", "uvicorn.Server"})
TOUCHES_WORLD = frozenset({"open", "print", "input", "breakpoint"})


@dataclass(frozen=True)
class Module:
    """One source file; `path` is relative to the root of the repository."""

    path: PurePosixPath
    source: str
    tree: ast.Module

    @classmethod
    def of(cls, path: str, source: str) -> "Module":
        return cls(PurePosixPath(path), source, ast.parse(source, filename=path))

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """The whole tree, walked once for all rules."""
        return tuple(ast.walk(self.tree))

    @cached_property
    def statements(self) -> tuple[ast.AST, ...]:
        """Its statements and their clauses, wherever they stand: far fewer than there are nodes."""
        return tuple(_statements(self.tree))

    @property
    def layer(self) -> str:
        """The top-level module this file is or belongs to: `engine` for src/turnscript/engine/scanner.py."""
        return self.path.parts[2].removesuffix(".py")

    def at(self, node: ast.AST | None, message: str) -> str:
        return f"{self.path}:{getattr(node, 'lineno', 1)}: {message}"


def _statements(block: ast.AST) -> Iterator[ast.AST]:
    for field in ("body", "handlers", "orelse", "finalbody", "cases"):
        for one in getattr(block, field, ()):
            yield one
            yield from _statements(one)


def read(*folders: str) -> Iterator[Module]:
    """Every module of the folders, in path order."""
    for path in sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py")):
        yield Module.of(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))


def long_files(module: Module) -> Iterator[str]:
    count = len(module.source.splitlines())
    if count > FILE_LINES:
        yield module.at(None, f"{count} lines, at most {FILE_LINES}: make it a package of the same name")


def long_functions(module: Module) -> Iterator[str]:
    for node in module.statements:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            count = (node.end_lineno or node.lineno) - node.lineno + 1
            if count > FUNCTION_LINES:
                yield module.at(node, f"{node.name} has {count} lines, at most {FUNCTION_LINES}")


def missing_docstrings(module: Module) -> Iterator[str]:
    if not ast.get_docstring(module.tree):
        yield module.at(None, "no docstring: its first line says what the module owns")


def blind_excepts(module: Module) -> Iterator[str]:
    """`except:` and `except Exception` hide bugs: the errors of this library form one tree, so catch what you mean."""
    for node in module.statements:
        if isinstance(node, ast.ExceptHandler):
            caught = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
            if any(kind is None or _last_name(kind) in {"Exception", "BaseException"} for kind in caught):
                yield module.at(node, "a blind except: name the errors that can happen here")


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _imports(module: Module) -> Iterator[tuple[ast.stmt, str]]:
    """Each dotted name that the module imports, wherever the statement stands."""
    for node in module.statements:
        if isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node, f"{node.module or ''}.{alias.name}") for alias in node.names)


def foreign_imports(module: Module) -> Iterator[str]:
    """The core imports the standard library and msgspec, nothing else."""
    if module.layer not in EXTRAS:
        allowed = sys.stdlib_module_names | THIRD_PARTY | {"turnscript"}
        if module.path.parent == OF_TEMPLATES:
            allowed |= TEMPLATE_ENGINE
        for node, name in _imports(module):
            if name.split(".")[0] not in allowed:
                yield module.at(node, f"imports {name!r}: only msgspec may be imported here, the rest are extras")


def side_effects(module: Module) -> Iterator[str]:
    """Below the registry everything is synchronous and does no I/O."""
    if module.layer in ABOVE_CONTRACTS:
        return
    for node, name in _imports(module):
        if name.split(".")[0] in WAITS and not name.startswith("urllib.parse"):
            yield module.at(node, f"imports {name!r}: the core does no I/O and never waits")
    for call in module.nodes:
        if isinstance(call, ast.AsyncFunctionDef):
            yield module.at(call, f"{call.name} is async: the core is synchronous")
        elif isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in TOUCHES_WORLD:
            yield module.at(call, f"calls {call.func.id}: the core does no I/O")


def possessive_groups(module: Module) -> Iterator[str]:
    """Python 3.11.0 to 3.11.4 match `(?:...)*+` too far: what its last, failed round had taken stays taken.

    Single characters, as in `[^"]*+`, are matched right. So is `(?>(?:...)*)`, which means the same.
    """
    joined = [node for node in module.nodes if isinstance(node, ast.JoinedStr)]
    parts = {id(part) for node in joined for part in node.values}
    for node in module.nodes:
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str | bytes) and id(node) not in parts:
            text = node.value if isinstance(node.value, str) else node.value.decode("latin-1")
        else:
            continue
        if _POSSESSIVE.search(_FAILS_AT_ONCE.sub("", text)):
            yield module.at(node, "a group repeated possessively, which Python 3.11.4 matches wrong: write (?>(?:a)*)")


def timed_archives(module: Module) -> Iterator[str]:
    """A gzip that holds the time: as parameter of a test it is in the test's name, which all workers must agree on."""
    if "gzip" not in module.source:  # to walk all modules takes seconds
        return
    for node in module.nodes:
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name("gzip"), attr="compress"), keywords=keywords):
                if "mtime" not in {keyword.arg for keyword in keywords}:
                    yield module.at(node, "gzip.compress without mtime, so no two runs give the same bytes")


def names_of(modules: Iterable[Module]) -> frozenset[str]:
    """Each name with one underscore before it that modules make: functions, classes, attributes, variables, slots."""
    made = set(PUBLIC_THOUGH_UNDERSCORED)
    for node in (node for module in modules for node in module.nodes):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                made.add(name)
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(value=ast.Name("self"), attr=name, ctx=ast.Store()):
                made.add(name)
            case ast.Constant(value=str(name)):
                made.add(name)
    return frozenset(name for name in made if _is_private(name))


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


def inner_parts(module: Module, own: Set[str]) -> Iterator[str]:
    """A library is used by its public means, so that its next version is no other one: no member and no module that it
    keeps for itself, and of the libraries of HTTP no class as a base that they do not describe as one."""
    for node in module.nodes:
        if isinstance(node, ast.Attribute) and _is_private(node.attr) and node.attr not in own:
            yield module.at(node, f"uses {node.attr!r}, which is not of this package: find a public means")
    imported = {}
    for statement, name in _imports(module):
        library, *path = name.split(".")
        if library not in sys.stdlib_module_names | {"turnscript"}:
            imported[path[-1] if path else library] = name
            if any(map(_is_private, path)):
                yield module.at(statement, f"imports {name!r}, which its library keeps for itself")
    for node in module.statements:
        for base in node.bases if isinstance(node, ast.ClassDef) else ():
            first, _, rest = ast.unparse(base).partition(".")
            name = ".".join(part for part in (imported.get(first, ""), rest) if part)
            if name.split(".")[0] in HTTP and name not in HTTP_BASES:
                yield module.at(node, f"is a {name}, which its library does not describe as a base")


def registered_names() -> dict[str, str]:
    """Each format, API and backend name, and the module that owns it: {"rwkv-goose": "turnscript.formats.rwkv_goose"}.

    Read from the modules themselves and not from the registry, so that a faulty registry cannot switch the rule off.
    The kinds of servers with a chat API are called by words that stand in the bodies of all of them: `messages`.
    """
    owners = {}
    packages = (("turnscript.formats", "FORMATS"), ("turnscript.apis", "APIS"), ("turnscript.backends", "BACKENDS"))
    for package_name, attribute in packages:
        package = importlib.import_module(package_name)
        for found in pkgutil.iter_modules(package.__path__, f"{package_name}."):
            for entry in getattr(importlib.import_module(found.name), attribute, ()):
                if not (attribute == "BACKENDS" and entry.endpoint):
                    owners[entry.name] = found.name
    return owners


def _names_itself(module: Module, node: ast.Constant) -> bool:
    """Return whether a kind of servers with a chat API says its own name, which may be that of the API."""
    if not _dotted(module.path).startswith("turnscript.backends."):
        return False
    classes = [one for one in module.nodes if isinstance(one, ast.ClassDef)]
    said = [one for each in classes for one in each.body if isinstance(one, ast.Assign) and one.value is node]
    return any(isinstance(target, ast.Name) and target.id == "name" for one in said for target in one.targets)


def stray_names(module: Module, owners: Mapping[str, str]) -> Iterator[str]:
    """A format, API or backend is named in its own file only; everyone else asks the registry.

    A string equal to a registered name, as a command line or a module spells it, is a fault anywhere in src but in the
    module (or package) that registers it. So is an import of that module. Docstrings, comments and longer strings such
    as help texts are free.
    """
    own = _dotted(module.path)
    docstrings = {id(node.value) for node in module.nodes if isinstance(node, ast.Expr)}
    spelled = {spelling: owner for name, owner in owners.items() for spelling in (name, owner)}
    for node in module.nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            owner = spelled.get(node.value)
            if owner and not _inside(own, owner) and not _names_itself(module, node):
                yield module.at(node, f"names {node.value!r}, which belongs to {owner}: ask the registry")
    for statement, name in _imports(module):
        for owner in set(owners.values()):
            if _inside(name, owner) and not _inside(own, owner):
                yield module.at(statement, f"imports {owner}: ask the registry")


def _dotted(path: PurePosixPath) -> str:
    return ".".join(path.with_suffix("").parts[1:]).removesuffix(".__init__")


def _inside(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def inner_modules(module: Module) -> Iterator[str]:
    """A test speaks to what users have, so that the engine may be built anew under it: it imports no module of that,
    and names none in a text."""
    for statement, name in _imports(module):
        if _inside(name, ENGINE):
            yield module.at(statement, f"imports {name}: show it by what a user can do")
    for node in module.nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith(f"{ENGINE}."):
            yield module.at(node, f"names {node.value}: show it by what a user can do")


def wrong_exports(package: ModuleType) -> Iterator[str]:
    """`__all__` is exactly what a user can reach without an underscore; submodules are reached by their own import."""
    declared: list[str] = list(getattr(package, "__all__", ()))
    real = {
        name for name, value in vars(package).items() if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    yield from (f"{name} is public but not in __all__" for name in sorted(real.difference(declared)))
    yield from (f"{name} is in __all__ but does not exist" for name in declared if not hasattr(package, name))
    yield from (f"{name} is in __all__ twice" for name in sorted({n for n in declared if declared.count(n) > 1}))
