"""Bank conflicts of an access to shared memory, from the layouts on both sides.

NVIDIA's shared memory gives each of its 32 banks one word of 4 bytes in a cycle (CUDA C++ Programming Guide, "Shared
Memory"). So an instruction of a warp takes at least as many cycles as the words that it needs from one bank, in any
order. ``TritonGPUAttrDefs.td`` describes the layouts; the tests compare with Triton's own count (Gluon's
``bank_conflicts``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import prod

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from kprof_inject.analysis.structure.tensor_layouts import (
    MAX_ACCESS_BITS,
    Blocked,
    LinearLayout,
    blocked_of,
    is_of_tensor_cores,
    layout_of,
    linear_layout,
)
from kprof_inject.ttgir.nodes import Operation
from kprof_inject.ttgir.types import if_misfit, types_of

_Offsets = NDArray[np.int64]

BANKS = 32
_WORD_BYTES = 4
_LANES, _LANE_BITS = 32, 5
_MATRIX_ROWS = 8
_CYCLE_BYTES = BANKS * _WORD_BYTES
# Larger tensors are not evaluated, to bound time and memory.
_MAX_ELEMENTS = 1 << 18

_ALLOCATED = re.compile(r", (\d+(?:x\d+)+)$")

# Places among an operation's types: the tensor of the threads, or of pointers to its elements, and the memory.
SIDES: dict[str, tuple[int, int]] = {
    "ttg.local_load": (-1, 0),
    "ttg.local_store": (0, 1),
    "ttg.local_alloc": (0, -1),
    "ttg.async_copy_global_to_local": (0, 1),
}


class SharedCycles(Struct, frozen=True):
    """Cycles for which an access by all warps of a CTA occupies shared memory; without conflicts, it takes ``least``.

    Warps that access the same elements count each.
    """

    cycles: int
    least: int


def conflict_cycles(operation: Operation, aliases: Mapping[str, str]) -> int:
    """Return the cycles that an access by all warps of a CTA takes beyond those that its bytes need.

    Accesses of a warp conflict if they need words of the same bank, or are narrower than the banks. 0 where the layouts
    do not show it: those for warps other than NVIDIA's, and those of tensor cores, whose data may move as matrices.
    """
    found = shared_cycles(operation, aliases)
    return found.cycles - found.least if found else 0


@if_misfit(None)
def shared_cycles(operation: Operation, aliases: Mapping[str, str]) -> SharedCycles | None:
    """Return how long an access occupies shared memory: a lower bound, as the order of accesses does not count.

    None if the layouts do not show it.
    """
    types = types_of(operation)
    if operation.name not in SIDES or len(types) < 2:
        return None
    threads, memory = (types[place] for place in SIDES[operation.name])
    if memory.bits < 8 or memory.bits % 8:
        return None
    sizes = "".join(f"x{size}" for size in memory.shape)
    if (allocated := _ALLOCATED.search(memory.rest)) and not f"x{allocated[1]}".endswith(sizes):
        return None  # a part of a larger allocation, which has longer rows
    memory_layout, element_bytes = layout_of(memory, aliases), memory.bits // 8
    blocked = blocked_of(layout_of(threads, aliases))
    if blocked is not None:
        elements = prod(blocked.elements) * _LANES * prod(blocked.warps)
        if prod(blocked.lanes) != _LANES or max(memory.elements, elements) > _MAX_ELEMENTS:
            return None
        return _of_blocked(blocked, memory_layout, memory.shape, element_bytes)
    layout = linear_layout(threads, aliases)
    if layout is None or len(layout.lanes) != _LANE_BITS or layout.size > _MAX_ELEMENTS:
        return None
    is_of_matrices = is_of_tensor_cores(layout_of(threads, aliases), aliases)
    return _of_linear(layout, memory_layout, memory.shape, element_bytes, is_of_matrices)


@if_misfit(0)
def min_cycles(operation: Operation) -> int:
    """Return the cycles that the bytes of such an access need."""
    memory = types_of(operation)[SIDES[operation.name][1]]
    return _min_cycles(memory.shape, memory.bits // 8)


@if_misfit(False)
def is_transposed(operation: Operation, aliases: Mapping[str, str]) -> bool:
    """Return True if neighbours in the threads' tensor are not neighbours in memory, and vice versa."""
    types = types_of(operation)
    threads, memory = (types[place] for place in SIDES[operation.name])
    blocked = blocked_of(layout_of(threads, aliases))
    fastest = _fastest_dimension(layout_of(memory, aliases))
    return blocked is not None and fastest is not None and blocked.order[0] != fastest


@lru_cache(maxsize=256)  # a module's accesses come with each of its launches
def _of_blocked(blocked: Blocked, memory: str, shape: tuple[int, ...], element_bytes: int) -> SharedCycles | None:
    # Instructions for whole matrices need two elements of 16 bits in a row: PTX ISA, "ldmatrix".
    may_be_matrices = element_bytes == 2 and blocked.elements[blocked.order[0]] == 2
    if len(blocked.order) != len(shape) or may_be_matrices:
        return None
    offsets = _offsets(memory, shape, _coordinates(blocked, shape), element_bytes)
    if offsets is None:
        return None
    vector_bytes = _vector_bytes(offsets, element_bytes)
    # Instructions that only repeat another one's words are left out.
    starts = np.unique(np.sort(_starts(offsets, vector_bytes).transpose(0, 2, 1).reshape(-1, _LANES)), axis=0)
    least = _min_cycles(shape, element_bytes)
    return SharedCycles(max(_cycles(_words(starts, vector_bytes)), least), least)


@lru_cache(maxsize=256)
def _of_linear(
    layout: LinearLayout, memory: str, shape: tuple[int, ...], element_bytes: int, is_of_matrices: bool
) -> SharedCycles | None:
    """Return the cycles of an access; the fewest if it may be of whole matrices or of each thread's elements.

    Wide accesses are served by half-warps. So they are on an H100: of a dot of floats without tensor cores, Nsight
    Compute counted 2324 cycles for an iteration whose accesses of 16 bytes take 2368 by half-warps, 1344 by whole ones,
    and 2624 by quarters.
    """
    parts = (layout.registers, layout.lanes, layout.warps)
    registers, lanes, warps = (_combined(bases, len(shape)) for bases in parts)
    places = registers[:, None, None] ^ lanes[None, :, None] ^ warps[None, None]
    offsets = _offsets(memory, shape, [places[..., dim] for dim in range(len(shape))], element_bytes)
    if offsets is None:
        return None
    cycles = least = 0
    for warp in range(offsets.shape[2]):
        own = offsets[:, :, [warp]]
        vector_bytes = _vector_bytes(own, element_bytes)
        served_lanes = _LANES // 2 if vector_bytes > _WORD_BYTES else _LANES
        words = _words(_starts(own, vector_bytes).reshape(-1, served_lanes), vector_bytes)
        distinct = 1 + (words[:, 1:] != words[:, :-1]).sum(axis=1)
        cycles += _cycles(words)
        least += int((-(-distinct // BANKS)).sum())
    found = SharedCycles(cycles, least)
    fastest = _fastest_dimension(memory)
    # Only elements of 16 bits can be transposed.
    if not is_of_matrices or fastest is None or not (element_bytes == 2 or layout.lanes[0][fastest]):
        return found
    matrices = _of_matrices(memory, shape, element_bytes)
    if matrices is None:
        return found
    repeats = 1 << sum(not any(basis) for basis in layout.warps)
    moved = SharedCycles(repeats * matrices.cycles, repeats * matrices.least)
    return min(moved, found, key=lambda one: one.cycles)


def _of_matrices(memory: str, shape: tuple[int, ...], element_bytes: int) -> SharedCycles | None:
    """Return the cycles in which a tensor moves as matrices of eight rows of 16 bytes; None if it has no such matrices.

    Source: PTX ISA, "ldmatrix".
    """
    fastest, columns = _fastest_dimension(memory), _CHUNK_BYTES // element_bytes
    if fastest is None or len(shape) != 2 or shape[fastest] % columns or shape[1 - fastest] % _MATRIX_ROWS:
        return None
    row, column = np.ogrid[: shape[1 - fastest], : shape[fastest] : columns]
    offsets = _offsets(memory, shape, [row, column] if fastest else [column, row], element_bytes)
    if offsets is None:
        return None
    groups = offsets.reshape(-1, _MATRIX_ROWS, offsets.shape[1]) // _CHUNK_BYTES % _MATRIX_ROWS
    wanted = (groups[..., None] == np.arange(_MATRIX_ROWS)).sum(axis=1)
    return SharedCycles(int(wanted.max(axis=2).sum()), groups.shape[0] * groups.shape[2])


def _combined(bases: Sequence[Sequence[int]], rank: int) -> _Offsets:
    found = np.zeros((1, rank), np.int64)
    for basis in bases:
        found = np.concatenate([found, found ^ np.array(basis, np.int64)])
    return found


def _min_cycles(shape: Sequence[int], element_bytes: int) -> int:
    return -(-prod(shape) * element_bytes // _CYCLE_BYTES)


def _coordinates(blocked: Blocked, shape: Sequence[int]) -> list[_Offsets]:
    found = []
    for dim, size in enumerate(shape):
        elements, lanes, warps = blocked.elements[dim], blocked.lanes[dim], blocked.warps[dim]
        tiles = -(-size // (elements * lanes * warps))
        grid = np.ogrid[:tiles, :warps, :lanes, :elements]
        place = ((grid[0] * warps + grid[1]) * lanes + grid[2]) * elements + grid[3]
        axes = [1] * (3 * len(shape))
        axes[dim], axes[len(shape) + dim], axes[2 * len(shape) + dim] = tiles * elements, lanes, warps
        found.append(place.transpose(0, 3, 2, 1).reshape(axes) % size)
    whole = np.broadcast_shapes(*(one.shape for one in found))
    return [np.broadcast_to(one, whole).reshape(-1, _LANES, prod(blocked.warps)) for one in found]


def _words(starts: _Offsets, vector_bytes: int) -> _Offsets:
    """Return the words that each instruction accesses, in ascending order; ``starts`` has a row for each."""
    words = (starts[..., None] + np.arange(0, max(vector_bytes, _WORD_BYTES), _WORD_BYTES)) // _WORD_BYTES
    rows: _Offsets = np.sort(words.reshape(len(words), -1))
    return rows


def _vector_bytes(offsets: _Offsets, element_bytes: int) -> int:
    """Return the size of an access: of the elements that each thread has in a row, up to the widest access."""
    first = np.unique(offsets[:, 0, 0])
    vector_bytes = MAX_ACCESS_BITS // 8
    while vector_bytes > element_bytes:
        # The elements of each thread fill rows of this many bytes, the same elements in all threads.
        rows, counts = np.unique(first // vector_bytes, return_counts=True)
        is_filled = len(rows) * vector_bytes == len(first) * element_bytes and len({*counts.tolist()}) == 1
        if is_filled and not (_starts(offsets, vector_bytes) % vector_bytes).any():
            break
        vector_bytes //= 2
    return vector_bytes


def _starts(offsets: _Offsets, vector_bytes: int) -> _Offsets:
    """Return the offsets of the rows, by threads: rows of all threads begin where those of the first do."""
    starts: _Offsets = offsets[offsets[:, 0, 0] % vector_bytes == 0]
    return starts


def _cycles(words: _Offsets) -> int:
    """Return a lower bound of the cycles for rows of words in ascending order, one row for each instruction."""
    is_new = np.ones(words.shape, dtype=bool)
    is_new[:, 1:] = words[:, 1:] != words[:, :-1]
    bank = np.arange(len(words))[:, None] * BANKS + words % BANKS
    wanted = np.bincount(bank[is_new], minlength=len(words) * BANKS).reshape(-1, BANKS)
    return int(wanted.max(axis=1).sum())


def _offsets(memory: str, shape: Sequence[int], at: Sequence[_Offsets], element_bytes: int) -> _Offsets | None:
    if memory.startswith("#ttg.swizzled_shared"):
        return _swizzled_offsets(memory, shape, at, element_bytes)
    return _matrix_offsets(memory, shape, at, element_bytes) if memory.startswith("#ttg.nvmma_shared") else None


_NUMBER = re.compile(r"\b(vec|perPhase|maxPhase|swizzlingByteWidth|elementBitWidth) = (\d+)")
_ORDER = re.compile(r"\border = \[(\d+(?:, \d+)*)\]")
_TRANSPOSED = "transposed = true"
_CHUNK_BYTES = 16
_WIDEST_BYTES = 128
_WIDTHS_BYTES = (32, 64, _WIDEST_BYTES)
# Layouts that are split between CTAs, or special ones for 4 bits.
_OTHER = re.compile(r"\b(?:CTA|CGA)\w* = |fp4Padded = true")


def _fastest_dimension(memory: str) -> int | None:
    if memory.startswith("#ttg.nvmma_shared"):
        return 0 if _TRANSPOSED in memory else 1
    order = _ORDER.search(memory)
    return int(order[1].split(",")[0]) if order else None


def _swizzled_offsets(memory: str, shape: Sequence[int], at: Sequence[_Offsets], element_bytes: int) -> _Offsets | None:
    numbers, order = {name: int(number) for name, number in _NUMBER.findall(memory)}, _ORDER.search(memory)
    if order is None or _OTHER.search(memory) or not all(numbers.get(name) for name in ("vec", "perPhase", "maxPhase")):
        return None
    dims = [int(dim) for dim in order[1].split(",")]
    if sorted(dims) != list(range(len(shape))) or not all(0 < number <= _MAX_ELEMENTS for number in numbers.values()):
        return None
    column = at[dims[0]]
    if len(dims) > 1:
        phase = at[dims[1]] // numbers["perPhase"] % numbers["maxPhase"]
        column = ((column // numbers["vec"]) ^ phase) * numbers["vec"] + column % numbers["vec"]
    stride, place = shape[dims[0]], column
    for dim in dims[1:]:
        place = place + stride * at[dim]
        stride *= shape[dim]
    return place * element_bytes


def _matrix_offsets(memory: str, shape: Sequence[int], at: Sequence[_Offsets], element_bytes: int) -> _Offsets | None:
    """Return the offsets in rows of up to 128 bytes, whose chunks of 16 bytes are permuted from row to row.

    Source: PTX ISA, "Shared Memory Matrix Layout". Wider tensors consist of pieces, one after the other.
    """
    width_bytes = next((int(number) for name, number in _NUMBER.findall(memory) if name == "swizzlingByteWidth"), 0)
    if len(shape) != 2 or width_bytes not in _WIDTHS_BYTES or _OTHER.search(memory):
        return None
    (row, rows), (column, columns) = zip(at, shape, strict=True)
    if _TRANSPOSED in memory:
        (row, rows), (column, columns) = (column, columns), (row, rows)
    if columns * element_bytes < width_bytes:
        return None
    byte = column * element_bytes
    phase = row // (_WIDEST_BYTES // width_bytes) % (width_bytes // _CHUNK_BYTES)
    within = ((byte % width_bytes // _CHUNK_BYTES) ^ phase) * _CHUNK_BYTES + byte % _CHUNK_BYTES
    offsets: _Offsets = byte // width_bytes * (rows * width_bytes) + row * width_bytes + within
    return offsets
