"""A saved launch in a process of ours: the same memory at the same addresses, the same arguments, and its results."""

from __future__ import annotations

import ctypes
import shutil
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fake_gpu.device import FakeDevice, MappedPages
from fake_gpu.gpu import FakeGpu
from fake_gpu.kernels import HOST_KERNELS
from fake_gpu.repeating import WorkerHere, timed
from fake_gpu.saving import memory_at
from launch_files import edit, reseal, values_of

from kprof_inject.capture.capture_files import KernelRecord
from kprof_inject.capture.encoding import decode, encode
from kprof_inject.capture.mode import Mode
from kprof_inject.capture.saved_launch import DescriptorArgument, PointerArgument, SavedLaunchRecord, read_saved_launch
from kprof_inject.capture.schema import Metadata
from kprof_inject.capture.scopes import ScopeTable
from kprof_inject.errors import KprofError
from kprof_inject.runtime.compiling.recording_build import ArgumentKinds
from kprof_inject.runtime.devices.cuda_driver import MemoryRange, NoDeviceMemory
from kprof_inject.runtime.devices.worker_device import AddressTaken
from kprof_inject.runtime.launch.saved_memory import saved_arguments
from kprof_inject.runtime.worker.loaded_launch import Address, NotReplayable, _restored, loaded_launch
from kprof_inject.runtime.worker.tasks import ADDRESS_TAKEN, TaskResult, TimeRecords

pytestmark = pytest.mark.triton

X, OUT = 1 << 44, (1 << 44) + (1 << 16)


@pytest.fixture
def device() -> FakeDevice:
    gpu = FakeGpu()
    gpu.host_kernels = HOST_KERNELS
    return FakeDevice(gpu)


def floats_at(address: int, count: int = 16) -> list[float]:
    return list((ctypes.c_float * count).from_address(address))


def is_free(address: int) -> bool:
    """Nothing is mapped there."""
    pages = MappedPages()
    try:
        pages.map([MemoryRange(address, 64)])
    except AddressTaken:
        return False
    finally:
        pages.close()
    return True


# Arguments


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("i8", -128),
        ("i64", -(1 << 63)),
        ("u64", (1 << 64) - 1),
        *(("fp64", value) for value in (-0.0, float("nan"), float("-inf"), 5e-324, 0.1)),
        ("bf16", 1.5),
        ("*fp32", Address((1 << 57) - 1)),
        ("constexpr", None),
        ("('i32', ('fp32', 'constexpr'))", (1, (0.5, None))),
    ],
)
def test_a_launcher_gets_the_arguments_that_it_got_in_the_program(kind: str, value: Any) -> None:
    saved = saved_arguments([value], ArgumentKinds.of({"a": kind}))
    record = SavedLaunchRecord(name="k", variant="k-1", index=0, grid=(1, 1, 1), arguments=saved, memory=(), files={})
    (read,) = decode(encode(record), SavedLaunchRecord, "launch.json").arguments
    assert repr(_restored(read)) == repr(value)


def test_a_descriptor_has_the_fields_that_launchers_read() -> None:
    fields = {"shape": (8, 16), "strides": (16, 1), "block_shape": (2, 16), "padding": "zero", "r": True, "a": None}
    found = _restored(DescriptorArgument(base=PointerArgument(address=X), fields=fields))
    assert found.base.data_ptr() == X
    assert (found.shape, found.strides, found.block_shape) == ([8, 16], [16, 1], [2, 16])
    assert (found.padding, found.r, found.a) == ("zero", True, None)


def test_a_tensor_map_is_where_the_driver_accepts_it() -> None:
    data = bytes(range(128))
    buffer = ctypes.create_string_buffer(data, 128)
    argument = SimpleNamespace(tma_desc_cpu_ptr=lambda: ctypes.addressof(buffer))
    (saved,) = saved_arguments([argument], ArgumentKinds.of({"a": "nvTmaDesc"}))
    for found in [_restored(saved) for _ in range(8)]:
        assert found.tma_desc_cpu_ptr() % 64 == 0
        assert ctypes.string_at(found.tma_desc_cpu_ptr(), 128) == data


# Memory


def test_memory_is_where_it_was_and_what_it_was(scale_launch_once: Path, device: FakeDevice) -> None:
    saved = read_saved_launch(scale_launch_once)
    assert is_free(X)
    free_bytes = device.gpu.free_bytes
    with loaded_launch(device, saved) as launch:
        assert floats_at(X) == [float(number) for number in range(1, 17)]
        assert floats_at(OUT) == [0.0] * 16
        assert (launch.stream, launch.arguments) == (0, (Address(X), Address(OUT), 3))
        assert device.gpu.free_bytes < free_bytes
    assert is_free(X)
    assert is_free(OUT)
    assert device.gpu.free_bytes == free_bytes


def test_memory_is_restored_as_often_as_wanted(scale_launch_once: Path, device: FakeDevice) -> None:
    with loaded_launch(device, read_saved_launch(scale_launch_once)) as launch:
        first = launch.digest()
        for value in (0, 255):
            ctypes.memset(X, value, 64)
            ctypes.memset(OUT, 7, 64)
            assert launch.digest() != first
            launch.refresh()
            assert launch.digest() == first
            assert floats_at(X)[:3] == [1.0, 2.0, 3.0]


def test_large_ranges_are_loaded_by_chunks(scale_launch: Path, device: FakeDevice) -> None:
    data = torch.arange(5 << 20, dtype=torch.int32).numpy().tobytes()
    (scale_launch / "memory.bin").write_bytes(data)

    def place(values: dict[str, Any]) -> None:
        values["memory"] = [{"address": X, "size_bytes": len(data), "offset": 0, "chunk_crc32": []}]
        values["arguments"][1]["address"] = X + 64

    edit(scale_launch, place)
    reseal(scale_launch)
    with loaded_launch(device, read_saved_launch(scale_launch)):
        assert zlib.crc32(ctypes.string_at(X, len(data))) == zlib.crc32(data)


def test_memory_that_was_not_what_the_launch_began_with_is_refused(scale_launch: Path, device: FakeDevice) -> None:
    """Another stream of the program changed it while it was copied."""
    edit(scale_launch, lambda values: values["memory"][1].update(before="0" * 16))
    with (
        pytest.raises(KprofError, match=f"{OUT:#x} is not what the launch began with"),
        loaded_launch(device, read_saved_launch(scale_launch)),
    ):
        pytest.fail("it was loaded")
    assert is_free(X)


def test_memory_of_unknown_digest_is_loaded(scale_launch: Path, device: FakeDevice) -> None:
    edit(scale_launch, lambda values: [memory.update(before=None, after=None) for memory in values["memory"]])
    with loaded_launch(device, read_saved_launch(scale_launch)):
        assert floats_at(X)[:3] == [1.0, 2.0, 3.0]


def test_what_is_at_an_address_stays_there(scale_launch_once: Path, device: FakeDevice) -> None:
    with memory_at(OUT, 64) as data:
        data[:] = 7
        with pytest.raises(AddressTaken), loaded_launch(device, read_saved_launch(scale_launch_once)):
            pytest.fail("it was loaded")
        assert set(data.tolist()) == {7}
        assert is_free(X), "what was mapped before stays mapped"


@pytest.mark.parametrize("method", ["mapped", "borrowed"])
def test_a_device_without_room_is_a_reason(
    scale_launch_once: Path, device: FakeDevice, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    def fail(*_: object) -> Any:
        raise NoDeviceMemory("out of memory")

    monkeypatch.setattr(FakeDevice, method, fail)
    with (
        pytest.raises(NotReplayable, match="the device has no room for its 128 bytes and a copy of it"),
        loaded_launch(device, read_saved_launch(scale_launch_once)),
    ):
        pytest.fail("it was loaded")
    assert is_free(X)


def test_a_launch_without_memory_is_loaded(scale_launch: Path, device: FakeDevice) -> None:
    edit(scale_launch, lambda values: values.update(memory=[], arguments=[{"type": "omitted"}] * 3))
    with loaded_launch(device, read_saved_launch(scale_launch)) as launch:
        assert launch.arguments == (None, None, None)
        assert launch.digest() == ()


# Tasks


def test_a_launch_is_timed_and_has_the_programs_results(scale_launch_once: Path, process: WorkerHere) -> None:
    result = process.time(scale_launch_once)
    assert result.refusal == ""
    assert result.edit is not None
    assert (result.edit.clean_ns, result.edit.is_repeatable) == (19_570.0, True)
    assert result.seconds > 0
    # Three launches show whether results are repeatable, one whether they are without restored memory.
    assert len(process.gpu.ran) == 3 + 1
    assert process.differences(scale_launch_once) == []


def test_results_that_differ_from_launch_to_launch_are_noticed(scale_launch_once: Path, process: WorkerHere) -> None:
    calls = []

    def scale(grid: tuple[int, int, int], x: Any, out: Any, n: int) -> int:
        calls.append(n)
        out[: grid[0]] = x[: grid[0]] * len(calls)
        return 1

    process.gpu.host_kernels = {"scale": scale}
    result = process.time(scale_launch_once)
    assert result.edit is not None
    assert not result.edit.is_repeatable
    assert process.differences(scale_launch_once) == [OUT]


def test_a_kernel_of_another_triton_is_not_launched(scale_launch: Path, process: WorkerHere) -> None:
    edit(scale_launch, lambda values: values.update(triton="1.2.3"))
    result = process.time(scale_launch)
    assert result.refusal.startswith("Triton 1.2.3 compiled it, and this Python has ")
    assert process.gpu.ran == []


def test_a_launch_without_machine_code_is_not_launched(scale_launch: Path, process: WorkerHere) -> None:
    shutil.rmtree(scale_launch / "build")
    edit(scale_launch, lambda values: [values["files"].pop(name) for name in [*values["files"]] if "build/" in name])
    result = process.time(scale_launch)
    assert result.refusal == "its machine code was not saved"


def test_tasks_go_on_after_one_is_refused(scale_launch_once: Path, scale_launch: Path, process: WorkerHere) -> None:
    (scale_launch / "memory.bin").unlink()
    first, second = process.do(timed(scale_launch), timed(scale_launch_once))
    assert "memory.bin" in first.refusal
    assert second.edit is not None


def test_a_failure_of_the_device_ends_the_process_with_a_result(scale_launch_once: Path, process: WorkerHere) -> None:
    def fail(*_: object) -> int:
        raise RuntimeError("misaligned address\nand more")

    process.gpu.host_kernels = {"scale": fail}
    task = timed(scale_launch_once)
    (first,) = process.do(task, task)
    assert (first.refusal, first.is_last) == ("it failed: misaligned address", True)


def test_an_address_that_is_taken_ends_the_process(scale_launch_once: Path, process: WorkerHere) -> None:
    with memory_at(X, 64):
        assert process.do(timed(scale_launch_once)) == [TaskResult(refusal=ADDRESS_TAKEN)]


def test_records_are_timed_against_none(scale_launch_once: Path, process: WorkerHere) -> None:
    """Here, both builds are the same."""
    kernel = KernelRecord(
        name="scale",
        program_variant="scale-1",
        scopes=ScopeTable(),
        scope_ids={},
        layout="timed",
        mode=Mode("shared", 0, 64),
        metadata={"num_warps": 4, "profile_scratch_size": 64},
        sm_clock_hz=1.98e9,
    )
    assert isinstance(kernel.known_metadata, Metadata)
    task = TimeRecords(
        launch=str(scale_launch_once), build=str(scale_launch_once / "build"), kernel=kernel, seconds=1.0, times=6
    )
    (result,) = process.do(task)
    assert result.refusal == ""
    assert result.replay is not None
    assert result.replay.clean_ns == result.replay.with_records_ns == (19_570.0,) * 6
    assert values_of(scale_launch_once)["grid"] == [16, 1, 1]
