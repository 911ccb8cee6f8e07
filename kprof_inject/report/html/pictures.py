"""Data of the page's pictures, as columns: work on the SMs, histograms of durations, and iterations over a loop."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from kprof_inject.analysis.summary import LaunchSummary, ScopeSummary
from kprof_inject.capture.scopes import ScopeKind
from kprof_inject.errors import printable
from kprof_inject.report.facts import per_cta_text
from kprof_inject.report.html.page_schema import (
    GroupMeans,
    HeatMap,
    Histogram,
    IterationPlot,
    PackedColumn,
    ScopePicture,
    TagTable,
)
from kprof_inject.timeline.scope_statistics import TagStatistics
from kprof_inject.timeline.spread import IterationSeries, SpreadGroups
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.timeline.waves import SmWork, end_of_work_ns

_TYPES: dict[str, np.dtype[np.integer[Any]]] = {"u1": np.dtype("u1"), "i4": np.dtype("<i4")}


def packed(values: NDArray[Any], kind: str) -> PackedColumn:
    """Encode the values as ``u1`` or ``i4``; they must fit."""
    return PackedColumn(kind, b64encode(values.astype(_TYPES[kind]).tobytes()).decode())


_COLUMNS = 400
# No device has as many SMs, but a damaged header may name any number.
_MAX_SMS = 512
_FULL = 255


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
        sms=work.ids[:rows].tolist(),
        sms_left_out=len(work.ids) - rows,
        columns=_COLUMNS,
        begin_ns=first_ns,
        end_ns=last_ns,
        most=most,
        cells=packed(np.rint(busy * (_FULL / most)), "u1"),
        counts=work.ctas[:rows].tolist(),
        done_ns=(work.done_ns[:rows] - timeline.first_ns).tolist(),
        slots=waves.slots_per_sm,
        wave_ctas=waves.sms * waves.slots_per_sm,
        tail_ns=int(work.done_ns.max()) - waves.tail.duration_ns - timeline.first_ns,
        tail_share=summary.ending.idle_share if summary.ending else None,
    )


def at_work(
    row: NDArray[np.int64], begin: NDArray[np.float64], end: NDArray[np.float64], rows: int, columns: int
) -> NDArray[np.float64]:
    """Return how many CTAs each row had in each column on average, in shape (rows, columns).

    ``begin`` and ``end`` are in columns, 0 to ``columns``.
    """
    from_begins = _running(row, begin, rows, columns)
    busy: NDArray[np.float64] = np.maximum(from_begins - _running(row, end, rows, columns), 0)
    return busy


def _running(row: NDArray[np.int64], since: NDArray[np.float64], rows: int, columns: int) -> NDArray[np.float64]:
    """Return the same if no CTA ended: part of the column in which it began, and all later ones."""
    # An extra column is for CTAs that begin at the very end.
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


class Bins(Struct, frozen=True, eq=False):
    """Bins between ascending ``edges_ns``; a bin includes its lower edge, not its upper one.

    All are equally wide, or, if ``grow``, each is wider than the one before by about the same factor.
    """

    edges_ns: NDArray[np.int64]
    grow: bool

    @classmethod
    def holding(cls, min_ns: int, max_ns: int, median_ns: float) -> Bins:
        """Return bins for all durations from ``min_ns`` to ``max_ns``."""
        grow = max_ns > _MIN_LOG_RATIO * max(median_ns, 1)
        if grow:
            steps = np.geomspace(max(min_ns, 1), max_ns + 1, _BINS + 1)
            edges = np.unique(np.append(min_ns, np.rint(steps).astype(np.int64)))
        else:
            width = -(-(max_ns + 1 - min_ns) // _BINS)
            edges = np.arange(min_ns, max_ns + 1, width)
        # The last bin includes the longest duration, however the last step was rounded.
        return cls(np.append(edges[edges <= max_ns], max_ns + 1), grow)


class Histograms:
    """Exact histograms of the durations of each scope of a launch, filled block by block."""

    def __init__(self, scopes: Sequence[ScopeSummary]) -> None:
        """Create empty histograms for the scopes of a summary, in the order of the scope table."""
        self._bins = [_bins_of(scope) for scope in scopes]
        self._counts = [np.zeros(len(bins.edges_ns) - 1 if bins else 0, dtype=np.int64) for bins in self._bins]

    def add(self, scope: int, durations_ns: NDArray[np.int64]) -> None:
        """Add durations of one scope of the launch that was summarised; those of instants are ignored."""
        bins, counts = self._bins[scope], self._counts[scope]
        if bins:
            bin_of = np.searchsorted(bins.edges_ns, durations_ns, side="right") - 1
            counts += np.bincount(bin_of, minlength=len(counts))

    def of(self, scope: int) -> Histogram | None:
        """Return a scope's histogram; None if no duration is known."""
        bins = self._bins[scope]
        if bins is None:
            return None
        return Histogram(bins.edges_ns.tolist(), self._counts[scope].tolist(), bins.grow)


def _bins_of(scope: ScopeSummary) -> Bins | None:
    if scope.kind == ScopeKind.INSTANT or scope.min_ns is None or scope.max_ns is None or scope.p50_ns is None:
        return None
    return Bins.holding(scope.min_ns, scope.max_ns, scope.p50_ns)


_MAX_POINTS = 512
# The first iterations fill the pipeline, so each keeps its own point.
_SINGLE = 64
# A point's number and a duration form one key, which sorts fast and in place. Only damaged records have longer
# durations.
_DURATION_BITS = 50
_MAX_DURATION_NS = (1 << _DURATION_BITS) - 1


class IterationBands:
    """Time of an iteration over the course of its loop: median, lower and upper tenth by the iteration's number.

    Filled block by block, with 8 bytes for each iteration.
    """

    def __init__(self, scopes: Sequence[ScopeSummary]) -> None:
        """Create empty bands for the scopes of a summary, in the order of the scope table."""
        self._series = [scope.iterations for scope in scopes]
        self._keys = [_SortKeys(series) if series else None for series in self._series]

    def add(self, scope: int, iterations: NDArray[np.int32], durations_ns: NDArray[np.int64]) -> None:
        """Add iterations of one scope; those without a number are ignored."""
        if keys := self._keys[scope]:
            keys.add(iterations, durations_ns)

    def of(self, scope: int) -> IterationPlot | None:
        """Return a scope's plot; None if it has no numbered iterations. To be called once: it frees the memory."""
        keys, series = self._keys[scope], self._series[scope]
        if keys is None or series is None:
            return None
        self._keys[scope] = None
        return keys.plot(series)


class _SortKeys:
    def __init__(self, series: IterationSeries) -> None:
        most = int(series.numbers[-1]) + 1
        self._width = max(-(-(most - _SINGLE) // (_MAX_POINTS - _SINGLE)), 1)
        self._last = most - 1
        self._parts: list[NDArray[np.int64]] = []

    def add(self, iterations: NDArray[np.int32], durations_ns: NDArray[np.int64]) -> None:
        known = iterations >= 0
        number = iterations[known].astype(np.int64)
        point = np.where(number < _SINGLE, number, _SINGLE + (number - _SINGLE) // self._width)
        self._parts.append(point << _DURATION_BITS | np.minimum(durations_ns[known], _MAX_DURATION_NS))

    def plot(self, series: IterationSeries) -> IterationPlot:
        keys = np.concatenate(self._parts)
        keys.sort()
        point = keys >> _DURATION_BITS
        begins = np.flatnonzero(np.append(True, point[1:] != point[:-1]))
        numbers = point[begins]
        keys &= _MAX_DURATION_NS
        first = np.where(numbers < _SINGLE, numbers, _SINGLE + (numbers - _SINGLE) * self._width)
        last = np.where(numbers < _SINGLE, numbers, np.minimum(first + self._width - 1, self._last))
        counts = np.diff(begins, append=len(keys))
        return IterationPlot(
            first=first.tolist(),
            last=last.tolist(),
            counts=counts.tolist(),
            p10_ns=_quantile(keys, begins, counts, 0.1),
            p50_ns=_quantile(keys, begins, counts, 0.5),
            p90_ns=_quantile(keys, begins, counts, 0.9),
            runs=series.runs,
            fewest=series.fewest,
            most=series.most,
            first_ns=series.first_ns,
            steady_ns=series.steady_ns,
            last_ns=series.last_ns,
        )


def _quantile(
    values: NDArray[np.int64], begins: NDArray[np.int64], counts: NDArray[np.int64], part: float
) -> list[float]:
    """Return each group's exact quantile, interpolated linearly; the values of a group are sorted."""
    at = part * (counts - 1)
    below = np.floor(at).astype(np.int64)
    low, high = values[begins + below], values[begins + np.ceil(at).astype(np.int64)]
    quantiles: list[float] = np.round(low + (high - low) * (at - below), 1).tolist()
    return quantiles


class ScopePictures:
    """Pictures of each scope: how its durations are distributed, where it ran, and how iterations develop."""

    def __init__(self, summary: LaunchSummary) -> None:
        """Create empty pictures for the scopes of a summary."""
        self._summary = summary
        self._histograms, self._bands = Histograms(summary.scopes), IterationBands(summary.scopes)

    def seeing(self, blocks: Iterable[NDArray[np.void]]) -> Iterator[NDArray[np.void]]:
        """Pass on the blocks of the summarised launch; each block counts once it has been passed on."""
        for block in blocks:
            self._add(block)
            yield block

    def _add(self, block: NDArray[np.void]) -> None:
        order = np.argsort(block["scope"], kind="stable")
        scope, durations_ns, iterations = (block[name][order] for name in ("scope", "duration_ns", "iteration"))
        present, begins = np.unique(scope, return_index=True)
        for index, begin, end in zip(present.tolist(), begins, np.append(begins[1:], len(scope)), strict=True):
            self._histograms.add(index, durations_ns[begin:end])
            self._bands.add(index, iterations[begin:end], durations_ns[begin:end])

    def drawn(self) -> list[ScopePicture]:
        """Return the pictures of each scope of the table; to be called once, after all blocks."""
        return [self._picture(index, scope) for index, scope in enumerate(self._summary.scopes)]

    def _picture(self, index: int, scope: ScopeSummary) -> ScopePicture:
        return ScopePicture(
            name=printable(scope.distinct_name),
            kind=scope.kind,
            depth=scope.depth,
            source=printable(scope.source),
            count=scope.count,
            per_cta=per_cta_text(scope, self._summary),
            per_cta_ns=None if scope.total_ns is None else scope.total_ns / self._summary.warps_in_ctas(scope),
            share=scope.share,
            total_ns=scope.total_ns,
            self_ns=scope.self_ns,
            mean_ns=scope.mean_ns,
            min_ns=scope.min_ns,
            p50_ns=scope.p50_ns,
            p90_ns=scope.p90_ns,
            p99_ns=scope.p99_ns,
            max_ns=scope.max_ns,
            mean_cycles=scope.mean_cycles,
            without_partner=scope.without_partner,
            cut=scope.cut,
            crossing=scope.crossing,
            resolution_ns=self._summary.resolution_ns,
            histogram=self._histograms.of(index),
            iterations=self._bands.of(index),
            warps=_means(scope.warps),
            sms=_means(scope.sms),
            tags=tuple(map(_tag, scope.tags)),
        )


def _tag(tag: TagStatistics) -> TagTable:
    return TagTable(
        name=printable(tag.name),
        values=tuple((row.value, row.count, row.total_ns, row.p50_ns, row.times_others) for row in tag.values),
        left_out=tag.distinct - len(tag.values),
        unknown=tag.unknown,
    )


def _means(groups: SpreadGroups) -> GroupMeans:
    means_ns = groups.totals_ns / np.maximum(groups.counts, 1)
    return GroupMeans(
        ids=groups.ids[:_MAX_SMS].tolist(),
        counts=groups.counts[:_MAX_SMS].tolist(),
        means_ns=np.round(means_ns[:_MAX_SMS], 1).tolist(),
        left_out=max(len(groups.ids) - _MAX_SMS, 0),
    )
