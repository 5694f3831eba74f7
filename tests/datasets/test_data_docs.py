"""docs/training-data.md is true: what it shows is run, and its tables are those of the program.

`pytest tests/datasets/test_data_docs.py --update-golden` renews what commands print, and the tables.
"""

import ast
import doctest
import inspect
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

import turnscript.datasets
from tests.cli.running import in_this_process, run
from turnscript.cli.data.group import COMMANDS, EXTRAS
from turnscript.datasets import build, merge, prepare, problems
from turnscript.datasets.form_registry import forms, get_form
from turnscript.datasets.mapping import read_map
from turnscript.datasets.plan import Plan, read_plan
from turnscript.datasets.problems import Code
from turnscript.datasets.train import WORDS

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "training-data.md"
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^\$ (.+)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
_TABLE = "<!-- {name}: written by the tests with --update-golden -->\n{rows}<!-- {name}: end -->"


def page() -> str:
    return PAGE.read_text(encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    return tmp_path


def played(found: re.Match[str]) -> str:
    if found[1] != "console":
        return found[0]
    code = _COMMAND.sub(lambda command: f"$ {command[1]}\n{output(command[1])}", found[2])
    return f"```console\n{code}```"


def output(command: str) -> str:
    """What a command prints, to wherever."""
    if in_this_process(command):
        text = run(*shlex.split(command)[1:]).output
    else:
        both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        done = subprocess.run(["/bin/sh", "-c", command], check=False, timeout=60, **both)  # type: ignore[call-overload]
        text = done.stdout.decode()
    return text if text.endswith("\n") or not text else f"{text}\n"


def meanings() -> list[tuple[str, str]]:
    """Each code and what stands under it in the source."""
    (kind,) = [node for node in ast.parse(inspect.getsource(problems)).body if getattr(node, "name", "") == "Code"]
    assert isinstance(kind, ast.ClassDef)
    said = [
        node.value.value for node in kind.body if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    ]
    assert len(said) == len(Code) + 1, "a code has no line under it"
    return list(zip([code.value for code in Code], map(str, said[1:]), strict=True))


def form_rows() -> list[tuple[str, ...]]:
    known = sorted(map(get_form, forms()), key=lambda form: form.name)
    return [(f"`{form.name}`", form.title, f"`{_plain(form.fields)}`", form.row) for form in known]


def _plain(fields: str) -> str:
    """As it may stand in a cell, between marks of code."""
    return fields.replace("`", "").replace("|", "\\|")


TABLES: dict[str, tuple[tuple[str, ...], Callable[[], list[tuple[str, ...]]]]] = {
    "forms": (("form", "what", "its records", "a row is"), form_rows),
    "codes": (("code", "why"), lambda: [(f"`{code}`", meaning) for code, meaning in meanings()]),
    "train": (("word", "what is trained"), lambda: [(f"`{word}`", meaning) for word, meaning in WORDS.items()]),
}


def with_table(text: str, name: str) -> str:
    heads, rows = TABLES[name]
    lines = [heads, tuple("---" for _ in heads), *rows()]
    made = (
        "".join("| " + " | ".join(cells) + " |\n" for cells in lines)
        .replace("| --- ", "|---")
        .replace("|--- |", "|---|")
    )
    pattern = re.escape(_TABLE.format(name=name, rows="@")).replace("@", "(?:.*\n)*?")
    assert re.search(pattern, text), f"the page has no place for the table of {name}"
    return re.sub(pattern, lambda _: _TABLE.format(name=name, rows=made), text)


def test_the_tables_are_those_of_the_program(request: pytest.FixtureRequest) -> None:
    actual = page()
    for name in TABLES:
        actual = with_table(actual, name)
    if request.config.getoption("--update-golden"):
        PAGE.write_text(actual, encoding="utf-8")
    assert page() == actual


@pytest.mark.deep
@pytest.mark.long
def test_commands_print_what_the_page_shows(folder: Path, request: pytest.FixtureRequest) -> None:
    actual = _BLOCK.sub(played, page())
    if request.config.getoption("--update-golden"):
        PAGE.write_text(actual, encoding="utf-8")
    assert page() == actual


@pytest.mark.deep
def test_python_does_what_the_page_shows(folder: Path) -> None:
    source = "\n".join(code for name, code in _BLOCK.findall(page()) if name == "python")
    test = doctest.DocTestParser().get_doctest(source, {}, PAGE.name, str(PAGE), 0)
    said: list[str] = []
    assert test.examples
    assert 0 == doctest.DocTestRunner().run(test, out=said.append).failed, "".join(said)


def jobs(block: str) -> list[tuple[list[str], dict[str, str]]]:
    """What is to be run for two shards: a command for each, or a program for all."""
    if "turnscript data" not in block:
        return [([sys.executable, "-c", f"from turnscript.datasets import run_shard_in\n{block}"], {})]
    numbers = [{"SLURM_ARRAY_TASK_ID": f"{number + 1}", "JOB_COMPLETION_INDEX": f"{number}"} for number in range(2)]
    return [(["/bin/sh", "-c", block], one) for one in numbers]


@pytest.mark.deep
@pytest.mark.parametrize("what", ["dask.compute", "SLURM_ARRAY_TASK_ID", "JOB_COMPLETION_INDEX"])
def test_other_engines_make_the_same_bytes(what: str, folder: Path) -> None:
    plan = read_plan("examples/training_plan.toml")
    prepare(plan, "shared", shards=2)
    (block,) = (found[2] for found in _BLOCK.finditer(page()) if what in found[2])
    for old, new in (("64", "2"), ("/shared/run", "shared"), ("plan.toml", "examples/training_plan.toml")):
        block = block.replace(old, new)
    for command, numbers in jobs(block):
        subprocess.run(command, check=True, timeout=120, env={**os.environ, **numbers})
    merge("shared")
    build(plan, "alone")
    assert Path("alone/train.jsonl").read_bytes() == Path("shared/train.jsonl").read_bytes() != b""


def test_the_page_names_every_command_and_every_extra() -> None:
    text = page()
    assert [] == [name for name in COMMANDS if f"`{name}`" not in text and f"turnscript data {name}" not in text]
    assert [] == [extra for extra in set(EXTRAS.values()) if f"'.[{extra}]'" not in text]


def test_every_option_on_the_page_exists() -> None:
    known = {name: run("data", name, "--help").output for name in COMMANDS}
    lines = re.findall(r"turnscript data (\w+) (.*)", page())
    used = {(name, option) for name, rest in lines for option in re.findall(r"(?<=\s)--[a-z-]+", f" {rest}")}
    assert used
    assert [] == [(name, option) for name, option in sorted(used) if not re.search(rf"{option}\b", known[name])]


def test_the_map_file_on_the_page_reads_what_the_page_says(tmp_path: Path) -> None:
    (code,) = [code for name, code in _BLOCK.findall(page()) if name == "toml"]
    Path(tmp_path, "map.toml").write_text(code, encoding="utf-8")
    (row,) = re.findall(r"^    (\{.*\})$", page(), re.MULTILINE)
    (example,) = read_map(str(tmp_path / "map.toml")).read(row.encode())
    assert ["system", "user", "assistant"] == [item.kind for item in example.request.conversation.items]


def test_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", page())
    assert links
    assert [] == [link for link in links if not link.startswith("http") and not (PAGE.parent / link).exists()]


def test_the_example_of_a_plan_is_a_plan(folder: Path) -> None:
    plan = read_plan("examples/training_plan.toml")
    said = tomllib.loads(Path("examples/training_plan.toml").read_text(encoding="utf-8"))
    assert set(said) <= set(Plan.__struct_fields__)
    assert plan.pack == said["pack"]


# The package itself.


def test_the_docstring_of_the_package_is_true() -> None:
    result = doctest.testmod(turnscript.datasets)
    assert (0, True) == (result.failed, result.attempted > 5)


def test_every_public_name_is_there_and_stays_when_its_module_is_imported() -> None:
    package = turnscript.datasets
    assert package.__all__ == sorted(package.__all__)
    assert set(package.__all__) <= set(dir(package))
    code = "; ".join(
        [
            "import turnscript.datasets as d, types",
            "import turnscript.datasets.build, turnscript.datasets.preview, turnscript.datasets.merge",
            "import turnscript.datasets.verify",
            "print([n for n in d.__all__ if isinstance(getattr(d, n), types.ModuleType)])",
        ]
    )
    assert "[]\n" == output(f'{sys.executable} -c "{code}"')
    with pytest.raises(AttributeError, match="no attribute 'bild'"):
        _ = package.bild


def test_importing_the_package_needs_no_extra() -> None:
    names = [*EXTRAS, "click", "rich"]
    code = f"import sys, turnscript.datasets; print([n for n in {names} if n in sys.modules])"
    assert "[]\n" == output(f'{sys.executable} -c "{code}"')
