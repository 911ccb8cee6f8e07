"""Compare how long the CTAs of a sample, which record, and the other CTAs take."""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from kprof_inject.capture.buffer_layouts import WORDS_PER_ENTRY, RawCtas
from kprof_inject.capture.cta_samples import CtaSample

DEVIATIONS = 1.96  # standard deviations that a normal distribution exceeds in 1 of 20 cases
_MIN_CTAS = 8  # fewer do not show how much CTAs differ
_MAX_CYCLES = 1 << 31  # longer times do not show in the counter's lowest 32 bits


class Slowdown(Struct, frozen=True):
    """Extra time of the CTAs that record: ``part`` ± ``error`` of the time that the others take."""

    part: float
    error: float

    @property
    def beyond_error(self) -> float:
        """``part`` if it exceeds the error, else 0: the CTAs may then differ by chance."""
        return self.part if abs(self.part) > self.error else 0.0


def slowdown_of(raw: RawCtas, sample: CtaSample, first_warp_ns: NDArray[np.float64]) -> Slowdown | None:
    """Compare the CTAs that record with the others of their blocks; None if there are too few.

    ``first_warp_ns`` is the time of each recording CTA's first warp, because the other CTAs leave the end of their
    first warp alone. Where no warp waits for another, the last one ends later by up to a third of a CTA's time (GELU,
    H200).
    """
    if not raw.cta.size or not raw.others.size:
        return None
    block_ctas = sample.cluster_ctas << sample.shift
    of_others, block = raw.others[0] // block_ctas, raw.cta // block_ctas
    blocks = int(max(of_others.max(), block.max())) + 1
    counts = np.bincount(of_others, minlength=blocks)
    sums_ns = np.bincount(of_others, raw.others[3] - raw.others[2], blocks)
    compared = (counts[block] > 0) & ~np.isnan(first_warp_ns)
    others_ns, own_ns = (sums_ns / np.maximum(counts, 1))[block][compared], first_warp_ns[compared]
    if len(own_ns) < _MIN_CTAS or not others_ns.sum():
        return None
    ratio = float(own_ns.sum() / others_ns.sum())
    apart_ns = own_ns - ratio * others_ns
    variance = float(apart_ns @ apart_ns) * len(own_ns) / (len(own_ns) - 1)
    # The begins of all others have the same error.
    error_ns = np.hypot(np.sqrt(variance), ratio * raw.begin_error_ns * len(own_ns))
    return Slowdown(ratio - 1, DEVIATIONS * float(error_ns / others_ns.sum()))


def first_warp_ns(raw: RawCtas, clock_hz: float, *, spans_function: bool) -> NDArray[np.float64]:
    """Return the time of the first warp in each CTA that records, in ns; NaN if it is unknown.

    If a scope ``spans_function``, it is the time of that scope, without what only CTAs that record do before and after.
    Else, and where records were lost, it is the time from the CTA's begin to the end of the warp: the timer is read
    when all warps have ended, so the cycles since the warp's last record are subtracted.
    """
    if not raw.timed or raw.warps[0] != 0 or not raw.entries.size:
        return np.full(len(raw.cta), np.nan)
    newest = (np.maximum(raw.written_words // WORDS_PER_ENTRY, 1) - 1) % raw.entries.shape[2]
    last = np.take_along_axis(raw.entries[..., 1], newest[..., None], axis=2)[..., 0]  # the counter's lowest 32 bits
    later = (last - last[:, :1]).view(np.int32)
    later_ns = np.where(raw.written_words > 0, later, 0).max(axis=1, initial=0) / clock_hz * 1e9
    lasts_ns = (raw.pre_final_ns - raw.init_ns).astype(np.float64)
    times_ns = np.maximum(lasts_ns - later_ns, 0.0)
    if spans_function:
        by_records_ns = (last[:, 0] - raw.entries[:, 0, 0, 1]) / clock_hz * 1e9
        is_whole = (raw.records_lost[:, 0] == 0) & (lasts_ns < _MAX_CYCLES / clock_hz * 1e9)
        times_ns = np.where(is_whole, by_records_ns, times_ns)
    return np.where(raw.written_words[:, 0] > 0, times_ns, np.nan)
