"""Grids that the program would use with other values of a kernel's constants, from the functions it launches with."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace
from triton.runtime.jit import JITFunction

from kprof_inject.capture.edits import OtherValues, grid_of
from kprof_inject.capture.schema import Grid
from kprof_inject.runtime.stack_room import ONE_FRAME


class _Launches(threading.local):
    """Launches that this thread is in the middle of, the innermost last."""

    def __init__(self) -> None:
        self.grids: list[Callable[[Mapping[str, Any]], Any]] = []


class ProgramGrids:
    """Grid functions of the launches that each thread is in the middle of."""

    def __init__(self) -> None:
        """Note the grid function of each launch from now on. Call this once in a process."""
        self._launches = _Launches()
        original, launches = JITFunction.run, self._launches

        @functools.wraps(original)
        def run(function: Any, *args: Any, grid: Any, warmup: Any, **kwargs: Any) -> Any:
            def grid_with(others: Mapping[str, Any]) -> Any:
                return grid({**_arguments(function, args, kwargs), **others}) if callable(grid) else None

            launches.grids.append(grid_with)
            try:
                with ONE_FRAME:
                    return original(function, *args, grid=grid, warmup=warmup, **kwargs)
            finally:
                launches.grids.pop()

        JITFunction.run = run

    def with_grids(self, others: Sequence[OtherValues], present: Grid) -> tuple[OtherValues, ...]:
        """Return other values with the grid that the launch of this thread would have with each.

        ``present`` is the launch's grid. A grid is None if the program gives no function, or that gives another grid
        for the present values, or fails.
        """
        grids = self._launches.grids
        if not grids or _grid_of(grids[-1], {}) != present:
            return tuple(others)
        return tuple(replace(one, grid=_grid_of(grids[-1], one.values)) for one in others)


def _arguments(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a launch by name, as grid functions get them."""
    own = {name: value for name, value in kwargs.items() if name in function.arg_names}
    bound = function.signature.bind(*args, **own)
    bound.apply_defaults()
    return dict(bound.arguments)


def _grid_of(function: Callable[[Mapping[str, Any]], Any], others: Mapping[str, Any]) -> Grid | None:
    try:
        return grid_of([int(size) for size in function(others)])
    except Exception:  # noqa: BLE001 (the program's function need not know other values)
        return None
