"""Reader of captures, which only needs msgspec and numpy."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from msgspec.structs import asdict

from kprof_inject.capture.capture_files import (
    FILES,
    FORMAT_VERSION,
    KERNELS_FOLDER,
    DropRecord,
    EndRecord,
    KernelRecord,
    ProcessRecord,
    clock_readings,
    launch_lines,
    read,
    read_optional,
)
from kprof_inject.capture.encoding import CAPTURE_AGAIN, PROFILE_AGAIN, require_version
from kprof_inject.capture.measurements import LoadedIntegersRecord, MeasurementsRecord, MovesRecord
from kprof_inject.capture.mode import cost_of
from kprof_inject.capture.model import KERNELS_CACHED, Capture, Kernel, Launch, Process
from kprof_inject.capture.resources import TimingRecord
from kprof_inject.errors import KprofError
from kprof_inject.machine_code.instructions import MachineFunction


def read_process(folder: Path) -> ProcessRecord:
    """Read ``process.json`` of one process; raises ``KprofError`` for another version's, and if it is damaged."""
    require_version(folder / FILES[ProcessRecord], FORMAT_VERSION, PROFILE_AGAIN)
    return read(folder, ProcessRecord)


def is_capture(folder: Path) -> bool:
    """Return whether the folder has the files of a process of a capture."""
    return bool(_process_folders(folder))


def ends_of(folder: Path) -> Iterator[EndRecord]:
    """Yield how a capture's processes ended, except for those that were killed."""
    for process_folder in _process_folders(folder):
        read_process(process_folder)
        end = read_optional(process_folder, EndRecord)
        if end is not None:
            yield end


def _process_folders(folder: Path) -> list[Path]:
    return [path.parent for path in sorted(folder.glob(f"*/{FILES[ProcessRecord]}"))]


def read_capture(folder: Path) -> Capture:
    """Open a capture; buffers are read when they are needed. Raises ``KprofError`` if it is none, or damaged."""
    if not is_capture(folder):
        raise KprofError(
            f"{folder} is not a capture", hint="make one: kprof-inject profile -- PROG, or run after insert"
        )
    records = [(path, read_process(path)) for path in _process_folders(folder)]
    processes = tuple(
        Process(
            **asdict(record),
            name=path.name,
            folder=path,
            capture_folder=folder,
            host_readings=clock_readings(path),
            end=read_optional(path, EndRecord),
        )
        for path, record in records
    )
    launches = [launch for process in processes for launch in _launches(process)]
    return Capture(folder, processes, tuple(sorted(launches, key=lambda launch: launch.host_ns)))


def _launches(process: Process) -> tuple[Launch, ...]:
    kernels: dict[tuple[str, str], Kernel] = {}
    launches: dict[str, Launch] = {}
    for record, where in launch_lines(process.folder):
        if isinstance(record, DropRecord):
            launches.pop(record.drop, None)
            continue
        key = record.variant, process.device_name(record.device)
        if key not in kernels:
            kernels[key] = _kernel(process, *key)
        launch = Launch(**asdict(record), kernel=kernels[key], process=process)
        if launch.buffer_bytes != launch.expected_bytes:
            raise KprofError(
                f"{where}: $.buffer_bytes: expected {launch.expected_bytes} for this grid, got {launch.buffer_bytes}",
                hint=CAPTURE_AGAIN,
            )
        launches[record.file] = launch
    return tuple(launches.values())


def _kernel(process: Process, variant: str, device_name: str) -> Kernel:
    folder = process.folder / KERNELS_FOLDER / variant
    record = read(folder, KernelRecord)
    timing = read_optional(folder, TimingRecord)
    moves = read_optional(folder, MovesRecord)
    fields = asdict(record)
    fields["program_variant"] = record.program_variant or variant
    if timing is not None:
        fields["clean"], fields["with_records"] = timing.added_to(record.clean, record.with_records)
    return Kernel(
        **fields,
        variant=variant,
        folder=folder,
        capture_folder=process.capture_folder,
        record_cost=cost_of(device_name, process.triton, record.mode),
        not_replayed=timing.not_replayed if timing else None,
        launches=process.end.launches.get(fields["program_variant"]) if process.end else None,
        grids=timing.grids if timing else (),
        measurements=read_optional(folder, MeasurementsRecord),
        loaded=read_optional(folder, LoadedIntegersRecord),
        moves=moves.scopes if moves else {},
    )


@lru_cache(maxsize=KERNELS_CACHED)
def machine_code_of(kernel: Kernel) -> MachineFunction | None:
    """Return the instructions of a kernel without records; None if the capture does not have them."""
    return read_optional(kernel.folder, MachineFunction)
