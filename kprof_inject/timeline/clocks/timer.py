"""In which steps a device's globaltimer moves, read off the times of a launch.

32 ns on an H200; about 1 µs on other NVIDIA GPUs, perhaps in units of 32 ns all the same; 10 ns on AMD, where Proton
multiplies ``s_memrealtime``, a counter of 100 MHz, by ten.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kprof_inject.capture.layouts import RawCtas

# About a microsecond, in binary: nothing comes in multiples of that by chance. A timer that has not moved from a CTA's
# begin until its records are copied has no finer steps.
_COARSE_STEP_NS = 1024
# Steps that few gaps between times can tell; 1 if they are no multiples of any of these.
_KNOWN_STEPS_NS = (_COARSE_STEP_NS, 1000, 32, 10)
_FINE_STEP_NS = 32
# So many gaps can tell any step.
_ENOUGH_GAPS = 16
_MOST_CTAS = 1 << 12
# So many gaps have the step for a divisor, however many times are damaged.
_SOUND_SHARE = 0.75
# The gaps of one greatest common divisor: few enough that often no damaged time is among them.
_TOGETHER = 4
# A timer may show its unit's multiples and yet stand still for many of them: then most gaps are as long as it does, and
# few are no multiple of that.
_LEAST_STANDSTILL_NS = 256
_MOST_MULTIPLE = 8
_MULTIPLE_ERROR = 0.05
_MULTIPLE_SHARE = 0.9
_SINGLE_SHARE = 0.6
# By how much of a step the durations of CTAs differ from what their cycles say: the tenth that differs most.
_UNUSUAL_SHARE = 0.9
_LEAST_DIFFERENCE = 0.25
# So many CTAs can differ. Steps of a fiftieth of their duration hardly matter.
_ENOUGH_CTAS = 3
_HARDLY = 1 / 200


def timer_step(
    ctas: RawCtas, rows: NDArray[np.int64], first_cycles: NDArray[np.int64], last_cycles: NDArray[np.int64]
) -> int:
    """The step in nanoseconds, by the CTAs ``rows``. ``first_cycles`` and ``last_cycles`` (CTA) belong to their init
    and pre-final times."""
    some = rows[:_MOST_CTAS]
    init_ns, final_ns = ctas.init_ns[some], ctas.pre_final_ns[some]
    times_ns = np.unique(np.concatenate((init_ns, final_ns, ctas.post_final_ns[some])))
    gaps = times_ns[1:] - times_ns[:-1]
    if not gaps.size:
        return _COARSE_STEP_NS
    difference_ns = _unusual_difference(final_ns - init_ns, last_cycles[some] - first_cycles[some])
    found = [max(_common_divisor(gaps), _standstill(gaps))] if gaps.size >= _ENOUGH_GAPS else []
    known = [step for step in _KNOWN_STEPS_NS if _divides(step, gaps)]
    # Times that somebody made up come in round numbers too, but go with their cycles.
    likely = (
        step
        for step in (*found, *known)
        if step <= _FINE_STEP_NS or step == _COARSE_STEP_NS or difference_ns >= _LEAST_DIFFERENCE * step
    )
    return next(likely, 1)


def _divides(step: int, gaps: NDArray[np.int64]) -> bool:
    return bool(np.mean(gaps % step == 0) >= _SOUND_SHARE)


def _common_divisor(gaps: NDArray[np.int64]) -> int:
    """The largest that most gaps have."""
    together = gaps[: gaps.size // _TOGETHER * _TOGETHER].reshape(-1, _TOGETHER)
    divisors = np.unique(np.gcd.reduce(together, axis=1))[::-1].tolist()
    return next((divisor for divisor in divisors if _divides(divisor, gaps)), 1)


def _standstill(gaps: NDArray[np.int64]) -> int:
    """How long the timer stands still; 0 if it does not, or if the times are too sparse to tell."""
    single = float(np.median(gaps))
    multiples = gaps[gaps < (_MOST_MULTIPLE + 0.5) * single] / single
    is_multiple = np.abs(multiples - np.rint(multiples)) < _MULTIPLE_ERROR * np.rint(multiples)
    is_single = np.abs(gaps / single - 1) < _MULTIPLE_ERROR
    if single < _LEAST_STANDSTILL_NS or is_multiple.mean() < _MULTIPLE_SHARE or is_single.mean() < _SINGLE_SHARE:
        return 0
    return round(float(gaps[is_single].mean()))


def _unusual_difference(durations_ns: NDArray[np.int64], cycles: NDArray[np.int64]) -> float:
    """By how much the durations of CTAs differ from what their cycles say, in nanoseconds. Of few CTAs, which tell
    nothing: by what steps make of them that hardly matter."""
    if durations_ns.size < _ENOUGH_CTAS:
        return float(durations_ns.min()) * _HARDLY
    rest_ns = durations_ns - np.median(durations_ns / np.maximum(cycles, 1)) * cycles
    return float(np.quantile(np.abs(rest_ns - np.median(rest_ns)), _UNUSUAL_SHARE))
