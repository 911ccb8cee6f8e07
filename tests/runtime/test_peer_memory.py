"""The memory of other devices that a launch's arguments lead to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

from kprof_inject.capture.schema import AddressTableRecord, LaunchRecord, PeerMemoryRecord
from kprof_inject.runtime.devices.device import DeviceMemory, MemoryRange
from kprof_inject.runtime.launch.peer_memory import PeerMemory

OWN, PEER, TABLE, ELSEWHERE, SIZE = 0x7F00_0000_0000, 0x7E40_0000_0000, 0x7F10_0000_0100, 0x7D00_0000_0000, 1 << 21
LOADS_POINTERS = "%1 = tt.int_to_ptr %0 : i64 -> !tt.ptr<f32>"
OTHERS = 0x7E80_0000_0000
MEMORY = {OWN: 0, PEER: 1, TABLE & -SIZE: 0, OTHERS: 0}


class Driver:
    """A process with these allocations, each of ``SIZE``, by the device that has them, and what words they hold."""

    def __init__(self, words: Mapping[int, Sequence[int]] | None = None, exportable: Sequence[int] = ()) -> None:
        self.words = words or {}
        self.exportable = exportable
        self.asked = self.read = 0

    def selected(self, _device: int) -> Any:
        return nullcontext()

    def memory_at(self, address: int) -> DeviceMemory | None:
        self.asked += 1
        found = next((begin for begin in MEMORY if begin <= address < begin + SIZE), None)
        if found is None:
            return None
        return DeviceMemory(MemoryRange(found, SIZE), MEMORY[found], is_exportable=found in self.exportable)

    def settled(self, address: int, size_bytes: int, _device: int) -> memoryview:
        self.read += 1
        words = [*self.words.get(address, ()), *[0] * (size_bytes // 8)]
        return memoryview(np.array(words[: size_bytes // 8], dtype=np.int64).tobytes())


def launch(*arguments: int | None) -> LaunchRecord:
    return LaunchRecord(
        variant="v0",
        index=0,
        grid=(1, 1, 1),
        device=0,
        stream=0,
        host_ns=0,
        buffer_bytes=0,
        file="launch",
        arguments=arguments,
    )


def found(driver: Driver, *arguments: int | None, ttgir: str = LOADS_POINTERS) -> list[object]:
    return list(PeerMemory(driver).new_of(launch(*arguments), ttgir))  # type: ignore[arg-type]


PEERS_MEMORY = PeerMemoryRecord(PEER, SIZE, 1)


@pytest.mark.parametrize(
    ("words", "values"),
    [
        ([OWN + 64, PEER + 64], (OWN + 64, PEER + 64)),
        ([OWN, PEER, 7, OWN], (OWN, PEER)),
        ([OWN, PEER, ELSEWHERE], (OWN, PEER)),
    ],
    ids=["whole", "up to a number", "up to an address without memory"],
)
def test_a_table_leads_to_a_peers_memory(words: list[int], values: tuple[int, ...]) -> None:
    assert found(Driver({TABLE: words}), TABLE, 1024, None) == [AddressTableRecord(TABLE, values), PEERS_MEMORY]


def test_a_pointer_to_a_peers_memory_needs_no_table() -> None:
    driver = Driver()
    assert found(driver, OWN, PEER + 128, 17, ttgir="") == [PEERS_MEMORY]
    assert not driver.read


def test_a_table_of_own_memory_is_kept_without_a_peer() -> None:
    assert found(Driver({TABLE: [OWN, OWN + 512]}), TABLE) == [AddressTableRecord(TABLE, (OWN, OWN + 512))]


def test_numbers_and_indices_are_no_addresses() -> None:
    assert found(Driver({TABLE: [1, 2, 3]}), TABLE, ELSEWHERE, 5, None) == []


def test_memory_of_another_process_on_the_same_device_is_a_peers() -> None:
    values = (OWN, OTHERS)
    table = AddressTableRecord(TABLE, values)
    assert found(Driver({TABLE: values}, [OWN]), TABLE) == [table, PeerMemoryRecord(OTHERS, SIZE, 0)]
    assert found(Driver({TABLE: values}, [OWN, OTHERS]), TABLE) == [table]
    assert found(Driver({TABLE: values}), TABLE) == [table]
    assert found(Driver({}, [OWN]), OWN, OTHERS) == []


def test_launches_that_bring_nothing_new_are_soon_not_looked_at() -> None:
    driver = Driver({TABLE: [OWN, PEER]})
    memory = PeerMemory(driver)  # type: ignore[arg-type]
    assert len(list(memory.new_of(launch(TABLE), LOADS_POINTERS))) == 2
    for _ in range(20):
        assert list(memory.new_of(launch(TABLE, OWN), LOADS_POINTERS)) == []
    asked = driver.asked
    assert list(memory.new_of(launch(TABLE, OWN), LOADS_POINTERS)) == []
    assert driver.asked == asked
