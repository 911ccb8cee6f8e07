"""A launch whose figures are known, for the reports."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from buffers import Scope
from timelines import Ran, cta_rows, made_timeline, scope_rows

from kprof_inject.timeline.timeline import Timeline

SCOPES = [
    Scope("kernel", "func", -1, ("/src/my kernel.py", 12)),
    Scope("loop[0]", "loop", 0, ("/src/my kernel.py", 15)),
    Scope("iter[0]", "iter", 1, ("/src/my kernel.py", 15)),
    Scope("tail", "loop", 0),
]
FUNC, LOOP, ITER = 0, 1, 2
# By CTA, which has an SM of its own.
SMS = (3, 4)
CTAS = cta_rows((0, 3, 2000, 3000, 3100), (1, 4, 2500, 3500, 3600))
ITERATIONS_NS = (90, 10, 10, 10, 20)


def known_rows() -> list[Ran]:
    """Two CTAs of two warps: all run the function, the first warps a loop of five iterations, 150 ns after the CTA's
    begin."""
    rows: list[Ran] = []
    for cta, sm in enumerate(SMS):
        begin_ns = int(CTAS["init_ns"][cta])
        for warp, ns in enumerate(((700, 1000), (800, 900))[cta]):
            rows.append(Ran(FUNC, ns, cta, warp, sm, self_ns=ns - 500 * (warp == 0), start_ns=begin_ns))
            if warp == 0:
                loop = Ran(LOOP, 500, cta, warp, sm, self_ns=360, start_record=1, end_record=2, start_ns=begin_ns + 150)
                rows.append(loop)
                rows += [
                    loop._replace(scope=ITER, duration_ns=ns, self_ns=ns, iteration=number)
                    for number, ns in enumerate(ITERATIONS_NS)
                ]
    return rows


def known_launch(
    folder: Path, scopes: Sequence[Scope] = SCOPES, rows: Sequence[Ran] | None = None, **changes: Any
) -> Timeline:
    """``rows`` are in one block; ``changes`` as ``made_timeline`` takes them."""
    ran = scope_rows(known_rows() if rows is None else rows)
    return made_timeline(folder, scopes, [ran], CTAS, **{"records_written": 32, **changes})
