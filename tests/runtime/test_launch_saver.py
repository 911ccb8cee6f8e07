"""A launch is saved as it began, whatever the program does next, and the program notices nothing."""

from __future__ import annotations

import errno
import gc
import os
import sys
import threading
import time
import weakref
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import triton
from fake_gpu.device import FakeDevice, FakeStaging
from fake_gpu.kernels import follow, power, scale
from fake_gpu.repeating import worker_here
from fake_gpu.saving import Saving, memory_at, saving, tensors
from programs.child import GUARD_S

from kprof_inject.capture.saved_launch import CHUNK_BYTES, IntegerArgument, PointerArgument, SavedLaunch
from kprof_inject.errors import KprofError
from kprof_inject.runtime.devices.cuda_driver import MemoryRange
from kprof_inject.runtime.launch import launch_saver, triton_wrapping
from kprof_inject.runtime.launch.launcher import SavingLauncher
from kprof_inject.runtime.launch.saved_memory import MemorySnapshot
from kprof_inject.runtime.launch.triton_wrapping import benchmarking

pytestmark = pytest.mark.triton

X = torch.arange(1, 17, dtype=torch.float32)
ZEROS = torch.zeros(16)
NO_ROOM = 100
"""Free bytes of a device without room for a copy of any launch."""


def crc32_of(tensor: torch.Tensor) -> str:
    return f"{zlib.crc32(tensor.numpy().tobytes()):016x}"


def memory_of(saved: SavedLaunch) -> list[torch.Tensor]:
    """The contents of each range, as floats."""
    ranges = [b"".join(data for _, data in saved.chunks(memory)) for memory in saved.record.memory]
    return [torch.frombuffer(bytearray(data), dtype=torch.float32) for data in ranges]


def assert_is_scale(saved: SavedLaunch, n: int) -> None:
    """Fail unless the memory is that before the launch, and the digests are those before it and after it."""
    before, after = memory_of(saved), [X, X * n]
    assert torch.equal(before[0], X)
    assert torch.equal(before[1], ZEROS)
    assert [memory.before for memory in saved.record.memory] == [crc32_of(X), crc32_of(ZEROS)]
    assert [memory.after for memory in saved.record.memory] == list(map(crc32_of, after))
    assert saved.record.arguments[2] == IntegerArgument(str(n))


def assert_nothing_is_left(saved: Saving) -> None:
    """Neither on the device nor on disk."""
    assert saved.gpu.taken == []
    assert saved.folders == []


@pytest.mark.parametrize("free_bytes", [1 << 40, NO_ROOM])
def test_memory_is_saved_as_the_launch_found_it(tmp_path: Path, free_bytes: int) -> None:
    """The next launches overwrite all of it."""
    with tensors(16, 16) as (x, out), saving(tmp_path) as saved:
        saved.gpu.free_bytes = free_bytes
        x += X
        scale[(16,)](x, out, 3)
        scale[(16,)](out, x, 0)
        scale[(16,)](x, out, 0)
        saved.gpu.wait()
        assert torch.equal(out, ZEROS)
    assert saved.refusals() == []
    assert_is_scale(saved.launch(), 3)
    assert saved.gpu.taken == []


def test_memory_is_saved_in_the_order_of_the_stream(tmp_path: Path) -> None:
    """The host is ahead: what the launch begins with is not computed yet when it is made."""
    with tensors(16, 16, 16) as (source, x, out), saving(tmp_path) as saved:
        source += X
        power[(16,)](source, x, 1)
        saved.finish()
        x.zero_()
        with saved.gpu.held():
            power[(16,)](source, x, 1)
            scale[(16,)](x, out, 3)
            scale[(16,)](out, x, 0)
            assert torch.equal(x, ZEROS)
        saved.gpu.wait()
    (launch,) = (one for one in saved.launches() if one.record.name == "scale")
    assert_is_scale(launch, 3)


def test_the_record_says_where_a_launch_comes_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["train.py", "--fast"])
    with tensors(16, 16) as (x, out), saving(tmp_path) as saved:
        scale[(4, 3, 1)](x, out, 3)
    launch = saved.launch()
    record = launch.record
    assert (record.name, record.index, record.grid) == ("scale", 0, (4, 3, 1))
    assert launch.folder.name == f"{record.variant}-{os.getpid()}.launch"
    assert record.argv == ("train.py", "--fast")
    assert record.python == sys.version.split()[0]
    assert (record.triton, record.torch) == (triton.__version__, torch.__version__)
    assert (record.device_name, record.device_uuid) == ("Fake H200", "fake")
    assert not record.graph
    assert [(memory.address, memory.size_bytes, memory.element) for memory in record.memory] == [
        (x.data_ptr(), 64, "fp32"),
        (out.data_ptr(), 64, "fp32"),
    ]
    assert record.arguments[:2] == (PointerArgument(address=x.data_ptr()), PointerArgument(address=out.data_ptr()))
    kernel = saved.workspace.kernels_folder / record.variant
    assert record.files.keys() == {str(path.relative_to(kernel)) for path in kernel.rglob("*") if path.is_file()}
    assert all((launch.folder / name).read_bytes() == (kernel / name).read_bytes() for name in record.files)


def test_an_in_place_kernel_is_saved_before_it_ran(tmp_path: Path) -> None:
    with tensors(16) as (x,), saving(tmp_path) as saved:
        x += X
        power[(16,)](x, x, 2)
    (memory,) = saved.launch().record.memory
    assert torch.equal(memory_of(saved.launch())[0], X)
    assert (memory.before, memory.after) == (crc32_of(X), crc32_of(X**2))


def test_chunks_of_zeros_take_no_room_on_disk(tmp_path: Path) -> None:
    size = 4 * CHUNK_BYTES // 4 + 16
    with tensors(size, 16) as (x, out), saving(tmp_path) as saved:
        x[:16] = X
        x[-1] = 5.0
        scale[(16,)](x, out, 3)
    launch = saved.launch()
    file = (launch.folder / "memory.bin").stat()
    assert file.st_size == 4 * size + 64
    assert file.st_blocks * 512 < 2 * CHUNK_BYTES
    first, _ = memory_of(launch)
    assert torch.equal(first[:16], X)
    assert first[-1] == 5.0
    assert first.count_nonzero() == 17


# Which launches


def test_of_each_variant_one_launch_is_saved(tmp_path: Path) -> None:
    with tensors(16, 16) as (x, out), saving(tmp_path) as saved:
        for n in range(1, 4):
            scale[(16,)](x, out, n)
            power[(16,)](x, out, n)
        saved.finish()
        scale[(16,)](x, out, 4)
    assert [(one.record.name, one.record.index) for one in saved.launches()] == [("power", 0), ("scale", 0)]
    assert [one.record.arguments[2] for one in saved.launches()] == [IntegerArgument("1")] * 2


@pytest.mark.parametrize(("launches", "index"), [("2", 2), ("first", 0), ("last", 0), ("all", 0), ("1:9:5", 1)])
def test_the_first_launch_that_is_kept_is_saved(tmp_path: Path, launches: str, index: int) -> None:
    with tensors(16, 16) as (x, out), saving(tmp_path, launches) as saved:
        x += X
        for n in range(10, 14):
            out.zero_()
            scale[(16,)](x, out, n)
            assert (saved.gpu.taken != [] or saved.folders != []) == (n >= 10 + index)
    assert saved.launch().record.index == index
    assert_is_scale(saved.launch(), 10 + index)


def test_a_launch_with_the_main_grid_replaces_the_one_that_was_saved(tmp_path: Path) -> None:
    """A small grid comes first, as when a program warms up; then a large one, and then many small ones."""
    with tensors(16, 16) as (x, out), saving(tmp_path, "last") as saved:
        x += X

        def launch(n: int, ctas: int) -> None:
            scale[(ctas,)](x, out, n)
            saved.gpu.wait()
            for _, thread in saved.capture._saver._threads:
                thread.join()

        launch(3, 4)
        assert [one.record.grid for one in saved.launches()] == [(4, 1, 1)]
        out.zero_()
        launch(5, 16)
        launch(6, 16)
        assert [(one.record.index, one.record.grid) for one in saved.launches()] == [(1, (16, 1, 1))]
        launch(7, 4)
    assert (saved.launch().record.index, saved.launch().record.grid) == (1, (16, 1, 1))
    assert_is_scale(saved.launch(), 5)
    assert saved.refusals() == []


def test_a_launch_that_cannot_replace_the_saved_one_leaves_it(tmp_path: Path) -> None:
    with tensors(16, 16) as (x, out), saving(tmp_path, "last", max_launch_bytes=1 << 20) as saved:
        x += X
        scale[(16,)](x, out, 3)
        saved.gpu.wait()
        for _, thread in saved.capture._saver._threads:
            thread.join()
        with tensors(1 << 20, 1 << 20) as (larger, larger_out):
            scale[(64,)](larger, larger_out, 4)
            saved.gpu.wait()
    assert saved.launch().record.grid == (16, 1, 1)
    assert saved.refusals() == []


def test_a_launch_that_is_not_kept_is_not_saved(tmp_path: Path) -> None:
    with tensors(16, 16) as (x, out), saving(tmp_path, "5") as saved:
        scale[(16,)](x, out, 3)
    assert_nothing_is_left(saved)


def test_a_forked_child_saves_launches_of_its_own(tmp_path: Path) -> None:
    with tensors(16, 16) as (x, out), saving(tmp_path) as saved:
        x += X
        scale[(16,)](x, out, 3)
        saved.finish()
        out.zero_()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                scale[(16,)](x, out, 4)
                saved.finish()
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert torch.equal(out, ZEROS), "the memory of a forked child is its own"
    by_pid = {int(one.folder.stem.rpartition("-")[2]): one for one in saved.launches()}
    assert by_pid.keys() == {os.getpid(), pid}
    assert_is_scale(by_pid[os.getpid()], 3)
    assert_is_scale(by_pid[pid], 4)


# Limits


@pytest.mark.parametrize(
    ("limits", "free_bytes", "refusal"),
    [
        ({"max_launch_bytes": 127}, 1 << 40, "its memory of 128 bytes exceeds the limit of 127 bytes"),
        ({"max_launch_bytes": 128}, 1 << 40, ""),
        ({"max_seconds": -1.0}, NO_ROOM, "copying its memory takes too long, and the device has no room for a copy"),
    ],
)
def test_a_launch_has_limits(tmp_path: Path, limits: dict[str, Any], free_bytes: int, refusal: str) -> None:
    with tensors(16, 16) as (x, out), saving(tmp_path, **limits) as saved:
        saved.gpu.free_bytes = free_bytes
        scale[(16,)](x, out, 3)
        scale[(16,)](x, out, 4)
    assert saved.refusals() == ([refusal] if refusal else [])
    assert (saved.gpu.taken, len(saved.folders)) == ([], not refusal)


def test_all_launches_together_have_a_limit(tmp_path: Path) -> None:
    with tensors(16, 16) as (x, out), saving(tmp_path, max_bytes=255) as saved:
        scale[(16,)](x, out, 3)
        power[(16,)](x, out, 3)
    assert saved.refusals() == ["the launches saved before take up the limit of 255 bytes"]
    assert saved.launch().record.name == "scale"
    assert saved.gpu.taken == []


TOO_LONG = "the work before it on its stream takes too long"


@pytest.mark.parametrize("has_room", [True, False])
def test_a_launch_is_not_held_up_by_work_before_it_that_waits_for_a_later_one(tmp_path: Path, has_room: bool) -> None:
    """Without room on the device, the host would copy its memory, and so wait for that work."""
    with tensors(16, 16) as (x, out), saving(tmp_path, max_seconds=0.05) as saved:
        saved.gpu.free_bytes = 1 << 40 if has_room else NO_ROOM
        x += X
        with saved.gpu.held():
            scale[(16,)](x, out, 3)
        saved.gpu.wait()
        assert torch.equal(out, X * 3)
    assert saved.refusals() == ([] if has_room else [TOO_LONG])
    assert saved.gpu.taken == []


def test_a_launch_whose_memory_is_searched_is_not_held_up_either(tmp_path: Path) -> None:
    with tensors(16, 16) as (x, out), saving(tmp_path, max_seconds=0.05) as saved:
        table = x.view(torch.int64)
        table[0] = out.data_ptr()
        with saved.gpu.held():
            follow[(1,)](table, out, 1)
        saved.gpu.wait()
    assert saved.refusals() == [TOO_LONG]


def test_an_autotuner_has_device_and_processor_for_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise it measures our threads, too, and may choose another configuration."""
    monkeypatch.setattr(triton_wrapping, "_MAX_PAUSE_S", 60.0)
    read = FakeStaging.read
    has_begun, may_end, was_read = threading.Event(), threading.Event(), threading.Event()

    def read_and_note(staging: FakeStaging, *arguments: Any) -> memoryview:
        was_read.set()
        return read(staging, *arguments)

    def tune() -> None:
        has_begun.set()
        assert may_end.wait(GUARD_S)

    monkeypatch.setattr(FakeStaging, "read", read_and_note)
    autotuner = threading.Thread(target=benchmarking(benchmarking(tune)))
    autotuner.start()
    assert has_begun.wait(GUARD_S)
    with tensors(16, 16) as (x, out), saving(tmp_path) as saved:
        scale[(16,)](x, out, 3)
        assert not was_read.wait(0.2)
        may_end.set()
        autotuner.join()
        assert was_read.wait(GUARD_S)
    assert saved.refusals() == []


OTHER_MEMORY: dict[str, tuple[Any, str, Any]] = {
    "some of its memory is the host's or another device's": (FakeDevice, "is_local", lambda *_: False),
    "saving it failed: launches are saved on NVIDIA's GPUs alone": (None, "can_save_launches", False),
    "its memory is in 2 ranges, and the limit is 1": (launch_saver, "MAX_RANGES", 1),
}


@pytest.mark.parametrize("refusal", OTHER_MEMORY)
def test_other_memory_is_a_reason_not_to_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: str) -> None:
    owner, name, value = OTHER_MEMORY[refusal]
    with tensors(16, 16) as (x, out), saving(tmp_path) as saved:
        monkeypatch.setattr(owner or saved.capture._device, name, value)
        scale[(16,)](x, out, 3)
    assert saved.refusals() == [refusal]
    assert_nothing_is_left(saved)


# Addresses in memory


@pytest.fixture
def far() -> int:
    """The first of five allocations, at ``far + k * 2^20``."""
    return 1 << 43


@pytest.mark.parametrize("levels", [1, 2, 3, 4])
def test_tables_of_addresses_are_followed_and_repeated(tmp_path: Path, far: int, levels: int) -> None:
    ranges = [MemoryRange(far + (place << 20), 128) for place in range(levels)]
    with memory_at(far, 5 << 20) as data, tensors(16, 16) as (x, out), saving(tmp_path) as saved:
        table = x.view(torch.int64)
        table[0] = far
        words = data.view(np.int64)
        for place in range(levels - 1):
            words[place << 17] = far + (place + 1 << 20)
        data.view(np.float32)[(levels - 1) << 18 : ((levels - 1) << 18) + 16] = X.numpy()
        saved.gpu.allocations = ranges
        follow[(16,)](table, out, levels)
        assert torch.equal(out, X)
    launch = saved.launch()
    found = [memory for memory in launch.record.memory if memory.is_found]
    assert [MemoryRange(memory.address, memory.size_bytes) for memory in found] == ranges
    assert torch.equal(memory_of(launch)[levels - 1][:16], X)
    with worker_here() as process:
        assert process.differences(launch.folder) == []


@pytest.mark.parametrize(("byte", "expected"), [((8 << 20) - 8, 1), (8 << 20, 0)])
def test_only_the_beginning_of_memory_is_searched(tmp_path: Path, far: int, byte: int, expected: int) -> None:
    with tensors(16 + (8 << 18), 16) as (x, out), saving(tmp_path) as saved:
        table = x.view(torch.int64)
        table[byte // 8] = far
        table[0] = x.data_ptr()
        saved.gpu.allocations = [MemoryRange(far, 64)]
        with memory_at(far, 64):
            follow[(1,)](table, out, 1)
            saved.finish()
    assert [memory.address for memory in saved.launch().record.memory if memory.is_found] == [far] * expected


def test_floats_are_not_searched(tmp_path: Path, far: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeDevice, "contents", failing(AssertionError("memory of floats was read")))
    with tensors(16, 16) as (x, out), saving(tmp_path) as saved:
        x.view(torch.int64)[0] = far
        saved.gpu.allocations = [MemoryRange(far, 64)]
        scale[(16,)](x, out, 3)
    assert saved.refusals() == []
    assert [memory.is_found for memory in saved.launch().record.memory] == [False, False]


# Failures


def failing(error: BaseException) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        raise type(error)(*error.args)  # its own, because each keeps the frames that it went through

    return fail


start_thread = threading.Thread.start


def start_no_saver(thread: threading.Thread) -> None:
    if thread.name == "kprof-inject-saver":
        raise RuntimeError("can't start new thread")
    start_thread(thread)


NO_SPACE = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
FAULT = failing(ValueError("a fault"))
FAULTS: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "no memory": (FakeDevice, "taken", FAULT),
    "no copy": (FakeDevice, "queue_digest", FAULT),
    "no reading": (FakeStaging, "read", FAULT),
    "no later digests": (MemorySnapshot, "note_later", FAULT),
    "no thread": (threading.Thread, "start", start_no_saver),
    "a full disk": (os, "pwrite", failing(NO_SPACE)),
    "a disk that is read only": (launch_saver, "write_saved_launch", failing(OSError(errno.EROFS, "Read-only"))),
}


@pytest.mark.slow
@pytest.mark.parametrize("free_bytes", [1 << 40, NO_ROOM], ids=["copied", "not copied"])
@pytest.mark.parametrize("fault", ["", *FAULTS])
def test_faults_leave_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, free_bytes: int) -> None:
    """Inductor's graph trees find out by counting references what of their pool may be used again."""
    with saving(tmp_path) as saved:
        scale.warmup(ZEROS, ZEROS, 3, grid=(16,))._init_handles()
        power[(16,)](X, ZEROS.clone(), 1)
        saved.finish()
        saved.gpu.free_bytes = free_bytes
        gc.collect()
        gc.disable()
        try:
            with monkeypatch.context() as broken:
                if fault:
                    broken.setattr(*FAULTS[fault])
                x, out = X.clone(), ZEROS.clone()
                kept = [weakref.ref(x), weakref.ref(out)]
                scale[(16,)](x, out, 3)
                saved.gpu.wait()
                assert torch.equal(out, X * 3)
                saved.capture._saver.finish()
            saved.gpu.ran.clear()
            del x, out
            assert [one() for one in kept] == [None, None]
        finally:
            gc.enable()
    assert [reason[:18] for reason in saved.refusals()] == (["saving it failed: "] if fault else [])
    assert saved.gpu.taken == []
    assert [one.record.name for one in saved.launches()] == (["power"] if fault else ["power", "scale"])


@pytest.mark.parametrize("free_bytes", [1 << 40, NO_ROOM], ids=["copied", "not copied"])
def test_a_launch_that_fails_is_not_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_bytes: int) -> None:
    with tensors(16, 16) as (x, out), saving(tmp_path) as saved:
        saved.gpu.free_bytes = free_bytes
        monkeypatch.setattr(saved.gpu, "launch", failing(RuntimeError("misaligned address")))
        with pytest.raises(RuntimeError, match="misaligned address"):
            scale[(16,)](x, out, 3)
        saved.capture._saver.finish()
        assert_nothing_is_left(saved)


def test_the_end_of_a_program_waits_only_so_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tensors(16, 16) as (x, out), saving(tmp_path) as saved:
        with saved.gpu.held():
            scale[(16,)](x, out, 3)
            monkeypatch.setattr(launch_saver, "MAX_SECONDS_AT_END", 0.05)
            begun = time.monotonic()
            saved.capture._saver.finish()
            assert 0.04 < time.monotonic() - begun < 2
            assert not list(saved.workspace.folder.glob("launches/*/*/launch.json"))
        monkeypatch.undo()
    assert saved.launch().record.index == 0


# A launch of a kernel that has no records is saved, too


REFUSED = failing(KprofError("it takes no records"))


def test_a_kernel_without_records_is_saved_and_left_to_triton(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fake_gpu.saving.write_insertion", REFUSED)
    with tensors(16, 16) as (x, out), saving(tmp_path, launches="1") as saved:
        x.fill_(2.0)
        kernel = scale[(16,)](x, out, 3)
        assert isinstance(kernel._run, SavingLauncher)
        for n in (4, 5):
            scale[(16,)](x, out, n)
        assert not isinstance(kernel._run, SavingLauncher)
        assert out.tolist() == [10.0] * 16
        assert all(not launch.kernel.records for launch in saved.gpu.ran)
    launch = saved.launch()
    assert launch.record.index == 1
    assert launch.record.arguments[2].value == "4"  # type: ignore[union-attr]
    assert not saved.refusals()


def test_its_failure_is_the_programs_and_saves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fake_gpu.saving.write_insertion", REFUSED)
    with tensors(16, 16) as (x, out), saving(tmp_path) as saved:
        scale.warmup(x, out, 3, grid=(16,))._init_handles()

        with monkeypatch.context() as broken:
            broken.setattr(saved.gpu, "launch", failing(RuntimeError("Triton Error [CUDA]: invalid argument")))
            with pytest.raises(RuntimeError, match="invalid argument"):
                scale[(16,)](x, out, 3)
        scale[(16,)](x, out, 4)
        assert out.tolist() == (4 * x).tolist()
    assert not saved.folders
