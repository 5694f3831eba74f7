"""Owns the schemas of `make real ARGS=--schemas`: what is asked for each, instances, and the verdict on an answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec
from msgspec import Struct

import turnscript as ts
from tools.real.rounds import SEED, Asked, text_of
from tools.real.systems import LLAMA, Answer
from turnscript.core.json_text import json_of

FILE = Path(__file__).parent / "schemas.json"


class SchemaCase(Struct, frozen=True):
    """A schema, and a question that an instance of it answers.

    `valid` and `invalid`: instances and others, their members in the order of the schema. `lost`: paths of demands that
    no grammar tells.
    """

    name: str
    ask: str
    schema: dict[str, Any]
    valid: list[Any]
    invalid: list[Any]
    lost: list[str] = []


CASES = msgspec.json.decode(FILE.read_bytes(), type=list[SchemaCase])


def verdict_of(case: SchemaCase, text: str, ended: bool) -> str:
    """Return why an answer is no instance that came to its end; nothing where it is one."""
    if not ended:
        return "cut by the limit of tokens"
    try:
        value = json.loads(text)
    except ValueError as error:
        return f"no JSON: {error}"
    problem = next(jsonschema_rs.validator_for(case.schema).iter_errors(value), None)
    return "" if problem is None else f"not valid: {problem.message}"


class Shaped(Struct, frozen=True):
    """An answer of one system to one question, with the verdict: `why` is empty where it is a valid instance."""

    schema: str
    system: str
    ended: bool
    valid: bool
    why: str
    seconds: float
    text: str
    raw: str


class SchemaRound(Struct, frozen=True):
    """Which schemas to ask for, of which systems, with at most how many tokens an answer."""

    cases: Sequence[SchemaCase]
    systems: Sequence[str]
    max_tokens: int

    def jobs(self) -> list[tuple[SchemaCase, str]]:
        """Return each schema with each system."""
        return [(case, system) for case in self.cases for system in self.systems]

    def run(self, asked: Asked, tell: Callable[[int, str], None]) -> Iterator[Shaped]:
        """Ask it all. `tell` is told how many are done and which one is next."""
        for number, (case, system) in enumerate(self.jobs()):
            tell(number, f"{case.name}, {system}")
            yield _shaped(case, system, asked.ask(system, _request(case, self.max_tokens)))


def _request(case: SchemaCase, max_tokens: int) -> ts.Request:
    name = case.name.replace(" ", "_")
    shape = ts.ResponseFormat("json_schema", schema=json_of(case.schema), name=name, strict=True)
    question = ts.User(content=[ts.Text(text=f"{case.ask} Answer with JSON.")])
    settings = ts.Settings(model="default", max_tokens=max_tokens, temperature=0, seed=SEED, response_format=shape)
    return ts.Request(conversation=ts.Conversation([question]), settings=settings)


def _shaped(case: SchemaCase, system: str, answer: Answer) -> Shaped:
    """Judge an answer."""
    if answer.response is None:
        return Shaped(case.name, system, False, False, f"no answer: {answer.error}", answer.seconds, "", "")
    text, ended = text_of(answer.response), answer.response.finish_reason != "length"
    why = verdict_of(case, text, ended)
    return Shaped(case.name, system, ended, not why, why, round(answer.seconds, 2), text, answer.raw)


def schema_table(found: Sequence[Shaped], systems: Sequence[str]) -> str:
    """Return what came of it as text: for each system how many ended, and how many of all were valid."""
    lines = [f"{'SYSTEM':24}{'ENDED':10}{'VALID':10}SECONDS"]
    for system in systems:
        mine = [one for one in found if one.system == system]
        ended, valid = (sum(getattr(one, what) for one in mine) for what in ("ended", "valid"))
        name = system if system == LLAMA else f"turnscript {system}"
        counts = [f"{count} of {len(mine)}" for count in (ended, valid)]
        lines.append(f"{name:24}{counts[0]:10}{counts[1]:10}{sum(one.seconds for one in mine):.0f}")
        lines += [f"  {one.schema}: {one.why[:120]}" for one in mine if one.why]
    return "\n".join(lines)
