"""Launches of one CTA with one loop, made by hand."""

from __future__ import annotations

from pathlib import Path

from buffers import Scope
from replacing import replace
from timelines import Ran, cta_rows, made_timeline, scope_rows

from kprof_inject.analysis.findings.finding import Finding
from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.timeline.timeline import Timeline

FUNC, WAIT = (3, 14), (8, 8)


def launched(folder: Path, text: str, wait_cycles: int) -> Timeline:
    """A CTA of 10,000 cycles, 9,000 of them in its loop, and so many of these in the wait."""
    scopes = [Scope("func"), Scope("loop[0]", "loop", 0), Scope("ttg.async_wait", "op", 1)]
    spans = [(0, 0, 10_000), (1, 500, 9_500), (2, 500, 500 + wait_cycles)]
    rows = scope_rows([Ran(scope, end - start, 0, 0, 0) for scope, start, end in spans])
    rows["start_cycles"], rows["end_cycles"] = [span[1] for span in spans], [span[2] for span in spans]
    made = made_timeline(folder, scopes, [rows], cta_rows((0, 0, 0, 10_000, 10_000)), warps=1)
    lines = (FUNC, (7, text[: text.index("    }\n")].count("\n") + 1), WAIT)
    table = replace(
        made.table, scopes=tuple(replace(scope, lines=its) for scope, its in zip(made.table.scopes, lines, strict=True))
    )
    (made.launch.kernel.folder / "kernel.ttgir").write_text(text)
    metadata = {**made.launch.kernel.metadata, "target": {"backend": "cuda", "arch": 90}}
    kernel = replace(made.launch.kernel, scopes=table, metadata=metadata, sm_count=1)
    return replace(made, table=table, launch=replace(made.launch, kernel=kernel, grid=(1, 1, 1)))


def found(timeline: Timeline) -> dict[str, Finding]:
    return {finding.rule: finding for finding in LaunchAnalysis.of(timeline).findings}
