"""How often the banks of shared memory take turns for an access, as the layouts on both sides tell.

NVIDIA's shared memory gives each of its 32 banks one word of 4 bytes in a cycle (CUDA C++ Programming Guide, "Shared
Memory"). So an instruction of a warp takes at least as many cycles as the words that it wants of one bank, whatever the
order. Layouts are as ``TritonGPUAttrDefs.td`` describes them; Triton's own count (Gluon's ``bank_conflicts``) judges
this one in the tests.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import prod

import numpy as np
from numpy.typing import NDArray

from kprof_inject.analysis.structure.tensor_layouts import MOST_ACCESS_BITS, Blocked, blocked_of, layout_of
from kprof_inject.ttgir.misfits import if_misfit
from kprof_inject.ttgir.nodes import Operation
from kprof_inject.ttgir.types import PrintedType, types_of

_Offsets = NDArray[np.int64]

BANKS = 32
_WORD_BYTES = 4
_LANES = 32
_CYCLE_BYTES = BANKS * _WORD_BYTES
# Of a larger tensor, nobody asks.
_MAX_ELEMENTS = 1 << 18

_ALLOCATED = re.compile(r", (\d+(?:x\d+)+)$")

# Of an operation's types, that of the tensor that threads have, or of pointers to its elements, and that of the memory.
SIDES: dict[str, tuple[int, int]] = {
    "ttg.local_load": (-1, 0),
    "ttg.local_store": (0, 1),
    "ttg.local_alloc": (0, -1),
    "ttg.async_copy_global_to_local": (0, 1),
}


@if_misfit(0)
def conflict_cycles(operation: Operation, aliases: Mapping[str, str]) -> int:
    """How many cycles more than its bytes need shared memory takes for an access by all warps of a CTA: accesses of a
    warp want words of the same bank, or are narrower than the banks. 0 where that does not show: of layouts for other
    warps than NVIDIA's, or of tensor cores, whose data may move as matrices."""
    types = types_of(operation)
    if operation.name not in SIDES or len(types) < 2:
        return 0
    threads, memory = (types[place] for place in SIDES[operation.name])
    blocked = blocked_of(layout_of(threads, aliases))
    if blocked is None or prod(blocked.lanes) != _LANES or memory.bits < 8 or memory.bits % 8:
        return 0
    if max(memory.elements, prod(blocked.elements) * _LANES * prod(blocked.warps)) > _MAX_ELEMENTS:
        return 0
    if (allocated := _ALLOCATED.search(memory.rest)) and not f"x{allocated[1]}".endswith(_sizes(memory)):
        return 0  # a part of something larger, whose rows are as long as that
    return _conflict_cycles(blocked, layout_of(memory, aliases), memory.shape, memory.bits // 8)


def _sizes(memory: PrintedType) -> str:
    return "".join(f"x{size}" for size in memory.shape)


@if_misfit(0)
def least_cycles(operation: Operation) -> int:
    """That the bytes of such an access need."""
    memory = types_of(operation)[SIDES[operation.name][1]]
    return _least_cycles(memory.shape, memory.bits // 8)


@if_misfit(False)
def turns_around(operation: Operation, aliases: Mapping[str, str]) -> bool:
    """Whether neighbours in the threads' tensor are none in memory, and the other way round."""
    types = types_of(operation)
    threads, memory = (types[place] for place in SIDES[operation.name])
    blocked = blocked_of(layout_of(threads, aliases))
    fastest = _fastest_dimension(layout_of(memory, aliases))
    return blocked is not None and fastest is not None and blocked.order[0] != fastest


@lru_cache(maxsize=256)  # a module's accesses come with each of its launches
def _conflict_cycles(blocked: Blocked, memory: str, shape: tuple[int, ...], element_bytes: int) -> int:
    if blocked.rank != len(shape) or _may_be_matrices(blocked, element_bytes):
        return 0
    offsets = _offsets(memory, shape, _coordinates(blocked, shape), element_bytes)
    if offsets is None:
        return 0
    return max(_cycles(_words(offsets, element_bytes)) - _least_cycles(shape, element_bytes), 0)


def _least_cycles(shape: Sequence[int], element_bytes: int) -> int:
    return -(-prod(shape) * element_bytes // _CYCLE_BYTES)


def _may_be_matrices(blocked: Blocked, element_bytes: int) -> bool:
    """Whether threads have two elements of 16 bits in a row, as instructions for whole matrices want them: PTX ISA,
    "ldmatrix"."""
    return element_bytes == 2 and blocked.elements[blocked.order[0]] == 2


def _coordinates(blocked: Blocked, shape: Sequence[int]) -> list[_Offsets]:
    """Of each dimension, by a thread's elements, lanes and warps."""
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


def _words(offsets: _Offsets, element_bytes: int) -> _Offsets:
    """Which words each instruction of a warp accesses: the elements that each thread has in a row, up to the widest
    access. None of those that only repeat another one's."""
    vector_bytes = MOST_ACCESS_BITS // 8
    while vector_bytes > element_bytes and not _is_in_rows(offsets, vector_bytes, element_bytes):
        vector_bytes //= 2
    starts = _starts(offsets, vector_bytes).transpose(0, 2, 1).reshape(-1, _LANES)
    parts = np.arange(0, max(vector_bytes, _WORD_BYTES), _WORD_BYTES)
    words = (np.unique(np.sort(starts), axis=0)[..., None] + parts) // _WORD_BYTES
    rows: _Offsets = np.sort(words.reshape(-1, _LANES * len(parts)))
    return rows


def _is_in_rows(offsets: _Offsets, vector_bytes: int, element_bytes: int) -> bool:
    """Whether the elements of each thread fill rows of as many bytes, the same elements in all threads."""
    first = np.unique(offsets[:, 0, 0])
    rows, counts = np.unique(first // vector_bytes, return_counts=True)
    fills = len(rows) * vector_bytes == len(first) * element_bytes and len({*counts.tolist()}) == 1
    return fills and not (_starts(offsets, vector_bytes) % vector_bytes).any()


def _starts(offsets: _Offsets, vector_bytes: int) -> _Offsets:
    """Of the rows, by threads: where the first thread's begin, so do all others'."""
    starts: _Offsets = offsets[offsets[:, 0, 0] % vector_bytes == 0]
    return starts


def _cycles(words: _Offsets) -> int:
    """At least, for rows of words in ascending order: those of an instruction each."""
    is_new = np.ones(words.shape, dtype=bool)
    is_new[:, 1:] = words[:, 1:] != words[:, :-1]
    bank = np.arange(len(words))[:, None] * BANKS + words % BANKS
    wanted = np.bincount(bank[is_new], minlength=len(words) * BANKS).reshape(-1, BANKS)
    return int(wanted.max(axis=1).sum())


def _offsets(memory: str, shape: Sequence[int], at: Sequence[_Offsets], element_bytes: int) -> _Offsets | None:
    """In bytes; None if the layout does not tell."""
    if memory.startswith("#ttg.swizzled_shared"):
        return _swizzled(memory, shape, at, element_bytes)
    return _of_matrices(memory, shape, at, element_bytes) if memory.startswith("#ttg.nvmma_shared") else None


_NUMBER = re.compile(r"\b(vec|perPhase|maxPhase|swizzlingByteWidth|elementBitWidth) = (\d+)")
_ORDER = re.compile(r"\border = \[(\d+(?:, \d+)*)\]")
_TRANSPOSED = "transposed = true"
_CHUNK_BYTES = 16
_WIDEST_BYTES = 128
_WIDTHS_BYTES = (32, 64, _WIDEST_BYTES)
# Split between CTAs, or with a layout of its own for 4 bits.
_OTHER = re.compile(r"\b(?:CTA|CGA)\w* = |fp4Padded = true")


def _fastest_dimension(memory: str) -> int | None:
    """Along which neighbours lie; None if the layout does not tell."""
    if memory.startswith("#ttg.nvmma_shared"):
        return 0 if _TRANSPOSED in memory else 1
    order = _ORDER.search(memory)
    return int(order[1].split(",")[0]) if order else None


def _swizzled(memory: str, shape: Sequence[int], at: Sequence[_Offsets], element_bytes: int) -> _Offsets | None:
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


def _of_matrices(memory: str, shape: Sequence[int], at: Sequence[_Offsets], element_bytes: int) -> _Offsets | None:
    """Rows of up to 128 bytes, whose chunks of 16 are exchanged from row to row: PTX ISA, "Shared Memory Matrix
    Layout". Wider tensors lie in pieces behind each other."""
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
