"""File of what the warps of a whole program waited for, sampled while it ran without records.

It is in the capture's folder. ``docs/file-formats.md`` describes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from kprof_inject.capture.encoding import encode, read_of_run, sealed
from kprof_inject.capture.measurements import SampledInstruction
from kprof_inject.capture.schema import Count, Name, Text
from kprof_inject.files import write_bytes

PROGRAM_SAMPLES_FILE = "program_samples.json"


class SampledKernel(Struct, frozen=True, kw_only=True):
    """Samples of a kernel, by the reason, as ``SampledInstruction`` has them.

    ``variant`` is the variant that ``dump`` saved; empty for a kernel of a library. Only a variant has
    ``instructions``.
    """

    name: Name
    variant: Name = ""
    reasons: Mapping[Name, Count]
    instructions: tuple[SampledInstruction, ...] = ()


class ProgramSamplesRecord(Struct, frozen=True, kw_only=True):
    """Content of ``program_samples.json``: samples of the kernels of ``processes`` processes.

    Each SM was sampled every ``period_cycles``. ``dropped`` samples were lost by the hardware. ``not_sampled`` has the
    reasons why processes were not sampled, or not to their end, in words that follow *because*.
    """

    period_cycles: Annotated[int, Meta(ge=1, lt=1 << 32)]
    processes: Count
    dropped: Count
    kernels: tuple[SampledKernel, ...]
    not_sampled: tuple[Text, ...] = ()


def read_program_samples(capture_folder: Path, run: str = "") -> ProgramSamplesRecord | None:
    """Read the samples of the program of a capture; None if it has none.

    Raises ``KprofError`` if the file is damaged, or if ``run`` (see ``ProcessRecord``) is not empty and the file is of
    another run.
    """
    return read_of_run(capture_folder / PROGRAM_SAMPLES_FILE, ProgramSamplesRecord, run)


def write_program_samples(capture_folder: Path, record: ProgramSamplesRecord, run: str) -> None:
    """Write the samples of the program that a capture is of; ``run`` is the run of the capture."""
    write_bytes(capture_folder / PROGRAM_SAMPLES_FILE, sealed(encode(record), run) + b"\n")
