"""How many bytes a CTA keeps for its records. What Proton does with them is in tests/runtime/test_lower.py."""

from __future__ import annotations

import pytest
from snapshots import check

from kprof_inject.capture.mode import Mode
from kprof_inject.capture.ring_sizes import (
    MAX_LAUNCH_BYTES,
    keeps_occupancy,
    mode_of_kernel,
    row_bytes,
    smaller_buffer_bytes,
)
from kprof_inject.errors import KprofError

H200 = "cuda:90"
AUTO = Mode()


def auto(shared_bytes: int, warps: int = 4, registers: int | None = None, target: str = H200) -> int:
    return mode_of_kernel(AUTO, shared_bytes, warps, registers, target).buffer_bytes


def test_auto_takes_what_proton_takes_where_that_costs_no_cta() -> None:
    assert auto(0) == 8192
    assert auto(98304) == 8192
    assert auto(130 * 1024) == 65536  # a single CTA: of what is left the largest power of two for each warp


def test_auto_takes_less_where_proton_would_cost_a_cta() -> None:
    # 13 CTAs fit, with 17959 bytes each: of those a KiB is reserved, and 16384 are the kernel's.
    assert auto(16384) == 512
    assert not keeps_occupancy(1024, 16384, 4, None, H200)


@pytest.mark.parametrize(("records", "ring_bytes"), [(2, 16), (6, 64), (16, 128), (10_000, 2048)])
def test_auto_takes_no_more_than_a_known_number_of_records_needs(records: int, ring_bytes: int) -> None:
    assert mode_of_kernel(AUTO, 0, 4, None, H200, records).buffer_bytes == 4 * ring_bytes


def test_auto_reckons_with_registers() -> None:
    # 96 registers let 5 CTAs run, and then each may have more.
    assert auto(16384, registers=96) == 8192


@pytest.mark.parametrize(("warps", "floor"), [(4, 512), (8, 1024)])
def test_auto_leaves_each_warp_16_records(warps: int, floor: int) -> None:
    # Four CTAs take all of the SM's shared memory.
    assert auto(57344, warps) == floor


def test_no_room_for_16_records_is_refused_with_the_figures() -> None:
    with pytest.raises(KprofError, match=r" 512 .* 232000 .* 232448 ") as caught:
        auto(232000)
    assert "--buffer-type global" in caught.value.hint
    check("capture/errors", caught.value.render(), "no room for records")


@pytest.mark.parametrize(
    ("mode", "bytes_"),
    [
        (Mode("shared", 4096), 4096),
        (Mode("shared", 5000), 4096),
        (Mode("shared", 4096, warps=(0, 1, 2)), 3072),  # 4096 / 3 are 1365: rings of 1024
        (Mode("shared", 131072), 131072),  # more than Proton would
        (Mode("global", 65536, warps=(2,)), 65536),
        (Mode("global"), 65536),
        (Mode("global", warps=(0, 9)), 16384),
    ],
)
def test_each_recorded_warp_gets_a_ring_that_is_a_power_of_two(mode: Mode, bytes_: int) -> None:
    assert mode_of_kernel(mode, 98304, 4, None, H200).buffer_bytes == bytes_


def test_named_bytes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(KprofError, match=r" 65536 .* 200000 .* 232448 ") as caught:
        mode_of_kernel(Mode("shared", 65536), 200000, 4, None, H200)
    check("capture/errors", caught.value.render(), "no room for named bytes")


def test_a_ring_that_cannot_hold_one_scope_is_refused() -> None:
    with pytest.raises(KprofError) as caught:
        mode_of_kernel(Mode("global", 32), 0, 8, None, H200)
    check("capture/errors", caught.value.render(), "a ring that is too small")


def test_a_kernels_mode_has_its_own_warps_and_bytes() -> None:
    mode = Mode("shared", 0, 32, (0, 4), True)
    assert mode_of_kernel(mode, 0, 4, None, H200) == Mode("shared", 8192, 32, (0,), True)
    assert mode_of_kernel(AUTO, 0, 4, None, H200) == Mode("shared", 8192)


def test_a_smaller_buffer_fits_the_budget_and_the_next_larger_does_not() -> None:
    mode = Mode("global", 65536)
    smaller = smaller_buffer_bytes(mode, 10_000, 4, 100_000_000)
    assert smaller == 8192
    assert 10_000 * row_bytes(smaller, 4) <= 100_000_000 < 10_000 * row_bytes(2 * smaller, 4)


def test_no_smaller_buffer_is_useful_below_16_records_a_warp() -> None:
    assert smaller_buffer_bytes(Mode("global", 65536), 1000, 4, 1000 * row_bytes(512, 4)) == 512
    assert smaller_buffer_bytes(Mode("global", 65536), 1000, 4, 1000 * row_bytes(512, 4) - 1) is None
    # What the user chose smaller may stay as small.
    assert smaller_buffer_bytes(Mode("global", 64), 1000, 4, 1000 * 128) == 64


def test_a_launch_stays_within_what_a_kernel_can_reckon() -> None:
    smaller = smaller_buffer_bytes(Mode("global", 65536), 40_000, 4, 1 << 40)
    assert smaller == 32768
    assert 40_000 * row_bytes(65536, 4) > MAX_LAUNCH_BYTES
