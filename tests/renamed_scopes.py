"""Launches whose scopes are called otherwise, and all that is said of them apart from the names."""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from altered import answer_of, report_of
from buffers import Cta, Entry, JsonWriter, buffer_words, end, kernel_json, launch_json, num_warps_of, start
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace
from planning import fixture_sources, fixture_view
from replacing import replace
from specialised import warps_of_partitions
from traces import chrome_trace, csv_table, perfetto_trace

from kprof_inject.analysis.comparison.verdicts import diff_captures
from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.capture.encoding import json_values
from kprof_inject.capture.experiments import ExperimentRecord, MeasuredDelayRecord
from kprof_inject.capture.model import Launch
from kprof_inject.capture.reader import read_capture
from kprof_inject.capture.resources import Resources
from kprof_inject.capture.scopes import Scope, ScopeTable, distinct_names
from kprof_inject.export.tables import hatchet_tree
from kprof_inject.export.tracks import LAYOUT_NAMES
from kprof_inject.report.diff.rows import diff_json
from kprof_inject.report.diff.terminal import crossings
from kprof_inject.report.experiments import slopes_csv
from kprof_inject.report.html.columns import shown_of
from kprof_inject.report.html.data import kernel_rows, launch_facts, launch_sections, page_values
from kprof_inject.report.html.pictures import ScopePictures
from kprof_inject.report.terminal.screens import answers_text
from kprof_inject.select.plan import Plan, make_plan, table_json
from kprof_inject.select.selectors import parse_selectors
from kprof_inject.timeline.choice import Choice, NumberSet
from kprof_inject.timeline.timeline import Timeline, decode_launch

Naming = Callable[[int], str]
"""What the scope with an index in the table is called."""

_NAME = re.compile(r"zq\d*q")


def by_itself(index: int) -> str:
    return f"zq{index}q"


def all_alike(_: int) -> str:
    return "zqq"


def in_pairs(index: int) -> str:
    return f"zq{index // 2}q"


_SELECTORS = ("func", "loop", "iter", "op(*wait*)", "op(*async*)", "op(*dot*)", "op(tt.load)")
_CTAS, _ITERATIONS = 3, 5


def made_launch(folder: Path, text: str) -> Launch:
    """A launch of a fixture's kernel, in which no two scopes take as long."""
    plan = make_plan(fixture_view(text), parse_selectors(_SELECTORS))
    ctas = list(_ctas(plan))
    words, table = buffer_words(ctas, 512), table_json(plan.table)
    target = re.search(r'ttg.target = "(\w+):(\w+)"', text)
    assert target is not None
    kernel = kernel_json([], words, num_warps_of(ctas), name=plan.table.kernel)
    kernel |= {"scope_table": table, "sm_count": _CTAS}
    kernel["scope_ids"] = {str(index): scope["record"] for index, scope in enumerate(table["scopes"])}
    arch = int(target[2]) if target[2].isdigit() else target[2]
    kernel["metadata"]["target"] = {"backend": target[1], "arch": arch, "warp_size": 32}
    writer = JsonWriter(folder / "process", {"pid": 7})
    writer.add_kernel("v0", kernel, text, fixture_sources(text))
    writer.add_launch(launch_json(words), memoryview(words.tobytes()))
    writer.finish()
    return read_capture(folder).launches[0]


def _ctas(plan: Plan) -> Iterator[Cta]:
    warps = warps_of_partitions(plan) if plan.table.partitions else [tuple(range(4))]
    for number in range(_CTAS):
        begin = 1_000_000 + 20_000 * number
        rows: list[list[Entry]] = [[] for _ in range(1 + max(warp for mine in warps for warp in mine))]
        for partition, mine in enumerate(warps):
            for warp in mine:
                at = rows[warp][-1].cycles + 100 if rows[warp] else begin + 40 * warp
                rows[warp] += _records(plan, partition if plan.table.partitions else None, at)
        end_ns = max(entries[-1].cycles for entries in rows if entries) // 2 + 100
        yield Cta(rows, number, begin // 2 - 100, end_ns, end_ns + 50)


def _records(plan: Plan, partition: int | None, begin: int) -> list[Entry]:
    found: list[Entry] = []

    def after(cycles: int) -> int:
        return (found[-1].cycles if found else begin) + cycles

    def run(parent: int) -> None:
        for index, scope in enumerate(plan.scopes):
            if scope.partition == partition and scope.parent == parent:
                for _ in range(_ITERATIONS if scope.kind == "iter" else 1):
                    found.append(start(index, after(20)))
                    run(index)
                    found.append(end(index, after(30 + 17 * index)))

    run(-1)
    return found


def made_experiment(launch: Launch, naming: Naming) -> ExperimentRecord:
    """One that delayed the first scopes of a launch's kernel, each with another effect."""
    saved = json.loads((launch.kernel.folder / "kernel.json").read_text())["scope_table"]
    table = msgspec.convert(saved, ScopeTable)
    scopes = tuple(msgspec.structs.replace(scope, name=naming(at)) for at, scope in enumerate(table.scopes))
    chance = np.random.default_rng(0)
    delays = tuple(
        MeasuredDelayRecord(
            scope=index,
            delay_cycles=cycles,
            ns=tuple(100_000 * (1 + 0.00005 * cycles * (index % 3)) * np.exp(chance.normal(0, 0.001, 40))),
            clean_ns=(100_000.0,) * 40,
        )
        for index in range(min(len(scopes), 6))
        for cycles in (0, 60, 540, 1620)
    )
    return ExperimentRecord(
        name=launch.kernel.name,
        variant=launch.kernel.variant,
        pid=1,
        scopes=msgspec.structs.replace(table, scopes=scopes),
        sm_count=_CTAS,
        sm_clock_hz=1.5e9,
        clean=Resources(ctas_per_sm=1),
        grid=launch.grid,
        delays=delays,
    )


def _scopes(launch: Launch, naming: Naming) -> tuple[Scope, ...]:
    return tuple(replace(scope, name=naming(at)) for at, scope in enumerate(launch.kernel.scopes.scopes))


def renamed(launch: Launch, naming: Naming) -> Timeline:
    table = replace(launch.kernel.scopes, scopes=_scopes(launch, naming))
    return decode_launch(replace(launch, kernel=replace(launch.kernel, scopes=table)))


def said_of(launch: Launch, naming: Naming) -> Counter[str]:
    """All that reports, pages and exports say of one launch: each value with its place."""
    report = LaunchAnalysis.of(renamed(launch, naming), [made_experiment(launch, naming)])
    assert report.slopes is not None
    timeline, answer, whole = report.timeline, answer_of(report), report_of(report)
    pictures = ScopePictures(report.summary)
    for _ in pictures.seeing(timeline.blocks()):
        pass
    shown = shown_of(timeline, (), timeline.scope_count)
    # What exports say of one CTA, they say of all.
    few = timeline.chosen(Choice(ctas=NumberSet.of(range(2))))
    said = {
        "json": json.loads(json.dumps(json_values(answer))),
        "terminal": answers_text(whole, 2000).split("\n"),
        "page": page_values(launch_sections(report)),
        "page's scopes": page_values(launch_facts(report, answer, shown, pictures.drawn(), None)),
        "page's kernels": page_values(kernel_rows(whole.program, whole)),
        "causal": list(csv.reader(io.StringIO(slopes_csv([report.slopes])))),
        "csv": list(csv.reader(io.StringIO(b"".join(csv_table([few])).decode()))),
        "hatchet": json.loads(b"".join(hatchet_tree([few]))),
    }
    for layout in LAYOUT_NAMES:
        said[f"chrome by {layout}"] = json.loads(b"".join(chrome_trace([few], layout)))
        packets = Trace.FromString(b"".join(perfetto_trace([few], layout))).packet
        # Names have numbers there, which count the names.
        said[f"perfetto by {layout}"] = [
            (one.timestamp, one.track_event.type, one.track_event.track_uuid, one.track_descriptor.uuid)
            for one in packets
        ]
    return Counter(_values(said, _scopes(launch, naming)))


def said_of_pair(a: Launch, b: Launch, naming_a: Naming, naming_b: Naming) -> Counter[str]:
    """The same of a comparison and its gate. Why a scope has no partner is said by names, and left out."""
    diff = diff_captures([renamed(a, naming_a)], [renamed(b, naming_b)])
    said = diff_json(diff)
    for kernel in said["kernels"]:
        kernel["notes"] = [note for note in kernel["notes"] if not note.startswith("only in ")]
        for one in (*kernel["only_a"], *kernel["only_b"]):
            del one["why"]
    names = [*_scopes(a, naming_a)], [*_scopes(b, naming_b)]
    return Counter(_values([said, list(crossings(diff, 0.0, ("*",)))], *names))


def differing(one: Counter[str], other: Counter[str]) -> list[str]:
    """The values that are in one alone."""
    return sorted(max(one - other, other - one, key=Counter.total))


def _values(said: Any, *tables: Iterable[Scope]) -> Iterator[str]:
    """Each value with its place, and a dot for each scope, whether it is called by its name or told from others."""
    told = {
        name for table in tables for beside in (False, True) for name in distinct_names([*table], with_source=beside)
    }
    known = re.compile("|".join(map(re.escape, sorted(told, key=len, reverse=True))) + f"|{_NAME.pattern}")

    def without_names(text: str) -> str:
        return " ".join((known.sub("·", text) if "zq" in text else text).replace("█", "").split())

    def walk(value: Any, path: str) -> Iterator[str]:
        if isinstance(value, dict):
            for place, (key, inner) in enumerate(value.items()):
                # Figures of several scopes count by their place.
                yield from walk(inner, f"{path}/{place} {without_names(key)}" if _NAME.search(key) else f"{path}/{key}")
        elif isinstance(value, list | tuple):
            for place, inner in enumerate(value):
                yield from walk(inner, f"{path}/{place}")
        else:
            yield f"{path}: {without_names(value) if isinstance(value, str) else value}"

    return walk(said, "")
