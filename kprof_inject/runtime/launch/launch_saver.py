"""Save launches of the program: what a launch begins with, so that a process of ours can repeat it later.

The memory is copied on the device, in the order of the launch's own stream; threads of ours then write it to disk while
the program goes on. Nothing of the program's is changed, kept or allocated, and nothing but that stream is waited for.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator, Sequence
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
from kprof_inject.runtime.devices.snapshot import Snapshot
from kprof_inject.runtime.faults import first_line
from kprof_inject.runtime.launch.memory_file import write_memory
from kprof_inject.runtime.launch.reachable_memory import (
    MAX_SEARCHED_BYTES,
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

_LOOKS_PER_S = 10_000.0
# Memory that leads to more memory, and so on: a table of structures with pointers has three levels.
_MAX_LEVELS = 4
_MAX_REPLACED = 3
"""Times that a launch of a kernel is replaced by one with another grid: each costs the program a copy."""


@dataclass(frozen=True, slots=True)
class KernelToSave:
    """A kernel as a saved launch needs it, with records or without."""

    argument_kinds: ArgumentKinds
    record: SavedLaunchRecord
    """Record of its launches, without what differs among them."""

    @classmethod
    def of(cls, argument_kinds: ArgumentKinds, **known: Any) -> KernelToSave:
        """Return a kernel; all its launches have the ``known`` fields of the record."""
        record = SavedLaunchRecord(**known, index=0, grid=(1, 1, 1), arguments=(), memory=(), files={})
        return cls(argument_kinds, record)

    @property
    def variant(self) -> str:
        """Name of the kernel's variant."""
        return self.record.variant


@dataclass(frozen=True, slots=True)
class _DescribedLaunch:
    """A launch of which nothing is copied yet, without references to the program's memory."""

    kernel: KernelToSave
    record: SavedLaunchRecord
    reached: Sequence[ReachedRange]
    others: Sequence[OtherValues]


@dataclass(slots=True, eq=False)
class _Choice:
    """Choice of a variant's launch with this grid; ``former`` is the one that it replaces."""

    grid: Grid
    former: _Choice | None = None
    is_saved: bool = False
    """True once the launch is on disk."""
    _next: dict[None, _Choice] = field(default_factory=dict)

    @property
    def number(self) -> int:
        """Number of choices before it."""
        return self.former.number + 1 if self.former else 0

    def replaced_by(self, choice: _Choice) -> bool:
        """Return whether this choice is the one that replaces it: another thread may make one at the same time."""
        return self._next.setdefault(None, choice) is choice


@dataclass(slots=True, eq=False)
class LaunchBeingSaved:
    """A launch whose memory is copied, and which is about to be made. ``LaunchSaver.launched`` follows."""

    described: _DescribedLaunch
    folder: Path
    choice: _Choice
    device: int
    snapshot: Snapshot = field(init=False)
    chunk_crc32: list[list[int]] = field(default_factory=list)


class LaunchSaver:
    """Saver of one launch of each chosen variant, the first one that is kept.

    If its main grid becomes another one, a launch with that replaces it. No method raises, except for an error of a
    signal handler.
    """

    def __init__(self, choice: SavedLaunches, launches: str, device: Device, report: ProcessReport) -> None:
        """Save the variants of ``choice`` at a launch that ``launches`` keeps."""
        self._choice = choice
        self._launches = parse_launches(launches)
        # A set, because each launch looks here.
        self._variants = None if choice.variants is None else frozenset(choice.variants)
        self._kernels_folder = Path(choice.kernels_folder)
        has_others = choice.kernels_folder and any(map(has_other_values, self._kernels_folder.glob("*")))
        self._grids = ProgramGrids() if has_others else None
        self._folder = Path(choice.folder)
        self._device = device
        self._report = report
        self._bytes = 0
        self._chosen: dict[str, _Choice] = {}
        self._begun: list[LaunchBeingSaved] = []
        """Launches that no thread works on now. An exception of a signal handler may leave some here for good."""
        self._threads: list[tuple[KernelToSave, threading.Thread]] = []
        self._dropping: list[threading.Thread] = []
        self._in_unknown_graphs: dict[str, KernelToSave] = {}
        in_forked_child(self._begin_in_child)

    def _begin_in_child(self) -> None:
        self._chosen, self._begun, self._threads, self._dropping = {}, [], [], []

    def save_to(self, folder: Path) -> None:
        """Save further launches to a folder."""
        self._folder = folder

    def is_over(self, variant: str) -> bool:
        """Return whether no launch of a variant is to be saved any more."""
        return variant in self._chosen or (self._variants is not None and variant not in self._variants)

    def is_due(self, variant: str, number: int) -> bool:
        """Return whether to save the launch of a variant with this number."""
        return not self.is_over(variant) and self._launches.keeps(number)

    def is_due_again(self, variant: str, grid: Grid) -> bool:
        """Return whether to save a launch with what is now the kernel's main grid, instead of the saved one."""
        chosen = self._chosen.get(variant)
        return chosen is not None and chosen.grid != grid and chosen.is_saved and chosen.number < _MAX_REPLACED

    def begin(
        self, kernel: KernelToSave, number: int, grid: Grid, stream: int, arguments: Sequence[Any]
    ) -> LaunchBeingSaved | None:
        """Copy the memory of a launch that is about to be made; return None if it is not saved, or later.

        ``arguments`` are all arguments of a launcher after the metadata. A launch that is captured into a graph is
        saved when the graph runs for the first time, with the memory that it finds.
        """
        try:
            if programs_events.were_recorded and not self._choice.is_asked_for:
                raise NotSaved(f"{TIMES_ITSELF}; --replay 50 saves it anyway")
            described = self._described(kernel, number, grid, arguments[HOOK_ARGUMENTS:])
            if self._device.is_capturing():
                if not before_first_run(functools.partial(self._save_in_graph, described)):
                    self._in_unknown_graphs[kernel.variant] = kernel
                return None
            choice = self._choose(kernel, grid)
            return None if choice is None else self._begun_at(described, choice, stream)
        except Exception as error:  # noqa: BLE001 (the program must go on)
            let_through(error)
            self._choose(kernel, grid)
            self._refuse(kernel, error)
            return None

    def _choose(self, kernel: KernelToSave, grid: Grid) -> _Choice | None:
        """Return the choice of the launch that is about to be made; None if another one is chosen of its variant."""
        former = self._chosen.get(kernel.variant)
        choice = _Choice(grid, former)
        if former is None:
            return choice if self._chosen.setdefault(kernel.variant, choice) is choice else None
        # The former may have come, and be on disk, since this launch was found due as the first.
        if not self.is_due_again(kernel.variant, grid) or not former.replaced_by(choice):
            return None
        self._chosen[kernel.variant] = choice
        return choice

    def _save_in_graph(self, described: _DescribedLaunch) -> None:
        """Save a launch in a graph that is about to run. Raises nothing of its own."""
        kernel = described.kernel
        choice = None if self.is_over(kernel.variant) else self._choose(kernel, described.record.grid)
        if choice is None:
            return
        try:
            self._finish_in_thread(self._begun_at(described, choice, self._device.current_stream()))
        except Exception as error:  # noqa: BLE001 (the program must go on)
            let_through(error)
            self._refuse(kernel, error)

    def _refuse(self, kernel: KernelToSave, error: Exception) -> None:
        if (chosen := self._chosen.get(kernel.variant)) is not None and chosen.former is not None:
            return  # the launch that was to be replaced is there
        reason = str(error) if isinstance(error, NotSaved) else f"saving it failed: {first_line(error)}"
        self._report.add_saved_launch(kernel.variant, kernel.record.name, reason)

    def _described(self, kernel: KernelToSave, number: int, grid: Grid, arguments: Sequence[Any]) -> _DescribedLaunch:
        with self._device.unaffected_by_graphs():
            reached = reached_by(arguments, kernel.argument_kinds, self._device.allocations())
            saved = saved_arguments(arguments, kernel.argument_kinds)
            device = self._device.current()
            record = replace(
                kernel.record,
                index=number,
                grid=grid,
                arguments=saved,
                graph=self._device.is_capturing(),
                device_name=self._device.names()[device],
                device_uuid=self._device.uuids()[device],
                triton=triton.__version__,
                torch=str(getattr(sys.modules.get("torch"), "__version__", "")),
                python=sys.version.split()[0],
                tool=__version__,
                argv=tuple(sys.argv),
            )
        others = read_other_values(self._kernels_folder / kernel.variant)
        if self._grids:
            others = self._grids.with_grids(others, grid)
        return _DescribedLaunch(kernel, record, reached, others)

    def _begun_at(self, described: _DescribedLaunch, choice: _Choice, stream: int) -> LaunchBeingSaved:
        """Copy the memory of a launch, after all present work of ``stream``. Raises ``NotSaved``, and any error."""
        with self._device.unaffected_by_graphs():
            described = dataclasses.replace(described, reached=self._with_found(described.reached, stream))
            self._require_room(described.reached)
            ending = f".{choice.number}" if choice.former else SAVED_LAUNCH_ENDING
            folder = self._folder / f"{described.kernel.variant}-{os.getpid()}{ending}"
            begun = LaunchBeingSaved(described, folder, choice, self._device.current())
            # Noted first: an exception of a signal handler may come right after the copy.
            self._begun.append(begun)
            try:
                begun.snapshot = self._device.snapshot([one.memory for one in described.reached], stream)
                if not begun.snapshot.is_copied:
                    until_s = time.monotonic() + self._choice.max_seconds
                    self._wait_for(stream, until_s)
                    self._write_memory(begun, until_s)
            except Exception:
                self.failed(begun)
                raise
            return begun

    def launched(self, begun: LaunchBeingSaved, stream: int) -> None:
        """Note that the launch was made, and have the rest saved while the program goes on."""
        if not self._claim(begun):
            self._refuse(begun.described.kernel, NotSaved("the recording ended while it was launched"))
            return
        try:
            try:
                with self._device.unaffected_by_graphs():
                    begun.snapshot.note_later(stream)
            finally:
                self._begun.append(begun)
            self._finish_in_thread(begun)
        except Exception as error:  # noqa: BLE001 (the program must go on)
            let_through(error)
            self.failed(begun)
            self._refuse(begun.described.kernel, error)

    def _finish_in_thread(self, begun: LaunchBeingSaved) -> None:
        thread = threading.Thread(target=self._finish, args=(begun,), name="kprof-inject-saver", daemon=True)
        self._threads.append((begun.described.kernel, thread))
        thread.start()

    def failed(self, begun: LaunchBeingSaved) -> None:
        """Note that the launch was not made.

        What it has on the device may wait for what the program launches next, so a thread gives it back.
        """
        if not self._claim(begun):
            return
        thread = threading.Thread(target=self._drop, args=(begun,), name="kprof-inject-saver", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # there are too many
            self._drop(begun)
        else:
            self._dropping.append(thread)

    def _claim(self, begun: LaunchBeingSaved) -> bool:
        """Return whether the caller alone may use the snapshot of a launch from now on."""
        try:
            self._begun.remove(begun)
        except ValueError:
            return False
        return True

    def _drop(self, begun: LaunchBeingSaved) -> None:
        """Give back what a launch has on the device and on disk. Raises nothing of its own."""
        with self._report.guard("dropping a saved launch"), self._device.unaffected_by_graphs():
            try:
                if hasattr(begun, "snapshot"):
                    with self._device.selected(begun.device):
                        begun.snapshot.close()
            finally:
                self._bytes -= sum(one.memory.size_bytes for one in begun.described.reached)
                shutil.rmtree(begun.folder, ignore_errors=True)

    def finish(self) -> None:
        """Wait until all launches are on disk, within limits, and drop those that an exception interrupted."""
        until_s = time.monotonic() + MAX_SECONDS_AT_END
        for kernel, thread in self._threads:
            if thread.ident is None:  # it was not started
                continue
            thread.join(max(until_s - time.monotonic(), 0.0))
            if thread.is_alive():
                self._refuse(kernel, NotSaved("its memory was not on disk in time at the end of the program"))
        for begun in self._begun.copy():
            if self._claim(begun):
                self._drop(begun)
        for thread in self._dropping:
            thread.join(max(until_s - time.monotonic(), 0.0))
        for kernel in list(self._in_unknown_graphs.values()):
            if not self.is_over(kernel.variant):
                self._refuse(kernel, NotSaved("it was captured into a graph without torch's class for graphs"))

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
                contents = self._device.contents(
                    one.memory.address, min(one.memory.size_bytes, MAX_SEARCHED_BYTES), stream
                )
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
            time.sleep(1 / _LOOKS_PER_S)

    def _require_room(self, reached: Sequence[ReachedRange]) -> None:
        if len(reached) > MAX_RANGES:
            raise NotSaved(f"its memory is in {len(reached)} ranges, and the limit is {MAX_RANGES}")
        size_bytes = sum(one.memory.size_bytes for one in reached)
        if size_bytes > self._choice.max_launch_bytes:
            raise NotSaved(
                f"its memory of {size_text(size_bytes)} exceeds the limit of {size_text(self._choice.max_launch_bytes)}"
            )
        if self._bytes + size_bytes > self._choice.max_bytes:
            raise NotSaved(f"the launches saved before take up the limit of {size_text(self._choice.max_bytes)}")
        self._bytes += size_bytes

    def _finish(self, begun: LaunchBeingSaved) -> None:
        if not self._claim(begun):
            return
        try:
            with self._device.unaffected_by_graphs(), self._device.selected(begun.device):
                try:
                    if begun.snapshot.is_copied:
                        self._write_memory(begun, float("inf"))
                    wait_for_benchmarks()
                    before, after = begun.snapshot.digests()
                finally:
                    begun.snapshot.close()
            shutil.copytree(self._kernels_folder / begun.described.kernel.variant, begun.folder, dirs_exist_ok=True)
            if begun.described.others:
                write_other_values(begun.folder, begun.described.others)
            memory = tuple(_memory_records(begun, before, after))
            record = replace(begun.described.record, memory=memory, files=checksums(begun.folder))
            write_saved_launch(begun.folder, record)
            if begun.choice.former is not None:
                replaced = begun.folder.with_suffix(SAVED_LAUNCH_ENDING)
                shutil.rmtree(replaced, ignore_errors=True)
                begun.folder.rename(replaced)
            else:
                self._report.add_saved_launch(begun.described.kernel.variant, begun.described.kernel.record.name)
            begun.choice.is_saved = True
        except Exception as error:  # noqa: BLE001 (whatever it is, the program must go on)
            shutil.rmtree(begun.folder, ignore_errors=True)
            self._refuse(begun.described.kernel, error)

    def _write_memory(self, begun: LaunchBeingSaved, until_s: float) -> None:
        begun.folder.mkdir(parents=True, exist_ok=True)
        ranges = [one.memory for one in begun.described.reached]
        begun.chunk_crc32 = write_memory(
            begun.folder / MEMORY_FILE, ranges, begun.snapshot, self._device, begun.device, until_s
        )


def _memory_records(begun: LaunchBeingSaved, before: Sequence[int], after: Sequence[int]) -> Iterator[MemoryRecord]:
    offset = 0
    for number, one in enumerate(begun.described.reached):
        yield MemoryRecord(
            address=one.memory.address,
            size_bytes=one.memory.size_bytes,
            offset=offset,
            chunk_crc32=tuple(begun.chunk_crc32[number]),
            before=f"{before[number]:016x}",
            after=f"{after[number]:016x}" if after else None,
            element=one.element,
            is_found=one.is_found,
        )
        offset += one.memory.size_bytes
