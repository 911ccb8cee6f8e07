"""An operation of a kernel as the CTAs of a launch execute it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kprof_inject.analysis.interpreter.abstract_values import Value
from kprof_inject.analysis.interpreter.axis_arrays import ALWAYS, GridAxis, Mask, TooLarge
from kprof_inject.ttgir.nodes import Operation
from kprof_inject.ttgir.ssa_values import operand_names


@dataclass(frozen=True, slots=True)
class Executed:
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
        """Whether some executions may have no effect."""
        return self.predicate != ALWAYS

    @property
    def times(self) -> int | None:
        """How often it has an effect, in all CTAs together; None if unknown."""
        if self.when is None or self.predicate is None:
            return None
        when = self.when & self.predicate
        try:
            return None if when.is_lower_bound else when.count(self.sizes)
        except TooLarge:
            return None
