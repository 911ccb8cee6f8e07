"""Find the memory of peers that kernels reach: by an argument, or by a table of addresses.

That of another device than the kernel's is a peer's. Where ranks share a device, so is what another process allocated:
in a table that also has memory of this process that others may open, what they may not open. Only the process itself
can ask the driver whose memory it is, and read the tables, while they are there.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from kprof_inject.capture.saved_launch import ADDRESS_END
from kprof_inject.capture.schema import ADDRESS_BYTES, AddressTableRecord, LaunchRecord, PeerMemoryRecord
from kprof_inject.runtime.devices.device import Device, DeviceMemory
from kprof_inject.runtime.launch.reachable_memory import MIN_ADDRESS
from kprof_inject.ttgir.dialect import MAKES_POINTERS

# A table has an address for each GPU of a host, or of several.
_TABLE_BYTES = 512
# A question takes some 2 µs. Programs use most of their memory again and again.
_MAX_LOOKUPS = 4096
# Launchers such as torchrun set it to the number of processes on this host.
_PROCESSES = "LOCAL_WORLD_SIZE"


@dataclass(slots=True)
class PeerMemory:
    """The memory and the tables found so far, of one process."""

    device: Device
    _seen: set[tuple[str, int, int]] = field(default_factory=set)
    """Arguments that were looked at: the variant, the device, and the address."""
    _found: set[PeerMemoryRecord] = field(default_factory=set)

    def new_of(self, launch: LaunchRecord, ttgir: str) -> Iterator[PeerMemoryRecord | AddressTableRecord]:
        """Yield what a launch leads to for the first time; ``ttgir`` is its kernel's.

        The launch has ended, and its tables hold what they held then, unless the program has changed them since.
        """
        addresses = [
            address
            for address in dict.fromkeys(launch.arguments)
            if address is not None
            and MIN_ADDRESS <= address < ADDRESS_END
            and (launch.variant, launch.device, address) not in self._seen
        ]
        if not addresses or len(self._seen) > _MAX_LOOKUPS:
            return
        self._seen.update((launch.variant, launch.device, address) for address in addresses)
        loads_pointers = MAKES_POINTERS in ttgir
        with self.device.selected(launch.device):
            for address in addresses:
                memory = self.device.memory_at(address)
                if memory is None:
                    continue
                yield from self._new_peers((memory,), launch.device)
                values = self._table_at(address, memory, launch.device) if loads_pointers else ()
                if values:
                    yield AddressTableRecord(address, values)
                    yield from self._new_peers(filter(None, map(self.device.memory_at, values)), launch.device)

    def _new_peers(self, memory: Iterable[DeviceMemory], device: int) -> Iterator[PeerMemoryRecord]:
        """Yield the allocations of peers of a launch on a device that were not known."""
        together = list(memory)
        for one in together:
            if one.device is None:
                continue
            is_foreign = one.device == device and not one.is_exportable and self._has_foreign(together)
            record = PeerMemoryRecord(one.range.address, one.range.size_bytes, one.device, is_foreign)
            if (one.device != device or is_foreign) and record not in self._found:
                self._found.add(record)
                yield record

    def _has_foreign(self, together: Sequence[DeviceMemory]) -> bool:
        """Return whether memory that others may not open is another process's."""
        shares = any(one.is_exportable for one in together)
        return shares and int(os.environ.get(_PROCESSES, "1")) > len(self.device.uuids())

    def _table_at(self, address: int, memory: DeviceMemory, device: int) -> tuple[int, ...]:
        """Return the addresses that memory holds from an address on; empty if it holds none.

        Only memory that others may open is read: it has a mapping of its own until it is freed, and a copy from freed
        memory fails. Reading what was unmapped meanwhile might end the program.
        """
        if not memory.is_exportable:
            return ()
        size_bytes = min(_TABLE_BYTES, memory.range.end - address) // ADDRESS_BYTES * ADDRESS_BYTES
        try:
            contents = self.device.settled(address, size_bytes, device)
        except RuntimeError:  # of the driver: the memory has been freed
            return ()
        found: list[int] = []
        for value in np.frombuffer(contents, dtype=np.int64).tolist():
            if not MIN_ADDRESS <= value < ADDRESS_END or self.device.memory_at(value) is None:
                break
            found.append(value)
        return tuple(found)
