"""The lines below a launch's tables on what limits it."""

from __future__ import annotations

from pathlib import Path

from buffers import Scope
from figures_in import figures_in
from known_launch import SCOPES, known_launch
from snapshots import check

from kprof_inject.analysis.limits.operation_work import NO_WORK
from kprof_inject.analysis.limits.speed_of_light import Roof, SpeedOfLight
from kprof_inject.analysis.summary import summarise
from kprof_inject.report.notes import roof_notes


def test_impossible_roofs_are_told_apart(tmp_path: Path) -> None:
    parts = {"tensor cores": 0.0, "fp32 units": 0.3}
    whole = Roof(0, "func", 1, 100, NO_WORK, parts)
    loop = Roof(1, "loop[0]", 1, 50, NO_WORK, parts, {"tensor cores": 1.3})
    scopes = summarise(known_launch(tmp_path, [Scope("func"), Scope("loop[0]", "loop", 0), *SCOPES[2:]])).scopes
    impossible, possible = roof_notes(SpeedOfLight((whole, loop)), scopes)
    assert figures_in(impossible.partition("loop[0]")[2]) == ["130.0"] and "tensor cores" in impossible
    assert possible.endswith("func 30.0 %, loop[0] 30.0 %") and "tensor cores" not in possible
    check("report/limit-notes", f"{impossible}\n{possible}")
