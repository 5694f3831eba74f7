"""Owns the test of the recipe as `make tiny` runs it: a step reads what one before it wrote, by that very path."""

import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
STEP = re.compile(r"-m tiny\.(\w+)|data (build)")


def test_each_step_reads_what_a_step_before_it_wrote(tmp_path: Path) -> None:
    """A path such as `data/../vocabulary.txt` is none as long as there is no `data`, which only the build makes."""
    recipe = ["make", "-n", "-C", str(ROOT / "tiny"), "model", f"OUT={tmp_path}", "MINUTES=1"]
    told = subprocess.run(recipe, capture_output=True, text=True, check=True).stdout
    names: list[str] = []
    made: list[str] = []
    for line in told.splitlines():
        if found := STEP.search(line):
            names.append(found[1] or found[2])
            written = re.findall(r" --(?:out|keep) (\S+)", line)
            for path in set(re.findall(rf"{re.escape(str(tmp_path))}\S*", line)) - {*written}:
                assert os.path.normpath(path) == path
                assert any(f"{path}/".startswith(f"{one}/") for one in made), f"nothing has made {path}"
            made += written
    assert ["rows", "recipe", "build", "train", "export", "evaluate"] == names
