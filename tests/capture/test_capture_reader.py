"""A capture on disk: what was written is read back, and what a killed or damaged one still gives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from buffers import (
    Cta,
    JsonWriter,
    Scope,
    buffer_words,
    end,
    kernel_json,
    launch_json,
    make_editable,
    save_launches,
    start,
)

from kprof_inject.capture.capture_files import FORMAT_VERSION, ClockRecord
from kprof_inject.capture.model import Kernel
from kprof_inject.capture.reader import is_capture, read_capture
from kprof_inject.capture.resources import KernelResources
from kprof_inject.errors import KprofError

SCOPES = [Scope("kernel", source=("a.py", 3)), Scope("loop[0]", "loop", 0, ("a.py", 5), (("b.py", 9), ("c.py", 11)))]
WORDS = buffer_words([Cta([[start(0, 10), end(0, 20)], []], sm=4)] * 3, slots=4)
KERNEL = kernel_json(SCOPES, WORDS, 2)


def begin_process(folder: Path, *, pid: int = 7, variant: str = "v0") -> JsonWriter:
    writer = JsonWriter(folder, {"pid": pid, "argv": ["train.py"]})
    writer.add_kernel(variant, KERNEL, "module {}  // é\n", {"a.py": "import é\n"})
    return writer


def edit(path: Path, **values: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def add_launch(writer: JsonWriter, **values: Any) -> str:
    return writer.add_launch(launch_json(WORDS, **values), memoryview(WORDS.tobytes()))


def test_a_kernel_is_read_back(tmp_path: Path) -> None:
    add_launch(begin_process(tmp_path / "p"))
    (launch,) = read_capture(tmp_path).launches
    kernel = launch.kernel

    assert (kernel.variant, kernel.name, kernel.num_warps, kernel.layout) == ("v0", "kernel", 2, "timed")
    assert kernel.stride_bytes == 128
    assert kernel.scope_ids == {0: "kernel", 1: "loop[0]"}
    assert kernel.sm_clock_hz == 1.98e9
    assert kernel.ttgir() == "module {}  // é\n"
    assert kernel.sources() == {"a.py": "import é\n"}
    assert [(s.record, s.name, s.kind, s.source, s.called_from, s.parent) for s in kernel.scopes.scopes] == [
        ("kernel", "kernel", "func", "a.py:3", (), -1),
        ("loop[0]", "loop[0]", "loop", "a.py:5", ("b.py:9", "c.py:11"), 0),
    ]


def test_a_launch_is_read_back(tmp_path: Path) -> None:
    add_launch(begin_process(tmp_path / "p"), index=12, host_ns=34)
    (launch,) = read_capture(tmp_path).launches

    assert (launch.index, launch.grid, launch.device, launch.stream, launch.host_ns) == (12, (3, 1, 1), 0, 0, 34)
    assert launch.ends_and_words()[1].dtype == np.dtype("<u4")
    assert np.array_equal(launch.ends_and_words()[1], WORDS)


def test_launches_of_all_processes_stand_in_the_order_of_host_time(tmp_path: Path) -> None:
    one = begin_process(tmp_path / "1", pid=1)
    other = begin_process(tmp_path / "2", pid=2, variant="v1")
    add_launch(one, index=0, host_ns=300)
    add_launch(one, index=1, host_ns=100)
    add_launch(other, index=0, host_ns=200, variant="v1")
    capture = read_capture(tmp_path)

    assert [(launch.host_ns, launch.kernel.variant) for launch in capture.launches] == [
        (100, "v0"),
        (200, "v1"),
        (300, "v0"),
    ]
    assert [(process.pid, process.argv) for process in capture.processes] == [(1, ("train.py",)), (2, ("train.py",))]
    assert [launch.process.pid for launch in capture.launches] == [1, 2, 1]


def test_a_launch_knows_its_process(tmp_path: Path) -> None:
    info = {"pid": 7, "rank": 1, "host": "a", "boot_id": "b", "device_names": ["H200"], "device_uuids": [""]}
    writer = JsonWriter(tmp_path / "7-99", info)
    reading = {"device": 0, "host_ns": 1_764_000_000_000_000_001, "device_ns": 2, "error_ns": 3}
    writer.add_clock_reading(reading)
    writer.add_kernel("v0", KERNEL, "module {}\n", {})
    add_launch(writer)
    capture = read_capture(tmp_path)
    (launch,), (process,) = capture.launches, capture.processes
    assert launch.process is process
    assert (process.name, process.pid, process.rank, process.host, process.boot_id) == ("7-99", 7, 1, "a", "b")
    assert (launch.device_name, process.host_readings) == ("H200", (ClockRecord(**reading),))


@pytest.mark.parametrize(
    "line",
    [
        b"garbage",
        b'{"device": 0, "host_ns": 1, "device_ns": 2}',
        b'{"device": 0, "host_ns": 1.5, "device_ns": 2, "error_ns": 3}',
        b'{"device": 0, "host_ns": 1, "device_ns": 2, "error_ns": -3}',
        b"[" * 100_000,
    ],
    ids=["garbage", "short", "fraction", "negative", "deep"],
)
def test_a_damaged_reading_is_refused(tmp_path: Path, line: bytes) -> None:
    begin_process(tmp_path / "p")
    sound = b'{"device": 0, "host_ns": 1, "device_ns": 2, "error_ns": 3}\n'
    (tmp_path / "p" / "clock.jsonl").write_bytes(sound + sound + b'{"device": 0, "host')
    (process,) = read_capture(tmp_path).processes
    assert process.host_readings == (ClockRecord(0, 1, 2, 3),) * 2
    (tmp_path / "p" / "clock.jsonl").write_bytes(sound + line + b"\n" + sound)
    with pytest.raises(KprofError, match=r"clock\.jsonl:2: "):
        read_capture(tmp_path)


def test_two_processes_may_have_a_variant_of_the_same_name(tmp_path: Path) -> None:
    for number in (1, 2):
        writer = JsonWriter(tmp_path / str(number), {"pid": number})
        writer.add_kernel("v0", KERNEL, f"module {number}\n", {})
        add_launch(writer, host_ns=number)
    assert [launch.kernel.ttgir() for launch in read_capture(tmp_path).launches] == ["module 1\n", "module 2\n"]


def test_what_was_left_out_is_told_by_reason(tmp_path: Path) -> None:
    begin_process(tmp_path / "p").finish({"the disk was too slow": 4})
    (process,) = read_capture(tmp_path).processes
    assert process.end is not None and process.end.left_out == {"the disk was too slow": 4}
    assert read_capture(tmp_path).launches == ()


def test_a_dropped_launch_is_gone(tmp_path: Path) -> None:
    writer = begin_process(tmp_path / "p")
    names = [add_launch(writer, index=index) for index in range(3)]
    writer.drop_launch(names[1])

    assert [launch.index for launch in read_capture(tmp_path).launches] == [0, 2]
    assert sorted(path.name for path in (tmp_path / "p").glob("*.bin")) == ["launch-000000.bin", "launch-000002.bin"]


def test_a_killed_program_leaves_all_whole_lines(tmp_path: Path) -> None:
    writer = begin_process(tmp_path / "p")
    add_launch(writer, index=0)
    add_launch(writer, index=1)
    lines = tmp_path / "p" / "launches.jsonl"
    lines.write_bytes(lines.read_bytes()[:-20])

    capture = read_capture(tmp_path)
    assert capture.processes[0].end is None
    assert [launch.index for launch in capture.launches] == [0]
    assert np.array_equal(capture.launches[0].ends_and_words()[1], WORDS)


def test_a_line_without_its_newline_is_not_taken_for_whole(tmp_path: Path) -> None:
    writer = begin_process(tmp_path / "p")
    add_launch(writer)
    lines = tmp_path / "p" / "launches.jsonl"
    lines.write_bytes(lines.read_bytes().removesuffix(b"\n"))
    assert read_capture(tmp_path).launches == ()


@pytest.mark.parametrize("line", [b"{garbage", b"null", b"[1, 2]", b'"drop"'])
def test_a_line_that_was_not_cut_but_garbled_is_an_error(tmp_path: Path, line: bytes) -> None:
    add_launch(begin_process(tmp_path / "p"))
    lines = tmp_path / "p" / "launches.jsonl"
    lines.write_bytes(line + b"\n" + lines.read_bytes())
    with pytest.raises(KprofError, match=r"launches\.jsonl:1: (.* not JSON|\$: expected object)"):
        read_capture(tmp_path)


@pytest.mark.parametrize("size", [0, 4, 127, 128, 383])
def test_a_truncated_buffer_is_an_error(tmp_path: Path, size: int) -> None:
    add_launch(begin_process(tmp_path / "p"))
    (launch,) = read_capture(tmp_path).launches
    launch.path.write_bytes(launch.path.read_bytes()[:size])
    with pytest.raises(KprofError, match=r"bytes, but 384 were saved\n") as caught:
        launch.ends_and_words()[1]
    assert str(launch.path) in caught.value.what


def test_a_missing_buffer_is_an_error(tmp_path: Path) -> None:
    add_launch(begin_process(tmp_path / "p"))
    (launch,) = read_capture(tmp_path).launches
    launch.path.unlink()
    with pytest.raises(KprofError, match=r"launch-000000\.bin"):
        launch.ends_and_words()[1]


@pytest.mark.parametrize(("version", "age"), [(1, "an older"), (FORMAT_VERSION - 1, "an older"), (99, "a newer")])
def test_another_format_version_is_refused(tmp_path: Path, version: int, age: str) -> None:
    add_launch(begin_process(tmp_path / "p"))
    path = tmp_path / "p" / "process.json"
    make_editable(tmp_path)
    edit(path, version=version)
    with pytest.raises(KprofError, match=f"was made by {age} kprof-inject\nhint: profile again"):
        read_capture(tmp_path)


CLEAN = {"registers": 128, "spills": 0, "shared_bytes": 1024, "ctas_per_sm": 8, "times_ns": [10, 11.5]}


def save_with_costs(folder: Path, kernel: dict[str, Any], timing: str | None) -> Kernel:
    """A launch of a kernel whose ``kernel.json`` has these keys too, and that has this ``timing.json``."""
    save_launches(folder, KERNEL, [WORDS])
    make_editable(folder)
    edit(folder / "process-v0/kernels/v0/kernel.json", **kernel)
    if timing is not None:
        (folder / "process-v0" / "kernels" / "v0" / "timing.json").write_text(timing)
    return read_capture(folder).launches[0].kernel


def test_what_a_kernel_costs_is_read_without_records_and_with_them(tmp_path: Path) -> None:
    built = {
        "with_records": {"registers": 136, "spills": 2, "shared_bytes": 2048, "ctas_per_sm": 4},
        "clean": CLEAN,
    }
    kernel = save_with_costs(tmp_path, built, '{"times_ns": [12.25]}')
    assert kernel.clean == KernelResources(128, 0, shared_bytes=1024, ctas_per_sm=8, times_ns=(10.0, 11.5))
    assert kernel.with_records == KernelResources(136, 2, shared_bytes=2048, ctas_per_sm=4, times_ns=(12.25,))


def test_without_times_that_much_is_known(tmp_path: Path) -> None:
    built = {"with_records": {"registers": 136, "spills": 2, "shared_bytes": 2048}, "clean": {"shared_bytes": 1024}}
    kernel = save_with_costs(tmp_path, built, None)
    assert kernel.clean == KernelResources(shared_bytes=1024)
    assert kernel.with_records == KernelResources(136, 2, shared_bytes=2048)


def test_a_folder_without_a_process_is_no_capture(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    assert not is_capture(tmp_path)
    with pytest.raises(KprofError, match="is not a capture"):
        read_capture(tmp_path)


def test_a_process_that_launched_nothing_is_part_of_the_capture(tmp_path: Path) -> None:
    JsonWriter(tmp_path / "p", {"pid": 7})
    assert is_capture(tmp_path)
    assert read_capture(tmp_path).launches == ()
