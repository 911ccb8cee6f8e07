"""What an SM runs out of first."""

from __future__ import annotations

import pytest

from kprof_inject.capture.resources import KernelResources, limited_by

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
