"""What a record costs where a capture does not say: figures of ``scripts/record-costs``, which prints these rows."""

from __future__ import annotations

from collections.abc import Mapping

Settings = tuple[str, int, bool, bool]
"""Of the mode: ``buffer``, ``clock_bits``, ``sched_stores``, and whether ``warps`` names some."""

SHIPPED: Mapping[tuple[str, str], Mapping[Settings, tuple[float, float, float]]] = {
    ("NVIDIA H200", "3.6"): {
        ("shared", 64, False, False): (16.8, 16.5, 13.8),
        ("shared", 64, False, True): (24.2, 24.0, 6.2),
        ("shared", 64, True, False): (9.0, 26.0, 12.0),
        ("shared", 32, False, False): (15.0, 14.5, 13.0),
        ("global", 64, False, False): (22.5, 22.0, 18.5),
        ("global", 64, True, False): (10.8, 27.5, 13.5),
        ("global", 32, False, False): (20.8, 20.5, 17.8),
    },
}
"""Cycles of a start, cycles of an end, and by how many either may be off (see ``RecordCost``): by the device's name and
Triton's minor version, as in ``("NVIDIA H200", "3.6")``, then by the mode."""
