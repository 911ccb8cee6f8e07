"""CTAs on an SM, against figures worked out by hand from NVIDIA's tables."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kprof_inject.capture.resources import KernelResources, ctas_per_sm, limited_by, limits_of, registers_for


@pytest.mark.parametrize(
    ("target", "shared_bytes", "warps", "registers", "ctas"),
    [
        ("cuda:90", 0, 4, None, 16),  # 64 warps
        ("cuda:90", 0, 1, None, 32),  # the most CTAs
        ("cuda:90", 57344, 4, None, 4),  # (57344 + 1024) * 4 is all of 228 KiB
        ("cuda:90", 57345, 4, None, 3),  # given out in units of 128 bytes
        ("cuda:90", 232448, 4, None, 1),
        ("cuda:90", 232449, 4, None, 0),
        ("cuda:90", 0, 4, 128, 4),  # 65536 / (128 * 32) are 16 warps
        ("cuda:90", 0, 4, 129, 3),  # 136 are given out: 15.06 warps, in fours
        ("cuda:90", 0, 8, 255, 1),
        # As the driver of an H100 says of Inductor's kernels.
        ("cuda:90", 2048, 1, 168, 12),
        ("cuda:90", 2048, 1, 179, 8),
        ("cuda:90", 4096, 4, 72, 7),
        ("cuda:80", 0, 4, None, 16),
        ("cuda:86", 0, 4, None, 12),
        ("cuda:89", 50176, 4, None, 2),
        ("hip:gfx942", 32768, 4, 128, 2),
    ],
)
def test_the_scarcest_decides(target: str, shared_bytes: int, warps: int, registers: int | None, ctas: int) -> None:
    assert ctas_per_sm(limits_of(target), shared_bytes, warps, registers) == ctas


def test_a_target_that_is_not_in_the_tables_has_what_any_has() -> None:
    assert limits_of("cuda:999").cta_shared_bytes == 49152


# What an SM runs out of first.


H200 = "cuda:90"


@pytest.mark.parametrize(
    ("warps", "registers", "shared_bytes", "ctas", "what"),
    [
        (4, 32, 98_304, 2, "shared memory"),
        (4, 255, 1_024, 2, "registers"),
        (32, 16, 0, 2, "warps"),
        (1, None, 0, 32, "CTAs"),
        (4, 255, 98_304, 2, "shared memory and registers"),
    ],
)
def test_the_scarcest_is_named(warps: int, registers: int | None, shared_bytes: int, ctas: int, what: str) -> None:
    cost = KernelResources(registers, 0, shared_bytes=shared_bytes, ctas_per_sm=ctas)
    assert limited_by(H200, warps, cost) == what


def test_a_driver_that_says_otherwise_is_believed() -> None:
    assert limited_by(H200, 4, KernelResources(32, 0, shared_bytes=98_304, ctas_per_sm=1)) == ""


def test_without_a_target_nothing_is_named() -> None:
    assert limited_by("", 4, KernelResources(32, 0, shared_bytes=98_304, ctas_per_sm=2)) == ""


def test_without_the_driver_s_word_nothing_is_named() -> None:
    assert limited_by(H200, 4, KernelResources(32, 0, shared_bytes=98_304, ctas_per_sm=None)) == ""


# Tests of the limit of registers with which CTAs fit on an SM.


HOPPER = limits_of("cuda:90")


@given(
    shared_bytes=st.integers(0, 200_000),
    warps=st.sampled_from([1, 2, 4, 8, 16]),
    registers=st.integers(16, 255),
)
def test_with_so_many_the_ctas_fit_and_with_more_they_do_not(shared_bytes: int, warps: int, registers: int) -> None:
    ctas = ctas_per_sm(HOPPER, shared_bytes, warps, registers)
    found = registers_for(HOPPER, shared_bytes, warps, ctas)
    assert found is not None and found >= registers // 8 * 8
    assert ctas_per_sm(HOPPER, shared_bytes, warps, found) >= ctas
    assert found == 248 or ctas_per_sm(HOPPER, shared_bytes, warps, found + 8) < ctas


def test_ctas_that_never_fit_have_no_number() -> None:
    assert registers_for(HOPPER, 120_000, 4, 3) is None


def test_known_numbers() -> None:
    """65,536 registers of an SM: four CTAs of 128 threads have 128 each."""
    assert [registers_for(HOPPER, 0, 4, ctas) for ctas in (4, 5, 7, 16)] == [128, 96, 72, 32]
