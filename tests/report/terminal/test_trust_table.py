"""The table of verdicts, as a file gets it."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from buffers import Cta, Scope, save_launch
from figures_in import figures_in
from replacing import replace
from rich.console import Console
from snapshots import check

from kprof_inject.analysis.program import Report
from kprof_inject.capture.model import Launch
from kprof_inject.capture.resources import KernelResources
from kprof_inject.report.facts import Answers
from kprof_inject.report.terminal.tables import print_trust
from kprof_inject.timeline.timeline import decode_launch

TIMES_NS = tuple(1e3 * us for us in (9_990, 9_996, 9_998, 10_000, 10_002, 10_004, 10_010))
CLEAN = KernelResources(128, 0, shared_bytes=98304, ctas_per_sm=2, times_ns=TIMES_NS)
SLOWER_NS = tuple(1.12 * time for time in TIMES_NS)


@pytest.fixture
def launch(tmp_path: Path) -> Launch:
    """Of a kernel that costs nothing more with records."""
    launch = save_launch(tmp_path, [Scope("k")], [Cta([[]])], slots=4)
    return with_costs(launch, CLEAN, CLEAN)


def with_costs(launch: Launch, clean: KernelResources, with_records: KernelResources) -> Launch:
    return replace(launch, kernel=replace(launch.kernel, clean=clean, with_records=with_records))


def of(launch: Launch, name: str, variant: str, pid: int = 7, rank: int | None = None) -> Launch:
    kernel = replace(launch.kernel, name=name, variant=variant, folder=Path(f"/capture/{pid}-1/kernels/{variant}"))
    return replace(launch, kernel=kernel, process=replace(launch.process, pid=pid, rank=rank))


def printed(*launches: Launch, width: int = 300) -> list[str]:
    out = io.StringIO()
    answers = Answers(Report.of(map(decode_launch, launches)))
    middles = [one for kernel in answers.report.program.kernels for one in kernel.middles]
    print_trust([answers.on(one) for one in middles], Console(file=out, width=width))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def rows(lines: list[str]) -> list[list[str]]:
    return [[cell.strip() for cell in line[1:-1].split(line[0])] for line in lines if line[0] in "┃│"]


def names(lines: list[str]) -> list[str]:
    return [name for name, *_ in rows(lines)[1:]]


def test_the_table(launch: Launch) -> None:
    worse = KernelResources(168, 12, shared_bytes=106496, ctas_per_sm=1, times_ns=SLOWER_NS)
    lines = printed(
        of(launch, "matmul", "matmul-0"),
        with_costs(of(launch, "softmax", "softmax-0"), CLEAN, worse),
        with_costs(of(launch, "old", "old-0"), KernelResources(shared_bytes=98304), replace(worse, times_ns=None)),
    )
    check("report/trust-table", "\n".join(lines))


def test_each_kernel_of_each_process_has_one_row_that_can_be_told_from_others(launch: Launch) -> None:
    once = of(launch, "add", "add-0")
    assert names(printed(once, replace(once, index=1))) == ["add"]
    assert names(printed(once, of(launch, "add", "add-1"))) == ["add-0", "add-1"]
    assert names(printed(once, of(launch, "add", "add-0", 8), of(launch, "mul", "mul-0"))) == [
        "add, process 7",
        "add, process 8",
        "mul",
    ]
    assert names(printed(of(launch, "add", "add-0", 7, 1), of(launch, "add", "add-0", 8, 0))) == [
        "add, rank 1 (process 7)",
        "add, rank 0 (process 8)",
    ]


def test_each_process_has_its_own_verdict(launch: Launch) -> None:
    other = with_costs(of(launch, "add", "add-0", 8), CLEAN, replace(CLEAN, times_ns=SLOWER_NS))
    first, second = printed(of(launch, "add", "add-0"), other)[-2:]
    assert first.startswith("add, process 7: ") and figures_in(first)[2:] == ["0.0", "0.3"]
    assert second.startswith("add, process 8: ") and figures_in(second)[2:] == ["12.0", "0.4", "5"]


def test_a_terminal_of_80_columns_has_what_changed(launch: Launch) -> None:
    same = with_costs(of(launch, "matmul_kernel", "v"), CLEAN, CLEAN)
    more = with_costs(of(launch, "matmul_kernel", "v"), CLEAN, replace(CLEAN, registers=140))
    narrow = [printed(one, width=80) for one in (same, more)]
    titles = ["kernel", "verdict", "run", "time", "overhead"]
    assert [lines[1].split() for lines in narrow] == [titles, [*titles, "registers"]]
    assert narrow[1][3].endswith("128 → 140")


def test_names_are_shown_as_they_are(launch: Launch) -> None:
    assert names(printed(of(launch, "[bold]", "v"))) == ["[bold]"]
