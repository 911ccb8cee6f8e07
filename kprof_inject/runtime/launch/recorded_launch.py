"""One launch with records, on its way from the launcher to the disk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from kprof_inject.capture.schema import KernelRecord, LaunchRecord
from kprof_inject.runtime.devices.device import Buffer, Event
from kprof_inject.runtime.launch.arguments import ArgumentKinds, Numbers

Grid = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class RecordingBuild:
    """One build of a kernel with records, once it is loaded: how to launch it, and what a capture says of it.

    It does not hold Triton's kernel: a launch that waits to be saved holds this, and would keep code on the device that
    the program has dropped. ``KernelRecord`` alone would not do: it has neither what a launch needs nor the texts.
    """

    variant: str
    """Names this build in the capture."""
    variant_of_program: str
    """What the program compiled: builds for large grids differ in the size of their rings alone, and launches are
    counted and chosen for all of them together."""
    launch: Callable[..., Any]
    """The launcher that Triton made, which takes ``function`` and ``packed_metadata`` of the same kernel."""
    function: Any
    packed_metadata: Any
    cta_bytes: int
    """The buffer's size for each CTA."""
    overlaps: bool
    """True if a launch may begin before the one before it ended (programmatic dependent launch)."""
    ttgir: str
    sources: dict[str, str]
    record: KernelRecord
    signature: dict[str, str]
    """The types of its arguments, by their names."""
    argument_kinds: ArgumentKinds
    """The same, to read those of a launch by."""


class BufferOwner:
    """Lends buffers to launches. This one owns none: it is for launches that are not read.

    ``launched`` or ``failed`` is called once, right after the launch; neither if an exception that is no failure of the
    launch comes between.
    """

    def launched(self, launch: RecordedLaunch) -> None:
        """Note that a launch was made."""

    def failed(self, launch: RecordedLaunch) -> None:
        """Note that a launch was not made."""


NO_OWNER = BufferOwner()


@dataclass(
    slots=True, eq=False
)  # not frozen: it is made in the launch path, and takes three times as long to make then
class RecordedLaunch:
    """Launch with records: what is known of it, and the buffer that it writes to.

    The launcher fills in the first part, the owner of the buffer the second, and the copier's thread saves it. Then it
    is a ``LaunchRecord``, which outlives the buffer.
    """

    build: RecordingBuild
    index: int
    """Counts the launches of the variant in this process."""
    grid: Grid
    device: int
    stream: int
    host_ns: int
    """When it was begun."""
    graph: bool
    """True if it was captured into a CUDA graph."""
    arguments: Numbers = ()
    """``ArgumentKinds`` has what each is; none for a launch that is not read."""
    host_end_ns: int = 0
    """When it had been made; 0: not yet."""

    owner: BufferOwner = NO_OWNER
    memory: Buffer | None = None
    """The buffer; None before it is lent, and once it is given up for that of a newer launch."""
    memory_bytes: int = 0
    """The buffer's size, at least ``size_bytes``."""
    done: Event | None = None
    """Event after the launch in its stream: then its records are in the buffer."""
    is_handed_over: bool = False
    """True if the copier may read the buffer: no other launch writes to it any more."""
    is_taken: bool = False
    """True once the copier's thread has it."""

    @property
    def size_bytes(self) -> int:
        """Size of its records."""
        return self.grid[0] * self.grid[1] * self.grid[2] * self.build.cta_bytes

    def record(self) -> LaunchRecord:
        """Return what a capture says of it; the writer adds what it knows of the buffer: its file and its checksum."""
        return LaunchRecord(
            variant=self.build.variant,
            index=self.index,
            grid=self.grid,
            device=self.device,
            stream=self.stream,
            host_ns=self.host_ns,
            host_end_ns=self.host_end_ns,
            buffer_bytes=self.size_bytes,
            file="",
            graph=self.graph,
            arguments=self.arguments,
        )


Save = Callable[[RecordedLaunch], None]
"""Takes a launch whose ``done`` is set."""


class LaunchBuffers(Protocol):
    """Gives each launch its buffer."""

    def lend(self, launch: RecordedLaunch) -> None:
        """Set the buffer of a launch and its owner. Raises ``NoDeviceMemory``; then nothing has changed."""

    def save_rest(self) -> None:
        """Save what is still in the buffers. Called once, when the devices have ended their work."""

    def unsaved(self) -> int:
        """Return how many launches that are to be kept are still in the buffers alone."""

    def newest(self) -> dict[str, int]:
        """Return the number of the last launch that was made and kept, of each variant of the program."""
