"""The process that measures, in all the ways in which it can go wrong."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import astuple
from pathlib import Path

import msgspec
import pytest

from kprof_inject.calibration import CostRequest, measure_in_child, write_result
from kprof_inject.capture.mode import Mode
from kprof_inject.capture.record_costs import CostKey, MeasuredCost
from kprof_inject.errors import KprofError

KEY = CostKey.of("NVIDIA H200", "3.6.0", Mode(warps=(2, 3)))
REQUEST = CostRequest(KEY, "uuid")
COST = MeasuredCost(*astuple(KEY), 34.5, 34.0, 35.0, 3.0, 4.0, 33.0, 1.5, 1000)


def python(folder: Path, script: str) -> str:
    """Something to start in place of Python, that does this: the folder to work in is ``$3``."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def measured(folder: Path, script: str, limit_s: float = 60) -> MeasuredCost:
    return measure_in_child(REQUEST, folder / "run", folder / "cache", python(folder, script), limit_s)


def answer(folder: Path, result: MeasuredCost | KprofError) -> str:
    """A script that gives this answer."""
    write_result(folder, result)
    return f"cp {folder}/result.json $3/"


def test_what_was_measured_comes_back(tmp_path: Path) -> None:
    assert measured(tmp_path, answer(tmp_path, COST)) == COST


def test_what_is_asked_for_arrives(tmp_path: Path) -> None:
    with pytest.raises(KprofError):
        measured(tmp_path, f"cp -r $3 {tmp_path}/seen; echo $1 $2 > {tmp_path}/words")
    assert CostRequest.read(tmp_path / "seen") == REQUEST
    assert CostKey.of("NVIDIA H200", "3.6.0", REQUEST.mode) == KEY
    assert (tmp_path / "words").read_text() == "-m kprof_inject.calibration_process\n"


def test_an_answer_from_before_is_none(tmp_path: Path) -> None:
    measured(tmp_path, answer(tmp_path, COST))
    with pytest.raises(KprofError, match="ended with exit code 0"):
        measured(tmp_path, "true")


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (
            "echo first >&2; echo 'RuntimeError: no device' >&2; echo >&2; exit 1",
            "exit code 1: RuntimeError: no device",
        ),
        ("kill -9 $$", "ended with signal 9"),
        ("echo '[' > $3/result.json", "result.json: $: expected object, got array"),
        ("echo '{}' > $3/result.json", "result.json: $.device_name: it is missing"),
    ],
    ids=["fault", "killed", "no JSON", "no cost"],
)
def test_a_process_that_fails_says_why(tmp_path: Path, script: str, reason: str) -> None:
    with pytest.raises(KprofError) as caught:
        measured(tmp_path, script)
    assert reason in caught.value.what


def test_its_own_errors_come_back(tmp_path: Path) -> None:
    with pytest.raises(KprofError, match=r"^no NVIDIA H200 is visible$"):
        measured(tmp_path, answer(tmp_path, KprofError("no NVIDIA H200 is visible")))


def test_a_cost_of_another_triton_is_not_taken(tmp_path: Path) -> None:
    other = msgspec.structs.replace(COST, triton="3.7.0")
    with pytest.raises(KprofError, match=r"python has Triton 3\.7\.0, and the program had 3\.6\.0$"):
        measured(tmp_path, answer(tmp_path, other))


def test_a_python_that_is_gone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(KprofError, match="cannot start /nowhere/python: No such file"):
        measure_in_child(REQUEST, tmp_path / "run", tmp_path / "cache", "/nowhere/python")


def test_one_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    with pytest.raises(KprofError, match=r"took longer than 0\.5 s"):
        measured(tmp_path, f"sleep 600 & echo $! > {tmp_path}/pid; wait", limit_s=0.5)
    child = int((tmp_path / "pid").read_text())
    deadline = time.monotonic() + 30
    while is_running(child):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def test_it_has_neither_session_nor_overrides_and_caches_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("KPROF_INJECT_SESSION", "TRITON_KERNEL_OVERRIDE", "TRITON_DUMP_DIR", "TRITON_CACHE_DIR"):
        monkeypatch.setenv(name, "the user's")
    monkeypatch.setenv("TRITON_PTXAS_PATH", "/opt/ptxas")
    show = "import json, os, sys; json.dump(dict(os.environ), open(sys.argv[1], 'w'))"
    with pytest.raises(KprofError):
        measured(tmp_path, f'{sys.executable} -c "{show}" {tmp_path}/environment')
    seen = json.loads((tmp_path / "environment").read_text())
    assert "the user's" not in seen.values()
    assert seen["TRITON_PTXAS_PATH"] == "/opt/ptxas"
    caches = [seen["TRITON_HOME"], seen["TRITON_CACHE_DIR"]]
    assert all(Path(path).is_relative_to(tmp_path / "cache") for path in caches)
    assert sorted(os.listdir(tmp_path)) == ["environment", "python", "run"]
