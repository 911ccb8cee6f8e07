"""``trace``: what it writes, of which part of a capture, and what it says."""

from __future__ import annotations

import csv
import json
import os
import shutil
import struct
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from buffers import Cta, Entry, JsonWriter, Scope, buffer_words, end, kernel_json, launch_json, save_launch, start
from command_line import CommandLine, without_sizes
from programs.child import REPO
from ranks import BEGIN_NS, Timer, clock_file, save_process
from snapshots import check

from kprof_inject.capture.reader import read_capture
from kprof_inject.cli import capture_lines
from kprof_inject.cli.capture_lines import browser_lines, drawn_part
from kprof_inject.timeline.timeline import decode_launch

TIMERS = (Timer(5_000_000), Timer(9_000_000_000))


def test_two_ranks_are_merged_and_their_error_is_said(kprof: CommandLine) -> None:
    for rank, timer in enumerate(TIMERS):
        name = f"capture/{rank}"
        save_process(kprof.folder, name, [(timer, BEGIN_NS)], [timer.reading(BEGIN_NS)], rank=rank, pid=11 + rank)
    cut = clock_file(kprof.folder, "capture/1")
    cut.write_bytes(cut.read_bytes() + b'{"device": 0, "host')

    ended = kprof("trace", "capture")

    assert ended.exit_code == 0
    check("cli/trace", without_sizes(ended.stderr), "two ranks")
    assert len(json.loads(kprof.read("capture/trace.json"))["otherData"]) == 2
    # Times in a table are on no axis but the devices' own.
    assert "axis" not in kprof("trace", "capture", "-o", "scopes.csv").stderr


KERNELS = {
    "matmul": [Scope("func"), Scope("loop[0]", "loop", 0), Scope("iter[0]", "iter", 1)],
    "add": [Scope("func"), Scope("load x", "op", 0)],
}


@pytest.fixture
def capture(kprof: CommandLine) -> Path:
    """Two launches of matmul, with four CTAs on SMs 10 to 12, and one of add, with two; all with two warps."""
    writer = JsonWriter(kprof.folder / "capture/7", {"pid": 7})
    for name, sms, count in (("matmul", (10, 11, 12, 10), 2), ("add", (3, 4), 1)):
        words = buffer_words([Cta([_warp(len(KERNELS[name]))] * 2, sm) for sm in sms], slots=8)
        writer.add_kernel(name, kernel_json(KERNELS[name], words, 2, name=f"{name}_kernel"), "module {}\n", {})
        for index in range(count):
            launch = launch_json(words, variant=name, index=index, host_ns=index)
            writer.add_launch(launch, memoryview(words.tobytes()))
    writer.finish()
    return kprof.folder / "capture"


def _warp(scopes: int) -> list[Entry]:
    """Scopes in each other, the first of the table outermost."""
    return [*(start(n, 100 + n) for n in range(scopes)), *(end(n, 900 - n) for n in reversed(range(scopes)))]


def counted(kprof: CommandLine, *options: str) -> Counter[tuple[str, ...]]:
    """How many scopes a table has of each kernel, launch and name."""
    ended = kprof("trace", "capture", "-o", "scopes.csv", *options)
    assert ended.exit_code == 0, ended.stderr
    rows = list(csv.DictReader(kprof.read("scopes.csv").splitlines()))
    assert f", {len(rows)} scopes, " in ended.stderr
    return Counter((row["kernel"], row["launch"], row["name"]) for row in rows)


def of_matmul(launches: Sequence[int], scopes: Sequence[str], count: int) -> dict[tuple[str, ...], int]:
    return {("matmul_kernel", str(launch), scope): count for launch in launches for scope in scopes}


MATMUL = ("func", "loop[0]", "iter[0]")
ADD = {("add_kernel", "0", "func"): 4, ("add_kernel", "0", "load x"): 4}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), of_matmul((0, 1), MATMUL, 8) | ADD),
        (("--kernel", "matmul*"), of_matmul((0, 1), MATMUL, 8)),
        (("--sm", "3,11-"), of_matmul((0, 1), MATMUL, 4) | {key: 2 for key in ADD}),
        (("--cta", "2-3"), of_matmul((0, 1), MATMUL, 4)),
        (
            ("--scope", "load x", "--scope", "*[0]"),
            of_matmul((0, 1), MATMUL[1:], 8) | {("add_kernel", "0", "load x"): 4},
        ),
        (
            ("--launch", "1", "--cta", "0,3", "--sm", "10", "--warp", "0", "--scope", "func"),
            of_matmul((1,), ("func",), 2),
        ),
    ],
)
def test_only_what_is_chosen_is_written(
    kprof: CommandLine, capture: Path, options: tuple[str, ...], expected: dict[tuple[str, ...], int]
) -> None:
    assert counted(kprof, *options) == expected


@pytest.mark.parametrize("options", ["--kernel matmull", "--launch 2-5", "--scope loop[1]", "--sm 131"])
def test_what_finds_nothing_is_an_error_and_writes_nothing(kprof: CommandLine, capture: Path, options: str) -> None:
    ended = kprof("trace", "capture", "-o", "scopes.csv", *options.split())
    assert ended.exit_code == 1
    check("cli/trace", ended.stderr, options)
    assert not (kprof.folder / "scopes.csv").exists()


def test_a_number_that_is_none_is_a_usage_error_at_its_place(kprof: CommandLine, capture: Path) -> None:
    ended = kprof("trace", "capture", "--cta", "0,a-4")
    assert ended.exit_code == 2
    assert ended.stderr.startswith("--cta:1:3: error: 'a-4' ")
    check("cli/trace", ended.stderr, "0,a-4")


def warps_of(kprof: CommandLine, trace: str) -> list[str]:
    events = json.loads(kprof.read(trace))["traceEvents"]
    names = [event["args"]["name"] for event in events if event["name"] == "thread_name"]
    return [name for name in names if "warp" in name]


def test_the_ending_says_the_format(kprof: CommandLine, capture: Path) -> None:
    ended = kprof("trace", "capture", "-o", "t.parquet")
    assert ended.exit_code == 0
    assert " t.parquet: 3 launches, 56 scopes, " in ended.stderr
    check("cli/trace", without_sizes(ended.stderr), "t.parquet")
    assert (kprof.folder / "t.parquet").read_bytes().startswith(b"PAR1")


@pytest.mark.parametrize(("counts", "lines"), [((2_000_000, 1_000_000), 0), ((2_000_000, 1_000_001), 2)])
def test_more_scopes_than_a_browser_shows_are_told(counts: tuple[int, ...], lines: int) -> None:
    timelines = [SimpleNamespace(scope_count=count) for count in counts]
    said = list(browser_lines(timelines))  # type: ignore[arg-type]
    assert len(said) == lines
    assert all("browsers" in line or "kprof-inject trace" in line for line in said)


def test_a_large_timeline_has_whole_ctas_of_the_first_sms(monkeypatch: pytest.MonkeyPatch) -> None:
    (launch,) = read_capture(REPO / "tests/captures/matmul").launches
    whole = decode_launch(launch)
    assert drawn_part([whole]) == ([whole], "")

    monkeypatch.setattr(capture_lines, "_MAX_DRAWN", whole.scope_count // 3)
    (part,), said = drawn_part([whole])

    assert 0 < part.scope_count <= whole.scope_count // 3
    assert f"{len(part.ctas)} of {len(whole.ctas)} recorded CTAs" in said
    left_out = whole.ctas[~np.isin(whole.ctas["cta"], part.ctas["cta"])]
    assert part.ctas["sm"].max() <= left_out["sm"].min()
    kept = np.isin(whole.scopes["cta"], part.ctas["cta"])
    assert part.scope_count == kept.sum(), "whole CTAs"


def test_settings_choose_what_the_command_line_does_not(kprof: CommandLine, capture: Path) -> None:
    chosen = ('scope = ["func", "load*"]', 'warp = "0"', 'kernel = "add*"', 'layout = "cta"')
    kprof.write("pyproject.toml", "\n".join(["[tool.kprof-inject]", *chosen, ""]))
    ended = kprof("trace", "capture", "--warp", "1", "-o", "trace.json")
    assert ended.stderr.splitlines()[0].endswith(": kernel, scope, layout")
    assert warps_of(kprof, "trace.json") == ["CTA 0 warp 1, SM 3", "CTA 1 warp 1, SM 4"]


@pytest.mark.parametrize("setting", ['sm = "x"', "sm = 1.5"])
def test_a_setting_that_is_no_number_is_pointed_at(kprof: CommandLine, capture: Path, setting: str) -> None:
    kprof.write("pyproject.toml", f"[tool.kprof-inject]\n{setting}\n")
    ended = kprof("trace", "capture")
    assert ended.exit_code == 2
    assert ended.stderr.startswith("pyproject.toml:2:1: error: ")
    assert f"\n  {setting}\n  ^\n" in ended.stderr
    assert "--sm" not in ended.stderr
    check("cli/trace", ended.stderr, setting)


def test_what_a_launch_lost_is_said(kprof: CommandLine) -> None:
    save_launch(kprof.folder / "capture", KERNELS["matmul"], [Cta([_warp(3)] * 2), None], slots=4)
    ended = kprof("trace", "capture", "-o", "t.csv")
    assert ended.exit_code == 0
    assert "4 of 12 records" in ended.stderr and "1 CTA " in ended.stderr
    check("cli/trace", ended.stderr.splitlines()[0], "4 of 12 records")


@pytest.fixture
def host_buffer(kprof: CommandLine) -> Path:
    """The demo's buffer with Proton's header before it, and what its scope ids are called."""
    (process,) = (REPO / "tests/captures/matmul").glob("*/process.json")
    lines = map(json.loads, (process.parent / "launches.jsonl").read_text().splitlines())
    *_, launch = (line for line in lines if "drop" not in line)
    kernel = json.loads((process.parent / "kernels" / launch["variant"] / "kernel.json").read_text())
    payload = (process.parent / launch["file"]).read_bytes()
    warps, row_bytes = kernel["metadata"]["num_warps"], kernel["metadata"]["profile_scratch_size"]
    size = 4 * (10 + warps)
    header = (1, 4, size, size, len(payload), 1, len(payload) // row_bytes, warps, row_bytes, warps, *range(warps))
    path = kprof.folder / "matmul.bin"
    path.write_bytes(struct.pack(f"<{len(header)}I", *header) + payload)
    kprof.write("names.json", json.dumps(kernel["scope_ids"]))
    return path


def test_protons_own_buffer_is_a_capture_too(kprof: CommandLine, host_buffer: Path) -> None:
    ended = kprof("trace", "matmul.bin", "--scope-names", "names.json", "-o", "buffer.csv")
    assert ended.exit_code == 0, ended.stderr
    shutil.copytree(REPO / "tests/captures/matmul", kprof.folder / "capture")
    assert kprof("trace", "capture", "-o", "capture.csv").exit_code == 0
    told = [
        Counter(
            tuple(row[column] for column in ("name", "cta", "sm", "warp", "start_cycles", "end_cycles"))
            for row in csv.DictReader(kprof.read(name).splitlines())
        )
        for name in ("buffer.csv", "capture.csv")
    ]
    assert told[0] == told[1]
    assert len(told[0]) == 18432


def test_the_trace_of_a_buffer_stands_beside_it(kprof: CommandLine, host_buffer: Path) -> None:
    ended = kprof("trace", "matmul.bin")
    assert ended.exit_code == 0, ended.stderr
    assert "wrote trace.json: 1 launch, 18432 scopes" in ended.stderr
    names = {event["name"] for event in json.loads(kprof.read("trace.json"))["traceEvents"] if event["ph"] == "X"}
    assert {"scope 0", "scope 1", "scope 2"} <= names


@pytest.mark.parametrize("command", ["trace", "report"])
def test_a_file_that_is_no_buffer_is_told_so(kprof: CommandLine, command: str) -> None:
    (kprof.folder / "passwd").write_bytes(b"root:x:0:0:root:/root:/bin/bash\n")
    ended = kprof(command, "passwd")
    assert (ended.exit_code, ended.stdout) == (1, "")
    check("cli/trace", ended.stderr, "passwd")


def test_a_pipe_is_no_buffer(kprof: CommandLine) -> None:
    os.mkfifo(kprof.folder / "pipe")
    ended = kprof("report", "pipe")
    assert ended.exit_code == 1
    check("cli/trace", ended.stderr, "pipe")


def test_a_capture_has_names_of_its_own(kprof: CommandLine, capture: Path) -> None:
    ended = kprof("trace", "capture", "--scope-names", "names.json")
    assert (ended.exit_code, ended.stdout) == (2, "")
    check("cli/trace", ended.stderr, "names for a capture")


@pytest.mark.parametrize("command", ["trace", "profile"])
def test_the_help_names_every_format(kprof: CommandLine, command: str) -> None:
    help_text = " ".join(kprof(command, "--help").stdout.split())
    for ending in (".json", ".pftrace", ".csv", ".gz", ".parquet", ".hatchet"):
        assert ending in help_text
