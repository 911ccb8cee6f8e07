"""Iterations of which only the start is recorded, beside those with two records; and the clock of any selection."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")
tl = triton.language

sys.path.insert(0, str(Path(__file__).parent / "programs"))
sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from overhead import KERNELS  # noqa: E402
from spins import clock, spin  # noqa: E402

import kprof_inject  # noqa: E402
from kprof_inject.timeline.clock import ClockSource  # noqa: E402
from kprof_inject.timeline.timeline import Timeline  # noqa: E402

pytestmark = pytest.mark.alone
WITHOUT_LOOPS = {"whole-row softmax", "gelu, 65536 CTAs", "scaled sum, 65536 CTAs"}
ROUNDS = 40
CTAS = 132
# What a compensated duration may be off by, in cycles.
LEAST_ERROR_CYCLES = 8
LARGEST_CLOCK_ERROR = 0.006
# Both forms are of launches of their own, under which the clock and the memory are not the same.
LAUNCHES_DIFFER = 0.03
# Layer norm's iterations took 14 % longer with two records.
RECORDS_DISTURB = 0.25


def recorded(launch: Callable[[], Any], *selectors: str, iter_records: str = "one") -> list[Timeline]:
    with kprof_inject.profile(at=selectors, iter_records=iter_records, launches="all", replay=0) as profile:
        for _ in range(3):
            launch()
        return profile.timelines


def iterations_of(timeline: Timeline) -> Any:
    kinds = np.array([scope.kind == "iter" for scope in timeline.table.scopes])
    scopes = timeline.scopes
    return scopes[kinds[scopes["scope"]]]


@pytest.mark.parametrize("name", [name for name in KERNELS if name not in WITHOUT_LOOPS])
def test_one_record_tells_the_iterations_that_two_tell(name: str) -> None:
    launch = KERNELS[name]()
    timelines: dict[str, list[Timeline]] = {"one": [], "two": []}
    for _ in range(3):  # in turn: the clock and the memory are not the same under each
        for form, found in timelines.items():
            found += recorded(launch, "func", "loop", "iter", iter_records=form)[1:]
    one, two = (found[-1] for found in timelines.values())
    assert one.records_lost == two.records_lost == one.records_damaged == two.records_damaged == 0
    assert one.records_written < 0.75 * two.records_written
    of_one, of_two = iterations_of(one), iterations_of(two)
    places = ["cta", "warp", "scope", "iteration"]
    assert (np.sort(of_one[places]) == np.sort(of_two[places])).all()
    # What stands between two iterations belongs to the first of them.
    loops = [number for number, scope in enumerate(two.table.scopes) if scope.kind == "loop"]
    scopes = two.scopes
    around = scopes["self_ns"][np.isin(scopes["scope"], loops)].sum() / len(of_two)
    means = [
        float(np.median([iterations_of(timeline)["duration_ns"].mean() for timeline in found]))
        for found in timelines.values()
    ]
    cost = one.launch.kernel.record_cost
    assert cost is not None
    cost_ns = 2 * cost.cycles * one.clock.rate_ns
    print(f"{name}: one {means[0]} ns, two {means[1]} ns, between {around} ns, cost {cost_ns} ns")
    # With two records the kernel is disturbed more, and iterations may take longer for it.
    assert means[0] <= (means[1] + around) * (1 + LAUNCHES_DIFFER) + cost_ns
    assert means[0] >= means[1] * (1 - RECORDS_DISTURB)


@triton.jit
def spinning(times_ptr, cycles, rounds):
    spun = tl.zeros((), tl.int64)
    before = clock()
    for _ in range(rounds):
        begin, end = spin(cycles)
        spun += end - begin
    after = clock()
    place = times_ptr + 2 * tl.program_id(0)
    tl.store(place, spun)
    tl.store(place + 1, after - before)


@pytest.mark.parametrize("length", [300, 3_000, 30_000, 100_000])
def test_an_iteration_that_spins_lasts_as_long_as_it_does(length: int) -> None:
    """The spins tell how long they were; what an iteration takes beside its own is measured without records."""
    times = torch.zeros((CTAS, 2), dtype=torch.int64, device="cuda")

    def launch() -> None:
        spinning[(CTAS,)](times, length, ROUNDS, num_warps=1)

    def told() -> Any:
        torch.cuda.synchronize()
        return times.cpu().numpy() / ROUNDS

    launch()
    spun, whole = told().T
    beside = float(np.median(whole - spun))
    errors = {}
    for form in ("one", "two"):
        timeline = recorded(launch, "iter", iter_records=form)[-1]
        assert timeline.records_lost == 0
        found = iterations_of(timeline)
        assert len(found) == CTAS * ROUNDS
        each = found.reshape(CTAS, ROUNDS)
        truth = told()[:, 0] + beside
        raw = each["end_cycles"] - each["start_cycles"]
        errors[form] = [float(np.median(values.mean(axis=1) - truth)) for values in (raw, each["duration_cycles"])]
    print(f"{length} cycles: beside {beside}, {errors}")
    assert abs(errors["one"][1]) <= LEAST_ERROR_CYCLES


SELECTIONS = [("func",), ("iter",), ("func", "loop", "iter"), ("op(*load*)",), ("op(*store*)",), ("op(*copy*)", "iter")]


@pytest.mark.parametrize("name", [*list(KERNELS)[:5], *sorted(WITHOUT_LOOPS)])
def test_the_clock_is_measured_whatever_is_selected(name: str) -> None:
    launch = KERNELS[name]()
    worst = 0.0
    for selectors in SELECTIONS:
        timelines = recorded(launch, *selectors)
        if not timelines:  # the kernel has nothing of the kind
            assert selectors[0].startswith("op(") or name in WITHOUT_LOOPS
            continue
        clock_fit = timelines[-1].clock
        print(name, *selectors, f"{clock_fit.clock_hz / 1e6} MHz, error {clock_fit.rate_error}")
        assert clock_fit.source == ClockSource.FITTED
        worst = max(worst, clock_fit.rate_error)
    assert worst < LARGEST_CLOCK_ERROR
