"""Records that ``explain`` prints, with their fields and units, and their JSON, cut to fit a token budget.

``docs/explain.schema.json`` is made from them.
A field's name has its unit; a share is a part from 0 to 1. Unknown values are null. ``SCHEMA_VERSION`` changes if a
field goes or changes its meaning; it stays if a field is added.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from kprof_inject.capture.edits import Outcome, Results
from kprof_inject.capture.encoding import schema_of
from kprof_inject.errors import KprofError, printable
from kprof_inject.timeline.clock import ClockSource
from kprof_inject.timeline.trust import Level

Version = Literal[1]
SCHEMA_VERSION: Version = 1

Count = Annotated[int, Meta(ge=0)]
Time = Annotated[float, Meta(ge=0)]
Gain = Annotated[float, Meta(le=1)]
Share = Annotated[float, Meta(ge=0)]
"""May slightly exceed 1: its two terms were measured by different clocks."""


class SubjectFact(Struct, frozen=True):
    """The launch that is explained.

    to_win_ns is the time of all its launches that could be won at most; to_win_by has the edits that won it, or the
    finding whose advice may. source_sha256 is what sha256sum prints of the kernel's source file; of several files, in
    the order of their paths, of all together.
    """

    name: str
    variant: str
    launch: Count
    launches_captured: Count
    launches_in_program: Count | None
    share_of_program: Share | None
    to_win_ns: Time | None
    to_win_by: str
    time_ns: Time
    grid: tuple[Count, Count, Count]
    ctas: Count
    warps: Count
    device: str
    source_sha256: str | None


class LimitFact(Struct, frozen=True):
    """Limit of the launch.

    Without units it waits; if is_known is false, text says why the limit is unknown. least_shares are the shares of the
    launch's time that each unit needs: lower bounds if evidence is computed, else what the hardware counted.
    """

    name: str
    units: tuple[str, ...]
    is_known: bool
    text: str
    least_shares: dict[str, Share]
    evidence: Literal["computed", "measured"]


class VerdictFact(Struct, frozen=True):
    """Trust in the figures; the overhead is the cost of recording, with a 95 % confidence interval."""

    level: Level
    text: str
    overhead_percent: float | None
    overhead_error_percent: float | None


class RecordsFact(Struct, frozen=True):
    """Number of records written, and of those missing."""

    written: Count
    lost: Count
    damaged: Count
    unpaired: Count


class Clock(Struct, frozen=True):
    """Clock of the SMs.

    mhz is null if another profiler read the timer alone; error_percent is null if durations may be off by any factor;
    timer_step_ns is null if the timer's step was not seen.
    """

    source: ClockSource
    mhz: Time | None
    nominal_mhz: Time | None
    error_percent: Time | None
    timer_step_ns: Time | None


class Next(Struct, frozen=True):
    """Command to run next, with PROG for the program, and its purpose."""

    command: str
    why: str


class FindingEvidence(Struct, frozen=True):
    """Reason that limits the launch: share is the most that its removal can gain, figures are those of the text.

    won_share is the most that an edit which try made for it gained; null if none was measured.
    """

    rule: str
    scope: str | None
    share: Share
    won_share: Gain | None
    text: str
    advice: str
    figures: dict[str, float | int | str]


class TriedEdit(Struct, frozen=True):
    """Edits that try made together, such as num_stages=4, and measured on a saved launch of this kernel.

    won_share is the part of the kernel's time that they save, with its 95 % interval, and negative if they cost time;
    null if they were not measured. is_best is true for the edits that a second process confirmed to win. finding is the
    rule that proposed them, predicted_share the most that it promised. results are those of the kernel: identical, or
    within the tolerance; empty if they were not compared. refusal is the reason why the edits are not used.
    """

    edits: str
    outcome: Outcome
    is_best: bool
    won_share: Gain | None
    won_share_low: Gain | None
    won_share_high: Gain | None
    predicted_share: Share | None
    finding: str | None
    results: Results
    refusal: str


class ScopeTime(Struct, frozen=True):
    """Share of the warps' time that a scope takes; p50_ns is the median of one execution."""

    scope: str
    source: str
    share: Share
    self_share: Share
    p50_ns: Time | None
    executions: Count


class Wait(Struct, frozen=True):
    """Share of the warps' time spent in a wait.

    is_lost is false if the tensor cores may work meanwhile.
    """

    scope: str
    source: str
    share: Share
    p50_ns: Time | None
    executions: Count
    is_lost: bool


class PlaceFact(Struct, frozen=True):
    """Slope of a place: cycles that the kernel loses for each cycle of delay there, ± with 95 % confidence.

    spare_cycles is the delay up to which the kernel's time does not change. reason says why a slope is unknown.
    """

    scope: str
    slope: float | None
    slope_error: float | None
    spare_cycles: Time | None
    reason: str


class RoofPart(Struct, frozen=True):
    """Unit that needs most of a scope's cycles, and the minimum share of them that it needs."""

    scope: str
    unit: str
    least_share: Share


class UnitFact(Struct, frozen=True):
    """Utilization of a unit in the launch.

    computed (from TTGIR) and code (from the machine code) are lower bounds, measured was counted by the hardware; null
    is unknown.
    """

    unit: str
    computed: Share | None
    code: Share | None
    measured: Share | None


class StallFact(Struct, frozen=True):
    """Stall reason of the warps in a scope, in NVIDIA's terms: share is the part of their time there.

    source is the line where most of them wait for it, awaited_source that whose result they need.
    """

    scope: str
    reason: str
    share: Share
    error: Share
    source: str
    awaited_source: str


class Overlap(Struct, frozen=True):
    """Asynchronous work that runs while warps do.

    blocked_share is the share of its groups whose wait blocked; latency_ns is the median of these, from issue to
    completion.
    """

    scope: str
    work: str
    depth: Count
    groups: Count
    blocked_share: Share
    latency_ns: Time | None


class NotJudged(Struct, frozen=True):
    """Rules without the data that they need: there may be a finding, or none."""

    rules: tuple[str, ...]
    reason: str
    remedy: str


class OtherKernel(Struct, frozen=True):
    """Another kernel of the capture, with the time that could be won as in SubjectFact."""

    name: str
    launches: Count
    time_ns: Time
    share_of_program: Share | None
    to_win_ns: Time | None
    to_win_by: str
    limit: str
    level: Level


class OtherWork(Struct, frozen=True):
    """Work of the GPU in the program that was not recorded: kernels of libraries, copies, fills."""

    name: str
    kind: str
    count: Count
    total_ns: Time


class Explanation(Struct, frozen=True, tag_field="what", tag="explanation"):
    """Reasons why a launch takes as long as it does.

    The lists have the most important items first; left_out counts those of each list that exceed the budget.
    """

    schema: Version
    kernel: SubjectFact
    limit: LimitFact
    verdict: VerdictFact
    records: RecordsFact
    clock: Clock
    next: Next
    findings: tuple[FindingEvidence, ...]
    tried: tuple[TriedEdit, ...]
    waits: tuple[Wait, ...]
    places: tuple[PlaceFact, ...]
    scopes: tuple[ScopeTime, ...]
    roofs: tuple[RoofPart, ...]
    units: tuple[UnitFact, ...]
    stalls: tuple[StallFact, ...]
    overlap: tuple[Overlap, ...]
    not_judged: tuple[NotJudged, ...]
    other_kernels: tuple[OtherKernel, ...]
    other_work: tuple[OtherWork, ...]
    left_out: dict[str, Count]


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema 2020-12 of what ``explain`` prints."""
    return schema_of(Explanation, "kprof-inject explain")


DEFAULT_BUDGET = 2000

_CHARACTERS_IN_TOKEN = 4

# Lists by importance, the most important first. The first item of each list comes before the second of any.
_LISTS = (
    "tried",
    "units",
    "stalls",
    "waits",
    "places",
    "not_judged",
    "roofs",
    "scopes",
    "overlap",
    "other_work",
    "other_kernels",
)
# Findings come before the items of all other lists, and the first finding is never left out.
_FINDINGS = "findings"

_Item = tuple[str, int]
"""Name of a list, and an index into it."""


def tokens_of(text: str) -> int:
    """Return the estimated tokens of a text and its line end, at four characters a token."""
    return -(-(len(text) + 1) // _CHARACTERS_IN_TOKEN)


def explanation_text(explanation: Explanation, budget: int) -> str:
    """Return as much of the explanation as ``budget`` tokens allow.

    The least important items are left out, and counted. Raises a usage error that names the minimum budget.
    """
    items = _ranked(explanation)

    def text(kept: int) -> str:
        return msgspec.json.encode(_with(explanation, items[:kept])).decode()

    def tokens(kept: int) -> int:
        return tokens_of(text(kept))

    # An item is longer than its entry in left_out, so the text grows with each item and bisection is valid.
    fitting = bisect_right(range(len(items) + 1), budget, key=tokens)
    if not fitting:
        raise KprofError(
            f"a budget of {budget} tokens is too small for the required fields",
            hint=f"--budget {tokens(0)} or more",
            exit_code=2,
        )
    return text(fitting - 1)


def _ranked(explanation: Explanation) -> list[_Item]:
    """Return the items that may be left out, most important first."""
    findings = [(_FINDINGS, number) for number in range(1, len(explanation.findings))]
    other_items = ((name, number) for name in _LISTS for number in range(len(getattr(explanation, name))))
    # The sort is stable: the first items of all lists, in the order of the lists, then the second ones.
    return findings + sorted(other_items, key=lambda item: item[1])


def _with(explanation: Explanation, kept: Sequence[_Item]) -> Explanation:
    """Return the explanation with these items alone, and the first finding."""
    counts = {**dict.fromkeys(_LISTS, 0), _FINDINGS: min(len(explanation.findings), 1)}
    for name, _ in kept:
        counts[name] += 1
    lists = {name: getattr(explanation, name)[:count] for name, count in counts.items()}
    left_out = {name: len(getattr(explanation, name)) - count for name, count in counts.items()}
    return msgspec.structs.replace(
        explanation, **lists, left_out={name: count for name, count in left_out.items() if count}
    )


# Names that people write, and our own sentences, are shorter.
_MAX_NAME = 100
_MAX_TEXT = 400
_SIGNIFICANT_DIGITS = 4


def short_name(text: str) -> str:
    """Return the name of a kernel or a scope, or a path, with its middle cut out if it is too long."""
    shown = printable(text)
    if len(shown) <= _MAX_NAME:
        return shown
    half = _MAX_NAME // 2
    return f"{shown[: half - 1]}…{shown[-half:]}"


def short_text(text: str) -> str:
    """Return a sentence, with its end cut off if it is too long."""
    shown = printable(text)
    return shown if len(shown) <= _MAX_TEXT else f"{shown[: _MAX_TEXT - 1]}…"


def figure(value: float) -> float:
    """Return a number with four significant digits: no figure here is more exact."""
    return float(f"{value:.{_SIGNIFICANT_DIGITS}g}")


def known_figure(value: float | None) -> float | None:
    """Return a number with four significant digits; None if it is missing or not finite."""
    return None if value is None or not math.isfinite(value) else figure(value)


def short_figure(value: float | int | str) -> float | int | str:
    """Return a finding's figure: a count unchanged, a number rounded, a name cut."""
    if isinstance(value, str):
        return short_name(value)
    return figure(value) if isinstance(value, float) else value
