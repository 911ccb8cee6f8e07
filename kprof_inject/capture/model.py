"""What a capture holds: kernels, launches, and the processes that they come from. Needs msgspec and numpy alone."""

from __future__ import annotations

import os
import zlib
from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kprof_inject.capture.encoding import CAPTURE_AGAIN, decode
from kprof_inject.capture.foreign.entries import Recorded
from kprof_inject.capture.mode import Mode
from kprof_inject.capture.record_costs import RecordCost
from kprof_inject.capture.resources import UNKNOWN_RESOURCES, KernelResources
from kprof_inject.capture.schema import MAX_TEXT_BYTES, SOURCES_FILE, TTGIR_FILE, LayoutName, ProcessRecord
from kprof_inject.capture.scopes import ScopeTable
from kprof_inject.errors import KprofError
from kprof_inject.files import decode_text, open_regular, read_regular


@dataclass(frozen=True, slots=True)
class HostReading:
    """At host time ``host_ns`` ± ``error_ns`` the globaltimer of the process's device ``device`` read ``device_ns``."""

    device: int
    host_ns: int
    device_ns: int
    error_ns: int


@dataclass(frozen=True, slots=True)
class Place:
    """A device as one process numbers it. ``rank`` is the process's, or None."""

    host: str
    rank: int | None
    pid: int
    device: int


@dataclass(frozen=True, slots=True)
class Origin:
    """The process that a launch comes from, its host, and its devices."""

    name: str
    """Its folder's in the capture."""
    pid: int
    rank: int | None
    host: str
    boot_id: str
    """Empty if it is unknown."""
    device_names: tuple[str, ...]
    """By the device's index; empty, or not there, if it is unknown."""
    device_uuids: tuple[str, ...]
    """The same."""
    host_readings: tuple[HostReading, ...]

    @property
    def host_clock(self) -> Hashable:
        """Processes for which this is equal read the same host clock."""
        return (self.host, self.boot_id) if self.boot_id else (self.host, self.boot_id, self.name)

    def device_name(self, device: int) -> str:
        """Empty if it is unknown."""
        return _item(self.device_names, device)

    def device_uuid(self, device: int) -> str:
        """Empty if it is unknown."""
        return _item(self.device_uuids, device)

    def globaltimer(self, device: int) -> Hashable:
        """Launches for whose origin and device this is equal were timed by the same device's globaltimer."""
        if uuid := self.device_uuid(device):
            return self.device_name(device), uuid
        return self.host, self.boot_id, self.name, device


def place_names(places: Iterable[Place]) -> dict[Place, str]:
    """What to call each place beside the others: its rank or pid, and its device. One place alone needs no name."""
    distinct = dict.fromkeys(places)
    if len(distinct) <= 1:
        return dict.fromkeys(distinct, "")
    processes = {(place.host, place.rank, place.pid) for place in distinct}
    if len(processes) == 1:
        return {place: f"device {place.device}" for place in distinct}
    several_hosts = len({place.host for place in distinct}) > 1
    processes_of_rank = Counter(rank for _, rank, _ in processes)
    return {
        place: f"{_process_name(place, processes_of_rank[place.rank], several_hosts)}, device {place.device}"
        for place in distinct
    }


def _process_name(place: Place, processes_of_rank: int, several_hosts: bool) -> str:
    pid = f"process {place.pid}" + (f" of {place.host}" if several_hosts else "")
    if place.rank is None:
        return pid
    # What a rank starts has its environment, and so its RANK.
    return f"rank {place.rank}" if processes_of_rank == 1 else f"rank {place.rank}, {pid}"


def _item(texts: tuple[str, ...], index: int) -> str:
    return texts[index] if 0 <= index < len(texts) else ""


@dataclass(frozen=True, slots=True)
class Kernel:
    """One compiled variant of a kernel, for one device."""

    variant: str
    """Tells it from other builds of the same function."""
    name: str
    """The function's."""
    num_warps: int
    """Of a CTA, those of all partitions together."""
    stride_bytes: int
    """What a CTA takes in a launch's buffer."""
    layout: LayoutName
    scope_ids: dict[int, str]
    """Proton's table, from id to the record's name."""
    scopes: ScopeTable
    sm_clock_hz: float
    """The device's nominal clock; 0 if it is unknown."""
    mode: Mode
    metadata: dict[str, Any]
    """Triton's own: ``num_warps``, ``shared``, ``target`` and more."""
    folder: Path
    """Has the module and its sources, if there are any."""
    clean: KernelResources = UNKNOWN_RESOURCES
    """What it takes without records."""
    with_records: KernelResources = UNKNOWN_RESOURCES
    """What it takes with them."""
    record_cost: RecordCost | None = None
    """What one record of it costs; None if that is unknown."""
    sm_count: int | None = None
    """How many SMs the device has; None if that is unknown."""
    l2_bytes: int | None = None
    """The size of the device's L2; None if that is unknown, as the next."""
    dram_bytes_per_s: float | None = None
    """What the device's memory can move at most, by its clock and width."""
    checksums: tuple[int | None, int | None] = (None, None)
    """CRC-32 of the module's file and of that of its sources; None in captures of format 1."""
    capture_folder: Path | None = None
    not_replayed: str = ""
    """Why it was not launched again to be timed, in words that follow *because*; empty if nobody said."""
    launches: int | None = None
    """How often the process launched it, captured or not; None if that is unknown. A replay of a graph is no launch."""
    cta_name: str = "CTA"
    """What stands in for a CTA is called where another profiler recorded."""
    warp_name: str = "warp"
    """The same of a warp."""

    @property
    def target(self) -> str:
        """As a module names it, such as ``cuda:90``; empty if it is unknown."""
        target = self.metadata.get("target")
        return f"{target.get('backend')}:{target.get('arch')}" if isinstance(target, dict) else ""

    def ttgir(self) -> str:
        """The module as the compiler made it, before records were inserted."""
        return decode_text(self._file(TTGIR_FILE, self.checksums[0]), str(self.folder / TTGIR_FILE))

    def sources(self) -> dict[str, str]:
        """The text of each source file that the module refers to, by the path it is referred to by."""
        return decode(self._file(SOURCES_FILE, self.checksums[1]), dict[str, str], str(self.folder / SOURCES_FILE))

    def _file(self, name: str, crc32: int | None) -> bytes:
        path = self.folder / name
        data = read_regular(path, MAX_TEXT_BYTES, self.capture_folder)
        _require_crc32(zlib.crc32(data), crc32, path)
        return data


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel launch whose buffer was saved."""

    kernel: Kernel
    origin: Origin
    index: int
    """Counts the launches of its variant in its process."""
    grid: tuple[int, int, int]
    device: int
    stream: int
    host_ns: int
    """When the host called it, by the host's clock."""
    folder: Path
    file: str
    """The file in ``folder`` that has the buffer."""
    buffer_bytes: int
    graph: bool
    """It was captured into a CUDA graph: the buffer is that of the last replay."""
    host_end_ns: int | None = None
    """When the host's call had returned; older captures do not tell."""
    offset_bytes: int = 0
    """Where the buffer begins in its file."""
    arguments: tuple[int | None, ...] = ()
    """Of the compiled function, by its parameters: integers and addresses, None for all else. Empty if unknown."""
    crc32: int | None = None
    """Of the buffer; None in captures of format 1."""
    process: ProcessRecord | None = None
    """What the process said of itself; None where nothing is known."""
    capture_folder: Path | None = None
    """The buffer lies in it; None for a file of the user's own."""
    recorded: Recorded | None = field(default=None, repr=False, compare=False)
    """What another profiler recorded; None for Proton's buffers, which are read when they are needed."""

    @property
    def path(self) -> Path:
        """Made when it is asked for: of a thousand launches, few are."""
        return self.folder / self.file

    @property
    def device_name(self) -> str:
        """Empty if it is unknown."""
        return self.origin.device_name(self.device)

    @property
    def place(self) -> Place:
        """The process and the device that it ran on."""
        return Place(self.origin.host, self.origin.rank, self.origin.pid, self.device)

    def words(self) -> NDArray[np.uint32]:
        """The raw buffer as words, one row for each CTA: shape (CTAs, stride_bytes / 4)."""
        path = self.path
        with open_regular(path, self.capture_folder) as file:
            size = os.fstat(file.fileno()).st_size - self.offset_bytes
            if size != self.buffer_bytes:
                raise KprofError(
                    f"{path} is damaged: {size} bytes, but {self.buffer_bytes} were saved", hint=CAPTURE_AGAIN
                )
            try:
                raw = np.fromfile(file, dtype="<u4", count=self.buffer_bytes // 4, offset=self.offset_bytes)
            except OSError as error:
                raise KprofError(f"cannot read {path}: {error.strerror}") from None
        if self.crc32 is not None:
            _require_crc32(zlib.crc32(raw.data), self.crc32, path)
        return raw.reshape(-1, self.kernel.stride_bytes // 4)


@dataclass(frozen=True, slots=True)
class Process:
    """One process of the program, and what it saved."""

    origin: Origin
    info: ProcessRecord
    launches: tuple[Launch, ...]
    ended: bool
    """False if it was killed before it could say what it left out."""
    left_out: dict[str, int]
    """Launches seen but not saved, by the reason."""
    damaged_readings: int
    """How many lines of its clock file are no readings of the host's clock."""

    @property
    def pid(self) -> int:
        return self.origin.pid


@dataclass(frozen=True, slots=True)
class Capture:
    """What one ``run`` saved."""

    folder: Path
    processes: tuple[Process, ...]

    @property
    def made_by(self) -> str:
        """The command that captured for its own ends; empty where it was for the user to read."""
        return next((process.info.made_by for process in self.processes), "")

    @property
    def launches(self) -> tuple[Launch, ...]:
        """All launches of all processes, in the order of the host's clock."""
        launches = [launch for process in self.processes for launch in process.launches]
        return tuple(sorted(launches, key=lambda launch: launch.host_ns))


def _require_crc32(found: int, saved: int | None, path: Path) -> None:
    if saved is not None and found != saved:
        raise KprofError(
            f"{path} is not what was saved: its checksum does not match",
            hint=f"it was edited, damaged, or taken from another capture; {CAPTURE_AGAIN}",
        )
