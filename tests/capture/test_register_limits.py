"""Tests of the limit of registers with which CTAs fit on an SM."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kprof_inject.capture.resources import ctas_per_sm, limits_of, registers_for

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
