"""What lies in a capture of the fake GPU's launches."""

from __future__ import annotations

import json
from collections import Counter
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from fake_gpu.kernels import n_of
from kprof_inject.capture.model import Launch
from kprof_inject.capture.reader import read_capture
from kprof_inject.timeline.timeline import decode_launch


def launches_in(capture: Path, kernel: str = "*") -> list[Launch]:
    """The launches of one kernel, or of all."""
    return [launch for launch in read_capture(capture).launches if kernel in ("*", launch.kernel.name)]


def number_of(launch: Launch) -> int:
    """The ``n`` of a launch, from its records: those of all warps must be there, and tell the same."""
    # Each time it is asked for its scopes, a timeline reads its buffer anew.
    scopes = decode_launch(launch).scopes
    deepest = scopes[scopes["depth"] == scopes["depth"].max()]
    cycles = set((deepest["end_cycles"] - deepest["start_cycles"]).tolist())
    assert len(cycles) == 1, f"launch {launch.index} has records of several: {cycles}"
    recorded = np.unique(scopes[["cta", "warp", "scope"]])
    expected = prod(launch.grid) * launch.kernel.num_warps * len(launch.kernel.scopes.scopes)
    assert len(recorded) == len(scopes) == expected, f"launch {launch.index} lacks records"
    return n_of(cycles.pop())


def numbers_in(capture: Path, kernel: str = "scale") -> list[tuple[int, int]]:
    """The index and the ``n`` of each saved launch of a kernel, in order."""
    return sorted((launch.index, number_of(launch)) for launch in launches_in(capture, kernel))


def scopes_of(launch: Launch) -> Counter[str]:
    """How often each scope ran, by the user's name."""
    timeline = decode_launch(launch)
    return Counter(timeline.table.scopes[index].name for index in timeline.scopes["scope"].tolist())


def ends_of(capture: Path) -> list[dict[str, Any]]:
    """What each process that came to its end left as ``end.json``."""
    return [json.loads(path.read_text()) for path in sorted(capture.glob("*/end.json"))]


def left_out(capture: Path) -> Counter[str]:
    """The launches that all processes left out, by reason."""
    return sum((Counter(end["left_out"]) for end in ends_of(capture)), Counter[str]())


def states_in(reports: Path) -> Counter[tuple[str, str, str]]:
    """How many variants of a kernel became what and why."""
    reported = [json.loads(path.read_text()) for path in reports.glob("*.json")]
    kernels = [kernel for report in reported for kernel in report["kernels"].values()]
    return Counter((kernel["name"], kernel["state"], kernel["reason"]) for kernel in kernels)
