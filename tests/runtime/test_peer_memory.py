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

    def __init__(
        self,
        words: Mapping[int, Sequence[int]] | None = None,
        foreign: Sequence[int] = (PEER, OTHERS),
        devices: int = 2,
    ) -> None:
        self.words = words or {}
        self.foreign = foreign
        self.devices = devices
        self.asked = self.read = 0

    def uuids(self) -> list[str]:
        return [f"GPU-{number}" for number in range(self.devices)]

    def selected(self, _device: int) -> Any:
        return nullcontext()

    def memory_at(self, address: int) -> DeviceMemory | None:
        self.asked += 1
        found = next((begin for begin in MEMORY if begin <= address < begin + SIZE), None)
        if found is None:
            return None
        return DeviceMemory(MemoryRange(found, SIZE), MEMORY[found], is_exportable=found not in self.foreign)

    def settled(self, address: int, size_bytes: int, _device: int) -> memoryview:
        self.read += 1
        if address not in self.words:
            raise RuntimeError("cuMemcpyDtoHAsync_v2 failed: invalid argument")
        words = [*self.words[address], *[0] * (size_bytes // 8)]
        return memoryview(np.array(words[: size_bytes // 8], dtype=np.int64).tobytes())


def launch(*arguments: int | None, device: int = 0, variant: str = "v0") -> LaunchRecord:
    return LaunchRecord(
        variant=variant,
        index=0,
        grid=(1, 1, 1),
        device=device,
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


def test_memory_that_has_been_freed_is_no_table() -> None:
    assert found(Driver(), TABLE, OWN) == []


def test_memory_that_may_be_unmapped_is_not_read() -> None:
    driver = Driver({TABLE: [OWN, PEER]}, foreign=(TABLE & -SIZE, PEER))
    assert found(driver, TABLE) == []
    assert not driver.read


@pytest.mark.parametrize(("processes", "is_shared"), [("2", True), ("1", False), (None, False)])
def test_where_ranks_share_a_device_memory_of_another_process_is_a_peers(
    monkeypatch: pytest.MonkeyPatch, processes: str | None, is_shared: bool
) -> None:
    if processes is None:
        monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    else:
        monkeypatch.setenv("LOCAL_WORLD_SIZE", processes)
    values = (OWN, OTHERS)
    table, foreign = AddressTableRecord(TABLE, values), PeerMemoryRecord(OTHERS, SIZE, 0, is_foreign=True)
    expected: list[object] = [table, foreign] if is_shared else [table]
    assert found(Driver({TABLE: values}, devices=1), TABLE) == expected
    assert found(Driver({TABLE: values}, foreign=(), devices=1), TABLE) == [table]
    assert found(Driver({TABLE: (OTHERS,)}, devices=1), TABLE) == [AddressTableRecord(TABLE, (OTHERS,))]
    assert found(Driver({}, devices=1), OWN, OTHERS, ttgir="") == []


def test_each_device_of_a_process_has_peers_of_its_own() -> None:
    memory = PeerMemory(Driver())  # type: ignore[arg-type]
    assert list(memory.new_of(launch(PEER, device=1), "")) == []
    assert list(memory.new_of(launch(PEER), "")) == [PEERS_MEMORY]
    assert list(memory.new_of(launch(OWN, device=1), "")) == [PeerMemoryRecord(OWN, SIZE, 0)]


def test_an_address_is_looked_at_once_for_each_kernel() -> None:
    driver = Driver({TABLE: [OWN, PEER]})
    memory = PeerMemory(driver)  # type: ignore[arg-type]
    assert len(list(memory.new_of(launch(TABLE), LOADS_POINTERS))) == 2
    asked = driver.asked
    assert list(memory.new_of(launch(TABLE), LOADS_POINTERS)) == []
    assert driver.asked == asked
    # The table may have changed; the peer's memory is known.
    driver.words = {TABLE: [PEER, OWN]}
    assert list(memory.new_of(launch(TABLE, variant="v1"), LOADS_POINTERS)) == [AddressTableRecord(TABLE, (PEER, OWN))]
    # An argument that comes late is new, too.
    assert list(memory.new_of(launch(TABLE, PEER + 8), LOADS_POINTERS)) == []
    assert driver.asked > asked
