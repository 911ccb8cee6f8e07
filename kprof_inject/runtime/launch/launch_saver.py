"""Save launches of the program: what a launch begins with, so that a process of ours can repeat it later.

The memory is copied on the device, in the order of the launch's own stream; threads of ours then write it to disk while
the program goes on. Nothing of the program's is changed, kept or allocated, and nothing but that stream is waited for.
"""

from __future__ import annotations

import functools
import math
import os
import shutil
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import triton
from msgspec.structs import replace

from kprof_inject.capture.edits import OtherValues, has_other_values, read_other_values, write_other_values
from kprof_inject.capture.recording import parse_launches
from kprof_inject.capture.saved_launch import (
    MAX_RANGES,
    MEMORY_FILE,
    SAVED_LAUNCH_ENDING,
    MemoryRecord,
    SavedLaunchRecord,
    checksums,
    write_saved_launch,
)
from kprof_inject.capture.schema import Grid
from kprof_inject.quantities import size_text
from kprof_inject.runtime.compiling.recording_build import ArgumentKinds
from kprof_inject.runtime.devices.device import Device
from kprof_inject.runtime.faults import first_line
from kprof_inject.runtime.launch.saved_memory import (
    MAX_SEARCHED_BYTES,
    MemorySnapshot,
    NotSaved,
    ReachedRange,
    found_in,
    merged,
    reached_by,
    saved_arguments,
)
from kprof_inject.runtime.launch.timing import TIMES_ITSELF, programs_events
from kprof_inject.runtime.launch.triton_wrapping import (
    HOOK_ARGUMENTS,
    ProgramGrids,
    before_first_run,
    wait_for_benchmarks,
)
from kprof_inject.runtime.process_events import MAX_SECONDS_AT_END, in_forked_child, let_through
from kprof_inject.runtime.process_report import ProcessReport
from kprof_inject.runtime.session import SavedLaunches
from kprof_inject.version import __version__

_POLL_S = 1e-4
# Memory that leads to more memory, and so on: a table of structures with pointers has three levels.
_MAX_LEVELS = 4
_MAX_REPLACED = 3  # times that a launch of a kernel is replaced by one with another grid: each costs the program a copy


@dataclass(frozen=True, slots=True)
class KernelToSave:
    """A kernel as a saved launch needs it, with records or without."""

    argument_kinds: ArgumentKinds
    record: SavedLaunchRecord  # record of its launches, without what differs among them

    @classmethod
    def of(cls, argument_kinds: ArgumentKinds, **known: Any) -> KernelToSave:
        """Return a kernel; all its launches have the ``known`` fields of the record."""
        record = SavedLaunchRecord(**known, index=0, grid=(1, 1, 1), arguments=(), memory=(), files={})
        return cls(argument_kinds, record)


@dataclass(slots=True, eq=False)
class LaunchBeingSaved:
    """A launch that is about to be made and saved, without references to the program's memory."""

    record: SavedLaunchRecord
    reached: Sequence[ReachedRange] = ()
    others: Sequence[OtherValues] = ()
    replaced: int = 0  # number of launches of the variant that were chosen before
    folder: Path = field(init=False)
    snapshot: MemorySnapshot = field(init=False)
    is_saved: bool = False  # true once the launch is on disk


class LaunchSaver:
    """Saver of one launch of each chosen variant, the first one that is kept.

    If its main grid becomes another one, a launch with that replaces it. No method raises, except for an error of a
    signal handler.
    """

    def __init__(self, choice: SavedLaunches, launches: str, device: Device, report: ProcessReport) -> None:
        self._choice = choice
        self._launches = parse_launches(launches)
        # A set, because each launch looks here.
        self._variants = None if choice.variants is None else frozenset(choice.variants)
        self._kernels_folder = Path(choice.kernels_folder)
        has_others = choice.kernels_folder and any(map(has_other_values, self._kernels_folder.glob("*")))
        self._grids = ProgramGrids() if has_others else None
        self.folder = Path(choice.folder)  # which further launches are saved to
        self._device = device
        self._report = report
        self._bytes = 0
        self._in_unknown_graphs: dict[str, LaunchBeingSaved] = {}
        self._begin_in_child()
        in_forked_child(self._begin_in_child)

    def _begin_in_child(self) -> None:
        self._chosen: dict[str, dict[int, LaunchBeingSaved]] = {}
        """Launches of each variant, by how many were chosen before."""
        self._begun: list[LaunchBeingSaved] = []
        """Launches that no thread works on now. An exception of a signal handler may leave some here for good."""
        self._threads: list[tuple[LaunchBeingSaved | None, threading.Thread]] = []
        """Threads that save a launch, or drop one."""

    def is_over(self, variant: str) -> bool:
        """Return whether no launch of a variant is to be saved any more."""
        return variant in self._chosen or (self._variants is not None and variant not in self._variants)

    def is_due(self, variant: str, number: int) -> bool:
        """Return whether to save the launch of a variant with this number."""
        return not self.is_over(variant) and self._launches.keeps(number)

    def to_replace(self, variant: str, grid: Grid) -> LaunchBeingSaved | None:
        """Return the saved launch to replace, if it does not have what is now the kernel's main grid."""
        chosen = self._chosen.get(variant)
        if chosen is None:
            return None
        last = chosen[len(chosen) - 1]
        is_due = last.is_saved and last.record.grid != grid and last.replaced < _MAX_REPLACED
        return last if is_due else None

    def _choose(self, launch: LaunchBeingSaved) -> bool:
        """Return whether this launch is the one to save: another thread may choose one at the same time."""
        chosen = self._chosen.setdefault(launch.record.variant, {0: launch})
        if chosen[0] is launch:
            return True
        # The first one may have come, and be on disk, since this one was found due as the first.
        last = self.to_replace(launch.record.variant, launch.record.grid)
        if last is None:
            return False
        launch.replaced = last.replaced + 1
        return chosen.setdefault(launch.replaced, launch) is launch

    def begin(
        self, kernel: KernelToSave, number: int, grid: Grid, stream: int, arguments: Sequence[Any]
    ) -> LaunchBeingSaved | None:
        """Copy the memory of a launch that is about to be made; return None if it is not saved, or later.

        ``arguments`` are all arguments of a launcher after the metadata. A launch that is captured into a graph is
        saved when the graph runs for the first time, with the memory that it finds.
        """
        launch = LaunchBeingSaved(replace(kernel.record, index=number, grid=grid))
        try:
            if programs_events.were_recorded and not self._choice.is_asked_for:
                raise NotSaved(f"{TIMES_ITSELF}; --replay 50 saves it anyway")
            if not self._device.can_save_launches:
                raise NotImplementedError("launches are saved on NVIDIA's GPUs alone")
            with self._device.unaffected_by_graphs():
                self._describe(launch, kernel.argument_kinds, arguments[HOOK_ARGUMENTS:])
                if not launch.record.graph:
                    if not self._choose(launch):
                        return None
                    self._copy(launch, stream)
                    return launch
            if not before_first_run(functools.partial(self._save_in_graph, launch)):
                self._in_unknown_graphs[kernel.record.variant] = launch
        except Exception as error:  # noqa: BLE001 (the program must go on)
            let_through(error)
            if self._choose(launch):  # or if it was chosen as the first
                self._refuse(launch, error)
        return None

    def _describe(self, launch: LaunchBeingSaved, kinds: ArgumentKinds, arguments: Sequence[Any]) -> None:
        device = self._device.current()
        launch.reached = reached_by(arguments, kinds, self._device.allocations())
        launch.record = replace(
            launch.record,
            arguments=saved_arguments(arguments, kinds),
            graph=self._device.is_capturing(),
            device_name=self._device.names()[device],
            device_uuid=self._device.uuids()[device],
            triton=triton.__version__,
            torch=str(getattr(sys.modules.get("torch"), "__version__", "")),
            python=sys.version.split()[0],
            tool=__version__,
            argv=tuple(sys.argv),
        )
        launch.others = read_other_values(self._kernels_folder / launch.record.variant)
        if self._grids:
            launch.others = self._grids.with_grids(launch.others, launch.record.grid)

    def _copy(self, launch: LaunchBeingSaved, stream: int) -> None:
        """Copy the memory of a launch, after all present work of ``stream``. Raises ``NotSaved``, and any error."""
        launch.reached = self._with_found(launch.reached, stream)
        self._require_room(launch.reached)
        ending = f".{launch.replaced}" if launch.replaced else SAVED_LAUNCH_ENDING
        launch.folder = self.folder / f"{launch.record.variant}-{os.getpid()}{ending}"
        launch.snapshot = MemorySnapshot(self._device, [one.memory for one in launch.reached])
        # Noted first: an exception of a signal handler may come right after the copy.
        self._begun.append(launch)
        try:
            launch.snapshot.take(stream)
            if not launch.snapshot.is_copied:
                until_s = time.monotonic() + self._choice.max_seconds
                self._wait_for(stream, until_s)
                launch.snapshot.write(launch.folder / MEMORY_FILE, until_s)
        except Exception:
            self.failed(launch)
            raise

    def _save_in_graph(self, launch: LaunchBeingSaved) -> None:
        if self.is_over(launch.record.variant) or not self._choose(launch):
            return
        try:
            stream = self._device.current_stream()
            with self._device.unaffected_by_graphs():
                self._copy(launch, stream)
        except Exception as error:  # noqa: BLE001 (the program must go on)
            let_through(error)
            self._refuse(launch, error)
        else:
            self.launched(launch, stream)

    def launched(self, launch: LaunchBeingSaved, stream: int) -> None:
        """Note that the launch was made, and have the rest saved while the program goes on."""
        if not self._claim(launch):
            self._refuse(launch, NotSaved("the recording ended while it was launched"))
            return
        try:
            try:
                if not launch.record.graph:  # else it runs later
                    with self._device.unaffected_by_graphs():
                        launch.snapshot.note_later(stream)
            finally:
                self._begun.append(launch)
            self._finish_in_thread(launch, is_made=True)
        except Exception as error:  # noqa: BLE001 (the program must go on)
            let_through(error)
            self.failed(launch)
            self._refuse(launch, error)

    def failed(self, launch: LaunchBeingSaved) -> None:
        """Note that the launch was not made.

        What it has on the device may wait for what the program launches next, so a thread gives it back.
        """
        try:
            self._finish_in_thread(launch, is_made=False)
        except RuntimeError:  # there are too many
            self._finish(launch, is_made=False)

    def _finish_in_thread(self, launch: LaunchBeingSaved, *, is_made: bool) -> None:
        thread = threading.Thread(
            target=self._finish, args=(launch,), kwargs={"is_made": is_made}, name="kprof-inject-saver", daemon=True
        )
        self._threads.append((launch if is_made else None, thread))
        thread.start()

    def _claim(self, launch: LaunchBeingSaved) -> bool:
        """Return whether the caller alone may use the snapshot of a launch from now on."""
        try:
            self._begun.remove(launch)
        except ValueError:
            return False
        return True

    def _finish(self, launch: LaunchBeingSaved, *, is_made: bool) -> None:
        """Save a launch if it was made, and give back what it has on the device. Raises nothing of its own."""
        if not self._claim(launch):
            return
        snapshot = launch.snapshot
        try:
            with self._device.unaffected_by_graphs(), self._device.selected(snapshot.device_index):
                try:
                    if is_made:
                        if snapshot.is_copied:
                            snapshot.write(launch.folder / MEMORY_FILE, math.inf)
                        wait_for_benchmarks()
                        before, after = snapshot.digests()
                finally:
                    snapshot.close()
            if is_made:
                self._complete(launch, before, after)
        except Exception as error:  # noqa: BLE001 (whatever it is, the program must go on)
            let_through(error)
            if is_made:
                self._refuse(launch, error)
        finally:
            if not launch.is_saved:
                self._bytes -= sum(one.memory.size_bytes for one in launch.reached)
                shutil.rmtree(launch.folder, ignore_errors=True)

    def _complete(self, launch: LaunchBeingSaved, before: Sequence[int], after: Sequence[int]) -> None:
        shutil.copytree(self._kernels_folder / launch.record.variant, launch.folder, dirs_exist_ok=True)
        if launch.others:
            write_other_values(launch.folder, launch.others)
        memory, offset = [], 0
        for number, one in enumerate(launch.reached):
            memory.append(
                MemoryRecord(
                    address=one.memory.address,
                    size_bytes=one.memory.size_bytes,
                    offset=offset,
                    chunk_crc32=tuple(launch.snapshot.chunk_crc32[number]),
                    before=f"{before[number]:016x}",
                    after=f"{after[number]:016x}" if after else None,
                    element=one.element,
                    is_found=one.is_found,
                )
            )
            offset += one.memory.size_bytes
        record = replace(launch.record, memory=tuple(memory), files=checksums(launch.folder))
        write_saved_launch(launch.folder, record)
        if launch.replaced:
            replaced = launch.folder.with_suffix(SAVED_LAUNCH_ENDING)
            shutil.rmtree(replaced, ignore_errors=True)
            launch.folder.rename(replaced)
        else:
            self._report.add_saved_launch(launch.record.variant, launch.record.name)
        launch.is_saved = True

    def _refuse(self, launch: LaunchBeingSaved, error: Exception) -> None:
        if launch.replaced:
            return  # the launch that was to be replaced is there
        reason = str(error) if isinstance(error, NotSaved) else f"saving it failed: {first_line(error)}"
        self._report.add_saved_launch(launch.record.variant, launch.record.name, reason)

    def finish(self) -> None:
        """Wait until all launches are on disk, within limits, and drop those that an exception interrupted."""
        until_s = time.monotonic() + MAX_SECONDS_AT_END
        for launch, thread in self._threads:
            if thread.ident is None:  # it was not started
                continue
            thread.join(max(until_s - time.monotonic(), 0.0))
            if launch is not None and thread.is_alive():
                self._refuse(launch, NotSaved("its memory was not on disk in time at the end of the program"))
        for launch in self._begun.copy():
            self._finish(launch, is_made=False)
        for variant, launch in list(self._in_unknown_graphs.items()):
            if not self.is_over(variant):
                self._refuse(launch, NotSaved("it was captured into a graph without torch's class for graphs"))

    def _with_found(self, reached: Sequence[ReachedRange], stream: int) -> list[ReachedRange]:
        """Return all memory that a launch reaches: ``reached``, and what addresses there lead to."""
        at, reached = self._device.allocations(), list(reached)
        searched: set[int] = set()
        for _ in range(_MAX_LEVELS):
            to_search = [one for one in reached if one.may_hold_addresses and one.memory.address not in searched]
            if not to_search:
                break
            found: list[ReachedRange] = []
            self._wait_for(stream, time.monotonic() + self._choice.max_seconds)
            for one in to_search:
                searched.add(one.memory.address)
                size_bytes = min(one.memory.size_bytes, MAX_SEARCHED_BYTES)
                contents = self._device.contents(one.memory.address, size_bytes, stream)
                found += found_in(contents, [*reached, *found], at)
            if not found:
                break
            reached = merged([*reached, *found])
        if any(not self._device.is_local(one.memory.address) for one in reached):
            raise NotSaved("some of its memory is the host's or another device's")
        return reached

    def _wait_for(self, stream: int, until_s: float) -> None:
        """Wait for the present work of a stream. Raises ``NotSaved`` if that takes too long.

        It takes for ever where a kernel waits for what the program does next.
        """
        mark = self._device.mark(stream)
        while not mark.query():
            if time.monotonic() > until_s:
                raise NotSaved("the work before it on its stream takes too long")
            time.sleep(_POLL_S)

    def _require_room(self, reached: Sequence[ReachedRange]) -> None:
        if len(reached) > MAX_RANGES:
            raise NotSaved(f"its memory is in {len(reached)} ranges, and the limit is {MAX_RANGES}")
        size_bytes = sum(one.memory.size_bytes for one in reached)
        limit_bytes = self._choice.max_launch_bytes
        if size_bytes > limit_bytes:
            raise NotSaved(f"its memory of {size_text(size_bytes)} exceeds the limit of {size_text(limit_bytes)}")
        if self._bytes + size_bytes > self._choice.max_bytes:
            raise NotSaved(f"the launches saved before take up the limit of {size_text(self._choice.max_bytes)}")
        self._bytes += size_bytes
