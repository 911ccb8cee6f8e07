"""What a record costs where a capture does not say: figures of ``scripts/record-costs``, which prints these rows."""

from __future__ import annotations

from collections.abc import Mapping

Settings = tuple[str, int, bool, bool]
"""Of the mode: ``buffer``, ``clock_bits``, ``sched_stores``, and whether ``warps`` names some."""

SHIPPED: Mapping[tuple[str, str], Mapping[Settings, float]] = {}
"""Cycles, by the device's name and Triton's minor version (``("NVIDIA H200", "3.6")``), then by the mode."""
