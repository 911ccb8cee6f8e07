"""Waves, tail and idle SMs, from CTAs whose truth is known."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from buffers import Scope
from replacing import replace
from timelines import cta_rows, made_timeline

from kprof_inject.capture.resources import KernelResources
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.timeline.waves import (
    Ending,
    IdleSms,
    LastWave,
    Tail,
    Waves,
    ending_of,
    idle_sms_of,
    launch_duration_ns,
    waves_of,
)

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


# What SMs lose at the end of a launch, and for which of two reasons.


def ending(folder: Path, *ctas: tuple[int, int, int]) -> Ending | None:
    """Of CTAs by SM, begin and end."""
    rows = cta_rows(*[(cta, sm, begin_ns, end_ns, end_ns) for cta, (sm, begin_ns, end_ns) in enumerate(ctas)])
    return ending_of(made_timeline(folder, [Scope("func")], [], rows), 1)


def test_an_sm_with_one_cta_more(tmp_path: Path) -> None:
    found = ending(tmp_path, (0, 0, 100), (1, 0, 100), (2, 0, 100), (3, 0, 100), (0, 100, 200))
    assert found == Ending(4, 3 / 8, 2, 1, 3 / 8, 5, 100.0, 4, 0, 100)
    assert found.uneven_share == 0


@pytest.mark.parametrize(("both_ns", "gain"), [(112, 0.44), (200, 0.0)])
def test_what_a_second_cta_on_an_sm_gains(tmp_path: Path, both_ns: int, gain: float) -> None:
    ctas = [(sm, 0, 100) for sm in range(3)] + [(3, 0, both_ns)] * 2
    rows = cta_rows(*[(cta, sm, begin_ns, end_ns, end_ns) for cta, (sm, begin_ns, end_ns) in enumerate(ctas)])
    timeline = made_timeline(tmp_path, [Scope("func")], [], rows)
    found = ending_of(timeline, 2)
    assert found is not None and found.sharing_share == pytest.approx(gain)
    in_turn = ending_of(timeline, 1)
    assert in_turn is not None and in_turn.sharing_share is None


def test_a_cta_that_takes_longer(tmp_path: Path) -> None:
    found = ending(tmp_path, (0, 0, 100), (1, 0, 100), (2, 0, 200), (3, 0, 100))
    assert found == Ending(4, 3 / 8, 1, 4, 0.0, 4, 100.0, 2, 2, 200)
    assert found.uneven_share == 3 / 8


def test_both_at_once(tmp_path: Path) -> None:
    # SM 0 has two CTAs; SM 1 has one, which is as long as three.
    found = ending(tmp_path, (0, 0, 100), (1, 0, 300), (2, 0, 100), (0, 100, 200), (3, 0, 100))
    assert found is not None
    assert found.idle_share == pytest.approx(1 - (200 + 300 + 100 + 100) / 1200)
    assert found.count_share == pytest.approx(100 / 300 * 3 / 4)
    assert (found.last_cta, found.last_cta_ns, found.cta_ns) == (1, 300, 100.0)


def test_an_sm_with_fewer_but_longer_ctas_has_not_too_many(tmp_path: Path) -> None:
    found = ending(tmp_path, (0, 0, 100), (0, 100, 200), (1, 0, 100), (1, 100, 200), (2, 0, 400))
    assert found is not None
    assert (found.count_share, found.uneven_share) == (0.0, pytest.approx(1 / 3))


def test_that_an_sm_ran_more_ctas_because_they_were_short_is_not_for_their_number(tmp_path: Path) -> None:
    # 8 CTAs on 4 SMs would be two on each, if all took as long. SM 0 ran three.
    ctas = [(0, 0, 60), (1, 0, 100), (2, 0, 100), (3, 0, 150)]
    found = ending(tmp_path, *ctas, (0, 60, 120), (1, 100, 160), (2, 100, 160), (0, 120, 200))
    assert found is not None
    assert (found.most_ctas, found.fullest_sms) == (3, 1)
    assert found.idle_share == pytest.approx(1 - (200 + 160 + 160 + 150) / 800)
    assert found.count_share == 0


def test_the_number_of_ctas_explains_no_more_than_of_equal_ones(tmp_path: Path) -> None:
    # 5 CTAs that took as long would be done after 200 ns, and 125 each would do. SM 0 has one more, which is long.
    found = ending(tmp_path, *[(sm, 0, 100) for sm in range(4)], (0, 100, 400))
    assert found is not None
    assert found.idle_share == pytest.approx(3 / 4 * 3 / 4)
    assert found.count_share == pytest.approx(1 - 125 / 200)


@pytest.mark.parametrize(
    "ctas",
    [[(0, 0, 100)], [(0, 0, 100), (1, 0, 100)], [(0, 0, 100), (0, 100, 200), (1, 0, 50), (1, 50, 200)]],
    ids=["one", "two", "of different lengths"],
)
def test_where_all_end_at_once_nothing_is_lost(tmp_path: Path, ctas: Sequence[tuple[int, int, int]]) -> None:
    found = ending(tmp_path, *ctas)
    assert found is not None
    assert (found.idle_share, found.count_share, found.uneven_share) == (0, 0, 0)


@pytest.mark.parametrize("ctas", [[], [(0, 50, 50), (1, 50, 50)]], ids=["no CTA", "one step of the timer"])
def test_nothing_to_tell(tmp_path: Path, ctas: Sequence[tuple[int, int, int]]) -> None:
    assert ending(tmp_path, *ctas) is None


def test_timers_that_contradict_each_other_make_no_cta_run_backwards(tmp_path: Path) -> None:
    found = ending(tmp_path, (0, 100, 50), (1, 0, 200))
    assert found is not None
    assert 0 <= found.idle_share <= 1


# When SMs have no CTA, and what the launch would take if they had.


Ctas = list[tuple[int, int, int, int]]
"""SM, begin, end of work, end of copying."""


def idle(ctas: Ctas, slots: int = 1) -> IdleSms:
    found = idle_sms_of(cta_rows(*((cta, *row) for cta, row in enumerate(ctas))), slots)
    assert found is not None
    return found


def handed_out(
    durations_ns: Sequence[int], free_from_ns: Sequence[int], gap_ns: Callable[[int], int] = lambda _: 0
) -> Ctas:
    """What a device does: each CTA in turn begins on the SM that has a slot first, a gap after that was left."""
    free = sorted((begin_ns, sm) for sm, begin_ns in enumerate(free_from_ns))
    ran = []
    for duration_ns in durations_ns:
        begin_ns, sm = free.pop(0)
        end_ns = begin_ns + duration_ns
        ran.append((sm, begin_ns, end_ns, end_ns + 100))
        free = sorted([*free, (end_ns + 100 + gap_ns(sm), sm)])
    return ran


def duration_ns(ctas: Ctas) -> int:
    return max(end_ns for _, _, end_ns, _ in ctas) - min(begin_ns for _, begin_ns, _, _ in ctas)


def test_the_three_parts_add_up() -> None:
    # SM 0 has a CTA all the time, SM 1 from 200 to 400 and from 500 to 800; until 420, records are copied.
    found = idle([(0, 0, 1000, 1050), (1, 200, 400, 420), (1, 500, 800, 900)])
    assert (found.before_share, found.between_share, found.after_share) == (0.1, 0.04, 0.1)
    assert found.work_share == pytest.approx(0.76)
    assert (found.gaps, found.gap_ns) == (1, 80.0)


def test_what_another_cta_of_the_sm_covers_is_no_gap() -> None:
    found = idle([(0, 0, 300, 300), (0, 0, 1000, 1000), (0, 700, 900, 900)], slots=2)
    assert (found.gaps, found.between_share, found.gaps_won_share) == (0, 0.0, 0.0)


@pytest.mark.parametrize("seed", range(20))
def test_what_would_be_won_is_what_the_device_would_take_without(seed: int) -> None:
    chance = random.Random(seed)
    sms = chance.choice([4, 16])
    durations_ns = [chance.randrange(4_500, 5_500) for _ in range(sms * chance.choice([1, 3]))]
    at_once_ns = [0] * sms
    gaps = handed_out(durations_ns, at_once_ns, lambda sm: 3_000 * (sm % 2))
    won = 1 - duration_ns(handed_out(durations_ns, at_once_ns)) / duration_ns(gaps)
    assert idle(gaps).gaps_won_share == pytest.approx(won, abs=0.02)


def test_a_launch_within_a_step_of_the_timer_tells_nothing() -> None:
    assert idle_sms_of(cta_rows((0, 0, 5, 5, 5), (1, 1, 5, 5, 5)), 1) is None
    assert idle_sms_of(cta_rows(), 1) is None
