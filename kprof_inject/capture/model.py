"""Content of a capture: kernels, launches, and the processes that they come from; and a copy for others to read.

It only needs msgspec and numpy.
"""

from __future__ import annotations

import math
import os
import zlib
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from pathlib import Path

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from kprof_inject.capture.buffer_layouts import ends_and_rows
from kprof_inject.capture.capture_files import ClockRecord, EndRecord, KernelRecord, LaunchRecord, ProcessRecord
from kprof_inject.capture.cta_samples import CtaSample
from kprof_inject.capture.encoding import CAPTURE_AGAIN, decode
from kprof_inject.capture.measurements import LoadedIntegersRecord, MeasurementsRecord
from kprof_inject.capture.mode import RecordCost
from kprof_inject.capture.resources import GridTimesRecord
from kprof_inject.capture.schema import MAX_TEXT_BYTES, SOURCES_FILE, TTGIR_FILE
from kprof_inject.errors import KprofError
from kprof_inject.files import decode_text, open_regular, read_regular
from kprof_inject.machine_code.lines import Moved


class Place(Struct, frozen=True):
    """Device as one process numbers it; ``rank`` is the process's, or None."""

    host: str
    rank: int | None
    pid: int
    device: int


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
    names = {}
    for place in distinct:
        process = f"process {place.pid}" + (f" of {place.host}" if several_hosts else "")
        if place.rank is not None:
            # Processes that a rank starts inherit its environment, and so its RANK.
            own = "" if processes_of_rank[place.rank] == 1 else f", {process}"
            process = f"rank {place.rank}{own}"
        names[place] = f"{process}, device {place.device}"
    return names


def several_ranks(places: Iterable[Place]) -> tuple[int, ...]:
    """Return the ranks of these processes, ascending; empty if there are fewer than two."""
    ranks = sorted({place.rank for place in places if place.rank is not None})
    return tuple(ranks) if len(ranks) > 1 else ()


def _item(texts: tuple[str, ...], index: int) -> str:
    return texts[index] if 0 <= index < len(texts) else ""


class Process(ProcessRecord, frozen=True, eq=False, kw_only=True):
    """Process of the program: its record, and the other files of its folder.

    ``capture_folder`` must contain all its files; None for a file of the user's own. ``end`` is None if it was killed.
    """

    name: str
    folder: Path
    capture_folder: Path | None = None
    host_readings: tuple[ClockRecord, ...] = ()
    end: EndRecord | None = None

    @property
    def host_clock(self) -> Hashable:
        """Key of the host's clock: it is equal for processes that read the same one."""
        return (self.host, self.boot_id) if self.boot_id else (self.host, self.boot_id, self.name)

    def device_name(self, device: int) -> str:
        """Return the device's name, empty if unknown."""
        return _item(self.device_names, device)

    def globaltimer(self, device: int) -> Hashable:
        """Return the key of the device's globaltimer: it is equal for launches that the same timer timed."""
        if uuid := _item(self.device_uuids, device):
            return self.device_name(device), uuid
        return self.host, self.boot_id, self.name, device


class Kernel(KernelRecord, frozen=True, eq=False, kw_only=True):
    """Compiled variant of a kernel, for one device: its record, and the other files of its folder.

    Equal to itself alone, so facts about it are cheap to cache. ``clean`` and ``with_records`` also have its times.
    """

    variant: str  # key that distinguishes builds of the same function
    folder: Path
    capture_folder: Path | None = None
    record_cost: RecordCost | None = None
    not_replayed: str | None = None  # reason why it was not launched again to be timed, in words that follow *because*
    launches: int | None = None  # Number of launches by the process, captured or not. Replays of graphs do not count.
    grids: tuple[GridTimesRecord, ...] = ()
    """Launches by grid, if the program launched it with several; empty if that is unknown."""
    measurements: MeasurementsRecord | None = None
    loaded: LoadedIntegersRecord | None = None  # integers of a launch's memory that decide what it executes
    moves: Mapping[str, tuple[Moved, ...] | None] = {}  # as in ``MovesRecord``
    warp_name: str = "warp"  # name of the unit that another profiler recorded in place of a warp

    def __repr__(self) -> str:
        # A user prints it, and the fields take thousands of characters.
        return f"<Kernel {self.variant}{f' ({self.target})' if self.target else ''}>"

    @property
    def num_warps(self) -> int:
        """Warps of a CTA, including all partitions."""
        return int(self.metadata["num_warps"])

    @property
    def stride_bytes(self) -> int:
        """Size of a CTA's row in a launch's buffer."""
        return int(self.metadata["profile_scratch_size"])

    @property
    def target(self) -> str:
        """Target as a module names it, such as ``cuda:90``; empty if unknown."""
        target = self.metadata.get("target")
        return f"{target.get('backend')}:{target.get('arch')}" if isinstance(target, dict) else ""

    def ttgir(self) -> str:
        """Return the module as the compiler made it, before records were inserted."""
        return decode_text(self._file(TTGIR_FILE, self.ttgir_crc32), str(self.folder / TTGIR_FILE))

    def sources(self) -> dict[str, str]:
        """Return the text of each source file that the module refers to, by the path in the module."""
        return decode(self._file(SOURCES_FILE, self.sources_crc32), dict[str, str], str(self.folder / SOURCES_FILE))

    def _file(self, name: str, crc32: int | None) -> bytes:
        path = self.folder / name
        data = read_regular(path, MAX_TEXT_BYTES, self.capture_folder)
        _require_crc32(zlib.crc32(data), crc32, path)
        return data


class Recorded(Struct, frozen=True):
    """Entries that another profiler recorded in one launch, by unit and in the order of writing."""

    units: NDArray[np.void]  # ``capture.foreign.UNIT_COLUMNS``
    entries: NDArray[np.void]  # ``capture.foreign.ENTRY_COLUMNS``
    silent_ctas: int


class Launch(LaunchRecord, frozen=True, eq=False, kw_only=True):
    """Kernel launch whose buffer was saved: its record, and whose it is."""

    kernel: Kernel
    process: Process
    offset_bytes: int = 0
    recorded: Recorded | None = None
    """Entries that another profiler recorded; None for Proton's buffers, which are read when needed."""

    def __repr__(self) -> str:
        return f"<Launch of {self.kernel.name} #{self.index}: grid {self.grid}>"

    @property
    def path(self) -> Path:
        """Path of the buffer's file."""
        return self.process.folder / self.file

    @property
    def device_name(self) -> str:
        """Name of the device, empty if unknown."""
        return self.process.device_name(self.device)

    @property
    def place(self) -> Place:
        """Process and device that it ran on."""
        return Place(self.process.host, self.process.rank, self.process.pid, self.device)

    @property
    def sample(self) -> CtaSample | None:
        """The CTAs that recorded; None if all did."""
        return self._cta_sample() if self.cta_shift else None

    def _cta_sample(self) -> CtaSample:
        cluster_ctas = int(self.kernel.metadata.get("num_ctas", 1))
        return CtaSample(math.prod(self.grid) * cluster_ctas, cluster_ctas, self.cta_shift)

    @property
    def expected_bytes(self) -> int:
        """Size that the buffer must have for this grid."""
        return self._cta_sample().buffer_bytes(self.kernel.stride_bytes)

    def ends_and_words(self) -> tuple[NDArray[np.uint64], NDArray[np.uint32]]:
        """Return the ends of all CTAs (``END``), none if all CTAs recorded, and the rows of the raw buffer as words.

        There is a row for each CTA that records: shape (CTAs, stride_bytes / 4).
        """
        path = self.path
        with open_regular(path, self.process.capture_folder) as file:
            size = os.fstat(file.fileno()).st_size - self.offset_bytes
            if size != self.buffer_bytes:
                raise KprofError(
                    f"{path} is damaged: {size} bytes, but {self.buffer_bytes} were saved", hint=CAPTURE_AGAIN
                )
            try:
                raw = np.fromfile(file, dtype="<u4", count=self.buffer_bytes // 4, offset=self.offset_bytes)
            except OSError as error:
                raise KprofError(f"cannot read {path}: {error.strerror}") from None
        if self.buffer_crc32 is not None:
            _require_crc32(zlib.crc32(raw.data), self.buffer_crc32, path)
        return ends_and_rows(raw, self._cta_sample(), self.kernel.stride_bytes)


KERNELS_CACHED = 32  # kernels whose facts caches keep: a program's launches take its kernels in turn


class Capture(Struct, frozen=True):
    """Processes and launches that one ``run`` saved; the launches are in the order of the host's clock."""

    folder: Path
    processes: tuple[Process, ...]
    launches: tuple[Launch, ...]

    @property
    def made_by(self) -> str:
        """Command that captured for its own use; empty if the capture was made for the user to read."""
        return next((process.made_by for process in self.processes), "")


def capture_of_buffer(
    kernel: Kernel, path: Path, ctas: int, buffer_bytes: int, offset_bytes: int = 0, recorded: Recorded | None = None
) -> Capture:
    """Return a capture of one launch about which only its kernel and its buffer in the file ``path`` are known."""
    process = Process(pid=0, name=path.stem, folder=path.parent)
    launch = Launch(
        kernel=kernel,
        process=process,
        variant=kernel.variant,
        index=0,
        grid=(ctas, 1, 1),
        device=0,
        stream=0,
        host_ns=0,
        file=path.name,
        buffer_bytes=buffer_bytes,
        offset_bytes=offset_bytes,
        recorded=recorded,
    )
    return Capture(path, (process,), (launch,))


def _require_crc32(found: int, saved: int | None, path: Path) -> None:
    if saved is not None and found != saved:
        raise KprofError(
            f"{path} is not what was saved: its checksum does not match",
            hint=f"it was edited, damaged, or taken from another capture; {CAPTURE_AGAIN}",
        )


LEFT_OUT = "the program's command line, its Python path, and host names"
"""Data that ``redacted`` leaves out, for users to read. They may expect ``STAYS`` to be left out."""
STAYS = (
    "the kernels' names, source, TTGIR and integer arguments, paths of source files, devices, versions, process ids "
    "and times"
)


def redacted(capture: Capture) -> Capture:
    """Return the capture without ``LEFT_OUT``. Hosts are numbered, so that they stay distinguishable."""
    hosts = {host: f"host {number}" for number, host in enumerate(_distinct(one.host for one in capture.processes), 1)}
    boots = {boot: str(number) for number, boot in enumerate(_distinct(one.boot_id for one in capture.processes), 1)}
    changed = {
        process: replace(
            process, argv=(), executable="", host=hosts.get(process.host, ""), boot_id=boots.get(process.boot_id, "")
        )
        for process in capture.processes
    }
    launches = tuple(replace(launch, process=changed[launch.process]) for launch in capture.launches)
    return replace(capture, processes=tuple(changed.values()), launches=launches)


def _distinct(texts: Iterable[str]) -> list[str]:
    return list(filter(None, dict.fromkeys(texts)))
