"""Find the memory of peers that kernels reach: by an argument, or by a table of addresses.

That of another device is a peer's. So is that of the own one where a table also has memory of this process that others
may open: there, what they may not open comes from another process. Only the process itself can ask the driver whose
memory it is, and read the tables, while they are there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from kprof_inject.capture.saved_launch import ADDRESS_END
from kprof_inject.capture.schema import AddressTableRecord, LaunchRecord, PeerMemoryRecord
from kprof_inject.runtime.devices.device import Device, DeviceMemory
from kprof_inject.runtime.launch.reachable_memory import MIN_ADDRESS

# A table has an address for each GPU of a host, or of several.
_TABLE_BYTES = 512
_ADDRESS_BYTES = 8
# Programs share their memory before they launch.
_MAX_WITHOUT_NEWS = 8
# The operation of TTGIR that makes a pointer of what a kernel loaded.
_MAKES_POINTERS = "tt.int_to_ptr"


@dataclass(slots=True)
class PeerMemory:
    """The memory and the tables found so far, of one process."""

    device: Device
    _memory: list[DeviceMemory] = field(default_factory=list)
    _tables: set[int] = field(default_factory=set)
    _without_news: Counter[str] = field(default_factory=Counter)
    """The last launches of each variant that led to nothing new."""

    def new_of(self, launch: LaunchRecord, ttgir: str) -> Iterator[PeerMemoryRecord | AddressTableRecord]:
        """Yield what a launch leads to for the first time; ``ttgir`` is its kernel's.

        Launches of a variant that has led to nothing new for a while are not looked at. The launch has ended, and what
        its tables hold is as they were then, unless the program has changed them since.
        """
        if self._without_news[launch.variant] >= _MAX_WITHOUT_NEWS:
            return
        self._without_news[launch.variant] += 1
        loads_pointers = _MAKES_POINTERS in ttgir
        with self.device.selected(launch.device):
            for address in _addresses(launch.arguments):
                memory = self._memory_at(address)
                if memory is None:
                    continue
                if loads_pointers and memory.device is not None and address not in self._tables:
                    self._tables.add(address)
                    values = self._table_at(address, memory, launch.device)
                    if values:
                        self._without_news[launch.variant] = 0
                        yield AddressTableRecord(address, values)
                        yield from self._new_peers([*filter(None, map(self._memory_at, values))], launch)
                yield from self._new_peers((memory,), launch)

    def _new_peers(self, found: Sequence[DeviceMemory], launch: LaunchRecord) -> Iterator[PeerMemoryRecord]:
        """Yield the allocations of peers that were not known."""
        shares = any(memory.is_exportable for memory in found)
        for memory in found:
            if memory in self._memory:
                continue
            self._memory.append(memory)
            if memory.device is not None and (memory.device != launch.device or shares != memory.is_exportable):
                self._without_news[launch.variant] = 0
                yield PeerMemoryRecord(memory.range.address, memory.range.size_bytes, memory.device)

    def _memory_at(self, address: int) -> DeviceMemory | None:
        known = (one for one in self._memory if one.range.address <= address < one.range.end)
        return next(known, None) or self.device.memory_at(address)

    def _table_at(self, address: int, memory: DeviceMemory, device: int) -> tuple[int, ...]:
        """Return the addresses that memory holds from an address on."""
        size_bytes = min(_TABLE_BYTES, memory.range.end - address) // _ADDRESS_BYTES * _ADDRESS_BYTES
        values = np.frombuffer(self.device.settled(address, size_bytes, device), dtype=np.int64)
        found: list[int] = []
        for value in values.tolist():
            if not MIN_ADDRESS <= value < ADDRESS_END or self._memory_at(value) is None:
                break
            found.append(value)
        return tuple(found)


def _addresses(arguments: Iterable[int | None]) -> Iterator[int]:
    """Yield the arguments that may be addresses."""
    return (one for one in dict.fromkeys(arguments) if one is not None and MIN_ADDRESS <= one < ADDRESS_END)
