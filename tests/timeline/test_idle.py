"""When SMs have no CTA, and what the launch would take if they had."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest
from timelines import cta_rows

from kprof_inject.timeline.waves import IdleSms, idle_sms_of

Ctas = list[tuple[int, int, int, int]]
"""SM, begin, end of work, end of copying."""


def idle(ctas: Ctas, slots: int = 1, step_ns: int = 0) -> IdleSms:
    found = idle_sms_of(cta_rows(*((cta, *row) for cta, row in enumerate(ctas))), slots, step_ns)
    assert found is not None
    return found


def handed_out(
    durations_ns: Sequence[int], free_from_ns: Sequence[int], slots: int = 1, gap_ns: Callable[[int], int] = lambda _: 0
) -> Ctas:
    """What a device does: each CTA in turn begins on the SM that has a slot first, a gap after that was left."""
    free = sorted((begin_ns, sm) for sm, begin_ns in enumerate(free_from_ns) for _ in range(slots))
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
    assert (found.late_sms, found.longest_wait_ns, found.gaps, found.gap_ns) == (1, 200, 1, 80.0)


def test_what_another_cta_of_the_sm_covers_is_no_gap() -> None:
    found = idle([(0, 0, 300, 300), (0, 0, 1000, 1000), (0, 700, 900, 900)], slots=2)
    assert (found.gaps, found.between_share, found.gaps_won_share) == (0, 0.0, 0.0)


def test_in_a_single_wave_the_last_sm_to_begin_holds_up_all() -> None:
    found = idle([(sm, 0, 1000, 1000) for sm in range(99)] + [(99, 1000, 2000, 2000)])
    assert found.before_share == pytest.approx(1 / 200)
    assert found.late_won_share == 0.5


def test_an_sm_that_begins_late_and_is_done_early_costs_nothing() -> None:
    assert idle([(0, 0, 1000, 1000), (1, 500, 700, 700)]).late_won_share == 0


def test_what_the_timer_cannot_tell_is_not_won() -> None:
    late = [(0, 0, 1024, 1024), (1, 1024, 2048, 2048)]
    assert idle(late).late_won_share == 0.5
    assert idle(late, step_ns=1024).late_won_share == 0


@pytest.mark.parametrize("seed", range(20))
def test_what_would_be_won_is_what_the_device_would_take_without(seed: int) -> None:
    chance = random.Random(seed)
    sms, slots = chance.choice([4, 16]), chance.choice([1, 2])
    durations_ns = [chance.randrange(4_500, 5_500) for _ in range(sms * slots * chance.choice([1, 3]))]
    late_ns = [chance.randrange(4_000) for _ in range(sms)]
    at_once_ns = [0] * sms

    late = handed_out(durations_ns, late_ns, slots)
    won = 1 - duration_ns(handed_out(durations_ns, at_once_ns, slots)) / duration_ns(late)
    assert idle(late, slots).late_won_share == pytest.approx(won, abs=0.01)

    gaps = handed_out(durations_ns, at_once_ns, 1, lambda sm: 3_000 * (sm % 2))
    won = 1 - duration_ns(handed_out(durations_ns, at_once_ns)) / duration_ns(gaps)
    assert idle(gaps).gaps_won_share == pytest.approx(won, abs=0.02)
    assert idle(gaps).late_won_share == 0


def test_a_launch_within_a_step_of_the_timer_tells_nothing() -> None:
    assert idle_sms_of(cta_rows((0, 0, 5, 5, 5), (1, 1, 5, 5, 5)), 1, 32) is None
    assert idle_sms_of(cta_rows(), 1, 32) is None
