"""Waves, tail and idle SMs, from CTAs whose truth is known."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from replacing import replace
from timelines import cta_rows, made_timeline

from kprof_inject.capture.resources import KernelResources
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.timeline.waves import LastWave, Tail, Waves, launch_duration_ns, waves_of

BEGIN_NS = 1_764_000_000_000_000_000


@pytest.fixture
def launch(tmp_path: Path) -> Timeline:
    return made_timeline(tmp_path, [], [], cta_rows())


def found(launch: Timeline, ctas: Sequence[tuple[int, ...]], room: int | None = None) -> Waves:
    """Of CTAs given by SM, begin, end, and when the SM was free again, if that was later."""
    rows = [(number, sm, begin, end, (*left, end)[0]) for number, (sm, begin, end, *left) in enumerate(ctas)]
    columns = cta_rows(*rows)
    for name in ("init_ns", "pre_final_ns", "post_final_ns"):
        columns[name] += BEGIN_NS
    kernel = replace(launch.launch.kernel, with_records=KernelResources(ctas_per_sm=room))
    waves = waves_of(replace(launch, ctas=columns, launch=replace(launch.launch, kernel=kernel)))
    assert waves is not None
    return waves


def one_after_another(ctas: int, sms: int, each_ns: int) -> list[tuple[int, ...]]:
    """CTAs that all take as long, one at a time on each SM."""
    return [(n % sms, n // sms * each_ns, (n // sms + 1) * each_ns) for n in range(ctas)]


def test_even_ctas_run_in_waves_and_the_last_one_is_partial(launch: Timeline) -> None:
    waves = found(launch, one_after_another(10, 4, 100))
    assert (waves.idle_sm_share, waves.idle_slot_share) == pytest.approx((2 / 12, 2 / 12))
    assert replace(waves, idle_sm_share=0.0, idle_slot_share=0.0) == Waves(
        ctas=10,
        sms=4,
        highest_sm=3,
        slots_per_sm=1,
        slots_source="observed",
        fill=2.5,
        waves=3,
        duration_ns=300,
        last=LastWave(2, 2, 100, 1 / 3),
        tail=Tail(100, 1 / 3, 2.0),
        idle_sm_share=0.0,
        idle_slot_share=0.0,
    )


def test_a_launch_that_never_ran_has_no_waves(launch: Timeline) -> None:
    assert waves_of(launch) is None


def test_room_that_few_ctas_do_not_fill_is_still_room(launch: Timeline) -> None:
    waves = found(launch, [(0, 0, 100), (1, 0, 100), (2, 0, 100)], room=4)
    assert (waves.slots_per_sm, waves.slots_source, waves.fill, waves.waves) == (4, "occupancy", 0.25, 1)
    assert (waves.idle_sm_share, waves.idle_slot_share) == (0.0, 0.75)


@pytest.mark.parametrize("room", [None, 0, 1])
def test_room_is_at_least_what_was_seen_at_once(launch: Timeline, room: int | None) -> None:
    waves = found(launch, [(0, 0, 100), (0, 10, 90), (0, 20, 100), (1, 0, 100)], room)
    assert (waves.slots_per_sm, waves.slots_source, waves.fill) == (3, "observed", 4 / 6)


def test_a_cta_that_begins_as_another_leaves_is_not_there_at_once(launch: Timeline) -> None:
    assert found(launch, [(0, 0, 64, 96), (0, 96, 160)]).slots_per_sm == 1
    assert found(launch, [(0, 0, 64, 96), (0, 95, 160)]).slots_per_sm == 2


def test_a_wave_is_told_by_when_ctas_begin_not_by_sm(launch: Timeline) -> None:
    # SM 0 is three times as fast as the other two, and runs four of the eight CTAs.
    fast = [(0, 100 * turn, 100 * turn + 100) for turn in range(4)]
    slow = [(sm, 300 * turn, 300 * turn + 300) for turn in range(2) for sm in (1, 2)]
    waves = found(launch, [*fast, *slow])
    assert (waves.sms, waves.fill, waves.waves) == (3, 8 / 3, 3)
    # At 300 all three SMs begin one; SM 0's has the lowest number, and is the sixth.
    assert waves.last == LastWave(2, 2, 300, 0.5)
    assert waves.tail == Tail(200, 200 / 600, 2.0)
    assert waves.idle_sm_share == pytest.approx(200 / 1800)


def test_two_at_once_keep_an_sm_busy_when_one_leaves(launch: Timeline) -> None:
    waves = found(launch, [(0, 0, 100), (0, 0, 60), (1, 20, 80), (1, 40, 60)], room=2)
    # SM 0 has CTAs all the time, SM 1 for 60 of 100; of their four slots 100, 60, 60 and 20 are taken.
    assert waves.idle_sm_share == pytest.approx(40 / 200)
    assert waves.idle_slot_share == pytest.approx(1 - 240 / 400)
    assert waves.tail == Tail(20, 0.2, 1.0)


def test_short_ctas_beside_a_long_one_are_not_counted_twice(launch: Timeline) -> None:
    waves = found(launch, [(0, 0, 100), (0, 10, 20), (0, 30, 40), (1, 0, 100)])
    assert (waves.slots_per_sm, waves.idle_sm_share) == (2, 0.0)
    assert waves.idle_slot_share == pytest.approx(1 - 220 / 400)


def test_copying_records_keeps_an_sm_busy_only_while_it_has_more_to_do(launch: Timeline) -> None:
    waves = found(launch, [(0, 0, 40, 50), (0, 60, 100, 130), (1, 0, 80, 110)])
    assert (waves.slots_per_sm, waves.duration_ns) == (1, 100)
    # SM 0 has no CTA from 50 to 60, SM 1 none from 80 on.
    assert waves.idle_sm_share == pytest.approx(30 / 200)
    assert waves.tail == Tail(20, 0.2, 1.0)


def test_ctas_without_length_are_no_division_by_zero(launch: Timeline) -> None:
    waves = found(launch, [(0, 0, 0), (1, 0, 0)])
    assert (waves.duration_ns, waves.fill, waves.slots_per_sm) == (0, 1.0, 1)
    assert (waves.last.share, waves.tail.busy_sms) == (0.0, None)
    assert (waves.idle_sm_share, waves.idle_slot_share) == (None, None)


def test_ctas_within_one_step_of_the_timer_are_there_at_once(launch: Timeline) -> None:
    waves = found(launch, [(0, 0, 0)] * 4)
    assert (waves.waves, waves.slots_per_sm, waves.slots_source, waves.fill) == (1, 4, "observed", 1.0)
    # The long one is there too, and one that leaves in this step makes room.
    assert found(launch, [(0, 0, 90), (0, 50, 50)]).slots_per_sm == 2
    assert found(launch, [(0, 0, 50), (0, 50, 50)]).slots_per_sm == 1


def test_ctas_within_one_step_do_not_contradict_the_driver(launch: Timeline) -> None:
    waves = found(launch, [(0, 0, 0)] * 4, room=2)
    assert (waves.slots_per_sm, waves.slots_source, waves.waves) == (2, "occupancy", 2)


def test_without_a_timer_there_are_no_waves_but_a_duration(launch: Timeline) -> None:
    ctas = cta_rows((0, 0, 100, 200, 200), (1, 1, 100, 350, 350))
    untimed = replace(launch, ctas=ctas, clock=replace(launch.clock, source="nominal"))
    assert waves_of(untimed) is None
    assert launch_duration_ns(untimed) == 250
    assert launch_duration_ns(launch) == 0


def test_a_cta_whose_timer_ran_backwards_has_no_length(launch: Timeline) -> None:
    waves = found(launch, [(0, 0, 100), (1, 50, 20, 10)])
    assert (waves.duration_ns, waves.waves) == (100, 1)
    assert waves.idle_sm_share is not None and 0 <= waves.idle_sm_share <= 1
