"""Runs programs on the fake GPU: as child processes through the command line, or the run step in this process."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from command_line import CommandLine
from fake_gpu.captured import left_out, numbers_in, states_in
from fake_gpu.device import FakeDevice
from fake_gpu.gpu import FakeGpu
from fake_gpu.kernels import HOST_KERNELS, power, scale
from fake_gpu.saving import step_here
from programs.child import PROGRAMS, Ended, clean_environment, fake_gpu_path, python_path, run_child

from kprof_inject.capture.cta_samples import CtaChoice
from kprof_inject.capture.mode import Mode
from kprof_inject.capture.model import Launch
from kprof_inject.capture.reader import read_capture
from kprof_inject.capture.recording import Recording
from kprof_inject.insertion import insert_kernels, write_insertions
from kprof_inject.runtime.launch.launch_capture import LaunchCapture
from kprof_inject.runtime.launch.launch_saver import LaunchSaver
from kprof_inject.runtime.plans import WorkspacePlans
from kprof_inject.runtime.process_report import ProcessReport
from kprof_inject.runtime.session import SavedLaunches, Session
from kprof_inject.runtime.step import Step
from kprof_inject.workspace import Workspace

EIGHT_KIB = Mode(buffer_bytes=8192)
"""What a run in this process keeps for each CTA: a ring of 2 KiB for each of four warps."""

LAUNCHES = PROGRAMS / "fake_launches.py"
STARTUP = PROGRAMS.parent / "fake_gpu" / "startup"
REAL_TORCH = python_path(PROGRAMS.parent)


@dataclass(frozen=True)
class FakeRuns:
    """A workspace with planned kernels of ``fake_launches.py``, and runs of it, which find modules in ``path``."""

    folder: Path
    workspace: Path
    path: str = fake_gpu_path(STARTUP)

    def copied_to(self, folder: Path) -> FakeRuns:
        """The same workspace for other runs, without the captures."""
        ignored = shutil.ignore_patterns("captures")
        return FakeRuns(folder, Path(shutil.copytree(self.workspace, folder / "workspace", ignore=ignored)))

    def environment(self) -> dict[str, str]:
        return {**clean_environment(self.folder), "PYTHONPATH": self.path}

    def kprof(self, *arguments: str | Path, env: dict[str, str] | None = None) -> Ended:
        return CommandLine(self.folder, self.path)(*arguments, env=env)

    def dump(self) -> Ended:
        """Dump the program, and plan records for all that it has."""
        dumped = self.kprof("dump", "-o", self.workspace, LAUNCHES)
        assert dumped.exit_code == 0, dumped.stderr
        workspace = Workspace(self.workspace)
        write_insertions(workspace, insert_kernels(workspace, ()))
        return dumped

    def plain(self, *ending: str) -> Ended:
        """The program by itself."""
        return run_child([sys.executable, LAUNCHES, *ending], self.folder, env=self.environment())

    def start(self, *options: str, ending: str) -> subprocess.Popen[str]:
        """Start the program with records, in a workspace that it shares with no other that runs meanwhile. Its kernels
        are launched as often as it launches them."""
        run = [sys.executable, "-m", "kprof_inject", "run", str(self.workspace), "--replay", "none"]
        command = [*run, *options, str(LAUNCHES), ending]
        return subprocess.Popen(
            command, cwd=self.folder, env=self.environment(), text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    @property
    def capture(self) -> Path:
        return sorted((self.workspace / "captures").iterdir())[-1]

    @property
    def reports(self) -> Path:
        return self.workspace / "reports" / "run"

    def all_launches(self) -> SavedLaunches:
        """For the settings of a run in this process: a launch of each kernel is saved."""
        folder = self.folder / "launches"
        return SavedLaunches(None, str(folder), str(Workspace(self.workspace).kernels_folder))

    @contextmanager
    def here(self, **settings: Any) -> Iterator[RunHere]:
        """The run step in this process for as long as the context lasts, with these ``settings`` of the session. The
        mode is ``EIGHT_KIB`` by default."""
        gpu = FakeGpu()
        gpu.host_kernels = HOST_KERNELS
        folder = self.folder / "here"
        settings = {"mode": EIGHT_KIB, "capture": str(folder / "capture"), **settings}
        if "ctas" in settings:
            settings["ctas"] = _text_of(settings["ctas"])
        chosen = {name: settings.pop(name) for name in Recording.__struct_fields__ if name in settings}
        session = Session("run", str(self.workspace), str(folder / "reports"), Recording(**chosen), **settings)
        report = ProcessReport(session.reports)
        device = FakeDevice(gpu)
        saver = LaunchSaver(session.saved, session.recording.launches, device, report)
        capture = LaunchCapture(session, report, device, saver)
        step = Step(session, report, WorkspacePlans(session, report).plan_of, device, capture.current)
        with step_here(gpu, step, self.workspace / "cache" / "here"):
            yield RunHere(gpu, capture, Path(session.capture), Path(session.reports))
            capture.finish()


@dataclass(frozen=True)
class RunHere:
    """A run step in this process. What was saved is to be asked after its end."""

    gpu: FakeGpu
    capture: LaunchCapture
    folder: Path
    reports: Path

    def launch(self, *numbers: int, ctas: int = 16) -> None:
        """Launch ``scale`` with each of these for ``n``; what it computes must be right."""
        for n in numbers:
            x, out = torch.arange(1, ctas + 1, dtype=torch.float32), torch.zeros(ctas)
            scale[(ctas,)](x, out, n)
            self.gpu.wait()
            assert torch.equal(out, x * n)

    def launch_power(self, n: int) -> None:
        x, out = torch.arange(1, 17, dtype=torch.float32), torch.zeros(16)
        power[(16,)](x, out, n)
        self.gpu.wait()
        assert torch.equal(out, x**n)

    def launch_nothing(self) -> None:
        """A launch of no programs."""
        scale[(0,)](torch.zeros(1), torch.zeros(1), 1)

    def capture_has(self, launches: int) -> None:
        """Wait until so many launches are on disk."""
        deadline = time.monotonic() + 30
        while len(list(self.folder.glob("*/launch-*.bin"))) < launches:
            assert time.monotonic() < deadline, "nothing is saved"
            time.sleep(0.005)

    def ran(self) -> list[tuple[str, bool]]:
        """The kernel of each launch that the device ran, and whether it had records."""
        return [(launch.kernel.name, bool(launch.kernel.records)) for launch in self.gpu.ran]

    def launches(self) -> list[Launch]:
        return list(read_capture(self.folder).launches)

    def saved(self) -> list[tuple[int, int]]:
        """The index and the ``n`` of each launch of ``scale`` that was saved."""
        return numbers_in(self.folder)

    def left_out(self) -> Counter[str]:
        return left_out(self.folder)

    def states_in_short(self) -> Counter[tuple[str, str]]:
        """The same without reasons."""
        return Counter(key[:2] for key in self.states().elements())

    def states(self) -> Counter[tuple[str, str, str]]:
        return states_in(self.reports)


def _text_of(ctas: CtaChoice | str) -> str:
    """The value of ``--ctas`` for a choice without a smallest number of CTAs."""
    if isinstance(ctas, str):
        return ctas
    if ctas.per_sm is not None:
        return f"per-sm:{ctas.per_sm}"
    return "auto" if ctas.shift is None else f"1/{1 << ctas.shift}" if ctas.shift else "all"
