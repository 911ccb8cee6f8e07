"""Launch the program's kernels again inside the program, to time them without and with records in turn.

This is for launches that no other process can repeat, and only if the user asks for it (``--replay-in-program``).

The program must not notice. So these launches work on copies of its memory, in memory that the driver lends us; they
take no scratch memory from its allocator, keep none of its tensors, and wait for no stream but the launch's own.

A launch that is captured into a CUDA graph is not replayed: it runs later, with other contents of its memory.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from kprof_inject.capture.schema import Grid, PairedTimesRecord, RelaunchRecord
from kprof_inject.runtime.devices.device import Device, MemoryRange, NoDeviceMemory
from kprof_inject.runtime.experiments.memory_copies import copies_of, memory_of
from kprof_inject.runtime.experiments.paired_launches import PairedLaunches
from kprof_inject.runtime.experiments.record_overhead import time_records
from kprof_inject.runtime.experiments.relaunch import NotReplayable, Relaunch
from kprof_inject.runtime.experiments.watchdog import Unwatched
from kprof_inject.runtime.faults import first_line
from kprof_inject.runtime.launch.launch_capture import ReplayResult
from kprof_inject.runtime.launch.launch_choice import KERNEL_SECONDS, PROCESS_SECONDS, parse_launches
from kprof_inject.runtime.launch.launcher import writing_to
from kprof_inject.runtime.launch.reachable_memory import NotSaved
from kprof_inject.runtime.launch.recorded_launch import HOOK_ARGUMENTS, RecordingBuild
from kprof_inject.runtime.launch.timing import TIMES_ITSELF, programs_events
from kprof_inject.runtime.launch.triton_wrapping import Launchable
from kprof_inject.runtime.process_events import is_of_signal_handler
from kprof_inject.runtime.process_report import ProcessReport
from kprof_inject.runtime.session import Session

ONLY_IN_GRAPHS = "it was launched only in CUDA graphs; launch it once outside a graph"


class KernelReplays:
    """Measurements of builds by replay, once for each, at its first launch that is kept, within a process's time limit.

    No error reaches the program, except one that a signal handler raises.
    """

    def __init__(self, device: Device, session: Session, report: ProcessReport) -> None:
        """Take the choice of kernels and launches from ``session``."""
        self._choice = session.replays
        self._device = device
        self._report = report
        # A set, because each launch looks here.
        self._only = None if self._choice.only is None else frozenset(self._choice.only)
        self._launches = parse_launches(session.launches)
        self._seconds_left = PROCESS_SECONDS
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

    def results(self) -> Mapping[str, ReplayResult]:
        """Return the results so far, by the build's variant."""
        return {**self._in_graphs, **self._done}

    def report_graph_launches(self) -> None:
        """Report the builds that were launched only in graphs. Called at the end of a capture."""
        for variant, name in self._unreported.items():
            if variant not in self._done:
                self._report.add_replay(name, 0.0, ONLY_IN_GRAPHS)
        self._unreported = {}

    def measure(
        self, build: RecordingBuild, clean: Launchable, grid: Grid, stream: int, arguments: tuple[Any, ...]
    ) -> None:
        """Measure a build at the launch that is about to be made. See ``LaunchReplays``."""
        try:
            if self._device.is_capturing():
                if self._in_graphs.setdefault(build.variant, pending := ReplayResult(None, ONLY_IN_GRAPHS)) is pending:
                    self._unreported[build.variant] = build.record.name
                return
            pending = ReplayResult(None, "it was interrupted")
            if self._done.setdefault(build.variant, pending) is not pending:
                return  # it is measured, or another thread is measuring it
            begun = time.monotonic()
            self.require_allowed(build.record.scope_table.relaunch)
            relaunch = Relaunch.of(grid, stream, arguments)
            memory = memory_of(arguments[HOOK_ARGUMENTS:], build.argument_kinds)
            self._done[build.variant] = ReplayResult(self.replayed(build, clean, relaunch, memory))
            self._report.add_replay(build.record.name, time.monotonic() - begun)
        except Exception as error:
            if is_of_signal_handler(error):
                raise
            reason = (
                str(error) if isinstance(error, NotReplayable | NotSaved) else f"the replay failed: {first_line(error)}"
            )
            self._done[build.variant] = ReplayResult(None, reason)
            self._report.add_replay(build.record.name, 0.0, reason)

    def replayed(
        self, build: RecordingBuild, clean: Launchable, relaunch: Relaunch, ranges: Sequence[MemoryRange]
    ) -> PairedTimesRecord:
        """Time a launch without records and with them.

        Raises ``NotReplayable`` if that is not possible or would take too long, and any error of a launch.
        """
        begun = time.monotonic()
        device, stream = self._device, relaunch.stream
        recorded = Launchable(build.launch, build.function, build.packed_metadata, build.record.known_metadata)
        try:
            with (
                device.unaffected_by_graphs(),
                copies_of(device, ranges, stream) as memory,
                device.borrowed(build.buffer_bytes(relaunch.grid), stream) as buffer,
                writing_to(buffer, build.sample(relaunch.grid)),
            ):
                launches = PairedLaunches(
                    device=device,
                    relaunch=relaunch.moved(memory.moved),
                    memory=memory,
                    clean=clean,
                    variants=[recorded],
                    watchdog=Unwatched(),
                    name=build.record.name,
                    seed=build.variant,
                    waits=_waits(build.record.scope_table.relaunch),
                )
                seconds = min(KERNEL_SECONDS, self._seconds_left - (time.monotonic() - begun))
                return time_records(launches, seconds, self._choice.times, (clean.metadata, recorded.metadata))
        except NoDeviceMemory:
            raise NotReplayable("the device has no room for its records next to the copied memory") from None
        finally:
            self._seconds_left -= time.monotonic() - begun

    def require_allowed(self, relaunch: RelaunchRecord | None) -> None:
        """Raise ``NotReplayable`` unless a replay is safe, or only risky and the user asked for it."""
        if relaunch is None:
            raise NotReplayable("an older kprof-inject planned its records; insert them again")
        if relaunch.refusal:
            raise NotReplayable(f"it {relaunch.refusal}")
        if self._choice.times is not None:
            return
        if relaunch.waits:
            raise NotReplayable(
                "it polls memory and might hang; if it needs no other kernel to finish, --replay 50 times it"
            )
        if programs_events.were_recorded:
            raise NotReplayable(f"{TIMES_ITSELF}; --replay 50 times it anyway")
        if not self._device.has_own_memory:
            raise NotReplayable("torch would count the replay's memory as the program's; --replay 50 times it anyway")
        if self._seconds_left <= 0:
            raise NotReplayable(f"other kernels used up the {PROCESS_SECONDS:g} s that a process may replay")


def _waits(relaunch: RelaunchRecord | None) -> bool:
    return relaunch is None or relaunch.waits
