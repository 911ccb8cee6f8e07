"""Launches whose CTAs wait for flags and change them at given times."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from buffers import Scope
from replacing import replace
from timelines import cta_rows, made_timeline

from kprof_inject.capture.schema import FlagMemoryRecord
from kprof_inject.timeline.axis import Axis, DeviceClock, PlacedLaunch
from kprof_inject.timeline.columns import NO_TAG, scope_columns

DEVICES: dict[str, Any] = {"device_names": ("H200", "H200"), "device_uuids": ("GPU-0", "GPU-1")}
FLAG = 0x7F00_0000_1000
LENGTH_NS = 1_000_000
WAIT, SET, ADD, TAKE, WORK = 1, 2, 3, 4, 5


def flag(does: str, scope: str, condition: str = "", **values: Any) -> dict[str, Any]:
    tags = {name: {"name": f"flag.{name}", "record": f"{name} of {scope}"} for name in ("address", "value")}
    tags["address"]["is_wide"] = True  # type: ignore[assignment]
    return {"does": does, "condition": condition, **tags, **values}


SCOPES = [
    Scope("func"),
    Scope("wait", "spin", 0, flag=flag("waits", "wait", "slt")),
    Scope("set", "signal", 0, flag=flag("sets", "set")),
    Scope("add", "signal", 0, flag=flag("adds", "add")),
    Scope("take", "spin", 0, flag=flag("takes", "take", "")),
    Scope("work", "op", 0),
]


class Use(NamedTuple):
    """A CTA in a scope, from ``start_ns`` to ``end_ns``."""

    cta: int
    scope: int
    start_ns: int
    end_ns: int
    value: int = NO_TAG
    address: int = FLAG
    peer: int = NO_TAG
    """For scopes with a flag and a tag of the user's."""
    warp: int = 0


def sm_of(cta: int, sms: int | None) -> int:
    return 5 + (cta if sms is None else cta % sms)


def depth_of(scopes: Sequence[Scope], scope: int) -> int:
    parent = scopes[scope].parent
    return 0 if parent < 0 else 1 + depth_of(scopes, parent)


def launch(
    folder: Path,
    uses: Sequence[Use],
    place: str = "",
    *,
    error_ns: int = 0,
    clock_hz: float | None = None,
    memory: Sequence[FlagMemoryRecord] = (),
    scopes: Sequence[Scope] = SCOPES,
    sms: int | None = None,
) -> PlacedLaunch:
    """A launch of one warp a CTA. Processes differ by ``place``; ``error_ns`` is that between any two of them. Each CTA
    is on its own SM, or they take turns on a number of ``sms``."""
    tagged = {number for number, scope in enumerate(scopes) if scope.flag and scope.tags}
    tags = 3 if tagged else 2
    rows = np.zeros(len(uses), dtype=scope_columns(tags))
    rows["tags"] = NO_TAG
    for number, (row, use) in enumerate(
        zip(rows, sorted(uses, key=lambda one: (one.cta, one.warp, one.start_ns)), strict=True)
    ):
        row["start_record"], row["end_record"], row["iteration"] = 2 * number, 2 * number + 1, -1
        row["scope"], row["cta"], row["sm"], row["warp"] = use.scope, use.cta, sm_of(use.cta, sms), use.warp
        row["depth"] = depth_of(scopes, use.scope)
        row["start_ns"], row["end_ns"], row["duration_ns"] = use.start_ns, use.end_ns, use.end_ns - use.start_ns
        own = (*([use.peer] if use.scope in tagged else ()), use.address, use.value)
        row["tags"][: len(own)] = own
    count = max(use.cta for use in uses) + 1
    ends_ns = [max((use.end_ns for use in uses if use.cta == cta), default=LENGTH_NS) for cta in range(count)]
    ctas = cta_rows(
        *((cta, sm_of(cta, sms), 0, end_ns if sms else LENGTH_NS, LENGTH_NS) for cta, end_ns in enumerate(ends_ns))
    )
    warps = max(use.warp for use in uses) + 1
    timeline = made_timeline(folder, scopes, [rows], ctas, warps=warps, first_ns=0, last_ns=LENGTH_NS)
    kernel = timeline.launch.kernel
    clock = replace(timeline.clock, rate_ns=1e9 / (clock_hz or kernel.sm_clock_hz))
    origin = replace(timeline.launch.origin, name=place, flag_memory=tuple(memory), **DEVICES)
    timeline = replace(timeline, clock=clock, launch=replace(timeline.launch, origin=origin))
    axis = Axis(number=0, devices=2, zero_ns=0, error_ns=error_ns)
    return PlacedLaunch(timeline, place, DeviceClock(axis, None, error_ns, place), None)
