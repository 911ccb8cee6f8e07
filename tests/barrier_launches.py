"""Launches whose CTAs wait for each other at given times."""

from __future__ import annotations

from pathlib import Path

from buffers import Scope
from timelines import Ran, cta_rows, made_timeline, scope_rows

from kprof_inject.timeline.timeline import Timeline

SCOPES = [Scope("func"), Scope("spin[0]", "spin", 0), Scope("spin[1]", "spin", 0)]
SPIN = 1
Visits = list[list[tuple[int, int]]]
"""When each CTA arrives and leaves, round by round."""


def launch(folder: Path, visits: Visits, warps: int = 2) -> Timeline:
    """A launch whose CTAs wait so; the warps of a CTA arrive one after the other, 10 ns apart, and leave at once."""
    rows = [
        Ran(SPIN, leaves - arrives, cta, warp, sm=cta + 5, start_ns=arrives - 10 * (warps - 1 - warp))
        for cta, rounds in enumerate(visits)
        for warp in range(warps)
        for arrives, leaves in rounds
    ]
    rows = [row._replace(duration_ns=row.duration_ns + 10 * (warps - 1 - row.warp)) for row in rows]
    ctas = cta_rows(*((cta, cta + 5, 0, 1_000_000, 1_000_000) for cta in range(len(visits))))
    # As the decoder makes them: blocks of whole CTAs.
    blocks = [scope_rows([row for row in rows if row.cta % 2 == part]) for part in (0, 1)]
    return made_timeline(folder, SCOPES, [block for block in blocks if block.size], ctas, warps=warps)
