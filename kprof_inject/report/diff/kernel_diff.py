"""What there is to say of two captures, kernel by kernel."""

from __future__ import annotations

from dataclasses import dataclass

from kprof_inject.report.diff.changes import Both
from kprof_inject.report.diff.figures import LaunchFigures
from kprof_inject.report.diff.matching import Unmatched
from kprof_inject.report.diff.runs import KernelRuns
from kprof_inject.report.diff.settings import Difference
from kprof_inject.report.diff.verdict import Clocks, Judged, Verdict


@dataclass(frozen=True, slots=True)
class ScopeChange:
    """One scope that is in both: figures are of a launch, the median of the launches. ``note`` says in what it is not
    the same scope, ``basis`` what ``judged`` is about. ``judged`` is None where there is nothing to compare: a mark, or
    a scope that ran on neither side or on one alone.

    ``explained`` is its own part of the change of all scopes together, None if that cannot be told."""

    name: str
    kind: str
    depth: int
    source_a: str
    source_b: str
    note: str
    basis: str
    compared_ns: Both
    count: Both
    total_ns: Both
    mean_ns: Both
    p50_ns: Both
    share: Both
    judged: Judged | None
    explained: float | None


@dataclass(frozen=True, slots=True, eq=False)
class KernelDiff:
    """A variant of a kernel in A and in B, launched with one grid on either side.

    ``recorded`` compares the launches with records, ``clean`` those without: None if there are none on a side, or they
    are the same ones. ``duration_ns`` and ``clean_ns`` are medians. ``warps`` are those that were compared, None for
    all; ``launches`` and ``processes`` how many there were of each side, ``left_out`` how many of the launches were
    left out for being the first of their process."""

    a: KernelRuns
    b: KernelRuns
    differences: tuple[Difference, ...]
    clocks: Clocks
    duration_ns: Both
    clean_ns: Both
    recorded: Judged
    clean: Judged | None
    clean_launches: tuple[int, int]
    same_clean_times: bool
    scopes: tuple[ScopeChange, ...]
    only_a: tuple[Unmatched, ...]
    only_b: tuple[Unmatched, ...]
    warps: tuple[int, ...] | None
    figures_a: tuple[LaunchFigures, ...]
    figures_b: tuple[LaunchFigures, ...]
    left_out: int

    @property
    def launch(self) -> Judged:
        """What is said of the launch as a whole: by its times without records, if they can tell."""
        return self.clean if self.clean is not None and self.clean.verdict is not Verdict.UNKNOWN else self.recorded

    @property
    def by_clean_times(self) -> bool:
        return self.launch is self.clean


@dataclass(frozen=True, slots=True, eq=False)
class CaptureDiff:
    """All kernels that are in both, and those of one side alone."""

    kernels: tuple[KernelDiff, ...]
    only_a: tuple[KernelRuns, ...]
    only_b: tuple[KernelRuns, ...]
