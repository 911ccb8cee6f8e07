"""Integers in known memory decide what a kernel executes, as plain loops that read the same memory have it."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from brute_force import Kernel, Table, assert_bytes_right, assert_right, run
from executable_kernels import executable, kernels_in

from kprof_inject.analysis.interpreter.interpreter import executed
from kprof_inject.analysis.interpreter.loaded_integers import Integers, KnownRanges, deciding_loads
from kprof_inject.capture.measurements import LoadedIntegersRecord
from kprof_inject.ttgir.dialect import FUNCTION
from kprof_inject.ttgir.parser import parse
from kprof_inject.ttgir.ssa_values import result_names

HANGS_ON_MEMORY = {**kernels_in("unknown.txt"), **kernels_in("never_known.txt")}
# A block that is reached again and again is not counted, whatever the memory.
del HANGS_ON_MEMORY["blocks that lead back"]


def record_of(starts: tuple[int, ...], parts: tuple[bytes, ...]) -> LoadedIntegersRecord:
    data = zlib.compress(b"".join(parts))
    return LoadedIntegersRecord(grid=(1, 1, 1), arguments=(), starts=starts, sizes=tuple(map(len, parts)), data=data)


@pytest.mark.parametrize("name", HANGS_ON_MEMORY)
def test_everything_is_known_with_the_memory(name: str) -> None:
    ran = run(HANGS_ON_MEMORY[name], Table())
    assert_right(ran)
    assert_bytes_right(ran)
    assert all(one.times is not None for one in ran.found)
    assert all(access.places is not None and access.touched() is not None for access, _ in ran.accesses())


GATHER = """
    %row = tt.get_program_id x : i32
    %row_a = tt.addptr %p, %row : !tt.ptr<i32>, i32
    %index = tt.load %row_a : !tt.ptr<i32>
    %at = tt.addptr %p, %index : !tt.ptr<i32>, i32
    %value = tt.load %at : !tt.ptr<i32>
    tt.store %row_a, %value : !tt.ptr<i32>
"""


def test_only_loads_that_decide_something_are_read() -> None:
    module = parse(Kernel(GATHER).text)
    (function,) = (one for one in module.walk() if one.name == FUNCTION)
    assert [result_names(one) for one in deciding_loads(module, function)] == [["%index"]]


def test_memory_that_is_not_known_leaves_the_load_unknown() -> None:
    module = parse(Kernel(GATHER).text)
    (function,) = (one for one in module.walk() if one.name == FUNCTION)
    memory = KnownRanges.of(record_of((4096,), (np.arange(3, dtype="<i4").tobytes(),)))
    for ctas, is_known in ((3, True), (4, False)):
        found = executed(module, function, (ctas, 1, 1), (4096,), memory)
        (value,) = (one for one in found if result_names(one.operation) == ["%value"])
        assert (value.operands[0] is not None) == is_known


BRANCHES = """
  %n_a = tt.addptr %p, %x : !tt.ptr<i32>, i32
  %n = tt.load %n_a : !tt.ptr<i32>
  %is_set = arith.cmpi sge, %n, %c2 : i32
  scf.if %is_set {
    %far = arith.constant 1000 : i32
    %place = arith.addi %n, %far : i32
    %one_a = tt.addptr %p, %place : !tt.ptr<i32>, i32
    %one = tt.load %one_a : !tt.ptr<i32>
    LOAD %after FROM %one
  }
"""
# The address of ``%one`` where the branch is not taken, and where it is.
SKIPPED, TAKEN = 4096 + 4 * 1001, 4096 + 4 * 1002


class Hole(Table):
    """A table that ends before an address, or begins after it."""

    def __init__(self, address: int, is_above: bool) -> None:
        self.unknown = range(address, address + 400) if is_above else range(4096 + 4000, address + 4)

    def read(self, addresses: Integers, size_bytes: int) -> Integers | None:
        if any(address in self.unknown for address in addresses.ravel().tolist()):
            return None
        return super().read(addresses, size_bytes)


@pytest.mark.parametrize(("hole", "is_known"), [(Hole(SKIPPED, False), True), (Hole(TAKEN, True), False)])
def test_only_what_is_reached_has_to_be_known(hole: Hole, is_known: bool) -> None:
    ran = run(executable(BRANCHES), hole)
    assert_right(ran)
    after = next(access for access, _ in ran.accesses() if result_names(access.operation) == ["%after"])
    assert (after.touched() is not None) == is_known


@pytest.mark.parametrize("size_bytes", [1, 2, 4, 8])
def test_integers_are_read_from_all_ranges_with_their_signs(size_bytes: int) -> None:
    low, high = np.array([-1, 2, -3], f"<i{size_bytes}"), np.array([100], f"<i{size_bytes}")
    memory = KnownRanges.of(record_of((64, 1 << 50), (low.tobytes(), high.tobytes())))
    at = np.array([64 + 2 * size_bytes, 1 << 50, 64])
    found = memory.read(at, size_bytes)
    assert found is not None
    assert found.tolist() == [-3, 100, -1]
    for outside in (63, 64 + 3 * size_bytes, (1 << 50) + 1, (1 << 50) - 1):
        assert memory.read(np.array([64, outside]), size_bytes) is None


def test_a_damaged_file_tells_nothing() -> None:
    whole = record_of((64,), (b"abcdefgh",))
    for data in (b"", b"nonsense", zlib.compress(b"short"), zlib.compress(b"longer than that")):
        damaged = LoadedIntegersRecord(grid=(1, 1, 1), arguments=(), starts=(64,), sizes=whole.sizes, data=data)
        assert KnownRanges.of(damaged).read(np.array([64]), 4) is None


@pytest.mark.parametrize(("starts", "sizes"), [((0,), (1, 1)), ((0, 4), (5, 1)), ((0, 99), (16 << 20, 1))])
def test_ranges_that_cannot_be_are_refused(starts: tuple[int, ...], sizes: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="expected"):
        LoadedIntegersRecord(grid=(1, 1, 1), arguments=(), starts=starts, sizes=sizes, data=b"")
