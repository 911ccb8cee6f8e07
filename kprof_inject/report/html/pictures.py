"""Data of the page's pictures, as columns: work on the SMs, histograms of durations, and iterations over a loop."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from kprof_inject.analysis.summary import LaunchSummary, ScopeSummary
from kprof_inject.capture.scopes import ScopeKind
from kprof_inject.report.facts import per_cta_text
from kprof_inject.timeline.spread import IterationSeries
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.timeline.waves import SmWork, end_of_work_ns

_COLUMNS = 400
# No device has as many SMs, but a damaged header may name any number.
_MAX_SMS = 512
_FULL = 255


class HeatMap(Struct, frozen=True, eq=False):
    """CTAs at work on the SMs over time: a matrix with a row for each SM.

    ``cells`` has for each of ``sms``, ascending, and each of equal parts of the time from ``begin_ns`` to ``end_ns``
    the average number of CTAs at work, with 255 for ``most``.
    """

    sms: NDArray[np.int64]
    sms_left_out: int  # without a row
    begin_ns: int
    end_ns: int
    most: float
    cells: NDArray[np.uint8]
    counts: NDArray[np.int64]  # of the CTAs that each SM ran
    done_ns: NDArray[np.int64]  # when each SM had finished its last work
    tail_ns: int  # from then on, SMs run out of work


def sm_heat_map(timeline: Timeline, summary: LaunchSummary) -> HeatMap | None:
    """Return how the CTAs fill the SMs over time; None if no timer says when CTAs ran."""
    waves = summary.waves
    if waves is None:
        return None
    all_ctas = timeline.all_ctas
    work = SmWork.of(all_ctas)
    shown = work.row_of < _MAX_SMS
    ctas, row, rows = all_ctas[shown], work.row_of[shown], min(len(work.ids), _MAX_SMS)
    begin_ns = ctas["init_ns"] - timeline.first_ns
    end_ns = end_of_work_ns(ctas) - timeline.first_ns
    first_ns, last_ns = int(begin_ns.min()), int(end_ns.max())
    column_ns = max(last_ns - first_ns, 1) / _COLUMNS
    busy = at_work(row, (begin_ns - first_ns) / column_ns, (end_ns - first_ns) / column_ns, rows, _COLUMNS)
    most = max(float(busy.max()), 1.0)
    return HeatMap(
        sms=work.ids[:rows].astype(np.int64),
        sms_left_out=len(work.ids) - rows,
        begin_ns=first_ns,
        end_ns=last_ns,
        most=most,
        cells=np.rint(busy * (_FULL / most)).astype(np.uint8),
        counts=work.ctas[:rows],
        done_ns=work.done_ns[:rows] - timeline.first_ns,
        tail_ns=int(work.done_ns.max()) - waves.tail.duration_ns - timeline.first_ns,
    )


def at_work(
    row: NDArray[np.int64], begin: NDArray[np.float64], end: NDArray[np.float64], rows: int, columns: int
) -> NDArray[np.float64]:
    """Return the average number of CTAs in each row and column; ``begin`` and ``end`` are in columns, from 0."""
    from_begins = _running(row, begin, rows, columns)
    busy: NDArray[np.float64] = np.maximum(from_begins - _running(row, end, rows, columns), 0)
    return busy


def _running(row: NDArray[np.int64], since: NDArray[np.float64], rows: int, columns: int) -> NDArray[np.float64]:
    # As if no CTA ended: part of the column in which it began, and all later ones. An extra column is for CTAs that
    # begin at the very end.
    column = since.astype(np.int64)
    cell = row * (columns + 1) + column
    shape = rows, columns + 1
    begun = np.bincount(cell, minlength=rows * (columns + 1)).reshape(shape)
    missed = np.bincount(cell, since - column, rows * (columns + 1)).reshape(shape)
    running: NDArray[np.float64] = np.cumsum(begun, axis=1, dtype=np.float64) - missed
    return running[:, :columns]


_BINS = 96
# If the longest duration exceeds this multiple of the median, bins of equal width would show a single bar.
_MIN_LOG_RATIO = 8


class Histogram(Struct, frozen=True, eq=False):
    """Numbers of durations in the bins between ascending edges; a bin includes its lower edge, not its upper one."""

    edges_ns: NDArray[np.int64]
    counts: NDArray[np.int64]
    log: bool  # each bin is wider than the one before by about the same factor; else all are equally wide

    @classmethod
    def holding(cls, min_ns: int, max_ns: int, median_ns: float) -> Histogram:
        """Return an empty histogram with bins for all durations from ``min_ns`` to ``max_ns``."""
        log = max_ns > _MIN_LOG_RATIO * max(median_ns, 1)
        if log:
            steps = np.geomspace(max(min_ns, 1), max_ns + 1, _BINS + 1)
            edges = np.unique(np.append(min_ns, np.rint(steps).astype(np.int64)))
        else:
            width = -(-(max_ns + 1 - min_ns) // _BINS)
            edges = np.arange(min_ns, max_ns + 1, width)
        # The last bin includes the longest duration, however the last step was rounded.
        edges = np.append(edges[edges <= max_ns], max_ns + 1)
        return cls(edges, np.zeros(len(edges) - 1, dtype=np.int64), log)

    def add(self, durations_ns: NDArray[np.int64]) -> None:
        """Count durations."""
        bin_of = np.searchsorted(self.edges_ns, durations_ns, side="right") - 1
        self.counts[:] += np.bincount(bin_of, minlength=len(self.counts))


class IterationBands(Struct, frozen=True, eq=False):
    """Time of an iteration over the course of its loop: median, lower and upper tenth by the iteration's number."""

    first: NDArray[np.int64]  # the first iteration of each point; the points ascend
    last: NDArray[np.int64]
    counts: NDArray[np.int64]  # how often these iterations were executed
    p10_ns: NDArray[np.float64]
    p50_ns: NDArray[np.float64]
    p90_ns: NDArray[np.float64]


_MAX_POINTS = 512
_SINGLE = 64  # the first iterations fill the pipeline, so each keeps its own point
# A point's number and a duration form one key, which sorts fast and in place. Only damaged records have longer
# durations.
_DURATION_BITS = 50
_MAX_DURATION_NS = (1 << _DURATION_BITS) - 1


class IterationTimes:
    """Times of a loop's iterations, collected block by block, with 8 bytes for each."""

    def __init__(self, series: IterationSeries) -> None:
        most = int(series.numbers[-1]) + 1
        self._width = max(-(-(most - _SINGLE) // (_MAX_POINTS - _SINGLE)), 1)
        self._last = most - 1
        self._parts: list[NDArray[np.int64]] = []

    def add(self, iterations: NDArray[np.int32], durations_ns: NDArray[np.int64]) -> None:
        """Add iterations; those without a number are ignored."""
        known = iterations >= 0
        number = iterations[known].astype(np.int64)
        point = np.where(number < _SINGLE, number, _SINGLE + (number - _SINGLE) // self._width)
        self._parts.append(point << _DURATION_BITS | np.minimum(durations_ns[known], _MAX_DURATION_NS))

    def bands(self) -> IterationBands:
        """Return the bands, and free the memory."""
        keys = np.concatenate(self._parts)
        self._parts.clear()
        keys.sort()
        point = keys >> _DURATION_BITS
        begins = np.flatnonzero(np.append(True, point[1:] != point[:-1]))
        numbers = point[begins]
        keys &= _MAX_DURATION_NS
        first = np.where(numbers < _SINGLE, numbers, _SINGLE + (numbers - _SINGLE) * self._width)
        last = np.where(numbers < _SINGLE, numbers, np.minimum(first + self._width - 1, self._last))
        counts = np.diff(begins, append=len(keys))
        return IterationBands(first, last, counts, *(_quantile(keys, begins, counts, part) for part in (0.1, 0.5, 0.9)))


def _quantile(
    values: NDArray[np.int64], begins: NDArray[np.int64], counts: NDArray[np.int64], part: float
) -> NDArray[np.float64]:
    # Exact, interpolated linearly; the values of a group are sorted.
    at = part * (counts - 1)
    below = np.floor(at).astype(np.int64)
    low, high = values[begins + below], values[begins + np.ceil(at).astype(np.int64)]
    quantiles: NDArray[np.float64] = np.round(low + (high - low) * (at - below), 1)
    return quantiles


class ScopePicture(Struct, frozen=True, eq=False):
    """Pictures of a scope, which the page shows with its summary."""

    per_cta: str  # the time of one of a CTA's warps in it, in words
    per_cta_ns: float | None  # the sum over its executions
    histogram: Histogram | None
    bands: IterationBands | None


class ScopePictures:
    """Pictures of each scope: how its durations are distributed, and how iterations develop."""

    def __init__(self, summary: LaunchSummary) -> None:
        self._summary = summary
        self._histograms = [_empty_histogram(scope) for scope in summary.scopes]
        self._times = [IterationTimes(scope.iterations) if scope.iterations else None for scope in summary.scopes]

    def seeing(self, blocks: Iterable[NDArray[np.void]]) -> Iterator[NDArray[np.void]]:
        """Pass on the blocks of the summarised launch; each block counts once it has been passed on."""
        for block in blocks:
            order = np.argsort(block["scope"], kind="stable")
            scope, durations_ns, iterations = (block[name][order] for name in ("scope", "duration_ns", "iteration"))
            present, begins = np.unique(scope, return_index=True)
            for index, begin, end in zip(present.tolist(), begins, np.append(begins[1:], len(scope)), strict=True):
                if histogram := self._histograms[index]:
                    histogram.add(durations_ns[begin:end])
                if times := self._times[index]:
                    times.add(iterations[begin:end], durations_ns[begin:end])
            yield block

    def drawn(self) -> list[ScopePicture]:
        """Return the pictures of each scope of the table; to be called once, after all blocks."""
        summary = self._summary
        return [
            ScopePicture(
                per_cta=per_cta_text(scope, summary),
                per_cta_ns=None if scope.total_ns is None else scope.total_ns / summary.warps_in_ctas(scope),
                histogram=histogram,
                bands=times.bands() if times else None,
            )
            for scope, histogram, times in zip(summary.scopes, self._histograms, self._times, strict=True)
        ]


def _empty_histogram(scope: ScopeSummary) -> Histogram | None:
    if scope.kind == ScopeKind.INSTANT or scope.min_ns is None or scope.max_ns is None or scope.p50_ns is None:
        return None
    return Histogram.holding(scope.min_ns, scope.max_ns, scope.p50_ns)
