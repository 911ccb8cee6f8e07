"""Each mode reaches Proton's passes: what it asks for shows in the machine code and in the sizes."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
import triton
from golden import fixture_id, read
from planning import fixture_view, insertion_of
from test_lower import ON_HIP, ON_HOPPER, described, lowered, shared_bytes
from triton_oracle import installed_fixtures

from kprof_inject.capture.mode import Mode
from kprof_inject.capture.ring_sizes import keeps_occupancy, mode_of_kernel, row_bytes
from kprof_inject.errors import KprofError
from kprof_inject.runtime.compiling.instrumentation import Lowered, lower
from kprof_inject.select.plan import make_plan
from kprof_inject.select.spans import Style

pytestmark = pytest.mark.triton

HOPPER = "cuda:90"
RELEASE = tuple(int(part) for part in triton.__version__.split(".")[:2])


def on_hopper(*kernels: str) -> list[Path]:
    return [path for path in ON_HOPPER if fixture_id(path).rpartition("/")[2] in kernels]


# Kernels that take little time to compile: one with shared memory, and one with a loop.
(TRANSPOSE,) = on_hopper("gluon_transpose")
(PIPELINE,) = on_hopper("gluon_async_pipeline")
SOFTMAX_ON_AMD = [path for path in ON_HIP if fixture_id(path).rpartition("/")[2] == "softmax"]
# Nothing may be moved across it.
BARRIER = re.compile(r"\bsched_barrier mask\(0x0+\)")
# One whose CTAs have more warps than num_warps says; the oldest Triton has none.
SPECIALISED = on_hopper("gluon_warp_specialized")
# Of shared memory they take next to nothing, a few KiB, or most of it.
OF_EVERY_SIZE = on_hopper("gluon_transpose", "layer_norm", "matmul")


@cache
def made(path: Path, mode: Mode) -> Lowered:
    return lower(insertion_of(read(path), "func").text, *described(path), mode)


def high_clock_reads(lowered: Lowered) -> int:
    return len(re.findall(r"%clock_hi;|%clock64;", lowered.assembly))


def test_a_clock_of_32_bits_reads_no_other_half() -> None:
    whole, half = made(TRANSPOSE, Mode()), made(TRANSPOSE, Mode(clock_bits=32))
    assert (whole.clock_reads, high_clock_reads(whole)) == (2, 2)
    assert (half.clock_reads, high_clock_reads(half)) == (2, 0)


def test_stores_that_may_be_moved_give_other_code() -> None:
    text = insertion_of(read(PIPELINE), style=Style().for_mode(Mode(sched_stores=True))).text
    stored, moved = (lower(text, *described(PIPELINE), Mode(sched_stores=sched)) for sched in (False, True))
    assert stored.clock_reads == moved.clock_reads == 6
    assert instructions(stored) != instructions(moved)


@pytest.mark.parametrize("path", SOFTMAX_ON_AMD, ids=fixture_id)
def test_scheduling_barriers_stand_around_records(path: Path) -> None:
    done = insertion_of(read(path), "func", "loop", "iter")
    without, barred = (lower(done.text, *described(path), Mode(sched_barriers=on)) for on in (False, True))
    assert BARRIER.findall(without.assembly) == []
    # One before and one behind each record; records side by side share one.
    assert len(done.plan.records) < len(BARRIER.findall(barred.assembly)) <= 2 * len(done.plan.records)
    assert barred.clock_reads == len(done.plan.records)


def test_scheduling_barriers_are_refused_for_nvidia() -> None:
    with pytest.raises(KprofError, match="--sched-barriers needs an AMD GPU"):
        lower(insertion_of(read(PIPELINE), "func").text, *described(PIPELINE), Mode(sched_barriers=True))


def instructions(lowered: Lowered) -> list[str]:
    """The operations of the machine code in their order."""
    return re.findall(r"^\s+(?:@!?%p\d+ )?([a-z]\S*)", lowered.assembly, re.MULTILINE)


@pytest.mark.slow
@pytest.mark.parametrize("path", [TRANSPOSE, *SPECIALISED], ids=fixture_id)
@pytest.mark.parametrize(
    "mode",
    [
        Mode(),
        Mode(buffer_bytes=20000),
        Mode(warps=(0, 1, 3)),
        Mode(warps=(2, 77), buffer_bytes=1024),
        Mode("shared", 20000, 32, (1, 2, 3), True),
        *([Mode("global"), Mode("global", 20000, warps=(1, 2, 3))] if RELEASE >= (3, 6) else []),
    ],
    ids=str,
)
def test_a_cta_keeps_the_bytes_that_were_chosen(path: Path, mode: Mode) -> None:
    total_warps = int(made(path, Mode()).metadata["num_warps"])
    clean_bytes = shared_bytes(path)
    kernel_mode = mode_of_kernel(mode, clean_bytes, total_warps, None, HOPPER)
    metadata = made(path, kernel_mode).metadata
    assert metadata["profile_scratch_size"] == row_bytes(kernel_mode.buffer_bytes, total_warps)
    in_shared = kernel_mode.buffer_bytes if mode.buffer == "shared" else 0
    assert 0 <= metadata["shared"] - clean_bytes - in_shared < 8


@pytest.mark.parametrize("path", OF_EVERY_SIZE, ids=fixture_id)
def test_auto_is_never_more_than_proton_takes_by_itself(path: Path) -> None:
    clean_bytes = shared_bytes(path)
    metadata = made(path, Mode()).metadata
    taken = metadata["shared"] - -(-clean_bytes // 8) * 8
    warps = int(metadata["num_warps"])
    chosen = mode_of_kernel(Mode(), clean_bytes, warps, None, HOPPER).buffer_bytes
    if keeps_occupancy(taken, clean_bytes, warps, None, HOPPER):
        assert chosen == taken
    else:
        assert chosen < taken


@pytest.mark.exhaustive
@pytest.mark.parametrize("path", installed_fixtures(), ids=fixture_id)
def test_a_fixture_with_everything_unusual(path: Path) -> None:
    view = fixture_view(read(path))
    mode = Mode("shared", 0, 32, (0, 2), True)
    lowered(path, view, make_plan(view, (), Style().for_mode(mode)), mode)


@pytest.mark.parametrize(("target", "first", "maker"), [("cuda-90", (3, 6), "NVIDIA"), ("hip-gfx942", (3, 7), "AMD")])
def test_global_memory_is_refused_where_proton_cannot(target: str, first: tuple[int, int], maker: str) -> None:
    path = next(path for path in installed_fixtures() if fixture_id(path).endswith(f"/{target}/vector_add"))
    if first <= RELEASE:
        assert made(path, Mode("global", 16384)).metadata["profile_scratch_size"] > 16384
        return
    with pytest.raises(KprofError, match=f"keep records in global memory on {maker}"):
        made(path, Mode("global", 16384))
