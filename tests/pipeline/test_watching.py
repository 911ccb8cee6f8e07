"""The observer reads what a watched program leaves, and survives whatever it finds there."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from buffers import Cta, Scope, end, save_launch, start

from kprof_inject.pipeline.watching import Observer, WatchLimits, watch_folder
from kprof_inject.watching.history import History, HistoryRow
from kprof_inject.watching.slowdowns import MIN_PAST, RECENT
from kprof_inject.workspace import Workspace

USUAL_NS, SLOW_NS = 10_000, 13_000


def capture(workspace: Workspace, ns: int = USUAL_NS) -> Path:
    """Save a capture of a launch that takes ``ns``."""
    folder = workspace.new_capture_folder()
    warp = [start(0, 1000), end(0, 1000 + 2 * ns)]
    cta = Cta([warp], pre_final_ns=1000 + ns, post_final_ns=1500 + ns)
    save_launch(folder, [Scope("func")], [cta], 16, host_ns=time.time_ns())
    (part,) = folder.iterdir()
    part.rename(folder / f"7-{folder.name}")
    return folder


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace.begin(tmp_path / "ws")


class Watch:
    """An observer, and what it says."""

    def __init__(self, workspace: Workspace, max_bytes: int = 1 << 30) -> None:
        self.said: list[str] = []
        limits = WatchLimits(max_bytes=max_bytes)
        self.observer = Observer(workspace, workspace.reports_folder("watch"), limits, self.said.append)

    def after(self, workspace: Workspace, times_ns: Sequence[int]) -> None:
        """Look after each of several captures."""
        for ns in times_ns:
            capture(workspace, ns)
            self.observer.look()


def launches_in(workspace: Workspace) -> list[HistoryRow]:
    return History(watch_folder(workspace) / "history", os.uname().nodename).launches()


def test_a_capture_is_read_once_and_only_when_it_is_complete(workspace: Workspace) -> None:
    watch = Watch(workspace)
    (part,) = capture(workspace).iterdir()
    part = part.rename(part.with_name(f"{os.getpid()}-1"))  # of a process that runs
    (part / "end.json").rename(part / "later")
    watch.observer.look()
    assert launches_in(workspace) == []
    (part / "later").rename(part / "end.json")
    watch.observer.look()
    watch.observer.look()
    assert [row.capture for row in launches_in(workspace)] == ["001"]
    assert watch.said == []


def test_a_slow_kernel_raises_one_alarm_and_its_captures_stay(workspace: Workspace) -> None:
    watch = Watch(workspace)
    watch.after(workspace, [USUAL_NS] * (MIN_PAST + RECENT) + [SLOW_NS] * (RECENT + 3))
    (line,) = watch.said
    assert line.startswith("slower: ") and "(+30.0 %)" in line
    (alarm,) = (watch_folder(workspace) / "alarms").glob("*/alarm.json")
    saved = json.loads(alarm.read_text())
    assert len(saved["after"]) == RECENT
    Watch(workspace, max_bytes=1).after(workspace, [SLOW_NS])
    left = {path.name for path in (workspace.folder / "captures").iterdir()}
    assert left == {*saved["before"], *saved["after"], max(left)}


def test_a_later_watch_knows_what_is_slow_already(workspace: Workspace) -> None:
    Watch(workspace).after(workspace, [USUAL_NS] * (MIN_PAST + RECENT) + [SLOW_NS] * RECENT)
    later = Watch(workspace)
    later.after(workspace, [SLOW_NS] * RECENT)
    assert later.said == []
    later.after(workspace, [USUAL_NS])
    assert len(later.said) == 1 and later.said[0].endswith("as fast as usual again")


def test_a_damaged_capture_is_skipped_and_told(workspace: Workspace) -> None:
    watch = Watch(workspace)
    damaged = capture(workspace)
    for path in damaged.rglob("*.bin"):
        path.write_bytes(b"")
    watch.after(workspace, [USUAL_NS])
    assert [row.capture for row in launches_in(workspace)] == ["002"]
    assert len(watch.said) == 1 and watch.said[0].startswith("skipped capture 001: ")


def test_what_a_killed_program_left_before_is_passed_over(workspace: Workspace) -> None:
    (part,) = capture(workspace).iterdir()
    (part / "end.json").unlink()
    watch = Watch(workspace)
    watch.after(workspace, [USUAL_NS])
    assert [row.capture for row in launches_in(workspace)] == ["002"]


def test_a_disk_that_refuses_is_told_once(workspace: Workspace) -> None:
    watch = Watch(workspace)
    watch_folder(workspace).mkdir()
    (watch_folder(workspace) / "history").write_text("a file where a folder is needed")
    watch.after(workspace, [USUAL_NS] * (MIN_PAST + RECENT) + [SLOW_NS] * RECENT)
    refused, slower = watch.said
    assert refused.startswith("cannot use ") and slower.startswith("slower: ")
    (watch_folder(workspace) / "history").unlink()
    watch.after(workspace, [SLOW_NS])
    assert len(launches_in(workspace)) == MIN_PAST + 2 * RECENT + 1, "what was refused is written later"


def test_captures_that_vanish_do_no_harm(workspace: Workspace) -> None:
    watch = Watch(workspace)
    watch.after(workspace, [USUAL_NS] * (MIN_PAST + RECENT))
    for path in (workspace.folder / "captures").iterdir():
        shutil.rmtree(path)
    watch.observer.look()
    watch.after(workspace, [SLOW_NS] * RECENT)
    (line,) = watch.said
    assert "(+30.0 %)" in line and "more in" not in line
