"""``watch`` on the fake GPU: it notices a kernel that becomes slower, goes on after a restart, and disturbs nothing."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet
import pytest
from command_line import CommandLine
from fake_runs import STARTUP
from programs.child import PROGRAMS, REPO, clean_environment, fake_gpu_path

PROGRAM = PROGRAMS / "watched.py"
OFTEN = ("--every", "0.5", "--budget", "50")
FUNC = 10_000 / 1.98
"""The nanoseconds that the kernel takes, without its ``n``."""


def run(folder: Path, *arguments: str | Path) -> tuple[int, str, str]:
    (folder / "home").mkdir(exist_ok=True)
    ended = CommandLine(folder, fake_gpu_path(STARTUP))(*arguments)
    return ended.exit_code, ended.stdout, ended.stderr


def durations(folder: Path) -> list[int]:
    rows = pyarrow.parquet.read_table(folder / "ws" / "watch" / "history").to_pylist()
    return [row["duration_ns"] for row in rows if not row["scope"]]


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, tuple[int, str, str], tuple[int, str, str]]:
    """A run with a drift in its middle, and one more without."""
    folder = tmp_path_factory.mktemp("watched")
    first = run(folder, "watch", "-o", "ws", *OFTEN, "--keep-bytes", "200000", "--", PROGRAM, "15", "20", "2020")
    return folder, first, run(folder, "watch", "-o", "ws", *OFTEN, "--", PROGRAM, "4", "2020", "2020")


def test_a_kernel_that_becomes_slower_raises_an_alarm_that_says_why(
    watched: tuple[Path, tuple[int, str, str], tuple[int, str, str]],
) -> None:
    folder, (exit_code, stdout, stderr), _ = watched
    assert exit_code == 1
    assert re.fullmatch(r"\d+\.0 True\n", stdout)
    (line,) = [line for line in stderr.splitlines() if "slower: " in line]
    assert line.startswith("kprof-inject: slower: scale 16x1x1 takes 6.5")
    assert "(+18." in line and "changed: argument n 20 → 2020" in line
    (alarm,) = (folder / "ws" / "watch" / "alarms").glob("*/alarm.json")
    saved = json.loads(alarm.read_text())
    assert saved["recent_ns"] / saved["usual_ns"] == pytest.approx(1.18, abs=0.02)
    assert "B is 1.18 × slower" in (alarm.parent / "comparison.txt").read_text()
    assert json.loads((alarm.parent / "explanation.json").read_text())["kernel"]["name"] == "scale"
    for name in (*saved["before"][-1:], *saved["after"]):
        assert (folder / "ws" / "captures" / name).is_dir(), "the evidence is gone"


def test_few_launches_have_records_and_the_ring_has_room_for_some(
    watched: tuple[Path, tuple[int, str, str], tuple[int, str, str]],
) -> None:
    folder, (_, _, stderr), _ = watched
    with_records, launches = map(int, re.findall(r"with records: (\d+) of (\d+)", stderr)[0])
    assert 20 <= with_records <= 40 < launches / 20
    captures = list((folder / "ws" / "captures").iterdir())
    assert 5 <= len(captures) < with_records
    assert sum(file.stat().st_size for path in captures for file in path.rglob("*") if file.is_file()) < 500_000


def test_after_a_restart_it_goes_on_and_does_not_raise_the_same_alarm(
    watched: tuple[Path, tuple[int, str, str], tuple[int, str, str]],
) -> None:
    folder, (_, _, first), (exit_code, _, second) = watched
    assert exit_code == 0
    assert "slower" not in second and "usual again" not in second
    with_records = sum(int(found) for found in re.findall(r"with records: (\d+) of", first + second))
    found = durations(folder)
    assert len(found) == with_records
    assert found[-1] > found[0] > FUNC


def test_a_signal_asks_for_a_capture_at_once(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    environment = {**clean_environment(tmp_path), "PYTHONPATH": fake_gpu_path(STARTUP)}
    command = [sys.executable, "-m", "kprof_inject", "watch", "-o", "ws", "--every", "1000", "--", PROGRAM]
    process = subprocess.Popen([*command, "6", "1", "1"], cwd=tmp_path, env=environment, stderr=subprocess.PIPE)
    history = tmp_path / "ws" / "watch" / "history"
    deadline = time.monotonic() + 60
    while not history.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGUSR2)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 0, stderr
    assert len(durations(tmp_path)) == 2, stderr


def test_servers_are_watched_from_another_process(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    environment = {**clean_environment(tmp_path), "PYTHONPATH": fake_gpu_path()}
    start = f"import site, runpy, sys; site.addsitedir({str(REPO)!r}); sys.argv = [{str(PROGRAM)!r}, '4', '1', '1']; "
    servers = [
        subprocess.Popen(
            [sys.executable, "-c", f"{start}runpy.run_path(sys.argv[0], run_name='__main__')"],
            cwd=tmp_path,
            env={**environment, "KPROF_INJECT": "watch -o ws --every 0.5 --budget 50", "RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    ended = [server.communicate(timeout=60) for server in servers]
    assert [server.returncode for server in servers] == [0, 0], ended
    assert all(re.fullmatch(r"136\.0 True\n", stdout) for stdout, _ in ended), ended
    follower = subprocess.Popen(
        [sys.executable, "-m", "kprof_inject", "watch", "--follow", "-o", "ws"], cwd=tmp_path, env=environment
    )
    captures = len(list((tmp_path / "ws" / "captures").iterdir()))
    deadline = time.monotonic() + 60
    while (not (tmp_path / "ws/watch/metrics.prom").exists()) and time.monotonic() < deadline:
        time.sleep(0.05)
    follower.send_signal(signal.SIGINT)
    assert follower.wait(timeout=60) == 0
    assert len(durations(tmp_path)) == captures >= 4
