"""Choose the kernels to replay and the launches at which to do it, and keep the results.

A launch that is captured into a CUDA graph is not replayed: it runs later, with other contents of its memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from kprof_inject.runtime.devices.device import Device
from kprof_inject.runtime.faults import first_line
from kprof_inject.runtime.launch.launch_capture import ReplayResult
from kprof_inject.runtime.launch.launch_choice import parse_launches
from kprof_inject.runtime.launch.recorded_launch import Grid, RecordingBuild
from kprof_inject.runtime.process_events import is_of_signal_handler
from kprof_inject.runtime.process_report import ProcessReport
from kprof_inject.runtime.replay.memory_copies import NotReplayable
from kprof_inject.runtime.replay.replay import ComparedRelaunch, Replays
from kprof_inject.runtime.session import Session

_IN_GRAPHS = "it was launched only in CUDA graphs; launch it once outside a graph"


class KernelReplays:
    """Measurements of builds by replay, once for each, at its first launch that is kept.

    No error reaches the program, except one that a signal handler raises.
    """

    def __init__(self, device: Device, session: Session, report: ProcessReport) -> None:
        """Take the choice of kernels and launches from ``session``."""
        choice = session.replays
        self._device = device
        self._report = report
        # A set, because each launch looks here.
        self._only = None if choice.only is None else frozenset(choice.only)
        self._launches = parse_launches(session.launches)
        self._replays = Replays(device, choice)
        self._done: dict[str, ReplayResult] = {}
        self._in_graphs: dict[str, ReplayResult] = {}
        self._unreported: dict[str, str] = {}
        self._is_over = False

    def is_due(self, build: RecordingBuild, number: int) -> bool:
        """Return whether to measure a build at this launch."""
        return (
            build.variant not in self._done
            and not self._is_over
            and (self._only is None or build.variant_of_program in self._only)
            and self._launches.keeps(number)
        )

    def close(self) -> None:
        """Measure no more."""
        self._is_over = True

    def result_of(self, variant: str) -> ReplayResult:
        """Return the result of a build's replay, which is empty if there was none."""
        return self._done.get(variant) or self._in_graphs.get(variant) or ReplayResult(None)

    def report_graph_launches(self) -> None:
        """Report the builds that were launched only in graphs. Called at the end of a capture."""
        for variant, name in self._unreported.items():
            if variant not in self._done:
                self._report.add_replay(name, 0.0, _IN_GRAPHS)
        self._unreported = {}

    def measure(
        self, build: RecordingBuild, clean: Callable[[], Any], grid: Grid, stream: int, arguments: tuple[Any, ...]
    ) -> None:
        """Measure a build at the launch that is about to be made.

        ``clean`` loads the kernel without records. ``arguments`` are all arguments of a launcher after the metadata.
        """
        try:
            if self._device.is_capturing():
                if self._in_graphs.setdefault(build.variant, pending := ReplayResult(None, _IN_GRAPHS)) is pending:
                    self._unreported[build.variant] = build.record.name
                return
            pending = ReplayResult(None, "it was interrupted")
            if self._done.setdefault(build.variant, pending) is not pending:
                return  # it is measured, or another thread is measuring it
            begun = time.monotonic()
            relaunch = ComparedRelaunch.with_both(build, clean, grid, stream, arguments)
            self._done[build.variant] = ReplayResult(self._replays.measure(relaunch))
            self._report.add_replay(build.record.name, time.monotonic() - begun)
        except Exception as error:
            if is_of_signal_handler(error):
                raise
            reason = str(error) if isinstance(error, NotReplayable) else f"that failed: {first_line(error)}"
            self._done[build.variant] = ReplayResult(None, reason)
            self._report.add_replay(build.record.name, 0.0, reason)
