"""Sides are captured in turn, with room for all records of each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from buffers import Cta, Scope, buffer_words, kernel_json, save_launches, start
from snapshots import check

from kprof_inject.pipeline import compare_runs
from kprof_inject.pipeline.compare_runs import ComparedRounds, ComparedSide, profile_in_turn
from kprof_inject.workspace import Workspace

SLOTS = 16
"""A ring's, where nothing says how large it is to be."""


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What would have been run. What a side captures is put in its place: side B writes more than fits."""
    ran: list[list[str]] = []

    def run(side: ComparedSide, words: Sequence[str]) -> None:
        ran.append([side.name, *words])
        if words[0] == "dump" and not side.workspace.exists():
            Workspace.create(side.workspace)
        if words[0] == "run":
            size = int(words[words.index("--buffer-bytes") + 1]) // 8 if "--buffer-bytes" in words else SLOTS
            written = [start(0, cycles) for cycles in range({"A": 5, "B": 100}[side.name])]
            buffer = buffer_words([Cta([written])], size)
            kernel = kernel_json([Scope("s")], buffer, 1)
            kernel["clean_metadata"] = {"shared": 0}
            kernel["metadata"]["target"] = {"backend": "cuda", "arch": 90}
            save_launches(Workspace.open(side.workspace).new_capture_folder(), kernel, [buffer])

    monkeypatch.setattr(compare_runs, "_run", run)
    return ran


def test_where_records_are_lost_all_sides_get_room_for_them(tmp_path: Path, commands: list[list[str]]) -> None:
    both = [ComparedSide(name, tmp_path / name) for name in "AB"]
    said: list[str] = []
    a, b = profile_in_turn(both, ComparedRounds(2, ["func"], "*", "all", ["prog.py"]), said.append)
    assert [timeline.records_lost for timeline in (*a, *b)] == [0] * 4
    buffer = ["--buffer", "shared", "--buffer-bytes", "1024"]
    assert any(line.endswith(" ".join(buffer)) for line in said)
    check("pipeline/sides", "\n".join(said), "records lost")
    steps = [(side, step) for side, step, *_ in commands]
    whole = [(side, step) for side in "AB" for step in ("dump", "insert", "run")]
    assert steps == [*whole, ("A", "run"), ("B", "run"), *whole]
    assert [buffer[3] in words for words in commands if words[1] == "run"] == [False, False, True, True, True, True]


def test_where_none_is_lost_nothing_runs_twice(tmp_path: Path, commands: list[list[str]]) -> None:
    profile_in_turn(
        [ComparedSide("A", tmp_path / "A")], ComparedRounds(1, ["func"], "*", "all", ["prog.py"]), lambda said: None
    )
    assert [words[1] for words in commands] == ["dump", "insert", "run"]


def test_what_would_take_too_much_memory_is_not_tried(
    tmp_path: Path, commands: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare_runs, "MAX_LAUNCH_BYTES", 1000)
    said: list[str] = []
    profile_in_turn(
        [ComparedSide("B", tmp_path / "B")], ComparedRounds(1, ["func"], "*", "all", ["prog.py"]), said.append
    )
    assert len(commands) == 3
    check("pipeline/sides", "\n".join(said), "too much memory")


def test_a_side_with_a_path_of_its_own_still_finds_this_package(tmp_path: Path) -> None:
    side = ComparedSide("B", tmp_path, triton=tmp_path / "t", environment={"PYTHONPATH": "/mine"})
    first, package, *others = side.variables()["PYTHONPATH"].split(":")
    assert (first, others) == (str(tmp_path / "t"), ["/mine"])
    assert Path(package, "kprof_inject").is_dir()
