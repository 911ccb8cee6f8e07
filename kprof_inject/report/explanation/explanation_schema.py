"""What ``explain`` prints: each record with its fields and their units. ``docs/explain.schema.json`` is made of it.

A field's name has its unit; a share is a part from 0 to 1. What is not known is null. ``SCHEMA_VERSION`` changes when a
field goes, or means something else; new fields leave it as it is.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from kprof_inject.timeline.clock import ClockSource
from kprof_inject.timeline.trust import Level

Version = Literal[1]
SCHEMA_VERSION: Version = 1

Count = Annotated[int, Meta(ge=0)]
Time = Annotated[float, Meta(ge=0)]
Share = Annotated[float, Meta(ge=0)]
"""It may be a little above 1: what it is made of was measured by two clocks."""


class SubjectFact(Struct, frozen=True):
    """The launch that is explained. source_sha256 is what sha256sum prints of the kernel's source file; of several, of
    all of them in the order of their paths."""

    name: str
    variant: str
    launch: Count
    launches_captured: Count
    launches_in_program: Count | None
    share_of_program: Share | None
    time_ns: Time
    grid: tuple[Count, Count, Count]
    ctas: Count
    warps: Count
    device: str
    source_sha256: str | None


class LimitFact(Struct, frozen=True):
    """What limits the launch. Without units it waits; if is_known is false, text says why nobody knows. least_shares
    are what each unit needs of the launch's time at least."""

    name: str
    units: tuple[str, ...]
    is_known: bool
    text: str
    least_shares: dict[str, Share]


class VerdictFact(Struct, frozen=True):
    """How far to trust the figures. The overhead is what recording costs, by an interval of 95 %."""

    level: Level
    text: str
    overhead_percent: float | None
    overhead_error_percent: float | None


class RecordsFact(Struct, frozen=True):
    """How many records were written, and what of them is missing."""

    written: Count
    lost: Count
    damaged: Count
    unpaired: Count


class Clock(Struct, frozen=True):
    """The SMs' clock. mhz is null where another profiler read the timer alone; error_percent, where durations may be
    off by any factor; timer_step_ns, where the timer's step was not seen."""

    source: ClockSource
    mhz: Time | None
    nominal_mhz: Time | None
    error_percent: Time | None
    timer_step_ns: Time | None


class Next(Struct, frozen=True):
    """The command to run next, in which PROG stands for the program, and what for."""

    command: str
    why: str


class FindingEvidence(Struct, frozen=True):
    """What limits the launch. share is what its removal may win at most; figures are those of the text."""

    rule: str
    scope: str | None
    share: Share
    text: str
    advice: str
    figures: dict[str, float | int | str]


class ScopeTime(Struct, frozen=True):
    """What a scope takes of the warps' time; p50_ns is one execution's median."""

    scope: str
    source: str
    share: Share
    self_share: Share
    p50_ns: Time | None
    executions: Count


class Wait(Struct, frozen=True):
    """What warps spend in a wait, of all their time. is_lost is false where the tensor cores may work meanwhile."""

    scope: str
    source: str
    share: Share
    p50_ns: Time | None
    executions: Count
    is_lost: bool


class PlaceFact(Struct, frozen=True):
    """What matters: by how many cycles the kernel takes longer for each cycle of delay there, ± with 95 % confidence,
    and the delay up to which nothing shows. reason says why a slope is not known."""

    scope: str
    slope: float | None
    slope_error: float | None
    spare_cycles: Time | None
    reason: str


class RoofPart(Struct, frozen=True):
    """The unit that needs most of a scope's cycles, and the least part that it needs."""

    scope: str
    unit: str
    least_share: Share


class Overlap(Struct, frozen=True):
    """Asynchronous work that goes on while warps do. blocked_share of its groups were waited for by a wait that
    blocked; latency_ns is the median of these, from issue to completion."""

    scope: str
    work: str
    depth: Count
    groups: Count
    blocked_share: Share
    latency_ns: Time | None


class NotJudged(Struct, frozen=True):
    """Rules that lack something: there may be a finding, or none."""

    rules: tuple[str, ...]
    reason: str
    remedy: str


class OtherKernel(Struct, frozen=True):
    """Another kernel of the capture."""

    name: str
    launches: Count
    time_ns: Time
    share_of_program: Share | None
    limit: str
    level: Level


class Explanation(Struct, frozen=True, tag_field="what", tag="explanation"):
    """Why a launch takes as long as it does. The lists have what matters most first; left_out says how many of each are
    not there, for the budget has no room."""

    schema: Version
    kernel: SubjectFact
    limit: LimitFact
    verdict: VerdictFact
    records: RecordsFact
    clock: Clock
    next: Next
    findings: tuple[FindingEvidence, ...]
    waits: tuple[Wait, ...]
    places: tuple[PlaceFact, ...]
    scopes: tuple[ScopeTime, ...]
    roofs: tuple[RoofPart, ...]
    overlap: tuple[Overlap, ...]
    not_judged: tuple[NotJudged, ...]
    other_kernels: tuple[OtherKernel, ...]
    left_out: dict[str, Count]


def json_schema() -> dict[str, Any]:
    """JSON Schema 2020-12 of what ``explain`` prints."""
    made: dict[str, Any] = _on_one_line(msgspec.json.schema(Explanation))
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "kprof-inject explain", **made}


def _on_one_line(value: Any) -> Any:
    """With each text on one line: how a docstring is indented depends on Python's version."""
    if isinstance(value, str):
        return " ".join(value.split())
    if isinstance(value, dict):
        return {key: _on_one_line(part) for key, part in value.items()}
    return [_on_one_line(part) for part in value] if isinstance(value, list) else value
