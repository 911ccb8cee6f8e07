"""Launches with records, on the way from the launcher to disk."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from msgspec.structs import replace

from kprof_inject.capture.capture_files import LaunchRecord
from kprof_inject.capture.cta_samples import CtaSample
from kprof_inject.runtime.compiling.recording_build import Numbers, RecordingBuild
from kprof_inject.runtime.devices.device import Buffer, Event

HOOK_ARGUMENTS = 3
"""Arguments of Triton's launchers between the metadata and the kernel's own: the launch metadata for a profiler's
hooks, and the two hooks."""


class BufferOwner:
    """Owner of the buffers lent to launches. This base class is for launches that are not read, and does nothing.

    The launcher calls ``launched`` or ``failed`` once, right after the launch; it calls neither if an exception comes
    that is not a failure of the launch.
    """

    def launched(self, launch: RecordedLaunch) -> None:
        """Note that a launch was made."""

    def failed(self, launch: RecordedLaunch) -> None:
        """Note that a launch failed."""


# Not frozen, because this is in the launch path: a frozen dataclass takes three times as long to create, and a launch
# becomes the next one of its kind.
@dataclass(slots=True, eq=False)
class RecordedLaunch:
    """Launch with records, and the buffer that it writes to.

    The launcher sets the first group of fields, and the owner of the buffer sets the second. The copier's thread saves
    the ``record``, which outlives the buffer.
    """

    build: RecordingBuild
    is_kept: bool
    """False for a launch that is not read."""
    record: LaunchRecord
    """The capture's record, without the file that the writer adds; without arguments for a launch that is not read."""
    host_end_ns: int = 0
    """Time at which the launch was made; 0 before."""

    owner: BufferOwner = BufferOwner()  # noqa: RUF009 (it has no state)
    memory: Buffer | None = None
    """The buffer; None before it is lent, and after a newer launch has replaced this one."""
    memory_bytes: int = 0
    """Size of the buffer, at least the record's."""
    done: Event | None = None
    """Event after the launch in its stream; once it has happened, the records are in the buffer."""
    is_handed_over: bool = False
    """True if the copier may read the buffer, so no other launch may write to it."""

    def begin_again(self, index: int, arguments: Numbers) -> None:
        """Become a later launch with the same buffer; this one's records are not wanted."""
        self.record = replace(self.record, index=index, host_ns=time.time_ns(), arguments=arguments)
        self.host_end_ns = 0


class SampleBuffer:
    """A buffer as a kernel takes it: the address of its first row, with the sample's ``shift`` in its lowest bits."""

    __slots__ = ("_address", "_buffer")

    def __init__(self, buffer: Buffer, sample: CtaSample) -> None:
        """Keep ``buffer`` alive."""
        self._buffer = buffer
        self._address = buffer.data_ptr() + sample.ends_bytes + sample.shift

    def data_ptr(self) -> int:
        """Return the address."""
        return self._address


Save = Callable[[RecordedLaunch], None]
"""Function that saves a launch whose ``done`` is set."""
