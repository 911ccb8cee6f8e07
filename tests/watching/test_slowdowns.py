"""A kernel is slower than its own past: when that is said, and when not."""

from __future__ import annotations

import random
from collections.abc import Iterable
from statistics import median, quantiles

import pytest

from kprof_inject.watching.slowdowns import MAX_PAST, MIN_PAST, RECENT, Event, KernelPast, Sample

HZ = 1.8e9


def samples(times_ns: Iterable[float], hz: float | None = HZ, first: int = 0) -> list[Sample]:
    return [
        Sample(first + number, time_ns, None if hz is None else time_ns * hz / 1e9)
        for number, time_ns in enumerate(times_ns)
    ]


def events(past: KernelPast, added: Iterable[Sample]) -> list[tuple[int, Event]]:
    found = [(sample.time_ns, past.add(sample)) for sample in added]
    return [(time_ns, event) for time_ns, event in found if event is not None]


def noisy(count: int, time_ns: float, seed: int = 1, part: float = 0.02) -> list[float]:
    chosen = random.Random(seed)
    return [time_ns * chosen.uniform(1 - part, 1 + part) for _ in range(count)]


@pytest.mark.parametrize("hz", [HZ, None])
def test_it_is_slower_once_the_last_launches_are_and_usual_again_later(hz: float | None) -> None:
    past = KernelPast(0.05)
    assert events(past, samples(noisy(40, 1000), hz)) == []
    slower = samples(noisy(20, 1200), hz, first=40)
    assert events(past, slower) == [(40 + RECENT - 1, Event.SLOWER)]
    assert past.slowdown is not None
    assert past.slowdown.since_ns == 40
    assert past.slowdown.percent == pytest.approx(20, abs=2)
    assert events(past, samples(noisy(20, 1000), hz, first=60)) == [(60, Event.USUAL_AGAIN)]


def test_slow_launches_do_not_become_its_past() -> None:
    past = KernelPast(0.05)
    events(past, samples(noisy(20, 1000)))
    events(past, samples(noisy(3000, 1200), first=20))
    assert past.slowdown is not None
    assert past.usual_ns == pytest.approx(1000, rel=0.02)


def test_a_lower_clock_alone_is_no_slowdown() -> None:
    compute, memory = KernelPast(0.05), KernelPast(0.05)
    assert events(compute, samples([1000.0] * 20) + samples([1200.0] * 20, HZ / 1.2, first=20)) == []
    assert events(memory, samples([1000.0] * 20) + samples([1000.0] * 20, 1.2 * HZ, first=20)) == []


def test_two_sizes_in_turn_are_its_usual_times() -> None:
    chosen = random.Random(2)
    sizes = [1000.0 if chosen.random() < 0.7 else 1500.0 for _ in range(2000)]
    assert events(KernelPast(0.05), samples(sizes)) == []


def test_noise_alone_raises_no_alarm_in_a_day_of_ten_kernels() -> None:
    alarms = [events(KernelPast(0.05), samples(noisy(8640, 1000, seed, 0.08))) for seed in range(10)]
    assert alarms == [[]] * 10


def test_nothing_is_said_without_a_past() -> None:
    assert events(KernelPast(0.05), samples([1000.0] * (MIN_PAST - 1) + [2000.0] * RECENT)) == []
    assert KernelPast(0.05).usual_ns is None


def test_a_gradual_slowdown_is_found() -> None:
    rising = [1000 * (1 + number / 1000) for number in range(400)]
    assert [event for _, event in events(KernelPast(0.05), samples(rising))] == [Event.SLOWER]


def judged_plainly(times_ns: list[float], limit: float) -> list[bool]:
    """Return after which launches the kernel is slower, straight from the definition."""
    past: list[float] = []
    recent: list[float] = []
    is_slower, found = False, []
    for time_ns in times_ns:
        if len(recent) == RECENT and not is_slower:
            past.append(recent[0])
        recent = [*recent, time_ns][-RECENT:]
        past = past[-MAX_PAST:]
        if len(recent) == RECENT and len(past) >= MIN_PAST:
            high = quantiles(past, n=100, method="inclusive")[94]
            is_slower = min(recent) > high and median(recent) > (1 + limit) * median(past)
        found.append(is_slower)
    return found


@pytest.mark.parametrize("seed", range(5))
def test_it_is_judged_as_the_definition_says(seed: int) -> None:
    chosen = random.Random(seed)
    times_ns = [chosen.choice([1000.0, 1010.0, 1100.0]) * (1 + (number // 300 % 2) / 8) for number in range(2600)]
    past = KernelPast(0.05)
    found = []
    for sample in samples(times_ns):
        past.add(sample)
        found.append(past.slowdown is not None)
    assert found == judged_plainly(times_ns, 0.05)
    assert {True, False} == set(found)
