"""Users' own functions that add to traces: arguments of scopes, counters, and arrows between scopes.

A decorator makes a function a hook; ``export(..., hooks=[...])`` and ``trace --hooks FILE`` use it for their traces.
"""

from __future__ import annotations

import dataclasses
import linecache
import runpy
import sys
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from kprof_inject.errors import KprofError, Position
from kprof_inject.export.events import Arg, Arrows, Counters, Picked, Process
from kprof_inject.timeline.columns import Numbers, Reals, Rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kprof_inject.timeline.axis import PlacedLaunch
    from kprof_inject.timeline.timeline import Timeline

# The number of arrow IDs of each launch, above the IDs of the arrows that point to launches. JavaScript reads integers
# up to 2^53.
_ARROWS_PER_LAUNCH = 1 << 32


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
    """A hook ``function(launch, scopes)`` that adds arguments to scopes.

    It returns a column of numbers or texts for each argument's name, with a row for each of ``scopes``, whose columns
    are those of ``launch.scopes``. It is called several times for a launch, with some of the scopes each time. Masked
    values, and numbers that are not finite, are omitted.
    """


class CounterValues(Hook, frozen=True):
    """A hook ``function(launch)`` that adds counters in ``unit``.

    It returns, for each counter's name, times in nanoseconds of the device's globaltimer (as ``start_ns``), and the
    values from these times on.
    """

    unit: str = ""


class ScopeArrows(Hook, frozen=True):
    """A hook ``function(launch)`` that returns the rows of ``launch.scopes`` at whose starts arrows begin, and end."""


def counters(unit: str) -> Callable[[Callable[..., Any]], CounterValues]:
    """Make a function a hook that adds counters in ``unit``: see ``CounterValues``."""
    if not isinstance(unit, str):
        raise KprofError("counters need a unit", hint='write @export.counters(unit="GB/s") above the function')
    return lambda function: CounterValues(function, unit)


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
        where = dataclasses.replace(where, column=error.offset or 1, text=where.text or (error.text or "").rstrip("\n"))
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
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return _line_of(file, frames[-1].lineno or 1) if frames else None


def _line_of(file: str, number: int) -> Position:
    text = linecache.getline(file, number).rstrip("\n")
    return Position(file, number, 1 + len(text) - len(text.lstrip()), text)


def args_of(hooks: Iterable[Hook], launch: Timeline, scopes: Rows, taken: Collection[str]) -> Iterator[Arg]:
    """Yield the further arguments of these scopes. Raises ``KprofError`` if a hook fails, or if a name is ``taken``."""
    names = set(taken)
    # A hook that changed it would affect the next one.
    scopes = scopes.view()
    scopes.flags.writeable = False
    for hook in hooks:
        if isinstance(hook, ScopeArgs):
            for name, values in _named(hook, hook.answer(launch, scopes)):
                if name in names:
                    raise hook.failure(f"scopes already have an argument {name!r}")
                names.add(name)
                yield _arg(hook, name, values, len(scopes))


def counters_of(hook: CounterValues, placed: PlacedLaunch, process: Process) -> Iterator[Counters]:
    """Yield the counters of a hook. Raises ``KprofError`` if it fails, or returns times outside the launch."""
    launch = placed.timeline
    for name, samples in _named(hook, hook.answer(launch)):
        what = f"the counter {name!r}"
        at, values = _two_columns(hook, what, "times and values", samples)
        if at.size and (at.dtype.kind not in "iu" or values.dtype.kind not in "biuf"):
            raise hook.failure(f"{what} needs a whole number of nanoseconds for each of its values, which are numbers")
        known = ~np.ma.getmaskarray(at) & ~np.ma.getmaskarray(values)
        known &= np.isfinite(values.filled(0).astype(np.float64))
        at_ns, known_values = at.data[known], _numbers(values.data[known])
        last_ns = max([launch.last_ns, *launch.ctas["post_final_ns"].tolist()])
        if at_ns.size and (int(at_ns.min()) < launch.first_ns or int(at_ns.max()) > last_ns):
            raise hook.failure(
                f"{what} has times outside the launch: give times of the device's globaltimer, such as start_ns"
            )
        at_ns = at_ns.astype(np.int64)
        order = np.argsort(at_ns, kind="stable")
        # The last of several values at the same time counts.
        order = order[np.diff(at_ns[order], append=at_ns.max(initial=0) + 1) != 0]
        on_axis_ns = placed.clock.on_axis(at_ns[order])
        yield Counters(process.pid, [name], hook.unit, np.zeros_like(order), on_axis_ns, known_values[order])


def hook_arrows(hooks: Iterable[Hook], placed: PlacedLaunch, number: int) -> Iterator[tuple[Numbers, Arrows]]:
    """Yield both ends of the hooks' arrows in launch ``number``: rows of its scopes, and the arrow of each."""
    first_id = (number + 1) * _ARROWS_PER_LAUNCH
    of_scopes = [hook for hook in hooks if isinstance(hook, ScopeArrows)]
    # All scopes are in memory at once only if there are such hooks.
    starts_ns = placed.timeline.scopes["start_ns"].astype(np.int64) if of_scopes else np.empty(0, np.int64)
    at_ns = placed.clock.on_axis(starts_ns)
    for hook in of_scopes:
        content = "rows that arrows leave and rows that they point to"
        leave, arrive = _two_columns(hook, "its result", content, hook.answer(placed.timeline))
        known = ~np.ma.getmaskarray(leave) & ~np.ma.getmaskarray(arrive)
        leave, arrive = leave.data[known], arrive.data[known]
        for rows in (leave, arrive):
            if rows.size and (rows.dtype.kind not in "iu" or rows.min() < 0 or rows.max() >= len(starts_ns)):
                raise hook.failure(f"rows of scopes are whole numbers from 0 to {len(starts_ns) - 1}")
        if (leave == arrive).any():
            raise hook.failure("an arrow leads from a scope to itself")
        leave, arrive = leave.astype(np.int64), arrive.astype(np.int64)
        # No viewer draws an arrow back in time, so such arrows are reversed.
        is_backward = starts_ns[arrive] < starts_ns[leave]
        leave, arrive = np.where(is_backward, arrive, leave), np.where(is_backward, leave, arrive)
        ids = first_id + np.arange(len(leave))
        first_id += len(leave)
        yield leave, Arrows(ids, False, at_ns[leave], hook.name)
        yield arrive, Arrows(ids, True, at_ns[arrive], hook.name)


def arrows_of_rows(ends: Iterable[tuple[Numbers, Arrows]], first: int, count: int) -> Iterator[Arrows]:
    """Yield the arrows of some rows of a launch's scopes: several columns if a scope has several arrows."""
    for rows, arrows in ends:
        here = np.flatnonzero((rows >= first) & (rows < first + count))
        while here.size:
            # The first remaining arrow of each row.
            _, chosen = np.unique(rows[here], return_index=True)
            firsts = here[chosen]
            ids, at_ns = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
            ids[rows[firsts] - first] = arrows.ids[firsts]
            at_ns[rows[firsts] - first] = arrows.at_ns[firsts]
            yield replace(arrows, ids=ids, at_ns=at_ns)
            here = np.delete(here, chosen)


def _named(hook: Hook, answer: Any) -> Iterator[tuple[str, Any]]:
    if not isinstance(answer, Mapping):
        raise hook.failure(f"it returned {type(answer).__name__}, not a dict of columns by name")
    for name, values in answer.items():
        yield str(name), values


def _arg(hook: Hook, name: str, answer: Any, count: int) -> Arg:
    what = f"the argument {name!r}"
    values = _column(hook, what, answer)
    if values.shape != (count,):
        shape = " x ".join(map(str, values.shape)) or "one value"
        raise hook.failure(f"{what} needs {count} values, one for each scope, and has {shape}")
    shown = ~np.ma.getmaskarray(values)
    match values.dtype.kind:
        case "b" | "i" | "u":
            column: Numbers | Reals | Picked = _numbers(values.filled(0))
        case "f":
            reals = values.filled(np.nan).astype(np.float64)
            shown &= np.isfinite(reals)
            column = np.where(shown, reals, 0.0)
        case "U" | "O" if all(isinstance(text, str) for text in values.filled("").tolist()):
            texts, index = np.unique(values.filled("").astype(str), return_inverse=True)
            column = Picked(texts.tolist(), index.astype(np.int64))
        case _:
            odd = next((value for value in values.compressed().tolist() if not isinstance(value, str)), "")
            kind = type(odd).__name__ if values.dtype == object else str(values.dtype)
            raise hook.failure(f"{what} has values of type {kind}, not numbers or texts alone")
    return Arg(name, column, None if shown.all() else shown)


def _column(hook: Hook, what: str, answer: Any) -> Any:
    try:
        return np.ma.asarray(answer)
    except (TypeError, ValueError) as error:
        raise hook.failure(f"{what} is not a column: {error}") from None


def _two_columns(hook: Hook, what: str, content: str, answer: Any) -> tuple[Any, Any]:
    try:
        left, right = answer
    except (TypeError, ValueError):
        raise hook.failure(f"{what} is not a pair of {content}") from None
    first, second = (np.ma.atleast_1d(_column(hook, what, part)) for part in (left, right))
    if first.shape != second.shape or first.ndim != 1:
        raise hook.failure(f"{what} is not a pair of {content}: their lengths are {first.size} and {second.size}")
    return first, second


def _numbers(values: NDArray[Any]) -> NDArray[Any]:
    """Return integers, or floats for integers of more than 63 bits, which are inexact."""
    maximum = np.iinfo(np.int64).max
    if values.dtype.kind == "f" or (values.size and (int(values.max()) > maximum or int(values.min()) < -maximum)):
        return values.astype(np.float64)
    return values.astype(np.int64)
