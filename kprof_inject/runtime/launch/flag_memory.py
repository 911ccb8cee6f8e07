"""Find the allocations that hold the flags of waits and signals.

Processes that share memory have it at addresses of their own. What they have in common is the device, the size of the
allocation, and the place in it. Only the process itself can ask the driver for these, while the memory is still there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kprof_inject.capture.buffer_layouts import END_SHIFT, SCOPE_SHIFT, UNUSED_MASK
from kprof_inject.capture.saved_launch import ADDRESS_END
from kprof_inject.capture.schema import SCOPE_IDS, FlagMemoryRecord, KernelRecord
from kprof_inject.runtime.devices.device import Device

# The driver maps memory in pages of this size or larger ones.
_PAGE_BYTES = 1 << 16
# More than the allocations of any program's flags; random words of a damaged buffer could be as many addresses.
_MAX_LOOKUPS = 256
_HALF_BITS = 32
_NONE = np.empty(0, dtype=np.int64)


@dataclass(slots=True)
class FlagMemory:
    """The allocations found so far, of one process."""

    device: Device
    _found: list[FlagMemoryRecord] = field(default_factory=list)

    def new_in(self, data: memoryview, kernel: KernelRecord, device: int) -> Iterator[FlagMemoryRecord]:
        """Yield the allocations of flags that a launch's buffer names for the first time."""
        ids = _address_ids(kernel)
        addresses = _addresses(data, ids) if ids else _NONE
        for known in self._found:
            addresses = _outside(addresses, known.address, known.size_bytes)
        if not addresses.size:
            return
        with self.device.selected(device):
            for _ in range(_MAX_LOOKUPS):
                address = int(addresses[0])
                memory = self.device.memory_at(address)
                if memory is None:
                    addresses = _outside(addresses, address, _PAGE_BYTES)
                else:
                    found = FlagMemoryRecord(
                        memory.range.address, memory.range.size_bytes, memory.device, memory.is_exportable
                    )
                    addresses = _outside(addresses, found.address, found.size_bytes)
                    self._found.append(found)
                    yield found
                if not addresses.size:
                    return


def _outside(addresses: NDArray[np.int64], begin: int, size_bytes: int) -> NDArray[np.int64]:
    return addresses[(addresses < begin) | (addresses >= begin + size_bytes)]


def _address_ids(kernel: KernelRecord) -> list[int]:
    """Return the scope ids of the records that hold addresses of flags."""
    flags = (scope.flag for scope in kernel.scope_table.scopes)
    records = {flag.address.record for flag in flags if flag is not None and flag.address is not None}
    return [number for number, name in kernel.scope_ids.items() if name in records]


def _addresses(data: memoryview, ids: list[int]) -> NDArray[np.int64]:
    """Return all addresses that the halves in a buffer may make up: few, as the upper halves are nearly all alike.

    Rows may begin at any word, so each word is taken for an entry's first if it looks like one.
    """
    words = np.frombuffer(data[: len(data) // 4 * 4], dtype="<u4")
    is_of_flag = np.zeros(SCOPE_IDS, dtype=bool)
    is_of_flag[ids] = True
    heads, values = words[:-1], words[1:]
    at = np.flatnonzero(is_of_flag[(heads >> SCOPE_SHIFT) & (SCOPE_IDS - 1)] & (heads & UNUSED_MASK == 0))
    is_upper = heads[at] >> END_SHIFT == 1
    lower, upper = np.unique(values[at[~is_upper]]).astype(np.int64), np.unique(values[at[is_upper]]).astype(np.int64)
    addresses = ((upper[:_MAX_LOOKUPS, None] << _HALF_BITS) | lower[None, :]).ravel()
    return addresses[(addresses > 0) & (addresses < ADDRESS_END)]
