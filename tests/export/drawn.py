"""Timelines that have something of all that a trace shows, and what the trace processor tells of a trace.

The queries are for any format: they name the arguments of slices without the format's prefix."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from async_launches import in_order
from buffers import (
    Cta,
    Entry,
    Scope,
    buffer_words,
    end,
    kernel_json,
    make_editable,
    save_launch,
    save_launches,
    start,
)
from ranks import BEGIN_NS, Timer, decode_all, save_process
from replacing import replace
from trace_processor.processor import Row, query_many

from kprof_inject.timeline.timeline import Timeline, decode_launch

SCOPES = [
    Scope("matmul", "func", -1, ("/src/matmul.py", 12)),
    Scope("loop[0]", "loop", 0, ("/src/matmul.py", 20)),
    Scope("iter[0]", "iter", 1, ("/src/matmul.py", 20)),
    Scope("load", "op", 2, ("/src/tools.py", 7), (("/src/matmul.py", 21), ("/src/main.py", 5))),
    Scope("nowhere", "op", 0),
]
FUNC, LOOP, ITER, LOAD, NOWHERE = range(len(SCOPES))


def launch_name(
    launch: int, ctas: int, rank: int | None = None, *, kernel: str = "matmul", in_graph: bool = False
) -> str:
    """Return what a trace calls a launch, of one device or of several ranks' first."""
    again = " (last replay of a CUDA graph)" if in_graph else ""
    name = f"{kernel} launch {launch}{again}, grid {ctas}x1x1"
    return f"{name}, device 0" if rank is None else f"rank {rank}, device 0: {name}"


CALL_NS = 7_000
"""How long before it begins a launch is called."""

_ARGS = (
    *("start_cycles", "recorded_cycles", "recorded_ns", "duration_ns", "self_ns"),
    *("iteration", "crosses", "cut", "source", "called_from"),
)
_LOST_ARGS = ("records", "records_written", "open_starts", "stray_ends", "records_damaged")


def slices_sql(prefix: str) -> str:
    """Every slice and instant with where it stands and what is said of it; ``prefix`` is what the format's arguments
    have before their names."""
    args = ", ".join(f"EXTRACT_ARG(slice.arg_set_id, '{prefix}.{name}') AS {name}" for name in (*_ARGS, *_LOST_ARGS))
    return (
        f"SELECT ts, dur, depth, slice.name AS name, slice.category AS kind, {args},"
        " thread.name AS thread, process.name AS process"
        " FROM slice JOIN thread_track ON thread_track.id = track_id JOIN thread USING (utid) JOIN process USING (upid)"
        " ORDER BY process, thread, ts, depth"
    )


PARENTS = (
    "SELECT child.name AS child, parent.name AS parent"
    " FROM slice child LEFT JOIN slice parent ON parent.id = child.parent_id"
)
THREADS = (
    "SELECT tid, pid, thread.name AS thread, process.name AS process FROM thread JOIN process USING (upid)"
    " WHERE thread.name IS NOT NULL ORDER BY tid"
)
ARROWS = (
    "SELECT source.category AS from_kind, source.ts AS from_ts, target.category AS to_kind, target.ts AS to_ts"
    " FROM flow JOIN slice source ON source.id = slice_out JOIN slice target ON target.id = slice_in ORDER BY to_ts"
)
NESTED_TRACKS = """
INCLUDE PERFETTO MODULE viz.summary.track_event;
WITH RECURSIVE shown(id, depth, name, path, place) AS (
    SELECT min_id, 0, name, name, printf('%09d', order_id) FROM tracks WHERE parent_id IS NULL
    UNION ALL
    SELECT min_id, depth + 1, tracks.name, path || ' > ' || tracks.name, place || printf(' %09d', order_id)
    FROM tracks JOIN shown ON tracks.parent_id = shown.id
), tracks AS (
    SELECT CAST(track_ids AS INT) AS min_id, parent_id, name, order_id FROM _track_event_tracks_ordered_groups
)
SELECT EXTRACT_ARG(track.source_arg_set_id, 'trace_id') AS uuid, depth, shown.name AS name, path
FROM shown JOIN track USING (id) ORDER BY place
"""
"""The tracks that are no process's or thread's, as the Perfetto UI orders and nests them: it asks this table."""

FAULTS = "SELECT name, value FROM stats WHERE severity IN ('error', 'data_loss') AND value > 0"


def load(path: Path, chunks: Sequence[bytes], *queries: str) -> list[list[Row]]:
    """The rows of these queries, of a trace in which the trace processor finds no fault."""
    path.write_bytes(b"".join(chunks))
    faults, *tables = query_many(path, [FAULTS, *queries])
    assert faults == []
    return tables


def number(row: Row, name: str) -> int:
    value = row[name]
    assert isinstance(value, int)
    return value


def looping(begin_ns: int, iterations: int) -> list[Entry]:
    """A warp that loops, on a clock of 1 GHz."""
    begin = begin_ns + 30
    entries = [Entry(FUNC, False, begin), Entry(LOOP, False, begin + 101)]
    for number in range(iterations):
        at = begin + 150 + 400 * number
        entries += [Entry(ITER, False, at), Entry(LOAD, False, at + 33), Entry(LOAD, True, at + 187)]
        entries += [Entry(ITER, True, at + 351)]
    at = begin + 150 + 400 * iterations
    entries += [Entry(LOOP, True, at), Entry(NOWHERE, False, at + 40), Entry(NOWHERE, True, at + 81)]
    return [*entries, Entry(FUNC, True, at + 200)]


def cta(sm: int, begin_ns: int, iterations: int) -> Cta:
    """Two warps that loop and one that records nothing; it begins so long after ``BEGIN_NS``."""
    end_ns = begin_ns + 30 + 150 + 400 * iterations + 200 + 28
    return Cta(
        [looping(begin_ns, iterations), looping(begin_ns + 9, iterations - 1), []],
        sm,
        BEGIN_NS + begin_ns,
        BEGIN_NS + end_ns,
        BEGIN_NS + end_ns + 600,
    )


def _begun(warps: Sequence[Sequence[Entry]], sm: int = 0) -> Cta:
    """A CTA of these warps that begins 28 cycles before their first record."""
    first, last = (end(entry.cycles for warp in warps for entry in warp) for end in (min, max))
    return Cta(warps, sm, BEGIN_NS + first - 28, BEGIN_NS + last + 28, BEGIN_NS + last + 100)


def decode(folder: Path, launches: Sequence[Sequence[Cta | None]], slots: int) -> list[Timeline]:
    """Decode launches of one kernel, made with a ring of this size."""
    buffers = [buffer_words(ctas, slots) for ctas in launches]
    kernel = kernel_json(SCOPES, buffers[0], 3, name="matmul")
    return [decode_launch(launch) for launch in save_launches(folder, kernel, buffers)]


def loops(folder: Path) -> list[Timeline]:
    """Two launches that lose nothing, the second with CTAs that never ran; and one that loses most."""
    # SMs and CTAs are not in the same order.
    first = [cta(17, 500, 3), cta(4, 0, 4), cta(17, 3000, 2)]
    second = [None, cta(4, 10_000, 2), None]
    third = [cta(9, 20_000, 9), cta(8, 20_100, 3)]
    return decode(folder / "whole", [first, second], slots=64) + decode(folder / "lossy", [third], slots=8)


def crossing(folder: Path) -> list[Timeline]:
    """A warp in which a loop outlasts the function around it, and one in which it does not."""
    crossed = [Entry(FUNC, False, 100), Entry(LOOP, False, 300), Entry(FUNC, True, 500), Entry(LOOP, True, 700)]
    nested = [Entry(FUNC, False, 100), Entry(LOOP, False, 300), Entry(LOOP, True, 500), Entry(FUNC, True, 700)]
    return [decode_launch(save_launch(folder, SCOPES, [_begun([crossed, nested])], slots=8))]


def marked(folder: Path) -> list[Timeline]:
    """A warp with a mark in its function."""
    scopes = [Scope("kernel", "func"), Scope("before store", "mark", 0, ("/src/matmul.py", 47))]
    warp = [Entry(0, False, 1_030), Entry(1, False, 1_400), Entry(1, True, 1_434), Entry(0, True, 1_900)]
    return [decode_launch(save_launch(folder, scopes, [_begun([warp], 3)], 16))]


def unpaired(folder: Path) -> list[Timeline]:
    """A warp that lost nothing, but has an end without a start and two starts without an end."""
    warp = [Entry(LOAD, True, 1_050), Entry(FUNC, False, 1_100), Entry(LOAD, False, 1_200), Entry(LOOP, False, 1_300)]
    return [decode_launch(save_launch(folder, SCOPES, [_begun([[*warp, Entry(FUNC, True, 1_900)]])], slots=8))]


def partitioned(folder: Path) -> list[Timeline]:
    """Two warps of the default partition, one of another, and one that records nothing."""
    scopes = [Scope("func", "func", partition=0), Scope("loop", "loop", partition=1)]
    warps = [[start(0, 1000), end(0, 1500)]] * 2 + [[start(1, 1100), end(1, 1400)], []]
    partitions = [("default partition", 2), ("partition 0", 1)]
    return [decode_launch(save_launch(folder, scopes, [_begun(warps)], 4, partitions=partitions))]


def called(folder: Path) -> list[Timeline]:
    """Two ranks, whose host read its clock beside their devices, with two launches each, each called before it began.
    Rank 0's first call says when it returned; rank 1's first was captured into a CUDA graph."""
    for rank, timer in enumerate((Timer(77_000_000_000, 1e-5), Timer(5_000_000, -2e-5))):
        at_ns = [BEGIN_NS + 50_000, BEGIN_NS + 90_000 + 1_000 * rank]
        readings = [timer.reading(BEGIN_NS + second * 1_000_000_000) for second in (0, 60)]
        save_process(folder, str(rank), [(timer, begin_ns) for begin_ns in at_ns], readings, rank=rank, pid=40 + rank)
    make_editable(folder)
    _tell_calls(folder / "0" / "launches.jsonl", {"host_end_ns": BEGIN_NS + 46_000})
    _tell_calls(folder / "1" / "launches.jsonl", {"graph": True})
    return decode_all(folder)


def copying(folder: Path) -> list[Timeline]:
    """A warp that starts copies and waits for them."""
    made = in_order(folder)
    scopes, ctas = made.scopes.copy(), made.ctas.copy()
    begin_ns = decode_launch(made.launch).ctas["init_ns"].min()
    for columns, names in ((scopes, ("start_ns", "end_ns")), (ctas, ("init_ns", "pre_final_ns", "post_final_ns"))):
        for name in names:
            columns[name] += begin_ns
    return [replace(made, ctas=ctas, _blocks=[scopes])]


def _tell_calls(launches: Path, of_first: dict[str, Any]) -> None:
    """Let the calls be before the launches begin, and say this of the first."""
    lines = [json.loads(line) for line in launches.read_text().splitlines()]
    lines[0] |= of_first
    launches.write_text("".join(json.dumps(line | {"host_ns": line["host_ns"] - CALL_NS}) + "\n" for line in lines))


DRAWN: dict[str, Callable[[Path], list[Timeline]]] = {
    each.__name__: each for each in (loops, crossing, marked, unpaired, partitioned, called, copying)
}
"""All of them: each saves a capture into a folder, and decodes it."""
