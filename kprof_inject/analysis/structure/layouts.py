"""Layouts of tensors and of shared memory: which thread has which element, and what an access to it takes.

Layout attributes are as Triton prints them (``TritonGPUAttrDefs.td``). The tests compare with Triton's own conversion
to linear layouts and, for bank conflicts, with its own count (Gluon's ``bank_conflicts``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from math import prod

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from kprof_inject.ttgir.nodes import Operation
from kprof_inject.ttgir.types import PrintedType, bits_of, closing_bracket, if_misfit, types_of

MAX_ACCESS_BITS = 128
"""The widest access of one thread: PTX ISA, "ld.global" with ``.v4.b32``; AMD CDNA3 ISA, ``global_load_dwordx4``."""

_MAX_TENSOR = 1 << 20  # elements: TRITON_MAX_TENSOR_NUMEL in triton/language/core.py

_ALIAS = re.compile(r"#[\w$.-]+")
_SLICE = re.compile(r"#ttg\.slice<\{dim = (\d+), parent = (.*)\}>")
_OPERAND = re.compile(r"#ttg\.dot_op<\{opIdx = ([01]), parent = (.*?)(?:, kWidth = (\d+))?\}>$")
_NUMBERS = re.compile(r"\b(\w+) = \[(-?\d+(?:, -?\d+)*)\]")
_SPLIT = re.compile(r"\b(?:CTA|CGA)\w* = ")  # between the CTAs of a cluster
_MAJOR = re.compile(r"\bversion(?:Major)? = (\d+)")
_AMD_TRANSPOSED = re.compile(r"\bisTransposed? = true")
_LINEAR = re.compile(r"(register|lane|warp) = \[((?:\[[^\]]*\](?:, )?)*)\]")
_BASIS = re.compile(r"\[(-?\d+(?:, -?\d+)*)\]")

_MATRIX_ROWS, _MATRIX_COLUMNS = 16, 8  # of a result of one instruction of a warp, without repeats
_WARP_GROUPS = 3  # the major version of the instructions of four warps
_WARPS_IN_GROUP = 4


def layout_of(printed: PrintedType, aliases: Mapping[str, str]) -> str:
    """Return the layout attribute of a tensor, with its alias resolved; empty if it was printed without one."""
    found = _ALIAS.search(printed.rest)
    if not found:
        return ""
    if found[0] in aliases:
        return aliases[found[0]]
    end = found.end()
    has_body = printed.rest.startswith("<", end)
    return printed.rest[found.start() : closing_bracket(printed.rest, end + 1) + 1 if has_body else end]


def _numbers_of(layout: str) -> dict[str, tuple[int, ...]]:
    return {name: tuple(map(int, numbers.split(","))) for name, numbers in _NUMBERS.findall(layout)}


def _sliced(layout: str, aliases: Mapping[str, str]) -> tuple[int, str] | None:
    """Return the dimension that a slice lacks, and the layout that it is a slice of."""
    found = _SLICE.match(layout)
    return (int(found[1]), aliases.get(found[2], found[2])) if found else None


_TILES = {"register": "sizePerThread", "lane": "threadsPerWarp", "warp": "warpsPerCTA"}


def _blocked_of(layout: str) -> dict[str, tuple[int, ...]] | None:
    """Return the numbers of a blocked layout; None for others, if split between CTAs, or if they describe no tiles."""
    numbers = _numbers_of(layout)
    order, counts = numbers.get("order", ()), [numbers.get(name, ()) for name in _TILES.values()]
    has_rank = {*map(len, counts)} == {len(order)} and sorted(order) == list(range(len(order)))
    sizes = [size for part in counts for size in part]
    is_of_tiles = has_rank and min(sizes, default=0) > 0 and prod(sizes) <= _MAX_TENSOR
    return numbers if is_of_tiles and layout.startswith("#ttg.blocked") and not _SPLIT.search(layout) else None


@if_misfit(None)
def access_bits(printed: PrintedType, aliases: Mapping[str, str]) -> int | None:
    """Return the number of bits of global memory that a thread accesses at once, unless addresses allow less."""
    layout, rank = layout_of(printed, aliases), len(printed.shape)
    if layout.startswith("#ttg.linear"):
        registers, runs = _printed_bases(layout, rank).registers, []
        for dim in range(rank):
            # A thread has neighbours along a dimension if its bases are 1, 2, 4 and so on.
            along = {basis[dim] for basis in registers if not any(basis[:dim] + basis[dim + 1 :])}
            runs.append(next(1 << bit for bit in range(len(along) + 1) if 1 << bit not in along))
        elements = max(runs)
    else:
        without, parent = _sliced(layout, aliases) or (None, layout)
        if not parent.startswith("#ttg.blocked"):
            return None
        numbers = _numbers_of(parent)
        order = [dim for dim in numbers["order"] if dim != without]
        elements = numbers["sizePerThread"][order[0]]
    return min(elements * bits_of(printed.pointee), MAX_ACCESS_BITS) or None


@if_misfit(None)
def lanes_dimension(printed: PrintedType, aliases: Mapping[str, str]) -> int | None:
    """Return the dimension along which neighbouring threads of a warp access a tensor of two or more dimensions."""
    layout = layout_of(printed, aliases)
    if sum(size > 1 for size in printed.shape) < 2:
        return None
    if layout.startswith("#ttg.linear"):
        first = _printed_bases(layout, len(printed.shape)).lanes[0]
        return next((dim for dim, number in enumerate(first) if number), None)
    if not layout.startswith("#ttg.blocked"):
        return None
    numbers = _numbers_of(layout)
    return next((dim for dim in numbers["order"] if numbers["threadsPerWarp"][dim] > 1), None)


_AMD_LANES = {"#ttg.amd_mfma": 64, "#ttg.amd_wmma": 32}


@if_misfit(None)
def lanes_and_warps_along(printed: PrintedType, dim: int, aliases: Mapping[str, str]) -> tuple[int, int] | None:
    """Return the numbers of lanes of a warp, and of warps, whose elements differ only along a dimension."""
    size, layout = printed.shape[dim], layout_of(printed, aliases)
    if linear := linear_layout(printed, aliases):
        lanes, warps = (1 << sum(0 < basis[dim] < size for basis in bases) for bases in (linear.lanes, linear.warps))
        return lanes, warps
    if sliced := _sliced(layout, aliases):
        layout, dim = sliced[1], dim + (dim >= sliced[0])
    threads, numbers = _AMD_LANES[layout.partition("<")[0]], _numbers_of(layout)
    # AMD Matrix Instruction Calculator: a lane for each column, or row if transposed; groups of four elements.
    columns = numbers.get("instrShape", (_MATRIX_ROWS,))[0]
    elements, lanes = (1, columns) if dim == (_AMD_TRANSPOSED.search(layout) is None) else (4, threads // columns)
    lanes = min(lanes, max(size // elements, 1))
    return lanes, min(numbers["warpsPerCTA"][dim], max(size // (elements * lanes), 1))


def dot_instruction(layout: str) -> str:
    """Return the instruction of a dot with this result, such as ``wgmma m64n128k16``; ``fma`` without tensor cores."""
    kind, shape = layout.partition("<")[0].removeprefix("#ttg."), _numbers_of(layout).get("instrShape", ())
    if kind in ("blocked", "linear"):
        return "fma"
    if kind in ("amd_mfma", "amd_wmma"):
        return f"{kind.removeprefix('amd_')} {'x'.join(map(str, shape))}".strip()
    if kind != "nvidia_mma":
        return ""
    if (major := _MAJOR.search(layout)) and int(major[1]) == _WARP_GROUPS:
        kind, shape = "wgmma", (*(_WARPS_IN_GROUP * rows for rows in shape[:1]), *shape[1:])
    sizes = "".join(f"{letter}{size}" for letter, size in zip("mnk", shape, strict=False))
    return f"{kind.removeprefix('nvidia_')} {sizes}".strip()


Basis = tuple[int, ...]


class LinearLayout(Struct, frozen=True):
    """A layout by the element that each bit of a register's, lane's and warp's number adds, the lowest bit first.

    The coordinates of an element are the exclusive or of those of all bits that are set. A basis of zeros repeats
    elements.
    """

    registers: tuple[Basis, ...]
    lanes: tuple[Basis, ...]
    warps: tuple[Basis, ...]

    @property
    def size(self) -> int:
        """Number of elements of all threads; repeated ones count each time."""
        return 1 << len(self.registers) + len(self.lanes) + len(self.warps)

    def changed(self, change: Callable[[Basis], Basis]) -> LinearLayout:
        """Return the layout with each of its bases changed."""
        return LinearLayout(*(tuple(map(change, bases)) for bases in (self.registers, self.lanes, self.warps)))


@if_misfit(None)
def linear_layout(printed: PrintedType, aliases: Mapping[str, str]) -> LinearLayout | None:
    """Return the layout of a tensor, unless it is split between CTAs.

    Known are blocked and linear layouts, those of results of tensor cores before sm_100, and slices of these.
    """
    found = _with_repeats(layout_of(printed, aliases), printed.shape, aliases)
    # A thread accesses an element once, whatever registers repeat it.
    return LinearLayout(tuple(filter(any, found.registers)), found.lanes, found.warps) if found else None


def _with_repeats(layout: str, shape: tuple[int, ...], aliases: Mapping[str, str]) -> LinearLayout | None:
    if sliced := _sliced(layout, aliases):
        dim, parent = sliced
        whole = _with_repeats(parent, (*shape[:dim], 1, *shape[dim:]), aliases)
        return whole.changed(lambda basis: basis[:dim] + basis[dim + 1 :]) if whole else None
    if layout.startswith("#ttg.linear"):
        return _printed_bases(layout, len(shape))
    if operand := _OPERAND.match(layout):
        steps = _operand_steps(int(operand[1]), aliases.get(operand[2], operand[2]), int(operand[3] or 0), shape)
    else:
        steps = _steps(layout, len(shape))
    return _composed(steps, shape) if steps else None


def _printed_bases(layout: str, rank: int) -> LinearLayout:
    found: dict[str, tuple[Basis, ...]] = {}
    for name, text in _LINEAR.findall(layout):
        found[name] = tuple(tuple(map(int, basis.split(","))) for basis in _BASIS.findall(text))
    if any(len(basis) != rank for bases in found.values() for basis in bases):
        raise ValueError(layout)
    return LinearLayout(*(found.get(name, ()) for name in _TILES))


# A part of the thread's number that repeats a tile along a dimension: its name, the dimension, and how often. Without a
# dimension, it has the same elements again. Without a number, the tile then has the size of the tensor.
_Step = tuple[str, int | None, int | None]


def _composed(steps: Sequence[_Step], shape: Sequence[int]) -> LinearLayout:
    bases: dict[str, list[Basis]] = {"register": [], "lane": [], "warp": []}
    size = [1] * len(shape)
    for part, dim, count in steps:
        if dim is None:
            bases[part] += [(0,) * len(shape)] * ((count or 1).bit_length() - 1)
            continue
        count = max(shape[dim] // size[dim], 1) if count is None else count
        for bit in range(count.bit_length() - 1):
            bases[part].append(tuple(size[dim] << bit if one == dim else 0 for one in range(len(shape))))
        size[dim] *= count
    found = LinearLayout(*map(tuple, bases.values()))
    # A tile that is larger than the tensor has its elements several times.
    return found.changed(lambda basis: basis if all(map(int.__lt__, basis, shape)) else (0,) * len(shape))


def _steps(layout: str, rank: int) -> list[_Step] | None:
    if blocked := _blocked_of(layout):
        order = blocked["order"]
        tile: list[_Step] = [(part, dim, blocked[name][dim]) for part, name in _TILES.items() for dim in order]
        return [*tile, *(("register", dim, None) for dim in order)] if len(order) == rank else None
    numbers, major = _numbers_of(layout), _MAJOR.search(layout)
    if not layout.startswith("#ttg.nvidia_mma") or _SPLIT.search(layout) or rank != 2:
        return None
    if major is None or int(major[1]) not in (2, _WARP_GROUPS):
        return None
    # PTX ISA, "Matrix Fragments for mma.m16n8k16", "Register Fragments" of wgmma.
    matrix: list[_Step] = [("register", 1, 2), ("lane", 1, 4), ("lane", 0, 8), ("register", 0, 2)]
    columns, warps = numbers["instrShape"][1] // _MATRIX_COLUMNS, numbers["warpsPerCTA"]
    tile = [*matrix, ("register", 1, columns), ("warp", 1, warps[1]), ("warp", 0, warps[0])]
    return [*tile, ("register", 1, None), ("register", 0, None)]


def _operand_steps(operand: int, parent: str, k_width: int, shape: Sequence[int]) -> list[_Step] | None:
    # Warps that compute the same rows, or columns, have the same elements of the operand.
    of_result, along_k = _steps(parent, 2), 1 - operand
    if of_result is None or len(shape) != 2:
        return None
    if _blocked_of(parent):
        # A thread has all elements along K; the first steps are those of its own elements.
        own: list[_Step] = [(part, dim, None if dim == along_k else count) for part, dim, count in of_result[:2]]
        return own + [(part, None if dim == along_k else dim, count) for part, dim, count in of_result[2:]]
    if not k_width or k_width & (k_width - 1):
        return None
    warps = [(part, None if dim == along_k else dim, count) for part, dim, count in of_result if part == "warp"]
    rows = _MATRIX_ROWS if operand == 0 else _MATRIX_COLUMNS
    matrix: list[_Step] = [("register", along_k, k_width), ("lane", along_k, 4), ("lane", operand, 8)]
    matrix += [("register", operand, rows // 8), ("register", along_k, 2)]
    return [*matrix, *warps, ("register", along_k, None), ("register", operand, None)]


_BANKS, _WORD_BYTES = 32, 4  # a word of each bank in a cycle: CUDA C++ Programming Guide, "Shared Memory"
_LANES, _LANE_BITS = 32, 5
_MAX_ELEMENTS = 1 << 18  # larger tensors are not evaluated, to bound time and memory

_ALLOCATED = re.compile(r", (\d+(?:x\d+)+)$")
_NUMBER = re.compile(r"\b(vec|perPhase|maxPhase|swizzlingByteWidth) = (\d+)")
_TRANSPOSED = "transposed = true"
_PADDED = "fp4Padded = true"  # a special layout for 4 bits
_CHUNK_BYTES, _WIDEST_BYTES = 16, 128

_Offsets = NDArray[np.int64]

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

    Accesses of a warp conflict if they need words of the same bank, or are narrower than the banks. 0 if unknown.
    """
    found = shared_cycles(operation, aliases)
    return found.cycles - found.least if found else 0


@if_misfit(None)
def shared_cycles(operation: Operation, aliases: Mapping[str, str]) -> SharedCycles | None:
    """Return the cycles for which an access occupies shared memory, at least: the order of accesses does not count.

    An instruction of a warp takes at least as many cycles as the words that it needs from one bank.
    """
    if operation.name not in SIDES or len(types_of(operation)) < 2:
        return None
    threads, memory = _sides_of(operation)
    sizes = "".join(f"x{size}" for size in memory.shape)
    allocated = _ALLOCATED.search(memory.rest)
    if memory.bits < 8 or memory.bits % 8 or (allocated and not f"x{allocated[1]}".endswith(sizes)):
        return None  # of less than a byte, or a part of a larger allocation, which has longer rows
    layout, of_threads = linear_layout(threads, aliases), layout_of(threads, aliases)
    if layout is None or len(layout.lanes) != _LANE_BITS or max(layout.size, memory.elements) > _MAX_ELEMENTS:
        return None
    operand = _OPERAND.match(of_threads)
    of_result = aliases.get(operand[2], operand[2]) if operand else of_threads
    kind = "tensor cores" if of_result.startswith("#ttg.nvidia_mma") else "other"
    if blocked := _blocked_of(of_threads):
        kind = "blocked"
        # Instructions for whole matrices need two elements of 16 bits in a row: PTX ISA, "ldmatrix".
        if memory.bits == 16 and blocked["sizePerThread"][blocked["order"][0]] == 2:
            return None
    return _cycles_of(layout, layout_of(memory, aliases), memory.shape, memory.bits // 8, kind)


@if_misfit(0)
def min_cycles(operation: Operation) -> int:
    """Return the cycles that the bytes of such an access need."""
    _, memory = _sides_of(operation)
    return _min_cycles(memory.shape, memory.bits // 8)


@if_misfit(False)
def is_transposed(operation: Operation, aliases: Mapping[str, str]) -> bool:
    """Return True if neighbours in the threads' tensor are not neighbours in memory, and vice versa."""
    threads, memory = (layout_of(one, aliases) for one in _sides_of(operation))
    blocked, fastest = _blocked_of(threads), _fastest_dimension(memory)
    return blocked is not None and fastest is not None and blocked["order"][0] != fastest


def _sides_of(operation: Operation) -> tuple[PrintedType, PrintedType]:
    types = types_of(operation)
    threads, memory = SIDES[operation.name]
    return types[threads], types[memory]


def _min_cycles(shape: Sequence[int], element_bytes: int) -> int:
    return -(-prod(shape) * element_bytes // (_BANKS * _WORD_BYTES))


def _vector_bytes(offsets: _Offsets, element_bytes: int) -> int:
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


def _served(starts: _Offsets, vector_bytes: int) -> SharedCycles:
    words = (starts[..., None] + np.arange(0, max(vector_bytes, _WORD_BYTES), _WORD_BYTES)) // _WORD_BYTES
    words = np.sort(words.reshape(len(words), -1))
    is_new = np.diff(words, prepend=-1) != 0
    bank = np.arange(len(words))[:, None] * _BANKS + words % _BANKS
    wanted = np.bincount(bank[is_new], minlength=len(words) * _BANKS).reshape(-1, _BANKS)
    return SharedCycles(int(wanted.max(axis=1).sum()), int((-(-wanted.sum(axis=1) // _BANKS)).sum()))


@lru_cache(maxsize=256)  # a module's accesses come with each of its launches
def _cycles_of(
    threads: LinearLayout, memory: str, shape: tuple[int, ...], element_bytes: int, kind: str
) -> SharedCycles | None:
    # ``kind`` is that of the threads' layout: ``blocked``, ``tensor cores`` or ``other``.
    places = np.zeros((1, 1, 1, len(shape)), np.int64)  # by register, lane and warp
    for axis, bases in enumerate((threads.registers, threads.lanes, threads.warps)):
        for basis in bases:
            places = np.concatenate([places, places ^ np.array(basis, np.int64)], axis)
    at = [places[..., dim] for dim in range(len(shape))]
    offsets = _offsets(memory, shape, at, element_bytes)
    if offsets is None:
        return None
    if kind == "blocked":
        vector_bytes = _vector_bytes(offsets, element_bytes)
        # Instructions that only repeat another one's words are left out.
        starts = np.unique(np.sort(_starts(offsets, vector_bytes).transpose(0, 2, 1).reshape(-1, _LANES)), axis=0)
        least = _min_cycles(shape, element_bytes)
        return SharedCycles(max(_served(starts, vector_bytes).cycles, least), least)
    of_warps = []
    for warp in range(offsets.shape[2]):
        own = offsets[:, :, warp : warp + 1]
        vector_bytes = _vector_bytes(own, element_bytes)
        # Wide accesses are served by half-warps on an H100: of a dot of floats without tensor cores, Nsight Compute
        # counted 2324 cycles for an iteration whose accesses of 16 bytes take 2368 by half-warps, 1344 by whole ones,
        # and 2624 by quarters.
        served_lanes = _LANES // 2 if vector_bytes > _WORD_BYTES else _LANES
        of_warps.append(_served(_starts(own, vector_bytes).reshape(-1, served_lanes), vector_bytes))
    found = SharedCycles(sum(one.cycles for one in of_warps), sum(one.least for one in of_warps))
    matrices = _by_matrices(threads, memory, shape, element_bytes) if kind == "tensor cores" else None
    return min(matrices or found, found, key=lambda one: one.cycles)


def _by_matrices(threads: LinearLayout, memory: str, shape: tuple[int, ...], element_bytes: int) -> SharedCycles | None:
    # Matrices of eight rows of 16 bytes: PTX ISA, "ldmatrix".
    fastest, rows, columns = _fastest_dimension(memory), 8, _CHUNK_BYTES // element_bytes
    # Only elements of 16 bits can be transposed.
    if fastest is None or not (element_bytes == 2 or threads.lanes[0][fastest]):
        return None
    if len(shape) != 2 or shape[fastest] % columns or shape[1 - fastest] % rows:
        return None
    row, column = np.ogrid[: shape[1 - fastest], : shape[fastest] : columns]
    offsets = _offsets(memory, shape, [row, column] if fastest else [column, row], element_bytes)
    if offsets is None:
        return None
    starts = offsets.reshape(-1, rows, offsets.shape[1]).transpose(0, 2, 1).reshape(-1, rows)
    repeats = 1 << sum(not any(basis) for basis in threads.warps)
    found = _served(starts // _CHUNK_BYTES * _CHUNK_BYTES, _CHUNK_BYTES)
    return SharedCycles(repeats * found.cycles, repeats * found.least)


def _fastest_dimension(memory: str) -> int | None:
    if memory.startswith("#ttg.nvmma_shared"):
        return 0 if _TRANSPOSED in memory else 1
    return _numbers_of(memory).get("order", (None,))[0]


def _offsets(memory: str, shape: Sequence[int], at: Sequence[_Offsets], element_bytes: int) -> _Offsets | None:
    """Return the offsets in bytes of the elements ``at`` some coordinates."""
    numbers = {name: int(number) for name, number in _NUMBER.findall(memory)}
    is_damaged = any(not 0 < number <= _MAX_ELEMENTS for number in numbers.values())
    if _SPLIT.search(memory) or _PADDED in memory or is_damaged:
        return None
    if memory.startswith("#ttg.swizzled_shared"):
        dims = _numbers_of(memory)["order"]
        if sorted(dims) != list(range(len(shape))):
            return None
        place, stride = at[dims[0]], shape[dims[0]]
        if len(dims) > 1:
            phase = at[dims[1]] // numbers["perPhase"] % numbers["maxPhase"]
            place = ((place // numbers["vec"]) ^ phase) * numbers["vec"] + place % numbers["vec"]
        for dim in dims[1:]:
            place = place + stride * at[dim]
            stride *= shape[dim]
        return place * element_bytes
    width_bytes = numbers.get("swizzlingByteWidth", 0)
    if not memory.startswith("#ttg.nvmma_shared") or len(shape) != 2 or width_bytes not in (32, 64, _WIDEST_BYTES):
        return None
    # PTX ISA, "Shared Memory Matrix Layout": rows of up to 128 bytes, whose chunks of 16 bytes are permuted from row to
    # row. Wider tensors consist of pieces, one after the other.
    fastest = _fastest_dimension(memory) or 0
    row, rows, byte = at[1 - fastest], shape[1 - fastest], at[fastest] * element_bytes
    if shape[fastest] * element_bytes < width_bytes:
        return None
    phase = row // (_WIDEST_BYTES // width_bytes) % (width_bytes // _CHUNK_BYTES)
    within = ((byte % width_bytes // _CHUNK_BYTES) ^ phase) * _CHUNK_BYTES + byte % _CHUNK_BYTES
    offsets: _Offsets = byte // width_bytes * (rows * width_bytes) + row * width_bytes + within
    return offsets
