"""Tags on a device: of a mixture of experts, the values are those that the kernel itself stores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")
tl = triton.language

import kprof_inject  # noqa: E402
from kprof_inject.timeline.columns import NO_TAG  # noqa: E402
from kprof_inject.timeline.tags import tag_column  # noqa: E402
from kprof_inject.timeline.timeline import Timeline  # noqa: E402

PROGRAMS, WARPS = 64, 4
BLOCK, DEPTH = 64, 128
# A ring of 32 records has room for a few blocks and a part of the next; the other loses nothing.
RINGS = {"whole": 1 << 16, "rotated": 32 * 8 * WARPS}


@triton.jit
def mixture(x_ptr, w_ptr, y_ptr, experts_ptr, seen_ptr, blocks, DEPTH: tl.constexpr, BLOCK: tl.constexpr):
    """Each program takes its share of the blocks of tokens; each block goes to one expert, whose weights it needs."""
    for block in range(tl.program_id(0), blocks, tl.num_programs(0)):
        expert = tl.load(experts_ptr + block)
        tokens = block * BLOCK + tl.arange(0, BLOCK)
        inner = tl.arange(0, DEPTH)
        columns = tl.arange(0, BLOCK)
        x = tl.load(x_ptr + tokens[:, None] * DEPTH + inner[None, :])
        w = tl.load(w_ptr + expert * DEPTH * BLOCK + inner[:, None] * BLOCK + columns[None, :])
        tl.store(y_ptr + tokens[:, None] * BLOCK + columns[None, :], tl.dot(x, w))
        tl.store(seen_ptr + block, expert)


def values_of(timeline: Timeline, kind: str, cta: int, warp: int, *names: str) -> list[tuple[int, ...]]:
    """By the scopes of a kind of one warp, in their order."""
    scopes = timeline.scopes
    of_kind = [index for index, scope in enumerate(timeline.table.scopes) if scope.kind == kind]
    mine = scopes[(scopes["cta"] == cta) & (scopes["warp"] == warp) & np.isin(scopes["scope"], of_kind)]
    columns = [tag_column(mine, timeline.table, name).tolist() for name in names]
    return list(zip(*columns, strict=True))


@pytest.mark.parametrize("ring", RINGS)
def test_a_mixture_of_experts_tells_the_block_and_the_expert(ring: str) -> None:
    blocks, experts = 1000, 8
    of_block = torch.randint(experts, (blocks,), device="cuda", dtype=torch.int32)
    x, w = (
        torch.randn(shape, device="cuda", dtype=torch.float16)
        for shape in ((blocks * BLOCK, DEPTH), (experts, DEPTH, BLOCK))
    )
    seen = torch.full((blocks,), -1, device="cuda", dtype=torch.int32)

    def launch(y: Any) -> None:
        mixture[(PROGRAMS,)](x, w, y, of_block, seen, blocks, DEPTH=DEPTH, BLOCK=BLOCK)

    plain, recorded = (torch.zeros((len(x), BLOCK), device="cuda", dtype=torch.float32) for _ in range(2))
    launch(plain)
    # Where the iteration begins, the expert is not known yet.
    selectors = ["iter --tag block=block", "op(*dot) --tag block=block --tag expert=expert"]
    mode = kprof_inject.Mode(buffer_bytes=RINGS[ring])
    with kprof_inject.profile(at=selectors, mode=mode, launches="all", replay=0) as profile:
        launch(recorded)
        (timeline,) = profile.timelines
    assert timeline.records_damaged == 0
    assert (timeline.records_lost > 0) == (ring == "rotated")
    assert torch.equal(plain, recorded)
    told = seen.cpu().tolist()
    for cta in range(PROGRAMS):
        truth = [(block, told[block]) for block in range(cta, blocks, PROGRAMS)]
        for warp in range(WARPS):
            compare(values_of(timeline, "op", cta, warp, "block", "expert"), truth, ring)
            compare(values_of(timeline, "iter", cta, warp, "block"), [(block,) for block, _ in truth], ring)


def compare(found: list[tuple[int, ...]], truth: list[tuple[int, ...]], ring: str) -> None:
    """The newest are left. Of the oldest that is, a ring may have lost the values, and no other's stand for them."""
    assert len(found) == len(truth) if ring == "whole" else 0 < len(found) < len(truth)
    kept = truth[len(truth) - len(found) :]
    assert found[1:] == kept[1:]
    assert all(value in (known, NO_TAG) for value, known in zip(found[0], kept[0], strict=True))
    assert ring == "rotated" or NO_TAG not in found[0]
