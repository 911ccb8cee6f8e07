"""Operations as the CTAs of a launch execute them, and their accesses to global memory: how many bytes, and which."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import prod
from typing import Literal, TypeVar

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from kprof_inject.analysis.interpreter.axis_arrays import (
    ALWAYS,
    AxisArray,
    Descriptor,
    GridAxis,
    IntegerExpr,
    Mask,
    TooLarge,
    Value,
    compared,
    counting,
    dimension,
)
from kprof_inject.analysis.interpreter.footprints import Ranges, max_repeats, touched
from kprof_inject.ttgir.dialect import CACHE_MODIFIER
from kprof_inject.ttgir.nodes import Operation
from kprof_inject.ttgir.ssa_values import bound_names, definition_of, names_in, operand_names
from kprof_inject.ttgir.types import PrintedType, bytes_of, if_misfit, types_of


class Executed(Struct, frozen=True):
    """An operation as all CTAs execute it, with its operands.

    ``sizes`` are the axes along which it is executed: CTAs, and the iterations of the loops around it. ``when`` is true
    where it is executed, ``predicate`` where it has an effect; None is unknown.
    """

    operation: Operation
    operands: tuple[Value, ...]
    sizes: Mapping[GridAxis, int]
    when: Mask | None
    predicate: Mask | None = ALWAYS

    @classmethod
    def unknown(cls, operation: Operation) -> Executed:
        """Return an operation with unknown operands: in a called function, or nested too deep."""
        return cls(operation, (None,) * len(operand_names(operation)), {}, None)

    @property
    def is_predicated(self) -> bool:
        """True if some executions may have no effect."""
        return self.predicate != ALWAYS

    @property
    def times(self) -> int | None:
        """Number of executions with an effect, in all CTAs together."""
        if self.when is None or self.predicate is None:
            return None
        when = self.when & self.predicate
        with suppress(TooLarge):
            return None if when.is_lower_bound else when.count(self.sizes)
        return None


# The predicate's position among the operands, not counting those in brackets (a token, and the predicates of barriers);
# and in the generic form, the number of operand groups before it.
_PLACES = {"ttng.tc_gen5_mma": (4, 5), "ttng.tc_gen5_mma_scaled": (6, 7)}
_BRACKETS = re.compile(r"\[([^\]]*)\]")
_GROUP_SIZES = re.compile(r"\boperandSegmentSizes = array<i32: (\d{1,9}(?:, \d{1,9})*)>")


def predicate_of(operation: Operation) -> str | None:
    """Return the name of the predicate operand, or None."""
    if operation.name not in _PLACES:
        return None
    place, groups = _PLACES[operation.name]
    names = names_in(_BRACKETS.sub("", operation.tail))
    if sizes := _GROUP_SIZES.search(operation.tail):
        names = operand_names(operation)
        place = sum(int(size) for size in sizes[1].split(",")[:groups])
    return names[place] if place < len(names) else None


def asks_for_iteration(bit: str, user: Operation) -> bool:
    """Return True if a predicate only tests that there is another iteration.

    The pipeliner makes such predicates for operations that run ahead. With its copies before the loop, such an
    operation is executed once for each iteration.
    """
    loop = user.loop
    made = definition_of(bit, user)
    if made is not None and made.name == "tt.splat":
        names = operand_names(made)
        made = definition_of(names[0], made) if names else None
    if loop is None or made is None or made.name != "arith.cmpi":
        return False
    return operand_names(made)[:1] == bound_names(loop)[:1]


class AccessForm(Struct, frozen=True):
    """Kind of access to global memory by an operation.

    ``passes_by_l1``: data goes from the L2 to shared memory without being kept in the L1. ``by_registers``: data moves
    between the L1 and registers. ``operands`` are a tensor of pointers, a pointer and a tensor of offsets, or a
    descriptor and coordinates.
    """

    reads: bool
    writes: bool
    passes_by_l1: bool = False
    by_registers: bool = False
    operands: Literal["pointers", "buffer", "descriptor", "not modelled"] = "pointers"


_READ, _WRITE = AccessForm(True, False, by_registers=True), AccessForm(False, True, by_registers=True)
_CHANGE, _COPY = AccessForm(True, True), "ttg.async_copy_global_to_local"
# TMA reads and writes shared memory by the L2: CUDA C++ Programming Guide, "Asynchronous Data Copies using the Tensor
# Memory Accelerator".
_TMA_READ = AccessForm(True, False, passes_by_l1=True, operands="descriptor")
_TMA_WRITE = AccessForm(False, True, passes_by_l1=True, operands="descriptor")
_NAMES = {
    "tt.load": _READ,
    "tt.store": _WRITE,
    "tt.atomic_rmw tt.atomic_cas": _CHANGE,
    _COPY: AccessForm(True, False, passes_by_l1=True),
    "tt.descriptor_load ttng.async_tma_copy_global_to_local": _TMA_READ,
    "tt.descriptor_store ttng.async_tma_copy_local_to_global": _TMA_WRITE,
    "tt.descriptor_reduce ttng.async_tma_reduce": replace(_TMA_WRITE, reads=True),
    "amdg.buffer_load amdgpu.buffer_load": replace(_READ, operands="buffer"),
    "amdg.buffer_store amdgpu.buffer_store": replace(_WRITE, operands="buffer"),
    "amdg.buffer_atomic_rmw amdgpu.buffer_atomic_rmw": replace(_CHANGE, operands="buffer"),
    """
    tt.descriptor_gather ttng.async_tma_gather amdg.buffer_load_to_local amdgpu.buffer_load_to_local
    tt.atomic_load tt.atomic_poll amdg.masked_load amdg.async_tdm_copy_global_to_local amdg.async_tdm_gather
    amdg.async_tdm_fused_copy_global_to_local
    """: AccessForm(True, False, operands="not modelled"),
    """
    tt.descriptor_scatter ttng.async_tma_scatter tt.atomic_store amdg.masked_store amdg.async_copy_local_to_global
    amdg.async_tdm_copy_local_to_global amdg.async_tdm_scatter
    """: AccessForm(False, True, operands="not modelled"),
    "amdg.buffer_atomic_cas amdgpu.buffer_atomic_cas": AccessForm(True, True, operands="not modelled"),
}
_FORMS = {name: form for names, form in _NAMES.items() for name in names.split()}
_DATA = {"tt.store": 1, "tt.atomic_rmw": 1, "tt.atomic_cas": 1}  # the operand that is written
_T = TypeVar("_T")


def deciding_operands(operation: Operation, operands: Sequence[_T]) -> list[_T]:
    """Return the operands that decide which global memory an operation accesses."""
    if operation.name not in _FORMS:
        return []
    data = _DATA.get(operation.name)
    return [operand for place, operand in enumerate(operands) if place != data]


class Access(Struct, frozen=True):
    """An access of all CTAs, in all iterations, to all elements of a tensor with this ``shape``.

    ``places`` is the number of elements that ``mask`` enables. ``is_whole``: each execution accesses all elements.
    ``is_for_each_iteration``: it does so once for each iteration of its loop, some iterations ahead.
    """

    operation: Operation
    form: AccessForm
    element_bytes: int
    shape: tuple[int, ...]
    address: IntegerExpr | None
    mask: Mask | None
    places: int | None
    is_whole: bool
    is_for_each_iteration: bool

    def distinct_bytes(self, times: int | None) -> int:
        """Return a lower bound of the bytes requested, each address of an execution once; 0 if unknown."""
        requested_bytes = self.requested_bytes(times) or 0
        if self.form.operands == "descriptor":
            return requested_bytes
        if self.address is not None:
            with suppress(TooLarge):
                return requested_bytes // max_repeats(self.address, self.shape)
        return 0

    @property
    def whole_bytes(self) -> int:
        """The bytes that a CTA requests in one execution, ignoring the mask."""
        return prod(self.shape) * self.element_bytes

    def requested_bytes(self, times: int | None) -> int | None:
        """Return the bytes requested in total, by the number of executions if only that is known."""
        if self.places is not None:
            return self.places * self.element_bytes
        return self.max_bytes(times) if self.is_whole or self.is_for_each_iteration else None

    def max_bytes(self, times: int | None) -> int | None:
        """Return the bytes requested if the mask is true everywhere."""
        return None if times is None else times * self.whole_bytes

    def touched(self, sm_of_cta: AxisArray | None = None) -> Ranges | None:
        """Return a lower bound of the bytes touched, each once, or once for each SM with ``sm_of_cta``."""
        if self.address is None or self.mask is None:
            return None
        address = self.address
        if sm_of_cta is not None:
            address += IntegerExpr((AxisArray(sm_of_cta.axes, sm_of_cta.values * _APART),))
        with suppress(TooLarge):
            return touched(address, self.mask, self.element_bytes)
        return None


_APART = 1 << 50  # larger than any address, so that the ranges of two SMs never overlap


def access_of(one: Executed) -> Access | None:
    """Return an operation's access to global memory, if it is modelled."""
    form, tail = _FORMS.get(one.operation.name), one.operation.tail
    if form is None:
        return None
    types = types_of(one.operation)
    # A buffer operation prints the pointer's type first and the data's type last.
    pointed = types[-1 if form.operands == "buffer" else 0] if types else PrintedType("", (), "i8")
    address, enabled = _place_of(one, form, pointed)
    mask = enabled & one.when if enabled is not None and one.when is not None else None
    places = None
    if mask is not None and (mask.parts or not mask.is_lower_bound):
        with suppress(TooLarge):
            places = mask.count({**one.sizes, **{dimension(dim): size for dim, size in enumerate(pointed.shape)}})
    cached = CACHE_MODIFIER.search(tail)
    if cached and cached[1] in ("cg", "cv"):  # these bypass the L1 (PTX ISA, "Cache Operators")
        form = replace(form, passes_by_l1=True)
    named = _MASK_NAME.search(tail) if one.operation.name == _COPY and mask is None else None
    return Access(
        operation=one.operation,
        form=form,
        element_bytes=bytes_of(pointed.pointee),
        shape=pointed.shape,
        address=address,
        mask=mask,
        places=places,
        is_whole=enabled is not None and not enabled.parts,
        is_for_each_iteration=named is not None and asks_for_iteration(named[1], one.operation),
    )


@if_misfit((None, None))
def _place_of(one: Executed, form: AccessForm, pointed: PrintedType) -> tuple[IntegerExpr | None, Mask | None]:
    address: Value = None
    mask: Value = None
    with suppress(TooLarge):
        if form.operands == "pointers":
            address, mask = one.operands[0], _mask(one)
        elif form.operands == "buffer":
            address, mask = _in_buffer(one, bytes_of(pointed.element))
        elif form.operands == "descriptor":
            address, mask = _in_tensor(one, pointed.shape)
    return address if isinstance(address, IntegerExpr) else None, mask if isinstance(mask, Mask) else None


_MASK_NAME = re.compile(r"\bmask (%[\w$.#-]+)")
_MASK_PLACE = {"tt.load": 1, "tt.store": 2, "tt.atomic_rmw": 2, _COPY: 2}


def _mask(one: Executed) -> Value:
    place = _MASK_PLACE.get(one.operation.name, len(one.operands))
    if place >= len(one.operands):
        return ALWAYS
    if one.operation.name != _COPY or _MASK_NAME.search(one.operation.tail):
        return one.operands[place]
    # The generic form does not say which of its operands this is.
    return None if one.operation.tail.startswith("(") else ALWAYS


_HAS_MASK = re.compile(r"\s*, %")


def _in_buffer(one: Executed, element_bytes: int) -> tuple[Value, Value]:
    """Return address and mask of ``%pointer[%offsets], %mask``, which a store prints after the data."""
    before, bracket, after = one.operation.tail.partition("[")
    if not bracket or before.lstrip().startswith("("):  # the generic form does not tell the operands apart
        return None, None
    pointer, offsets, *others = one.operands[len(names_in(before)) - 1 :]
    mask = (others[0] if others else None) if _HAS_MASK.match(after.partition("]")[2]) else ALWAYS
    if not isinstance(pointer, IntegerExpr) or not isinstance(offsets, IntegerExpr):
        return None, mask
    return pointer + offsets * IntegerExpr.integer(element_bytes), mask


def _in_tensor(one: Executed, shape: tuple[int, ...]) -> tuple[Value, Value]:
    """Return address and mask of a block of a descriptor's tensor. Elements outside the tensor are not accessed."""
    tensor, *coordinates = one.operands
    if not isinstance(tensor, Descriptor) or len(tensor.shape) != len(shape):
        return None, None
    address, mask = tensor.address, coordinates[-1]
    if one.operation.name != "ttng.async_tma_copy_global_to_local":
        mask = ALWAYS
    dimensions = zip(coordinates[: len(shape)], tensor.shape, tensor.strides_bytes, strict=True)
    for dim, (coordinate, size, stride) in enumerate(dimensions):
        if not isinstance(coordinate, IntegerExpr) or size is None or stride is None:
            return None, None
        place = coordinate + IntegerExpr((counting(dimension(dim), shape[dim]),))
        inside = compared(np.less, place, size) & compared(np.greater_equal, place, IntegerExpr.integer(0))
        mask = mask & inside if isinstance(mask, Mask) else None
        address = address + place * stride if address is not None else None
    return address, mask
