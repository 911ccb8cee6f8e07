"""The asynchronous work of a launch for the page: one table of ``scope_columns``, which ``assets/flights.js`` reads."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from kprof_inject.analysis.async_work.drawing_lanes import flight_lanes
from kprof_inject.analysis.async_work.groups import InFlight
from kprof_inject.report.html.scope_columns import CtaRows, differences, table_bytes
from kprof_inject.timeline.timeline import Timeline


def flight_bytes(timeline: Timeline, found: InFlight, shown: NDArray[np.bool_] | None) -> Iterator[bytes]:
    """Of the CTAs that are ``shown`` (see ``Shown.ctas``), each group of asynchronous work that is drawn, by lane and
    begin: row of the CTA, kind of work (of ``found.kinds``), lane in the CTA, warp, scope that
    asked for it and scope that waited for it; then, in nanoseconds, the difference from the begin before it, how long
    it was under way for sure, how long it may have been after that, how long it was in flight at most, and how long its
    wait blocked; at last its depth and bytes. What is drawn ends where its lane's next begins."""
    lanes = flight_lanes(found)
    cta_rows = CtaRows(timeline.ctas["cta"]).of(lanes.groups["cta"])
    kept = slice(None) if shown is None else shown[cta_rows]
    groups, cta_rows, lane = lanes.groups[kept], cta_rows[kept], lanes.lane[kept]
    known_ns, end_ns = lanes.known_ns[kept], lanes.end_ns[kept]
    start_ns: NDArray[np.int64] = groups["start_ns"]
    first = np.flatnonzero(np.diff(cta_rows, prepend=-1))
    in_cta = lane - np.repeat(lane[first], np.diff(first, append=len(lane)))
    yield from table_bytes(
        (
            cta_rows,
            lanes.work[kept],
            in_cta,
            *(groups[name] for name in ("warp", "scope", "wait_scope")),
            differences(start_ns, timeline.first_ns),
            known_ns - start_ns,
            end_ns - known_ns,
            groups["end_ns"] - start_ns,
            *(groups[name] for name in ("blocked_ns", "depth", "bytes")),
        )
    )
