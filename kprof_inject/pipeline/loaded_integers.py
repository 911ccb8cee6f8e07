"""Save the integers in a saved launch's memory that decide what its kernel executes."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from kprof_inject.analysis.interpreter.executions import entry_function
from kprof_inject.analysis.interpreter.footprints import NOTHING, Ranges, union
from kprof_inject.analysis.interpreter.integer_operations import Integers, deciding_loads, integers_at
from kprof_inject.analysis.interpreter.interpreter import executed
from kprof_inject.analysis.unjudged import evaluating
from kprof_inject.capture.capture_files import LaunchRecord
from kprof_inject.capture.measurements import MAX_COMPRESSED_BYTES, MAX_LOADED_BYTES, LoadedIntegersRecord
from kprof_inject.capture.saved_launch import MAX_RANGES, MemoryRecord, SavedLaunch
from kprof_inject.ttgir.parser import parse

# Tables of indices are smaller; reading more would take longer than the report is worth.
_MAX_TABLE_BYTES = 64 << 20
# Two ranges that are closer are saved as one.
_MIN_GAP_BYTES = 256


class SavedMemory:
    """Memory of a saved launch that the launch does not change. It notes what is read."""

    def __init__(self, saved: SavedLaunch) -> None:
        """Read nothing yet."""
        self._saved = saved
        self._tables: dict[MemoryRecord, NDArray[np.uint8]] = {}
        self._touched: dict[MemoryRecord, Ranges] = {}

    def read(self, addresses: Integers, size_bytes: int) -> Integers | None:
        """Implement ``Memory.read``. Raises ``KprofError`` if the file is damaged."""
        if not addresses.size:
            return addresses
        one = self._saved.record.memory_at(int(addresses.min()))
        if one is None or int(addresses.max()) + size_bytes > one.end or not _is_table(one):
            return None
        touched = Ranges.of(addresses.ravel(), addresses.ravel() + size_bytes)
        self._touched[one] = union((self._touched.get(one, NOTHING), touched))
        return integers_at(self._table(one), addresses - one.address, size_bytes)

    def touched(self) -> Iterator[tuple[int, bytes]]:
        """Yield the addresses and the bytes that were read, in ascending order."""
        for one in sorted(self._touched, key=lambda memory: memory.address):
            found, table = self._touched[one], self._table(one)
            wide = Ranges.of(found.starts, found.ends + _MIN_GAP_BYTES)
            for start, end in zip(wide.starts.tolist(), (wide.ends - _MIN_GAP_BYTES).tolist(), strict=True):
                yield start, table[start - one.address : end - one.address].tobytes()

    def _table(self, memory: MemoryRecord) -> NDArray[np.uint8]:
        if memory not in self._tables:
            data = b"".join(data for _, data in self._saved.chunks(memory))
            self._tables[memory] = np.frombuffer(data, np.uint8)
        return self._tables[memory]


def _is_table(memory: MemoryRecord) -> bool:
    """Return whether a range may have tables: the launch leaves it as it is."""
    return memory.size_bytes <= _MAX_TABLE_BYTES and memory.after is not None and memory.before == memory.after


def loaded_integers(ttgir: str, saved: SavedLaunch, launch: LaunchRecord) -> LoadedIntegersRecord | None:
    """Return the integers of a saved launch's memory that decide what a launch of the same kernel executes.

    ``ttgir`` is the kernel's module. None if it loads no such integers, or too many. Raises ``KprofError`` if the saved
    launch is damaged, or the module cannot be evaluated.
    """
    module = parse(ttgir)
    function = entry_function(module)
    if function is None or not deciding_loads(module, function):
        return None
    memory = SavedMemory(saved)
    with evaluating():
        executed(module, function, launch.grid, launch.arguments, memory)
    found = dict(memory.touched())
    data = zlib.compress(b"".join(found.values()))
    sizes = tuple(map(len, found.values()))
    if not found or len(found) > MAX_RANGES or sum(sizes) > MAX_LOADED_BYTES or len(data) > MAX_COMPRESSED_BYTES:
        return None
    return LoadedIntegersRecord(
        grid=launch.grid, arguments=launch.arguments, starts=tuple(found), sizes=sizes, data=data
    )
