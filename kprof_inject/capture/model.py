"""Content of a capture: kernels, launches, and the processes that they come from; and a copy for others to read.

It only needs msgspec and numpy.
"""

from __future__ import annotations

import dataclasses
import os
import zlib
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from kprof_inject.capture.buffer_layouts import END
from kprof_inject.capture.cta_samples import CtaSample
from kprof_inject.capture.encoding import CAPTURE_AGAIN, decode
from kprof_inject.capture.loaded_integers import LoadedIntegersRecord
from kprof_inject.capture.measurements import MeasurementsRecord
from kprof_inject.capture.mode import Mode
from kprof_inject.capture.record_costs import RecordCost
from kprof_inject.capture.resources import UNKNOWN_RESOURCES, KernelResources
from kprof_inject.capture.schema import (
    MAX_TEXT_BYTES,
    SOURCES_FILE,
    TTGIR_FILE,
    ClockRecord,
    GridTimesRecord,
    LayoutName,
    ProcessRecord,
)
from kprof_inject.capture.scopes import ScopeTable
from kprof_inject.errors import KprofError
from kprof_inject.files import decode_text, open_regular, read_regular
from kprof_inject.machine_code.lines import Moved


class Place(Struct, frozen=True):
    """Device as one process numbers it; ``rank`` is the process's, or None."""

    host: str
    rank: int | None
    pid: int
    device: int


class Origin(Struct, frozen=True):
    """Process that a launch comes from, its host, and its devices."""

    name: str
    """Name of its folder in the capture."""
    pid: int
    rank: int | None
    host: str
    boot_id: str
    """Boot id of the host; empty if unknown."""
    device_names: tuple[str, ...]
    """Names by the device's index; empty or absent if unknown."""
    device_uuids: tuple[str, ...]
    """UUIDs by the device's index; empty or absent if unknown."""
    host_readings: tuple[ClockRecord, ...]

    @property
    def host_clock(self) -> Hashable:
        """Key of the host's clock: it is equal for processes that read the same one."""
        return (self.host, self.boot_id) if self.boot_id else (self.host, self.boot_id, self.name)

    def device_name(self, device: int) -> str:
        """Return the device's name, empty if unknown."""
        return _item(self.device_names, device)

    def device_uuid(self, device: int) -> str:
        """Return the device's UUID, empty if unknown."""
        return _item(self.device_uuids, device)

    def globaltimer(self, device: int) -> Hashable:
        """Return the key of the device's globaltimer: it is equal for launches that the same timer timed."""
        if uuid := self.device_uuid(device):
            return self.device_name(device), uuid
        return self.host, self.boot_id, self.name, device


def place_names(places: Iterable[Place]) -> dict[Place, str]:
    """Return a name for each place: its rank or pid, and its device; empty for a single place."""
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


def several_ranks(places: Iterable[Place]) -> tuple[int, ...]:
    """Return the ranks of these processes, ascending; empty if they have fewer than two."""
    ranks = sorted({place.rank for place in places if place.rank is not None})
    return tuple(ranks) if len(ranks) > 1 else ()


def _process_name(place: Place, processes_of_rank: int, several_hosts: bool) -> str:
    pid = f"process {place.pid}" + (f" of {place.host}" if several_hosts else "")
    if place.rank is None:
        return pid
    # Processes that a rank starts inherit its environment, and so its RANK.
    return f"rank {place.rank}" if processes_of_rank == 1 else f"rank {place.rank}, {pid}"


def _item(texts: tuple[str, ...], index: int) -> str:
    return texts[index] if 0 <= index < len(texts) else ""


class Kernel(Struct, frozen=True, eq=False):
    """Compiled variant of a kernel, for one device; equal to itself alone, so facts about it are cheap to cache."""

    variant: str
    """Key that distinguishes builds of the same function."""
    name: str
    """Name of the function."""
    num_warps: int
    """Warps of a CTA, including all partitions."""
    stride_bytes: int
    """Size of a CTA's row in a launch's buffer."""
    layout: LayoutName
    scope_ids: dict[int, str]
    """Proton's table, from id to record name."""
    scopes: ScopeTable
    sm_clock_hz: float
    """Nominal clock of the device; 0 if unknown."""
    mode: Mode
    metadata: dict[str, Any]
    """Triton's metadata: ``num_warps``, ``shared``, ``target`` and more."""
    folder: Path
    """Folder of the module and its sources, if there are any."""
    clean: KernelResources = UNKNOWN_RESOURCES
    """Resources without records."""
    with_records: KernelResources = UNKNOWN_RESOURCES
    """Resources with records."""
    record_cost: RecordCost | None = None
    """Cost of one record; None if unknown."""
    sm_count: int | None = None
    """Number of SMs of the device; None if unknown."""
    l2_bytes: int | None = None
    """Size of the device's L2; None if unknown."""
    dram_bytes_per_s: float | None = None
    """Peak bandwidth of the device's memory, by its clock and width; None if unknown."""
    checksums: tuple[int | None, int | None] = (None, None)
    """CRC-32 of the module's file and of its sources' file; None for others' buffers."""
    capture_folder: Path | None = None
    not_replayed: str = ""
    """Reason why it was not launched again to be timed, in words that follow *because*; empty if unknown."""
    launches: int | None = None
    """Number of launches by the process, captured or not; None if unknown. Replays of graphs do not count."""
    grids: tuple[GridTimesRecord, ...] = ()
    """Launches by grid, if the program launched it with several; empty if that is unknown."""
    program_variant: str = ""
    """The dumped variant that this build was made from: builds with a smaller buffer share it. Empty if unknown."""
    measurements: MeasurementsRecord | None = None
    """Counters and stall samples of the kernel without records; None if it was not measured."""
    loaded: LoadedIntegersRecord | None = None
    """Integers of a launch's memory that decide what it executes; None if they are unknown."""
    moves: Mapping[str, tuple[Moved, ...] | None] = {}
    """Instructions that the compiler moved across the records of each scope, by the name of its record; None if that is
    unknown."""
    cta_name: str = "CTA"
    """Name of the unit that another profiler recorded in place of a CTA."""
    warp_name: str = "warp"
    """Name of the unit that another profiler recorded in place of a warp."""

    def __repr__(self) -> str:
        """Return the variant and its target: a user prints it, and the fields take thousands of characters."""
        return f"<Kernel {self.variant}{f' ({self.target})' if self.target else ''}>"

    @property
    def requested_warps(self) -> int:
        """Warps of a CTA by Triton's metadata, which does not count those of further partitions."""
        return int(self.metadata.get("num_warps", self.num_warps))

    @property
    def target(self) -> str:
        """Target as a module names it, such as ``cuda:90``; empty if unknown."""
        target = self.metadata.get("target")
        return f"{target.get('backend')}:{target.get('arch')}" if isinstance(target, dict) else ""

    def ttgir(self) -> str:
        """Return the module as the compiler made it, before records were inserted."""
        return decode_text(self._file(TTGIR_FILE, self.checksums[0]), str(self.folder / TTGIR_FILE))

    def sources(self) -> dict[str, str]:
        """Return the text of each source file that the module refers to, by the path in the module."""
        return decode(self._file(SOURCES_FILE, self.checksums[1]), dict[str, str], str(self.folder / SOURCES_FILE))

    def _file(self, name: str, crc32: int | None) -> bytes:
        path = self.folder / name
        data = read_regular(path, MAX_TEXT_BYTES, self.capture_folder)
        _require_crc32(zlib.crc32(data), crc32, path)
        return data


class Recorded(Struct, frozen=True):
    """Entries that another profiler recorded in one launch, by unit and in the order of writing.

    ``units`` have ``UNIT_COLUMNS``, ``entries`` ``ENTRY_COLUMNS`` (see ``capture.foreign``).
    """

    units: NDArray[np.void]
    entries: NDArray[np.void]
    silent_ctas: int


@dataclass(frozen=True, slots=True)
class Launch:
    """Kernel launch whose buffer was saved."""

    kernel: Kernel
    origin: Origin
    index: int
    """Number of the launch among those of its variant in its process."""
    grid: tuple[int, int, int]
    device: int
    stream: int
    host_ns: int
    """When the host called it, by the host's clock."""
    folder: Path
    file: str
    """Name of the buffer's file in ``folder``."""
    buffer_bytes: int
    graph: bool
    """The launch was captured into a CUDA graph: the buffer is that of the last replay."""
    host_end_ns: int | None = None
    """When the host's call had returned; None if unknown."""
    offset_bytes: int = 0
    """Offset of the buffer in its file."""
    arguments: tuple[int | None, ...] = ()
    """Arguments of the compiled function, by parameter: integers and addresses, None for others; empty if unknown."""
    crc32: int | None = None
    """CRC-32 of the buffer; None for others' buffers."""
    process: ProcessRecord | None = None
    """Record of the process; None if there is none."""
    capture_folder: Path | None = None
    """Folder that must contain the buffer; None for a file of the user's own."""
    sample: CtaSample | None = None
    """The CTAs that recorded; None if all did."""
    recorded: Recorded | None = field(default=None, repr=False, compare=False)
    """Entries that another profiler recorded; None for Proton's buffers, which are read when needed."""

    def __repr__(self) -> str:
        """Return the kernel's name, the number and the grid, in one line."""
        return f"<Launch of {self.kernel.name} #{self.index}: grid {self.grid}>"

    @property
    def path(self) -> Path:
        """Path of the buffer's file, created on access because few of a thousand launches are read."""
        return self.folder / self.file

    @property
    def device_name(self) -> str:
        """Name of the device, empty if unknown."""
        return self.origin.device_name(self.device)

    @property
    def place(self) -> Place:
        """Process and device that it ran on."""
        return Place(self.origin.host, self.origin.rank, self.origin.pid, self.device)

    def words(self) -> NDArray[np.uint32]:
        """Return the rows of the raw buffer as words, one for each CTA that records: shape (CTAs, stride_bytes / 4)."""
        return self.ends_and_words()[1]

    def ends_and_words(self) -> tuple[NDArray[np.uint64], NDArray[np.uint32]]:
        """Return the ends of all CTAs (``END``), none if all CTAs recorded, and ``words``."""
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
        ends_words = self.sample.ends_bytes // 4 if self.sample else 0
        # The last CTA's end comes first.
        ends = raw[:ends_words].view(END)[::-1][: self.sample.ctas if self.sample and ends_words else 0]
        return ends, raw[ends_words:].reshape(-1, self.kernel.stride_bytes // 4)


KERNELS_CACHED = 32
"""Kernels whose facts caches keep: a program's launches take its kernels in turn."""


class Process(Struct, frozen=True):
    """Process of the program, and what it saved."""

    origin: Origin
    info: ProcessRecord
    launches: tuple[Launch, ...]
    ended: bool
    """False if it was killed before it could save what it left out."""
    left_out: dict[str, int]
    """Number of launches that were seen but not saved, by the reason."""

    @property
    def pid(self) -> int:
        """Id of the process."""
        return self.origin.pid


class Capture(Struct, frozen=True):
    """Processes and launches that one ``run`` saved."""

    folder: Path
    processes: tuple[Process, ...]

    @property
    def made_by(self) -> str:
        """Command that captured for its own use; empty if the capture was made for the user to read."""
        return next((process.info.made_by for process in self.processes), "")

    @property
    def launches(self) -> tuple[Launch, ...]:
        """Launches of every process, in the order of the host's clock."""
        launches = [launch for process in self.processes for launch in process.launches]
        return tuple(sorted(launches, key=lambda launch: launch.host_ns))


def capture_of_buffer(
    kernel: Kernel,
    path: Path,
    ctas: int,
    buffer_bytes: int,
    offset_bytes: int = 0,
    recorded: Recorded | None = None,
) -> Capture:
    """Return a capture of one launch about which only its kernel and its buffer in the file ``path`` are known."""
    origin = Origin(path.stem, 0, None, "", "", (), (), ())
    launch = Launch(
        kernel=kernel,
        origin=origin,
        index=0,
        grid=(ctas, 1, 1),
        device=0,
        stream=0,
        host_ns=0,
        folder=path.parent,
        file=path.name,
        buffer_bytes=buffer_bytes,
        graph=False,
        offset_bytes=offset_bytes,
        recorded=recorded,
    )
    return Capture(path, (Process(origin, ProcessRecord(pid=0), (launch,), True, {}),))


def _require_crc32(found: int, saved: int | None, path: Path) -> None:
    if saved is not None and found != saved:
        raise KprofError(
            f"{path} is not what was saved: its checksum does not match",
            hint=f"it was edited, damaged, or taken from another capture; {CAPTURE_AGAIN}",
        )


LEFT_OUT = "the program's command line, its Python path, and host names"
"""Data that ``redacted`` leaves out, for users to read. ``STAYS`` is data that they may expect to be left out."""
STAYS = (
    "the kernels' names, source, TTGIR and integer arguments, paths of source files, devices, versions, process ids "
    "and times"
)


def redacted(capture: Capture) -> Capture:
    """Return the capture without ``LEFT_OUT``.

    Hosts are numbered in the order of their processes, so that they stay distinguishable.
    """
    hosts = {name: f"host {number}" for number, name in enumerate(_distinct(capture, lambda origin: origin.host), 1)}
    boots = {boot: str(number) for number, boot in enumerate(_distinct(capture, lambda origin: origin.boot_id), 1)}
    return replace(capture, processes=tuple(_redacted(process, hosts, boots) for process in capture.processes))


def _distinct(capture: Capture, text: Callable[[Origin], str]) -> list[str]:
    """Return the distinct texts, without the empty one, which means unknown."""
    return [found for found in dict.fromkeys(text(process.origin) for process in capture.processes) if found]


def _redacted(process: Process, hosts: Mapping[str, str], boots: Mapping[str, str]) -> Process:
    host, boot_id = hosts.get(process.origin.host, ""), boots.get(process.origin.boot_id, "")
    origin = replace(process.origin, host=host, boot_id=boot_id)
    info = msgspec.structs.replace(process.info, argv=(), executable="", host=host, boot_id=boot_id)
    launches = tuple(dataclasses.replace(launch, origin=origin, process=info) for launch in process.launches)
    return replace(process, origin=origin, info=info, launches=launches)
