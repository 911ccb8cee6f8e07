"""Memory accesses that take longer than their bytes (far apart, narrow, bank conflicts); barriers that order none."""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import prod

import numpy as np
from numpy.typing import NDArray

from kprof_inject.analysis.findings.evidence import Evidence, accesses_in, is_tensor
from kprof_inject.analysis.findings.finding import MIN_SHARE, Waste, row
from kprof_inject.analysis.interpreter.accesses import Access
from kprof_inject.analysis.interpreter.axis_arrays import dimension
from kprof_inject.analysis.interpreter.executions import entry_function
from kprof_inject.analysis.interpreter.footprints import SECTOR_BYTES
from kprof_inject.analysis.limits.coalescing import LINE_BYTES, access_widths
from kprof_inject.analysis.limits.rates import DRAM, L2, SHARED
from kprof_inject.analysis.structure import layouts
from kprof_inject.capture import counters
from kprof_inject.capture.resources import THREADS_PER_WARP
from kprof_inject.quantities import listed, percent
from kprof_inject.ttgir.nodes import Operation
from kprof_inject.ttgir.ssa_values import argument_names
from kprof_inject.ttgir.types import types_of

_MIN_EXTRA = 0.25  # a smaller part of the sectors, or of the cycles of the L1, is not worth an edit
_MAX_FEW = 0.1  # fewer of all sectors that were counted are a few
_WIDEST_BYTES = layouts.MAX_ACCESS_BITS // 8
_STREAMING = 0.7  # with DRAM as busy, as many bytes are in flight as it takes, however narrow the accesses
_MAX_NAMES = 4
_INTEGER = re.compile(r"%([\w.-]+): i(?:32|64)( *\{[^}]*tt\.divisibility)?")
_OTHER_SHAPE = (
    "let neighbouring threads access neighbouring addresses: load tiles whose last dimension runs along the contiguous "
    "dimension of the tensor, or store the tensor transposed"
)
# Operands that need not be transposed are copied to shared memory past the registers: no thread loads or stores them.
_REST_OF_COPY = 0.5
_BARRIERS = frozenset(("gpu.barrier", "ttg.barrier", "ttg.local_barrier"))


@row
def uncoalesced(evidence: Evidence) -> Iterator[Waste]:
    """Yield accesses that touch many more sectors or lines than adjacent addresses would."""
    known = [one for one in evidence.requests if one.is_uncoalesced]
    accesses = {one.line: (one.operation, access) for one, access in accesses_in(evidence.operations)}
    # Of a vector, all sectors are used: each thread accesses more adjacent bytes than an instruction can.
    apart = [one for one in known if one.line not in accesses or not _is_vector(evidence, *accesses[one.line])]
    # The parts of all sectors and of the L1's cycles that these would not have at adjacent addresses. Unless the extra
    # sectors are few, accesses at unknown addresses do not count: the L1 may have what these load.
    extra = sum(one.extra_sectors for one in apart)
    whole = sum(one.sectors * one.requests for one in evidence.requests)
    cycles = sum(one.wavefronts * one.requests for one in evidence.requests)
    if evidence.measured is not None:
        counted = sum(map(evidence.measured.metric, (counters.LOAD_SECTORS, counters.STORE_SECTORS)))
        whole = counted if extra < _MAX_FEW * counted else whole
        cycles = max(cycles, evidence.measured.metric(counters.WAVEFRONTS))
    sectors = extra / whole if whole else 0.0
    wavefronts = sum(one.extra_wavefronts for one in apart) / cycles if cycles else 0.0
    if apart and max(sectors, wavefronts) >= _MIN_EXTRA:
        operations = tuple(accesses[one.line][0] for one in apart if one.line in accesses)
        worst = max(apart, key=lambda one: (one.extra_sectors, one.extra_wavefronts))
        access = accesses.get(worst.line)
        distance, advice = _directions(evidence, *access) if access else ("", _OTHER_SHAPE)
        text = f"uncoalesced access: {worst.text}{distance}"
        removed = {SHARED: wavefronts, L2: sectors, DRAM: evidence.dram_waste or 0.0}
        figures = {"sectors_per_request": worst.sectors, "needed_sectors": worst.adjacent_sectors}
        around = access[0] if access else None
        yield Waste(text, advice, removed, operations, figures=figures, around=around)
    unknown = [pair for pair in accesses.values() if pair[1].address is None and pair[1].form.by_registers]
    scattered = tuple(operation for operation, access in unknown if prod(access.shape) > 1)
    if not known and scattered and evidence.measured and (text := evidence.measured.uncoalesced_text):
        advice = "let neighbouring threads access neighbouring addresses: sorted indices, a whole contiguous row for "
        advice += "each index, or an array for each field instead of one of structures"
        removed = {SHARED: 0.5, L2: 0.5, DRAM: 0.5}
        # Few programs can choose their indices.
        yield Waste(f"uncoalesced access: {text}", advice, removed, scattered, certainty=1 / 6)


@row
def narrow_accesses(evidence: Evidence) -> Iterator[Waste]:
    """Yield narrow accesses whose addresses are or may be aligned, which the compiler cannot know."""
    requests = {(one.line, one.kind): one for one in evidence.requests}
    aligned = list[str]()  # integer arguments that are multiples of 16 without the compiler's knowledge
    if (function := entry_function(evidence.module)) is not None:
        values = dict(zip(argument_names(evidence.module, function), evidence.ran.arguments, strict=False))
        unknown = [name for name, known in _INTEGER.findall(function.tail) if not known]
        aligned = [f"'{name}'" for name in unknown if (value := values.get(f"%{name}")) and value % 16 == 0]
    widths = access_widths(evidence.machine_code) if evidence.machine_code else {}
    narrow, sectors = dict[Operation, tuple[int, int, bool]](), 0.0
    for one, access in accesses_in(evidence.operations):
        loaded = evidence.uses.loads_for(one.operation)
        is_loaded = bool(loaded) and not any(map(is_tensor, loaded))
        if not (aligned or is_loaded):
            continue  # alignment hints cannot widen it
        key = one.line, "store" if access.form.writes else "load"
        request, possible = requests.get(key), _possible_bytes(evidence, access)
        width = request.access_bytes if request else widths.get(key)
        if access.address is None and is_loaded and access.form.by_registers:
            possible = min(_WIDEST_BYTES, access.whole_bytes // (evidence.kernel.num_warps * THREADS_PER_WARP))
        if width and 2 * width <= possible:
            narrow[one.operation] = width, possible, is_loaded
            sectors += request.extra_sectors if request else 0.0
    if not narrow:
        return
    whole = sum(one.sectors * one.requests for one in evidence.requests)
    worst = max(narrow, key=lambda operation: narrow[operation][1] / narrow[operation][0])
    width, possible, is_loaded = narrow[worst]
    text = f"narrow access: {evidence.words_of(worst)} moves {width} byte{'s' if width > 1 else ''} of a thread at a "
    text += f"time where {possible} would do, "
    if is_loaded:
        text += "if its start, a loaded offset, were known to be aligned"
        advice = "if the loaded offsets are always multiples of 16, declare it: tl.multiple_of(offset, 16)"
    else:
        are = "is a multiple" if len(aligned) == 1 else "are multiples"
        text += "as its addresses are contiguous and aligned, which the compiler does not know "
        text += f"({listed(aligned, _MAX_NAMES)} {are} of 16 in this launch)"
        advice = "let Triton see the alignment: no do_not_specialize or annotation for sizes and strides, "
        advice += "tl.constexpr, or tl.multiple_of(..., 16) and tl.max_contiguous"
    # If loads and stores were as wide, they would have one layout.
    made = [evidence.uses.maker(one, 1) for one in narrow if one.traits.writes_global]
    conversions = [one for one in made if one is not None and one.name == "ttg.convert_layout"]
    of_conversions = evidence.unit_shares_of(conversions)
    of_narrow = evidence.unit_shares_of(narrow, 1 - width / possible)
    removed = {unit: share + of_conversions[unit] for unit, share in of_narrow.items()}
    removed[L2] = sectors / whole if whole else 0.0
    time_share = None if evidence.parts.get(DRAM, 0.0) < _STREAMING else 0.0
    yield Waste(text, advice, removed, (*narrow, *conversions), time_share, certainty=0.6 if is_loaded else 1.0)


def _possible_bytes(evidence: Evidence, access: Access) -> int:
    """Return the bytes that each thread could access at once by the addresses of this launch; 0 if unknown."""
    along = next((dim for dim in range(len(access.shape)) if step_along(access, dim) == access.element_bytes), None)
    if along is None or access.address is None or access.mask is None:
        return 0
    threads = evidence.kernel.num_warps * THREADS_PER_WARP
    possible = min(_WIDEST_BYTES, access.whole_bytes // threads, access.shape[along] * access.element_bytes)
    possible = 1 << max(possible, 1).bit_length() - 1
    while possible > access.element_bytes:
        parts = [
            part.values.take(range(0, size, possible // access.element_bytes), part.axes.index(axis))
            if (axis := dimension(along)) in part.axes and (size := part.sizes[axis]) > 1
            else part.values
            for part in access.address.parts
        ]
        if not any((values % possible).any() for values in parts):
            break
        possible //= 2
    return possible


def _is_vector(evidence: Evidence, operation: Operation, access: Access) -> bool:
    along = _lanes_run_along(evidence, operation, access)
    return along is not None and step_along(access, along) == access.element_bytes


def _lanes_run_along(evidence: Evidence, operation: Operation, access: Access) -> int | None:
    tensor = next((printed for printed in types_of(operation) if printed.shape == access.shape), None)
    along = layouts.lanes_dimension(tensor, evidence.module.aliases) if tensor else None
    long = [dim for dim, size in enumerate(access.shape) if size > 1]
    return long[0] if along is None and len(long) == 1 else along


def _directions(evidence: Evidence, operation: Operation, access: Access) -> tuple[str, str]:
    along = _lanes_run_along(evidence, operation, access)
    step = step_along(access, along) if along is not None else None
    apart = f"; neighbouring threads access places {step} bytes apart" if step else ""
    # Neighbours there are adjacent, or some of them share an address.
    apart_by = [list(_differences(access, dim)) for dim in range(len(access.shape))]
    most = [sum(int(np.abs(part).max(initial=0)) for part in parts) for parts in apart_by]
    contiguous = [dim for dim, step_bytes in enumerate(most) if 0 < step_bytes <= access.element_bytes]
    if along is None or not contiguous or contiguous == [along]:
        return apart, _OTHER_SHAPE
    apart = f"{apart}, along dimension {along} of the tile; dimension {contiguous[0]} is contiguous in memory"
    row_bytes = access.shape[contiguous[0]] * access.element_bytes
    if row_bytes <= _WIDEST_BYTES:  # a thread already accesses all of it at once
        # On an H200, tiles of 2 to 4 times the width won 17 to 22 % with as many more warps; without, or with tiles of
        # the same size, the launch took 1.35 to 1.8 times as long, as fewer loads were in flight.
        advice = f"make the tile wider along dimension {contiguous[0]}, where it has only {row_bytes} contiguous bytes "
        advice += f"(a sector has {SECTOR_BYTES}, a line {LINE_BYTES}), and raise num_warps as much (it is "
        advice += f"{evidence.kernel.num_warps}), so that an SM keeps its warps"
    elif any((part == 0).any() for part in apart_by[contiguous[0]]):  # neighbours with one address
        # On an H100, keys of 3 and 4 bits won 36 and 75 % when stored transposed; those of 4 bits won 87 % by one load
        # for each byte. With the tile's dimensions swapped, which needs a reduction over threads, they lost 49 and won
        # 27 %.
        advice = f"store the tensor transposed, so that neighbours along dimension {along} of the tile are neighbours "
        advice += "in memory; or load each packed element once, as several places along dimension "
        advice += f"{contiguous[0]} share one, and unpack it in registers"
    else:
        advice = f"let neighbouring threads run along dimension {contiguous[0]} of the tile, which is contiguous: swap "
        advice += "the tile's dimensions (and use tl.trans for the result), or let the compiler know that its stride "
        advice += "is 1: make it a tl.constexpr, or remove an annotation ': int', with which Triton does not "
        advice += "specialize it"
    return apart, advice


def step_along(access: Access, dim: int) -> int | None:
    """Return the distance in bytes of neighbours along a dimension of the tile; None if it is unknown or varies."""
    step = 0
    for part in _differences(access, dim):
        if part.size == 0 or (part != part.flat[0]).any():
            return None
        step += int(part.flat[0])
    return abs(step) if access.address is not None else None


def _differences(access: Access, dim: int) -> Iterator[NDArray[np.int64]]:
    """Yield, for each part of the address, by how many bytes it differs between neighbours along a dimension."""
    axis = dimension(dim)
    for part in access.address.parts if access.address is not None else ():
        if axis in part.axes and part.sizes[axis] > 1:
            yield np.diff(part.values, axis=part.axes.index(axis))


@row
def bank_conflicts(evidence: Evidence) -> Iterator[Waste]:
    """Yield accesses to shared memory with bank conflicts."""
    for one in evidence.operations if evidence.sm_cycles else ():
        each = layouts.conflict_cycles(one.operation, evidence.module.aliases)
        share = min(each * (one.whole_times or 0) / evidence.sm_cycles, 1.0)
        if share < MIN_SHARE:
            continue
        # The layouts show a lower bound of the conflicts.
        removed = max(share, evidence.measured.conflict_share if evidence.measured else 0.0)
        advice = "try another shape of the tile, or another layout of the tensor in global memory"
        if layouts.is_transposed(one.operation, evidence.module.aliases):
            removed = 1 - (1 - removed) * _REST_OF_COPY
            advice = "store the tensor transposed in global memory, or transpose it once before the kernel: the tile's "
            advice += "rows become columns in shared memory (Hopper's tensor cores need operands along K, unless their "
            advice += "elements have 16 bits)"
        least, roof = layouts.min_cycles(one.operation), evidence.roof_around(one.operation)
        where = f" in {evidence.name_of(roof)}" if roof else ""
        text = f"bank conflicts: {one.operation.name}{where} ({evidence.place_of(one.operation)}) occupies shared "
        text += f"memory for {each + least} cycles instead of {least}, {percent(share)} of the SMs' time: threads of a "
        text += "warp access the same bank, or less than its 4 bytes"
        figures = {"cycles": each + least, "least_cycles": least, "times": one.whole_times or 0}
        yield Waste(text, advice, {SHARED: removed}, (one.operation,), time_share=share, figures=figures)


@row
def needless_barriers(evidence: Evidence) -> Iterator[Waste]:
    """Yield barriers of the kernel's own in a loop that accesses no shared memory: nothing needs their order."""
    for loop in evidence.loops:
        inside = [one for one in loop.walk() if one is not loop]
        own = [one for one in inside if one.name in _BARRIERS]
        if not own or any(one.traits.accesses_shared or one.traits.is_atomic for one in inside):
            continue
        share = evidence.stalls.share_of_barriers(evidence.lines_of(own)) if evidence.stalls else 0.0
        text = f"each iteration of {evidence.name_around(own[0])} waits at a barrier that orders no access to shared "
        text += f"memory ({evidence.places_of(own)}): {percent(share)} of the warps' time"
        advice = "remove tl.debug_barrier: the compiler inserts the barriers that are needed"
        yield Waste(text, advice, evidence.unit_shares_of(own), tuple(own), time_share=share, certainty=0.5)
