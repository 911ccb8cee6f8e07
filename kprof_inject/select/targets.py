"""What each kind of selector finds in a module: one class for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Protocol

from kprof_inject.select.filters import LoopFilter, SourceLines, loop_findings
from kprof_inject.select.functions import Function, Loop
from kprof_inject.select.marked import findings_of
from kprof_inject.select.sites import Findings, Missed, Site
from kprof_inject.select.spans import Group, Spread, span
from kprof_inject.select.view import ModuleView


class Target(Protocol):
    """The SITE part of a selector."""

    def find(self, view: ModuleView, spread: Spread) -> Findings:
        """The sites of this kind in a module, in the order of the text; ``spread`` is for those that lines select."""
        ...


@dataclass(frozen=True, slots=True)
class Func:
    """``func``: the kernel function's whole body."""

    def find(self, view: ModuleView, spread: Spread) -> Findings:
        return Findings.together([f.findings([f.body_site()]) for f in view.functions if f.is_public])


@dataclass(frozen=True, slots=True)
class Helper:
    """``func(NAME)``: every call of a helper function, inlined or not; of the kernel's own name, its body."""

    name: str

    def find(self, view: ModuleView, spread: Spread) -> Findings:
        bodies = [f.findings([f.body_site()]) for f in view.functions if f.is_public and self._means(view, f)]
        inlined = [
            span(
                Group(function, "func", f"{call.name}@{call.path[0].line}", call.places, call.source, call.path),
                spread,
            )
            for function, call in view.inlined_calls
            if fnmatchcase(call.name, self.name)
        ]
        kept = [call.findings() for call in view.kept_calls if fnmatchcase(call.name, self.name)]
        return Findings.together([*bodies, *inlined, *kept])

    def _means(self, view: ModuleView, function: Function) -> bool:
        return fnmatchcase(view.helper_names[function.symbol], self.name) or fnmatchcase(function.symbol, self.name)


@dataclass(frozen=True, slots=True)
class Loops:
    """``loop…``: around loops."""

    which: LoopFilter

    def find(self, view: ModuleView, spread: Spread) -> Findings:
        return _loop_findings(self.which, view, Function.loop_site)


@dataclass(frozen=True, slots=True)
class Iterations:
    """``iter…``: each iteration of loops."""

    which: LoopFilter

    def find(self, view: ModuleView, spread: Spread) -> Findings:
        return _loop_findings(self.which, view, Function.iteration_site)


def _loop_findings(which: LoopFilter, view: ModuleView, site_of: Callable[[Function, Loop], Site]) -> Findings:
    return Findings.first_of(
        Findings.together([loop_findings(function, reading, site_of) for function in view.functions])
        for reading in which.readings(view.kernel_file)
    )


@dataclass(frozen=True, slots=True)
class Ops:
    """``op(GLOB)``: around each operation of that name."""

    glob: str

    def find(self, view: ModuleView, spread: Spread) -> Findings:
        sites: list[Site] = []
        missed: list[Missed] = []
        covered: set[int] = set()
        for function in view.functions:
            for place in function.places:
                if not fnmatchcase(place.operation.name, self.glob):
                    continue
                if place.refusal:
                    missed.append(Missed(place.operation, place.refusal))
                else:
                    sites.append(function.operation_site(place))
                    covered.add(place.operation.start)
        return Findings(tuple(sites), tuple(missed), frozenset(covered))


@dataclass(frozen=True, slots=True)
class Lines:
    """``line(…)``: the operations that come from these source lines."""

    which: SourceLines

    def find(self, view: ModuleView, spread: Spread) -> Findings:
        label = f"line({self.which.text})"
        return Findings.first_of(
            Findings.together(
                [span(group, spread) for f in view.functions for group in lines.groups_in(f, "line", label)]
            )
            for lines in self.which.readings(view.kernel_file)
        )


@dataclass(frozen=True, slots=True)
class Partitions:
    """``partition[N]`` and ``default``: regions of ``ttg.warp_specialize``, by what selectors call them."""

    glob: str

    def find(self, view: ModuleView, spread: Spread) -> Findings:
        return Findings.together([function.findings(list(self._sites_in(function))) for function in view.functions])

    def _sites_in(self, function: Function) -> Iterator[Site]:
        for label, operation, region in function.partitions():
            if fnmatchcase(label, self.glob):
                yield function.region_site("partition", label, operation, region, "partition")


@dataclass(frozen=True, slots=True)
class Markers:
    """``marker``, ``marker(GLOB)``: marker comments in the kernel's source."""

    glob: str

    def find(self, view: ModuleView, spread: Spread) -> Findings:
        wanted = [marker for marker in view.markers if fnmatchcase(marker.name, self.glob)]
        return Findings.together([findings_of(marker, view, spread) for marker in wanted])
