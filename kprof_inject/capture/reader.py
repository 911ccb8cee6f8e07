"""Reader of captures, which only needs msgspec and numpy."""

from __future__ import annotations

import io
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path

import msgspec

from kprof_inject.capture.capture_files import read, read_optional
from kprof_inject.capture.cta_samples import CtaSample
from kprof_inject.capture.encoding import CAPTURE_AGAIN, PROFILE_AGAIN, decode, read_sealed, require_version
from kprof_inject.capture.loaded_integers import LoadedIntegersRecord
from kprof_inject.capture.measurements import MeasurementsRecord, MovesRecord
from kprof_inject.capture.mode import Mode
from kprof_inject.capture.model import KERNELS_CACHED, Capture, Kernel, Launch, Origin, Process
from kprof_inject.capture.record_costs import cost_of
from kprof_inject.capture.resources import clean_resources, resources_with_records
from kprof_inject.capture.schema import (
    CLOCK_FILE,
    FORMAT_VERSION,
    KERNELS_FOLDER,
    LAUNCHES_FILE,
    PROCESS_FILE,
    ClockRecord,
    DropRecord,
    EndRecord,
    KernelRecord,
    LaunchRecord,
    ProcessRecord,
    TimingRecord,
)
from kprof_inject.capture.scopes import ScopeTable
from kprof_inject.errors import KprofError
from kprof_inject.files import open_regular
from kprof_inject.machine_code.instructions import MachineFunction


def read_process(folder: Path) -> ProcessRecord:
    """Read ``process.json`` of one process; raises ``KprofError`` for another version's, and if it is damaged."""
    require_version(folder / PROCESS_FILE, FORMAT_VERSION, PROFILE_AGAIN)
    return read_sealed(folder / PROCESS_FILE, ProcessRecord)


def launch_lines(folder: Path) -> Iterator[tuple[LaunchRecord | DropRecord, str]]:
    """Yield each record of ``launches.jsonl`` and its place for messages; raises ``KprofError`` for a damaged line."""
    for line, where in _lines(folder / LAUNCHES_FILE):
        is_drop = line.startswith(b'{"drop"')
        yield decode(line, DropRecord, where) if is_drop else decode(line, LaunchRecord, where), where


def _lines(path: Path) -> Iterator[tuple[bytes, str]]:
    """Yield each complete line and its place for messages; the last line of a killed program may be cut."""
    if not path.exists():
        return
    with io.BufferedReader(open_regular(path, path.parent)) as file:
        for number, line in enumerate(file, 1):
            if line.endswith(b"\n"):
                yield line, f"{path}:{number}"


def is_capture(folder: Path) -> bool:
    """Return whether the folder has the files of a process of a capture."""
    return any(folder.glob(f"*/{PROCESS_FILE}"))


def seen_launches(folder: Path) -> int:
    """Return how many launches with records a capture's processes made, kept or not.

    Processes that were killed do not count, because they saved no number.
    """
    return sum(sum(end.launches.values()) for end in _ends(folder))


def left_out_launches(folder: Path) -> Counter[str]:
    """Return how many launches a capture's processes did not save, by the reason."""
    return sum((Counter(end.left_out) for end in _ends(folder)), Counter())


def _ends(folder: Path) -> Iterator[EndRecord]:
    for process_folder in _process_folders(folder):
        read_process(process_folder)
        end = read_optional(process_folder, EndRecord)
        if end is not None:
            yield end


def _process_folders(folder: Path) -> list[Path]:
    return [path.parent for path in sorted(folder.glob(f"*/{PROCESS_FILE}"))]


def read_capture(folder: Path) -> Capture:
    """Open a capture; buffers are read when they are needed.

    Raises ``KprofError`` if the folder is not a capture, or if its content is not what was saved.
    """
    if not is_capture(folder):
        raise KprofError(
            f"{folder} is not a capture", hint="make one: kprof-inject profile -- PROG, or run after insert"
        )
    processes = [(path, read_process(path)) for path in _process_folders(folder)]
    return Capture(folder, tuple(_process(path, process) for path, process in processes))


def _process(folder: Path, process: ProcessRecord) -> Process:
    end = read_optional(folder, EndRecord)
    origin = Origin(
        folder.name,
        process.pid,
        process.rank,
        process.host,
        process.boot_id,
        process.device_names,
        process.device_uuids,
        tuple(decode(line, ClockRecord, where) for line, where in _lines(folder / CLOCK_FILE)),
    )
    kernels: dict[tuple[str, str], tuple[Kernel, int]] = {}
    launches: dict[str, Launch] = {}
    for record, where in launch_lines(folder):
        if isinstance(record, DropRecord):
            launches.pop(record.drop, None)
            continue
        key = record.variant, origin.device_name(record.device)
        if key not in kernels:
            kernels[key] = _kernel(folder, process, *key, end.launches if end else {})
        launches[record.file] = _launch(folder, process, origin, *kernels[key], record, where)
    return Process(origin, process, tuple(launches.values()), end is not None, end.left_out if end else {})


def _kernel(
    process_folder: Path,
    process: ProcessRecord,
    variant: str,
    device_name: str,
    launches: Mapping[str, int],
) -> tuple[Kernel, int]:
    """Return the kernel, and the CTAs of a cluster."""
    folder = process_folder / KERNELS_FOLDER / variant
    record = read(folder, KernelRecord)
    timing = read_optional(folder, TimingRecord)
    moves = read_optional(folder, MovesRecord)
    known, mode = record.known_metadata, Mode(*msgspec.structs.astuple(record.mode))
    program_variant = record.program_variant or variant
    kernel = Kernel(
        variant=variant,
        name=record.name,
        num_warps=known.num_warps,
        stride_bytes=known.profile_scratch_size,
        layout=record.layout,
        scope_ids=record.scope_ids,
        scopes=ScopeTable.of(record.scope_table),
        sm_clock_hz=record.sm_clock_hz,
        mode=mode,
        metadata=record.metadata,
        folder=folder,
        clean=clean_resources(record, timing),
        with_records=resources_with_records(record, timing),
        record_cost=cost_of(device_name, process.triton, mode),
        sm_count=record.sm_count or None,
        l2_bytes=record.l2_bytes or None,
        dram_bytes_per_s=record.dram_bytes_per_s or None,
        checksums=(record.ttgir_crc32, record.sources_crc32),
        capture_folder=process_folder.parent,
        not_replayed=(timing.not_replayed or "") if timing else "",
        launches=launches.get(program_variant),
        grids=timing.grids if timing else (),
        measurements=read_optional(folder, MeasurementsRecord),
        loaded=read_optional(folder, LoadedIntegersRecord),
        moves=moves.scopes if moves else {},
        program_variant=program_variant,
    )
    return kernel, known.num_ctas


@lru_cache(maxsize=KERNELS_CACHED)
def machine_code_of(kernel: Kernel) -> MachineFunction | None:
    """Return the instructions of a kernel without records; None if the capture does not have them."""
    return read_optional(kernel.folder, MachineFunction)


def _launch(
    folder: Path,
    process: ProcessRecord,
    origin: Origin,
    kernel: Kernel,
    cluster_ctas: int,
    record: LaunchRecord,
    where: str,
) -> Launch:
    sample = CtaSample(math.prod(record.grid) * cluster_ctas, cluster_ctas, record.cta_shift)
    expected = sample.buffer_bytes(kernel.stride_bytes)
    if record.buffer_bytes != expected:
        raise KprofError(
            f"{where}: $.buffer_bytes: expected {expected} for this grid, got {record.buffer_bytes}",
            hint=CAPTURE_AGAIN,
        )
    return Launch(
        kernel=kernel,
        origin=origin,
        index=record.index,
        grid=record.grid,
        device=record.device,
        stream=record.stream,
        host_ns=record.host_ns,
        folder=folder,
        file=record.file,
        buffer_bytes=record.buffer_bytes,
        graph=record.graph,
        host_end_ns=record.host_end_ns,
        arguments=record.arguments,
        crc32=record.buffer_crc32,
        process=process,
        capture_folder=folder.parent,
        sample=sample if sample.shift else None,
    )
