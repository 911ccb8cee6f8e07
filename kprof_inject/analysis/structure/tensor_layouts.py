"""Facts from a tensor's layout: the width of a thread's accesses, and the instruction of a dot.

Layout attributes are as Triton prints them (``TritonGPUAttrDefs.td``): ``#ttg.blocked`` with ``sizePerThread`` and
``order``, ``#ttg.linear`` with the bases of its registers, ``#ttg.slice`` of another layout, and the layouts of dots'
instructions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import prod

from msgspec import Struct

from kprof_inject.ttgir.types import PrintedType, bits_of, closing_bracket, if_misfit

MAX_ACCESS_BITS = 128
"""The widest access of one thread: PTX ISA, "ld.global" with ``.v4.b32``; AMD CDNA3 ISA, ``global_load_dwordx4``."""

_MAX_ELEMENTS = 1 << 20  # of a tensor: TRITON_MAX_TENSOR_NUMEL in triton/language/core.py

_ALIAS = re.compile(r"#[\w$.-]+")
_SLICE = re.compile(r"#ttg\.slice<\{dim = (\d+), parent = (.*)\}>")
_NUMBERS = r"\[(-?\d+(?:, -?\d+)*)\]"
_NUMBER = re.compile(r"-?\d+")
_PER_WARP = re.compile(rf"threadsPerWarp = {_NUMBERS}")
_WARPS = re.compile(rf"warpsPerCTA = {_NUMBERS}")
_PER_THREAD = re.compile(rf"sizePerThread = {_NUMBERS}")
_ORDER = re.compile(rf"\border = {_NUMBERS}")
_SPLIT = re.compile(r"\b(?:CTA|CGA)\w* = ")
_BASIS = re.compile(_NUMBERS)
_INSTRUCTION = re.compile(r"#ttg\.(nvidia_mma|amd_mfma|amd_wmma)<\{(.*)\}>")
_MAJOR = re.compile(r"\bversion(?:Major)? = (\d+)")
_SHAPE = re.compile(rf"\binstrShape = {_NUMBERS}")


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


class Blocked(Struct, frozen=True):
    """A layout of tiles, one after the other in each dimension.

    ``elements`` are a thread's, ``lanes`` its warp's; ``order`` has the dimension that varies fastest first.
    """

    elements: tuple[int, ...]
    lanes: tuple[int, ...]
    warps: tuple[int, ...]
    order: tuple[int, ...]


def blocked_of(layout: str) -> Blocked | None:
    """Return a blocked layout; None for others, if split between CTAs, or if its numbers do not describe tiles."""
    found = [pattern.search(layout) for pattern in (_PER_THREAD, _PER_WARP, _WARPS, _ORDER)]
    if not layout.startswith("#ttg.blocked") or _SPLIT.search(layout) or not all(found):
        return None
    elements, lanes, warps, order = (tuple(map(int, _NUMBER.findall(one[1]))) for one in found if one)
    sizes = (*elements, *lanes, *warps)
    has_rank = len(elements) == len(lanes) == len(warps) == len(order)
    if not has_rank or sorted(order) != list(range(len(order))) or min(sizes, default=0) <= 0:
        return None
    return Blocked(elements, lanes, warps, order) if prod(sizes) <= _MAX_ELEMENTS else None


@if_misfit(None)
def access_bits(printed: PrintedType, aliases: Mapping[str, str]) -> int | None:
    """Return how many bits of global memory a thread accesses at once.

    The tensor, of pointers or of what they point to, is distributed by this layout. The addresses may allow less.
    """
    elements = _in_a_row(layout_of(printed, aliases), len(printed.shape), aliases)
    bits = bits_of(printed.pointee)
    return min(elements * bits, MAX_ACCESS_BITS) if elements and bits else None


def _in_a_row(layout: str, rank: int, aliases: Mapping[str, str]) -> int | None:
    """Return how many contiguous elements a thread has, along the dimension that varies fastest in it."""
    if layout.startswith("#ttg.linear"):
        bases = _printed_bases(layout, rank)
        return bases and max(_longest_run(bases[0], dim) for dim in range(rank))
    sliced = _SLICE.match(layout)
    without = int(sliced[1]) if sliced else None
    parent = aliases.get(sliced[2], sliced[2]) if sliced else layout
    per_thread, order = _PER_THREAD.search(parent), _ORDER.search(parent)
    if not (parent.startswith("#ttg.blocked") and per_thread and order):
        return None
    fastest = next((int(dim) for dim in order[1].split(",") if int(dim) != without), None)
    return None if fastest is None else _number(per_thread[1], fastest)


def _longest_run(registers: Sequence[Basis], dim: int) -> int:
    """Return the number of neighbours that a thread has along a dimension: of bases 1, 2, 4 and so on."""
    along = {basis[dim] for basis in registers if not any(basis[:dim] + basis[dim + 1 :])}
    run = 1
    while run in along:
        run *= 2
    return run


@if_misfit(None)
def lanes_dimension(printed: PrintedType, aliases: Mapping[str, str]) -> int | None:
    """Return the dimension of a tensor along which neighbouring threads of a warp access it at once.

    None if there is no second dimension, or if it does not follow from the layout.
    """
    layout = layout_of(printed, aliases)
    if sum(size > 1 for size in printed.shape) < 2:
        return None
    if layout.startswith("#ttg.linear"):
        _, lanes, _ = _printed_bases(layout, len(printed.shape)) or ([], [], [])
        return next((dim for basis in lanes[:1] for dim, number in enumerate(basis) if number), None)
    per_warp, order = _PER_WARP.search(layout), _ORDER.search(layout)
    if not (layout.startswith("#ttg.blocked") and per_warp and order):
        return None
    threads = [int(count) for count in per_warp[1].split(",")]
    return next((dim for dim in map(int, order[1].split(",")) if threads[dim] > 1), None)


@if_misfit(None)
def lanes_and_warps_along(printed: PrintedType, dim: int, aliases: Mapping[str, str]) -> tuple[int, int] | None:
    """Return how many lanes of a warp, and how many warps, have elements that differ only along a dimension.

    None if it does not follow from the layout.
    """
    size = printed.shape[dim]
    if linear := linear_layout(printed, aliases):
        lanes, warps = (1 << sum(0 < basis[dim] < size for basis in bases) for bases in (linear.lanes, linear.warps))
        return lanes, warps
    layout = layout_of(printed, aliases)
    if sliced := _SLICE.match(layout):
        layout, dim = aliases.get(sliced[2], sliced[2]), dim + (dim >= int(sliced[1]))
    threads, warps_of = _LANES.get(layout.partition("<")[0]), _WARPS.search(layout)
    if threads is None or warps_of is None:
        return None
    # AMD Matrix Instruction Calculator: a lane for each column, or row if transposed; groups of four elements.
    shape = _SHAPE.search(layout)
    columns = _number(shape[1], 0) if shape else _MATRIX_ROWS
    elements, lanes = (1, columns) if dim == (_TRANSPOSED.search(layout) is None) else (4, threads // columns)
    lanes = min(lanes, max(size // elements, 1))
    return lanes, min(_number(warps_of[1], dim), max(size // (elements * lanes), 1))


def _number(numbers: str, place: int) -> int:
    return int(numbers.split(",")[place])


# Lanes of the warps that AMD's matrix instructions are for.
_LANES = {"#ttg.amd_mfma": 64, "#ttg.amd_wmma": 32}
_TRANSPOSED = re.compile(r"\bisTransposed? = true")
_WARP_GROUPS = 3
Basis = tuple[int, ...]
_BASES = re.compile(r"(register|lane|warp) = \[((?:\[[^\]]*\](?:, )?)*)\]")
# PTX ISA, "Matrix Fragments for mma.m16n8k16", "Register Fragments" of wgmma: bits of the register and of the lane.
_OF_MATRIX = ((0, 1), (8, 0)), ((0, 2), (0, 4), (1, 0), (2, 0), (4, 0))
_MATRIX_ROWS, _MATRIX_COLUMNS = 16, 8


class LinearLayout(Struct, frozen=True):
    """A layout by the element that each bit of a register's, lane's and warp's number adds, the lowest bit first.

    The coordinates of an element are the exclusive or of those of all bits that are set. A basis of zeros repeats
    elements; those of registers are left out, as a thread accesses an element once.
    """

    registers: tuple[Basis, ...]
    lanes: tuple[Basis, ...]
    warps: tuple[Basis, ...]

    @property
    def size(self) -> int:
        """Number of elements of all threads; repeated ones count each time."""
        return 1 << len(self.registers) + len(self.lanes) + len(self.warps)


@if_misfit(None)
def linear_layout(printed: PrintedType, aliases: Mapping[str, str]) -> LinearLayout | None:
    """Return the layout of a tensor; None if it is split between CTAs, or of a kind that is not known here.

    Known are blocked and linear layouts, those of results of tensor cores before sm_100, and slices of these.
    """
    bases = _bases(layout_of(printed, aliases), printed.shape, aliases)
    if bases is None:
        return None
    registers, lanes, warps = bases
    return LinearLayout(tuple(basis for basis in registers if any(basis)), tuple(lanes), tuple(warps))


def is_of_tensor_cores(layout: str, aliases: Mapping[str, str]) -> bool:
    """Return whether a layout is that of a result of NVIDIA's tensor cores, or of an operand."""
    operand = _OPERAND.match(layout)
    return (aliases.get(operand[2], operand[2]) if operand else layout).startswith("#ttg.nvidia_mma")


_Bases = tuple[list[Basis], list[Basis], list[Basis]]


def _bases(layout: str, shape: tuple[int, ...], aliases: Mapping[str, str]) -> _Bases | None:
    if sliced := _SLICE.match(layout):
        dim = int(sliced[1])
        parent = _bases(aliases.get(sliced[2], sliced[2]), (*shape[:dim], 1, *shape[dim:]), aliases)
        if parent is None:
            return None
        registers, lanes, warps = ([basis[:dim] + basis[dim + 1 :] for basis in bases] for bases in parent)
        return registers, lanes, warps
    if layout.startswith("#ttg.linear"):
        return _printed_bases(layout, len(shape))
    if operand := _OPERAND.match(layout):
        tiles = _operand_tiles(int(operand[1]), aliases.get(operand[2], operand[2]), int(operand[3] or 0), shape)
    else:
        tiles = _tiles(layout, len(shape))
    return tiles and _repeated(tiles[0], tiles[1], shape)


_OPERAND = re.compile(r"#ttg\.dot_op<\{opIdx = ([01]), parent = (.*?)(?:, kWidth = (\d+))?\}>$")


def _operand_tiles(
    operand: int, parent: str, k_width: int, shape: Sequence[int]
) -> tuple[_Bases, Sequence[int]] | None:
    """Return the same as ``_tiles`` for an operand of a dot whose result has the layout ``parent``.

    Warps that compute the same rows, or columns, have the same elements of it.
    """
    if len(shape) != 2:
        return None
    along_k = 1 - operand
    if blocked := blocked_of(parent):
        counts = [list(one) for one in (blocked.elements, blocked.lanes, blocked.warps)]
        counts[0][along_k] = shape[along_k]
        size = [1, 1]
        registers, lanes, warps = (
            _without(_grown(size, one, blocked.order), along_k if number else None) for number, one in enumerate(counts)
        )
        return ((registers, lanes, warps), blocked.order) if len(blocked.order) == 2 else None
    tiles = _tiles(parent, 2)
    if tiles is None or not k_width or k_width & (k_width - 1):
        return None
    order = (along_k, operand)
    rows = _MATRIX_ROWS if operand == 0 else _MATRIX_COLUMNS
    size = [1, 1]
    registers = _grown(size, _of_operand(k_width, along_k), order)
    lanes = [*_grown(size, _of_operand(4, along_k), order), *_grown(size, _of_operand(8, operand), order)]
    registers += _grown(size, _of_operand(rows // 8, operand), order)
    registers += _grown(size, _of_operand(2, along_k), order)
    counted = _WARPS.search(parent)
    warps_of = [_number(counted[1], 0), _number(counted[1], 1)] if counted else [1, 1]
    warps = _without(_grown([size[0] if operand == 0 else 1, size[1] if operand else 1], warps_of, (1, 0)), along_k)
    return (registers, lanes, warps), order


def _of_operand(count: int, dim: int) -> tuple[int, int]:
    return (count, 1) if dim == 0 else (1, count)


def _without(bases: Sequence[Basis], dim: int | None) -> list[Basis]:
    return [tuple(0 if one == dim else step for one, step in enumerate(basis)) for basis in bases]


def _printed_bases(layout: str, rank: int) -> _Bases | None:
    found: dict[str, list[Basis]] = {"register": [], "lane": [], "warp": []}
    for name, text in _BASES.findall(layout):
        found[name] = [tuple(map(int, basis.split(","))) for basis in _BASIS.findall(text)]
    bases = found["register"], found["lane"], found["warp"]
    return bases if all(len(basis) == rank for one in bases for basis in one) else None


def _tiles(layout: str, rank: int) -> tuple[_Bases, Sequence[int]] | None:
    """Return the bases of a CTA's tile, and the dimensions from that which varies fastest."""
    if blocked := blocked_of(layout):
        size = [1] * rank
        counts = (blocked.elements, blocked.lanes, blocked.warps)
        registers, lanes, warps = (_grown(size, one, blocked.order) for one in counts)
        return ((registers, lanes, warps), blocked.order) if len(blocked.order) == rank else None
    shape, counted, major = (pattern.search(layout) for pattern in (_SHAPE, _WARPS, _MAJOR))
    if not (layout.startswith("#ttg.nvidia_mma") and shape and counted and major) or _SPLIT.search(layout):
        return None
    if rank != 2 or int(major[1]) not in (2, _WARP_GROUPS):
        return None
    size, order = [_MATRIX_ROWS, _MATRIX_COLUMNS], (1, 0)
    columns = _number(shape[1], 1) // _MATRIX_COLUMNS
    registers, lanes = [*_OF_MATRIX[0], *_grown(size, (1, columns), order)], list(_OF_MATRIX[1])
    return (registers, lanes, _grown(size, (_number(counted[1], 0), _number(counted[1], 1)), order)), order


def _grown(size: list[int], counts: Sequence[int], order: Sequence[int]) -> list[Basis]:
    """Return the bases that repeat a tile ``counts`` times along each dimension; its ``size`` grows with it."""
    found = []
    for dim in order:
        for bit in range(counts[dim].bit_length() - 1):
            found.append(tuple(size[dim] << bit if one == dim else 0 for one in range(len(size))))
        size[dim] *= counts[dim]
    return found


def _repeated(tile: _Bases, order: Sequence[int], shape: Sequence[int]) -> _Bases:
    """Return the bases of a whole tensor: a smaller one repeats its elements, a larger one takes more registers."""
    registers, lanes, warps = (
        [basis if all(map(int.__lt__, basis, shape)) else (0,) * len(shape) for basis in bases] for bases in tile
    )
    size = [2 * max(basis[dim] for basis in sum(tile, [(0,) * len(shape)])) or 1 for dim in range(len(shape))]
    more = [max(whole // one, 1) for whole, one in zip(shape, size, strict=True)]
    return [*registers, *_grown(size, more, order)], lanes, warps


# An instruction of a warp group computes the rows of four warps.
_WARPS_IN_GROUP = 4


def dot_instruction(layout: str) -> str:
    """Return the instruction that a dot with this result becomes, such as ``wgmma m64n128k16`` or ``mfma 32x32x8``.

    ``fma`` without tensor cores; empty if it does not follow from the layout.
    """
    found = _INSTRUCTION.match(layout)
    if not found:
        return "fma" if layout.startswith(("#ttg.blocked", "#ttg.linear")) else ""
    shape = [int(size) for size in match[1].split(",")] if (match := _SHAPE.search(found[2])) else []
    if found[1] != "nvidia_mma":
        return f"{found[1].removeprefix('amd_')} {'x'.join(map(str, shape))}".strip()
    major = int(match[1]) if (match := _MAJOR.search(found[2])) else 0
    if major == _WARP_GROUPS and shape:
        shape = [shape[0] * _WARPS_IN_GROUP, *shape[1:]]
    sizes = "".join(f"{letter}{size}" for letter, size in zip("mnk", shape, strict=False))
    return f"{'wgmma' if major == _WARP_GROUPS else 'mma'} {sizes}".strip()
