"""Users' own functions that add to traces: arguments of scopes, counters, and arrows between scopes.

A decorator makes a function a hook; ``export(..., hooks=[...])`` and ``trace --hooks FILE`` use it for their traces.
"""

from __future__ import annotations

import linecache
import runpy
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from kprof_inject.errors import KprofError, Position

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from kprof_inject.timeline.timeline import Timeline

    ArgsFunction = Callable[[Timeline, NDArray[Any]], Mapping[str, ArrayLike]]
    CountersFunction = Callable[[Timeline], Mapping[str, tuple[ArrayLike, ArrayLike]]]
    ArrowsFunction = Callable[[Timeline], tuple[ArrayLike, ArrayLike]]


class Hook(Struct, frozen=True):
    """A function of the user's, which can be called as before."""

    function: Callable[..., Any]

    @property
    def name(self) -> str:
        """The function's name."""
        return getattr(self.function, "__name__", type(self.function).__name__)

    def __call__(self, *arguments: Any) -> Any:
        """Call the function."""
        return self.function(*arguments)

    def answer(self, *arguments: Any) -> Any:
        """Return the function's result. Raises ``KprofError`` for anything that it raises."""
        try:
            return self.function(*arguments)
        except (Exception, SystemExit) as error:
            where = _place_in(self._place.file, error) if self._place else None
            message = error.what if isinstance(error, KprofError) else f"{type(error).__name__}: {error}"
            raise self.failure(message, where) from error

    def failure(self, what: str, where: Position | None = None) -> KprofError:
        """Return the error for a wrong result."""
        return KprofError(
            f"the hook {self.name} failed: {what}",
            where=where or self._place,
            hint="call it by itself: kprof_inject.load(CAPTURE).timeline is a launch, and its scopes are the rows",
        )

    @property
    def _place(self) -> Position | None:
        code = getattr(self.function, "__code__", None)
        return _line_of(code.co_filename, code.co_firstlineno) if code else None


class ScopeArgs(Hook, frozen=True):
    """A hook that adds arguments to scopes: see ``scope_args``."""


class CounterValues(Hook, frozen=True):
    """A hook that adds counters to a launch: see ``counters``."""

    unit: str = ""


class ScopeArrows(Hook, frozen=True):
    """A hook that adds arrows between scopes: see ``arrows``."""


def scope_args(function: ArgsFunction) -> ScopeArgs:
    """Make ``function(launch, scopes)`` a hook that adds arguments to scopes.

    It returns a column of numbers or texts for each argument's name, with a row for each of ``scopes``, whose columns
    are those of ``launch.scopes``. It is called several times for a launch, with some of the scopes each time. Masked
    values, and numbers that are not finite, are omitted.
    """
    return ScopeArgs(function)


def counters(unit: str) -> Callable[[CountersFunction], CounterValues]:
    """Make ``function(launch)`` a hook that adds counters in ``unit``.

    It returns, for each counter's name, times in nanoseconds of the device's globaltimer (as ``start_ns``), and the
    values from these times on.
    """
    if not isinstance(unit, str):
        raise KprofError("counters need a unit", hint='write @export.counters(unit="GB/s") above the function')
    return lambda function: CounterValues(function, unit)


def arrows(function: ArrowsFunction) -> ScopeArrows:
    """Make ``function(launch)`` a hook that adds arrows.

    It returns the rows of ``launch.scopes`` where arrows begin, and those where they end: at the scopes' starts.
    """
    return ScopeArrows(function)


def hooks_of(given: Hook | Sequence[Hook]) -> Sequence[Hook]:
    """Return one or several hooks as a sequence. Raises ``KprofError`` for anything else."""
    hooks = tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else (given,)
    for hook in hooks:
        if not isinstance(hook, Hook):
            raise KprofError(f"{getattr(hook, '__name__', repr(hook))} is not a hook", hint=_HOW)
    return hooks


_HOW = "decorate functions with kprof_inject.export.scope_args, counters(unit=...) or arrows"


def read_hooks(path: Path) -> Sequence[Hook]:
    """Return the hooks that a Python file defines, in order. Raises ``KprofError`` if it has none or fails to run."""
    try:
        path.open("rb").close()
    except OSError as error:
        raise KprofError(f"cannot read {path}: {error.strerror}", hint="name a Python file") from None
    # As Python does when it runs a file.
    sys.path.insert(0, str(path.parent.resolve()))
    try:
        found = runpy.run_path(str(path))
    except SyntaxError as error:
        where = _line_of(error.filename or str(path), error.lineno or 1)
        where = replace(where, column=error.offset or 1, text=where.text or (error.text or "").rstrip("\n"))
        raise KprofError(f"not Python: {error.msg}", where=where) from None
    except KprofError as error:
        raise KprofError(error.what, where=_place_in(str(path), error), hint=error.hint) from error
    except (Exception, SystemExit) as error:
        raise KprofError(
            f"{path} failed: {type(error).__name__}: {error}", where=_place_in(str(path), error)
        ) from error
    hooks = list(dict.fromkeys(value for value in found.values() if isinstance(value, Hook)))
    if not hooks:
        raise KprofError(f"{path} defines no hook", hint=_HOW)
    return hooks


def _place_in(file: str, error: BaseException) -> Position | None:
    """Return the place in this file that raised the error, or that called what raised it."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return _line_of(file, frames[-1].lineno or 1) if frames else None


def _line_of(file: str, number: int) -> Position:
    text = linecache.getline(file, number).rstrip("\n")
    return Position(file, number, 1 + len(text) - len(text.lstrip()), text)
