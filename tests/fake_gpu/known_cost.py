"""Spares a test that runs a program in a workspace the measuring of what a record costs."""

from __future__ import annotations

from dataclasses import astuple

import triton

from kprof_inject.capture.mode import Mode
from kprof_inject.capture.record_costs import CostKey, MeasuredCost, write_costs
from kprof_inject.workspace import Workspace


def keep_cost(workspace: Workspace) -> None:
    """What a record costs on the fake GPU, as if it had been measured there."""
    key = CostKey.of("Fake H200", triton.__version__, Mode())
    cost = MeasuredCost(*astuple(key), 34.0, 34.0, 34.0, 34.0, 34.0, 34.0, 0.0, 1)
    write_costs(workspace.calibration_folder / "record_costs.json", [cost])
