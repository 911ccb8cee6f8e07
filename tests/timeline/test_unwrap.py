"""Clocks of 32 bits: counters that overflow every two seconds, against what they truly counted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from buffers import Cta, Entry, end, start, with_moved_stores
from decoded_records import decoded, entries_of, read
from replacing import replace

PERIOD = 1 << 32
CLOCK_HZ = 2e9
SECOND = 2 * 10**9  # in cycles


def counted(
    ctas: Sequence[Cta], slots: int = 8, clock_hz: float = CLOCK_HZ, *, clock_bits: int = 32, stores_moved: bool = False
) -> list[list[list[int]]]:
    """The cycles of each CTA's warps, in the order of the clock."""
    warps = len(ctas[0].warps)
    raw = read(ctas, slots, clock_bits=clock_bits)
    records = decoded(raw, clock_bits=clock_bits, clock_hz=clock_hz, stores_moved=stores_moved)
    return [
        [[entry.cycles for entry in entries_of(records, row * warps + warp)] for warp in range(warps)]
        for row in range(len(ctas))
    ]


def cta(sm: int, *warps: Sequence[int], hz: float = CLOCK_HZ) -> Cta:
    """A CTA whose records have these clock values, and whose times are those of a clock of ``hz``."""
    first, last = min(map(min, warps)), max(map(max, warps))
    entries = [[Entry(0, number % 2 == 1, cycles) for number, cycles in enumerate(warp)] for warp in warps]
    return Cta(entries, sm, round(first * 1e9 / hz) - 30, round(last * 1e9 / hz) + 28, round(last * 1e9 / hz) + 500)


@pytest.mark.parametrize("launch_ns", [1_000, 3_000_000_000])
def test_moved_stores_do_not_look_like_an_overflow(launch_ns: int) -> None:
    ran = [start(0, PERIOD - 30), start(1, PERIOD - 10), end(1, PERIOD + 20), end(0, PERIOD + 40)]
    ctas = [Cta([with_moved_stores(ran)], pre_final_ns=1_000 + launch_ns)]
    assert counted(ctas, stores_moved=True) == [[[PERIOD - 30, PERIOD - 10, PERIOD + 20, PERIOD + 40]]]


@pytest.mark.parametrize("clock_hz", [CLOCK_HZ, 0.0])
@pytest.mark.parametrize("hz", [1.6e9, 2e9])
def test_the_timer_tells_how_many_periods_lie_between_ctas(hz: float, clock_hz: float) -> None:
    begins = [PERIOD - 500, PERIOD + 100, PERIOD + 3 * SECOND, 2 * PERIOD + 5 * SECOND, 9 * SECOND + PERIOD]
    truth = [[[begin, begin + 1000], [begin + 20, begin + 900]] for begin in sorted(begins)]
    ctas = [cta(3, *warps, hz=hz) for warps in truth]
    assert counted(ctas[::-1], clock_hz=clock_hz) == truth[::-1]


def test_against_a_random_truth() -> None:
    random = np.random.default_rng(4)
    ctas, truth = [], []
    at = [int(cycles) for cycles in random.integers(0, PERIOD, 5)]
    for _ in range(200):
        sm = int(random.integers(5))
        begin = at[sm] = at[sm] + int(random.integers(0, SECOND))
        warps = [
            (begin + np.cumsum(random.integers(0, SECOND // 2, int(random.integers(1, 12))))).tolist() for _ in range(3)
        ]
        # All warps end together, and the last says when.
        last = max(warp[-1] for warp in warps)
        warps = [[cycles + last - warp[-1] for cycles in warp] for warp in warps]
        truth.append([warp[-8:] for warp in warps])
        ctas.append(cta(sm, *warps))
    got = counted(ctas)
    # An SM's first value is known but for whole periods.
    for sm in range(5):
        mine = [row for row in range(200) if ctas[row].sm == sm]
        shifts = {
            g - t
            for row in mine
            for got_warp, true_warp in zip(got[row], truth[row], strict=True)
            for g, t in zip(got_warp, true_warp, strict=True)
        }
        assert len(shifts) == 1
        assert shifts.pop() % PERIOD == 0


@pytest.mark.parametrize("stores_moved", [False, True])
@pytest.mark.parametrize("damage", [1 << 31, 1 << 30, 77, 0xFFFFFFFF])
@pytest.mark.parametrize("entry", [0, 1, 2, 3])
def test_a_damaged_value_moves_no_other(entry: int, damage: int, stores_moved: bool) -> None:
    begins = [PERIOD - 9_000 + 1_500 * number for number in range(9)]
    ran = [[[start(0, at), start(1, at + 5), end(1, at + 50), end(0, at + 90)]] for at in begins]
    ctas = [
        Cta([with_moved_stores(warp) if stores_moved else warp for warp in warps], 0, begin // 2, begin // 2 + 700)
        for warps, begin in zip(ran, begins, strict=True)
    ]
    raw = read(ctas, 4, clock_bits=32)
    raw.entries[3, 0, entry, 1] ^= damage
    records = decoded(raw, clock_bits=32, stores_moved=stores_moved)
    assert [entries_of(records, row) for row in (0, 1, 2, 4, 5, 6, 7, 8)] == [
        warps[0] for row, warps in enumerate(ran) if row != 3
    ]


def test_43_bits_overflow_in_a_launch_of_hours_too() -> None:
    period, half_hour = 1 << 43, 1800 * SECOND
    begins = [period - 500 + number * half_hour for number in range(8)]
    truth = [[[begin, begin + half_hour - 100], [begin + 20, begin + 900]] for begin in begins]
    assert counted([cta(3, *warps) for warps in truth], clock_bits=43) == truth


@pytest.mark.parametrize("clock_bits", [32, 43])
def test_a_launch_that_read_no_timer_is_taken_to_be_short(clock_bits: int) -> None:
    edge = 1 << clock_bits
    ctas = [Cta([[start(0, edge + at), end(0, edge + at + 100)]]) for at in (-500, -50, 40)]
    raw = replace(read(ctas, 2, clock_bits=clock_bits), timed=False)
    assert decoded(raw, clock_bits=clock_bits, clock_hz=CLOCK_HZ).cycles.tolist() == [
        edge + at for at in (-500, -400, -50, 50, 40, 140)
    ]
