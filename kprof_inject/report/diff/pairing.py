"""Which kernel of A is which of B: by name, and among variants of one name by what is nearest."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from kprof_inject.errors import KprofError
from kprof_inject.printable import printable
from kprof_inject.report.diff.runs import KernelRuns
from kprof_inject.report.diff.settings import config_of, distinct_names
from kprof_inject.report.quantities import counted

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
        raise _nothing_in_common(a, b)
    order = {id(runs): number for number, runs in enumerate(a)}
    return Pairing(tuple(sorted(pairs, key=lambda pair: order[id(pair[0])])), tuple(left_a), tuple(left_b))


def require_names(renamed: Mapping[str, str], a: Sequence[KernelRuns], b: Sequence[KernelRuns]) -> None:
    """Raise ``KprofError`` if a kernel or a variant is said to have another name, and A has none that is called the old
    one, or B none that is called the new one."""
    for side, names, runs in (("A", renamed, a), ("B", renamed.values(), b)):
        known = {name for one in runs for name in (one.kernel.name, one.kernel.variant)}
        for name in names:
            if name not in known:
                raise KprofError(
                    f"--renamed: {side} has no kernel {printable(name)}",
                    hint=f"write OLD=NEW, the names in A and in B; {side} has {_listed(runs)}",
                )


def _nothing_in_common(a: Sequence[KernelRuns], b: Sequence[KernelRuns]) -> KprofError:
    shared = {one.name for one in a} & {one.name for one in b} - {""}
    if not shared:
        return KprofError(
            f"A and B have no kernel in common: A has {_names(a)}; B has {_names(b)}",
            hint="compare captures of the same kernel; if its name has changed: --renamed OLD=NEW",
        )
    name = min(shared)
    left_a, left_b = ([one for one in side if one.name == name] for side in (a, b))
    called = distinct_names([*left_a, *left_b])
    old, new = left_a[0].kernel.variant, left_b[0].kernel.variant
    return KprofError(
        f"A has {len(left_a)} and B {counted(len(left_b), 'variant')} of {printable(name)}, and nothing tells which "
        f"belong together: A has {_shortened(called[: len(left_a)])}; B has {_shortened(called[len(left_a) :])}",
        hint=f"pair them by name: --renamed {printable(old)}={printable(new)}"
        if old != new
        else "keep launches of one grid on each side: --launch",
    )


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


def _listed(side: Sequence[KernelRuns]) -> str:
    """Each variant, so that it can be told from the others."""
    return _shortened(distinct_names(side))


def _names(side: Sequence[KernelRuns]) -> str:
    return _shortened([runs.kernel.name for runs in side])


def _shortened(words: Sequence[str]) -> str:
    names = list(dict.fromkeys(map(printable, words)))
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more
