"""Fixtures and texts that records are put into and taken out of."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from golden import VERSIONS, fixtures, read
from planning import SELECTOR_SETS, fixture_view, plans_of

from kprof_inject.select.module_view import ModuleView
from kprof_inject.select.plan import Plan

TARGETS = sorted({path.parts[-2] for path in fixtures()})


@cache
def view(path: Path) -> ModuleView:
    """A fixture with its sources, parsed once for all tests."""
    return fixture_view(read(path))


def some_plans_of(path: Path) -> Iterator[Plan]:
    """Every fifth of a fixture's plans, others for each target and for each Triton version: a kernel gets them all."""
    version, target = path.parts[-3:-1]
    return plans_of(view(path), SELECTOR_SETS[(VERSIONS.index(version) + TARGETS.index(target)) % 5 :: 5])


def inserted_lines(plan: Plan, newline: str) -> list[str]:
    """The lines of a plan's records, with those that compute their values."""
    return [line for record in plan.records for line in record.line.split(newline)]


def computing_lines(plan: Plan) -> list[str]:
    """The operations that compute the values of records."""
    return [line for record in plan.records for line in record.before]


def is_record(line: str) -> bool:
    return line.lstrip().startswith(("proton.record", "%kprof.tag."))
