"""Shards on a real cluster of Ray, on this machine."""

from pathlib import Path
from typing import Any

import pytest

from tests.datasets.jobs import built, chats, plan_for, results, written
from turnscript.core.errors import InvalidInput
from turnscript.datasets.build import Progress
from turnscript.datasets.raytasks import RayTasks


@pytest.mark.deep
@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_a_cluster_makes_the_same_bytes_and_tells_what_went_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray  # noqa: PLC0415  (slow to import, and one worker is enough)

    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "a.jsonl", chats(300, 8))
    plain: dict[str, Any] = {}
    busy = {"dedup": "exact", "shuffle": 7, "pack": "bfd:512", "overflow": "split"}
    try:
        for name, fields in (("plain", plain), ("busy", busy)):
            plan = plan_for("a.jsonl", **fields)
            built(plan, tmp_path / name, shards=8)
            seen: list[Progress] = []
            other = tmp_path / f"{name}-ray"
            report = built(plan, other, RayTasks(), shards=8, progress=seen.append)
            assert results(tmp_path / name) == results(other)
            assert report.rows == max(one.rows for one in seen)
        with pytest.raises(InvalidInput, match=r"a\.jsonl, row \d+"):
            built(plan_for("a.jsonl", on_bad="stop"), tmp_path / "stop", RayTasks(), shards=8)
    finally:
        ray.shutdown()
