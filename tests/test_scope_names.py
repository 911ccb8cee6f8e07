"""Names are for people: whatever scopes are called, even all alike, every figure about them stays the same."""

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
import pytest
from altered import answer_of, report_of
from buffers import Cta, Entry, JsonWriter, buffer_words, end, kernel_json, launch_json, num_warps_of, start
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace
from planning import fixture_sources, fixture_view
from replacing import replace
from specialised import warps_of_partitions
from traces import chrome_trace, csv_table, perfetto_trace

from kprof_inject.analysis.advice import advice_on
from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.capture.encoding import json_values
from kprof_inject.capture.experiments import ExperimentRecord, MeasuredDelayRecord
from kprof_inject.capture.model import Launch
from kprof_inject.capture.reader import read_capture
from kprof_inject.capture.resources import Resources
from kprof_inject.capture.scopes import Scope, ScopeTable, distinct_names
from kprof_inject.export.tracks import LAYOUT_NAMES
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


COLLIDING = (all_alike, in_pairs)

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


def differing(one: Counter[str], other: Counter[str]) -> list[str]:
    """The values that are in one alone."""
    return sorted(max(one - other, other - one, key=Counter.total))


def _values(said: Any, table: Iterable[Scope]) -> Iterator[str]:
    """Each value with its place, and a dot for each scope, whether it is called by its name or told from others."""
    told = {name for beside in (False, True) for name in distinct_names([*table], with_source=beside)}
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


REPO = Path(__file__).resolve().parent.parent
ONE_STAGE, THREE_STAGES = "tests/captures/matmul-one-stage", "tests/captures/matmul-three-stages"
Recorded = Callable[[str], Launch]


@pytest.fixture
def recorded(tmp_path: Path) -> Recorded:
    """A capture's launch, or one that is made of a fixture."""

    def launch(name: str) -> Launch:
        path = REPO / name
        return read_capture(path).launches[0] if path.is_dir() else made_launch(tmp_path / name, path.read_text())

    return launch


LAUNCHES = (THREE_STAGES, *(f"ttgir_fixtures/3.6.0/cuda-90/{name}.ttgir" for name in ("tma_matmul", "ws_matmul")))


@pytest.mark.parametrize("name", LAUNCHES)
def test_scopes_of_one_name_have_the_figures_of_scopes_with_their_own(recorded: Recorded, name: str) -> None:
    launch = recorded(name)
    told = said_of(launch, by_itself)
    for colliding in COLLIDING:
        assert differing(told, said_of(launch, colliding)) == [], colliding.__name__


def test_a_loop_and_its_iterations_that_have_one_name(recorded: Recorded) -> None:
    """What ``--at func --at loop=work --at iter=work`` records of the demo."""
    launch = recorded(ONE_STAGE)
    plain = LaunchAnalysis.of(renamed(launch, lambda index: launch.kernel.scopes.scopes[index].name))
    same = LaunchAnalysis.of(renamed(launch, lambda index: ("func", "work", "work", "wait")[index]))
    (advice, *_), (alike, *_) = advice_on(plain), advice_on(same)
    assert (alike.text, alike.share) == (advice.text, advice.share)
    assert alike.reason == advice.reason.replace("loop[0]", "work (loop[0])")
    assert [finding.index for finding in same.findings] == [finding.index for finding in plain.findings]
    assert replace(same.limit, text="") == replace(plain.limit, text="")


def test_findings_and_roofs_have_the_key_of_the_scope_that_they_name(recorded: Recorded) -> None:
    for name in LAUNCHES:
        report = LaunchAnalysis.of(renamed(recorded(name), by_itself))
        scopes, in_flight = report.timeline.table.scopes, answer_of(report).in_flight
        flights = in_flight.flights if in_flight else ()
        for one in (*report.findings, *report.speed_of_light.roofs, *flights):
            assert one.scope == (None if one.index is None else scopes[one.index].name)


def test_delays_are_told_of_the_scope_at_whose_site_they_were(recorded: Recorded) -> None:
    """An experiment of other selectors has the records of other scopes."""
    launch = recorded(ONE_STAGE)
    experiment = made_experiment(launch, by_itself)
    records = [scope.record for scope in reversed(experiment.scopes.scopes)]
    scopes = tuple(
        msgspec.structs.replace(scope, record=record)
        for scope, record in zip(experiment.scopes.scopes, records, strict=True)
    )
    others = msgspec.structs.replace(experiment, scopes=msgspec.structs.replace(experiment.scopes, scopes=scopes))
    usual, turned = (LaunchAnalysis.of(renamed(launch, by_itself), [one]).slopes for one in (experiment, others))
    assert usual is not None and turned is not None
    assert [place.index for place in turned.places] == [0, 1, 2, 3]
    assert [place.to_json() for place in turned.places] == [place.to_json() for place in usual.places]
