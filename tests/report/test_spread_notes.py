"""Which warps, CTAs and SMs are named."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from figures_in import figures_in
from known_launch import FUNC, ITER, LOOP, known_launch
from replacing import replace
from snapshots import check
from timelines import Ran, cta_rows

from kprof_inject.analysis.summary import summarise
from kprof_inject.report.notes import spread_notes


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
