"""Kernels of which it is known what is critical: two sides spin for known times, and wait for each other.

    python known_slack.py [--kernel meet|ring] [--side CYCLES] [--other CYCLES] [--launches N]

``meet``: in each iteration both sides arrive at a common barrier and wait for it. ``ring``: one side fills a ring of
two slots, the other empties it. In both, an iteration takes as long as the slower side; the faster one has the
difference to spare.
"""

import argparse
from collections.abc import Callable

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

ITERATIONS = 200
SLOTS = 2


@gluon.jit
def spin(cycles):
    """How long it took."""
    return gl.inline_asm_elementwise(
        "{ .reg .u32 begin, now; .reg .pred more; mov.u32 begin, %clock; "
        "AGAIN: mov.u32 now, %clock; sub.u32 now, now, begin; setp.lt.u32 more, now, $1; @more bra.uni AGAIN; "
        "mov.u32 $0, 1; }",
        "=r,r",
        [cycles],
        dtype=gl.int32,
        is_pure=False,
        pack=1,
    )


@gluon.jit
def _meet_side(out_ptr, cycles, iterations, common, place: gl.constexpr):
    total = 0
    for number in range(iterations):
        total += spin(cycles)
        mbarrier.arrive(common, count=1)
        mbarrier.wait(common, number & 1)
    gl.store(out_ptr + 2 * gl.program_id(0) + place, total)


@gluon.jit
def meet_kernel(out_ptr, side, other, iterations):
    common = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(common, count=2)
    gl.warp_specialize(
        [
            (_meet_side, (out_ptr, side, iterations, common, 0)),
            (_meet_side, (out_ptr, other, iterations, common, 1)),
        ],
        [1],
        [40],
    )
    mbarrier.invalidate(common)


@gluon.jit
def _fill(out_ptr, cycles, iterations, filled, emptied, SLOTS: gl.constexpr):
    total = 0
    for number in range(iterations):
        slot = number % SLOTS
        mbarrier.wait(emptied.index(slot), ((number // SLOTS) & 1) ^ 1)
        total += spin(cycles)
        mbarrier.arrive(filled.index(slot), count=1)
    gl.store(out_ptr + 2 * gl.program_id(0), total)


@gluon.jit
def _empty(out_ptr, cycles, iterations, filled, emptied, SLOTS: gl.constexpr):
    total = 0
    for number in range(iterations):
        slot = number % SLOTS
        mbarrier.wait(filled.index(slot), (number // SLOTS) & 1)
        total += spin(cycles)
        mbarrier.arrive(emptied.index(slot), count=1)
    gl.store(out_ptr + 2 * gl.program_id(0) + 1, total)


@gluon.jit
def ring_kernel(out_ptr, side, other, iterations, SLOTS: gl.constexpr):
    filled = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], mbarrier.MBarrierLayout())
    emptied = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], mbarrier.MBarrierLayout())
    for slot in gl.static_range(SLOTS):
        mbarrier.init(filled.index(slot), count=1)
        mbarrier.init(emptied.index(slot), count=1)
    gl.warp_specialize(
        [
            (_fill, (out_ptr, side, iterations, filled, emptied, SLOTS)),
            (_empty, (out_ptr, other, iterations, filled, emptied, SLOTS)),
        ],
        [1],
        [40],
    )
    for slot in gl.static_range(SLOTS):
        mbarrier.invalidate(filled.index(slot))
        mbarrier.invalidate(emptied.index(slot))


def launcher(kernel: str, side: int, other: int) -> Callable[[], torch.Tensor]:
    """Launches a kernel with a CTA for each SM, and gives how often each side of each CTA went round."""
    ctas = torch.cuda.get_device_properties(0).multi_processor_count
    out = torch.zeros(ctas, 2, device="cuda", dtype=torch.int32)

    def launch() -> torch.Tensor:
        if kernel == "meet":
            meet_kernel[(ctas,)](out, side, other, ITERATIONS, num_warps=4)
        else:
            ring_kernel[(ctas,)](out, side, other, ITERATIONS, SLOTS, num_warps=4)
        return out

    return launch


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kernel", choices=["meet", "ring"], default="meet")
    parser.add_argument("--side", type=int, default=3000)
    parser.add_argument("--other", type=int, default=2000)
    parser.add_argument("--launches", type=int, default=4000)
    options = parser.parse_args()
    launch = launcher(options.kernel, options.side, options.other)
    for _ in range(options.launches):
        out = launch()
    torch.cuda.synchronize()
    assert (out == ITERATIONS).all(), out
    print("every side has gone round as often as it should", flush=True)


if __name__ == "__main__":
    main()
