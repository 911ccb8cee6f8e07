"""What a capture's files may say: each value that is none is refused at once, by its file and its field."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from buffers import Cta, JsonWriter, Scope, buffer_words, end, kernel_json, launch_json, make_editable, start
from snapshots import check

from kprof_inject.capture.reader import read_capture
from kprof_inject.errors import KprofError

SCOPES = [Scope("kernel", source=("a.py", 3)), Scope("loop[0]", "loop", 0, ("a.py", 5))]
WORDS = buffer_words([Cta([[start(0, 10), end(0, 20)], []], sm=4)] * 3, slots=4)
MODE = {"buffer": "shared", "buffer_bytes": 0, "clock_bits": 64, "warps": [], "sched_stores": False}
KERNEL = kernel_json(SCOPES, WORDS, 2)
SCOPE = KERNEL["scope_table"]["scopes"][1]
DEEP = "[" * 100_000


def save(folder: Path, *, launches: int = 3, processes: int = 2, first_ns: int = 0) -> Path:
    """A capture of ``processes`` with so many launches each."""
    for number in range(processes):
        info = {"pid": 7 + number, "triton": "3.6.0", "recording": {"mode": MODE}, "device_names": ["H200"]}
        writer = JsonWriter(folder / f"p{number}", info)
        writer.add_clock_reading({"device": 0, "host_ns": 1, "device_ns": 2, "error_ns": 3})
        writer.add_kernel("v0", KERNEL, "module {}\n", {"a.py": "pass\n"})
        for index in range(launches):
            line = launch_json(WORDS, index=index, host_ns=first_ns + index)
            writer.add_launch(line, memoryview(WORDS.tobytes()))
        writer.add_times("v0", [10.0, 11.0])
        writer.finish()
    return folder


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("whole") / "capture")


@pytest.fixture(scope="module")
def editable(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = save(tmp_path_factory.mktemp("editable") / "capture", processes=1)
    make_editable(folder)
    return folder


def refusal(capture: Path) -> str:
    """Why a capture cannot be read: what is wrong, after the path of the capture."""
    with pytest.raises(KprofError) as caught:
        for launch in read_capture(capture).launches:
            launch.ends_and_words()[1]
            launch.kernel.ttgir()
            launch.kernel.sources()
    return caught.value.what.replace(f"{capture}/", "")


PROCESS, LAUNCHES, END = "p0/process.json", "p0/launches.jsonl", "p0/end.json"
KERNEL_JSON, TIMING = "p0/kernels/v0/kernel.json", "p0/kernels/v0/timing.json"


OWN_PARENT, DESCENDING = SCOPE | {"parent": 0}, SCOPE | {"parent": -1, "lines": [9, 8]}
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    (END, {"left_out": {"x": -1}}, "$.left_out[...]"),
    (LAUNCHES, {"variant": "../v0"}, "$.variant"),
    (LAUNCHES, {"file": "/etc/passwd"}, "$.file"),
    (LAUNCHES, {"grid": [0, -1, "x"]}, "$.grid[0]"),
    (LAUNCHES, {"grid": [1, 1]}, "$.grid"),
    (LAUNCHES, {"grid": [4, 1, 1]}, "$.buffer_bytes"),
    (LAUNCHES, {"host_ns": 1 << 62}, "$.host_ns"),
    (LAUNCHES, {"index": 1 << 31}, "$.index"),
    (KERNEL_JSON, {"mode": MODE | {"warps": [1, 0]}}, "$.mode"),
    (KERNEL_JSON, {"sm_clock_hz": 19.8e9}, "$.sm_clock_hz"),
    (KERNEL_JSON, {"sm_clock_hz": float("nan")}, "this is not JSON"),
    (KERNEL_JSON, {"layout": "spiral"}, "$.layout"),
    (KERNEL_JSON, {"scope_ids": {"256": "kernel"}}, "key in $.scope_ids"),
    (KERNEL_JSON, {"scope_table": {"scopes": [OWN_PARENT]}}, "$.scope_table"),
    (
        KERNEL_JSON,
        {"scope_table": {"scopes": [DESCENDING]}},
        "$.scope_table.scopes[0]",
    ),
    (KERNEL_JSON, {"scope_table": {"scopes": [SCOPE | {"parent": -1}] * 300}}, "$.scope_table.scopes"),
    (KERNEL_JSON, {"metadata": {"num_warps": 10**9}}, "$.metadata.num_warps"),
    (KERNEL_JSON, {"name": "x" * 5000}, "$.name"),
    (TIMING, {"replay": {"clean_ns": [1.0, 5e-324], "with_records_ns": [1.0, 1.0]}}, "$.replay"),
    (TIMING, {"times_ns": [1.0, None]}, "$.times_ns[1]"),
    (PROCESS, {"pid": "7"}, "$.pid"),
]


def refusal_of(editable: Path, folder: Path, file: str, values: dict[str, Any]) -> str:
    """Why a capture cannot be read of which a file, or its first line, has these values."""
    capture = Path(shutil.copytree(editable, folder))
    path = capture / file
    first, *rest = path.read_text().split("\n") if path.suffix == ".jsonl" else (path.read_text(),)
    path.write_text("\n".join([json.dumps(json.loads(first) | values), *rest]))
    return refusal(capture)


@pytest.mark.parametrize(
    ("file", "values", "field"), REFUSED, ids=lambda value: json.dumps(value)[:60] if isinstance(value, dict) else None
)
def test_a_value_that_is_none_is_refused_by_its_field(
    editable: Path, tmp_path: Path, file: str, values: dict[str, Any], field: str
) -> None:
    where = f"{file}:1: " if Path(file).suffix == ".jsonl" else f"{file}: "
    said = refusal_of(editable, tmp_path / "capture", file, values)
    assert said.startswith(f"{where}{field}: "), said


def test_what_is_said_of_values_that_are_none(editable: Path, tmp_path: Path) -> None:
    said = [
        refusal_of(editable, tmp_path / str(number), file, values) for number, (file, values, _) in enumerate(REFUSED)
    ]
    # Where the JSON parser fails depends on the file's length.
    check("capture/values", "\n".join(one.partition(" (byte ")[0] for one in said))


@pytest.mark.parametrize("file", [PROCESS, LAUNCHES, END, KERNEL_JSON, TIMING])
def test_json_that_is_nested_deeply_is_refused(editable: Path, tmp_path: Path, file: str) -> None:
    capture = Path(shutil.copytree(editable, tmp_path / "capture"))
    (capture / file).write_text('{"version": 3, "x": ' + DEEP + "\n")
    assert refusal(capture).endswith("this JSON is nested too deeply")


def test_a_file_that_is_too_large_is_refused(editable: Path, tmp_path: Path) -> None:
    capture = Path(shutil.copytree(editable, tmp_path / "capture"))
    with (capture / KERNEL_JSON).open("ab") as file:
        file.truncate(1 << 40)
    said = refusal(capture)
    assert said.startswith(f"{KERNEL_JSON} ") and said.endswith(" 4194304 bytes")
    check("capture/errors", said, "a file that is too large")


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _link_out(path: Path) -> None:
    path.symlink_to("/etc/passwd")


FILES = [PROCESS, LAUNCHES, "p0/clock.jsonl", END, KERNEL_JSON, TIMING]
BUFFER, TTGIR, SOURCES = "p0/launch-000001.bin", "p0/kernels/v0/kernel.ttgir", "p0/kernels/v0/sources.json"


@pytest.mark.parametrize(
    ("put", "what"),
    [
        (_pipe, "it is not a regular file"),
        (Path.mkdir, "it is not a regular file"),
        (_device, "points outside"),
        (_link_out, "points outside"),
    ],
    ids=["pipe", "folder", "device", "link"],
)
@pytest.mark.parametrize("file", [*FILES, BUFFER, TTGIR, SOURCES])
def test_nothing_but_a_file_of_the_capture_is_opened(
    whole: Path, tmp_path: Path, file: str, put: Callable[[Path], None], what: str
) -> None:
    capture = Path(shutil.copytree(whole, tmp_path / "capture"))
    (capture / file).unlink()
    put(capture / file)
    assert what in refusal(capture)


def test_a_link_within_the_capture_is_followed(whole: Path, tmp_path: Path) -> None:
    capture = Path(shutil.copytree(whole, tmp_path / "capture"))
    (capture / TTGIR).rename(capture / "module")
    (capture / TTGIR).symlink_to(capture / "module")
    assert read_capture(capture).launches[0].kernel.ttgir() == "module {}\n"


# ---- checksums -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", [PROCESS, END, KERNEL_JSON, TIMING, BUFFER, TTGIR, SOURCES])
def test_any_edit_of_a_capture_is_noticed(whole: Path, tmp_path: Path, file: str) -> None:
    capture = Path(shutil.copytree(whole, tmp_path / "capture"))
    data = bytearray((capture / file).read_bytes())
    data[len(data) // 2] ^= 1
    (capture / file).write_bytes(data)
    assert "checksum does not match" in refusal(capture)


def test_a_capture_may_be_moved_and_its_folders_renamed(whole: Path, tmp_path: Path) -> None:
    capture = Path(shutil.copytree(whole, tmp_path / "elsewhere"))
    (capture / "p0").rename(capture / "renamed")
    assert len(read_capture(capture).launches) == 6


def test_of_a_damaged_buffer_the_other_launches_are_whole(whole: Path, tmp_path: Path) -> None:
    capture = Path(shutil.copytree(whole, tmp_path / "capture"))
    (capture / BUFFER).write_bytes(bytes(384))
    launches = [launch for launch in read_capture(capture).launches if launch.path != capture / BUFFER]
    assert [launch.ends_and_words()[1].shape for launch in launches] == [(3, 32)] * 5
