"""Arguments of a launch as plain numbers, which a capture keeps without the memory that they point to."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kprof_inject.capture.schema import MAX_ARGUMENT

HOOK_ARGUMENTS = 3
"""Arguments of Triton's launchers between the metadata and the kernel's own: the launch metadata for a profiler's
hooks, and the two hooks."""

Numbers = tuple[int | None, ...]
_CONSTANT = "constexpr"
_NO_NUMBER = (None,)
_INTEGER = re.compile(r"[iu]\d+$")


@dataclass(frozen=True, slots=True)
class ArgumentKinds:
    """Types of a kernel's arguments: names, and tuples of names for tuples.

    ``numbers`` runs at each launch. If all arguments are integers, floats and tensors, ``_places`` therefore lists the
    arguments to read, by the number of arguments: their indices (among all, or without the constants), and whether each
    is a tensor.
    """

    kinds: tuple[Any, ...]
    _places: dict[int, tuple[tuple[int, bool | None], ...]]

    @classmethod
    def of(cls, signature: Mapping[str, str]) -> ArgumentKinds:
        """Parse a kernel's signature, which maps argument names to types."""
        kinds = tuple(ast.literal_eval(kind) if kind.startswith("(") else kind for kind in signature.values())
        if not all(isinstance(kind, str) and not kind.startswith("tensordesc") for kind in kinds):
            return cls(kinds, {})
        parameters = [kind for kind in kinds if kind != _CONSTANT]
        among_all = tuple((place, _is_tensor(kind)) for place, kind in enumerate(kinds) if kind != _CONSTANT)
        # Inductor's launches omit the constants.
        return cls(kinds, {len(parameters): tuple(enumerate(map(_is_tensor, parameters))), len(kinds): among_all})

    def numbers(self, arguments: Sequence[Any]) -> Numbers:
        """Return the numbers of a launch, in the order of the compiled function's parameters.

        An integer is itself, a tensor its address, a descriptor its address, shape and strides; anything else is None.
        Constants are not parameters. The result is empty if ``arguments`` do not match the signature.
        """
        places = self._places.get(len(arguments))
        if places is not None:
            try:
                return tuple([_number(arguments[place], is_tensor) for place, is_tensor in places])
            except AttributeError:
                pass  # not a tensor, although Triton takes it for one
        kinds = self.kinds
        if len(arguments) != len(kinds):
            kinds = tuple(kind for kind in kinds if kind != _CONSTANT)
        if len(arguments) != len(kinds):
            return ()
        return tuple(_numbers(arguments, kinds))


def _is_tensor(kind: str) -> bool | None:
    """Return True for a tensor, False for an integer, None for any other type."""
    if kind.startswith("*"):
        return True
    return False if _INTEGER.match(kind) else None


def _number(argument: Any, is_tensor: bool | None) -> int | None:
    if is_tensor and argument.__class__ is not int:
        return int(argument.data_ptr())
    return int(argument) if is_tensor is not None and -MAX_ARGUMENT <= argument <= MAX_ARGUMENT else None


def _numbers(arguments: Sequence[Any], kinds: Sequence[Any]) -> Iterator[int | None]:
    for argument, kind in zip(arguments, kinds, strict=False):
        if kind == _CONSTANT:
            continue
        if isinstance(kind, tuple) and isinstance(argument, tuple | list):
            yield from _numbers(argument, kind)
        else:
            yield from _numbers_of(argument)


def _numbers_of(argument: Any) -> Numbers:
    if isinstance(argument, int):
        return (int(argument),) if -MAX_ARGUMENT <= argument <= MAX_ARGUMENT else _NO_NUMBER
    if hasattr(argument, "data_ptr"):
        return (argument.data_ptr(),)
    if hasattr(argument, "block_shape"):
        return (argument.base.data_ptr(), *map(int, argument.shape), *map(int, argument.strides))
    return _NO_NUMBER
