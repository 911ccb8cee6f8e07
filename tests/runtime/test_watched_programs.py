"""``watch`` on the fake GPU: it notices a kernel that becomes slower, goes on after a restart, and disturbs nothing."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet
import pytest
from fake_runs import STARTUP
from programs.child import PROGRAMS, REPO, clean_environment, fake_gpu_path

PROGRAM = PROGRAMS / "watched.py"
OFTEN = ("--every", "0.5", "--budget", "50")
LIMIT_S = 100


class Ended(NamedTuple):
    exit_code: int
    stdout: str
    stderr: str


def durations(folder: Path) -> list[int]:
    history = folder / "ws" / "watch" / "history"
    if not history.exists():
        return []
    rows = pyarrow.parquet.read_table(history).to_pylist()
    return [row["duration_ns"] for row in rows if not row["scope"]]


def alarms(folder: Path) -> list[Path]:
    return list((folder / "ws" / "watch" / "alarms").glob("*/alarm.json"))


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def start(folder: Path, *command: str | Path, path: str, **variables: str) -> subprocess.Popen[str]:
    (folder / "home").mkdir(exist_ok=True)
    (folder / "stop").unlink(missing_ok=True)
    environment = {**clean_environment(folder), "PYTHONPATH": path, **variables}
    return subprocess.Popen(
        [sys.executable, *map(str, command)],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def start_watch(folder: Path, *options: str, n: tuple[int, int]) -> subprocess.Popen[str]:
    numbers = map(str, n)
    command = ("-m", "kprof_inject", "watch", "-o", "ws", *options, "--", PROGRAM, *numbers)
    return start(folder, *command, path=fake_gpu_path(STARTUP))


def stop(folder: Path, process: subprocess.Popen[str]) -> Ended:
    """Have the program end itself."""
    (folder / "stop").touch()
    stdout, stderr = process.communicate(timeout=LIMIT_S)
    return Ended(process.returncode, stdout, stderr)


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ended, Ended]:
    """A run with a drift, and one more without."""
    folder = tmp_path_factory.mktemp("watched")
    first = start_watch(folder, *OFTEN, "--keep-bytes", "200000", n=(20, 2020))
    wait_for(lambda: len(durations(folder)) >= 17)
    (folder / "drift").touch()
    wait_for(lambda: bool(alarms(folder)))
    before = stop(folder, first)
    seen = len(durations(folder))
    second = start_watch(folder, *OFTEN, n=(2020, 2020))
    wait_for(lambda: len(durations(folder)) >= seen + 3)
    return folder, before, stop(folder, second)


def test_a_kernel_that_becomes_slower_raises_an_alarm_that_says_why(watched: tuple[Path, Ended, Ended]) -> None:
    folder, ended, _ = watched
    assert (ended.exit_code, ended.stdout) == (1, "True True\n"), ended
    (line,) = [line for line in ended.stderr.splitlines() if "slower: " in line]
    assert line.startswith("kprof-inject: slower: scale 16x1x1 takes 6.5")
    assert "(+18." in line and "changed: argument n 20 → 2020" in line
    (alarm,) = alarms(folder)
    saved = json.loads(alarm.read_text())
    assert saved["recent_ns"] / saved["usual_ns"] == pytest.approx(1.18, abs=0.02)
    assert "B is 1.18 × slower" in (alarm.parent / "comparison.txt").read_text()
    assert json.loads((alarm.parent / "explanation.json").read_text())["kernel"]["name"] == "scale"
    for name in (*saved["before"], *saved["after"]):
        assert (folder / "ws" / "captures" / name).is_dir(), "the evidence is gone"


def test_few_launches_have_records_and_all_of_these_are_in_the_history(watched: tuple[Path, Ended, Ended]) -> None:
    folder, *runs = watched
    counts = [re.findall(r"with records: (\d+) of (\d+)", ended.stderr)[0] for ended in runs]
    assert len(durations(folder)) == sum(int(with_records) for with_records, _ in counts)
    assert all(int(with_records) < int(launches) / 20 for with_records, launches in counts)
    assert len(list((folder / "ws" / "captures").iterdir())) < len(durations(folder))


def test_after_a_restart_it_goes_on_and_does_not_raise_the_same_alarm(watched: tuple[Path, Ended, Ended]) -> None:
    folder, _, ended = watched
    assert (ended.exit_code, ended.stdout) == (0, "True True\n"), ended
    assert "slower" not in ended.stderr and "usual again" not in ended.stderr
    assert len(alarms(folder)) == 1


@pytest.mark.triton
def test_a_signal_requests_a_capture_at_once(tmp_path: Path) -> None:
    process = start_watch(tmp_path, "--every", "1000", n=(1, 1))
    wait_for(lambda: len(durations(tmp_path)) == 1)
    os.kill(process.pid, signal.SIGUSR2)
    wait_for(lambda: len(durations(tmp_path)) == 2)
    ended = stop(tmp_path, process)
    assert ended.exit_code == 0, ended
    assert "with records: 2 of " in ended.stderr


def test_servers_are_watched_from_another_process(tmp_path: Path) -> None:
    code = f"import site, runpy, sys; site.addsitedir({str(REPO)!r}); sys.argv = [{str(PROGRAM)!r}, '1', '1']; "
    code += "runpy.run_path(sys.argv[0], run_name='__main__')"
    variables = {"KPROF_INJECT": "watch -o ws --every 0.5 --budget 50"}
    servers = [start(tmp_path, "-c", code, path=fake_gpu_path(), **variables, RANK=rank) for rank in "01"]
    wait_for((tmp_path / "ws" / "captures").exists)
    follower = start(tmp_path, "-m", "kprof_inject", "watch", "--follow", "-o", "ws", path=fake_gpu_path())
    wait_for(lambda: len(durations(tmp_path)) >= 6)
    for ended in [stop(tmp_path, server) for server in servers]:
        assert (ended.exit_code, ended.stdout) == (0, "True True\n"), ended
    follower.send_signal(signal.SIGINT)
    ended = stop(tmp_path, follower)
    assert (ended.exit_code, ended.stdout) == (0, ""), ended
    ranks = {row["rank"] for row in pyarrow.parquet.read_table(tmp_path / "ws/watch/history").to_pylist()}
    assert ranks == {0, 1}
