"""Owns the manifest: what the outputs are made of and how, with hashes.

It is written last, so where it is, all is there. Two builds of the same inputs with the same plan and version give the
same manifest, byte for byte.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from turnscript.datasets.files import sha256
from turnscript.datasets.plan import MANIFEST as MANIFEST
from turnscript.datasets.plan import Plan, digest_of
from turnscript.datasets.preparation import Prepared
from turnscript.datasets.report import Report
from turnscript.datasets.shardfiles import FileFacts, sync_folder, write_whole


class Source(Struct, frozen=True):
    """An input file as it was."""

    name: str
    form: str
    size: int
    sha256: str


class Manifest(Struct, kw_only=True):
    """Everything that decided the outputs, what they hold, and their hashes. `key`: a hash over what decided them.

    `sha256`: of all the others here, so that a manifest that was damaged is not believed.
    """

    version: str
    key: str
    plan: Plan
    inputs: list[Source]
    format_sha256: str
    tokenizer_sha256: str
    size: int
    end: int | None
    encoding: dict[str, Any]
    report: Report
    outputs: dict[str, FileFacts]
    sha256: str = ""


def manifest_of(prepared: Prepared, report: Report, outputs: Mapping[str, FileFacts]) -> Manifest:
    """Return the manifest of a finished job."""
    return Manifest(
        version=prepared.version,
        key=prepared.key,
        plan=prepared.plan,
        inputs=[Source(file.name, file.form, file.size, file.sha256) for file in prepared.files],
        format_sha256=prepared.format_sha256,
        tokenizer_sha256=prepared.tokenizer_sha256,
        size=prepared.size,
        end=prepared.end,
        encoding=prepared.encoding,
        report=report,
        outputs=dict(outputs),
    )


def manifest_bytes(manifest: Manifest) -> bytes:
    """Return the file of a manifest, with its own hash made anew."""
    sealed = replace(manifest, sha256=digest_of(replace(manifest, sha256="")))
    return msgspec.json.format(msgspec.json.encode(sealed, order="deterministic"), indent=2) + b"\n"


def write_manifest(out: Path, manifest: Manifest) -> None:
    """Say that everything is there."""
    write_whole(out / MANIFEST, manifest_bytes(manifest))


def read_manifest(out: str | os.PathLike[str]) -> Manifest | None:
    """Return the manifest of a folder; None if there is none, or none that this version can read."""
    try:
        return msgspec.json.decode((Path(out) / MANIFEST).read_bytes(), type=Manifest)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def finished(out: Path, key: str) -> Manifest | None:
    """Return the manifest, if it is of this key and its files are as large as it says."""
    manifest = read_manifest(out)
    if manifest is None or manifest.key != key:
        return None
    for name, facts in manifest.outputs.items():
        try:
            if (out / name).stat().st_size != facts.size:
                return None
        except OSError:
            return None
    return manifest


def withdraw(out: Path) -> set[str]:
    """Remove the manifest, because what is there is no longer whole. Returns the names of the files that it listed."""
    manifest = read_manifest(out)
    (out / MANIFEST).unlink(missing_ok=True)
    sync_folder(out)
    # A manifest lists names, and a damaged one may list anything: only names of this folder count.
    return {name for name in manifest.outputs if Path(name).name == name} if manifest is not None else set()


def file_facts(folder: Path, names: list[str]) -> dict[str, FileFacts]:
    """Return the sizes and hashes of files. Hashing leaves the interpreter, so threads do run side by side."""
    with ThreadPoolExecutor(4) as pool:
        hashes = list(pool.map(lambda name: sha256(str(folder / name)), names))
    return {name: FileFacts((folder / name).stat().st_size, found) for name, found in zip(names, hashes, strict=True)}
