"""Integers that decide what a kernel executes are taken from the memory of a saved launch."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from kprof_inject.analysis.interpreter.executions import evaluated
from kprof_inject.capture.capture_files import LaunchRecord
from kprof_inject.capture.measurements import LoadedIntegersRecord
from kprof_inject.capture.saved_launch import MEMORY_FILE, MemoryRecord, SavedLaunch, SavedLaunchRecord
from kprof_inject.capture.schema import DumpedKernelRecord
from kprof_inject.capture.scopes import ScopeTable
from kprof_inject.errors import KprofError
from kprof_inject.pipeline import captured_kernels as module_under_test
from kprof_inject.pipeline.captured_kernels import loaded_integers

INDICES, VALUES, OUT = 1 << 20, 1 << 21, 1 << 22
# Each CTA copies the 32 floats of the row that its index names.
GATHER = """module {
  tt.func public @gather(%i: !tt.ptr<i32>, %v: !tt.ptr<f32>, %o: !tt.ptr<f32>) {
    %c32 = arith.constant 32 : i32
    %x = tt.get_program_id x : i32
    %i_a = tt.addptr %i, %x : !tt.ptr<i32>, i32
    %row = tt.load %i_a : !tt.ptr<i32>
    %from = arith.muli %row, %c32 : i32
    %r = tt.make_range {end = 32 : i32, start = 0 : i32} : tensor<32xi32, #l>
    %from_s = tt.splat %from : i32 -> tensor<32xi32, #l>
    %from_o = arith.addi %from_s, %r : tensor<32xi32, #l>
    %v_s = tt.splat %v : !tt.ptr<f32> -> tensor<32x!tt.ptr<f32>, #l>
    %v_a = tt.addptr %v_s, %from_o : tensor<32x!tt.ptr<f32>, #l>, tensor<32xi32, #l>
    %value = tt.load %v_a : tensor<32x!tt.ptr<f32>, #l>
    %to = arith.muli %x, %c32 : i32
    %to_s = tt.splat %to : i32 -> tensor<32xi32, #l>
    %to_o = arith.addi %to_s, %r : tensor<32xi32, #l>
    %o_s = tt.splat %o : !tt.ptr<f32> -> tensor<32x!tt.ptr<f32>, #l>
    %o_a = tt.addptr %o_s, %to_o : tensor<32x!tt.ptr<f32>, #l>, tensor<32xi32, #l>
    tt.store %o_a, %value : tensor<32x!tt.ptr<f32>, #l>
    tt.return
  }
}
"""
ROWS = np.array([3, 1, 3, 3], "<i4")
ARGUMENTS = (INDICES, VALUES, OUT)


def saved_launch(folder: Path, tables: Mapping[int, bytes], changed: tuple[int, ...] = ()) -> SavedLaunch:
    memory, offset = [], 0
    for address, data in tables.items():
        before, after = f"{address:016x}", f"{address + (address in changed):016x}"
        one = MemoryRecord(
            address=address,
            size_bytes=len(data),
            offset=offset,
            chunk_crc32=(zlib.crc32(data),),
            before=before,
            after=after,
        )
        memory.append(one)
        offset += len(data)
    (folder / MEMORY_FILE).write_bytes(b"".join(tables.values()))
    record = SavedLaunchRecord(
        name="gather", variant="gather-1", index=0, grid=(4, 1, 1), arguments=(), memory=tuple(memory), files={}
    )
    return SavedLaunch(folder, record, cast(DumpedKernelRecord, None))


def launch(ctas: int = 4) -> LaunchRecord:
    return LaunchRecord(
        variant="gather-1",
        index=0,
        grid=(ctas, 1, 1),
        device=0,
        stream=0,
        host_ns=1,
        buffer_bytes=1,
        file="launch.bin",
        arguments=ARGUMENTS,
    )


def touched_bytes(record: LoadedIntegersRecord | None) -> list[int | None]:
    """Return the bytes that each access touches."""
    ran = evaluated(GATHER, "gather.ttgir", (4, 1, 1), ARGUMENTS, ScopeTable(), record)
    ranges = [one.access.touched() for one in ran.operations if one.access]
    return [None if one is None else one.size_bytes for one in ranges]


def test_the_rows_that_a_gather_reads_are_known(tmp_path: Path) -> None:
    tables = {INDICES: ROWS.tobytes() + bytes(48), VALUES: bytes(4096)}
    record = loaded_integers(GATHER, saved_launch(tmp_path, tables), launch())
    assert record is not None
    assert (record.starts, record.sizes, record.memory) == ((INDICES,), (16,), ROWS.tobytes())
    assert record.is_of((4, 1, 1), ARGUMENTS)
    assert not record.is_of((5, 1, 1), ARGUMENTS)
    # Two rows of 128 bytes, each read once.
    assert touched_bytes(record) == [16, 256, 512]
    assert touched_bytes(None) == [16, None, 512]


def test_memory_that_the_launch_changes_is_not_used(tmp_path: Path) -> None:
    saved = saved_launch(tmp_path, {INDICES: ROWS.tobytes(), VALUES: bytes(4096)}, changed=(INDICES,))
    assert loaded_integers(GATHER, saved, launch()) is None


def test_a_launch_that_reads_beyond_what_was_saved_is_not_evaluated(tmp_path: Path) -> None:
    saved = saved_launch(tmp_path, {INDICES: ROWS.tobytes()})
    assert loaded_integers(GATHER, saved, launch(5)) is None


def test_a_kernel_without_tables_needs_no_file(tmp_path: Path) -> None:
    text = GATHER.replace("arith.muli %row, %c32", "arith.muli %x, %c32")
    assert loaded_integers(text, saved_launch(tmp_path, {INDICES: ROWS.tobytes()}), launch()) is None


def test_too_much_data_is_not_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module_under_test, "MAX_LOADED_BYTES", 15)
    assert loaded_integers(GATHER, saved_launch(tmp_path, {INDICES: ROWS.tobytes()}), launch()) is None


def test_damaged_memory_is_an_error(tmp_path: Path) -> None:
    saved = saved_launch(tmp_path, {INDICES: ROWS.tobytes()})
    (tmp_path / MEMORY_FILE).write_bytes(bytes(16))
    with pytest.raises(KprofError, match="is damaged"):
        loaded_integers(GATHER, saved, launch())
