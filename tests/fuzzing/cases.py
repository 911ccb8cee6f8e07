"""One case of a fuzzing run: a damaged file, selectors, and what the front end makes of them."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random

from mutations import mutated
from ttgir_forms import FORMS

from kprof_inject.errors import KprofError
from kprof_inject.files import decode_text
from kprof_inject.pipeline.insertion import view_of
from kprof_inject.rewrite import apply, strip
from kprof_inject.select.plan import make_plan
from kprof_inject.select.selectors import parse_selectors
from kprof_inject.select.spans import USUAL_STYLE, Style, in_runs
from kprof_inject.ttgir.dialect import RECORD
from kprof_inject.ttgir.nodes import Module
from kprof_inject.ttgir.parser import parse

FIXTURES = Path(__file__).resolve().parents[2] / "ttgir_fixtures"

SELECTOR_SETS: tuple[tuple[str, ...], ...] = (
    (),
    ("func",),
    ("loop", "iter"),
    ("func", "loop[0]=outer", "iter[0.0]"),
    ("op(tt.*)",),
    ("op(*dot*)", "op(*load*)=load"),
    ("line(1-1000)",),
    ("line(20)", "line(25-30)", "loop"),
    ("partition", "default"),
    ("func", "marker"),
    ("func(*)", "op(tt.call)"),
    ("loop --tag zero=%c0_i32", "iter --tag row=row"),
)


@dataclass(frozen=True)
class Case:
    """Case ``number`` of the run with ``seed``: always the same bytes and selectors, for the same fixtures."""

    seed: int
    number: int
    data: bytes
    selectors: tuple[str, ...]


@cache
def sources() -> dict[str, str]:
    """The kernels that the fixtures were made from, with their marker comments."""
    kernels = sorted((FIXTURES / "kernels").glob("*.py"))
    return {f"/kprof-inject/ttgir_fixtures/kernels/{path.name}": path.read_text(encoding="utf-8") for path in kernels}


def corpus() -> list[bytes]:
    """What Triton printed, and the hand-written forms."""
    fixtures = sorted([*FIXTURES.glob("*/*/*.ttgir"), *FIXTURES.glob("*/*/*.ttgir.gz")])
    return [
        *(gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes() for path in fixtures),
        *(form.text.encode() for form in FORMS.values()),
    ]


def make_case(seed: int, number: int, files: Sequence[bytes]) -> Case:
    chance = Random(f"{seed}:{number}")
    return Case(seed, number, mutated(files, chance), chance.choice(SELECTOR_SETS))


def refusal_of(case: Case) -> KprofError | None:
    """Read, select, plan, insert and strip. The refusal, if there is one and it has a place; raises for all else."""
    try:
        text = decode_text(case.data, "case.ttgir")
        view = view_of(text, "case.ttgir", sources())
        plan = make_plan(view, parse_selectors(case.selectors), Style(in_runs) if case.number % 2 else USUAL_STYLE)
    except KprofError as error:
        if error.where is None or error.where.line < 1 or error.where.column < 1:
            raise AssertionError(f"a refusal without line and column: {error.render()}") from error
        error.render()
        return error
    instrumented = parse(apply(view.module, plan))
    if _records(instrumented) != _records(view.module) + len(plan.records):
        raise AssertionError(f"{len(plan.records)} records planned, {_records(instrumented)} found")
    if plan.records and strip(instrumented) != text:
        raise AssertionError("strip does not undo apply")
    return None


def _records(module: Module) -> int:
    return sum(operation.name == RECORD for operation in module.walk())
