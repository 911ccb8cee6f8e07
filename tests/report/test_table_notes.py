"""Notes below a launch's tables: its grid, roofs, and which warps, CTAs and SMs stand out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from buffers import Scope
from figures_in import figures_in
from known_launch import FUNC, ITER, LOOP, SCOPES, known_launch
from replacing import replace
from snapshots import check
from timelines import Ran, cta_rows

from kprof_inject.analysis.limits.operation_work import NO_WORK
from kprof_inject.analysis.limits.speed_of_light import Roof, SpeedOfLight
from kprof_inject.analysis.summary import summarise
from kprof_inject.capture.resources import GridTimesRecord
from kprof_inject.report.notes import grid_notes, roof_notes, spread_notes


def test_the_part_of_the_kernel_that_a_launch_stands_for(tmp_path: Path) -> None:
    launch = known_launch(tmp_path).launch
    assert list(grid_notes(launch)) == []
    ctas = launch.grid[0] * launch.grid[1] * launch.grid[2]
    mine = GridTimesRecord(grid=launch.grid, launches=12)
    other = GridTimesRecord(grid=(ctas, 2, 1), launches=2)
    (note,) = grid_notes(replace(launch, kernel=replace(launch.kernel, grids=(mine, other))))
    assert note == "grids: 2 in 14 launches of the kernel; 12 have this one, with 75.0 % of all their CTAs"
    unknown = replace(launch.kernel, grids=(other, replace(other, grid=(ctas, 3, 1))))
    assert list(grid_notes(replace(launch, kernel=unknown))) == []


def test_impossible_roofs_are_told_apart(tmp_path: Path) -> None:
    parts = {"tensor cores": 0.0, "fp32 units": 0.3}
    whole = Roof(0, "func", 1, 100, NO_WORK, parts)
    loop = Roof(1, "loop[0]", 1, 50, NO_WORK, parts, {"tensor cores": 1.3})
    scopes = summarise(known_launch(tmp_path, [Scope("func"), Scope("loop[0]", "loop", 0), *SCOPES[2:]])).scopes
    impossible, possible = roof_notes(SpeedOfLight((whole, loop)), scopes)
    assert figures_in(impossible.partition("loop[0]")[2]) == ["130.0"] and "tensor cores" in impossible
    assert possible.endswith("func 30.0 %, loop[0] 30.0 %") and "tensor cores" not in possible
    check("report/limit-notes", f"{impossible}\n{possible}")


def notes(folder: Path, rows: Sequence[Ran]) -> list[str]:
    """Each CTA is on the SM of its number."""
    ctas = sorted({(row.cta, row.cta, 0, 1000, 1000) for row in rows})
    placed = [row._replace(sm=row.cta) for row in sorted(rows, key=lambda row: (row.cta, row.warp))]
    timeline = replace(known_launch(folder, rows=placed, kernel={"num_warps": 8}), ctas=cta_rows(*ctas))
    return list(spread_notes(summarise(timeline).scopes))


ROWS = {
    "a slow warp": [Ran(FUNC, 180 if warp == 3 else 100, cta, warp) for cta in range(3) for warp in range(8)],
    "a fast CTA": [Ran(FUNC, 10 if cta == 2 else 100, cta, warp) for cta in range(5) for warp in range(2)],
    "another slow warp in each CTA": [
        Ran(FUNC, 90 if warp == cta else 30, cta, warp) for cta in range(4) for warp in range(4)
    ],
    "even scopes": [
        Ran(scope, 100 + 5 * cta + warp, cta, warp) for scope in (FUNC, LOOP) for cta in range(3) for warp in range(2)
    ],
}


@pytest.mark.parametrize("case", ROWS)
def test_what_stands_out_is_named(tmp_path: Path, case: str) -> None:
    check("report/spread-notes", "\n".join(notes(tmp_path, ROWS[case])), case)


def test_only_scopes_that_stand_out_are_named(tmp_path: Path) -> None:
    rows = [
        Ran(scope, ns, cta, warp)
        for scope, slow_ns in ((FUNC, 100), (ITER, 300))
        for cta in range(3)
        for warp, ns in enumerate((100, 100, slow_ns))
    ]
    found = notes(tmp_path, rows)
    assert [line.partition(":")[0] for line in found] == ["spread of iter[0]", "spread"]


@pytest.mark.parametrize(
    "rows", [[Ran(FUNC, 100)], [Ran(FUNC, 0), Ran(FUNC, 0, 1, 1)], []], ids=["one warp", "no time", "nothing ran"]
)
def test_where_nothing_can_be_compared_nothing_is_said(tmp_path: Path, rows: list[Ran]) -> None:
    assert notes(tmp_path, rows) == []


def test_a_warp_that_takes_no_time_stands_out(tmp_path: Path) -> None:
    rows = [Ran(FUNC, 0 if warp == 0 else 100, 0, warp) for warp in range(4)]
    assert figures_in(notes(tmp_path, rows)[0])[:4] == ["0.00", "0", "1.00", "1"]
