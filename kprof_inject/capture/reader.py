"""Reader of captures, which only needs msgspec and numpy."""

from __future__ import annotations

import io
import math
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import UNSET, Struct, UnsetType

from kprof_inject.capture.cta_samples import CtaSample
from kprof_inject.capture.encoding import (
    CAPTURE_AGAIN,
    Record,
    decode,
    encode,
    is_sealed,
    read_json,
    require_seal,
    sealed,
)
from kprof_inject.capture.loaded_integers import LOADED_INTEGERS_FILE, LoadedIntegersRecord
from kprof_inject.capture.measurements import (
    MACHINE_CODE_FILE,
    MEASUREMENTS_FILE,
    MOVES_FILE,
    MeasurementsRecord,
    MovesRecord,
)
from kprof_inject.capture.mode import AUTO_BUFFER, Mode
from kprof_inject.capture.model import Capture, Kernel, Launch, Origin, Process
from kprof_inject.capture.record_costs import cost_of
from kprof_inject.capture.resources import clean_resources, resources_with_records
from kprof_inject.capture.schema import (
    CLOCK_FILE,
    END_FILE,
    KERNEL_FILE,
    KERNELS_FOLDER,
    LAUNCHES_FILE,
    PROCESS_FILE,
    READABLE_VERSIONS,
    TIMING_FILE,
    ClockRecord,
    DropRecord,
    EndRecord,
    FileName,
    KernelRecord,
    LaunchRecord,
    ProcessRecord,
    TimingRecord,
)
from kprof_inject.capture.scopes import ScopeTable
from kprof_inject.errors import KprofError, printable
from kprof_inject.files import open_regular, write_bytes
from kprof_inject.machine_code.instructions import MachineFunction


class ProcessFiles(Struct, frozen=True):
    """Folder of one process, and its ``process.json``."""

    folder: Path
    capture_folder: Path
    process: ProcessRecord

    @classmethod
    def first_of(cls, capture_folder: Path) -> ProcessFiles:
        """Open the folder of any process of a capture that has one; raises ``KprofError`` as ``open`` does."""
        return cls.open(next(capture_folder.glob(f"*/{PROCESS_FILE}")).parent)

    @classmethod
    def open(cls, folder: Path) -> ProcessFiles:
        """Open the folder of one process; raises ``KprofError`` if its ``process.json`` is damaged."""
        path = folder / PROCESS_FILE
        return cls(folder, folder.parent, _decode_process(read_json(path, folder.parent), str(path)))

    def read(self, name: str, kind: type[Record]) -> Record:
        """Read a file as a record; raises ``KprofError`` if it is missing or damaged."""
        path = self.folder / name
        text = read_json(path, self.capture_folder)
        self.require_seal(text, name, str(path))
        return decode(text, kind, str(path))

    def read_if_there(self, name: str, kind: type[Record]) -> Record | None:
        """Read a file as a record; None if there is no such file."""
        return self.read(name, kind) if os.path.lexists(self.folder / name) else None

    def write(self, name: str, record: object) -> None:
        """Write or replace a file, with what was measured after the process had ended."""
        text = encode(record)
        seal_of = f"{self.process.process}/{name}"
        write_bytes(self.folder / name, (sealed(text, seal_of) if self.process.version > 1 else text) + b"\n")

    def lines(self, name: str) -> Iterator[tuple[bytes, str]]:
        """Yield each complete line and its place for messages; the last line of a killed program may be cut."""
        path = self.folder / name
        if not os.path.lexists(path):
            return
        with io.BufferedReader(open_regular(path, self.capture_folder)) as file:
            number = 0
            while (line := file.readline(_MAX_LINE_BYTES)).endswith(b"\n"):
                number += 1
                yield line, f"{path}:{number}"
        if len(line) == _MAX_LINE_BYTES:
            raise KprofError(f"{path}:{number + 1}: no line has {len(line)} bytes", hint=CAPTURE_AGAIN)

    def launch_lines(self) -> Iterator[tuple[LaunchRecord | DropRecord, str]]:
        """Yield each record of ``launches.jsonl`` and its place for messages.

        Raises ``KprofError`` if a line is damaged, or if one before it is missing.
        """
        for number, (line, where) in enumerate(self.lines(LAUNCHES_FILE), 1):
            self.require_seal(line, LAUNCHES_FILE, where)
            record = _decode_launch_line(line, where)
            if self.process.version > 1 and record.line != number:
                raise KprofError(
                    f"{where}: $.line: expected {number}, got {record.line}: lines are missing", hint=CAPTURE_AGAIN
                )
            yield record, where

    def require_seal(self, text: bytes, name: str, where: str) -> None:
        """Raise ``KprofError`` unless the text has its checksum; captures of format 1 have none."""
        if self.process.version > 1:
            require_seal(text, f"{self.process.process}/{name}", where)


_MAX_LINE_BYTES = 1 << 20


class _LineKind(Struct, frozen=True):
    drop: FileName | UnsetType = UNSET


class _Version(Struct, frozen=True):
    version: int | None = None


def _decode_process(text: bytes, where: str) -> ProcessRecord:
    """Decode ``process.json``; raises ``KprofError``, also if its format is not readable by this program."""
    # An edit may have changed the version, which decides whether a seal is required.
    if is_sealed(text):
        require_seal(text, PROCESS_FILE, where)
    version = decode(text, _Version, where).version
    if version not in READABLE_VERSIONS:
        raise KprofError(
            f"{where}: this capture has format {version}, this program reads "
            f"{' and '.join(map(str, READABLE_VERSIONS))}",
            hint="capture again with this version, or read it with the version that wrote it",
        )
    if version > 1:
        require_seal(text, PROCESS_FILE, where)
    return decode(text, ProcessRecord, where)


def _decode_launch_line(line: bytes, where: str) -> LaunchRecord | DropRecord:
    # Few lines contain the word at all.
    if b"drop" in line and decode(line, _LineKind, where).drop is not UNSET:
        return decode(line, DropRecord, where)
    return decode(line, LaunchRecord, where)


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
    files = [ProcessFiles.open(path.parent) for path in sorted(folder.glob(f"*/{PROCESS_FILE}"))]
    for file in files:
        end = file.read_if_there(END_FILE, EndRecord)
        if end is not None:
            yield end


def read_capture(folder: Path) -> Capture:
    """Open a capture; buffers are read when they are needed.

    Raises ``KprofError`` if the folder is not a capture, or if its content is not what was saved.
    """
    if not is_capture(folder):
        raise KprofError(
            f"{folder} is not a capture", hint="make one: kprof-inject profile -- PROG, or run after insert"
        )
    files = [ProcessFiles.open(path.parent) for path in sorted(folder.glob(f"*/{PROCESS_FILE}"))]
    _require_one_run(folder, [file.process for file in files])
    return Capture(folder, tuple(map(_process, files)))


def _require_one_run(folder: Path, processes: Sequence[ProcessRecord]) -> None:
    if len({(process.version, process.run) for process in processes}) > 1:
        raise KprofError(
            f"the processes in {folder} are from several captures", hint="keep each capture in its own folder"
        )
    names = [process.process for process in processes if process.process]
    if len(set(names)) < len(names):
        raise KprofError(f"{folder} contains a process twice", hint="remove the copy")


def _process(files: ProcessFiles) -> Process:
    end = files.read_if_there(END_FILE, EndRecord)
    readings, damaged_readings = _valid_lines(files, CLOCK_FILE, ClockRecord)
    process = files.process
    origin = Origin(
        files.folder.name,
        process.pid,
        process.rank,
        process.host,
        process.boot_id,
        process.device_names,
        process.device_uuids,
        readings,
    )
    kernels: dict[tuple[str, str], tuple[Kernel, int]] = {}
    launches: dict[str, Launch] = {}
    lines = 0
    for record, where in files.launch_lines():
        lines += 1
        name = record.drop if isinstance(record, DropRecord) else record.file
        if isinstance(record, DropRecord):
            if launches.pop(name, None) is None:
                raise KprofError(f"{where}: $.drop: no launch before it has the file {name!r}", hint=CAPTURE_AGAIN)
            continue
        if name in launches:
            raise KprofError(f"{where}: $.file: another launch has it: {name!r}", hint=CAPTURE_AGAIN)
        key = record.variant, origin.device_name(record.device)
        if key not in kernels:
            kernels[key] = _kernel(files, record.variant, key[1], end.launches if end else {})
        launches[name] = _launch(files, origin, *kernels[key], record, where)
    if end is not None and end.launch_lines is not None and lines < end.launch_lines:
        raise KprofError(
            f"{files.folder / LAUNCHES_FILE} has {lines} lines, but {end.launch_lines} were written: launches are "
            "missing",
            hint=CAPTURE_AGAIN,
        )
    left_out = end.left_out if end else {}
    return Process(origin, files.process, tuple(launches.values()), end is not None, left_out, damaged_readings)


# A build with a smaller buffer is named after its bytes.
_SMALLER_BUILD = re.compile(r"(.+-[0-9a-f]{16})-\d+")


def _kernel(
    files: ProcessFiles,
    variant: str,
    device_name: str,
    launches: Mapping[str, int],
) -> tuple[Kernel, int]:
    """Return the kernel, and the CTAs of a cluster."""
    folder = f"{KERNELS_FOLDER}/{variant}"
    record = files.read(f"{folder}/{KERNEL_FILE}", KernelRecord)
    _require_same_recording(record, files.process, str(files.folder / folder / KERNEL_FILE))
    timing = files.read_if_there(f"{folder}/{TIMING_FILE}", TimingRecord)
    moves = files.read_if_there(f"{folder}/{MOVES_FILE}", MovesRecord)
    known, mode = record.known_metadata, Mode(*msgspec.structs.astuple(record.mode))
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
        folder=files.folder / folder,
        clean=clean_resources(record, timing),
        with_records=resources_with_records(record, timing),
        record_cost=cost_of(device_name, files.process.triton, mode),
        sm_count=record.sm_count or None,
        l2_bytes=record.l2_bytes or None,
        dram_bytes_per_s=record.dram_bytes_per_s or None,
        checksums=(record.ttgir_crc32, record.sources_crc32),
        capture_folder=files.capture_folder,
        not_replayed=(timing.not_replayed or "") if timing else "",
        launches=launches.get(record.program_variant or variant),
        grids=timing.grids if timing else (),
        measurements=files.read_if_there(f"{folder}/{MEASUREMENTS_FILE}", MeasurementsRecord),
        loaded=files.read_if_there(f"{folder}/{LOADED_INTEGERS_FILE}", LoadedIntegersRecord),
        moves=moves.scopes if moves else {},
        program_variant=record.program_variant or _program_variant(variant),
    )
    return kernel, known.num_ctas


def machine_code_of(kernel: Kernel) -> MachineFunction | None:
    """Return the instructions of a kernel without records; None if the capture does not have them."""
    if not (kernel.folder / MACHINE_CODE_FILE).is_file():
        return None
    return ProcessFiles.open(kernel.folder.parents[1]).read(
        f"{KERNELS_FOLDER}/{kernel.folder.name}/{MACHINE_CODE_FILE}", MachineFunction
    )


def _program_variant(variant: str) -> str:
    """Return the dumped variant of a build by its name: older versions did not save it."""
    found = _SMALLER_BUILD.fullmatch(variant)
    return found[1] if found else variant


def _launch(
    files: ProcessFiles, origin: Origin, kernel: Kernel, cluster_ctas: int, record: LaunchRecord, where: str
) -> Launch:
    clusters = math.prod(record.grid)
    sample = CtaSample(clusters * cluster_ctas, cluster_ctas, record.cta_shift)
    expected = sample.buffer_bytes(kernel.stride_bytes)
    # The first captures ignored that each CTA of a cluster has a row.
    allowed = {expected} | ({clusters * kernel.stride_bytes} if files.process.version == 1 else set())
    if record.buffer_bytes not in allowed:
        raise KprofError(
            f"{where}: $.buffer_bytes: expected {expected} for a grid of {clusters}, got {record.buffer_bytes}",
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
        folder=files.folder,
        file=record.file,
        buffer_bytes=record.buffer_bytes,
        graph=record.graph,
        host_end_ns=record.host_end_ns,
        arguments=record.arguments,
        crc32=record.buffer_crc32,
        process=files.process,
        capture_folder=files.capture_folder,
        sample=sample if sample.shift else None,
    )


_Line = TypeVar("_Line")


def _valid_lines(files: ProcessFiles, name: str, kind: type[_Line]) -> tuple[tuple[_Line, ...], int]:
    """Return the valid lines of a file, and the number of invalid ones.

    A trace does without these readings, so a damaged line does not stop a reader.
    """
    found: list[_Line] = []
    lines = 0
    for line, where in files.lines(name):
        lines += 1
        with suppress(KprofError):
            files.require_seal(line, name, where)
            found.append(decode(line, kind, where))
    return tuple(found), lines - len(found)


def _require_same_recording(kernel: KernelRecord, process: ProcessRecord, where: str) -> None:
    """Raise ``KprofError`` if its process cannot have made a kernel's records; ``where`` names the kernel's file."""
    mode = process.mode
    for name in ("buffer", "clock_bits", "sched_stores") if mode else ():
        given, wanted = getattr(kernel.mode, name), getattr(mode, name)
        if wanted not in (given, AUTO_BUFFER):
            raise KprofError(
                f"{where}: $.mode.{name}: expected {wanted} as in the process, got {given}", hint=CAPTURE_AGAIN
            )
    version = _TRITON.match(process.triton)
    known = (int(version[1]), int(version[2])) if version else _FIRST_UNKNOWN
    layout = "timed" if known >= _FIRST_TIMED else "untimed"
    if known < _FIRST_UNKNOWN and kernel.layout != layout:
        wrong = f"expected {layout}, which Triton {printable(process.triton)} writes, got {kernel.layout}"
        raise KprofError(f"{where}: $.layout: {wrong}", hint=CAPTURE_AGAIN)


_TRITON = re.compile(r"(\d{1,4})\.(\d{1,4})")
# A buffer that is read by a wrong layout would silently give meaningless times.
_FIRST_TIMED, _FIRST_UNKNOWN = (3, 6), (3, 10)
