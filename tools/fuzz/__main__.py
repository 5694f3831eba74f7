"""Owns `make fuzz`: each target for so many seconds, from the seeds and from all that led somewhere before.

    python -m tools.fuzz --seconds 60 texts streams
    python -m tools.fuzz --once tests/fuzz/texts/crash-... texts

What breaks a law is kept in `tests/fuzz/TARGET`, where the tests read it from then on; what only led somewhere new is
kept in `.fuzz/TARGET`, for the next time.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from hashlib import sha256
from pathlib import Path

from tools.fuzz.targets import ROOT, TARGETS, seeds

FOUND = ROOT / "tests" / "fuzz"
KEPT = ROOT / ".fuzz"
_LONGEST = 20
"""Seconds that one input may take."""


def main() -> int:
    """Fuzz, or run one input again. Returns how many targets broke a law."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", help=f"of: {', '.join(TARGETS)} (default: all)")
    parser.add_argument("--seconds", type=int, default=60, help="for each target (default: 60)")
    parser.add_argument("--once", metavar="FILE", help="run this input through the one target, without a fuzzer")
    parser.add_argument("--inside", action="store_true", help="be the fuzzer of the one target")
    options = parser.parse_args()
    unknown = set(options.targets) - TARGETS.keys()
    if unknown:
        parser.error(f"no such target: {', '.join(sorted(unknown))}; there are {', '.join(TARGETS)}")
    targets = options.targets or list(TARGETS)
    if (options.once or options.inside) and len(targets) != 1:
        parser.error("name one target")
    if options.once:
        TARGETS[targets[0]](Path(options.once).read_bytes())
        return 0
    if options.inside:
        _fuzz(targets[0], options.seconds)
    return sum(_run(name, options.seconds) for name in targets)


def _run(name: str, seconds: int) -> bool:
    """Fuzz a target in a process of its own, because a fuzzer ends its process. Returns whether a law was broken."""
    print(f"{name}: {seconds} s", flush=True)
    command = [sys.executable, "-m", "tools.fuzz", "--inside", "--seconds", str(seconds), name]
    with tempfile.TemporaryFile() as said:
        failed = bool(subprocess.run(command, cwd=ROOT, stdout=said, stderr=said, check=False).returncode)
        said.seek(0)
        lines = said.read().decode("utf-8", "replace").splitlines()
    shown = lines[-40:] if failed else [line for line in lines if "Done " in line]
    print("\n".join(shown), flush=True)
    return failed


def _fuzz(name: str, seconds: int) -> None:
    """Be the fuzzer."""
    import atheris  # noqa: PLC0415  (of an environment of its own)

    atheris.instrument_all()
    corpus, found = KEPT / name, FOUND / name
    for folder in (corpus, found):
        folder.mkdir(parents=True, exist_ok=True)
    for seed in seeds(name):
        (corpus / sha256(seed).hexdigest()[:16]).write_bytes(seed)
    limits = [f"-max_total_time={seconds}", f"-timeout={_LONGEST}", "-rss_limit_mb=3000", "-max_len=4096"]
    atheris.Setup(["fuzz", str(corpus), str(found), f"-artifact_prefix={found}/", *limits], TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
