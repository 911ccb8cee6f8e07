"""The integers that stand in a module's text as constants."""

from __future__ import annotations

import re

from kprof_inject.ttgir.nodes import Operation

# Attributes may stand before the value, or, in the generic form, around it: ``{async_task_id = array<i32: 0>} 5``,
# ``<{value = dense<5> : tensor<8xi32>}>``. Behind the digits of a float stands more.
_VALUE = re.compile(
    r"\s*(?:\(\) <\{value = |\{[^{}]*\} )?(?P<dense>dense<)?(?P<value>-?\d+|true|false)(?(dense)>)(?![\w.])"
)
# Triton has no wider integers.
_MIN_VALUE, _MAX_VALUE = -(1 << 63), (1 << 63) - 1


def constant_of(operation: Operation) -> int | None:
    """The integer that an operation gives, or that each element of its tensor is: a ``bool`` where that is one bit.
    None of what is no such constant."""
    found = _VALUE.match(operation.tail) if operation.traits.is_constant else None
    if found is None:
        return None
    if found["value"] in ("true", "false"):
        return found["value"] == "true"
    value = int(found["value"])
    return value if _MIN_VALUE <= value <= _MAX_VALUE else None
