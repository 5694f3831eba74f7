"""Owns the checks of what is loaded before there is a first result: nothing slow that is not needed for it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROWS = str(ROOT / "examples" / "training_rows.jsonl")
LIBRARIES = (
    "numpy",
    "pyarrow",
    "tokenizers",
    "pyrwkv_tokenizer",
    "ray",
    "asyncio",
    "multiprocessing",
    "click",
    "email",
)
COMMAND = (
    "import sys; from turnscript.cli.main import main\n"
    f"sys.argv = ['turnscript', 'data', 'preview', {ROWS!r}, '--to', 'rwkv-goose', '--tokenizer', 'rwkv-world']\n"
    "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code\n"
)


@pytest.mark.parametrize(
    ("code", "loaded"),
    [
        ("import turnscript.datasets", set()),
        ("from turnscript.datasets import Plan, Train, read_plan, open_rows, preview", set()),
        (f"from turnscript.datasets import open_rows; assert list(open_rows({ROWS!r}))", {"email"}),
        (COMMAND, {"numpy", "click", "email"}),
    ],
)
def test_only_what_is_needed_is_loaded(code: str, loaded: set[str]) -> None:
    """Each of these libraries takes 10 to 100 ms. What other packages bring is looked for with `email`."""
    listed = f"{code}\nprint('loaded:', *[name for name in {LIBRARIES} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", f"import sys\n{listed}"], check=True, capture_output=True, text=True)
    assert loaded == set(done.stdout.splitlines()[-1].split()[1:])


@pytest.mark.deep
@pytest.mark.parametrize(
    ("code", "threads"), [("import turnscript.cli.main; import numpy", False), (f"{COMMAND}import numpy", True)]
)
def test_numpy_gets_one_thread_for_linear_algebra_where_there_is_none(code: str, threads: bool) -> None:
    """They take processors for a while and do nothing. Other commands may have work for them."""
    environment = {key: value for key, value in os.environ.items() if key != "OPENBLAS_NUM_THREADS"}
    listed = f"{code}\nimport os; print('one:', os.environ.get('OPENBLAS_NUM_THREADS') == '1')"
    done = subprocess.run([sys.executable, "-c", listed], check=True, capture_output=True, text=True, env=environment)
    assert f"one: {threads}" == done.stdout.splitlines()[-1]
