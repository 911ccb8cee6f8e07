"""Integer constants in a module's text."""

from __future__ import annotations

import re

from kprof_inject.ttgir.nodes import Operation

# Attributes may precede the value or, in the generic form, enclose it: ``{async_task_id = array<i32: 0>} 5``,
# ``<{value = dense<5> : tensor<8xi32>}>``. A float has more characters after the digits.
_VALUE = re.compile(
    r"\s*(?:\(\) <\{value = |\{[^{}]*\} )?(?P<dense>dense<)?(?P<value>-?\d+|true|false)(?(dense)>)(?![\w.])"
)
# Triton has no wider integers.
_MIN_VALUE, _MAX_VALUE = -(1 << 63), (1 << 63) - 1


def constant_of(operation: Operation) -> int | None:
    """Return the value of an integer constant, or of each element of a constant tensor; None for anything else.

    A constant of one bit gives a ``bool``.
    """
    found = _VALUE.match(operation.tail) if operation.traits.is_constant else None
    if found is None:
        return None
    if found["value"] in ("true", "false"):
        return found["value"] == "true"
    value = int(found["value"])
    return value if _MIN_VALUE <= value <= _MAX_VALUE else None
