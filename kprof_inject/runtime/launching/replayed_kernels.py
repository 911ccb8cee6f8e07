"""Which kernels of a process are launched again to be timed, when that is done, and what came of it.

A launch that is captured into a CUDA graph runs later, with what its memory holds then: so it is launched again when
the graph is about to run for the first time. Before it there may be but launches of ours, which are made in their turn.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from kprof_inject.capture.schema import ReplayRecord
from kprof_inject.runtime.devices.device import Device
from kprof_inject.runtime.faults import first_line
from kprof_inject.runtime.launching.captured_graphs import graphs
from kprof_inject.runtime.launching.launch_buffers import Grid, RecordingBuild
from kprof_inject.runtime.launching.launches import parse_launches
from kprof_inject.runtime.launching.replay import LaunchAgain, Replays
from kprof_inject.runtime.launching.saved_memory import NotReplayable, saved
from kprof_inject.runtime.process_events import is_of_signal_handler
from kprof_inject.runtime.process_report import ProcessReport
from kprof_inject.runtime.session import Session


@dataclass(frozen=True, slots=True, eq=False)
class Replayed:
    """The times of one build, or why there are none, in words that follow *because*."""

    times: ReplayRecord | None
    refusal: str = ""


_BEHIND_OTHERS = "it was launched only in CUDA graphs, after other work; launch it once outside a graph"


@dataclass(frozen=True, slots=True)
class _Captured:
    """A launch in a graph, and how many operations the graph had before it."""

    again: LaunchAgain
    place: int


@dataclass(frozen=True, slots=True)
class _GraphsBegin:
    """The launches of a graph that are known, for ``measure`` when it runs."""

    measure: Callable[[Sequence[_Captured]], None]
    launches: list[_Captured] = field(default_factory=list)

    def __call__(self) -> None:
        self.measure(self.launches)


class KernelReplays:
    """Measures each build once, at its first launch that is kept.

    Nothing of this reaches the program, but what a signal handler raises meanwhile."""

    def __init__(self, device: Device, session: Session, report: ProcessReport) -> None:
        choice = session.replays
        self._device = device
        self._report = report
        # It is asked at each launch.
        self._only = None if choice.only is None else frozenset(choice.only)
        self._launches = parse_launches(session.launches)
        self._replays = Replays(device, choice)
        self._done: dict[str, Replayed] = {}
        self._in_graphs: dict[str, Replayed] = {}
        self._is_over = False

    def is_due(self, build: RecordingBuild, number: int) -> bool:
        """Whether this launch of a build is the one to measure it at."""
        return (
            build.variant not in self._done
            and not self._is_over
            and (self._only is None or build.variant_of_program in self._only)
            and self._launches.keeps(number)
        )

    def close(self) -> None:
        """Measure no more."""
        self._is_over = True

    def of(self, variant: str) -> Replayed:
        """What came of a build's replay; nothing if there was none."""
        return self._done.get(variant) or self._in_graphs.get(variant) or Replayed(None)

    def measure(
        self, build: RecordingBuild, clean: Callable[[], Any], grid: Grid, stream: int, arguments: tuple[Any, ...]
    ) -> None:
        """Measure a build at the launch that is about to be made. ``arguments`` are all that its launcher takes behind
        the metadata."""
        with self._noting_failure([build]):
            again = LaunchAgain.with_both(build, clean, grid, stream, arguments)
            if self._device.is_capturing():
                self._capture(again)
            else:
                self._measure(again)

    def _capture(self, again: LaunchAgain) -> None:
        self._in_graphs[again.build.variant] = Replayed(None, _BEHIND_OTHERS)
        graph, place = graphs.being_captured(), self._device.captured_operations(again.stream)
        if graph is not None and place is not None:
            begin = graphs.before_first_run(graph, _GraphsBegin(self._measure_graph))
            begin.launches.append(_Captured(again.without_tensors(), place))

    def _measure_graph(self, captured: Sequence[_Captured]) -> None:
        """Measure what a graph begins with, as if it ran: after each launch comes the next."""
        begin = [one.again for number, one in enumerate(captured) if one.place == number]
        due = [again.build for again in begin if again.build.variant not in self._done]
        if self._is_over or not due:
            return
        memory = tuple(dict.fromkeys(one for again in begin for one in again.memory))
        device = self._device
        with self._noting_failure(due), device.unaffected_by_graphs():
            stream = device.current_stream()
            with saved(device, memory, stream):
                for again in begin:
                    now = replace(again, stream=stream)
                    self._measure(now)
                    now.launch_clean()

    def _measure(self, again: LaunchAgain) -> None:
        build, pending = again.build, Replayed(None, "it was interrupted")
        if self._done.setdefault(build.variant, pending) is not pending:
            return  # it is done, or another thread is at it
        begun = time.monotonic()
        with self._noting_failure([build]):
            self._done[build.variant] = Replayed(self._replays.measure(again))
            self._report.add_replay(build.record.name, time.monotonic() - begun)

    @contextmanager
    def _noting_failure(self, builds: Sequence[RecordingBuild]) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if is_of_signal_handler(error):
                raise
            reason = str(error) if isinstance(error, NotReplayable) else f"that failed: {first_line(error)}"
            for build in builds:
                if (done := self._done.get(build.variant)) is not None and done.times is not None:
                    continue
                self._done[build.variant] = Replayed(None, reason)
                self._report.add_replay(build.record.name, 0.0, reason)
