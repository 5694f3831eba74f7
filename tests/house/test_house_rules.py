"""The house rules hold everywhere, and each of them can fail."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

import turnscript
from tests.house import rules
from tests.house.rules import Module
from tools import agents_map

Rule = Callable[[Module], Iterator[str]]

EVERYWHERE: tuple[Rule, ...] = (
    rules.long_files,
    rules.long_functions,
    rules.missing_docstrings,
    rules.timed_archives,
)
IN_THE_PACKAGE: tuple[Rule, ...] = (
    rules.blind_excepts,
    rules.foreign_imports,
    rules.side_effects,
    rules.possessive_groups,
)

OWNERS = {"rwkv-goose": "turnscript.formats.rwkv_goose", "openai-chat": "turnscript.apis.openai_chat"}
CORE = "src/turnscript/engine/scanner.py"


def faults(rule: Rule, path: str, source: str) -> list[str]:
    return list(rule(Module.of(path, source)))


@pytest.mark.long
def test_every_module_keeps_the_rules() -> None:
    """Every module is parsed once for all rules, and those of the package once more for their names: to parse them all
    takes seconds, and their trees half a gigabyte."""
    owners = rules.registered_names()
    assert owners, "no format and no API found: the last rule would check nothing"
    found = []
    own = rules.names_of(rules.read("src"))
    for module in rules.read("src", "tests", "tools"):
        packaged = module.path.parts[0] == "src"
        kept = EVERYWHERE + IN_THE_PACKAGE if packaged else EVERYWHERE
        found += [fault for rule in kept for fault in rule(module)]
        found += rules.stray_names(module, owners) if packaged else ()
        found += rules.inner_modules(module) if module.path.parts[0] == "tests" else ()
        found += rules.inner_parts(module, own) if packaged else ()
    assert [] == found


def test_all_lists_the_public_names() -> None:
    assert [] == list(rules.wrong_exports(turnscript))


def test_the_map_is_what_make_map_would_write() -> None:
    text = (agents_map.ROOT / "AGENTS.md").read_text(encoding="utf-8")
    assert agents_map.update(text, agents_map.ROOT) == text, "AGENTS.md is out of date: run `make map`"


def test_every_path_in_agents_md_exists() -> None:
    text = (agents_map.ROOT / "AGENTS.md").read_text(encoding="utf-8")
    assert [] == [path for path in agents_map.listed(text) if not (agents_map.ROOT / path).exists()]


def test_every_top_level_file_and_folder_has_a_line_in_agents_md() -> None:
    text = (agents_map.ROOT / "AGENTS.md").read_text(encoding="utf-8")
    assert [] == agents_map.unlisted(text, agents_map.ROOT)


# From here on: each rule finds what it is for, and lets the nearest good case pass.


def test_a_file_one_line_too_long_is_found() -> None:
    assert [] == faults(rules.long_files, CORE, "x = 1\n" * rules.FILE_LINES)
    assert 1 == len(faults(rules.long_files, CORE, "x = 1\n" * (rules.FILE_LINES + 1)))


@pytest.mark.parametrize("head", ["def f():\n", "async def f():\n", "class A:\n  def f(self):\n"])
def test_a_function_one_line_too_long_is_found(head: str) -> None:
    body = "    x = 1\n"
    assert [] == faults(rules.long_functions, CORE, head + body * (rules.FUNCTION_LINES - 1))
    assert 1 == len(faults(rules.long_functions, CORE, head + body * rules.FUNCTION_LINES))


def test_a_missing_or_empty_module_docstring_is_found() -> None:
    assert [] == faults(rules.missing_docstrings, CORE, '"""What it owns."""\n')
    for source in ("", "x = 1\n", "# a comment\n", '""""""\n', 'x = 1\n"""too late"""\n'):
        assert 1 == len(faults(rules.missing_docstrings, CORE, source)), source


@pytest.mark.parametrize(
    "handler",
    [
        "except:",
        "except Exception:",
        "except Exception as error:",
        "except BaseException:",
        "except builtins.Exception:",
        "except (ValueError, Exception):",
        "except* Exception:",
    ],
)
def test_a_blind_except_is_found(handler: str) -> None:
    assert 1 == len(faults(rules.blind_excepts, CORE, f"try:\n    pass\n{handler}\n    pass\n"))


def test_an_except_that_says_what_it_means_passes() -> None:
    assert [] == faults(rules.blind_excepts, CORE, "try:\n    pass\nexcept (ValueError, KeyError):\n    pass\n")


@pytest.mark.parametrize("path", [CORE, "src/turnscript/__init__.py", "src/turnscript/convert/registry.py"])
@pytest.mark.parametrize(
    "source",
    ["import click", "from rich.table import Table", "import json, httpx", "def f():\n    import torch\n"],
)
def test_a_third_party_import_in_the_core_is_found(path: str, source: str) -> None:
    assert 1 == len(faults(rules.foreign_imports, path, source))


def test_the_standard_library_msgspec_and_the_package_itself_may_be_imported() -> None:
    source = (
        "import json, msgspec\nfrom collections.abc import Iterator\nfrom turnscript.core.errors import Unsupported\n"
    )
    assert [] == faults(rules.foreign_imports, CORE, source)
    assert [] == faults(rules.foreign_imports, "src/turnscript/cli/main.py", "import click")


@pytest.mark.parametrize(
    "source",
    [
        "import asyncio",
        "from urllib.request import urlopen",
        "import http.client",
        "async def f(): ...",
        "class A:\n    async def f(self): ...",
        "open('x')",
        "print('x')",
    ],
)
def test_input_output_and_waiting_below_the_registry_are_found(source: str) -> None:
    assert 1 == len(faults(rules.side_effects, CORE, source))
    assert [] == faults(rules.side_effects, "src/turnscript/gateway/app.py", source)


def test_cutting_urls_up_is_not_input_output() -> None:
    assert [] == faults(rules.side_effects, CORE, "from urllib.parse import urlsplit\nimport urllib.parse\n")


@pytest.mark.parametrize(
    "source",
    [
        "x = 'rwkv-goose'",
        "if name == 'openai-chat': pass",
        "def f(name='openai-chat'): ...",
        "TABLE = {'rwkv-goose': 1}",
        "import_module('turnscript.formats.rwkv_goose')",
        "import turnscript.formats.rwkv_goose",
        "from turnscript.formats import rwkv_goose",
        "from turnscript.apis.openai_chat import APIS",
    ],
)
def test_a_format_or_api_named_outside_its_file_is_found(source: str) -> None:
    paths = [
        CORE,
        "src/turnscript/formats/chatml.py",
        "src/turnscript/cli/main.py",
        "src/turnscript/convert/registry.py",
    ]
    for path in paths:
        assert 1 == len(list(rules.stray_names(Module.of(path, source), OWNERS))), path


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("src/turnscript/formats/rwkv_goose.py", "NAME = 'rwkv-goose'"),
        ("src/turnscript/apis/openai_chat/__init__.py", "NAME = 'openai-chat'"),
        ("src/turnscript/apis/openai_chat/stream.py", "from turnscript.apis.openai_chat.request import x\n"),
        (CORE, "'''rwkv-goose'''"),
        (CORE, "def f():\n    '''openai-chat'''\n"),
        (CORE, "class A:\n    x: int\n    'openai-chat'\n"),
        ("src/turnscript/cli/main.py", "help = 'such as openai-chat'"),
    ],
)
def test_a_format_or_api_may_be_named_at_home_in_docstrings_and_in_help(path: str, source: str) -> None:
    assert [] == list(rules.stray_names(Module.of(path, source), OWNERS))


def test_a_sibling_with_a_longer_name_is_not_home() -> None:
    module = Module.of("src/turnscript/formats/rwkv_goose_extra.py", "NAME = 'rwkv-goose'")
    assert 1 == len(list(rules.stray_names(module, OWNERS)))


@pytest.mark.parametrize(
    "source",
    [
        r"""P = r"(?:ab?c)*+" """,
        r"""P = rb"(?:a|b)++c" """,
        r"""P = r"(?:a|b){2,3}+" """,
        r"""P = rf"{x}(?:{y})?+" """,
        r"""P = A + r")*+b" """,
    ],
)
def test_a_group_that_is_repeated_possessively_is_found(source: str) -> None:
    assert 1 == len(faults(rules.possessive_groups, CORE, source))


@pytest.mark.parametrize(
    "source",
    [
        r"""P = r"(?>(?:ab?c)*)" """,
        r"""P = r"[^b]*+(?:\\.[^b\\]*+)*+" """,
        r"""P = rf"{plain}(?:\\{one}{plain})*+" """,
        r"""P = r"(a)+b++" """,
    ],
)
def test_a_group_that_fails_at_once_or_not_at_all_may_be_repeated_possessively(source: str) -> None:
    assert [] == faults(rules.possessive_groups, CORE, source)


@pytest.mark.parametrize(
    "source",
    [
        "server._captured_signals.clear()",
        "class A(uvicorn.Server):\n    def f(self):\n        return self._captured_signals\n",
        "from uvicorn._types import Scope",
        "import uvicorn._compat",
        "from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol\nclass A(HttpToolsProtocol): ...",
        "import aiohttp\nclass A(aiohttp.client_proto.ResponseHandler): ...",
    ],
)
def test_an_inner_part_of_a_library_is_found(source: str) -> None:
    module = Module.of("src/turnscript/gateway/server.py", source)
    assert 1 == len(list(rules.inner_parts(module, rules.names_of([module]))))


@pytest.mark.parametrize(
    "source",
    [
        "class A:\n    def f(self):\n        self._x = 1\ndef f(a): return a._x",
        "row._replace(x=1); os._exit(0); super().__init__(); type(x).__name__",
        "import uvicorn\nclass A(uvicorn.Server): ...",
        "from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol\nx = HttpToolsProtocol()",
        "from msgspec import Struct\nfrom turnscript.x import _y\nclass A(Struct): ...",
    ],
)
def test_public_means_and_what_the_package_keeps_for_itself_may_be_used(source: str) -> None:
    module = Module.of("src/turnscript/gateway/server.py", source)
    assert [] == list(rules.inner_parts(module, rules.names_of([module])))


@pytest.mark.parametrize(
    "source",
    [
        "import turnscript.engine.scanner",
        "from turnscript.engine import scanner",
        "def f():\n    from turnscript.engine.template.program import Program\n",
        "recent = import_module('turnscript.engine.recent')",
        "monkeypatch.setattr('turnscript.engine.recent.MB', 1)",
    ],
)
def test_a_test_of_a_module_of_the_engine_is_found(source: str) -> None:
    assert 1 == len(faults(rules.inner_modules, "tests/unit/test_scanner.py", source))


@pytest.mark.parametrize("source", ["import turnscript as ts", "from turnscript.core import events", "x = 'engine'"])
def test_what_users_have_and_other_rooms_may_be_imported(source: str) -> None:
    assert [] == faults(rules.inner_modules, "tests/unit/test_scanner.py", source)


def test_a_gzip_that_holds_the_time_is_found() -> None:
    assert 1 == len(faults(rules.timed_archives, CORE, "packed = [gzip.compress(b'')]"))
    assert [] == faults(rules.timed_archives, CORE, "packed = gzip.compress(b'', mtime=0)")


def test_a_forgotten_an_invented_and_a_repeated_export_are_found() -> None:
    package = ModuleType("package")
    vars(package).update(__all__=["parse"], parse=print, submodule=ModuleType("package.submodule"), _private=1)
    assert [] == list(rules.wrong_exports(package))
    vars(package).update(__all__=["parse", "parse", "ghost"], render=print)
    assert ["render is public", "ghost is in __all__ but", "parse is in __all__ twice"] == [
        re.split(" (?:but not|does|and)", fault)[0] for fault in rules.wrong_exports(package)
    ]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository with two modules and an up-to-date map."""
    for name, docstring in (("src/a.py", "Owns a.\n\nAnd more."), ("tests/b.py", "Owns b.")):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(f'"""{docstring}"""\n', encoding="utf-8")
    return tmp_path


MAP = f"# Map\n{agents_map.START}\n- `src/a.py` - Owns a.\n- `tests/b.py` - Owns b.\n{agents_map.END}\n\nThe rest.\n"


def test_an_up_to_date_map_is_left_alone(tree: Path) -> None:
    assert agents_map.update(MAP, tree) == MAP
    assert ["src/a.py", "tests/b.py"] == agents_map.listed(MAP)


def test_a_new_a_moved_and_a_changed_module_make_the_map_stale(tree: Path) -> None:
    (tree / "tests" / "c.py").write_text('"""Owns c."""\n', encoding="utf-8")
    assert "- `tests/c.py` - Owns c.\n" in agents_map.update(MAP, tree)
    (tree / "src" / "a.py").unlink()
    assert "src/a.py" not in agents_map.update(MAP, tree)
    (tree / "tests" / "b.py").write_text('"""Owns less."""\n', encoding="utf-8")
    assert "- `tests/b.py` - Owns less.\n" in agents_map.update(MAP, tree)


def test_a_top_level_file_without_a_line_is_found(tree: Path) -> None:
    assert [] == agents_map.unlisted(MAP, tree)
    for name in (".hidden", "README.md", "dist", "PKG-INFO"):
        (tree / name).touch()
    assert ["README.md"] == agents_map.unlisted(MAP, tree)


def test_the_map_needs_docstrings_and_its_two_markers(tree: Path) -> None:
    with pytest.raises(ValueError, match="needs one line"):
        agents_map.update("# No map here\n", tree)
    (tree / "src" / "a.py").write_text("x = 1\n", encoding="utf-8")
    with pytest.raises(ValueError, match="has no docstring"):
        agents_map.update(MAP, tree)
