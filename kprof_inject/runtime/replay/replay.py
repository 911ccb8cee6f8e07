"""Launch the program's kernels again to time them, without and with records in turn, each from the same initial memory.

A single launch of each side does not show a kernel's time. Here both sides run in one process, one right after the
other, so that drift between processes, and from second to second, affects both equally.

The program must not notice. So these launches work on copies of its memory, in memory that the driver lends us; they
take no scratch memory from its allocator, keep none of its tensors, and wait for no stream but the launch's own.

A launch that is captured into a CUDA graph is not replayed: it runs later, with other contents of its memory.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kprof_inject.capture.schema import RelaunchRecord, ReplayRecord
from kprof_inject.runtime.devices.device import Device, NoDeviceMemory
from kprof_inject.runtime.faults import first_line
from kprof_inject.runtime.launch.launch_capture import ReplayResult
from kprof_inject.runtime.launch.launch_choice import KERNEL_SECONDS, PROCESS_SECONDS, parse_launches
from kprof_inject.runtime.launch.launcher import own_scratch, writing_to
from kprof_inject.runtime.launch.recorded_launch import Grid, RecordingBuild
from kprof_inject.runtime.launch.timing import TIMES_ITSELF, EmptyKernel, programs_events
from kprof_inject.runtime.process_events import is_of_signal_handler
from kprof_inject.runtime.process_report import ProcessReport
from kprof_inject.runtime.replay.relaunch import (
    BackToBack,
    Launchable,
    NotReplayable,
    Relaunch,
    copies_of,
    empty_ns,
    is_same_work,
)
from kprof_inject.runtime.session import Session

_MAX_TIMES = 100
_MIN_TIMES = 5
"""``timeline.comparison`` needs this many for an interval."""

ONLY_IN_GRAPHS = "it was launched only in CUDA graphs; launch it once outside a graph"

_WARM_UP = 2
_MAX_NOT_HELD = 20


Pair = tuple[float, float]
"""Time of a launch without records and with them, in nanoseconds."""


@dataclass(slots=True)
class _RelaunchPairs:
    """Pairs of launches of a kernel, without records and with them, while this thread is ``writing_to`` a buffer."""

    build: RecordingBuild
    clean: Callable[[], Any]
    relaunch: Relaunch
    timed: BackToBack

    def pair(self) -> Pair:
        clean_ns, with_records_ns = self._times((self._launch_clean, self._launch_with_records))
        return clean_ns, with_records_ns

    def swapped_pair(self) -> Pair:
        with_records_ns, clean_ns = self._times((self._launch_with_records, self._launch_clean))
        return clean_ns, with_records_ns

    def _launch_clean(self) -> None:
        self.relaunch.launch(self.clean())

    def _launch_with_records(self) -> None:
        self.relaunch.launch(Launchable(self.build.launch, self.build.function, self.build.packed_metadata))

    def empty_pair(self) -> tuple[float | None, float | None]:
        """Launch empty kernels with the threads and the shared memory of the two builds.

        A time is None if the host was too slow to measure it.
        """
        builds = (self.clean().metadata, self.build.record.known_metadata)
        clean_ns, with_records_ns = (empty_ns(self.timed, EmptyKernel.like(metadata)) for metadata in builds)
        return clean_ns, with_records_ns

    def _times(self, launches: Sequence[Callable[[], None]]) -> list[float]:
        return self.timed.times_ns(self.timed.queued(launches))

    def may_follow_each_other(self, restored: Pair) -> bool:
        """Return whether launches do the same work without refreshed copies of their memory.

        They must leave the same bytes, and take as long as in ``restored``, a pair with refreshed copies. A kernel that
        polls memory is not tried.
        """
        record = self.build.record.scope_table.relaunch
        if record is None or record.waits:
            return False
        first = self.timed.memory.digest(self.relaunch.stream)
        if first is None:
            return False
        self.timed.restores = False
        try:
            following = self.pair()
        finally:
            self.timed.restores = True
        same = all(is_same_work(a, b) for a, b in zip(restored, following, strict=True))
        return same and self.timed.memory.digest(self.relaunch.stream) == first


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

    def result_of(self, variant: str) -> ReplayResult:
        """Return the result of a build's replay, which is empty if there was none."""
        return self._done.get(variant) or self._in_graphs.get(variant) or ReplayResult(None)

    def report_graph_launches(self) -> None:
        """Report the builds that were launched only in graphs. Called at the end of a capture."""
        for variant, name in self._unreported.items():
            if variant not in self._done:
                self._report.add_replay(name, 0.0, ONLY_IN_GRAPHS)
        self._unreported = {}

    def measure(
        self, build: RecordingBuild, clean: Callable[[], Any], grid: Grid, stream: int, arguments: tuple[Any, ...]
    ) -> None:
        """Measure a build at the launch that is about to be made.

        ``clean`` loads the kernel without records. ``arguments`` are all arguments of a launcher after the metadata.
        """
        try:
            if self._device.is_capturing():
                if self._in_graphs.setdefault(build.variant, pending := ReplayResult(None, ONLY_IN_GRAPHS)) is pending:
                    self._unreported[build.variant] = build.record.name
                return
            pending = ReplayResult(None, "it was interrupted")
            if self._done.setdefault(build.variant, pending) is not pending:
                return  # it is measured, or another thread is measuring it
            begun = time.monotonic()
            relaunch = Relaunch.of(build.signature, grid, stream, arguments)
            self._done[build.variant] = ReplayResult(self.replayed(build, clean, relaunch))
            self._report.add_replay(build.record.name, time.monotonic() - begun)
        except Exception as error:
            if is_of_signal_handler(error):
                raise
            reason = str(error) if isinstance(error, NotReplayable) else f"the replay failed: {first_line(error)}"
            self._done[build.variant] = ReplayResult(None, reason)
            self._report.add_replay(build.record.name, 0.0, reason)

    def replayed(self, build: RecordingBuild, clean: Callable[[], Any], relaunch: Relaunch) -> ReplayRecord:
        """Time a launch without records and with them. ``clean`` loads the kernel without records.

        Raises ``NotReplayable`` if that is not allowed or would take too long, and any error of a launch.
        """
        self._require_allowed(build.record.scope_table.relaunch)
        begun = time.monotonic()
        device, stream = self._device, relaunch.stream
        try:
            clean()  # compiles the kernel before memory is taken
            with (
                device.unaffected_by_graphs(),
                copies_of(device, relaunch.memory, stream) as memory,
                device.borrowed(math.prod(relaunch.grid) * build.cta_bytes, stream) as buffer,
                own_scratch(device),
                writing_to(buffer),
            ):
                now = time.monotonic()
                deadline = now + min(KERNEL_SECONDS, self._seconds_left - (now - begun))
                pairing = _RelaunchPairs(build, clean, relaunch.on(memory), BackToBack(device, stream, memory))
                return self._measured(pairing, deadline)
        except NoDeviceMemory:
            raise NotReplayable("the device has no room for its records next to the copied memory") from None
        finally:
            self._seconds_left -= time.monotonic() - begun

    def _require_allowed(self, relaunch: RelaunchRecord | None) -> None:
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

    def _measured(self, pairing: _RelaunchPairs, deadline: float) -> ReplayRecord:
        wanted = self._choice.times
        for left in reversed(range(_WARM_UP)):
            begun = time.monotonic()
            pair = pairing.pair()
            now = time.monotonic()
            # The first pair also loads code, so its time counts only if it exceeds the limit by itself.
            expected = 0.0 if left else _MIN_TIMES * (now - begun)
            if wanted is None and now + expected > deadline:
                raise NotReplayable(
                    f"one launch without records and one with them take {now - begun:.1f} s, and "
                    f"{max(deadline - now, 0.0):.1f} s are left for it; --replay {_MIN_TIMES} times it anyway"
                )
        if pairing.may_follow_each_other(pair):
            pairing.timed.follow_each_other(min(pair))
            pairing.pair()
        pairs: list[Pair] = []
        not_held = 0
        while len(pairs) < (wanted or _MAX_TIMES):
            if wanted is None and len(pairs) >= _MIN_TIMES and time.monotonic() > deadline:
                break
            # The order alternates, because the second launch of a pair finds caches and clock as the first left them.
            pair = pairing.swapped_pair() if len(pairs) % 2 else pairing.pair()
            if pairing.timed.was_held:
                pairs.append(pair)
            elif (not_held := not_held + 1) > _MAX_NOT_HELD:
                raise NotReplayable("the host was too slow to queue its launches before the device began them")
        clean_ns, with_records_ns = zip(*pairs, strict=True)
        clean_empty_ns, with_records_empty_ns = pairing.empty_pair()
        return ReplayRecord(
            clean_ns=clean_ns,
            with_records_ns=with_records_ns,
            launches=pairing.timed.launches,
            restored=pairing.timed.restores,
            clean_empty_ns=clean_empty_ns,
            with_records_empty_ns=with_records_empty_ns,
        )
