"""``report``, ``trace`` and ``diff`` of buffers that other profilers wrote."""

from __future__ import annotations

import csv
import json

import numpy as np
from command_line import CommandLine
from foreign_buffers import Mark, flashinfer
from snapshots import check


def save_flashinfer(kprof: CommandLine, name: str, load_ns: int) -> None:
    marks = [
        [[Mark(0, 0, at), Mark(1, 0, at + 32), Mark(1, 1, at + 32 + load_ns), Mark(0, 1, at + 4 * load_ns)]] * 2
        for at in range(2_000, 2_004)
    ]
    np.save(kprof.folder / name, flashinfer(2, marks, [0, 1, 2, 3]))


def test_a_report_says_what_was_timed_and_what_nobody_can_know(kprof: CommandLine) -> None:
    save_flashinfer(kprof, "a.npy", 320)
    ended = kprof("report", "a.npy", "--buffer-format", "flashinfer", "--names", "all, load", "-v", "--html", "a.html")
    assert ended.exit_code == 0
    check("cli/other_profilers", ended.stdout, "flashinfer")
    assert "4 CTAs, 2 groups " in ended.stdout
    assert "LIMIT  not known: " in ended.stdout
    assert "assumed" not in ended.stdout and "--at" not in ended.stdout and "--fit" not in ended.stdout
    launch = json.loads(
        kprof("report", "a.npy", "--buffer-format", "flashinfer", "--names", "all,load", "--json").stdout
    )
    scopes = {scope["scope"]: (scope["count"], scope["total_ns"], scope["p50_ns"]) for scope in launch[0]["scopes"]}
    assert scopes == {"all": (8, 8 * 1280, 1280), "load": (8, 8 * 320, 320)}
    assert launch[0]["warp_name"] == "group"


def test_a_table_has_what_the_buffer_has(kprof: CommandLine) -> None:
    marks = [[[Mark(0, 0, 100), Mark(1, 2, 150), Mark(0, 1, 200)]]]
    np.save(kprof.folder / "decode.npy", flashinfer(1, marks, [17]))
    ended = kprof("trace", "decode.npy", "--buffer-format", "flashinfer", "--names", "work,tick", "-o", "b.csv")
    assert ended.exit_code == 0
    rows = list(csv.DictReader(kprof.read("b.csv").splitlines()))
    assert [(row["kernel"], row["name"], row["kind"], row["sm"], row["start_ns"], row["end_ns"]) for row in rows] == [
        ("decode", "work", "scope", "17", "100", "200"),
        ("decode", "tick", "mark", "17", "150", "150"),
    ]


def test_two_buffers_are_compared_by_their_names(kprof: CommandLine) -> None:
    save_flashinfer(kprof, "a.npy", 320)
    save_flashinfer(kprof, "b.npy", 640)
    options = ("--buffer-format", "flashinfer", "--names", "all,load", "--renamed", "a=b", "--json")
    compared = json.loads(kprof("diff", "a.npy", "b.npy", *options).stdout)
    assert "load" in json.dumps(compared)
    ended = kprof("diff", "a.npy", "b.npy", *options[:-1])
    answer = " ".join(ended.stdout.splitlines()[:2])
    assert answer.endswith(" (--more-a, --more-b)")
    assert "--launches" not in ended.stdout
    # What it says to run reads the buffer.
    report = ended.stderr.split("kprof-inject report ")[1].split(";")[0]
    assert report == "b.npy --buffer-format flashinfer --names all,load"


def test_a_scope_in_one_of_its_name_takes_no_more_than_all(kprof: CommandLine) -> None:
    marks = [Mark(0, 0, 100), Mark(0, 0, 150), Mark(0, 1, 300), Mark(0, 1, 400)]
    np.save(kprof.folder / "a.npy", flashinfer(1, [[marks]]))
    ended = kprof("report", "--json", "a.npy", "--buffer-format", "flashinfer", "--names", "a")
    assert [scope["share"] for scope in json.loads(ended.stdout)[0]["scopes"]] == [1.0]


def test_what_does_not_fit_is_said(kprof: CommandLine) -> None:
    save_flashinfer(kprof, "a.npy", 320)
    ended = kprof("report", "a.npy")
    assert ended.exit_code == 2
    check("cli/other_profilers", ended.stderr, "no format")
    ended = kprof("report", "a.npy", "--buffer-format", "triton-distributed")
    assert ended.exit_code == 1 and "entries are not triton-distributed entries" in ended.stderr
    ended = kprof("report", "a.npy", "--buffer-format", "flashinfer", "--scope-names", "a.json")
    assert ended.exit_code == 2 and "error: --scope-names is for " in ended.stderr
    ended = kprof("report", "b.npy", "--buffer-format", "flashinfer")
    assert (ended.exit_code, ended.stderr.splitlines()[0]) == (1, "error: b.npy does not exist")
