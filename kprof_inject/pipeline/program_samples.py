"""Samples of the whole program: whether they can be taken, and how they reach the capture."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from kprof_inject.capture.measurements import SampledInstruction, summed
from kprof_inject.capture.program_samples import ProgramSamplesRecord, SampledKernel, write_program_samples
from kprof_inject.capture.reader import ProcessFiles
from kprof_inject.pipeline import Say
from kprof_inject.runtime.counters.permission import has_nvidia_module, is_permitted
from kprof_inject.workspace import Workspace


def can_sample(say: Say) -> bool:
    """Return whether this user may sample programs on this machine; say why not."""
    if not has_nvidia_module():
        say("the program is not sampled: this machine has no NVIDIA driver")
        return False
    if not is_permitted():
        say("the program is not sampled: this user may not read hardware counters; doctor says how to permit it")
        return False
    return True


def say_not_sampled(workspace: Workspace, say: Say) -> None:
    """Say why processes of the program that was just dumped were not sampled."""
    records = workspace.program_samples()
    if not records:
        say("the program was not sampled: no process of it loaded a kernel and then ended on its own")
    for reason in dict.fromkeys(reason for record in records for reason in record.not_sampled):
        say(f"a process of the program was not sampled to its end: {reason}")


def save_program_samples(workspace: Workspace, capture_folder: Path) -> None:
    """Save the samples of the dumped program, if there are any, in a capture of it."""
    records = workspace.program_samples()
    if records:
        run = ProcessFiles.first_of(capture_folder).process.run
        write_program_samples(capture_folder, _merged(records), run)


def _merged(records: Sequence[ProgramSamplesRecord]) -> ProgramSamplesRecord:
    """Add up the samples of several processes."""
    groups: defaultdict[tuple[str, str], list[SampledKernel]] = defaultdict(list)
    for record in records:
        for kernel in record.kernels:
            groups[kernel.name, kernel.variant].append(kernel)
    return ProgramSamplesRecord(
        period_cycles=records[0].period_cycles,
        processes=len(records),
        dropped=sum(record.dropped for record in records),
        kernels=tuple(
            SampledKernel(
                name=name,
                variant=variant,
                reasons=dict(summed(kernel.reasons for kernel in kernels)),
                instructions=_merged_instructions(kernels),
            )
            for (name, variant), kernels in groups.items()
        ),
        not_sampled=tuple(dict.fromkeys(reason for record in records for reason in record.not_sampled)),
    )


def _merged_instructions(kernels: Iterable[SampledKernel]) -> tuple[SampledInstruction, ...]:
    found: defaultdict[int, list[Mapping[str, int]]] = defaultdict(list)
    for kernel in kernels:
        for instruction in kernel.instructions:
            found[instruction.address].append(instruction.samples)
    return tuple(SampledInstruction(address, dict(summed(samples))) for address, samples in sorted(found.items()))
