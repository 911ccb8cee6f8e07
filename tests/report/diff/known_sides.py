"""Two sides of a comparison whose truth is known: launches of a kernel with a loop, each as long as it is told."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from buffers import Scope
from numpy.typing import NDArray
from replacing import replace
from timelines import Ran, cta_rows, made_timeline, scope_rows

from kprof_inject.capture.resources import KernelResources
from kprof_inject.timeline.timeline import Timeline

SCOPES = [
    Scope("func", "func", -1, ("/src/matmul.py", 12)),
    Scope("loop[0]", "loop", 0, ("/src/matmul.py", 15)),
    Scope("iter[0]", "iter", 1, ("/src/matmul.py", 15)),
]
FUNC, LOOP, ITER = 0, 1, 2
ITERATIONS = 5
HEAD_NS = 40_000
ITER_NS = 30_000
LAUNCHES = 20
SCATTER = 0.002


def around(value: float, seed: int, count: int = LAUNCHES) -> NDArray[np.float64]:
    """What launches take that take ``value`` on the average."""
    random: NDArray[np.float64] = value * np.exp(np.random.default_rng(seed).normal(0, SCATTER, count))
    return random


def rows_of(
    head_ns: float, iter_ns: float, *, warps: int = 2, ctas: int = 1, clock_ghz: float = 2.0
) -> NDArray[np.void]:
    """Each warp of each CTA runs the function: what comes before the loop, and the loop with iterations."""
    rows: list[Ran] = []
    each = round(iter_ns)
    loop_ns = ITERATIONS * each
    for cta in range(ctas):
        for warp in range(warps):
            rows.append(Ran(FUNC, round(head_ns) + loop_ns, cta, warp, cta, self_ns=round(head_ns), end_record=13))
            rows.append(Ran(LOOP, loop_ns, cta, warp, cta, start_record=1, end_record=12))
            rows += [
                Ran(ITER, each, cta, warp, cta, k, each, start_record=2 + 2 * k, end_record=3 + 2 * k)
                for k in range(ITERATIONS)
            ]
    columns = scope_rows(rows)
    columns["duration_cycles"] = np.rint(clock_ghz * columns["duration_ns"])
    return columns


def with_rows(timeline: Timeline, rows: NDArray[np.void]) -> Timeline:
    """The same launch with these scopes."""
    blocks: dict[str, Any] = {"_blocks": [rows]}
    return replace(timeline, **blocks)


def side(
    folder: Path,
    head_ns: Iterable[float],
    iter_ns: Iterable[float],
    *,
    scopes: Sequence[Scope] = SCOPES,
    warps: int = 2,
    ctas: int = 1,
    clock_ghz: float = 2.0,
    clean_ns: Iterable[float] | None = None,
    kernel: dict[str, Any] | None = None,
    grid: tuple[int, int, int] | None = None,
    **changes: Any,
) -> list[Timeline]:
    """One timeline for each launch; ``kernel`` and ``changes`` as ``made_timeline`` takes them."""
    clean = KernelResources(registers=100, shared_bytes=1000, times_ns=None if clean_ns is None else tuple(clean_ns))
    plain = made_timeline(
        folder, scopes, [], cta_rows(), warps=warps, kernel={"clean": clean, **(kernel or {})}, **changes
    )
    clock = replace(plain.clock, rate_ns=1 / clock_ghz, timer_step_ns=32)
    return [
        with_rows(
            replace(
                plain,
                launch=replace(plain.launch, index=index, grid=grid or (ctas, 1, 1)),
                clock=clock,
                ctas=_ctas(round(head) + ITERATIONS * round(each), ctas),
            ),
            rows_of(head, each, warps=warps, ctas=ctas, clock_ghz=clock_ghz),
        )
        for index, (head, each) in enumerate(zip(head_ns, iter_ns, strict=True), start=1)
    ]


def usual(
    folder: Path, seed: int, head_ns: float = HEAD_NS, iter_ns: float = ITER_NS, **changes: Any
) -> list[Timeline]:
    """A side whose launches take this on the average."""
    count = changes.pop("launches", LAUNCHES)
    return side(folder, around(head_ns, seed, count), around(iter_ns, seed + 1000, count), **changes)


def _ctas(duration_ns: int, count: int) -> NDArray[np.void]:
    begin = 1_000_000
    return cta_rows(*((cta, cta, begin, begin + duration_ns + 200, begin + duration_ns + 300) for cta in range(count)))
