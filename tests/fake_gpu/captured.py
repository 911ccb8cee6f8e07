"""What lies in a capture of the fake GPU's launches."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any

from fake_gpu.kernels import n_of
from kprof_inject.capture.model import Launch
from kprof_inject.capture.reader import read_capture
from kprof_inject.capture.scopes import Scope
from kprof_inject.timeline.pairs import ScopeRules
from kprof_inject.timeline.pairs import scopes_of as scopes_of_records
from kprof_inject.timeline.records import read_raw, record_decoder
from kprof_inject.timeline.timeline import _scope_of_id, decode_launch


def launches_in(capture: Path, kernel: str = "*") -> list[Launch]:
    """The launches of one kernel, or of all."""
    return [launch for launch in read_capture(capture).launches if kernel in ("*", launch.kernel.name)]


def number_of(launch: Launch) -> int:
    """The ``n`` of a launch, from its records: those of all warps must be there, and tell the same. No clock is fitted,
    which takes most of a decoder's time."""
    kernel, table = launch.kernel, launch.kernel.scopes
    raw = read_raw(launch)
    decoder = record_decoder(raw, _scope_of_id(kernel.scope_ids, table), clock_bits=kernel.mode.clock_bits)
    (rows,) = decoder.blocks()
    records, pairs = scopes_of_records(decoder.decode(rows), ScopeRules.of(table))
    ran = Counter(zip(records.group[pairs.start_at].tolist(), pairs.scope.tolist(), strict=True))
    expected = prod(launch.grid) * kernel.num_warps * len(table.scopes)
    assert len(ran) == ran.total() == expected, f"launch {launch.index} lacks records"
    innermost = pairs.scope == max(range(len(table.scopes)), key=lambda scope: _depth(table.scopes, scope))
    cycles = set((records.cycles[pairs.end_at] - records.cycles[pairs.start_at])[innermost].tolist())
    assert len(cycles) == 1, f"launch {launch.index} has records of several: {cycles}"
    return n_of(cycles.pop())


def _depth(scopes: Sequence[Scope], scope: int) -> int:
    return 0 if scope < 0 else 1 + _depth(scopes, scopes[scope].parent)


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
