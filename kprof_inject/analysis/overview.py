"""The kernels of a capture side by side: what each takes of the program's time on the GPU, and what limits it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from kprof_inject.analysis.launch_report import LaunchReport
from kprof_inject.timeline.trust import median_time_ns


@dataclass(frozen=True, slots=True)
class KernelOverview:
    """One kernel, in all its compiled variants."""

    name: str
    variants: int
    reports: tuple[LaunchReport, ...]
    """Its launches in the capture."""
    launches: int | None
    """How often the program launched it; None if that is not known of all variants."""
    time_ns: float
    """The middle of its launches, by the device's timer."""
    share: float | None
    """Its part of the time that all launches of the program took, 0 to 1; None if their number is not known of all
    kernels."""
    typical: LaunchReport
    """Of the variant that takes most time, the launch in the middle."""

    @property
    def known_launches(self) -> int:
        """How often the program launched it; if that is not known, how many launches the capture has."""
        return len(self.reports) if self.launches is None else self.launches


def overview(reports: Sequence[LaunchReport]) -> tuple[KernelOverview, ...]:
    """The kernel that takes most of the time first. Those with one name are one kernel."""
    by_name: dict[str, list[_Variant]] = {}
    for variant in _variants(reports):
        by_name.setdefault(variant.reports[0].summary.kernel, []).append(variant)
    weights_ns = {name: sum(variant.weight_ns for variant in variants) for name, variants in by_name.items()}
    whole_ns = sum(weights_ns.values())
    if not whole_ns or any(variant.launches is None for variants in by_name.values() for variant in variants):
        shares: dict[str, float | None] = dict.fromkeys(by_name)
    else:
        shares = {name: weight_ns / whole_ns for name, weight_ns in weights_ns.items()}
    names = sorted(by_name, key=lambda name: -weights_ns[name])
    return tuple(_overview(name, by_name[name], shares[name]) for name in names)


@dataclass(frozen=True, slots=True)
class _Variant:
    """A compiled variant, in one process."""

    reports: list[LaunchReport]

    @property
    def launches(self) -> int | None:
        return self.reports[0].launch.kernel.launches

    @property
    def time_ns(self) -> float:
        return median(report.summary.duration_ns for report in self.reports)

    @property
    def weight_ns(self) -> float:
        """What all its launches in the program take, without records if that is known; if nobody knows how many there
        are, what those in the capture take."""
        if self.launches is None:
            return self.time_ns * len(self.reports)
        clean_ns = median_time_ns(self.reports[0].launch.kernel.clean)
        return self.launches * (self.time_ns if clean_ns is None else clean_ns)

    @property
    def typical(self) -> LaunchReport:
        ordered = sorted(self.reports, key=lambda report: report.summary.duration_ns)
        return ordered[(len(ordered) - 1) // 2]


def _variants(reports: Sequence[LaunchReport]) -> list[_Variant]:
    # A process has one folder for a variant, however often it launched it.
    found: dict[object, list[LaunchReport]] = {}
    for report in reports:
        found.setdefault(report.launch.kernel.folder, []).append(report)
    return [_Variant(of_variant) for of_variant in found.values()]


def _overview(name: str, variants: Sequence[_Variant], share: float | None) -> KernelOverview:
    reports = [report for variant in variants for report in variant.reports]
    counts = [variant.launches for variant in variants]
    first = max(variants, key=lambda variant: variant.weight_ns)
    return KernelOverview(
        name,
        len({report.summary.variant for report in reports}),
        tuple(reports),
        sum(count for count in counts if count is not None) if None not in counts else None,
        median(report.summary.duration_ns for report in reports),
        share,
        first.typical,
    )
