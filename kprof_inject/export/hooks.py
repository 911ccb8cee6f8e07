"""Users' own functions in traces: further arguments of scopes, counters, and arrows between scopes.

A decorator makes a function a hook; ``export(..., hooks=[...])`` and ``trace --hooks FILE`` have traces drawn with it.
"""

from __future__ import annotations

import linecache
import runpy
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kprof_inject.errors import KprofError, Position

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from kprof_inject.timeline.timeline import Timeline

    ArgsFunction = Callable[[Timeline, NDArray[Any]], Mapping[str, ArrayLike]]
    CountersFunction = Callable[[Timeline], Mapping[str, tuple[ArrayLike, ArrayLike]]]
    ArrowsFunction = Callable[[Timeline], tuple[ArrayLike, ArrayLike]]


@dataclass(frozen=True, slots=True)
class Hook:
    """A function of the user's. It can be called as before."""

    function: Callable[..., Any]

    @property
    def name(self) -> str:
        return getattr(self.function, "__name__", type(self.function).__name__)

    def __call__(self, *arguments: Any) -> Any:
        return self.function(*arguments)

    def answer(self, *arguments: Any) -> Any:
        """What the function gives. Raises ``KprofError`` where it raises anything."""
        try:
            return self.function(*arguments)
        except (Exception, SystemExit) as error:
            where = _place_in(self._place.file, error) if self._place else None
            said = error.what if isinstance(error, KprofError) else f"{type(error).__name__}: {error}"
            raise self.failure(said, where) from error

    def failure(self, what: str, where: Position | None = None) -> KprofError:
        return KprofError(
            f"the hook {self.name} failed: {what}",
            where=where or self._place,
            hint="call it by itself: kprof_inject.load(CAPTURE).timeline is a launch, and its scopes are the rows",
        )

    @property
    def _place(self) -> Position | None:
        """Where it is defined."""
        code = getattr(self.function, "__code__", None)
        return _line_of(code.co_filename, code.co_firstlineno) if code else None


@dataclass(frozen=True, slots=True)
class ScopeArgs(Hook):
    """Further arguments of scopes: see ``scope_args``."""


@dataclass(frozen=True, slots=True)
class CounterValues(Hook):
    """Counters of a launch: see ``counters``."""

    unit: str = ""


@dataclass(frozen=True, slots=True)
class ScopeArrows(Hook):
    """Arrows between scopes: see ``arrows``."""


def scope_args(function: ArgsFunction) -> ScopeArgs:
    """``function(launch, scopes)`` gives further arguments of scopes: a column of numbers or texts for each name, with
    a row for each of ``scopes``.

    ``scopes`` has columns as ``launch.scopes``; it is called several times for a launch, with some of them each time. A
    masked value, and a number that is not finite, is left out."""
    return ScopeArgs(function)


def counters(unit: str) -> Callable[[CountersFunction], CounterValues]:
    """``function(launch)`` gives counters in ``unit``: for each name, times in nanoseconds of the device's globaltimer
    (as ``start_ns``), and the values from these times on."""
    if not isinstance(unit, str):
        raise KprofError("counters have a unit", hint='write @export.counters(unit="GB/s") above the function')
    return lambda function: CounterValues(function, unit)


def arrows(function: ArrowsFunction) -> ScopeArrows:
    """``function(launch)`` gives arrows: the rows of ``launch.scopes`` that they leave from, and those that they point
    to. They leave and arrive where scopes start."""
    return ScopeArrows(function)


def hooks_of(given: Hook | Sequence[Hook]) -> Sequence[Hook]:
    """One or several. Raises ``KprofError`` for anything else."""
    hooks = tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else (given,)
    for hook in hooks:
        if not isinstance(hook, Hook):
            raise KprofError(f"{getattr(hook, '__name__', repr(hook))} is not a hook", hint=_HOW)
    return hooks


_HOW = "decorate functions with kprof_inject.export.scope_args, counters(unit=...) or arrows"


def read_hooks(path: Path) -> Sequence[Hook]:
    """The hooks that a Python file defines, in its order. Raises ``KprofError`` if it has none, or cannot be run."""
    try:
        path.open("rb").close()
    except OSError as error:
        raise KprofError(f"cannot read {path}: {error.strerror}", hint="name a Python file") from None
    # As Python has it where it runs a file.
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
    """Where in this file it was raised, or what raised it was called."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return _line_of(file, frames[-1].lineno or 1) if frames else None


def _line_of(file: str, number: int) -> Position:
    text = linecache.getline(file, number).rstrip("\n")
    return Position(file, number, 1 + len(text) - len(text.lstrip()), text)
