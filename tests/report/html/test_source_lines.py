"""The source, and what its lines take."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from buffers import Scope
from timelines import Ran, cta_rows, made_timeline, scope_rows

from kprof_inject.analysis.limits.stalls import LineStalls, Stalls
from kprof_inject.analysis.summary import summarise
from kprof_inject.report.html.code import source_files
from kprof_inject.report.html.data import page_values
from kprof_inject.timeline.timeline import Timeline

PATH = "/src/k.py"


def launch_of(folder: Path, scopes: Sequence[Scope], rows: Sequence[Ran], sources: dict[str, str]) -> Timeline:
    timeline = made_timeline(folder, scopes, [scope_rows(rows)], cta_rows((0, 0, 0, 1000, 1000)))
    (timeline.launch.kernel.folder / "sources.json").write_text(json.dumps(sources))
    return timeline


def lines_of(timeline: Timeline) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = page_values(source_files(timeline, summarise(timeline)))
    return lines


def test_a_line_has_the_time_of_its_scopes(tmp_path: Path) -> None:
    scopes = [
        Scope("func", "func", -1, (PATH, 1)),
        Scope("loop", "loop", 0, (PATH, 2)),
        Scope("iter", "iter", 1, (PATH, 2)),
        Scope("load", "op", 2, (PATH, 3)),
        Scope("again", "op", 2, (PATH, 2)),
    ]
    rows = [
        Ran(0, 1000, self_ns=100),
        Ran(1, 900, self_ns=50),
        *(Ran(2, 280, iteration=number, self_ns=80) for number in range(3)),
        *(Ran(3, 150, self_ns=150) for _ in range(3)),
        *(Ran(4, 50, self_ns=50) for _ in range(3)),
    ]
    [file] = lines_of(launch_of(tmp_path, scopes, rows, {PATH: "def k():\n    for i in r:\n\tload()\n"}))
    assert file["path"] == PATH
    assert file["pieces"] == [[1, ["def k():", "    for i in r:", "        load()"]]]
    first, second, third = file["timed"]
    assert (first["line"], first["scopes"], first["total_ns"], first["self_ns"]) == (1, [0], 1000, 100)
    # The iterations, and what stands in them, are in the loop's total already.
    assert (second["line"], second["scopes"], second["total_ns"]) == (2, [1, 2, 4], 900)
    assert (second["self_ns"], second["count"], second["iterations"]) == (50 + 3 * 80 + 3 * 50, 1, 3)
    assert (third["total_ns"], third["count"], third["iterations"]) == (450, 3, 0)


def test_a_line_of_which_no_time_is_known_has_none(tmp_path: Path) -> None:
    scopes = [Scope("func", "func", -1, (PATH, 1)), Scope("loop", "loop", 0, (PATH, 2))]
    [file] = lines_of(launch_of(tmp_path, scopes, [Ran(1, 90, self_ns=90)], {PATH: "def k():\n    for i in r:\n"}))
    assert [(line["total_ns"], line["self_ns"]) for line in file["timed"]] == [(None, None), (90, 90)]


def test_files_with_more_time_come_first(tmp_path: Path) -> None:
    scopes = [Scope("little", "func", -1, ("/a.py", 1)), Scope("much", "func", -1, ("/b.py", 1))]
    rows = [Ran(0, 10, self_ns=10), Ran(1, 90, self_ns=90)]
    files = lines_of(launch_of(tmp_path, scopes, rows, {"/a.py": "a\n", "/b.py": "b\n", "/c.py": "c\n"}))
    assert [file["path"] for file in files] == ["/b.py", "/a.py", "/c.py"]


def test_a_file_without_a_text_still_has_its_times(tmp_path: Path) -> None:
    [file] = lines_of(launch_of(tmp_path, [Scope("k", "func", -1, (PATH, 7))], [Ran(0, 10, self_ns=10)], {}))
    assert (file["pieces"], [line["line"] for line in file["timed"]]) == ([], [7])


def test_of_a_long_file_only_what_is_near_scopes_is_kept(tmp_path: Path) -> None:
    text = "".join(f"line {number}\n" for number in range(1, 10_001))
    scopes = [
        Scope("a", "func", -1, (PATH, 50)),
        Scope("b", "func", -1, (PATH, 300)),
        Scope("c", "func", -1, (PATH, 9990)),
    ]
    [file] = lines_of(launch_of(tmp_path, scopes, [Ran(0, 10)], {PATH: text}))
    assert [(first, len(lines)) for first, lines in file["pieces"]] == [(1, 500), (9790, 211)]
    assert file["pieces"][1][1][0] == "line 9790"


def test_of_a_long_file_what_is_near_sampled_lines_is_kept(tmp_path: Path) -> None:
    timeline = launch_of(tmp_path, [Scope("a", "func", -1, (PATH, 1))], [Ran(0, 10)], {PATH: "line\n" * 10_000})
    stalls = Stalls(9, {"wait": 9}, {}, (LineStalls(3, (PATH, 5000), {"wait": 9}, {}),), 0, {})
    [file] = source_files(timeline, summarise(timeline), stalls)
    assert [(first, len(lines)) for first, lines in file.pieces] == [(1, 201), (4800, 401)]
    assert [line.line for line in file.stalls] == [5000]


def test_a_scope_beyond_the_files_end_is_kept(tmp_path: Path) -> None:
    [file] = lines_of(launch_of(tmp_path, [Scope("k", "func", -1, (PATH, 10**6))], [Ran(0, 10)], {PATH: "one\n"}))
    assert (file["pieces"], [line["line"] for line in file["timed"]]) == ([[1, ["one"]]], [10**6])


def test_nothing_that_moves_text_comes_through(tmp_path: Path) -> None:
    text = "a\x1b[31m\u202eb\r\n<script>\x00\n"
    [file] = lines_of(launch_of(tmp_path, [], [], {"/x\u202e.py": text}))
    assert file["path"] == "/x .py"
    assert file["pieces"] == [[1, ["a [31m b", "<script> "]]]


def test_a_kernel_without_files_has_no_source(tmp_path: Path) -> None:
    timeline = launch_of(tmp_path, [Scope("k")], [Ran(0, 10)], {})
    assert lines_of(timeline) == []
    (timeline.launch.kernel.folder / "sources.json").unlink()
    assert lines_of(timeline) == []
