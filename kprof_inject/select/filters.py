"""Which loops a subscript means, and which operations come from given source lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from kprof_inject.select.functions import Function, Loop
from kprof_inject.select.places import Place
from kprof_inject.select.sites import Findings, Missed, Site
from kprof_inject.select.source.sources import is_library
from kprof_inject.select.spans import Group
from kprof_inject.ttgir.locations import Chain, SourcePoint


class LoopFilter(Protocol):
    """Which loops a subscript means."""

    def accepts(self, loop: Loop, source: SourcePoint | None) -> bool: ...

    def readings(self, kernel_file: str) -> Sequence[LoopFilter]:
        """What it may mean in a kernel of this file: the first that finds something counts."""
        ...


def accepted_loops(function: Function, which: LoopFilter) -> Iterator[Loop]:
    """A function's loops that the filter accepts, in the order of the text."""
    for loop in function.loops():
        if which.accepts(loop, next(iter(function.source_of(loop.operation)), None)):
            yield loop


def loop_findings(function: Function, which: LoopFilter, site_of: Callable[[Function, Loop], Site]) -> Findings:
    """The same loops, each with the site that ``site_of`` makes of it."""
    sites, missed = [], []
    for loop in accepted_loops(function, which):
        if loop.place.refusal:
            missed.append(Missed(loop.operation, loop.place.refusal))
        else:
            sites.append(site_of(function, loop))
    return function.findings(sites, missed)


@dataclass(frozen=True, slots=True)
class EveryLoop:
    """No subscript: all loops."""

    def accepts(self, loop: Loop, source: SourcePoint | None) -> bool:
        return True

    def readings(self, kernel_file: str) -> tuple[EveryLoop]:
        return (self,)


@dataclass(frozen=True, slots=True)
class LoopPath:
    """``[0.2]``: the third loop inside the first."""

    path: tuple[int, ...]

    def accepts(self, loop: Loop, source: SourcePoint | None) -> bool:
        return loop.path == self.path

    def readings(self, kernel_file: str) -> tuple[LoopPath]:
        return (self,)


@dataclass(frozen=True, slots=True)
class SourceLines:
    """``file.py:57-63``: from the first to the last line.

    A ``file`` that is not absolute may be the end of a path; empty means any file but Triton's own."""

    file: str
    first: int
    last: int

    @property
    def text(self) -> str:
        lines = str(self.first) if self.first == self.last else f"{self.first}-{self.last}"
        return f"{self.file}:{lines}" if self.file else lines

    def holds(self, point: SourcePoint) -> bool:
        if not self.first <= point.line <= self.last:
            return False
        if not self.file:  # the user's own lines, not those of the same number in what they call
            return not is_library(point.file)
        return self.file == point.file or f"/{point.file}".endswith(f"/{self.file}")

    def readings(self, kernel_file: str) -> tuple[SourceLines, ...]:
        """Without a file: the lines of the kernel's own file, else those of any."""
        return (self,) if self.file else (replace(self, file=kernel_file), self)

    def accepts(self, loop: Loop, source: SourcePoint | None) -> bool:
        """``loop@57``: a loop that is written on these lines."""
        return source is not None and self.holds(source)

    def groups_in(self, function: Function, kind: str, label: str) -> Iterator[Group]:
        """The operations that come from these lines, apart for each way of calls that leads there.

        Code that the lines call belongs to them."""
        places: dict[Chain, list[Place]] = {}
        files: dict[Chain, str] = {}
        for place in function.places:
            for chain in function.chains_of(place.operation):
                depth = next((d for d in reversed(range(len(chain))) if self.holds(chain[d])), None)
                if depth is not None:
                    path = chain[depth + 1 :]
                    files.setdefault(path, chain[depth].file)
                    found = places.setdefault(path, [])
                    if not found or found[-1] is not place:
                        found.append(place)
        for path, found in places.items():
            yield Group(function, kind, label, tuple(found), SourcePoint(files[path], self.first, 0), path)
