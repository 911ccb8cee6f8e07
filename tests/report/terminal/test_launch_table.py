"""The table of a launch, as a file and as terminals get it."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from buffers import Scope
from known_launch import FUNC, SCOPES, known_launch
from rich.console import Console
from timelines import Ran

from kprof_inject.analysis.launch_report import report_on
from kprof_inject.report.terminal.launch_table import print_launches
from kprof_inject.timeline.timeline import Timeline

TITLES = ["scope", "source", "count", "total", "self", "mean", "p50", "p99", "share", "█ self ░ in it"]


def printed(*timelines: Timeline, width: int = 300) -> list[str]:
    out = io.StringIO()
    print_launches([report_on(timeline) for timeline in timelines], Console(file=out, width=width))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def table(lines: list[str]) -> list[str]:
    """From the line of its titles on."""
    return lines[next(number for number, line in enumerate(lines) if "count" in line and "p50" in line) :]


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("│").split("│")]


def test_variants_of_a_kernel_can_be_told_apart(tmp_path: Path) -> None:
    one, other = (known_launch(tmp_path / name) for name in ("one", "other"))
    kernel = replace(other.launch.kernel, variant="kernel-1", metadata={"num_stages": 3})
    lines = printed(one, replace(other, launch=replace(other.launch, kernel=kernel)))
    assert any(line.startswith("kernel-1 (num_stages 3), launch 0: grid 1x1x1") for line in lines)


def test_of_a_launch_within_one_step_of_the_timer_there_are_no_shares(tmp_path: Path) -> None:
    timeline = known_launch(tmp_path)
    ctas = timeline.ctas.copy()
    ctas["pre_final_ns"] = ctas["post_final_ns"] = ctas["init_ns"]
    lines = printed(replace(timeline, ctas=ctas))
    assert [cells(line)[8:] for line in table(lines)[2:6]] == [["-", ""]] * 4
    assert not any("of the warps' time" in line for line in lines)


def test_the_table(tmp_path: Path) -> None:
    lines = printed(known_launch(tmp_path))
    assert lines[0] == "kernel, launch 0: grid 1x1x1, 2 warps, span 1.500 µs, SM clock 2000 MHz"
    lines = table(lines)
    assert [cell.strip() for cell in lines[0].strip("┃").split("┃")] == TITLES
    assert [cells(line) for line in lines[2:6]] == [
        [
            "kernel",
            "my kernel.py:12",
            "4",
            "3.40 µs",
            "2.40 µs",
            *("850 ns", "850 ns", "997 ns"),
            "85.0 %",
            "██████████░░░░",
        ],
        ["loop[0]", "my kernel.py:15", "2", "1.00 µs", "720 ns", *["500 ns"] * 3, "25.0 %", "███░"],
        ["iter[0]", "my kernel.py:15", "10", "280 ns", "280 ns", "28 ns", "10 ns", "90 ns", "7.0 %", "█"],
        ["tail", "-", "0", *["-"] * 6, ""],
    ]
    assert [
        line.partition(name)[0] for line, name in zip(lines[2:6], ("kernel", "loop", "iter", "tail"), strict=True)
    ] == [
        "│ ",
        "│   ",
        "│     ",
        "│   ",
    ]
    assert lines[7].startswith("clock: 2000.0 MHz")


@pytest.mark.parametrize("width", [90, 60])
def test_on_a_narrow_terminal_names_are_folded_and_figures_are_whole(tmp_path: Path, width: int) -> None:
    long = Scope("attention_inner[0.2]", "func", -1, ("/src/flash_attention.py", 156))
    lines = table(printed(known_launch(tmp_path, [long, *SCOPES[1:]]), width=width))
    # The first row goes on until the second's figures.
    last = next(number for number, line in enumerate(lines) if "25.0 %" in line)
    source_at, count_at = (lines[0].index(title) for title in ("source", "count"))
    assert "".join(line[:source_at].strip() for line in lines[2:last]) == "attention_inner[0.2]"
    sources = "".join(line[source_at:count_at].strip() for line in lines[2:last])
    assert sources.startswith("flash_attention.py:156")
    figures = " ".join(lines[2][count_at:].split())
    assert figures == "4 3.40 µs 2.40 µs 850 ns 850 ns 997 ns 85.0 %"


def test_a_terminal_of_100_columns_needs_no_second_line_for_a_row(tmp_path: Path) -> None:
    lines = printed(known_launch(tmp_path), width=100)
    assert all(len(line) <= 100 for line in lines)
    lines = table(lines)
    assert [line.split()[0] for line in lines[2:6]] == ["kernel", "loop[0]", "iter[0]", "tail"]
    assert lines[0].split() == " ".join(TITLES).split()
    assert lines[2].split()[-3:-1] == ["85.0", "%"]


def test_a_terminal_of_80_columns_neither(tmp_path: Path) -> None:
    lines = table(printed(known_launch(tmp_path), width=80))
    assert lines[0].split() == TITLES[:-1]
    assert [line.split()[0] for line in lines[2:6]] == ["kernel", "loop[0]", "iter[0]", "tail"]
    assert all(len(line) <= 80 for line in lines[:6])


def test_bars_are_narrower_before_there_are_none(tmp_path: Path) -> None:
    lines = table(printed(known_launch(tmp_path), width=90))
    assert lines[0].endswith("share █ self")
    assert lines[2].endswith("85.0 % █████░░")


def test_what_a_file_of_inductors_is_called_is_folded(tmp_path: Path) -> None:
    name = "cabf4b6kq7xw3m2l5n7p6q4r2s3t5u7v6w4x2y3z5a7b6c4d2e3f.py"
    scopes = [Scope("kernel", "func", -1, (f"/tmp/torchinductor/ab/{name}", 20)), *SCOPES[1:]]
    lines = table(printed(known_launch(tmp_path, scopes), width=80))
    last = next(number for number, line in enumerate(lines) if "25.0 %" in line)
    assert all(len(line) <= 80 for line in lines[:last])
    source_at, count_at = (lines[0].index(title) for title in ("source", "count"))
    assert "".join(line[source_at:count_at].strip() for line in lines[2:last]) == f"{name}:20"


def test_the_letters_are_those_that_the_terminal_has(tmp_path: Path) -> None:
    raw = io.BytesIO()
    terminal = io.TextIOWrapper(raw, encoding="ascii", errors="backslashreplace")
    print_launches([report_on(known_launch(tmp_path))], Console(file=terminal, width=120))
    terminal.flush()
    lines = raw.getvalue().decode("ascii").splitlines()
    assert lines[0].startswith("kernel, launch 0: grid 1x1x1, 2 warps, span 1.500 us, ")
    assert any(line.startswith("clock: 2000.0 MHz +- ") for line in lines)
    rows = [line for line in table(lines) if line.count("|") > 8]
    assert len({len(line) for line in rows}) == 1 and len(rows) == 5
    assert not any("\\x" in line for line in lines)


def test_bars_are_plain_where_the_encoding_has_no_blocks(tmp_path: Path) -> None:
    raw = io.BytesIO()
    terminal = io.TextIOWrapper(raw, encoding="latin-1", errors="backslashreplace")
    print_launches([report_on(known_launch(tmp_path))], Console(file=terminal, width=120))
    terminal.flush()
    lines = table(raw.getvalue().decode("latin-1").splitlines())
    assert "# self . in it" in lines[0]
    assert "##########.... " in lines[2]


def test_an_instant_has_a_count_and_no_times(tmp_path: Path) -> None:
    scopes = [Scope("before_store", "mark"), *SCOPES[1:]]
    lines = table(printed(known_launch(tmp_path, scopes, [Ran(FUNC, 0, sm=3), Ran(FUNC, 0, sm=3, start_record=2)])))
    assert cells(lines[2]) == ["before_store", "-", "2", *["-"] * 6, ""]


def test_each_launch_has_its_table(tmp_path: Path) -> None:
    timeline = known_launch(tmp_path)
    second = replace(timeline, launch=replace(timeline.launch, index=1))
    assert printed(timeline, second) == printed(timeline) + printed(second)


def test_titles_say_which_rank_and_device_where_there_are_several(tmp_path: Path) -> None:
    timeline = known_launch(tmp_path)
    origin = replace(timeline.launch.origin, rank=1)
    lines = printed(
        replace(timeline, launch=replace(timeline.launch, origin=replace(origin, rank=0, pid=8))),
        replace(timeline, launch=replace(timeline.launch, origin=origin, device=3)),
    )
    titles = [line for line in lines if "kernel, launch" in line]
    assert [title.partition(": grid")[0] for title in titles] == [
        "rank 0, device 0: kernel, launch 0",
        "rank 1, device 3: kernel, launch 0",
    ]


def test_the_last_replay_of_a_graph_is_named(tmp_path: Path) -> None:
    timeline = known_launch(tmp_path)
    title = printed(replace(timeline, launch=replace(timeline.launch, graph=True)))[0]
    assert title.startswith("kernel, launch 0 (last replay of a CUDA graph): grid 1x1x1")


def test_one_warp_is_one_warp(tmp_path: Path) -> None:
    assert "grid 1x1x1, 1 warp, " in printed(known_launch(tmp_path, kernel={"num_warps": 1}, warps=1, rows=[]))[0]


def test_an_assumed_clock_is_called_one(tmp_path: Path) -> None:
    timeline = known_launch(tmp_path)
    assumed = replace(timeline.clock, rate_ns=1 / 1.98, rate_error=0.25, source="nominal")
    assert printed(replace(timeline, clock=assumed))[0].endswith(", assumed SM clock 1980 MHz")


def test_nothing_is_cut_in_a_pipe(tmp_path: Path) -> None:
    name = "triton_per_fused__to_copy_add_mean_mul_pow_rsqrt_" + "x" * 30
    source = "a_file_with_a_rather_long_name.py"
    lines = printed(known_launch(tmp_path, [Scope(name, source=(f"/deep/{source}", 1234)), *SCOPES[1:]]))
    assert any(name in line and f"{source}:1234" in line and "85.0 %" in line for line in lines)
    assert not any("…" in line for line in lines)


@pytest.mark.parametrize("name", ["load[a]", "[b]", "[/b]", ":warning:"])
def test_names_are_shown_as_they_are(tmp_path: Path, name: str) -> None:
    lines = printed(known_launch(tmp_path, [Scope(name), *SCOPES[1:]]))
    assert any(f"│ {name} " in line for line in lines)


def test_no_name_gives_the_terminal_orders(tmp_path: Path) -> None:
    evil = "a\x1b[31mb\nc\u202e"
    rows = [Ran(0, ns, warp=warp, sm=3) for warp, ns in enumerate((100, 900))]
    timeline = known_launch(tmp_path, [Scope(evil, source=(f"/src/{evil}.py", 3))], rows, kernel={"name": evil})
    text = "\n".join(printed(timeline))
    assert not {"\x1b", "\u202e"} & set(text)
    shown = "a [31mb c "
    assert f"{shown}, launch 0" in text and f"│ {shown} │" in text and f"{shown}.py:3" in text
    assert f"spread of {shown}: " in text
