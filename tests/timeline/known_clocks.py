"""Launches whose clock is known: their buffers, and how far a fit of them is from the truth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from buffers import SM_CLOCK_HZ, Cta, Entry, buffer_words
from numpy.typing import NDArray

from kprof_inject.capture.buffer_layouts import LAYOUTS, RawCtas
from kprof_inject.timeline.clock import ClockFit, fit_clocks
from kprof_inject.timeline.readings import readings_of, tally_launch
from kprof_inject.timeline.records import RecordDecoder, record_decoder

# Nanoseconds since 1970, as globaltimer counts: more than a double can tell apart.
BEGIN_NS = 1_764_000_000_123_456_789
STEP_NS = 32
# Where the first and the last record of a CTA stand: what timeline.readings knows of the device.
AFTER_INIT_NS = 30
BEFORE_FINAL_NS = 28
FUNC, ITER = 0, 1
SCOPES = 2
_ALL_IDS = np.where(np.arange(256) < SCOPES, np.arange(256), -1).astype(np.int16)


class Work(NamedTuple):
    """One CTA's life, in nanoseconds since the launch began. ``init_late_ns`` and ``final_late_ns`` are what its
    readings show beyond the truth."""

    sm: int
    begin_ns: float
    end_ns: float
    final_late_ns: float = 0.0
    init_late_ns: float = 0.0


Counter = Callable[[int, float], float]
"""The cycles that an SM's counter has made since the launch began."""


Harm = Callable[[NDArray[np.uint64]], None]
"""What changes the timer readings of all CTAs in place: their init, pre-final and post-final times, shape (CTA, 3)."""


@dataclass(frozen=True)
class Fitted:
    """The fit of a launch; for each record its SM, whether it ends or begins the function,
    its true time, and how much later the fitted one is."""

    clock: ClockFit
    sm: NDArray[np.int64]
    cycles: NDArray[np.int64]
    at_function: NDArray[np.bool_]
    true_ns: NDArray[np.float64]
    error_ns: NDArray[np.float64]

    def worst_ns(self, where: NDArray[np.bool_] | bool = True) -> float:
        return float(np.abs(self.error_ns[where]).max())

    @property
    def is_monotonic(self) -> bool:
        """Whether on each SM later cycles are never at an earlier nanosecond, between records too."""
        for sm in np.unique(self.sm):
            cycles = self.cycles[self.sm == sm]
            between = np.linspace(cycles.min() - 1000, cycles.max() + 1000, 5000).astype(np.int64)
            ns = self.clock.to_ns(between, np.full(between.size, sm))
            if (np.diff(ns) < 0).any():
                return False
        return True


def steady(hz: float) -> Counter:
    return lambda sm, ns: ns * hz / 1e9


def unequal(hz: float) -> Counter:
    """Steady, but with rates up to 3 % apart."""
    return lambda sm, ns: ns * hz / 1e9 * (1 + 0.03 * (sm % 7) / 6)


def falling(from_hz: float, to_hz: float, within_ns: float) -> Counter:
    """Falling evenly within a time, then steady."""

    def counted(sm: int, ns: float) -> float:
        fallen = min(ns, within_ns)
        return (from_hz * ns - (from_hz - to_hz) * (fallen**2 / (2 * within_ns) + ns - fallen)) / 1e9

    return counted


# Down by 10 % of 1.7 GHz within 200 µs.
slowing = falling(1.785e9, 1.615e9, 200e3)


def run(
    works: Sequence[Work],
    counter: Counter,
    *,
    seed: int = 0,
    iterations: int = 10,
    loop: tuple[float, float] = (0.05, 0.99),
    slots: int = 64,
    offset_cycles: int | None = None,
    step_ns: int = STEP_NS,
    nominal_hz: float = SM_CLOCK_HZ,
    harm: Harm | None = None,
    number: Callable[[int], int] = lambda sm: sm,
    around_ns: tuple[float, float] = (AFTER_INIT_NS, BEFORE_FINAL_NS),
    spans_function: bool = True,
) -> Fitted:
    """Make the buffer of a launch of two warps a CTA, and fit its clock.

    ``loop`` says from where to where in the function the loop is. Each SM's counter begins at a number of its own, or
    at ``offset_cycles``. The timer moves in steps of ``step_ns``. ``harm`` changes its readings afterwards.
    ``number`` is the number under which an SM goes. The first and the last record of a CTA are ``around_ns`` from its
    readings, and ``spans_function`` is what the fit is told."""
    random = np.random.default_rng(seed)
    offsets = random.integers(0, 1 << 42, 1 + max(work.sm for work in works)).tolist()
    if offset_cycles is not None:
        offsets = [offset_cycles] * len(offsets)
    ctas, times = [], []
    for work in works:
        warps = [
            record_times(work.begin_ns + around_ns[0], work.end_ns - around_ns[1], iterations, loop, random),
            # The other warp begins a little later and ends a little sooner: only the first one reads the timer.
            record_times(work.begin_ns + around_ns[0] + 60, work.end_ns - around_ns[1] - 22, iterations, loop, random),
        ]
        shown = (work.begin_ns + work.init_late_ns, work.end_ns + work.final_late_ns)
        ctas.append(
            Cta(
                [
                    [Entry(scope, is_end, offsets[work.sm] + round(counter(work.sm, ns))) for scope, is_end, ns in warp]
                    for warp in warps
                ],
                number(work.sm),
                *(timer(ns, step_ns) for ns in (*shown, max(shown[1], work.end_ns) + 1000)),
            )
        )
        times.append([ns for warp in warps for _, _, ns in warp[-slots:]])
    words = buffer_words(ctas, slots)
    if harm:
        harm(words[:, 4:10].view("<u8"))
    decoder = decoder_of(LAYOUTS["timed"].read(words, 2, range(2)))
    clock = fitted_clock(decoder, nominal_hz, spans_function=spans_function)
    records = decoder.decode(slice(0, len(decoder.ctas.cta)))
    assert not records.damaged.size
    sm = decoder.ctas.sm[records.group // 2]
    true_ns = np.concatenate([np.empty(0), *(times[cta] for cta in decoder.ctas.cta.tolist())])
    error_ns = (clock.to_ns(records.cycles, sm) - BEGIN_NS) - true_ns
    return Fitted(clock, sm, records.cycles, records.scope == FUNC, true_ns, error_ns)


def decoder_of(raw: RawCtas) -> RecordDecoder:
    return record_decoder(raw, _ALL_IDS)


def fitted_clock(decoder: RecordDecoder, nominal_hz: float, *, spans_function: bool = True) -> ClockFit:
    """What is fitted to the launch's readings."""
    warps = tally_launch(decoder, SCOPES).warps
    return fit_clocks([(readings_of(decoder.ctas, warps, spans_function=spans_function), nominal_hz)])[0]


def record_times(
    begin_ns: float, end_ns: float, iterations: int, loop: tuple[float, float], random: np.random.Generator
) -> list[tuple[int, bool, float]]:
    """The records of a function with a loop of uneven iterations: scope, whether its end, time."""
    lengths = random.uniform(0.5, 1.5, iterations)
    shares = loop[0] + (loop[1] - loop[0]) * np.cumsum([0, *lengths]) / lengths.sum()
    edges = (begin_ns + (end_ns - begin_ns) * shares).tolist()
    inner = [
        record
        for left, right in pairwise(edges)
        for record in ((ITER, False, left), (ITER, True, right - (right - left) / 10))
    ]
    return [(FUNC, False, begin_ns), *inner, (FUNC, True, end_ns)]


def timer(since_ns: float, step_ns: int = STEP_NS) -> int:
    """The step nearest to a time. A timer that shows the last step is half a step late, alike in all its readings."""
    return (BEGIN_NS + round(since_ns) + step_ns // 2) // step_ns * step_ns


def waves(ctas: int, sms: int, work_ns: float, *, at_once: int = 1, seed: int = 0) -> list[Work]:
    """CTAs handed to SMs as they become free, each taking about ``work_ns``."""
    random = np.random.default_rng(seed)
    free = np.sort(random.uniform(0, 1000, sms * at_once))
    works = []
    for _ in range(ctas):
        place = int(np.argmin(free))
        begin_ns = float(free[place])
        end_ns = begin_ns + work_ns * random.uniform(0.8, 1.2)
        works.append(Work(place % sms, begin_ns, end_ns))
        free[place] = end_ns + random.uniform(300, 1500)
    return works
