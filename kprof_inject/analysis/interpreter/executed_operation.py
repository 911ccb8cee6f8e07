"""An operation of a kernel as the CTAs of a launch execute it, and the predicate that may disable it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from kprof_inject.analysis.interpreter.axis_arrays import ALWAYS, GridAxis, Mask, TooLarge, Value
from kprof_inject.ttgir.nodes import Operation
from kprof_inject.ttgir.ssa_values import bound_names, definition_of, names_in, operand_names


@dataclass(frozen=True, slots=True)
class Executed:
    """An operation as all CTAs execute it: the values that it is given, and when.

    ``sizes`` are the axes along which it is executed: CTAs, and the iterations of the loops around it. ``when`` says in
    which of these places it is; None if that is unknown. ``predicate`` says in which it does anything."""

    operation: Operation
    operands: tuple[Value, ...]
    sizes: Mapping[GridAxis, int]
    when: Mask | None
    predicate: Mask | None = ALWAYS

    @classmethod
    def unknown(cls, operation: Operation) -> Executed:
        """Make an operation of which only the text is known: in a function that is called, or nested too deep."""
        return cls(operation, (None,) * len(operand_names(operation)), {}, None)

    @property
    def is_predicated(self) -> bool:
        """It does nothing in some of its executions, as far as is known."""
        return self.predicate != ALWAYS

    @property
    def times(self) -> int | None:
        """How often it does something, all together; None if that is unknown."""
        if self.when is None or self.predicate is None:
            return None
        when = self.when & self.predicate
        try:
            return None if when.is_least else when.count(self.sizes)
        except TooLarge:
            return None


# The place of the bit, without what is in brackets: a token, and the bits of barriers. In the generic form, how many
# groups of operands stand before it.
_PLACES = {"ttng.tc_gen5_mma": (4, 5), "ttng.tc_gen5_mma_scaled": (6, 7)}
_BRACKETS = re.compile(r"\[[^\]]*\]")
_GROUP_SIZES = re.compile(r"\boperandSegmentSizes = array<i32: (\d{1,9}(?:, \d{1,9})*)>")


def predicate_of(operation: Operation) -> str | None:
    """The name of the bit; None of an operation that has none."""
    if operation.name not in _PLACES:
        return None
    place, groups = _PLACES[operation.name]
    names = names_in(_BRACKETS.sub("", operation.tail))
    if sizes := _GROUP_SIZES.search(operation.tail):
        names = operand_names(operation)
        place = sum(int(size) for size in sizes[1].split(",")[:groups])
    return names[place] if place < len(names) else None


def asks_for_iteration(bit: str, user: Operation) -> bool:
    """Whether all that a bit says is that there still is an iteration, as where the compiler's pipeliner has a loop
    work ahead: together with what stands before the loop, whatever an iteration needs is done, and nothing else."""
    loop = next((owner for owner in user.owners() if owner.traits.is_loop), None)
    made = definition_of(bit, user)
    if made is not None and made.name == "tt.splat":
        names = operand_names(made)
        made = definition_of(names[0], made) if names else None
    if loop is None or made is None or made.name != "arith.cmpi":
        return False
    return operand_names(made)[:1] == bound_names(loop)[:1]
