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
