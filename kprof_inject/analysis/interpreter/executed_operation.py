"""An operation of a kernel as the CTAs of a launch execute it, and the predicate that may disable it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

from kprof_inject.analysis.interpreter.axis_arrays import ALWAYS, GridAxis, Mask, TooLarge, Value
from kprof_inject.ttgir.nodes import Operation
from kprof_inject.ttgir.ssa_values import bound_names, definition_of, names_in, operand_names


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
        """Number of executions with an effect, in all CTAs together; None if unknown."""
        if self.when is None or self.predicate is None:
            return None
        when = self.when & self.predicate
        try:
            return None if when.is_lower_bound else when.count(self.sizes)
        except TooLarge:
            return None


# The predicate's position among the operands, not counting those in brackets (a token, and the predicates of barriers);
# and in the generic form, the number of operand groups before it.
_PLACES = {"ttng.tc_gen5_mma": (4, 5), "ttng.tc_gen5_mma_scaled": (6, 7)}
_BRACKETS = re.compile(r"\[[^\]]*\]")
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
    """Return whether a predicate only tests that there is another iteration.

    The compiler's pipeliner makes such predicates: the operation runs ahead of its iteration. With its copies before
    the loop, it is executed once for each iteration.
    """
    loop = user.loop
    made = definition_of(bit, user)
    if made is not None and made.name == "tt.splat":
        names = operand_names(made)
        made = definition_of(names[0], made) if names else None
    if loop is None or made is None or made.name != "arith.cmpi":
        return False
    return operand_names(made)[:1] == bound_names(loop)[:1]
