"""When SMs have no CTA, and what the launch would take if they had."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest
from timelines import cta_rows

from kprof_inject.timeline.waves import IdleSms, idle_sms_of

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
