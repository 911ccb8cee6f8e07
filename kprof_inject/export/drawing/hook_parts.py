"""Parts that users' hooks add to the drawing of a launch."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from kprof_inject.export.drawing.scene import Arg, Arrows, Counters, Numbers, Picked, Reals, TraceProcess
from kprof_inject.export.hooks import CounterValues, Hook, ScopeArgs, ScopeArrows
from kprof_inject.timeline.axis import PlacedLaunch
from kprof_inject.timeline.timeline import Timeline

# The number of arrow IDs of each launch, above the IDs of the arrows that point to launches. JavaScript reads integers
# up to 2^53.
_ARROWS_PER_LAUNCH = 1 << 32


class ArrowEnds(Struct, frozen=True):
    """Ends of arrows of one ``name``: they leave the scopes in ``rows``, or (``arrive``) point to them.

    The two ends of an arrow have the same ID. ``at_ns`` are times on the axis.
    """

    name: str
    arrive: bool
    rows: Numbers
    ids: Numbers
    at_ns: Numbers


class LaunchHooks(Struct, frozen=True):
    """The hooks, and the number of a launch in its trace."""

    hooks: Sequence[Hook]
    number: int

    @property
    def counters(self) -> list[CounterValues]:
        """The hooks that add counters."""
        return [hook for hook in self.hooks if isinstance(hook, CounterValues)]

    def args(self, timeline: Timeline, block: NDArray[np.void], taken: Collection[str]) -> Iterator[Arg]:
        """Yield the further arguments of these scopes.

        Raises ``KprofError`` if a hook fails, if its result is not a column with a value for each scope, or if a name
        is ``taken``.
        """
        names = set(taken)
        # A hook that changed it would affect the next one.
        block = block.view()
        block.flags.writeable = False
        for hook in self.hooks:
            if isinstance(hook, ScopeArgs):
                for name, values in _named(hook, hook.answer(timeline, block)):
                    if name in names:
                        raise hook.failure(f"scopes already have an argument {name!r}")
                    names.add(name)
                    yield _arg(hook, name, values, len(block))

    def arrows(self, placed: PlacedLaunch) -> list[ArrowEnds]:
        """Return the hooks' arrows. Raises ``KprofError`` if a hook fails, or returns anything but rows of scopes."""
        hooks = [hook for hook in self.hooks if isinstance(hook, ScopeArrows)]
        return list(_hook_arrows(hooks, placed, self.number))


NO_HOOKS = LaunchHooks((), 0)


def hook_counters(
    hook: CounterValues, placed: PlacedLaunch, process: TraceProcess, _first_tid: int
) -> Iterator[Counters]:
    """Yield the counters of a hook. Raises ``KprofError`` if it fails, or does not return a time for each value."""
    for name, samples in _named(hook, hook.answer(placed.timeline)):
        what = f"the counter {name!r}"
        at, values = _two_columns(hook, what, "times and values", samples)
        if at.size and (at.dtype.kind not in "iu" or values.dtype.kind not in "biuf"):
            raise hook.failure(f"{what} needs a whole number of nanoseconds for each of its values, which are numbers")
        known = ~np.ma.getmaskarray(at) & ~np.ma.getmaskarray(values)
        known &= np.isfinite(values.filled(0).astype(np.float64))
        _require_within(hook, what, placed.timeline, at.data[known])
        at_ns, known_values = at.data[known].astype(np.int64), _numbers(values.data[known])
        order = np.argsort(at_ns, kind="stable")
        # The last of several values at the same time counts.
        order = order[np.diff(at_ns[order], append=at_ns.max(initial=0) + 1) != 0]
        counter = np.zeros(len(order), dtype=np.int64)
        yield Counters(process.pid, [name], hook.unit, counter, placed.clock.on_axis(at_ns[order]), known_values[order])


def _require_within(hook: Hook, what: str, timeline: Timeline, at_ns: NDArray[Any]) -> None:
    ends = [timeline.last_ns, *timeline.ctas["post_final_ns"].tolist()]
    if at_ns.size and (int(at_ns.min()) < timeline.first_ns or int(at_ns.max()) > max(ends)):
        raise hook.failure(
            f"{what} has times outside the launch: give times of the device's globaltimer, such as start_ns"
        )


def _hook_arrows(hooks: Sequence[ScopeArrows], placed: PlacedLaunch, number: int) -> Iterator[ArrowEnds]:
    """Yield both ends of the hooks' arrows between the scopes of a launch."""
    # All scopes are in memory at once only if there are hooks.
    starts_ns = placed.timeline.scopes["start_ns"].astype(np.int64) if hooks else np.empty(0, dtype=np.int64)
    at_ns = placed.clock.on_axis(starts_ns)
    first_id = (number + 1) * _ARROWS_PER_LAUNCH
    for hook in hooks:
        leave, arrive = _rows(hook, hook.answer(placed.timeline), len(starts_ns))
        # No viewer draws an arrow back in time, so such arrows are reversed.
        is_backward = starts_ns[arrive] < starts_ns[leave]
        leave, arrive = np.where(is_backward, arrive, leave), np.where(is_backward, leave, arrive)
        ids = first_id + np.arange(len(leave))
        first_id += len(leave)
        yield ArrowEnds(hook.name, False, leave, ids, at_ns[leave])
        yield ArrowEnds(hook.name, True, arrive, ids, at_ns[arrive])


def arrows_of_rows(ends: Sequence[ArrowEnds], first: int, count: int) -> Iterator[Arrows]:
    """Yield the arrows of some rows of a launch's scopes: several columns if a scope has several arrows."""
    for end in ends:
        here = np.flatnonzero((end.rows >= first) & (end.rows < first + count))
        while here.size:
            # The first remaining arrow of each row.
            _, chosen = np.unique(end.rows[here], return_index=True)
            firsts = here[chosen]
            ids, at_ns = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
            ids[end.rows[firsts] - first] = end.ids[firsts]
            at_ns[end.rows[firsts] - first] = end.at_ns[firsts]
            yield Arrows(ids, end.arrive, at_ns, end.name)
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
            raise hook.failure(f"{what} has values of type {_odd_type(values)}, not numbers or texts alone")
    return Arg(name, column, None if shown.all() else shown)


def _odd_type(values: Any) -> str:
    """Return the type that is neither number nor text among the values."""
    odd = next((value for value in values.compressed().tolist() if not isinstance(value, str)), "")
    return type(odd).__name__ if values.dtype == object else str(values.dtype)


def _column(hook: Hook, what: str, answer: Any) -> Any:
    try:
        return np.ma.asarray(answer)
    except (TypeError, ValueError) as error:
        raise hook.failure(f"{what} is not a column: {error}") from None


def _two_columns(hook: Hook, what: str, content: str, answer: Any) -> tuple[Any, Any]:
    """Return two columns of equal length; ``content`` describes them for the error."""
    try:
        left, right = answer
    except (TypeError, ValueError):
        raise hook.failure(f"{what} is not a pair of {content}") from None
    first, second = (np.ma.atleast_1d(_column(hook, what, part)) for part in (left, right))
    if first.shape != second.shape or first.ndim != 1:
        raise hook.failure(f"{what} is not a pair of {content}: their lengths are {first.size} and {second.size}")
    return first, second


def _numbers(values: NDArray[Any]) -> Numbers | Reals:
    """Return integers, or floats for integers of more than 63 bits, which are inexact."""
    maximum = np.iinfo(np.int64).max
    if values.dtype.kind == "f" or (values.size and (int(values.max()) > maximum or int(values.min()) < -maximum)):
        return values.astype(np.float64)
    return values.astype(np.int64)


def _rows(hook: Hook, answer: Any, count: int) -> tuple[Numbers, Numbers]:
    leave, arrive = _two_columns(hook, "its result", "rows that arrows leave and rows that they point to", answer)
    known = ~np.ma.getmaskarray(leave) & ~np.ma.getmaskarray(arrive)
    leave, arrive = leave.data[known], arrive.data[known]
    for rows in (leave, arrive):
        if rows.size and (rows.dtype.kind not in "iu" or rows.min() < 0 or rows.max() >= count):
            raise hook.failure(f"rows of scopes are whole numbers from 0 to {count - 1}")
    if (leave == arrive).any():
        raise hook.failure("an arrow leads from a scope to itself")
    return leave.astype(np.int64), arrive.astype(np.int64)
