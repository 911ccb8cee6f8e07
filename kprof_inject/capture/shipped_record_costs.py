"""What a record costs where a capture does not say: figures of ``scripts/record-costs``, which prints these rows."""

from __future__ import annotations

from collections.abc import Mapping

Settings = tuple[str, int, bool, bool]
"""Of the mode: ``buffer``, ``clock_bits``, ``sched_stores``, and whether ``warps`` names some."""

SHIPPED: Mapping[tuple[str, str], Mapping[Settings, tuple[float, float, float]]] = {
    ("NVIDIA H200", "3.6"): {
        ("shared", 64, False, False): (15.2, 15.2, 15.2),
        ("shared", 64, False, True): (16.2, 16.2, 14.2),
        ("shared", 64, True, False): (12.0, 20.0, 20.0),
        ("shared", 64, True, True): (13.0, 20.5, 18.5),
        ("shared", 32, False, False): (13.5, 13.5, 13.5),
        ("shared", 32, False, True): (14.8, 14.8, 11.8),
        ("shared", 32, True, False): (9.0, 8.5, 7.5),
        ("shared", 32, True, True): (10.5, 17.5, 15.5),
        ("global", 64, False, False): (18.2, 18.2, 18.2),
        ("global", 64, False, True): (20.0, 20.0, 20.0),
        ("global", 64, True, False): (13.8, 20.0, 20.0),
        ("global", 64, True, True): (10.0, 29.5, 21.5),
        ("global", 32, False, False): (18.2, 18.2, 16.2),
        ("global", 32, False, True): (20.0, 20.0, 18.0),
        ("global", 32, True, False): (8.0, 10.0, 10.0),
        ("global", 32, True, True): (11.5, 23.5, 21.5),
    },
}
"""Cycles of a start, cycles of an end, and by how many either may be off (see ``RecordCost``): by the device's name and
Triton's minor version, as in ``("NVIDIA H200", "3.6")``, then by the mode."""
