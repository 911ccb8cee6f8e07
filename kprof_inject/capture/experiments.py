"""What ``causal`` saves of a kernel: what was delayed, by how much, and how long the kernel then took.

``docs/capture-format.md`` describes the file.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

from msgspec import Meta, Struct

from kprof_inject.capture.schema import (
    SCOPE_IDS,
    Argument,
    Bytes,
    Count,
    Cycles,
    FileName,
    GridSize,
    Name,
    Resources,
    ScopeTableRecord,
    Target,
    Text,
    Warps,
    require_measured,
)

EXPERIMENT_VERSION = 1
DELAYS_FILE = "delays.json"
EXPERIMENT_ENDING = ".experiment.json"

MAX_EXPERIMENT_BYTES = 64 << 20
"""Of one kernel: some hundred builds, each timed some thousand times, with what it is compared with."""

DelayCycles = Annotated[int, Meta(ge=0, lt=1 << 25)]
MeasuredNs = Annotated[float, Meta(ge=1, lt=1e18)]
ScopeIndex = Annotated[int, Meta(ge=0, lt=SCOPE_IDS)]


class DelayedBuildRecord(Struct, frozen=True, kw_only=True):
    """A kernel with a delay at the start of one scope of the table; ``binary`` names the folder of what was compiled,
    ``refusal`` says why there is none. ``whole_share`` is by which part the kernel takes longer if nothing of the delay
    is hidden, as far as that is known; 0 if not."""

    scope: ScopeIndex
    delay_cycles: DelayCycles
    whole_share: Annotated[float, Meta(ge=0, lt=1e9)] = 0
    binary: FileName | None = None
    refusal: Text = ""


class DelaysRecord(Struct, frozen=True, kw_only=True):
    """``delays.json`` of a variant: what an experiment with it needs. ``scopes`` are what is delayed, ``plain`` is the
    folder of what the same compiler makes of the kernel without a delay, ``warps`` which warps of a CTA are delayed,
    if not all. ``spin_kernel`` is PTX that measures ``spin_rounds`` of each of ``spin_cycles`` by themselves."""

    scopes: ScopeTableRecord
    builds: tuple[DelayedBuildRecord, ...]
    plain: FileName
    spin_kernel: Text = ""
    spin_cycles: tuple[DelayCycles, ...] = ()
    spin_rounds: Annotated[int, Meta(ge=1, lt=1 << 16)] = 1
    warps: Warps = ()

    def __post_init__(self) -> None:
        _require_different(self.builds, "builds")


class MeasuredDelayRecord(Struct, frozen=True, kw_only=True):
    """A kernel with a delay that was timed: ``ns`` of each time, and in ``clean_ns`` what it took without, right before
    and right behind, on average. ``refusal`` says why it was not timed."""

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
    for one in builds:
        if (one.scope, one.delay_cycles) in seen:
            raise ValueError(f"expected each delay of a scope once in {name}, got {one.delay_cycles} cycles twice")
        seen.add((one.scope, one.delay_cycles))


class SpinRecord(Struct, frozen=True):
    """What a delay takes where nothing else is done."""

    delay_cycles: DelayCycles
    cycles: Cycles


class ExperimentRecord(Struct, frozen=True, kw_only=True):
    """Of one variant in one process. A time is that of ``launches`` launches back to back, divided by their number.
    ``replayed``: the kernel was launched again with its memory restored; if not, these are the program's own launches.
    ``sm_clock_hz`` is what its SMs ran at meanwhile, 0 if that is unknown. ``ended`` says why it ended when it did."""

    version: int = EXPERIMENT_VERSION
    name: Name
    variant: FileName
    pid: Annotated[int, Meta(ge=0, lt=1 << 32)]
    scopes: ScopeTableRecord
    target: Target | None = None
    device_name: Name = ""
    sm_count: Annotated[int, Meta(ge=0, lt=1 << 16)] = 0
    nominal_clock_hz: Annotated[float, Meta(ge=0, lt=1e11)] = 0
    sm_clock_hz: Annotated[float, Meta(ge=0, lt=1e11)] = 0
    l2_bytes: Bytes = 0
    clean: Resources = Resources()
    grid: tuple[GridSize, GridSize, GridSize]
    arguments: Annotated[tuple[Argument | None, ...], Meta(max_length=1 << 12)] = ()
    delays: tuple[MeasuredDelayRecord, ...]
    spins: tuple[SpinRecord, ...] = ()
    warps: Warps = ()
    launches: Annotated[int, Meta(ge=1, lt=1 << 16)] = 1
    replayed: bool = True
    seconds: Annotated[float, Meta(ge=0, lt=1e9)] = 0
    timed: Count = 0
    ended: Literal["precise", "often", "time", "program"] = "time"

    def __post_init__(self) -> None:
        if self.version != EXPERIMENT_VERSION:
            raise ValueError(f"the experiment has version {self.version}, this program reads {EXPERIMENT_VERSION}")
        for one in self.delays:
            if one.scope >= len(self.scopes.scopes):
                raise ValueError(f"expected a scope of the table, got {one.scope}")
        _require_different(self.delays, "delays")
        require_measured([self.nominal_clock_hz], "nominal_clock_hz")
        require_measured([self.sm_clock_hz], "sm_clock_hz")
