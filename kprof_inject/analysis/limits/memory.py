"""Bounds of the bytes that a launch moves: from the L2 to its SMs, and from and to DRAM."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property, lru_cache
from math import prod

import numpy as np
from msgspec import Struct

from kprof_inject.analysis.interpreter.accesses import Access
from kprof_inject.analysis.interpreter.axis_arrays import CTA, AxisArray, TooLarge
from kprof_inject.analysis.interpreter.executions import CountedOperation, ExecutedKernel
from kprof_inject.analysis.interpreter.footprints import NOTHING, SECTOR_BYTES, Ranges, max_repeats, union
from kprof_inject.analysis.interpreter.loaded_integers import data_dependent
from kprof_inject.analysis.structure.layouts import access_bits, lanes_and_warps_along, lanes_dimension
from kprof_inject.capture.model import KERNELS_CACHED, Kernel
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.ttgir.dialect import FUNCTION
from kprof_inject.ttgir.nodes import Module, Operation
from kprof_inject.ttgir.types import types_of


class DramBound(Struct, frozen=True):
    """Bounds of the bytes that a launch moves from and to DRAM if it finds nothing in the L2.

    ``fits_l2``: everything that it reads and writes may be in the L2 when it begins. ``unknown`` operations access
    memory at unknown addresses, which the bounds do not include, for ``unknown_reason``; ``unknown_bytes`` is their
    part of ``streamed_bytes``, and ``scattered`` the number of elements that threads access there, each perhaps in a
    cycle of its own of the L1.
    """

    read_bytes: int
    written_bytes: int
    least_bytes: int
    """Lower bound: everything that the launch reads, once, and of what it writes, the part for which the L2 has no
    room."""
    streamed_bytes: int | None
    """Upper bound: no operation finds in the L2 what another one read, nor anything read at an unknown address. None if
    the number of executions of any operation is unknown."""
    fits_l2: bool
    unknown: int
    unknown_bytes: int
    bytes_per_s: float  # bandwidth of the device's DRAM
    unknown_reason: str = ""
    scattered: int = 0

    @property
    def once_bytes(self) -> int:
        """Everything that the launch reads and writes, once."""
        return self.read_bytes + self.written_bytes

    @property
    def least_ns(self) -> float:
        """Shortest possible duration of a launch that finds nothing in the L2."""
        return 1e9 * self.least_bytes / self.bytes_per_s

    def min_part(self, duration_ns: float) -> float:
        """Return a lower bound of DRAM's utilization in a launch of this duration; 0 if all data may be in the L2."""
        return 0.0 if self.fits_l2 or not duration_ns else self.least_ns / duration_ns


class _Moved(Struct, frozen=True, eq=False, dict=True):
    """Bytes that an access moves; ``passes``: its reads certainly come from the L2."""

    line: int
    access: Access
    times: int | None
    passes: bool
    aliases: Mapping[str, str]

    @cached_property
    def ranges(self) -> Ranges | None:
        return self.access.touched()

    @cached_property
    def distinct_bytes(self) -> int:
        if self.passes and self.access.operation.name == _COPY:
            return _copied_bytes(self.access, self.times, self.aliases)
        return self.access.distinct_bytes(self.times)

    @property
    def is_kept(self) -> bool:
        """True if an SM's L1 may keep what is read."""
        form = self.access.form
        is_through_l1 = form.by_registers or self.access.operation.name == _COPY
        return form.reads and not form.writes and is_through_l1 and not self.passes

    @property
    def streamed_bytes(self) -> int | None:
        """Bytes that DRAM moves if no other operation brings them to the L2."""
        one = self.access
        if one.mask is not None and one.mask.is_lower_bound:
            return one.max_bytes(self.times)
        if self.ranges is not None:
            return self.ranges.size_bytes
        if self.times is None and one.whole_bytes <= SECTOR_BYTES:
            return 0  # scalars such as locks and pointers: they wait for each other, and move next to nothing
        requested_bytes = one.requested_bytes(self.times)
        return one.max_bytes(self.times) if requested_bytes is None else requested_bytes

    @property
    def scattered(self) -> int:
        is_scattered = self.access.form.by_registers and self.access.address is None
        return (self.streamed_bytes or 0) // self.access.element_bytes if is_scattered else 0


class Traffic:
    """Memory traffic of a kernel's launches with the same grid and arguments."""

    def __init__(self, operations: Sequence[CountedOperation], module: Module, kernel: Kernel, ctas: int) -> None:
        """Take all operations of the kernel, in the order of the text, and its module."""
        self._kernel, self._ctas, self._module = kernel, ctas, module
        self._moved = [
            _Moved(one.line, one.access, one.times, passes_by_l1(one.access, module.aliases), module.aliases)
            for one in operations
            if one.access is not None
        ]
        self.lines = [one.line for one in self._moved]
        """The first line of each operation that accesses memory, ascending."""

    def l2_bytes(self, accesses: range, kept_bytes: Sequence[int]) -> int:
        """Return a lower bound of the bytes that accesses, given by places in ``lines``, move from the L2 to the SMs.

        Accesses that bypass an SM's L1 count in each execution, others once for each SM (``kept_bytes``).
        """
        moved = self._moved[accesses.start : accesses.stop]
        passing = sum(one.distinct_bytes for one in moved if one.passes and one.access.form.reads)
        return passing + kept_bytes[accesses.stop] - kept_bytes[accesses.start]

    @property
    def l2_written_bytes(self) -> int:
        """Bytes that all stores and atomic operations pass to the L2, in each execution; the latter read them, too."""
        written = [one for one in self._moved if one.access.form.writes]
        return sum((2 if one.access.form.reads else 1) * one.distinct_bytes for one in written)

    def l1_bytes(self, accesses: range) -> int:
        """Return the bytes that accesses, given by places in ``lines``, move between the L1 and registers."""
        moved = self._moved[accesses.start : accesses.stop]
        return sum(one.distinct_bytes for one in moved if one.access.form.by_registers)

    def kept_bytes(self, sm_of_cta: AxisArray | None) -> list[int]:
        """Return the bytes, in whole sectors, that all SMs' L1s have read before the first access, and after each."""
        sizes, sectors = [0], NOTHING
        for one in self._moved:
            ranges = one.access.touched(sm_of_cta) if one.is_kept else None
            if ranges is not None:
                sectors = union((sectors, ranges.sectors))
            sizes.append(sectors.size_bytes)
        return sizes

    def dram_bound(self, l1_bytes: int, kept_bytes: int) -> DramBound | None:
        """Return the bounds for DRAM, by the size of an SM's L1 and the bytes that all L1s read."""
        kernel = self._kernel
        if kernel.dram_bytes_per_s is None or kernel.l2_bytes is None:
            return None
        read, written = self._distinct
        unknown = [one for one in self._moved if one.ranges is None]
        return DramBound(
            read_bytes=read.size_bytes,
            written_bytes=written.size_bytes,
            least_bytes=read.size_bytes + max(written.size_bytes - kernel.l2_bytes, 0),
            streamed_bytes=self._streamed_bytes(l1_bytes, kept_bytes),
            fits_l2=union((read, written)).size_bytes <= kernel.l2_bytes,
            unknown=len(unknown),
            unknown_bytes=sum(one.streamed_bytes or 0 for one in unknown),
            bytes_per_s=kernel.dram_bytes_per_s,
            unknown_reason=self._reason([one.access.operation for one in unknown]),
            scattered=sum(one.scattered for one in unknown),
        )

    @cached_property
    def _distinct(self) -> tuple[Ranges, Ranges]:
        """Bytes that are read, and bytes that are written; the L2 reads what an atomic operation changes."""
        known = [(one.access.form, one.ranges) for one in self._moved if one.ranges is not None]
        return union(each for form, each in known if form.reads), union(each for form, each in known if form.writes)

    def _streamed_bytes(self, l1_bytes: int, kept_bytes: int) -> int | None:
        streamed = [one.streamed_bytes for one in self._moved]
        if None in streamed:
            return None
        total = sum(one or 0 for one in streamed)
        resources, read_bytes = self._kernel.with_records, kept_bytes / self._ctas
        # If an SM's L1 has room for what its CTAs read through it, they hit it again.
        if (resources.ctas_per_sm or 1) * (read_bytes + (resources.shared_bytes or 0)) <= l1_bytes:
            kept = [one for one in self._moved if one.is_kept and one.ranges is not None]
            again = union(one.ranges for one in kept if one.ranges is not None).size_bytes
            total += again - sum(one.streamed_bytes or 0 for one in kept)
        return total

    def _reason(self, unknown: Sequence[Operation]) -> str:
        functions = {owner for one in unknown for owner in one.ancestors() if owner.name == FUNCTION}
        dependent = set[Operation]().union(*(data_dependent(self._module, function) for function in functions))
        others = {one.name for one in unknown if one not in dependent}
        if others:
            return f"the addresses of {' and '.join(sorted(others))} are not modelled"
        return "addresses depend on loaded data" if unknown else ""


@lru_cache(maxsize=KERNELS_CACHED)  # mostly, all launches have the same
def traffic_of(ran: ExecutedKernel, kernel: Kernel) -> Traffic:
    """Return the memory traffic of launches that executed ``ran``."""
    return Traffic(ran.operations, ran.module, kernel, prod(ran.grid))


def sms_of_ctas(timeline: Timeline) -> AxisArray | None:
    """Return the SM of each CTA; None unless all are known."""
    ctas = timeline.all_ctas
    if len(ctas) != prod(timeline.launch.grid):
        return None
    return AxisArray((CTA,), ctas["sm"][np.argsort(ctas["cta"])].astype(np.int64))


_COPY = "ttg.async_copy_global_to_local"
_CONTIGUITY = re.compile(r"\bcontiguity = (\d+)")
# ``cp.async`` bypasses the L1 if a thread copies 16 bytes; smaller copies go through it (PTX ISA, "cp.async").
_BYPASS_BITS = 128
_UNALIGNED = re.compile(r"%[\w$.-]+: i\d+\b(?! *\{[^}]*tt\.divisibility)")


def passes_by_l1(access: Access, aliases: Mapping[str, str]) -> bool:
    """Return True if what is read certainly comes from the L2."""
    copy = access.operation
    if not access.form.passes_by_l1 or copy.name != _COPY:
        return access.form.passes_by_l1
    if found := _CONTIGUITY.search(copy.tail):
        return int(found[1]) * 8 * access.element_bytes >= _BYPASS_BITS
    # The layout shows the bytes that a thread copies at once if all integers that may be in an address are aligned.
    types = types_of(copy)
    function = next((one for one in copy.ancestors() if one.name == FUNCTION), None)
    is_aligned = function is not None and not _UNALIGNED.search(function.tail)
    return is_aligned and bool(types) and (access_bits(types[0], aliases) or 0) >= _BYPASS_BITS


# The L2 gets a request for each quarter of a warp, whose lanes copy 128 bytes. Two quarters that copy the same bytes
# request them twice: for int4 weights, of which eight rows copy the same words, Nsight Compute counts all requests on
# an H100.
_LANES_AT_ONCE = 8


def _copied_bytes(copy: Access, times: int | None, aliases: Mapping[str, str]) -> int:
    """Return the bytes that copies around the L1 request; unknown addresses along a row are assumed to differ."""
    copied = types_of(copy.operation)[0]
    row = lanes_dimension(copied, aliases)
    lanes = lanes_and_warps_along(copied, row, aliases) if row is not None else None
    rows = max(_LANES_AT_ONCE // lanes[0], 1) if lanes else _LANES_AT_ONCE
    requested_bytes = copy.requested_bytes(times) or 0
    if copy.address is None:
        return requested_bytes // rows
    with suppress(TooLarge):
        in_a_row = rows * max_repeats(copy.address, copy.shape, row)
        return requested_bytes // min(in_a_row, max_repeats(copy.address, copy.shape), _LANES_AT_ONCE)
    return requested_bytes // _LANES_AT_ONCE
