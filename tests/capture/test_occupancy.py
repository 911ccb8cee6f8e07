"""CTAs on an SM, against figures worked out by hand from NVIDIA's tables."""

from __future__ import annotations

import pytest

from kprof_inject.capture.resources import ctas_per_sm, limits_of


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
