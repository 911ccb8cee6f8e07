"""What there is to say of two captures, kernel by kernel."""

from __future__ import annotations

from dataclasses import dataclass

from kprof_inject.report.diff.changes import Both
from kprof_inject.report.diff.figures import LaunchFigures
from kprof_inject.report.diff.matching import Unmatched
from kprof_inject.report.diff.runs import KernelRuns
from kprof_inject.report.diff.settings import Difference
from kprof_inject.report.diff.verdict import Clocks, Judged, decisive


@dataclass(frozen=True, slots=True)
class ScopeChange:
    """One scope that is in both: figures are of a launch, the median of the launches. ``note`` says in what it is not
    the same scope, ``basis`` what ``judged`` is about. ``judged`` is None where there is nothing to compare: a mark, or
    a scope that ran on neither side. ``partition`` is the name of the partition that runs it in B, empty if there are
    none.

    ``explained`` is its own part of the launch's change, None if that did not change or it cannot be told."""

    name: str
    kind: str
    partition: str
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

    @property
    def title(self) -> str:
        """Its name, and of an outermost scope whose it is."""
        return f"{self.name} ({self.partition})" if self.partition and not self.depth else self.name


@dataclass(frozen=True, slots=True, eq=False)
class KernelDiff:
    """A variant of a kernel in A and in B, launched with one grid on either side.

    ``recorded`` compares the launches with records, ``clean`` those without: None if there are none on a side, or they
    are the same ones; ``clean_launches`` is how many there were. ``duration_ns`` and ``clean_ns`` are medians.
    ``by_scopes_percent`` is by how much the launch would take longer if nothing but its scopes had changed; None if it
    did not change, or that cannot be told. ``warps`` are those that were compared, None for all. ``figures_a`` and
    ``figures_b`` are of the launches with records; ``left_out`` others of both sides are not among them, for each was
    the first of its process. ``only_a`` and ``only_b`` are scopes."""

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
    by_scopes_percent: float | None
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
        return decisive(self.recorded, self.clean)

    @property
    def by_clean_times(self) -> bool:
        return self.launch is self.clean


@dataclass(frozen=True, slots=True, eq=False)
class CaptureDiff:
    """All kernels that are in both, and those of one side alone."""

    kernels: tuple[KernelDiff, ...]
    only_a: tuple[KernelRuns, ...]
    only_b: tuple[KernelRuns, ...]
