"""Grids as users name them: an expression of a launch's integer arguments and the kernel's constants."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping

from kprof_inject.capture.edits import grid_of
from kprof_inject.capture.saved_launch import IntegerArgument, SavedLaunch, parameters
from kprof_inject.capture.schema import Grid
from kprof_inject.errors import KprofError, Position

_OPTION = "--grid"
_FORMS = "an expression such as cdiv(M, BLOCK_M) * cdiv(N, BLOCK_N), or up to three with commas between them"
_MAX_LENGTH = 1 << 10

_OPERATORS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def _cdiv(dividend: int, divisor: int) -> int:
    return -(-dividend // divisor)


_FUNCTIONS: Mapping[str, Callable[..., int]] = {"cdiv": _cdiv, "min": min, "max": max}


def numbers_of(saved: SavedLaunch) -> dict[str, int]:
    """Return the integer arguments and constants of a saved launch, by name."""
    named = zip(parameters(saved), saved.record.arguments, strict=True)
    found = {name: int(one.value) for (name, _), one in named if isinstance(one, IntegerArgument)}
    constants = saved.kernel.constants.items()
    return {**{name: int(text) for name, text in constants if text.lstrip("-").isdecimal()}, **found}


def named_grid(expression: str, numbers: Mapping[str, int]) -> Grid:
    """Return the grid that an expression gives. Raises ``KprofError``."""
    try:
        tree = ast.parse(expression[:_MAX_LENGTH].strip(), mode="eval").body
        parts = tree.elts if isinstance(tree, ast.Tuple) else [tree]
        sizes = [_value(part, numbers, expression) for part in parts]
    except (SyntaxError, ValueError, ArithmeticError, RecursionError, MemoryError, TypeError) as error:
        raise _error(expression, 0, f"cannot compute the grid {expression!r}: {error}", _FORMS) from None
    if (grid := grid_of(sizes)) is None:
        raise _error(expression, 0, f"the grid {sizes} is none of one to three sizes from 1", _FORMS)
    return grid


def _value(node: ast.expr, numbers: Mapping[str, int], text: str) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.Name):
        if node.id not in numbers:
            known = ", ".join(sorted(numbers)) or "none"
            raise _error(text, node.col_offset, f"{node.id} is no number of the launch", f"these are: {known}")
        return numbers[node.id]
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_value(node.left, numbers, text), _value(node.right, numbers, text))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute) and not node.keywords:
        name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr  # triton.cdiv is cdiv
        if name in _FUNCTIONS:
            return _FUNCTIONS[name](*(_value(argument, numbers, text) for argument in node.args))
    raise _error(text, node.col_offset, "a grid cannot have this", f"it has +, -, *, //, %, {', '.join(_FUNCTIONS)}")


def _error(text: str, offset: int, what: str, hint: str) -> KprofError:
    return KprofError(what, where=Position(_OPTION, 1, offset + 1, text), hint=hint, exit_code=2)
