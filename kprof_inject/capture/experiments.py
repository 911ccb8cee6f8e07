"""Files of ``causal``: what was delayed in a kernel, by how much, and how long the kernel then took.

``docs/file-formats.md`` describes the file.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

from msgspec import Meta, Struct

from kprof_inject.capture.resources import Resources
from kprof_inject.capture.schema import (
    SCOPE_IDS,
    Argument,
    Count,
    Cycles,
    FileName,
    Grid,
    Name,
    SmClockHz,
    Target,
    Text,
    Warps,
)
from kprof_inject.capture.scopes import ScopeTable

DELAYS_FILE = "delays.json"
EXPERIMENT_ENDING = ".experiment.json"

MAX_EXPERIMENT_BYTES = 64 << 20
"""Limit for one kernel: some hundred builds, each timed some thousand times together with its reference."""

DelayCycles = Annotated[int, Meta(ge=0, lt=1 << 25)]
MeasuredNs = Annotated[float, Meta(ge=1, lt=1e18)]
ScopeIndex = Annotated[int, Meta(ge=0, lt=SCOPE_IDS)]


class DelayedBuildRecord(Struct, frozen=True, kw_only=True):
    """Build of a kernel with a delay at the start of one scope of the table, in the folder ``binary``.

    ``whole_share`` is the share by which the kernel takes longer if none of the delay is hidden; 0 if unknown.
    """

    scope: ScopeIndex
    delay_cycles: DelayCycles
    whole_share: Annotated[float, Meta(ge=0, lt=1e9)] = 0
    binary: FileName | None = None
    refusal: Text = ""


class DelaysRecord(Struct, frozen=True, kw_only=True):
    """Content of a variant's ``delays.json``: the builds that an experiment with it needs.

    ``plain`` is the folder of the build without a delay. ``warps`` are the warps of a CTA that are delayed, empty for
    all. ``spin_kernel`` is PTX that measures ``spin_rounds`` of each of ``spin_cycles`` alone.
    """

    scopes: ScopeTable
    builds: tuple[DelayedBuildRecord, ...]
    plain: FileName
    spin_kernel: Text = ""
    spin_cycles: tuple[DelayCycles, ...] = ()
    spin_rounds: Annotated[int, Meta(ge=1, lt=1 << 16)] = 1
    warps: Warps = ()

    def __post_init__(self) -> None:
        _require_different(self.builds, "builds")


class MeasuredDelayRecord(Struct, frozen=True, kw_only=True):
    """Times of a kernel with a delay, each with the mean time without it immediately before and after."""

    scope: ScopeIndex
    delay_cycles: DelayCycles
    ns: tuple[MeasuredNs, ...] = ()
    clean_ns: tuple[MeasuredNs, ...] = ()
    registers: Annotated[int, Meta(ge=0, lt=1 << 16)] | None = None
    refusal: Text = ""

    def __post_init__(self) -> None:
        if len(self.ns) != len(self.clean_ns):
            raise ValueError("expected as many times without a delay as with it")


def _require_different(builds: Iterable[DelayedBuildRecord | MeasuredDelayRecord], name: str) -> None:
    seen: set[tuple[int, int]] = set()
    for build in builds:
        if (build.scope, build.delay_cycles) in seen:
            raise ValueError(f"expected each delay of a scope once in {name}, got {build.delay_cycles} cycles twice")
        seen.add((build.scope, build.delay_cycles))


class SpinRecord(Struct, frozen=True):
    """Duration of a delay where nothing else is done."""

    delay_cycles: DelayCycles
    cycles: Cycles


class ExperimentRecord(Struct, frozen=True, kw_only=True):
    """Experiment with one variant in one process.

    A time is that of ``launches`` launches back to back, divided by their number. ``sm_clock_hz`` was measured.
    """

    name: Name
    variant: FileName
    pid: Annotated[int, Meta(ge=0, lt=1 << 32)]
    scopes: ScopeTable
    target: Target | None = None
    device_name: Name = ""
    sm_count: Annotated[int, Meta(ge=1, lt=1 << 16)] | None = None
    nominal_clock_hz: SmClockHz | None = None
    sm_clock_hz: Annotated[float, Meta(ge=1, lt=1e11)] | None = None
    l2_bytes: Annotated[int, Meta(ge=1, lt=1 << 48)] | None = None
    clean: Resources = Resources()
    grid: Grid
    arguments: Annotated[tuple[Argument | None, ...], Meta(max_length=1 << 12)] = ()
    delays: tuple[MeasuredDelayRecord, ...]
    spins: tuple[SpinRecord, ...] = ()
    warps: Warps = ()
    launches: Annotated[int, Meta(ge=1, lt=1 << 16)] = 1
    seconds: Annotated[float, Meta(ge=0, lt=1e9)] = 0
    timed: Count = 0
    ended: Literal["precise", "often", "time"] = "time"

    def __post_init__(self) -> None:
        for delay in self.delays:
            if delay.scope >= len(self.scopes.scopes):
                raise ValueError(f"expected a scope of the table, got {delay.scope}")
        _require_different(self.delays, "delays")
