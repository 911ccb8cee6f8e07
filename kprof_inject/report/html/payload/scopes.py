"""The scopes of a launch for the page, block by block: what ``assets/data.js`` turns into typed arrays again.

Times are nanoseconds since the launch's begin. In this order, each as ``payload.columns`` has it:

* the CTAs: number, SM, begin, time until the end of its work, and from there until its records are copied;
* the incomplete warps: place of the CTA among those, warp, what its counters say, begin and length of the lost window;
* for each block the tracks in it (place of the CTA, warp, number of scopes), then its scopes.

Whatever can be predicted is stored as the difference from that: a start from the start before it, an iteration from
the one before it of its scope, elapsed cycles from those that the elapsed time takes at the fitted clock.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from kprof_inject.report.html.payload.columns import differences, differences_by_kind, table_bytes
from kprof_inject.timeline.timeline import Timeline

_COUNTS = ("records_written", "records_lost", "open_starts", "stray_ends", "records_damaged")


def scope_bytes(timeline: Timeline, shown: NDArray[np.bool_] | None) -> Iterator[bytes]:
    """The launch's CTAs, and the scopes of those of them that are ``shown`` (a row for each of ``timeline.ctas``; None:
    of all)."""
    places = _Places(timeline.ctas["cta"])
    yield from _ctas(timeline)
    yield from _incomplete(timeline, places)
    for block in timeline.blocks():
        kept = block if shown is None else block[shown[places.of(block["cta"])]]
        if kept.size:
            yield from _block(kept, timeline, places)


class _Places:
    """Where CTAs stand in the table of CTAs."""

    def __init__(self, numbers: NDArray[np.int32]) -> None:
        self._order = np.argsort(numbers, kind="stable")
        self._numbers = numbers[self._order]

    def of(self, numbers: NDArray[np.int32]) -> NDArray[np.int64]:
        return self._order[np.searchsorted(self._numbers, numbers)]


def _ctas(timeline: Timeline) -> Iterator[bytes]:
    ctas = timeline.ctas
    yield from table_bytes(
        (
            differences(ctas["cta"]),
            ctas["sm"],
            differences(ctas["init_ns"], timeline.first_ns),
            ctas["pre_final_ns"] - ctas["init_ns"],
            ctas["post_final_ns"] - ctas["pre_final_ns"],
        )
    )


def _incomplete(timeline: Timeline, places: _Places) -> Iterator[bytes]:
    warps = timeline.incomplete
    yield from table_bytes(
        (
            places.of(warps["cta"]) if warps.size else warps["cta"],
            warps["warp"],
            *(warps[count] for count in _COUNTS),
            differences(warps["lost_start_ns"], timeline.first_ns),
            warps["lost_end_ns"] - warps["lost_start_ns"],
        )
    )


def _block(scopes: NDArray[np.void], timeline: Timeline, places: _Places) -> Iterator[bytes]:
    cta, warp = scopes["cta"], scopes["warp"]
    fresh = np.append(True, (cta[1:] != cta[:-1]) | (warp[1:] != warp[:-1]))
    first = np.flatnonzero(fresh)
    place = places.of(cta[first])
    yield from table_bytes((place, warp[first], np.diff(first, append=len(scopes))))

    elapsed_ns = scopes["end_ns"] - scopes["start_ns"]
    elapsed_cycles = scopes["end_cycles"] - scopes["start_cycles"]
    # As JavaScript reckons it: both are IEEE doubles.
    expected_cycles = np.floor(elapsed_ns * (timeline.clock.clock_hz / 1e9) + 0.5).astype(np.int64)
    kind = scopes["scope"]
    yield from table_bytes(
        (
            kind,
            scopes["depth"],
            scopes["flags"],
            differences_by_kind(scopes["iteration"], kind),
            differences(scopes["start_ns"], timeline.first_ns),
            elapsed_ns,
            elapsed_ns - scopes["duration_ns"],
            scopes["duration_ns"] - scopes["self_ns"],
            elapsed_cycles - expected_cycles,
        )
    )
