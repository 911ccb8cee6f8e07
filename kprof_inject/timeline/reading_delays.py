"""Delay of the timer's readings: how much earlier than its first record a CTA reads the timer, and later than its last.

Stores in a busy memory delay both readings, by hundreds of nanoseconds. A curve through them would be too steep inside
of the CTAs. So the two sides are compared where an SM ends a CTA and begins another, and where it begins one and ends
another. If its clock's rate is not the line's, this adds to the one and takes from the other, in proportion to the time
between the readings.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from kprof_inject.timeline.rate import Residuals

# Fewer pairs of readings show nothing.
_MIN_PAIRS = 32
# Standard error of a median, times the square root of the number, as a multiple of the median deviation (normal
# distribution).
_MEDIAN_ERROR = 1.86
# Number of standard errors from which on there is a delay.
_CERTAIN = 4.0
# A loaded memory answers within about a microsecond.
_MAX_DELAY_NS = 1000.0
# Ratio of the errors of both sides' readings up to which either may be delayed.
_ALIKE = 2.0


def reading_delay_ns(rest: Residuals) -> float:
    """Return the time that usually passes between a reading and its record, beyond the one that is assumed.

    ``rest`` are the readings of a launch, less what all its clocks do together. The result is 0 if the launch does not
    determine it.
    """
    errors_ns = [float(np.median(rest.error_ns[rest.side == side])) for side in (1, -1) if (rest.side == side).any()]
    if len(errors_ns) < 2 or max(errors_ns) > _ALIKE * min(errors_ns):
        return 0.0  # one side is known better, and the line goes through that one
    begins_first, ends_first = _apart(rest, 1), _apart(rest, -1)
    if begins_first is None or ends_first is None:
        return 0.0
    part = ends_first.gap_ns / max(begins_first.gap_ns + ends_first.gap_ns, 1.0)
    delay_ns = (part * begins_first.apart_ns + (1 - part) * ends_first.apart_ns) / 2
    error_ns = np.hypot(part * begins_first.error_ns, (1 - part) * ends_first.error_ns) / 2
    return min(delay_ns, _MAX_DELAY_NS) if delay_ns > _CERTAIN * error_ns else 0.0


class _Apart(Struct, frozen=True):
    """Median distance of readings of different sides, the end's above the begin's, and the median time between them."""

    apart_ns: float
    error_ns: float
    gap_ns: float


def _apart(rest: Residuals, first: int) -> _Apart | None:
    """Compare successive readings of a counter, of which the earlier is of the side ``first``; None if they are few."""
    is_pair = (rest.counter[1:] == rest.counter[:-1]) & (rest.side[:-1] == first) & (rest.side[1:] == -first)
    pairs = np.flatnonzero(is_pair & rest.plausible[1:] & rest.plausible[:-1])
    if pairs.size < _MIN_PAIRS:
        return None
    gap_ns = rest.line_ns[pairs + 1] - rest.line_ns[pairs]
    close = gap_ns <= np.median(gap_ns)
    apart_ns = first * (rest.height_ns[pairs + 1] - rest.height_ns[pairs])[close]
    middle_ns = float(np.median(apart_ns))
    deviation_ns = float(np.median(np.abs(apart_ns - middle_ns)))
    return _Apart(middle_ns, _MEDIAN_ERROR * deviation_ns / np.sqrt(apart_ns.size), float(np.median(gap_ns[close])))
