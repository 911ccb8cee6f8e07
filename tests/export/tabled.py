"""Launches for tests of tables, and the rows that a table of them must have, found one by one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from buffers import Cta, Entry, JsonWriter, Scope, buffer_words, end, kernel_json, launch_json, start

from kprof_inject.capture.reader import read_capture
from kprof_inject.export.tables import IN_FLIGHT
from kprof_inject.timeline.columns import SCOPE_COLUMNS
from kprof_inject.timeline.timeline import Timeline, decode_launch

BEGIN_NS = 1_764_000_000_000_000_000
HEADER = (
    "kernel,variant,host,name,kind,partition,source,called_from,pid,rank,device,launch,cta,sm,warp,scope,depth,flags,"
    "iteration,start_record,end_record,start_cycles,end_cycles,start_ns,end_ns,duration_cycles,duration_ns,self_ns,"
    "in_flight_ns,blocked_ns,depth_in_flight,bytes_in_flight"
)

# Names that formats treat specially, and what a table is to say.
NAMES = {
    "load, a": "load, a",
    'say "hi"': 'say "hi"',
    "two\nlines\r": "two\nlines\r",
    "größe → 𝛼": "größe → 𝛼",
    "lone \ud800": "lone ?",
    "": "",
    "'; DROP": "'; DROP",
}
FUNC, ITER, FIRST_NAME = 0, 1, 2
SCOPES = [
    Scope("func", "func", -1, ("/src/a.py", 12)),
    Scope("iter[0]", "iter", FUNC, ("/src/a.py", 20)),
    *(
        Scope(name, "op", ITER, ("/src/tools.py", 7), (("/src/a.py", 21), ("/src/main.py", 5)), record=f"name {number}")
        for number, name in enumerate(NAMES)
    ),
]


def looping(begin: int, iterations: int) -> list[Entry]:
    """A warp that goes through every scope in each iteration."""
    entries = [start(FUNC, begin)]
    for number in range(iterations):
        at = begin + 10 + 1000 * number
        entries.append(start(ITER, at))
        for scope in range(FIRST_NAME, len(SCOPES)):
            entries += [start(scope, at + 50 * scope), end(scope, at + 50 * scope + 7 * number + 9)]
        entries.append(end(ITER, at + 990))
    return [*entries, end(FUNC, begin + 20 + 1000 * iterations)]


def decode_ranks(folder: Path, ranks: Sequence[int | None]) -> list[Timeline]:
    """Each rank is a process of its own that made two launches, the second of one CTA with a clock near its end."""
    for number, rank in enumerate(ranks):
        info = {"pid": 70 + number, "rank": rank, "host": "a,b"}
        writer = JsonWriter(folder / str(number), {key: value for key, value in info.items() if value is not None})
        ctas = [
            [_cta(begin, sm, iterations) for begin, sm, iterations in ((300, 131, 3), (40, 0, 2), (9_000, 131, 1))],
            [_cta((1 << 42) + 5, 7, 4)],
        ]
        for index, launched in enumerate(ctas):
            words = buffer_words(launched, slots=128)
            kernel = kernel_json(SCOPES, words, 2, name="mat,mul")
            writer.add_kernel("v0", kernel, "module {}\n", {})
            launch = launch_json(words, index=index, host_ns=index) | {"device": number}
            writer.add_launch(launch, memoryview(words.tobytes()))
        writer.finish()
    return [decode_launch(launch) for launch in read_capture(folder).launches]


def _cta(begin: int, sm: int, iterations: int) -> Cta:
    warps = [looping(begin, iterations), looping(begin + 3, iterations)]
    begin_ns, end_ns = BEGIN_NS + begin, BEGIN_NS + begin + 30 + 1000 * iterations
    return Cta(warps, sm, begin_ns, end_ns, end_ns + 500)


def rows_of(timelines: Sequence[Timeline]) -> list[dict[str, Any]]:
    """One by one from the columns, in their order."""
    return [
        {
            "kernel": timeline.launch.kernel.name,
            "variant": timeline.launch.kernel.variant,
            "host": timeline.launch.process.host,
            "name": NAMES.get(scope.name, scope.name),
            "kind": scope.kind,
            "partition": "",
            "source": scope.source,
            "called_from": " < ".join(scope.called_from),
            "pid": timeline.launch.process.pid,
            "rank": -1 if timeline.launch.process.rank is None else timeline.launch.process.rank,
            "device": timeline.launch.device,
            **{name: row[name].item() for name in SCOPE_COLUMNS.names or ()},
            **dict.fromkeys(IN_FLIGHT, -1),
        }
        for timeline in timelines
        for row in timeline.scopes
        for scope in [timeline.table.scopes[row["scope"]]]
    ]
