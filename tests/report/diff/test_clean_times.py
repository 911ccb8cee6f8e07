"""Times without records that a comparison of two sides goes by."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from known_sides import usual
from replacing import replace

from kprof_inject.analysis.comparison.runs import KernelRuns, comparable_clean_times_ns, has_launching
from kprof_inject.capture.resources import KernelResources
from kprof_inject.timeline.comparison import MIN_LAUNCHES
from kprof_inject.timeline.timeline import Timeline

OWN, REPLAYED = (1000.0,) * MIN_LAUNCHES, (2000.0,) * MIN_LAUNCHES


@pytest.fixture
def one(tmp_path: Path) -> Timeline:
    return usual(tmp_path, 1, launches=1)[0]


def of_processes(one: Timeline, *changes: dict[str, Any]) -> KernelRuns:
    """Return a launch in each process; ``changes`` has the fields in which its kernel differs."""
    kernels = [
        replace(one.launch.kernel, **{"folder": Path(f"process {number}"), **change})
        for number, change in enumerate(changes)
    ]
    return KernelRuns("k", tuple(replace(one, launch=replace(one.launch, kernel=kernel)) for kernel in kernels))


def measured(one: Timeline, *clean: KernelResources) -> KernelRuns:
    return of_processes(one, *({"clean": each} for each in clean))


def own(
    times: tuple[float, ...] | None = OWN, empty: float | None = 100.0, replayed: tuple[float, ...] | None = None
) -> KernelResources:
    return KernelResources(times_ns=times, empty_launch_ns=empty, replayed_ns=replayed, empty_replay_ns=50.0)


def times(a: KernelRuns, b: KernelRuns) -> tuple[list[list[float]], list[list[float]]]:
    of_a, of_b = comparable_clean_times_ns(a, b)
    return [sample.tolist() for sample in of_a], [sample.tolist() for sample in of_b]


def test_launching_is_known_only_if_it_is_in_every_process_of_both_sides(one: Timeline) -> None:
    known, unknown = measured(one, own(), own()), measured(one, own(), own(empty=None))

    assert not has_launching(known, known)
    assert has_launching(known, unknown) and has_launching(unknown, known) and has_launching(unknown, unknown)


def test_launching_is_subtracted_on_both_sides_or_on_none(one: Timeline) -> None:
    known, other = measured(one, own()), measured(one, own(empty=300.0))
    unknown = measured(one, own(empty=None))

    assert times(known, other) == ([[900.0] * MIN_LAUNCHES], [[700.0] * MIN_LAUNCHES])
    assert times(known, unknown) == times(unknown, known) == ([[*OWN]], [[*OWN]])


def test_replays_are_compared_if_a_side_has_too_few_launches(one: Timeline) -> None:
    many, few = own(replayed=REPLAYED), own(OWN[1:], replayed=(2500.0, 2600.0))

    assert times(measured(one, many), measured(one, few)) == ([[1950.0] * MIN_LAUNCHES], [[2450.0, 2550.0]])
    assert times(measured(one, few), measured(one, many)) == ([[2450.0, 2550.0]], [[1950.0] * MIN_LAUNCHES])
    # Together, two processes have enough.
    assert times(measured(one, few, own((7000.0,))), measured(one, many)) == (
        [[900.0] * (MIN_LAUNCHES - 1), [6900.0]],
        [[900.0] * MIN_LAUNCHES],
    )


def test_replays_have_their_launching_in_them_where_a_side_does_not_know_it(one: Timeline) -> None:
    few, unknown = own(OWN[1:], replayed=REPLAYED), own(OWN[1:], empty=None, replayed=REPLAYED)

    assert times(measured(one, few), measured(one, unknown)) == ([[*REPLAYED]], [[*REPLAYED]])


def test_without_replays_of_both_sides_the_few_launches_are_compared(one: Timeline) -> None:
    few, with_replays = measured(one, own(OWN[1:])), measured(one, own(OWN[2:], replayed=REPLAYED))
    few_each = [900.0] * (MIN_LAUNCHES - 1), [900.0] * (MIN_LAUNCHES - 2)

    assert times(few, with_replays) == ([few_each[0]], [few_each[1]])


def test_processes_without_times_have_no_sample_and_times_that_are_shared_count_once(one: Timeline) -> None:
    runs = measured(one, own(), own(None), own((3000.0, 0.0, float("nan"))), own())

    assert [sample.tolist() for sample in runs.times_ns()] == [[*OWN], [3000.0]]
    assert runs.times_ns("replayed_ns") == []


def test_the_launches_of_a_program_are_the_mean_of_its_processes(one: Timeline) -> None:
    assert of_processes(one, {"launches": 10}, {"launches": 40}, {"launches": None}).launches_in_program == 25
    assert of_processes(one, {"launches": None}, {"launches": None}).launches_in_program == 2
