"""Find the allocations that hold the flags of waits and signals.

Processes that share memory have it at addresses of their own. What they have in common is the device, the size of the
allocation, and the place in it. Only the process itself can ask the driver for these, while the memory is still there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kprof_inject.capture.buffer_layouts import END_SHIFT, SCOPE_SHIFT, UNUSED_MASK
from kprof_inject.capture.saved_launch import ADDRESS_END
from kprof_inject.capture.schema import HALF_BITS, SCOPE_IDS, FlagMemoryRecord, KernelRecord
from kprof_inject.runtime.devices.device import Device

# The driver maps memory in pages of this size or larger ones.
_PAGE_BYTES = 1 << 16
# More than the allocations of any program's flags; random words of a damaged buffer could be as many addresses.
_MAX_LOOKUPS = 256
# An entry's first word without its end flag and its part of the clock.
_ID_MASK = (SCOPE_IDS - 1) << SCOPE_SHIFT | UNUSED_MASK
_PART_WORDS = 1 << 16
# Programs allocate their flags before they launch; a search takes about a millisecond for each megabyte of records.
_MAX_WITHOUT_NEWS = 8


@dataclass(slots=True)
class FlagMemory:
    """The allocations found so far, of one process."""

    device: Device
    _found: list[FlagMemoryRecord] = field(default_factory=list)
    _without_news: Counter[str] = field(default_factory=Counter)
    """The last launches of each variant that named no new allocation."""

    def new_in(self, data: memoryview, variant: str, kernel: KernelRecord, device: int) -> Iterator[FlagMemoryRecord]:
        """Yield the allocations of flags that a launch's buffer names for the first time.

        Launches of a variant that has named no new ones for a while are not searched.
        """
        ids = _address_ids(kernel)
        if not ids or self._without_news[variant] >= _MAX_WITHOUT_NEWS:
            return
        self._without_news[variant] += 1
        addresses = _addresses(data, ids)
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
                    self._without_news[variant] = 0
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


def _addresses(data: memoryview, ids: Sequence[int]) -> NDArray[np.int64]:
    """Return all addresses that the halves in a buffer may make up: few, as the upper halves are nearly all alike.

    Rows may begin at any word, so each word is taken for an entry's first if it looks like one.
    """
    words = np.frombuffer(data[: len(data) // 4 * 4], dtype="<u4")
    lower, upper = [np.empty(0, dtype="<u4")], [np.empty(0, dtype="<u4")]
    # Between the parts, other threads of the program may run.
    for begin in range(0, len(words) - 1, _PART_WORDS):
        heads, values = words[begin : begin + _PART_WORDS], words[begin + 1 : begin + 1 + _PART_WORDS]
        heads = heads[: len(values)]
        own = heads & _ID_MASK
        at = np.flatnonzero(np.logical_or.reduce([own == number << SCOPE_SHIFT for number in ids]))
        is_upper = heads[at] >> END_SHIFT == 1
        lower.append(np.unique(values[at[~is_upper]]))
        upper.append(np.unique(values[at[is_upper]]))
    low, high = (np.unique(np.concatenate(parts)).astype(np.int64) for parts in (lower, upper))
    addresses = ((high[:_MAX_LOOKUPS, None] << HALF_BITS) | low[None, :]).ravel()
    return addresses[(addresses > 0) & (addresses < ADDRESS_END)]
