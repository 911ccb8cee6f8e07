"""Which kernel of A is which of B: by name, and among variants of one name by what is nearest."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass

from kprof_inject.errors import KprofError
from kprof_inject.printable import printable
from kprof_inject.report.diff.runs import KernelRuns
from kprof_inject.report.diff.settings import config_of

_MOST_NAMES = 12


@dataclass(frozen=True, slots=True)
class Pairing:
    """The pairs in A's order, and what has no partner."""

    pairs: tuple[tuple[KernelRuns, KernelRuns], ...]
    only_a: tuple[KernelRuns, ...]
    only_b: tuple[KernelRuns, ...]


# From the nearest on. A program launches the variants of a kernel in the same order, whatever was edited in it.
_KEYS: tuple[Callable[[KernelRuns], Hashable], ...] = (
    lambda runs: (runs.name, runs.kernel.variant, runs.grid),
    lambda runs: (runs.name, config_of(runs.kernel), runs.grid),
    lambda runs: (runs.name, runs.grid),
    lambda runs: (runs.name, config_of(runs.kernel)),
    lambda runs: runs.name,
)


def pair_runs(a: Sequence[KernelRuns], b: Sequence[KernelRuns]) -> Pairing:
    """Raises ``KprofError`` if no kernel of A is one of B, and says which there are."""
    pairs: list[tuple[KernelRuns, KernelRuns]] = []
    left_a, left_b = list(a), list(b)
    for key in _KEYS:
        for mine, theirs in _alike(left_a, left_b, key):
            pairs += zip(mine, theirs, strict=True)
        taken = {id(runs) for pair in pairs for runs in pair}
        left_a, left_b = ([runs for runs in left if id(runs) not in taken] for left in (left_a, left_b))
    if not pairs and len(a) == len(b) == 1 and not (a[0].name and b[0].name):
        # A Proton buffer tells no name: what the user gives is the same kernel.
        return Pairing(((a[0], b[0]),), (), ())
    if not pairs:
        raise KprofError(
            f"A and B have no kernel in common: A has {_names(a)}; B has {_names(b)}",
            hint="compare captures of the same kernel; if its name has changed: --renamed OLD=NEW",
        )
    order = {id(runs): number for number, runs in enumerate(a)}
    return Pairing(tuple(sorted(pairs, key=lambda pair: order[id(pair[0])])), tuple(left_a), tuple(left_b))


def _alike(
    a: Sequence[KernelRuns], b: Sequence[KernelRuns], key: Callable[[KernelRuns], Hashable]
) -> Iterable[tuple[list[KernelRuns], list[KernelRuns]]]:
    """The groups for which the key is equal, where both sides have as many."""
    groups_a, groups_b = _grouped(a, key), _grouped(b, key)
    return [(mine, groups_b[value]) for value, mine in groups_a.items() if len(mine) == len(groups_b.get(value, ()))]


def _grouped(found: Sequence[KernelRuns], key: Callable[[KernelRuns], Hashable]) -> dict[Hashable, list[KernelRuns]]:
    groups: dict[Hashable, list[KernelRuns]] = {}
    for runs in found:
        groups.setdefault(key(runs), []).append(runs)
    return groups


def _names(side: Sequence[KernelRuns]) -> str:
    names = list(dict.fromkeys(printable(runs.kernel.name) for runs in side))
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more
