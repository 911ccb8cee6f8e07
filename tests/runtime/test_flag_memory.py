"""The allocations of flags, out of a launch's buffer."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from buffers import Cta, buffer_words, end, halved, kernel_json, start, tagged
from flag_launches import SCOPES

from kprof_inject.capture.encoding import decode, encode
from kprof_inject.capture.schema import FlagMemoryRecord, KernelRecord
from kprof_inject.runtime.devices.device import DeviceMemory, MemoryRange
from kprof_inject.runtime.launch.flag_memory import FlagMemory

OWN, PEER, SIZE = 0x7F00_0000_0000, 0x7E40_0000_0000, 1 << 21
ADDRESS_ID, VALUE_ID, WAIT_ID = 6, 7, 1


class Driver:
    """A device of a process with these allocations, which keeps the addresses of all queries."""

    def __init__(self, *allocations: DeviceMemory) -> None:
        self.allocations = allocations
        self.asked: list[int] = []

    def selected(self, _device: int) -> Any:
        return nullcontext()

    def memory_at(self, address: int) -> DeviceMemory | None:
        self.asked.append(address)
        return next((one for one in self.allocations if one.range.address <= address < one.range.end), None)


def memory(address: int, device: int = 0, *, is_exportable: bool = False) -> DeviceMemory:
    return DeviceMemory(MemoryRange(address, SIZE), device, is_exportable)


def buffer(addresses: Sequence[int], warps: int = 1) -> tuple[memoryview, KernelRecord]:
    entries = [
        entry
        for number, address in enumerate(addresses)
        for entry in (
            *halved(ADDRESS_ID, address),
            *tagged(VALUE_ID, 7),
            *(start(WAIT_ID, 100 * number), end(WAIT_ID, 100 * number + 9)),
        )
    ]
    words = buffer_words([Cta([entries] * warps)], 256)
    return memoryview(words.tobytes()), decode(encode(kernel_json(SCOPES, words, warps)), KernelRecord, "kernel")


@pytest.mark.parametrize("warps", [1, 2, 3], ids=["a row begins within an entry", "two", "three"])
def test_each_allocation_is_found_once(warps: int) -> None:
    driver = Driver(memory(OWN, is_exportable=True), memory(PEER, 1))
    found = FlagMemory(driver)  # type: ignore[arg-type]
    data, kernel = buffer([OWN + 64, OWN + 128, PEER + 4096, OWN + 64], warps)
    assert sorted(found.new_in(data, "v0", kernel, 0), key=lambda one: one.address) == [
        FlagMemoryRecord(PEER, SIZE, 1),
        FlagMemoryRecord(OWN, SIZE, 0, is_exported=True),
    ]
    asked = len(driver.asked)
    assert list(found.new_in(data, "v0", kernel, 0)) == []
    # The halves of two addresses also make up two that are none.
    assert len(driver.asked) - asked <= 2


def test_launches_that_bring_nothing_new_are_soon_not_searched() -> None:
    driver = Driver(memory(OWN), memory(PEER))
    found = FlagMemory(driver)  # type: ignore[arg-type]
    data, kernel = buffer([OWN])
    assert [len(list(found.new_in(data, "v0", kernel, 0))) for _ in range(20)] == [1] + 19 * [0]
    other, _ = buffer([PEER])
    assert list(found.new_in(other, "v0", kernel, 0)) == []
    assert len(list(found.new_in(other, "v1", kernel, 0))) == 1


def test_addresses_without_memory_cost_a_question_for_each_page(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()
    data, kernel = buffer([OWN + 8 * number for number in range(40)])
    assert list(FlagMemory(driver).new_in(data, "v0", kernel, 0)) == []  # type: ignore[arg-type]
    assert len(driver.asked) == 1


def test_a_kernel_without_flags_is_not_looked_at() -> None:
    words = buffer_words([Cta([[start(0, 1), end(0, 2)]])], 8)
    kernel = decode(encode(kernel_json(SCOPES[:1], words, 1)), KernelRecord, "kernel")
    assert list(FlagMemory(SimpleNamespace()).new_in(memoryview(words.tobytes()), "v0", kernel, 0)) == []  # type: ignore[arg-type]
