"""The calls of helper functions that Triton has inlined, found again through the locations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath

from kprof_inject.select.functions import Function
from kprof_inject.select.places import Place
from kprof_inject.select.source.sources import Sources
from kprof_inject.ttgir.locations import Chain, SourcePoint


@dataclass(frozen=True, slots=True)
class Call:
    """One call of an inlined helper and the operations that came of it.

    ``name`` is the helper's, or without its source ``file.py:57``, the first line that is left of it. ``path`` leads
    from the call out to the kernel. ``source`` is where the helper begins, as far as that is known."""

    name: str
    source: SourcePoint
    path: Chain
    places: tuple[Place, ...]


def inlined_calls(function: Function, sources: Sources) -> Iterator[Call]:
    """Every inlined call in a function, of helpers of helpers too, in the order of their first operations."""
    places: dict[Chain, dict[Place, None]] = {}
    written: dict[Chain, set[SourcePoint]] = {}
    for place in function.places:
        for chain in function.chains_of(place.operation):
            for depth in range(1, len(chain)):
                path = chain[depth:]
                places.setdefault(path, {})[place] = None
                written.setdefault(path, set()).add(chain[depth - 1])
    for path, found in places.items():
        name, source = _helper(written[path], sources)
        yield Call(name, source, path, tuple(found))


def _helper(written: set[SourcePoint], sources: Sources) -> tuple[str, SourcePoint]:
    points = sorted(written, key=lambda point: (point.file, point.line, point.column))
    for point in points:
        helper = sources.function_at(point.file, point.line)
        if helper is not None:
            return helper.name, SourcePoint(helper.file, helper.def_line, 0)
    return f"{PurePath(points[0].file).name}:{points[0].line}", points[0]
