"""Damaged modules give a result or a ``KprofError`` with its place, in bounded time.

``scripts/fuzz`` runs more cases, with another seed.
"""

from __future__ import annotations

import gzip
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from random import Random

import pytest
from mutations import mutated
from programs.child import REPO
from ttgir_forms import FORMS

from kprof_inject.errors import KprofError
from kprof_inject.files import decode_text
from kprof_inject.insertion import view_of
from kprof_inject.rewrite import apply, strip
from kprof_inject.select.plan import make_plan
from kprof_inject.select.selectors import parse_selectors
from kprof_inject.select.spans import USUAL_STYLE, Style
from kprof_inject.ttgir.dialect import RECORD
from kprof_inject.ttgir.nodes import Module
from kprof_inject.ttgir.parser import parse

SEED = os.environ.get("KPROF_FUZZ_SEED", "14")
CASES = int(os.environ.get("KPROF_FUZZ_CASES", "100"))
MAX_SECONDS = 20
FIXTURES = REPO / "ttgir_fixtures"
SELECTORS = (
    (),
    ("func",),
    ("loop", "iter"),
    ("func", "loop[0]=outer", "iter[0.0]"),
    ("op(tt.*)",),
    ("op(*dot*)", "line(1-1000)"),
    ("partition", "default"),
    ("func(*)", "op(tt.call)"),
    ("loop --tag zero=%c0_i32", "iter --tag row=row"),
)


@contextmanager
def in_time() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise AssertionError(f"no result after {MAX_SECONDS} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(MAX_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@cache
def modules() -> tuple[bytes, ...]:
    """What Triton printed, and the hand-written forms."""
    fixtures = sorted([*FIXTURES.glob("*/*/*.ttgir"), *FIXTURES.glob("*/*/*.ttgir.gz")])
    return (
        *(gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes() for path in fixtures),
        *(form.text.encode() for form in FORMS.values()),
    )


def is_read(chance: Random) -> bool:
    """Read, select, plan, insert and strip a module; a refusal has a place."""
    data, selectors = mutated(chance.choice(modules()), chance), chance.choice(SELECTORS)
    try:
        text = decode_text(data, "case.ttgir")
        view = view_of(text, "case.ttgir", {})
        plan = make_plan(view, parse_selectors(selectors), chance.choice((Style("runs"), USUAL_STYLE)))
    except KprofError as error:
        assert error.where is not None and error.where.line >= 1 and error.where.column >= 1, error.render()
        return False
    instrumented = parse(apply(view.module, plan))
    assert records_in(instrumented) == records_in(view.module) + len(plan.records)
    assert not plan.records or strip(instrumented) == text
    return True


def records_in(module: Module) -> int:
    return sum(operation.name == RECORD for operation in module.walk())


def test_damaged_modules() -> None:
    refused = 0
    for number in range(CASES):
        try:
            with in_time():
                refused += not is_read(Random(f"{SEED}:module:{number}"))
        except BaseException as error:
            error.add_note(f"seed {SEED}, case {number}")
            raise
    assert 0 < refused < CASES


LOOP = """\
module {
  tt.func public @k(%n: i32) {
    %c0 = arith.constant 0 : i32
    %end:2 = scf.for %i = %c0 to %n step %n iter_args(%a = %c0, %b = %n) -> (i32, i32)  : i32 {
      scf.yield %a, %i : i32, i32
    }
    tt.return
  }
}
"""


@pytest.mark.parametrize("count", [100, 400_000_000, 1 << 63, 10**30, "9" * 5000])
def test_a_count_that_is_not_listed_is_refused_at_its_place(count: int | str) -> None:
    with in_time(), pytest.raises(KprofError) as refused:
        make_plan(view_of(LOOP.replace("%end:2", f"%end:{count}"), "case.ttgir", {}), parse_selectors(("loop",)))
    assert refused.value.where is not None and refused.value.where.line == 4
