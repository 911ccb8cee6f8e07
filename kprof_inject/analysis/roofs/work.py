"""What units have to do: added up over operations, and compared with what they can do in a cycle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Work:
    """Of one CTA, or of all: ``tensor_flops`` by the operands' type (all of 8 bits are ``f8``), and elements that are
    multiplied, added, or put through a special function, as floats of 32 bits; and bytes that are moved."""

    tensor_flops: Mapping[str, float] = field(default_factory=dict)
    special: float = 0
    multiplications: float = 0
    additions: float = 0
    logic: float = 0
    """Elements of 32 bits, integers and floats, that are compared, chosen or bounded; and integers that are shifted, or
    combined bit by bit."""
    integer_multiplications: float = 0
    upper_halves: float = 0
    """Of these, those that give the upper half of the product."""
    conversions: float = 0
    """Elements that become floats of 32 bits."""
    shared_bytes: float = 0
    """That go between shared memory, or the L1, and registers or tensor cores."""
    conflict_cycles: float = 0
    """That shared memory takes beyond those that its bytes need."""
    l2_bytes: float = 0
    """That come from the L2 to the SM."""

    def __add__(self, other: Work) -> Work:
        elements = dict.fromkeys((*self.tensor_flops, *other.tensor_flops))
        return Work(
            {one: self.tensor_flops.get(one, 0) + other.tensor_flops.get(one, 0) for one in elements},
            self.special + other.special,
            self.multiplications + other.multiplications,
            self.additions + other.additions,
            self.logic + other.logic,
            self.integer_multiplications + other.integer_multiplications,
            self.upper_halves + other.upper_halves,
            self.conversions + other.conversions,
            self.shared_bytes + other.shared_bytes,
            self.conflict_cycles + other.conflict_cycles,
            self.l2_bytes + other.l2_bytes,
        )

    def __mul__(self, times: float) -> Work:
        return Work(
            {element: times * flops for element, flops in self.tensor_flops.items()},
            times * self.special,
            times * self.multiplications,
            times * self.additions,
            times * self.logic,
            times * self.integer_multiplications,
            times * self.upper_halves,
            times * self.conversions,
            times * self.shared_bytes,
            times * self.conflict_cycles,
            times * self.l2_bytes,
        )


NO_WORK = Work()
