"""Owns when the real agents are tested: where this folder is named, as `make agents-test` does.

They take a gigabyte that `make agents` installs, so a run of all tests leaves them out.
"""

from pathlib import Path

import pytest

_HERE = Path(__file__).parent


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Collect here only what was asked for by its path."""
    named = (config.invocation_params.dir / argument.split("::")[0] for argument in config.args)
    inside = any(path.resolve().is_relative_to(_HERE) for path in named)
    return None if inside else True
