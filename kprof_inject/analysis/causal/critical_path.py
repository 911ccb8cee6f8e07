"""The critical path of a CTA in one capture, walked from its end back to its begin.

A wait that blocked leads to the operation that issued its work, or to the warp that released it; at an inferred
barrier, the path continues with the warp that arrived last. Each scope on the path gets its time, and these times add
up to the CTA's.

Barriers that the compiler adds around shared memory are in no module. They are inferred (``_meetings``) from warps that
leave a scope together, however far apart they arrived.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from kprof_inject.analysis.async_work.in_flight import in_flight, signals_between_warps
from kprof_inject.analysis.interpreter.executions import ExecutedKernel
from kprof_inject.timeline.timeline import Timeline

MAX_CTAS = 64
"""Maximum number of CTAs sampled, evenly spaced: a finding reports CTAs that differ from the others."""

NOT_RECORDED = -1


class Blame(Struct, frozen=True):
    """A scope's part of the path's time.

    ``run``: a warp was in the scope, and in no inner one. ``in_flight``: a warp waited for work that it had issued.
    """

    scope: int
    run: float
    in_flight: float

    @property
    def share(self) -> float:
        """Both parts together."""
        return self.run + self.in_flight


class CriticalPath(Struct, frozen=True):
    """The critical path of the sampled CTAs together.

    ``outside`` is the part in no scope, or not recorded; all parts add up to 1.
    """

    blames: tuple[Blame, ...]
    """One for each scope that has a part, in the table's order."""
    outside: float

    def of(self, scope: int) -> Blame | None:
        """Return a scope's part, or None."""
        return next((blame for blame in self.blames if blame.scope == scope), None)


def critical_path(timeline: Timeline, ran: ExecutedKernel | None) -> CriticalPath | None:
    """Return the critical path of a launch.

    None if no CTA has records, or if the kernel has partitions and no record shows which of them waits for which.
    """
    # From those that lost no record, if there are any.
    whole = timeline.ctas[~np.isin(timeline.ctas["cta"], timeline.incomplete["cta"])]
    among = whole if whole.size else timeline.ctas
    if not among.size:
        return None
    ctas = np.take(among, np.unique(np.linspace(0, len(among) - 1, min(MAX_CTAS, len(among))).astype(int)))
    edges_of, are_known = _edges_by_cta(timeline, ran, ctas["cta"])
    times: defaultdict[tuple[int, bool], int] = defaultdict(int)
    whole_ns = 0
    rows_of: dict[int, NDArray[np.void]] = {}
    for block in timeline.blocks():
        # All of a CTA's records are in one block.
        for cta in np.intersect1d(ctas["cta"], block["cta"]).tolist():
            rows_of[cta] = block[block["cta"] == cta]
    together = _meetings(rows_of)
    if len(timeline.table.partitions) > 1 and not are_known and not together:
        return None
    damaged = set(timeline.incomplete["cta"].tolist())
    for one in ctas:
        cta, begin_ns, end_ns = int(one["cta"]), int(one["init_ns"]), int(one["pre_final_ns"])
        if cta in rows_of and end_ns > begin_ns:
            walk = _PathWalk(rows_of[cta], edges_of.get(cta, {}), together.get(cta, {}))
            begin_ns = max(begin_ns, walk.oldest_ns) if cta in damaged else begin_ns
            walk.back(begin_ns, end_ns, times)
            whole_ns += end_ns - begin_ns
    if not whole_ns:
        return None
    scopes = sorted({scope for scope, _ in times if scope != NOT_RECORDED})
    blames = (Blame(one, times[one, False] / whole_ns, times[one, True] / whole_ns) for one in scopes)
    outside = times[NOT_RECORDED, False] / whole_ns
    return CriticalPath(tuple(one for one in blames if one.share), outside)


class _Edge(Struct, frozen=True):
    """A wait until ``end_ns`` for work that ``warp`` issued, or a signal that it sent, at ``begin_ns`` in ``scope``."""

    begin_ns: int
    end_ns: int
    warp: int
    scope: int
    is_flight: bool


_Edges = Mapping[int, list[_Edge]]
"""Edges by the scope of the wait, ordered by the wait's end."""


def _edges_by_cta(
    timeline: Timeline, ran: ExecutedKernel | None, ctas: NDArray[np.int32]
) -> tuple[Mapping[int, _Edges], bool]:
    """Return each CTA's edges, and whether any wait was paired with its cause, even if none of them blocked."""
    if ran is None:
        return {}, False
    found: defaultdict[int, defaultdict[int, list[_Edge]]] = defaultdict(lambda: defaultdict(list))
    flights, signals = in_flight(timeline, ran).groups, signals_between_warps(timeline, ran)
    for groups, is_flight in ((flights, True), (signals, False)):
        for one in groups[(groups["blocked_ns"] > 0) & np.isin(groups["cta"], ctas)]:
            edge = _Edge(int(one["start_ns"]), int(one["end_ns"]), int(one["warp"]), int(one["scope"]), is_flight)
            found[int(one["cta"])][int(one["wait_scope"])].append(edge)
    for of_cta in found.values():
        for edges in of_cta.values():
            # Of edges that end together, the one that was issued last arrived last.
            edges.sort(key=lambda edge: (edge.end_ns, edge.begin_ns))
    return found, bool(flights.size or signals.size)


class _Piece(Struct, frozen=True):
    """An interval of a warp in a scope, and in no inner one. ``row`` is the scope's record, -1 outside of all."""

    begin_ns: int
    end_ns: int
    scope: int
    row: int


class _PathWalk:
    def __init__(self, rows: NDArray[np.void], edges: _Edges, together: Mapping[int, _Execution]) -> None:
        self._rows = rows
        self._edges = edges
        self._ends = {scope: [edge.end_ns for edge in mine] for scope, mine in edges.items()}
        self._together = together
        self._pieces = {int(warp): _pieces(rows, warp) for warp in np.unique(rows["warp"])}
        self._begins = {warp: [piece.begin_ns for piece in pieces] for warp, pieces in self._pieces.items()}

    @property
    def oldest_ns(self) -> int:
        """The time from which all warps have records."""
        return max(begins[0] for begins in self._begins.values())

    def back(self, begin_ns: int, end_ns: int, times: defaultdict[tuple[int, bool], int]) -> None:
        """Walk from the CTA's end to its begin, and add the time of each scope on the path to ``times``."""
        last = int(self._rows["end_ns"].argmax())
        warp, now_ns = int(self._rows["warp"][last]), end_ns
        while now_ns > begin_ns:
            piece = self._piece_before(warp, now_ns, begin_ns)
            from_ns, scope, is_flight, warp = self._before(piece, warp, now_ns)
            from_ns = max(from_ns, begin_ns)
            times[scope, is_flight] += now_ns - from_ns
            now_ns = from_ns

    def _piece_before(self, warp: int, now_ns: int, begin_ns: int) -> _Piece:
        pieces = self._pieces[warp]
        place = bisect_left(self._begins[warp], now_ns) - 1
        if place < 0:
            return _Piece(begin_ns, now_ns, NOT_RECORDED, -1)
        piece = pieces[place]
        if piece.end_ns < now_ns:
            return _Piece(piece.end_ns, now_ns, NOT_RECORDED, -1)
        return piece

    def _before(self, piece: _Piece, warp: int, now_ns: int) -> tuple[int, int, bool, int]:
        """Return the previous point of the path.

        That is its time, the scope in between, whether that scope's work was in flight, and the warp with which the
        path continues.
        """
        meeting = self._together.get(piece.row)
        if meeting is not None and piece.begin_ns < meeting.last_ns < now_ns and meeting.last_warp != warp:
            return meeting.last_ns, piece.scope, False, meeting.last_warp
        edge = self._edge_into(piece, now_ns)
        if edge is not None:
            # A signal takes no time; work in flight does.
            scope = edge.scope if edge.is_flight else piece.scope
            return edge.begin_ns, scope, edge.is_flight, edge.warp
        return piece.begin_ns, piece.scope, False, warp

    def _edge_into(self, piece: _Piece, now_ns: int) -> _Edge | None:
        """Return the edge into this wait if the path is at the wait's end, else None."""
        ends = self._ends.get(piece.scope, [])
        # Of several waiting warps, one continues first; the others follow within the same execution.
        place = bisect_right(ends, max(now_ns, piece.end_ns)) - 1
        if place < 0 or not piece.begin_ns < ends[place]:
            return None
        edge = self._edges[piece.scope][place]
        return edge if edge.begin_ns < now_ns and edge.warp in self._pieces else None


def _pieces(rows: NDArray[np.void], warp: int) -> list[_Piece]:
    index = np.flatnonzero(rows["warp"] == warp)
    order = index[np.lexsort((-rows["end_ns"][index], rows["start_ns"][index]))]
    found: list[_Piece] = []
    open_rows: list[int] = []
    now_ns = 0

    def until(end_ns: int) -> None:
        nonlocal now_ns
        if open_rows and end_ns > now_ns:
            row = open_rows[-1]
            found.append(_Piece(now_ns, end_ns, int(rows["scope"][row]), row))
        now_ns = max(now_ns, end_ns)

    for row in order.tolist():
        while open_rows and rows["end_ns"][open_rows[-1]] <= rows["start_ns"][row]:
            until(int(rows["end_ns"][open_rows[-1]]))
            open_rows.pop()
        until(int(rows["start_ns"][row]))
        now_ns = int(rows["start_ns"][row])
        open_rows.append(row)
    while open_rows:
        until(int(rows["end_ns"][open_rows[-1]]))
        open_rows.pop()
    return found


# A smaller delay of the last warp does not explain why the others left when they did.
_APART_NS = 60
_TOGETHER_NS = 40
# Warps that do not wait leave as far apart as they arrived.
_NARROWER = 0.5
_MIN_TOGETHER = 0.9  # part of the executions in which the warps must leave together


def _meetings(rows_of: Mapping[int, NDArray[np.void]]) -> dict[int, dict[int, _Execution]]:
    """Return the execution with an inferred barrier of each row that has one, by CTA and the row's place there.

    ``rows_of`` has ``SCOPE_COLUMNS`` by CTA.
    """
    executions: defaultdict[int, list[_Execution]] = defaultdict(list)
    for cta, rows in rows_of.items():
        for scope in np.unique(rows["scope"]).tolist():
            executions[scope] += _executions(rows, cta, scope)
    found: defaultdict[int, dict[int, _Execution]] = defaultdict(dict)
    for of_scope in executions.values():
        spread = [one for one in of_scope if one.came_apart_ns > _APART_NS]
        if spread and sum(one.leave_together for one in spread) >= _MIN_TOGETHER * len(spread):
            for one in of_scope:
                for place in one.places:
                    found[one.cta][place] = one
    return dict(found)


class _Execution(Struct, frozen=True):
    """Execution of a scope by all warps of a CTA: the places of their rows, and the last warp to arrive."""

    cta: int
    places: tuple[int, ...]
    last_ns: int
    last_warp: int
    came_apart_ns: int
    leave_together: bool
    """No warp left before the last arrived, and all left within a short time."""


def _executions(rows: NDArray[np.void], cta: int, scope: int) -> Iterator[_Execution]:
    """Yield the executions of a scope in a CTA whose warps all executed it equally often."""
    places = np.flatnonzero(rows["scope"] == scope)
    places = places[np.lexsort((rows["start_record"][places], rows["warp"][places]))]
    warps, counts = np.unique(rows["warp"][places], return_counts=True)
    if len(warps) < 2 or len(set(counts.tolist())) > 1:
        return
    by_warp = places.reshape(len(warps), -1)
    came, left = rows["start_ns"][by_warp], rows["end_ns"][by_warp]
    last_ns, last_warp, came_apart_ns = came.max(axis=0), warps[came.argmax(axis=0)], np.ptp(came, axis=0)
    is_short = np.ptp(left, axis=0) <= np.maximum(_NARROWER * came_apart_ns, _TOGETHER_NS)
    columns = (by_warp.T, last_ns, last_warp, came_apart_ns, (left.min(axis=0) >= last_ns) & is_short)
    for places_of_one, *facts in zip(*(column.tolist() for column in columns), strict=True):
        yield _Execution(cta, tuple(places_of_one), *facts)
