"""Runs the programs in ``programs/``, by themselves and with us, and reads what came of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from gpu_support import ROOT

from kprof_inject.capture.model import Launch
from kprof_inject.capture.reader import read_capture
from kprof_inject.timeline.timeline import decode_launch

PROGRAMS = Path(__file__).with_name("programs")
LIMIT_S = 300


@dataclass(frozen=True, slots=True)
class Ended:
    """A process that has ended; its text says all of it, for an assertion's message."""

    command: str
    exit_code: int
    stdout: str
    stderr: str

    def __str__(self) -> str:
        return f"{self.command}: exit code {self.exit_code}\n--- stdout\n{self.stdout}\n--- stderr\n{self.stderr}"


class Running:
    """A process that was started, in a group of its own: it may send a signal to its group as a terminal does."""

    def __init__(self, command: list[str], folder: Path, environment: dict[str, str]) -> None:
        self._said = [folder / f"said-{os.urandom(4).hex()}.{stream}" for stream in ("out", "err")]
        self._command = " ".join(command)
        with self._said[0].open("w") as out, self._said[1].open("w") as err:
            self._process = subprocess.Popen(
                command, cwd=folder, env=environment, stdout=out, stderr=err, start_new_session=True
            )

    def wait(self, exit_code: int | None = 0) -> Ended:
        """Wait until it ends; any other exit code is a failure, unless it is None. One that hangs is killed."""
        try:
            code = self._process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"killed after {LIMIT_S} s: {self._ended(self.end())}") from None
        if exit_code is not None:
            assert code == exit_code, f"exit code {exit_code} was expected of {self._ended(code)}"
        return self._ended(code)

    def end(self) -> int:
        """End it and its children, if it still runs; returns its exit code."""
        for number in (signal.SIGTERM, signal.SIGKILL):  # torchrun ends its ranks when it is asked to
            if self._process.poll() is None:
                os.killpg(self._process.pid, number)
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(5)
        return self._process.wait()

    def _ended(self, code: int) -> Ended:
        out, err = (path.read_text(errors="replace") for path in self._said)
        return Ended(self._command, code, out, err)


class ProgramRuns:
    """Starts programs in one folder, as a user whose home is empty. On leaving the context none of them runs on."""

    def __init__(self, folder: Path, home: str = "home") -> None:
        self.folder = folder
        self._started: list[Running] = []
        (folder / home).mkdir(exist_ok=True)
        path = os.pathsep.join(part for part in (str(ROOT), os.environ.get("PYTHONPATH", "")) if part)
        caches = {"TORCHINDUCTOR_CACHE_DIR": str(folder / home / "inductor")}  # else it is in /tmp
        self._environment = {**os.environ, **caches, "HOME": str(folder / home), "PYTHONPATH": path}

    def __enter__(self) -> ProgramRuns:
        return self

    def __exit__(self, *_: object) -> None:
        for running in self._started:
            running.end()

    def start(self, *command: str | Path) -> Running:
        """Python, with these arguments."""
        self._started.append(Running([sys.executable, *map(str, command)], self.folder, self._environment))
        return self._started[-1]

    def start_kprof(self, *arguments: str | Path) -> Running:
        return self.start("-m", "kprof_inject", *arguments)

    def profile(self, name: str, *options: str, arguments: tuple[str, ...] = ()) -> tuple[Ended, Run]:
        """Profile a program while it also runs by itself; what both saved must not differ by a bit."""
        ended = self.run_beside_itself("profile", name, *options, arguments=arguments)
        return ended, Run(self.folder / "kprof_out")

    def run_beside_itself(self, command: str, name: str, *options: str, arguments: tuple[str, ...] = ()) -> Ended:
        """The same by any command of ours that runs programs."""
        program = (str(PROGRAMS / f"{name}.py"), *arguments)
        plain = self.start(*program, "--save", "plain.npy")
        ended = self.start_kprof(command, *options, "--", *program, "--save", "with.npy").wait()
        plain.wait()
        self.assert_same_results("plain.npy", "with.npy", ended)
        return ended

    def assert_same_results(self, plain: str, instrumented: str, ended: Ended) -> None:
        expected, result = (np.load(self.folder / name) for name in (plain, instrumented))
        assert expected.size > 0 and np.isfinite(expected).all()
        assert expected.tobytes() == result.tobytes(), (
            f"{np.count_nonzero(expected != result)} of {expected.size} numbers differ with records: {ended}"
        )


class Run:
    """What lies in a workspace after the last run."""

    def __init__(self, workspace: Path) -> None:
        self.workspace = workspace
        self.capture = read_capture(sorted((workspace / "captures").iterdir())[-1])

    @property
    def launches(self) -> tuple[Launch, ...]:
        return self.capture.launches

    def launches_of(self, kernel: str) -> list[Launch]:
        return [launch for launch in self.launches if launch.kernel.name == kernel]

    def reports(self) -> list[dict[str, Any]]:
        """What each process said of itself."""
        return [json.loads(path.read_text()) for path in sorted((self.workspace / "reports").glob("*/*.json"))]

    def states(self) -> dict[str, str]:
        """What became of each variant, with the reason where it was left alone."""
        return {
            variant: " ".join((kernel["name"], kernel["state"], kernel["reason"])).strip()
            for report in self.reports()
            for variant, kernel in report["kernels"].items()
        }


def counts(launch: Launch) -> Counter[str]:
    """How often each scope ran, by the user's name. Of a launch of which nothing may be missing."""
    timeline = decode_launch(launch)
    name = f"{timeline.launch.kernel.name}, launch {timeline.launch.index}"
    assert timeline.records_lost == 0, f"{name} lost {timeline.records_lost} of {timeline.records_written} records"
    assert not timeline.open_starts.any() and not timeline.stray_ends.any(), f"{name} has records without a partner"
    assert len(timeline.ctas) == prod(timeline.launch.grid), f"{name}: {len(timeline.ctas)} CTAs were read"
    scopes = timeline.table.scopes
    return Counter(scopes[index].name for index in timeline.scopes["scope"].tolist())


def span_ns(launch: Launch) -> tuple[int, int]:
    """Begin and end on the device's timer."""
    ctas = decode_launch(launch).ctas
    return int(ctas["init_ns"].min()), int(ctas["pre_final_ns"].max())
