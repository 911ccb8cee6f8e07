"""What an operation of TTGIR has to do, from the types that it is printed with.

Everything here is a least: what a layout makes several threads do, and what the compiler adds, comes on top of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from kprof_inject.ttgir.nodes import Operation
from kprof_inject.ttgir.types import PrintedType, types_of


@dataclass(frozen=True, slots=True)
class Work:
    """Of one CTA, or of all: ``tensor_flops`` by the operands' type (all of 8 bits are ``f8``), and elements that are
    multiplied, added, or put through a special function, as floats of 32 bits."""

    tensor_flops: Mapping[str, float] = field(default_factory=dict)
    special: float = 0
    multiplications: float = 0
    additions: float = 0

    def __add__(self, other: Work) -> Work:
        elements = dict.fromkeys((*self.tensor_flops, *other.tensor_flops))
        return Work(
            {one: self.tensor_flops.get(one, 0) + other.tensor_flops.get(one, 0) for one in elements},
            self.special + other.special,
            self.multiplications + other.multiplications,
            self.additions + other.additions,
        )

    def __mul__(self, times: float) -> Work:
        return Work(
            {element: times * flops for element, flops in self.tensor_flops.items()},
            times * self.special,
            times * self.multiplications,
            times * self.additions,
        )


NO_WORK = Work()

# Each element takes one instruction of the special function unit, whatever else it takes: PTX ISA, "Floating Point
# Instructions" (ex2.approx, lg2.approx, rsqrt.approx, sqrt.approx, and the reciprocal in a division), to which Triton
# lowers these of f32.
_SPECIAL = """
    arith.divf math.exp math.exp2 math.log math.log2 math.rsqrt math.sqrt tt.approx_divf tt.precise_divf tt.precise_sqrt
"""
_OF_ELEMENT = {
    **dict.fromkeys(_SPECIAL.split(), Work(special=1)),
    "arith.mulf": Work(multiplications=1),
    "arith.addf": Work(additions=1),
    "arith.subf": Work(additions=1),
    "math.fma": Work(multiplications=1, additions=1),
}


def work_of(operation: Operation, aliases: Mapping[str, str]) -> Work:
    """Of one execution by a CTA. ``aliases`` are the module's."""
    if operation.name in _OF_ELEMENT:
        result = next(reversed(types_of(operation)), None)
        # Each thread computes a scalar, which is next to nothing.
        return _OF_ELEMENT[operation.name] * result.elements if result and _is_f32_tensor(result) else NO_WORK
    if operation.traits.is_dot:
        return _of_dot(operation, aliases)
    return _of_combination(operation) if operation.traits.combines_elements else NO_WORK


def _is_f32_tensor(result: PrintedType) -> bool:
    return result.element == "f32" and bool(result.shape)


def _of_combination(operation: Operation) -> Work:
    """A reduction does what its region says for each element that it takes, less those that it leaves; a scan does no
    less than that, and a map for each that it gives."""
    types = types_of(operation)
    if len(types) < 2 or not _is_f32_tensor(types[0]):
        return NO_WORK
    times = types[0].elements - types[-1].elements or types[-1].elements
    combined = NO_WORK
    for region in operation.regions:
        for inner in region.walk():
            combined += _OF_ELEMENT.get(inner.name, NO_WORK)
    return combined * times


_PRECISION = re.compile(r"\binputPrecision\s*=\s*(\w+)")
# Triton's ``InputPrecision``, which some operations print as a number: how often the tensor cores take operands of f32.
_PASSES = {"0": 1, "tf32": 1, "1": 3, "tf32x3": 3, "3": 3, "bf16x3": 3, "4": 6, "bf16x6": 6}
_IEEE = ("ieee", "2")
_FP4 = re.compile(r"\be2m1\b")
_TENSOR_LAYOUT = re.compile(r"mma|mfma")
_ALIAS = re.compile(r"#\w+")
# The layout of an operand names that of the dot, which may be a slice's.
_MOST_NESTED = 4


def _of_dot(operation: Operation, aliases: Mapping[str, str]) -> Work:
    types = types_of(operation)
    if len(types) < 3 or min(len(types[0].shape), len(types[1].shape)) < 2:
        return NO_WORK
    first, second = types[0], _second_operand(types)
    is_packed = first.element == "i8" and bool(_FP4.search(operation.tail))
    flops = 2 * first.elements * second.shape[-1] * (2 if is_packed else 1)
    if first.element != "f32":
        return Work({"f4" if is_packed else _family(first.element): flops})
    if operation.name == "tt.dot" and not _TENSOR_LAYOUT.search(_resolved(types[-1].rest, aliases)):
        return Work(multiplications=flops / 2, additions=flops / 2)
    found = _PRECISION.search(operation.tail)
    precision = found[1] if found else "tf32"
    if precision in _IEEE:
        return Work({"f32": flops})
    return Work({"tf32": flops * _PASSES.get(precision, 1)})


def _second_operand(types: tuple[PrintedType, ...]) -> PrintedType:
    """The first that the first operand can be multiplied by: before it may stand the type of a scale."""
    depth = types[0].shape[-1]
    return next((one for one in types[1:] if len(one.shape) > 1 and one.shape[-2] == depth), types[1])


def _family(element: str) -> str:
    return "f8" if element.startswith("f8") else element


def _resolved(layout: str, aliases: Mapping[str, str]) -> str:
    for _ in range(_MOST_NESTED):
        layout = _ALIAS.sub(lambda found: aliases.get(found[0], found[0]), layout)
    return layout
