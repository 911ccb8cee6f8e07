"""JSON files of a capture that hold one record each, which readers and later steps read and write by its type."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from kprof_inject.capture.encoding import read_sealed, write_sealed
from kprof_inject.capture.gpu_work import GpuWorkRecord
from kprof_inject.capture.loaded_integers import LoadedIntegersRecord
from kprof_inject.capture.measurements import MeasurementsRecord, MovesRecord
from kprof_inject.capture.schema import END_FILE, KERNEL_FILE, TIMING_FILE, EndRecord, KernelRecord, TimingRecord
from kprof_inject.machine_code.instructions import MachineFunction

Record = TypeVar("Record", bound=Struct)

FILES: Mapping[type[Struct], str] = {
    EndRecord: END_FILE,
    GpuWorkRecord: "gpu_work.json",
    KernelRecord: KERNEL_FILE,
    LoadedIntegersRecord: "loaded_integers.json",
    MachineFunction: "machine_code.json",
    MeasurementsRecord: "measurements.json",
    MovesRecord: "moves.json",
    TimingRecord: TIMING_FILE,
}
"""Names of the files, in the folder of the capture, of a process, or of a kernel."""


def read(folder: Path, kind: type[Record]) -> Record:
    """Read the file of a record; raises ``KprofError`` if it is missing or damaged."""
    return read_sealed(folder / FILES[kind], kind)


def read_optional(folder: Path, kind: type[Record]) -> Record | None:
    """Read the file of a record; None if it was not written."""
    return read(folder, kind) if (folder / FILES[kind]).exists() else None


def write(folder: Path, record: Struct) -> None:
    """Write or replace the file of a record."""
    write_sealed(folder / FILES[type(record)], record)
