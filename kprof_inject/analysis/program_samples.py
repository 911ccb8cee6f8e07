"""Samples of the whole program: the part of the SMs' time that each kernel takes, and what its warps wait for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from kprof_inject.analysis.evidence.stalls import Share, Stalls, stalls_of, waiting, without_subsets
from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.capture.measurements import SamplesRecord, summed
from kprof_inject.capture.program_samples import ProgramSamplesRecord, SampledKernel, read_program_samples
from kprof_inject.capture.source_text import lines_of, ttgir_of


class KernelSamples(Struct, frozen=True):
    """Samples of a kernel in all its variants.

    ``share`` is its part of the program's samples. ``stalls`` relates those of the variant with most samples to its
    TTGIR; None for a kernel that was not recorded.
    """

    name: str
    share: Share
    reasons: Mapping[str, int]
    stalls: Stalls | None

    @property
    def waiting(self) -> list[tuple[str, Share]]:
        """Reasons for which its warps wait, as shares of its own samples, the longest first."""
        whole = sum(self.reasons.values())
        return [(reason, Share.of(count, whole)) for reason, count in waiting(self.reasons)]

    def to_json(self) -> dict[str, Any]:
        """Return the share and the samples by reason as JSON values."""
        return {"share": self.share.value, "error": self.share.error, "reasons": dict(self.reasons)}


class ProgramSamples(Struct, frozen=True):
    """Samples of a program's kernels, those with most samples first; ``dropped`` were lost by the hardware."""

    kernels: tuple[KernelSamples, ...]
    samples: int
    dropped: int

    def of(self, name: str) -> KernelSamples | None:
        """Return the samples of the kernels with a name; None if there are none."""
        return next((kernel for kernel in self.kernels if kernel.name == name), None)


def program_samples(reports: Sequence[LaunchAnalysis]) -> ProgramSamples | None:
    """Return the samples of the program that the launches are of; None if it was not sampled.

    Raises ``KprofError`` if their file is damaged.
    """
    launch = reports[0].launch if reports else None
    if launch is None or launch.capture_folder is None:
        return None
    record = read_program_samples(launch.capture_folder, launch.process.run if launch.process else "")
    return _by_kernel(record, reports) if record else None


def _by_kernel(record: ProgramSamplesRecord, reports: Sequence[LaunchAnalysis]) -> ProgramSamples:
    groups: defaultdict[str, list[SampledKernel]] = defaultdict(list)
    for kernel in record.kernels:
        groups[kernel.name].append(kernel)
    counts = {name: summed(without_subsets(kernel.reasons) for kernel in kernels) for name, kernels in groups.items()}
    whole = sum(reasons.total() for reasons in counts.values())
    recorded = {report.launch.kernel.program_variant: report for report in reports}
    kernels = [
        KernelSamples(
            name=name,
            share=Share.of(reasons.total(), whole),
            reasons=dict(reasons),
            stalls=_stalls(record, groups[name], recorded),
        )
        for name, reasons in counts.items()
        if reasons.total()
    ]
    return ProgramSamples(tuple(sorted(kernels, key=lambda one: -one.share.value)), whole, record.dropped)


def _stalls(
    record: ProgramSamplesRecord, kernels: Sequence[SampledKernel], recorded: Mapping[str, LaunchAnalysis]
) -> Stalls | None:
    """Relate the samples of the recorded variant with most samples to its TTGIR."""
    known = [kernel for kernel in kernels if kernel.variant in recorded and kernel.instructions]
    if not known:
        return None
    first = max(known, key=lambda kernel: sum(kernel.reasons.values()))
    report = recorded[first.variant]
    if report.machine_code is None:
        return None
    samples = SamplesRecord(
        period_cycles=record.period_cycles, launches=1, total=0, dropped=0, instructions=first.instructions
    )
    launch = report.launch
    return stalls_of(samples, report.machine_code, launch.kernel.scopes, lines_of(ttgir_of(launch.kernel)))
