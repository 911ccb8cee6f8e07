"""Tags on a device: of a grouped GEMM and a mixture of experts, the values are those that the kernel itself stores."""

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
# A ring of 8 records has room for one tile and a part of the next; the other loses nothing.
RINGS = {"whole": 1 << 16, "rotated": 8 * 8 * WARPS}


@triton.jit
def grouped_gemm(a_ptr, b_ptr, c_ptr, rows_ptr, seen_ptr, groups, most, DEPTH: tl.constexpr, BLOCK: tl.constexpr):
    """Tiles of all groups are dealt to the programs in turn; each program notes the group and the tile that it does."""
    done = 0
    first = 0
    for group in range(groups):
        tiles = tl.load(rows_ptr + group) // BLOCK
        tile = (tl.program_id(0) - first % tl.num_programs(0) + tl.num_programs(0)) % tl.num_programs(0)
        while tile < tiles:
            inner = tl.arange(0, DEPTH)
            rows = (first + tile) * BLOCK + tl.arange(0, BLOCK)
            columns = tl.arange(0, BLOCK)
            a = tl.load(a_ptr + rows[:, None] * DEPTH + inner[None, :])
            b = tl.load(b_ptr + group * DEPTH * BLOCK + inner[:, None] * BLOCK + columns[None, :])
            tl.store(c_ptr + rows[:, None] * BLOCK + columns[None, :], tl.dot(a, b))
            place = seen_ptr + (tl.program_id(0) * most + done) * 2
            tl.store(place, group)
            tl.store(place + 1, tile)
            done += 1
            tile += tl.num_programs(0)
        first += tiles


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


def on_device(*shape: int) -> Any:
    return torch.randn(shape, device="cuda", dtype=torch.float16)


def profiled(launch: Any, selector: str, ring: str) -> Timeline:
    mode = kprof_inject.Mode(buffer_bytes=RINGS[ring])
    with kprof_inject.profile(at=[selector], mode=mode, launches="all", replay=0) as profile:
        launch()
        (timeline,) = profile.timelines
    assert timeline.records_damaged == 0
    assert (timeline.records_lost > 0) == (ring == "rotated")
    return timeline


def values_of(timeline: Timeline, cta: int, warp: int, *names: str) -> list[tuple[int, ...]]:
    """By the scopes of one warp, in their order."""
    scopes = timeline.scopes
    mine = scopes[(scopes["cta"] == cta) & (scopes["warp"] == warp)]
    columns = [tag_column(mine, timeline.table, name).tolist() for name in names]
    return list(zip(*columns, strict=True))


@pytest.mark.parametrize("ring", RINGS)
def test_a_grouped_gemm_tells_the_group_and_the_tile(ring: str) -> None:
    sizes = np.random.default_rng(7).integers(8, 80, 12) * BLOCK
    rows = torch.tensor(sizes, device="cuda", dtype=torch.int32)
    most = int(sizes.sum() // BLOCK // PROGRAMS + len(sizes) + 1)
    a, b = on_device(int(sizes.sum()), DEPTH), on_device(len(sizes), DEPTH, BLOCK)
    seen = torch.full((PROGRAMS, most, 2), -1, device="cuda", dtype=torch.int32)

    def launch(c: Any) -> None:
        shape = {"DEPTH": DEPTH, "BLOCK": BLOCK}
        grouped_gemm[(PROGRAMS,)](a, b, c, rows, seen, len(sizes), most, **shape)

    plain, recorded = (torch.zeros((len(a), BLOCK), device="cuda", dtype=torch.float32) for _ in range(2))
    launch(plain)
    timeline = profiled(lambda: launch(recorded), "iter[0.0] --tag group=group --tag tile=tile", ring)
    assert torch.equal(plain, recorded)
    told = seen.cpu().numpy()
    for cta in range(PROGRAMS):
        truth = [(int(group), int(tile)) for group, tile in told[cta] if group >= 0]
        for warp in range(WARPS):
            compare(values_of(timeline, cta, warp, "group", "tile"), truth, ring)


@pytest.mark.parametrize("ring", RINGS)
def test_a_mixture_of_experts_tells_the_expert(ring: str) -> None:
    blocks, experts = 1000, 8
    of_block = torch.randint(experts, (blocks,), device="cuda", dtype=torch.int32)
    x, w = on_device(blocks * BLOCK, DEPTH), on_device(experts, DEPTH, BLOCK)
    seen = torch.full((blocks,), -1, device="cuda", dtype=torch.int32)

    def launch(y: Any) -> None:
        mixture[(PROGRAMS,)](x, w, y, of_block, seen, blocks, DEPTH=DEPTH, BLOCK=BLOCK)

    plain, recorded = (torch.zeros((len(x), BLOCK), device="cuda", dtype=torch.float32) for _ in range(2))
    launch(plain)
    # Where the iteration begins, the expert is not known yet.
    timeline = profiled(lambda: launch(recorded), "op(*dot) --tag block=block --tag expert=expert", ring)
    assert torch.equal(plain, recorded)
    told = seen.cpu().tolist()
    for cta in range(PROGRAMS):
        truth = [(block, told[block]) for block in range(cta, blocks, PROGRAMS)]
        for warp in range(WARPS):
            compare(values_of(timeline, cta, warp, "block", "expert"), truth, ring)


def compare(found: list[tuple[int, ...]], truth: list[tuple[int, int]], ring: str) -> None:
    """The newest are left. Of the oldest that is, a ring may have lost the values, and no other's stand for them."""
    assert len(found) == len(truth) if ring == "whole" else 0 < len(found) < len(truth)
    kept = truth[len(truth) - len(found) :]
    assert found[1:] == kept[1:]
    assert all(value in (known, NO_TAG) for value, known in zip(found[0], kept[0], strict=True))
    assert ring == "rotated" or NO_TAG not in found[0]
