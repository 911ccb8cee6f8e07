"""The timeline of one launch: its scopes as columns in nanoseconds."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from kprof_inject.capture.buffer_layouts import WORDS_PER_ENTRY, RawCtas
from kprof_inject.capture.model import Launch
from kprof_inject.capture.schema import SCOPE_IDS
from kprof_inject.capture.scopes import ScopeKind, ScopeTable
from kprof_inject.capture.slowdown import Slowdown, first_warp_ns, slowdown_of
from kprof_inject.errors import KprofError
from kprof_inject.quantities import counted
from kprof_inject.timeline.choice import EVERYTHING, Choice
from kprof_inject.timeline.clock import ClockFit, ClockSource, assumed_times, fit_clocks
from kprof_inject.timeline.columns import (
    CTA_COLUMNS,
    INCOMPLETE_COLUMNS,
    NO_LARGEST,
    NO_SMALLEST,
    Numbers,
    Rows,
    ScopeFlag,
    never_falling,
    scope_columns,
)
from kprof_inject.timeline.nesting import crossing, iterations, nest, within_children
from kprof_inject.timeline.pairs import ScopeRules, scopes_of
from kprof_inject.timeline.partitions import PartitionScopes, partition_of_scope, partitions_of
from kprof_inject.timeline.readings import Readings, Tally, WarpTally, readings_of, tally_launch
from kprof_inject.timeline.records import (
    RecordDecoder,
    Records,
    read_raw,
    record_decoder,
    recorded_warps,
    without_records,
)
from kprof_inject.timeline.tags import TagIds
from kprof_inject.timeline.unwrap import Counter, max_launch_cycles

# Just below glibc's largest dynamic mmap threshold, 32 MiB on 64 bits (mallopt(3), M_MMAP_THRESHOLD).
_LARGE_BYTES = 30 << 20


class ScopeBlocks(Struct, frozen=True):
    """The scopes of a launch in blocks, decoded from its buffer at each iteration, as by its ``RecordDecoder``."""

    launch: Launch
    scope_of_id: NDArray[np.int16]
    counter: Counter | None
    clock: ClockFit
    tags: TagIds

    def __iter__(self) -> Iterator[Rows]:
        ctas, mode = read_raw(self.launch), self.launch.kernel.mode
        max_cycles = max_launch_cycles(ctas)
        decoder = RecordDecoder(
            ctas, self.scope_of_id, self.counter, max_cycles, mode.sched_stores, mode.clock_bits, self.tags
        )
        for rows in decoder.blocks():
            block = self._block(decoder.decode(rows), ctas)
            if block.size:
                yield block

    def _block(self, records: Records, ctas: RawCtas) -> Rows:
        kernel = self.launch.kernel
        records, pairs = scopes_of(records, ScopeRules.of(kernel.scopes))
        nesting = nest(pairs, len(records.scope))
        row, warp = np.divmod(records.group[pairs.start_at], len(ctas.warps))
        ns = self.clock.to_ns(records.cycles, ctas.sm[records.group // len(ctas.warps)])
        # With damaged readings an SM may seem to have two counters, the later of which maps to earlier times.
        ns = never_falling(ns, records.group)
        net_cycles, net_ns = records.cycles, ns
        if kernel.record_cost:
            net_cycles, net_ns = without_records(records, ns, kernel.record_cost)

        scopes = np.empty(len(pairs.scope), dtype=scope_columns(self.tags.max_tags))
        scopes["launch"] = self.launch.index
        scopes["cta"] = ctas.cta[row]
        scopes["sm"] = ctas.sm[row]
        scopes["warp"] = ctas.warps[warp]
        scopes["scope"] = pairs.scope
        scopes["depth"] = nesting.depth
        table = kernel.scopes.scopes
        iteration_scopes = (index for index, scope in enumerate(table) if scope.kind == ScopeKind.ITERATION)
        scopes["iteration"] = iterations(records, pairs, nesting.parent, iteration_scopes)
        for side, at in (("start", pairs.start_at), ("end", pairs.end_at)):
            scopes[f"{side}_record"] = records.number[at]
            scopes[f"{side}_cycles"] = records.cycles[at]
            scopes[f"{side}_ns"] = ns[at]
        scopes["duration_cycles"] = net_cycles[pairs.end_at] - net_cycles[pairs.start_at]
        duration_ns = net_ns[pairs.end_at] - net_ns[pairs.start_at]
        scopes["duration_ns"] = duration_ns
        scopes["self_ns"] = duration_ns - within_children(net_ns, pairs, nesting)
        cut = (scopes["duration_cycles"] == 0) & (scopes["end_cycles"] > scopes["start_cycles"])
        scopes["flags"] = np.where(cut, ScopeFlag.CUT, 0)
        if not nesting.is_proper:
            scopes["flags"][np.concatenate(crossing(pairs.start_at, pairs.end_at))] |= np.uint16(ScopeFlag.CROSSES)
        if self.tags.max_tags:
            scopes["tags"] = records.tags[pairs.start_at]
        return scopes


_ROWS_AT_ONCE = 1 << 16  # rows converted to nanoseconds in one step; bounds the temporary memory


class Timeline(Struct, frozen=True):
    """A decoded launch, whose scopes come in blocks, so that memory does not grow with their number.

    ``ctas`` are those that ran and recorded (``CTA_COLUMNS``), ``incomplete`` the warps that lack records
    (``INCOMPLETE_COLUMNS``). ``open_starts`` and ``stray_ends`` count unpaired kept records by scope of ``table``.
    """

    launch: Launch
    table: ScopeTable
    clock: ClockFit
    ctas: Rows
    incomplete: Rows
    lanes: Numbers  # lane of each scope of ``table``: scopes on the same lane never cross
    records_written: int  # number of records according to the buffer's count words
    records_lost: int
    open_starts: Numbers
    stray_ends: Numbers
    records_damaged: int
    ctas_never_ran: int
    ctas_damaged: int
    scope_count: int
    first_ns: int
    last_ns: int
    _blocks: ScopeBlocks | Iterable[Rows]
    partitions: tuple[PartitionScopes, ...] = ()
    overlaps: Numbers | None = None
    """Number of lanes of each scope, from that in ``lanes`` on, if any crosses others of its kind in a warp."""
    unrecorded: Rows = np.empty(0, CTA_COLUMNS)
    """The other CTAs that ran, if only a sample of them recorded. Their begins are estimated."""
    slowdown: Slowdown | None = None  # extra time of the CTAs that recorded, compared with the others
    _choice: Choice = EVERYTHING
    _ctas_that_ran: Rows | None = None  # all CTAs of the launch that record, if this is a part of it

    def __repr__(self) -> str:
        kernel, ctas = self.launch.kernel.name, counted(len(self.ctas), "CTA")
        return f"<Timeline of {kernel} #{self.launch.index}: {counted(self.scope_count, 'scope')}, {ctas}>"

    @property
    def ctas_that_ran(self) -> Rows:
        """CTAs that ran and record, chosen or not."""
        return self.ctas if self._ctas_that_ran is None else self._ctas_that_ran

    @property
    def all_ctas(self) -> Rows:
        """``ctas`` and ``unrecorded``: when and where all chosen CTAs ran."""
        return np.concatenate([self.ctas, self.unrecorded]) if self.unrecorded.size else self.ctas

    @property
    def ctas_per_recorded(self) -> float:
        """Number of CTAs for each that records: what sums over the records must be multiplied by."""
        return 1 + len(self.unrecorded) / len(self.ctas) if self.ctas.size else 1.0

    @property
    def columns(self) -> np.dtype[np.void]:
        """Columns of the blocks: ``SCOPE_COLUMNS``, or those of ``scope_columns`` if there are tags."""
        return scope_columns(self.table.max_tags)

    def blocks(self) -> Iterator[Rows]:
        """Yield the scopes in blocks (``columns``), ordered by CTA row, warp and start, outer scopes before inner ones.

        All scopes of a CTA are in one block. Each call reads the buffer again.
        """
        for block in self._blocks:
            kept = self._choice.keep(block, self.table)
            if kept.any():
                yield block if kept.all() else block[kept]

    def chosen(self, choice: Choice) -> Timeline:
        """Return the scopes, CTAs and incomplete warps that ``choice`` keeps; facts about the whole launch stay."""
        if choice == EVERYTHING:
            return self
        part = replace(
            self,
            ctas=self.ctas[choice.keep_ctas(self.ctas)],
            unrecorded=self.unrecorded[choice.keep_ctas(self.unrecorded)],
            incomplete=self.incomplete[choice.keep_warps(self.incomplete)],
            _choice=choice,
            _ctas_that_ran=self.ctas_that_ran,
        )
        if choice.warps is not None:
            part = replace(part, partitions=tuple(partition.among(part.warps) for partition in self.partitions))
        return replace(part, scope_count=sum(map(len, part.blocks())))

    def with_launch(self, launch: Launch) -> Timeline:
        """Return this timeline with ``launch`` in place of its equal."""
        blocks = replace(self._blocks, launch=launch) if isinstance(self._blocks, ScopeBlocks) else self._blocks
        return replace(self, launch=launch, table=launch.kernel.scopes, _blocks=blocks)

    @property
    def scopes(self) -> Rows:
        """Scopes of every block, in one array."""
        return np.concatenate([np.empty(0, dtype=self.columns), *self.blocks()])

    @property
    def warp_time_ns(self) -> int:
        """Time of all recorded warps from begin to end of their CTAs, summed: the whole that shares refer to."""
        return self.time_of_warps_ns(self.warps)

    def time_of_warps_ns(self, warps: Collection[int]) -> int:
        """Return the time of these warps from begin to end of their CTAs, summed over all CTAs."""
        begins_ns: Numbers = self.ctas["init_ns"]
        durations = self.ctas["pre_final_ns"] - begins_ns
        return int(durations.sum()) * len(warps)

    @property
    def warps(self) -> tuple[int, ...]:
        """Ids of a CTA's recorded and chosen warps, ascending."""
        warps, chosen = recorded_warps(self.launch), self._choice.warps
        return warps if chosen is None else tuple(warp for warp in warps if warp in chosen)


def decode_launch(launch: Launch) -> Timeline:
    """Read a launch's buffer, count its records and fit its clock; raises ``KprofError`` if the buffer is damaged."""
    (decoded,) = decode_together([launch])
    if isinstance(decoded, KprofError):
        raise decoded
    return decoded


def decode_together(launches: Sequence[Launch]) -> list[Timeline | KprofError]:
    """Decode launches whose buffers are in memory at once; a launch whose buffer is damaged yields the error."""
    # glibc returns freed memory beyond twice the largest mapped chunk that was ever freed (M_MMAP_THRESHOLD). Block by
    # block, that takes a fifth of the time of a trace, so a large chunk, never written, is freed first.
    np.empty(_LARGE_BYTES, dtype=np.uint8)
    tallied: list[_Tallied | KprofError] = []
    for launch in launches:
        try:
            tallied.append(_tallied(launch))
        except KprofError as error:
            tallied.append(error)
    timed = [
        (one.readings, one.launch.kernel.sm_clock_hz)
        for one in tallied
        if isinstance(one, _Tallied) and one.readings is not None
    ]
    clocks = iter(fit_clocks(timed))
    return [
        one if isinstance(one, KprofError) else _timeline(one, None if one.readings is None else next(clocks))
        for one in tallied
    ]


class _Tallied(Struct, frozen=True):
    launch: Launch
    decoder: RecordDecoder
    tally: Tally
    readings: Readings | None


def _tallied(launch: Launch) -> _Tallied:
    kernel, table = launch.kernel, launch.kernel.scopes
    raw = read_raw(launch)
    decoder = record_decoder(
        raw,
        _scope_of_id(kernel.scope_ids, table),
        clock_bits=kernel.mode.clock_bits,
        clock_hz=kernel.sm_clock_hz,
        stores_moved=kernel.mode.sched_stores,
        tags=TagIds.of(kernel.scope_ids, table),
    )
    # The kernel's body belongs to the default partition.
    groups = np.append(partition_of_scope(table), 0) if table.partitions else None
    tally = tally_launch(decoder, len(table.scopes), ScopeRules.of(table), groups)
    readings = None
    if raw.timed:
        all_warps = len(raw.warps) == kernel.num_warps
        readings = readings_of(raw, tally.warps, spans_function=table.spans_body, all_warps=all_warps)
    return _Tallied(launch, decoder, tally, readings)


def _timeline(tallied: _Tallied, clock: ClockFit | None) -> Timeline:
    launch, decoder, tally = tallied.launch, tallied.decoder, tallied.tally
    table, raw = launch.kernel.scopes, decoder.ctas
    if clock is None:
        raw, clock = assumed_times(launch, raw, tally.warps)
    first_ns, last_ns = _extent(raw, tally.warps, clock)
    slowdown = None
    if launch.sample is not None:
        # Moved stores leave the first record in another place.
        is_first_known = clock.source == ClockSource.FITTED and not launch.kernel.mode.sched_stores
        warp_ns = first_warp_ns(raw, clock.clock_hz, spans_function=table.spans_body and is_first_known)
        slowdown = slowdown_of(raw, launch.sample, warp_ns)
    return Timeline(
        launch=launch,
        table=table,
        clock=clock,
        ctas=_cta_rows(raw.cta, raw.sm, raw.init_ns, raw.pre_final_ns, raw.post_final_ns),
        unrecorded=_cta_rows(*raw.others, raw.others[3]),
        slowdown=slowdown,
        incomplete=_incomplete(raw, tally.warps, clock),
        lanes=tally.lanes,
        records_written=int((raw.written_words // WORDS_PER_ENTRY).sum()),
        records_lost=int(tally.warps.lost.sum()),
        open_starts=tally.open_starts,
        stray_ends=tally.stray_ends,
        records_damaged=int(tally.warps.damaged.sum()),
        ctas_never_ran=raw.never_ran,
        ctas_damaged=raw.damaged,
        scope_count=tally.scopes,
        first_ns=first_ns,
        last_ns=last_ns,
        _blocks=ScopeBlocks(launch, decoder.scope_of_id, decoder.counter, clock, decoder.tags),
        partitions=partitions_of(table, tally.groups, recorded_warps(launch)),
    )


def _scope_of_id(scope_ids: dict[int, str], table: ScopeTable) -> NDArray[np.int16]:
    """Map each scope id to its index in the table, or -1, by name: the ends of a scope's two returns differ in id."""
    records = [*(scope.record for scope in table.scopes), *([table.body_record] if table.body_record else [])]
    index = {record: position for position, record in enumerate(records)}
    lookup = np.full(SCOPE_IDS, -1, dtype=np.int16)
    for scope_id, record in scope_ids.items():
        lookup[scope_id] = index.get(record, -1)
    return lookup


def _extent(raw: RawCtas, warps: WarpTally, clock: ClockFit) -> tuple[int, int]:
    """Return begin and end of the launch, or 0 and 0 if no CTA ran."""
    if not len(raw.cta):
        return 0, 0
    # A fitted clock may place a record before the timer reading that it followed.
    rows = np.flatnonzero(warps.kept.any(axis=1))
    begins = clock.to_ns(warps.first_cycles[rows].min(axis=1, initial=NO_SMALLEST), raw.sm[rows])
    ends = clock.to_ns(warps.last_cycles[rows].max(axis=1, initial=NO_LARGEST), raw.sm[rows])
    _, _, others_begin, others_end = raw.others
    first_ns = min(int(values.min(initial=NO_SMALLEST)) for values in (raw.init_ns, begins, others_begin))
    last_ns = max(int(values.max(initial=NO_LARGEST)) for values in (raw.pre_final_ns, ends, others_end))
    return first_ns, last_ns


def _cta_rows(*columns: Numbers) -> Rows:
    rows = np.empty(len(columns[0]), dtype=CTA_COLUMNS)
    for name, values in zip(CTA_COLUMNS.names or (), columns, strict=True):
        rows[name] = values
    return rows


def _incomplete(raw: RawCtas, warps: WarpTally, clock: ClockFit) -> Rows:
    """Return the incomplete warps; their window extends from the CTA's begin to the oldest record that is left."""
    lacks = (warps.lost > 0) | (warps.damaged > 0) | (warps.open_starts > 0) | (warps.stray_ends > 0)
    row, warp = np.nonzero(lacks)
    columns = np.empty(len(row), dtype=INCOMPLETE_COLUMNS)
    columns["cta"], columns["sm"], columns["warp"] = raw.cta[row], raw.sm[row], raw.warps[warp]
    columns["records_written"] = raw.written_words[lacks] // WORDS_PER_ENTRY
    columns["records_lost"], columns["records_damaged"] = warps.lost[lacks], warps.damaged[lacks]
    columns["open_starts"], columns["stray_ends"] = warps.open_starts[lacks], warps.stray_ends[lacks]
    columns["lost_start_ns"] = columns["lost_end_ns"] = raw.init_ns[row]
    for begin in range(0, len(row), _ROWS_AT_ONCE):
        part = slice(begin, begin + _ROWS_AT_ONCE)
        lost = begin + np.flatnonzero(columns["records_lost"][part])
        # Without a sound record that is left, the window ends with the CTA.
        columns["lost_end_ns"][lost] = raw.pre_final_ns[row[lost]]
        kept = lost[warps.kept[row[lost], warp[lost]] > 0]
        oldest_ns = clock.to_ns(warps.oldest_cycles[row[kept], warp[kept]], raw.sm[row[kept]])
        columns["lost_end_ns"][kept] = np.maximum(oldest_ns, raw.init_ns[row[kept]])
    return columns
