"""Our memory on a device, and memory at given addresses, by drivers that only note what they are told."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kprof_inject.runtime.devices.cuda_driver import Driver, MemoryRange, NoDeviceMemory
from kprof_inject.runtime.devices.device import Device
from kprof_inject.runtime.devices.worker_device import AddressTaken, FixedMemory, areas_of
from kprof_inject.runtime.launch.saved_memory import MemorySnapshot

PROGRAMS_STREAM = 77


class _Functions:
    """All functions of the driver, each of which succeeds and gives out a new number. ``called`` has their names,
    ``zeroed`` the stream and the size of each memset."""

    def __init__(self) -> None:
        self.called: list[str] = []
        self.zeroed: list[tuple[int, int]] = []
        self._numbers = count(1 << 20, 1 << 20)
        self._host: list[Any] = []

    def cuCtxGetDevice(self, handle: Any) -> int:
        return 0

    def cuMemGetInfo_v2(self, free: Any, total: Any) -> int:
        free._obj.value = 1 << 33
        return 0

    def cuMemHostAlloc(self, address: Any, size: Any, _: int) -> int:
        self._host.append(ctypes.create_string_buffer(size.value))
        address._obj.value = ctypes.addressof(self._host[-1])
        return 0

    def cuMemsetD8Async(self, address: Any, value: int, size: Any, stream: Any) -> int:
        self.zeroed.append((stream.value, size.value))
        return 0

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> int:
            self.called.append(name)
            if arguments and hasattr(arguments[0], "_obj"):
                arguments[0]._obj.value = next(self._numbers)
            return 0

        return call


def zeroed_by_program(functions: _Functions) -> list[int]:
    return [size for stream, size in functions.zeroed if stream == PROGRAMS_STREAM]


def test_what_was_fetched_goes_to_the_next_launch_without_a_word_on_its_stream() -> None:
    functions = _Functions()
    device = Device(Driver(functions))
    addresses = set()
    for _ in range(5):
        buffer = device.zeros(1000, PROGRAMS_STREAM)
        addresses.add(buffer.data_ptr())
        assert len(device.fetch(buffer, 1000, 0, device.mark(PROGRAMS_STREAM))) == 1000
        del buffer
    assert len(addresses) == 1
    assert len(zeroed_by_program(functions)) == 1  # of memory that nobody had had before


def test_what_was_not_fetched_or_in_part_alone_is_zeroed_before_it_is_used_again() -> None:
    functions = _Functions()
    device = Device(Driver(functions))
    buffer = device.zeros(1000, PROGRAMS_STREAM)
    del buffer
    buffer = device.zeros(600, PROGRAMS_STREAM)
    device.fetch(buffer, 500, 0, device.mark(PROGRAMS_STREAM))
    del buffer
    device.zeros(900, PROGRAMS_STREAM)
    assert zeroed_by_program(functions) == [1 << 16, 1000, 600]


WAITING = ("cuModuleLoadData", "cuModuleUnload", "cuMemFree_v2", "cuMemFreeHost", "cuMemcpyDtoH_v2", "cuCtxSynchronize")
"""Functions that were seen to wait for a running kernel, or are said to, and hold up the launches of all threads."""


def test_nothing_waits_for_a_running_kernel_once_the_device_is_prepared(tmp_path: Path) -> None:
    functions = _Functions()
    device = Device(Driver(functions))
    device.prepare()
    assert functions.called[0] == "cuModuleLoadData"
    functions.called.clear()
    device.hold(PROGRAMS_STREAM, 1000)
    device.launch_empty(PROGRAMS_STREAM, 128, 1 << 17)
    assert device.read_clock(0) is not None
    for size_bytes in (1000, 1 << 20):
        buffer, done = device.zeros(size_bytes, PROGRAMS_STREAM), device.mark(PROGRAMS_STREAM)
        assert len(device.fetch(buffer, size_bytes, 0, done)) == size_bytes
        del buffer, done
    snapshot = MemorySnapshot(device, [MemoryRange(1 << 30, 100), MemoryRange(1 << 31, 1 << 20)])
    snapshot.take(PROGRAMS_STREAM)
    assert snapshot.is_copied
    snapshot.note_later(PROGRAMS_STREAM)
    for _ in range(2):
        snapshot.write(tmp_path / "memory", math.inf)
        assert [len(crc32) for crc32 in snapshot.chunk_crc32] == [1, 1]
    assert snapshot.digests() == ([0, 0], [0, 0])
    snapshot.close()
    assert len(device.contents(1 << 30, 100, PROGRAMS_STREAM)) == 100
    assert {"cuLaunchKernel", "cuMemcpyDtoHAsync_v2", "cuMemFreeAsync"} <= set(functions.called)
    assert not set(WAITING).intersection(functions.called)


def test_torchs_devices_call_no_driver() -> None:
    """They override all but what saves launches, which these devices do not."""
    from kprof_inject.runtime.devices.torch_device import _TorchDevice

    public = {name for name in vars(Device) if not name.startswith("_")}
    inherited = {name for name in public if getattr(_TorchDevice, name) is vars(Device)[name]}
    to_save = {"allocations", "contents", "copy", "free_bytes", "is_local", "queue_digest", "staging", "taken"}
    assert not _TorchDevice.can_save_launches
    assert inherited == {"unaffected_by_graphs", *to_save}


# Device memory at given addresses

PAGE, UNIT = 2 << 20, 32 << 20
BASE = 0x7F00_0000_0000


@st.composite
def disjoint_ranges(draw: st.DrawFn, unit: int) -> list[MemoryRange]:
    """Ranges in ascending order, some in one unit, some next to each other, and some far apart."""
    sizes = st.one_of(st.integers(1, 64), st.integers(1, 3 * unit), st.sampled_from([unit, 2 * unit]))
    gaps = st.one_of(st.just(0), st.integers(0, 64), st.integers(0, 3 * unit), st.sampled_from([unit, 2 * unit]))
    ranges, end = [], BASE
    for _ in range(draw(st.integers(0, 8))):
        start = end + draw(gaps)
        ranges.append(MemoryRange(start, draw(sizes)))
        end = ranges[-1].end
    return ranges


def parts_of(ranges: list[MemoryRange], unit: int) -> set[int]:
    """The numbers of all units that a range has part of."""
    return {number for one in ranges for number in range(one.address // unit, (one.end - 1) // unit + 1)}


@pytest.mark.parametrize("unit", [1, 7, 4096])
@given(data=st.data())
def test_areas_are_the_units_that_ranges_have_part_of(unit: int, data: st.DataObject) -> None:
    ranges = data.draw(disjoint_ranges(unit))
    areas = areas_of(ranges, unit)
    for area in areas:
        assert area.address % unit == area.size_bytes % unit == 0
        assert area.size_bytes > 0
    for before, after in pairwise(areas):
        assert before.end < after.address, "areas that touch each other are one"
    assert parts_of(areas, unit) == parts_of(ranges, unit)
    for one in ranges:
        assert sum(area.address <= one.address and one.end <= area.end for area in areas) == 1


def test_a_range_in_another_does_not_cut_its_area() -> None:
    assert areas_of([MemoryRange(BASE, 100), MemoryRange(BASE + 10, 5)], 10) == [MemoryRange(BASE // 10 * 10, 110)]
    assert areas_of([], 10) == []


@dataclass
class AddressSpace:
    """Driver functions for memory at addresses, which follow the rules of its manual.

    ``taken`` is what others have reserved; there is room for ``free_bytes``.
    """

    taken: list[MemoryRange] = field(default_factory=list)
    free_bytes: int = 1 << 40
    reserved: list[MemoryRange] = field(default_factory=list)
    mapped: dict[MemoryRange, int] = field(default_factory=dict)
    accessible: set[MemoryRange] = field(default_factory=set)
    created: dict[int, int] = field(default_factory=dict)
    zeroed: list[MemoryRange] = field(default_factory=list)
    created_bytes: int = 0
    _handles: Any = field(default_factory=lambda: count(1))
    _elsewhere: Any = field(default_factory=lambda: count(1 << 40, 1 << 36))

    def cuMemAddressReserve(self, to: Any, size: Any, alignment: Any, wanted: Any, flags: Any) -> int:
        assert size.value % PAGE == 0
        area = MemoryRange(wanted.value, size.value)
        is_free = not any(one.address < area.end and area.address < one.end for one in (*self.taken, *self.reserved))
        if not is_free or not area.address or area.address % UNIT:
            area = MemoryRange(next(self._elsewhere), size.value)
        to._obj.value = area.address
        self.reserved.append(area)
        return 0

    def cuMemAddressFree(self, address: Any, size: Any) -> int:
        area = MemoryRange(address.value, size.value)
        self.reserved.remove(area)
        assert not any(area.address <= one.address < area.end for one in self.mapped), "freed while it is mapped"
        return 0

    def cuMemCreate(self, to: Any, size: Any, properties: Any, flags: Any) -> int:
        if self.created_bytes + size.value > self.free_bytes:
            return 2
        assert size.value % PAGE == 0
        self.created_bytes += size.value
        to._obj.value = next(self._handles)
        self.created[to._obj.value] = size.value
        return 0

    def cuMemRelease(self, handle: Any) -> int:
        self.created_bytes -= self.created.pop(handle.value)
        return 0

    def cuMemMap(self, address: Any, size: Any, offset: Any, handle: Any, flags: Any) -> int:
        at = MemoryRange(address.value, size.value)
        assert offset.value == 0
        assert self.created[handle.value] == at.size_bytes, "memory is mapped as a whole"
        assert any(one.address <= at.address and at.end <= one.end for one in self.reserved), "it is not reserved"
        assert not any(one.address < at.end and at.address < one.end for one in self.mapped), "it is mapped already"
        self.mapped[at] = handle.value
        return 0

    def cuMemSetAccess(self, address: Any, size: Any, access: Any, number: Any) -> int:
        at = MemoryRange(address.value, size.value)
        assert at in self.mapped
        assert (access._obj.location.type, access._obj.location.device, access._obj.flags, number.value) == (1, 3, 3, 1)
        self.accessible.add(at)
        return 0

    def cuMemUnmap(self, address: Any, size: Any) -> int:
        self.accessible.discard(MemoryRange(address.value, size.value))
        del self.mapped[MemoryRange(address.value, size.value)]
        return 0

    def cuMemsetD8_v2(self, address: Any, value: int, size: Any) -> int:
        assert value.value == 0
        assert MemoryRange(address.value, size.value) in self.accessible
        self.zeroed.append(MemoryRange(address.value, size.value))
        return 0

    def is_empty(self) -> bool:
        return not (self.reserved or self.mapped or self.created or self.created_bytes)


@contextmanager
def mapped(space: AddressSpace, *ranges: MemoryRange) -> Iterator[None]:
    """Map memory; nothing is kept after this context."""
    memory = FixedMemory(Driver(space), 3)
    try:
        memory.map(ranges)
        yield
    finally:
        memory.close()
        assert space.is_empty()


@given(disjoint_ranges(PAGE))
@settings(max_examples=40)
def test_ranges_are_memory_of_their_own_and_what_is_around_them_can_be_read(ranges: list[MemoryRange]) -> None:
    space = AddressSpace()
    pages, areas = areas_of(ranges, PAGE), areas_of(ranges, UNIT)
    with mapped(space, *ranges):
        assert space.zeroed == pages
        assert len({space.mapped[page] for page in pages}) == len(pages), "two pages share memory"
        assert space.accessible == set(space.mapped)
        # All of the areas, and a unit on either side, without a hole.
        expected = {number for number in parts_of(areas, PAGE)}
        expected |= {number for area in areas for number in range(area.address // PAGE - 16, area.end // PAGE + 16)}
        assert parts_of(list(space.mapped), PAGE) == expected
        # What is around them is little memory, mapped many times.
        assert (
            space.created_bytes - sum(page.size_bytes for page in pages)
            <= UNIT // PAGE * (UNIT // PAGE + 1) // 2 * PAGE
        )


def test_memory_around_is_left_out_where_it_is_taken() -> None:
    space = AddressSpace([MemoryRange(BASE - UNIT, UNIT), MemoryRange(BASE + UNIT, PAGE)])
    with mapped(space, MemoryRange(BASE + 100, 100)):
        assert parts_of(list(space.mapped), UNIT) == {BASE // UNIT}


def test_the_lowest_addresses_have_nothing_before_them() -> None:
    space = AddressSpace()
    with mapped(space, MemoryRange(UNIT, 100)):
        assert parts_of(list(space.mapped), UNIT) == {1, 2}
        assert space.reserved == [MemoryRange(UNIT, UNIT), MemoryRange(2 * UNIT, UNIT)]


def test_an_address_that_is_taken_is_told_apart() -> None:
    space = AddressSpace([MemoryRange(BASE + 4 * UNIT, 1)])
    ranges = MemoryRange(BASE, 100), MemoryRange(BASE + 4 * UNIT + PAGE, 100)
    with pytest.raises(AddressTaken, match=hex(BASE + 4 * UNIT)), mapped(space, *ranges):
        pytest.fail("it was mapped")


@pytest.mark.parametrize("pages", range(1, 6))
def test_a_device_without_room_keeps_nothing(pages: int) -> None:
    """Also where the memory around is what does not fit."""
    space = AddressSpace(free_bytes=pages * PAGE)
    with (
        pytest.raises(NoDeviceMemory),
        mapped(space, MemoryRange(BASE, 3 * PAGE), MemoryRange(BASE + 8 * PAGE, 2 * PAGE)),
    ):
        pytest.fail("it was mapped")
