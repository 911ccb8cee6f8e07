"""Time the build of an edited kernel between launches of the unchanged one, and compare their results.

Results that differ from the unchanged kernel's by rounding alone are accepted: numbers within a tolerance.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from kprof_inject.capture.edits import MIN_PAIRS, MeasuredGain
from kprof_inject.capture.resources import Resources
from kprof_inject.capture.saved_launch import (
    CHUNK_BYTES,
    DescriptorArgument,
    SavedArgument,
    SavedLaunch,
    parameters,
    pointers_in,
)
from kprof_inject.capture.schema import TTGIR_FILE
from kprof_inject.errors import KprofError
from kprof_inject.files import read_text
from kprof_inject.runtime.compiling.builds import load, source_of
from kprof_inject.runtime.devices.cuda_driver import MemoryRange, resources_of
from kprof_inject.runtime.faults import first_line
from kprof_inject.runtime.worker.loaded_launch import Digests, LoadedLaunch, digests_of
from kprof_inject.runtime.worker.paired_launches import OTHER_RESULTS, LaunchPairs, PairedLaunches, Results
from kprof_inject.runtime.worker.tasks import TimedBuild, TimedEdit, TimeEdit
from kprof_inject.select.safety import relaunch, written_arguments
from kprof_inject.ttgir.parser import parse

_MAX_ROUNDS = 3000
# Half of an interval. To know the gains of near ties to 0.15 % took 450 pairs of a kernel of 0.1 ms (H100).
_PRECISE = 0.0025
# In all floating-point types with a tolerance, these bytes are NaN. Another number might be within the tolerance.
_UNWRITTEN_FLOAT = 0xFF
# No integer that a kernel computes is likely to have these bytes.
_UNWRITTEN = 0xA5
_WRITTEN_BYTES = 16 << 20


def time_edit(task: TimeEdit, launches: PairedLaunches, results: CloseResults) -> TimedEdit:
    """Time the task's build, if it has one, as the only variant of ``launches``, whose results are ``results``."""
    build = TimedBuild()
    if task.build:
        try:
            kernel = load(Path(task.build), source_of(launches.launch.saved.kernel))
            if task.grid is not None:
                run, grid = kernel._run, task.grid
                kernel._run = lambda *given: run(*grid, *given[len(grid) :])
            launches.variants = [kernel]
            build = replace(build, resources=Resources(**resources_of(kernel)))
        except Exception as error:  # noqa: BLE001 (the driver's errors have no common base)
            launches.variants = []
            build = replace(build, refusal=f"it does not load: {first_line(error)}")

    def unsettled(pairs: Sequence[LaunchPairs]) -> Collection[int]:
        # That may be faster than the best so far, and are not known well enough.
        return [place for place, one in enumerate(pairs) if one.interval[0] <= task.best and one.error > _PRECISE]

    timed = launches.run(time.monotonic() + task.seconds, _MAX_ROUNDS, unsettled, MIN_PAIRS)
    for place, pairs in enumerate(timed.pairs):
        difference = results.differences.pop(place, None)
        build = replace(build, refusal=timed.refusals.get(place, "" if pairs.ns else "there was no time to launch it"))
        if not build.refusal:
            build = replace(build, results="identical" if difference is None else "within", difference=difference)
            if len(pairs.ns) >= MIN_PAIRS:
                low, middle, high = pairs.interval
                gain = MeasuredGain(won=1 - middle, low=1 - high, high=1 - low, pairs=len(pairs.ns))
                build = replace(build, gain=gain)
    return TimedEdit(
        build=build,
        clean_ns=statistics.median([ns for pairs in timed.pairs for ns in pairs.clean_ns] or [launches.clean_ns]),
        clean=Resources(**resources_of(launches.clean)),
        launches=timed.launches,
        restored=timed.restored,
        is_repeatable=timed.is_repeatable,
        changes_memory=results.changes_memory,
    )


def overwrite_outputs(launch: LoadedLaunch) -> None:
    """Overwrite the memory that the kernel only writes to, before anything is launched.

    A program that launches a kernel repeatedly has the right results there already, so a variant that leaves some of
    them out would not be noticed.
    """
    for number in outputs_of(launch.saved):
        record, copy = launch.copies[number]
        unwritten = _UNWRITTEN_FLOAT if record.element in DEFAULT_TOLERANCES else _UNWRITTEN
        for offset in range(0, record.size_bytes, _WRITTEN_BYTES):
            size_bytes = min(_WRITTEN_BYTES, record.size_bytes - offset)
            launch.device.write(copy + offset, bytes([unwritten]) * size_bytes)


def outputs_of(saved: SavedLaunch) -> list[int]:
    """Return the numbers of the memory ranges that the kernel only writes to, as far as its TTGIR shows.

    There are none if the kernel makes pointers of integers, or reads some from memory: these may lead anywhere.
    """
    path = saved.folder / TTGIR_FILE
    try:
        module = parse(read_text(path), str(path))
    except KprofError:
        return []
    is_written = [] if relaunch(module).refusal else written_arguments(module)
    named = zip(parameters(saved), saved.record.arguments, strict=True)
    passed = [argument for (_, kind), argument in named if kind != "constexpr"]
    counts = [_compiled_arguments(argument) for argument in passed]
    if sum(counts) != len(is_written):
        return []  # such as a tuple, which is several arguments of the compiled kernel
    written, others = set[int](), set[int]()
    for argument, begin in zip(passed, accumulate(counts[:-1], initial=0), strict=True):
        for pointer in pointers_in([argument]):
            at, memory = pointer.address, enumerate(saved.record.memory)
            ranges = [number for number, one in memory if one.address <= at < one.end]
            (written if is_written[begin] else others).update(ranges)
    return sorted(written - others)


def _compiled_arguments(argument: SavedArgument) -> int:
    """Return how many arguments of the compiled kernel one of the program is; descriptors have shapes and strides."""
    if not isinstance(argument, DescriptorArgument):
        return 1
    shape = argument.fields.get("shape")
    return 1 + 2 * len(shape) if isinstance(shape, tuple) else 1


DEFAULT_TOLERANCES = {"fp64": 1e-8, "fp32": 1e-4, "fp16": 1e-2, "bf16": 1e-2, "fp8e4nv": 1e-1, "fp8e5": 2e-1}
"""Largest difference by default, relative to the largest magnitude: some roundings of each type (an fp8 number has 3
or 2 bits after its first one)."""

_BITS = {"fp64": 52, "fp32": 23, "fp16": 10, "bf16": 7, "fp8e4nv": 3, "fp8e5": 2}
_ROUNDINGS = 2  # roundings of the largest magnitude within which results that are updated may always differ


_Contents = dict[int, NDArray[np.uint8]]  # bytes of ranges by their numbers


@dataclass(slots=True)
class CloseResults(Results):
    """Accept the same bytes, and floating-point numbers within a tolerance.

    The tolerance is relative as in ``relative_difference``; None is that of ``DEFAULT_TOLERANCES`` for the type. If the
    unchanged kernel's results differ from launch to launch, those of a variant must be close to both of the last two,
    and these to each other.
    """

    launch: LoadedLaunch
    tolerance: float | None = None
    differences: dict[int, float] = field(default_factory=dict)
    """Largest relative difference of each variant whose results are not the same bytes."""
    _noted: list[tuple[Digests, _Contents]] = field(default_factory=list)
    _before: Digests | None = None
    _own_refusal: str | None = None

    @property
    def changes_memory(self) -> bool:
        """False if the unchanged kernel leaves memory as it was: results that a variant leaves out are not noticed."""
        return self._before is None or any(noted != self._before for noted, _ in self._noted)

    def note(self, digest: Digests) -> None:
        """Copy the ranges that the launch changed to the host, unless they are the same as before."""
        if self._before is None:
            copies = (MemoryRange(copy, one.size_bytes) for one, copy in self.launch.copies)
            self._before = digests_of(self.launch.device, copies, self.launch.stream)
        contents = next((known for noted, known in self._noted if noted == digest), None)
        if contents is None:
            changed = _changed(self._before, digest)
            contents = {number: self._now(number) for number in changed}
        self._noted.append((digest, contents))
        del self._noted[:-2]

    def refusal_of(self, place: int, digest: Digests) -> str:
        """Compare the bytes, and what differs by value."""
        if digest in [noted for noted, _ in self._noted]:
            return ""
        if self._own_refusal is None:
            (a_digest, a), (b_digest, b) = self._noted[0], self._noted[-1]
            varies = a_digest != b_digest and self._compared(a_digest, a, b_digest, b.__getitem__)[1]
            own_refusal = "the unchanged kernel's own results differ from launch to launch by more"
            self._own_refusal = own_refusal if varies else ""
        if self._own_refusal:
            return self._own_refusal
        found = 0.0
        for noted, contents in self._noted:
            difference, refusal = self._compared(noted, contents, digest, self._now)
            if refusal:
                return refusal
            found = max(found, difference)
        self.differences[place] = found
        return ""

    def _now(self, number: int) -> NDArray[np.uint8]:
        record, _ = self.launch.copies[number]
        return self._at(record.address, record.size_bytes)

    def _at(self, address: int, size_bytes: int) -> NDArray[np.uint8]:
        return np.array(self.launch.device.contents(address, size_bytes, self.launch.stream), dtype=np.uint8)

    def _compared(
        self,
        noted: Digests,
        contents: dict[int, NDArray[np.uint8]],
        digest: Digests,
        other: Callable[[int], NDArray[np.uint8]],
    ) -> tuple[float, str]:
        """Return the largest relative difference, and the refusal, of contents that differ from those noted.

        ``other`` returns the bytes of a range by its number.
        """
        found = 0.0
        for number in _changed(noted, digest):
            record, copy = self.launch.copies[number]
            named = f"{record.element or 'unknown type'} at {record.address:#x}"
            tolerance = DEFAULT_TOLERANCES.get(record.element)  # none for types that must have the same bytes
            if tolerance is not None and self.tolerance is not None:
                tolerance = self.tolerance
            if number not in contents or tolerance is None:
                return found, f"{OTHER_RESULTS} ({named})"
            difference = relative_difference(
                record.element, contents[number], other(number), self._at(copy, record.size_bytes)
            )
            found = max(found, difference)
            if not difference <= tolerance:
                return found, f"{OTHER_RESULTS} by {difference:.2g} of the largest ({named})"
        return found, ""


def _changed(before: Digests, after: Digests) -> list[int]:
    return [number for number, (a, b) in enumerate(zip(before, after, strict=True)) if a != b]


def relative_difference(
    element: str, reference: NDArray[np.uint8], other: NDArray[np.uint8], initial: NDArray[np.uint8]
) -> float:
    """Return the largest difference of two results, relative to the largest magnitude of the reference.

    Only numbers that differ from each other, or from the ``initial`` ones, have a magnitude: memory that no launch
    wrote may hold anything. If the launch changes numbers by less than their magnitude, as an optimizer does, the
    difference is relative to the largest change, or an update that is left out would not be noticed; but a difference
    by rounding alone is never large. NaN and infinities must be at the same places; otherwise the difference is
    infinite.
    """
    max_difference = max_magnitude = max_change = 0.0
    for begin in range(0, reference.size, CHUNK_BYTES):
        chunk = slice(begin, begin + CHUNK_BYTES)
        a, b, c = (values_of(element, data[chunk]) for data in (reference, other, initial))
        is_finite = np.isfinite(a)
        if not np.array_equal(a[~is_finite], b[~is_finite], equal_nan=True) or not np.isfinite(b[is_finite]).all():
            return float("inf")
        differs, is_written = is_finite & (a != b), is_finite & (a != c)
        magnitude = np.abs(a)
        with np.errstate(invalid="ignore"):  # infinities, which are not chosen
            difference = np.abs(a - b)
            change = np.minimum(magnitude, np.abs(a - np.where(np.isfinite(c), c, 0.0)))
        max_difference = max(max_difference, _largest(difference, differs))
        max_magnitude = max(max_magnitude, _largest(magnitude, differs | is_written))
        max_change = max(max_change, _largest(change, is_written))
    if not max_difference:
        return 0.0
    least = min(_ROUNDINGS * 2.0 ** -_BITS[element] / DEFAULT_TOLERANCES[element], 1.0)
    scale = max(max_change, least * max_magnitude) if max_change else max_magnitude
    return max_difference / scale if scale else float("inf")


def _largest(values: NDArray[np.float64], chosen: NDArray[np.bool_]) -> float:
    return float(np.max(values, where=chosen, initial=0.0))


def values_of(element: str, data: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Return the numbers in bytes, of a type in ``DEFAULT_TOLERANCES``; bytes after the last whole number are ignored.

    Sources of the fp8 formats: "FP8 Formats for Deep Learning", Micikevicius et al.
    """
    with np.errstate(invalid="ignore"):  # a signalling NaN
        if element in ("fp64", "fp32", "fp16"):
            size_bytes = int(element[2:]) // 8
            return data[: data.size // size_bytes * size_bytes].view(f"<f{size_bytes}").astype(np.float64)
        if element == "bf16":
            high = data[: data.size // 2 * 2].view("<u2").astype(np.uint32) << 16
            return high.view(np.float32).astype(np.float64)
    return np.fromiter(_fp8(element), dtype=np.float64, count=256)[data]


def _fp8(element: str) -> Iterator[float]:
    exponent_bits, mantissa_bits = (5, 2) if element == "fp8e5" else (4, 3)
    bias = (1 << exponent_bits - 1) - 1
    for code in range(256):
        exponent, mantissa = (code & 0x7F) >> mantissa_bits, code & (1 << mantissa_bits) - 1
        if exponent_bits == 5 and exponent == 31:
            value = float("nan") if mantissa else float("inf")
        elif exponent_bits == 4 and code & 0x7F == 0x7F:
            value = float("nan")
        elif exponent == 0:
            value = mantissa * 2.0 ** (1 - bias - mantissa_bits)
        else:
            value = (1 + mantissa / (1 << mantissa_bits)) * 2.0 ** (exponent - bias)
        yield -value if code & 0x80 else value
