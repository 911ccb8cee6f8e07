"""Read the launches of a capture, ours or another profiler's: whole timelines, or the headers of their CTAs alone.

The headers suffice for durations, and for the size of the buffer that would have kept every record.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from kprof_inject.capture.buffer_layouts import ENTRY_BYTES, LAYOUTS, WORDS_PER_ENTRY, LaunchHeaders
from kprof_inject.capture.foreign import Side
from kprof_inject.capture.mode import Mode
from kprof_inject.capture.model import Kernel, Launch, Recorded
from kprof_inject.capture.ring_sizes import in_whole_rings, keeps_occupancy, row_bytes
from kprof_inject.errors import KprofError
from kprof_inject.timeline.clock import timer_clock
from kprof_inject.timeline.columns import (
    CTA_COLUMNS,
    INCOMPLETE_COLUMNS,
    NO_LARGEST,
    NO_SMALLEST,
    SCOPE_COLUMNS,
    Numbers,
    Rows,
    ScopeFlag,
    largest,
    smallest,
)
from kprof_inject.timeline.nesting import crossing, lanes_of_pairs, nest, within_children
from kprof_inject.timeline.pairs import Pairs
from kprof_inject.timeline.records import contradicted_records, read_raw, recorded_warps
from kprof_inject.timeline.timeline import Timeline, decode_launch, decode_together


def timeline_of(launch: Launch) -> Timeline:
    """Return the timeline of any launch; raises ``KprofError`` if its buffer is damaged as a whole."""
    return decode_launch(launch) if launch.recorded is None else _timeline_of_recorded(launch, launch.recorded)


def timelines_of(launches: Sequence[Launch]) -> Iterator[Timeline | KprofError]:
    """Yield the timelines of several launches, or errors, as ``decode_together`` does."""
    decoded = iter(decode_together([launch for launch in launches if launch.recorded is None]))
    for launch in launches:
        yield next(decoded) if launch.recorded is None else _timeline_of_recorded(launch, launch.recorded)


_MAX_HEADER_BYTES = 1 << 20  # Headers that are held to be evaluated together. More are hardly faster, and take memory.

_Held = list[tuple[int, NDArray[np.uint32], NDArray[np.uint64]]]
"""Places of launches, the headers of their rows, and the ends that other CTAs left."""


def headers_of(launches: Sequence[Launch]) -> list[LaunchHeaders | KprofError | None]:
    """Return each launch's figures from the headers of its CTAs, without decoding; None if no timer was read."""
    results: list[LaunchHeaders | KprofError | None] = [None] * len(launches)
    held: defaultdict[tuple[object, ...], _Held] = defaultdict(list)  # by the form of their headers
    held_bytes = 0
    for place, launch in enumerate(launches):
        kernel, layout = launch.kernel, LAYOUTS[launch.kernel.layout]
        if launch.recorded is not None or not layout.has_times:
            continue
        try:
            ends, words = launch.ends_and_words()
        except KprofError as error:
            results[place] = error
            continue
        heads = words[:, : layout.header_words(kernel.num_warps)].copy()
        form = kernel.layout, kernel.num_warps, recorded_warps(launch), launch.sample, words.shape
        held[form].append((place, heads, ends.copy()))
        held_bytes += heads.nbytes + ends.nbytes
        if held_bytes >= _MAX_HEADER_BYTES:
            _evaluate(launches, held, results)
            held.clear()
            held_bytes = 0
    _evaluate(launches, held, results)
    return results


def _evaluate(
    launches: Sequence[Launch], held: dict[tuple[object, ...], _Held], results: list[LaunchHeaders | KprofError | None]
) -> None:
    for group in held.values():
        first = launches[group[0][0]]
        layout = LAYOUTS[first.kernel.layout]
        places, heads, ends = zip(*group, strict=True)
        ring_words = first.kernel.stride_bytes // 4 - layout.header_words(first.kernel.num_warps)
        found = layout.sound_headers(np.stack(heads), ring_words, recorded_warps(first), first.sample, np.stack(ends))
        for place, headers in zip(places, found, strict=True):
            try:
                results[place] = headers or read_raw(launches[place]).headers
            except KprofError as error:
                results[place] = error


class Need(Struct, frozen=True):
    """Records that the launches of one kernel wrote and lost, summed.

    ``ctas`` is the largest number of CTAs of a launch, ``max_in_warp`` the largest number of records of a warp, and
    ``ring_records`` the capacity of the smallest ring.
    """

    kernel: Kernel
    ctas: int
    written: int
    lost: int
    max_in_warp: int
    ring_records: int

    @property
    def rings(self) -> int:
        """Number of rings of a CTA."""
        return len(self.kernel.mode.recorded_warps(self.kernel.num_warps))

    @property
    def buffer_bytes(self) -> int:
        """Buffer of a CTA that loses nothing: a ring for each recorded warp, as large as the fullest needs."""
        ring_records = 1 << max(self.max_in_warp - 1, 1).bit_length()
        return ring_records * ENTRY_BYTES * self.rings

    def has_room_in_shared(self, buffer_bytes: int) -> bool:
        """Return True if the kernel keeps its records in shared memory, and has room for these bytes there."""
        kernel = self.kernel
        if kernel.mode.buffer != "shared" or kernel.clean.shared_bytes is None:
            return False
        return keeps_occupancy(
            in_whole_rings(buffer_bytes, self.rings),
            kernel.clean.shared_bytes,
            kernel.num_warps,
            kernel.clean.registers,
            kernel.target,
        )

    def launch_bytes(self, buffer_bytes: int) -> int:
        """Return the size of the largest launch's buffer with these bytes for each CTA."""
        return self.ctas * row_bytes(in_whole_rings(buffer_bytes, self.rings), self.kernel.num_warps)


class Fit(Struct, frozen=True):
    """Mode that keeps every record of a run that does the same again.

    ``losses`` are the kernels that lost records. ``largest`` is the kernel whose launch then has the largest buffer, of
    ``launch_bytes``.
    """

    mode: Mode
    losses: tuple[Need, ...]
    largest: Need
    launch_bytes: int


def fitted_buffer(launches: Iterable[Launch], mode: Mode) -> Fit | None:
    """Compute the buffer for a second run of a program whose first run made ``launches`` with ``mode``.

    None if no record was lost. The buffer is in shared memory, unless it lacks the room or fewer CTAs would fit on an
    SM. Launches with damaged buffers do not count.
    """
    by_kernel: defaultdict[str, list[Need]] = defaultdict(list)
    for launch in launches:
        try:
            raw = read_raw(launch)
        except KprofError:
            continue
        written = raw.written_words // WORDS_PER_ENTRY
        ctas = launch.sample.rows if launch.sample else len(raw.cta) + raw.never_ran + raw.damaged
        lost, max_in_warp = int(raw.records_lost.sum()), int(written.max(initial=0))
        need = Need(launch.kernel, ctas, int(written.sum()), lost, max_in_warp, raw.entries.shape[2])
        by_kernel[str(launch.kernel.folder)].append(need)
    needs = [
        Need(
            own[0].kernel,
            max(need.ctas for need in own),
            sum(need.written for need in own),
            sum(need.lost for need in own),
            max(need.max_in_warp for need in own),
            min(need.ring_records for need in own),
        )
        for own in by_kernel.values()
    ]
    losses = tuple(need for need in needs if need.lost)
    if not losses:
        return None
    buffer_bytes = max(need.buffer_bytes for need in needs)
    in_shared = mode.buffer != "global" and all(need.has_room_in_shared(buffer_bytes) for need in needs)
    largest = max(needs, key=lambda need: need.launch_bytes(buffer_bytes))
    return Fit(
        replace(mode, buffer="shared" if in_shared else "global", buffer_bytes=buffer_bytes),
        losses,
        largest,
        largest.launch_bytes(buffer_bytes),
    )


_BLOCK_SCOPES = 1 << 16  # approximate number of scopes in a block


_SPAN_COLUMNS = np.dtype([("unit", "i8"), ("scope", "i2"), ("start_ns", "i8"), ("end_ns", "i8")])


def _spans(entries: Rows) -> tuple[Rows, Rows]:
    """Return whole scopes and instants by unit and start, and the starts and ends without a partner."""
    is_end, is_instant = entries["side"] == Side.END, entries["side"] == Side.INSTANT
    at = np.flatnonzero(~is_instant)
    at = at[np.lexsort((entries["event"][at], entries["unit"][at]))]
    # An end belongs to the last open start of its event in its unit: both have as many open scopes of it around them.
    level = np.cumsum(np.where(is_end[at], -1, 1)) + is_end[at]
    order = np.lexsort((level, entries["event"][at], entries["unit"][at]))
    at, level = at[order], level[order]
    follows = (np.diff(level) == 0) & (np.diff(entries["event"][at]) == 0) & (np.diff(entries["unit"][at]) == 0)
    joined = np.flatnonzero(follows & ~is_end[at[:-1]] & is_end[at[1:]])
    end_of = np.where(is_instant, np.arange(len(entries)), -1)
    end_of[at[joined]] = at[joined + 1]
    starts = np.flatnonzero(end_of >= 0)
    spans = np.empty(len(starts), dtype=_SPAN_COLUMNS)
    spans["unit"], spans["scope"] = entries["unit"][starts], entries["scope"][starts]
    spans["start_ns"], spans["end_ns"] = entries["ns"][starts], entries["ns"][end_of[starts]]
    is_alone = end_of < 0
    is_alone[at[joined + 1]] = False
    return spans, entries[is_alone]


def _in_time(scopes: Rows) -> tuple[Pairs, Numbers, Numbers]:
    """Return the scopes' starts and ends as pairs in the order of time, with the unit and time of each.

    In one step of the timer, the scopes that began before it end first, the last-begun at once. Then the others begin,
    and those that also end in the step end at once.
    """
    count = len(scopes)
    rank = np.arange(count)
    takes_time = scopes["end_ns"] > scopes["start_ns"]
    turn_order = np.concatenate((2 * rank, np.where(takes_time, -rank, 2 * rank + 1)))
    is_later = np.concatenate((np.ones(count, dtype=bool), ~takes_time))
    ns, unit = np.concatenate((scopes["start_ns"], scopes["end_ns"])), np.tile(scopes["unit"], 2)
    order = np.lexsort((turn_order, is_later, ns, unit))
    place = np.empty(2 * count, dtype=np.int64)
    place[order] = np.arange(2 * count)
    none = np.zeros(0, dtype=np.int64)
    return Pairs(place[:count], place[count:], scopes["scope"], none, none), unit[order], ns[order]


def _timeline_of_recorded(launch: Launch, recorded: Recorded) -> Timeline:
    """Return the timeline of a launch that another profiler recorded, by the timer, so no clock is fitted.

    A CTA is assumed to last from its first entry to its last.
    """
    units, entries, count = recorded.units, recorded.entries, len(launch.kernel.scopes.scopes)
    # A unit writes in the order of time.
    wrong = contradicted_records(entries["unit"], entries["ns"], np.ones(len(entries), dtype=bool))
    scopes, alone = _spans(entries[~wrong])
    pairs, unit, ns = _in_time(scopes)
    nesting = nest(pairs, len(unit))
    begins = np.searchsorted(unit, scopes["unit"])
    rows = np.zeros(len(scopes), dtype=SCOPE_COLUMNS)
    for name in ("cta", "sm", "warp"):
        rows[name] = units[name][scopes["unit"]]
    rows["launch"], rows["scope"], rows["depth"], rows["iteration"] = launch.index, pairs.scope, nesting.depth, -1
    for side, at in (("start", pairs.start_at), ("end", pairs.end_at)):
        rows[f"{side}_record"] = at - begins
        rows[f"{side}_cycles"] = rows[f"{side}_ns"] = ns[at]
    rows["duration_cycles"] = rows["duration_ns"] = duration_ns = rows["end_ns"] - rows["start_ns"]
    rows["self_ns"] = duration_ns - within_children(ns, pairs, nesting)
    lanes, overlaps = np.zeros(count, dtype=np.int64), None
    if not nesting.is_proper:
        rows["flags"][np.concatenate(crossing(pairs.start_at, pairs.end_at))] = ScopeFlag.CROSSES
        lanes, overlaps, own = lanes_of_pairs(pairs, unit, count)
        rows["depth"] = np.where(own < 0, rows["depth"], own)
    ctas = _ctas(units, rows)
    incomplete = _incomplete(units, np.bincount(entries["unit"][wrong], minlength=len(units)), alone)
    last_ns = largest(scopes["unit"], rows["end_ns"], len(units))
    begins_ns = ctas["init_ns"][np.searchsorted(ctas["cta"], units["cta"])]
    incomplete["lost_start_ns"] = incomplete["lost_end_ns"] = np.where(last_ns == NO_LARGEST, begins_ns, last_ns)
    is_end = alone["side"] == Side.END
    # Blocks have whole CTAs.
    cuts = np.flatnonzero(np.diff(rows["cta"])) + 1
    return Timeline(
        launch=launch,
        table=launch.kernel.scopes,
        clock=timer_clock(np.unique(ctas["sm"]).astype(np.int64)),
        ctas=ctas,
        incomplete=incomplete[sum(incomplete[name] for name in _LACKED) > 0],
        lanes=lanes,
        records_written=int(units["written"].sum()),
        records_lost=0,
        open_starts=np.bincount(alone["scope"][~is_end], minlength=count),
        stray_ends=np.bincount(alone["scope"][is_end], minlength=count),
        records_damaged=int(incomplete["records_damaged"].sum()),
        ctas_never_ran=recorded.silent_ctas,
        ctas_damaged=0,
        scope_count=len(rows),
        first_ns=int(ctas["init_ns"].min(initial=NO_SMALLEST)),
        last_ns=int(ctas["pre_final_ns"].max(initial=NO_LARGEST)),
        _blocks=np.split(rows, cuts[np.flatnonzero(np.diff(cuts // _BLOCK_SCOPES, prepend=0))]),
        overlaps=overlaps,
    )


def _ctas(units: Rows, rows: Rows) -> Rows:
    numbers, first = np.unique(units["cta"], return_index=True)
    ctas = np.zeros(len(numbers), dtype=CTA_COLUMNS)
    ctas["cta"], ctas["sm"] = numbers, units["sm"][first]
    row = np.searchsorted(numbers, rows["cta"])
    begins, ends = smallest(row, rows["start_ns"], len(numbers)), largest(row, rows["end_ns"], len(numbers))
    is_empty = begins == NO_SMALLEST
    begins[is_empty] = ends[is_empty] = rows["start_ns"].min(initial=NO_SMALLEST) if len(rows) else 0
    ctas["init_ns"], ctas["pre_final_ns"], ctas["post_final_ns"] = begins, ends, ends
    return ctas


_LACKED = ("open_starts", "stray_ends", "records_damaged")


def _incomplete(units: Rows, damaged: Numbers, alone: Rows) -> Rows:
    is_end = alone["side"] == Side.END
    lacking = np.zeros(len(units), dtype=INCOMPLETE_COLUMNS)
    for name in ("cta", "sm", "warp"):
        lacking[name] = units[name]
    lacking["records_written"] = units["written"]
    lacking["open_starts"] = np.bincount(alone["unit"][~is_end], minlength=len(units))
    lacking["stray_ends"] = np.bincount(alone["unit"][is_end], minlength=len(units))
    lacking["records_damaged"] = units["damaged"] + damaged
    return lacking
