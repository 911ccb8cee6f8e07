"""First iterations that take much longer than the steady ones."""

from __future__ import annotations

from pathlib import Path

from known_kernels import ITERATIONS, Known, launched, rules_of
from replacing import replace


def test_a_loop_over_tiles_fills_no_pipeline(tmp_path: Path) -> None:
    timeline = launched(tmp_path, Known(iterations_ns=(900, *(100,) * (ITERATIONS - 1))))
    assert rules_of(timeline) == ["first-iterations"]
    *others, work, wait = timeline.table.scopes
    inner = replace(work, kind="loop", label="loop[0.0]")
    assert rules_of(replace(timeline, table=replace(timeline.table, scopes=(*others, inner, wait)))) == []
