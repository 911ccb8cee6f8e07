"""The slowdown of the CTAs of a sample, computed from what they and the others write."""

from __future__ import annotations

import math

import numpy as np
import pytest
from msgspec import structs

from kprof_inject.capture.buffer_layouts import RawCtas, rows_of
from kprof_inject.capture.cta_samples import CtaSample
from kprof_inject.capture.slowdown import Slowdown, first_warp_ns, slowdown_of

CTAS, SHIFT, WARPS, SLOTS = 4096, 3, 4, 8
SAMPLE = CtaSample(CTAS, 1, SHIFT)
CLOCK_HZ = 2e9
OTHERS_NS = 5_000
OF_CTAS = ("cta", "sm", "init_ns", "pre_final_ns", "post_final_ns", "written_words", "entries")
COPYING_NS = 700  # what only CTAs that record do before the last time


def raw_of(own_ns: int, last_warp_ns: int = 0, records: int = 4, first_warp: int = 0) -> RawCtas:
    """A launch whose sample takes ``own_ns`` in each first warp, and in the last warp this much longer."""
    rows = rows_of(SAMPLE, np.arange(CTAS))
    recorded, others = np.flatnonzero(rows >= 0), np.flatnonzero(rows < 0)
    init_ns = 1_000_000 + 10 * recorded
    entries = np.zeros((len(recorded), WARPS, SLOTS, 2), np.uint32)
    cycles = np.uint64((1 << 32) - 100) + np.zeros(len(recorded), np.uint64)  # the lowest 32 bits wrap
    own_cycles = round(own_ns * CLOCK_HZ / 1e9) * np.arange(records) // max(records - 1, 1)
    for warp in range(WARPS):
        for number, after in enumerate(own_cycles.tolist()):
            later = round(last_warp_ns * CLOCK_HZ / 1e9) if warp == WARPS - 1 and number else 0
            entries[:, warp, number % SLOTS, 1] = (cycles + np.uint64(after + later)) & np.uint64(0xFFFFFFFF)
    others_ns = 1_000_000 + 10 * others
    return RawCtas(
        warps=np.arange(first_warp, first_warp + WARPS),
        cta=recorded,
        sm=recorded % 7,
        init_ns=init_ns,
        pre_final_ns=init_ns + own_ns + last_warp_ns + COPYING_NS,
        post_final_ns=init_ns + own_ns + last_warp_ns + COPYING_NS,
        written_words=np.full((len(recorded), WARPS), 2 * records),
        entries=entries,
        never_ran=0,
        damaged=0,
        timed=True,
        others=np.stack((others, others % 7, others_ns, others_ns + OTHERS_NS)),
    )


def found(raw: RawCtas, *, spans_function: bool = True) -> Slowdown:
    slowdown = slowdown_of(raw, SAMPLE, first_warp_ns(raw, CLOCK_HZ, spans_function=spans_function))
    assert slowdown is not None
    return slowdown


@pytest.mark.parametrize("own_ns", [4_000, 5_000, 7_500])
@pytest.mark.parametrize("last_warp_ns", [0, 2_000])
def test_first_warps_are_compared_and_nothing_else(own_ns: int, last_warp_ns: int) -> None:
    slowdown = found(raw_of(own_ns, last_warp_ns))
    assert slowdown.part == pytest.approx(own_ns / OTHERS_NS - 1, abs=1e-3)
    assert slowdown.error < 1e-3


def test_without_a_scope_around_the_function_the_timer_tells() -> None:
    """It has been read after the last warp, and after what only these CTAs do."""
    slowdown = found(raw_of(5_000, 2_000), spans_function=False)
    assert slowdown.part == pytest.approx(COPYING_NS / OTHERS_NS, abs=1e-3)


def test_where_the_first_record_is_lost_the_timer_tells() -> None:
    raw = raw_of(5_000, records=SLOTS + 3)
    assert found(raw).part == pytest.approx(COPYING_NS / OTHERS_NS, abs=1e-3)


def test_the_interval_shows_how_much_the_ctas_differ() -> None:
    raw = raw_of(5_000)
    raw.others[3, ::2] += 4_000
    slowdown = found(raw)
    assert abs(slowdown.part - (5_000 / 7_000 - 1)) < slowdown.error


def test_nothing_is_compared_if_the_first_warp_does_not_record() -> None:
    raw = raw_of(5_000, first_warp=1)
    assert math.isnan(first_warp_ns(raw, CLOCK_HZ, spans_function=True)[0])
    assert slowdown_of(raw, SAMPLE, first_warp_ns(raw, CLOCK_HZ, spans_function=True)) is None


def test_few_ctas_show_no_slowdown() -> None:
    raw = raw_of(5_000)
    few = structs.replace(raw, **{name: getattr(raw, name)[:7] for name in OF_CTAS})
    assert slowdown_of(few, SAMPLE, first_warp_ns(few, CLOCK_HZ, spans_function=True)) is None
