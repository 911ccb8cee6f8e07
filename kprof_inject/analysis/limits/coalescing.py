"""Coalescing of loads and stores: how many sectors and lines a warp's request touches, from its layout and addresses.

An instruction of a warp is a request to the L1. It touches lines of 128 bytes, and in these, sectors of 32 bytes, which
are moved as a whole (Nsight Compute, Kernel Profiling Guide, "Memory Tables"). Adjacent addresses touch the fewest.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache, reduce
from math import prod
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from kprof_inject.analysis.interpreter.accesses import Access
from kprof_inject.analysis.interpreter.axis_arrays import AxisArray, GridAxis, dimension
from kprof_inject.analysis.interpreter.executions import CountedOperation, ExecutedKernel
from kprof_inject.analysis.interpreter.footprints import SECTOR_BYTES
from kprof_inject.analysis.structure.layouts import MAX_ACCESS_BITS, Basis, LinearLayout, linear_layout
from kprof_inject.capture.model import KERNELS_CACHED
from kprof_inject.machine_code.instructions import MachineFunction
from kprof_inject.machine_code.units import global_access, wavefronts_of
from kprof_inject.ttgir.locations import LocationTable
from kprof_inject.ttgir.nodes import Module
from kprof_inject.ttgir.ssa_values import result_names
from kprof_inject.ttgir.strings import variable_in
from kprof_inject.ttgir.types import if_misfit, types_of

LINE_BYTES, _WORD_BYTES = 128, 4
_LANE_BITS = 5
_LANES = 1 << _LANE_BITS
# Requests that touch at least this many times the sectors or lines that they need are uncoalesced.
MIN_UNCOALESCED = 2.0
# Requests of an operation that are evaluated: more would take time, and change the mean by less than 1 %.
_MAX_REQUESTS = 512
# Steps by these parts of the whole leave no large gaps in two dimensions, and avoid the periods of rows and columns:
# Roberts, "The Unreasonable Effectiveness of Quasirandom Sequences", 2018.
_STEPS = 0.7548776662466927, 0.5698402909980532
_COPY = "ttg.async_copy_global_to_local"
_KINDS = {"tt.load": "load", _COPY: "load", "tt.store": "store"}
_BYPASS_BYTES = 16  # ``cp.async`` bypasses the L1 if a thread copies 16 bytes (PTX ISA, "cp.async")
_NOWHERE = 1 << 62  # larger than any address: the place of a lane that the mask disables

_Numbers = NDArray[np.int64]
_Bits = NDArray[np.bool_]


class Requests(Struct, frozen=True):
    """Requests of one operation, of a ``kind`` ``load`` or ``store``, to the L1.

    A lane accesses ``access_bytes`` with one of the ``instructions`` of all warps and CTAs; the mask enables any lane
    in an ``active_share`` of these. ``sectors``, ``lines`` and ``wavefronts`` are means of those, and adjacent ones
    what the same bytes would touch if they were adjacent. The lower bound of ``wavefronts``, cycles of the L1's data
    path, is 0 where the data does not pass through it. ``place`` is the name and the source line of an uncoalesced
    access, such as *of 'x' at f.py:3*; empty if unknown.
    """

    line: int  # line of the operation in the TTGIR
    kind: str
    access_bytes: int
    instructions: int | None
    active_share: float
    sectors: float
    adjacent_sectors: float
    lines: float
    adjacent_lines: float
    wavefronts: float
    place: str = ""

    @property
    def requests(self) -> float:
        """Number of requests; 0 if unknown."""
        return self.active_share * (self.instructions or 0)

    @property
    def is_uncoalesced(self) -> bool:
        """True if requests touch many more sectors or lines than they need."""
        has_many_sectors = self.sectors >= MIN_UNCOALESCED * self.adjacent_sectors
        return has_many_sectors or self.lines >= MIN_UNCOALESCED * self.adjacent_lines

    @property
    def extra_wavefronts(self) -> float:
        """Cycles of the L1's data path, of all instructions, beyond those of adjacent addresses."""
        extra = self.active_share * self.wavefronts - wavefronts_of(self.access_bytes)
        return max(extra, 0.0) * (self.instructions or 0)

    @property
    def uncounted_wavefronts(self) -> float:
        """Cycles of the L1's data path beyond those of adjacent addresses in all lanes; negative if masks save more."""
        of_all_lanes = wavefronts_of(self.access_bytes) if self.wavefronts else 1  # of a copy to shared memory
        return (self.active_share * (self.wavefronts or of_all_lanes) - of_all_lanes) * (self.instructions or 0)

    @property
    def extra_sectors(self) -> float:
        """Sectors that all instructions touch beyond those of adjacent addresses."""
        return (self.sectors - self.adjacent_sectors) * self.requests

    @property
    def text(self) -> str:
        """Sentence such as *each load of 'x' at f.py:3 touches 16.0 sectors of 32 bytes, where …*."""
        touched = f"{self.lines:.1f} lines of {LINE_BYTES} bytes, where {self.adjacent_lines:.0f} would do"
        if self.sectors >= MIN_UNCOALESCED * self.adjacent_sectors:
            touched = sectors_text(self.sectors, self.adjacent_sectors)
        return f"each {self.kind} {self.place or 'of a warp'} touches {touched}"


def sectors_text(sectors: float, adjacent_sectors: float) -> str:
    """Return the number of sectors of a request, and how many would do, as text."""
    return f"{sectors:.1f} sectors of {SECTOR_BYTES} bytes, where {adjacent_sectors:.0f} would do"


def worst_of(requests: Sequence[Requests]) -> Requests | None:
    """Return the uncoalesced access that needs most cycles or sectors for it."""
    found = [one for one in requests if one.is_uncoalesced]
    return max(found, key=lambda one: (one.extra_wavefronts, one.extra_sectors), default=None)


def is_spread(requests: Sequence[Requests]) -> bool:
    """Return True if requests together touch many more sectors than adjacent addresses would."""
    whole = sum(one.sectors * one.requests for one in requests)
    return whole >= MIN_UNCOALESCED * sum(one.adjacent_sectors * one.requests for one in requests) > 0


@lru_cache(maxsize=2 * KERNELS_CACHED)  # with masks as they are, and with unknown ones open
def requests_of(ran: ExecutedKernel, code: MachineFunction | None) -> tuple[Requests, ...]:
    """Return the requests of each operation whose addresses are known, in the order of the text."""
    widths = access_widths(code) if code else {}
    warps = int(ran.module.attribute("ttg.num-warps") or 1).bit_length() - 1
    found = (_requests(one, ran.module, warps, widths) for one in ran.operations)
    return tuple(one for one in found if one is not None)


def access_widths(code: MachineFunction) -> dict[tuple[int, str], int]:
    """Return the bytes of a lane that most instructions access, by the line and the kind of access."""
    found: defaultdict[tuple[int, str], Counter[int]] = defaultdict(Counter)
    for one in code.instructions:
        if access := global_access(one):
            found[one.line, access[0]][access[1]] += 1
    return {key: counts.most_common(1)[0][0] for key, counts in found.items()}


@if_misfit(None)
def _requests(
    one: CountedOperation, module: Module, warps: int, widths: Mapping[tuple[int, str], int]
) -> Requests | None:
    kind, access = _KINDS.get(one.operation.name), one.access
    if kind is None or access is None or access.address is None or access.mask is None or access.mask.is_lower_bound:
        return None
    layout: LinearLayout | None = LinearLayout((), ((),) * _LANE_BITS, ((),) * warps)
    if access.shape:  # otherwise, all threads have the same scalar
        pointers = next((printed for printed in types_of(one.operation) if printed.shape == access.shape), None)
        layout = linear_layout(pointers, module.aliases) if pointers else None
    if layout is None or len(layout.lanes) != _LANE_BITS:
        return None
    repeating = sum(not any(basis) for basis in layout.warps)
    distinct = replace(layout, warps=tuple(basis for basis in layout.warps if any(basis)))
    access_bytes = widths.get((one.line, kind)) or _widest_bytes(one, access, distinct)
    elements = max(access_bytes // access.element_bytes, 1)
    address, active = _lanes_of(one, access, distinct, elements, 1)
    # The first elements' addresses, ascending, of each instruction whose mask enables any lane.
    starts = np.sort(np.where(active[:, 0], address[:, 0], _NOWHERE), axis=1)
    starts = starts[starts[:, 0] < _NOWHERE]
    if not starts.size:
        return None
    # A lane's access is aligned, so it touches one sector.
    used_bytes = access_bytes * _distinct(starts // access_bytes)
    is_bypassing = one.operation.name == _COPY and access_bytes >= _BYPASS_BYTES
    instructions = max((1 << len(layout.registers)) // elements, 1) << len(layout.warps)
    found = Requests(
        line=one.line,
        kind=kind,
        access_bytes=access_bytes,
        instructions=None if one.times is None else one.times * instructions,
        # Of warps that have the same elements, all load them, and one writes or copies them.
        active_share=len(starts) / len(active) / (1 if one.operation.name == "tt.load" else 1 << repeating),
        sectors=float(_distinct(starts // SECTOR_BYTES).mean()),
        adjacent_sectors=float(np.ceil(used_bytes / SECTOR_BYTES).mean()),
        lines=float(_distinct(starts // LINE_BYTES).mean()),
        adjacent_lines=float(np.ceil(used_bytes / LINE_BYTES).mean()),
        wavefronts=0.0 if is_bypassing else _wavefronts(starts, access_bytes),
    )
    source = LocationTable(module).source_line(one.operation) if found.is_uncoalesced else ""
    variable = next(map(variable_in, result_names(one.operation)), "")
    place = f"of {variable!r} at {source}" if variable else f"at {source}"
    return replace(found, place=place) if source else found


def _widest_bytes(one: CountedOperation, access: Access, layout: LinearLayout) -> int:
    """Return the number of adjacent bytes that a thread can access at once."""
    widest = min(MAX_ACCESS_BITS // 8, access.element_bytes << len(layout.registers))
    while widest > access.element_bytes:
        elements = widest // access.element_bytes
        address, active = _lanes_of(one, access, layout, elements, elements)
        offsets = np.arange(elements)[:, None] * access.element_bytes
        is_adjacent = (address == address[:, :1] + offsets).all() and not (address[:, :1] % widest).any()
        if is_adjacent and (active == active[:, :1]).all():
            break
        widest //= 2
    return widest


def _lanes_of(
    one: CountedOperation, access: Access, layout: LinearLayout, elements: int, first: int
) -> tuple[_Numbers, _Bits]:
    """Return addresses and mask by sampled instruction, then the ``first`` of a lane's ``elements``, then lane."""
    address, mask, when = access.address, access.mask, one.executed.when
    assert address is not None and mask is not None and when is not None
    sizes, parts = one.executed.sizes, (*address.parts, *mask.parts, *when.parts)
    axes = sorted({axis for part in parts for axis in part.axes} & sizes.keys())
    inside = min(elements.bit_length() - 1, len(layout.registers))
    of_elements, of_instructions = layout.registers[:inside], (*layout.registers[inside:], *layout.warps)
    executions, instructions = prod(sizes[axis] for axis in axes), 1 << len(of_instructions)
    count, whole = _MAX_REQUESTS // first, executions * instructions
    if whole <= count:
        execution, instruction = np.divmod(np.arange(whole), instructions)
    else:
        shares = [np.arange(count) * step % 1 for step in _STEPS]
        execution, instruction = (shares[0] * executions).astype(np.int64), (shares[1] * instructions).astype(np.int64)
    places = np.unravel_index(execution, [sizes[axis] for axis in axes]) if axes else ()
    at = dict(zip(axes, places, strict=True))
    happens = np.broadcast_to(_all(when.parts, at), execution.shape)
    at = {axis: place[happens][:, None, None] for axis, place in at.items()}
    for dim in range(len(access.shape)):
        at[dimension(dim)] = (
            _sums(of_instructions, instruction[happens], dim)[:, None, None]
            ^ _sums(of_elements, np.arange(first), dim)[:, None]
            ^ _sums(layout.lanes, np.arange(_LANES), dim)
        )
    shape = (int(happens.sum()), first, _LANES)
    addresses = sum((_values(part, at) for part in address.parts), np.zeros(shape, np.int64))
    return addresses, np.broadcast_to(_all(mask.parts, at), shape)


def _values(part: AxisArray, at: Mapping[GridAxis, _Numbers]) -> NDArray[Any]:
    nowhere = np.zeros(1, np.int64)
    return np.asarray(part.values[tuple(at[axis] if size > 1 else nowhere for axis, size in part.sizes.items())])


def _all(conditions: Sequence[AxisArray], at: Mapping[GridAxis, _Numbers]) -> _Bits:
    return reduce(np.logical_and, (_values(part, at) for part in conditions), np.ones(1, bool))


def _sums(bases: Sequence[Basis], numbers: _Numbers, dim: int) -> _Numbers:
    """Return the coordinate along a dimension that each number's bits add."""
    found = np.zeros_like(numbers)
    for bit, basis in enumerate(bases):
        found ^= (numbers >> bit & 1) * basis[dim]
    return found


def _wavefronts(starts: _Numbers, access_bytes: int) -> float:
    """Return the mean of the cycles that the banks need: as for shared memory, each gives one word of 4 bytes in one.

    On an H100, no launch with known instructions took fewer cycles.
    """
    slot_bytes = max(access_bytes, _WORD_BYTES)
    slots, banks = starts // slot_bytes, LINE_BYTES // slot_bytes
    bank = np.arange(len(slots))[:, None] * banks + slots % banks
    counts = np.bincount(bank[_is_first(slots)], minlength=len(slots) * banks)
    return float(counts.reshape(-1, banks).max(axis=1).mean())


def _is_first(ascending: _Numbers) -> _Bits:
    """Return where a row has a new place; disabled lanes come last, and have none."""
    return np.asarray((np.diff(ascending, axis=1, prepend=-1) != 0) & (ascending < _NOWHERE // LINE_BYTES))


def _distinct(ascending: _Numbers) -> _Numbers:
    return np.asarray(_is_first(ascending).sum(axis=1))
