"""Operations whose operands, results, types or attributes do not fit each other.

No compiler makes them, but a damaged file may have them, and so may a Triton that prints an operation in another way.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

MISFITS = (ArithmeticError, LookupError, TypeError, ValueError)
"""Exceptions raised by reading such an operation: a missing operand, a list too short, a size of 0 or less."""

_Parameters = ParamSpec("_Parameters")
_Known = TypeVar("_Known")
_Unknown = TypeVar("_Unknown")


def if_misfit(
    unknown: _Unknown,
) -> Callable[[Callable[_Parameters, _Known]], Callable[_Parameters, _Known | _Unknown]]:
    """Make a function that reads an operation, or one of its types, return ``unknown`` for a misfit."""

    def guarded(read: Callable[_Parameters, _Known]) -> Callable[_Parameters, _Known | _Unknown]:
        @wraps(read)
        def guard(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Known | _Unknown:
            try:
                return read(*args, **kwargs)
            except MISFITS:
                return unknown

        return guard

    return guarded
