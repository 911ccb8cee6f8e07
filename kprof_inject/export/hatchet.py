"""Proton's tree of metrics, for ``proton-viewer`` and Hatchet: cycles of each scope, summed over warps and launches.

Format: a list of the root frame and the facts of the devices, as Proton's ``TreeData.cpp`` writes it. For the metrics
that the root has, a reader sums a frame and all frames below it. So this file has exclusive values, and readers show
inclusive ones. (Proton's own files have inclusive values, so that nested scopes are counted twice.)
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from kprof_inject.capture.model import Launch, place_names
from kprof_inject.capture.scopes import ScopeKind, ScopeTable, distinct_names
from kprof_inject.errors import printable
from kprof_inject.timeline.nesting import innermost_around
from kprof_inject.timeline.partitions import partition_names
from kprof_inject.timeline.timeline import Timeline

_Numbers = NDArray[np.int64]

# Larger than the index of any record.
_WARP_SHIFT = 32

_NO_NAME = "(no name)"

# ``DeviceType`` in Proton's Device.h, which its metrics of cycles contain as text.
_DEVICE_TYPES = {"hip": "0", "cuda": "1"}


class Node(Struct, frozen=True):
    """A place in the tree of a launch's scopes."""

    path: tuple[int, ...]
    """Indices in the scope table, from the outermost scope to this one."""
    count: int
    """How many times it ran."""
    self_cycles: int | None
    """The cycles of all warps together, without those of inner nodes; None for a mark."""


def scope_tree(timeline: Timeline) -> list[Node]:
    """Return the nodes that ran, outer ones before inner ones.

    The nesting is that of the scope table if it has parents, whatever a ring lost; otherwise it is the nesting at run
    time. Scopes that cross overlap, so the time they share counts for both.
    """
    table = timeline.table
    is_planned = any(scope.parent >= 0 for scope in table.scopes)
    places: _ScopeNodes = _PlannedNodes(table) if is_planned else _ObservedNodes(table)
    is_instant = np.array([scope.kind == ScopeKind.INSTANT for scope in table.scopes], dtype=bool)
    counts, cycles = np.zeros((2, 0), dtype=np.int64)
    for block in timeline.blocks():
        node, within = places.of(block["scope"], _around(block))
        lasted: _Numbers = block["duration_cycles"]
        duration = np.where(is_instant[block["scope"]], 0, lasted)
        inside = within >= 0
        # Doubles hold these sums exactly: they are far below 2 ** 53 cycles.
        self_time = duration - np.bincount(within[inside], duration[inside], len(block))
        size = len(places.paths)
        counts = _grown(counts, size) + np.bincount(node, minlength=size)
        cycles = _grown(cycles, size) + np.rint(np.bincount(node, self_time, size)).astype(np.int64)
    return [
        Node(path, count, None if is_instant[path[-1]] else self_cycles)
        for path, count, self_cycles in zip(places.paths, counts.tolist(), cycles.tolist(), strict=False)
        if count
    ]


def _around(block: NDArray[np.void]) -> _Numbers:
    """Return the row of the innermost scope around each scope, or -1; the block may lack some of those that ran."""
    cta: NDArray[np.int32] = block["cta"]
    warp_of: NDArray[np.int16] = block["warp"]
    start_record: NDArray[np.int32] = block["start_record"]
    end_record: NDArray[np.int32] = block["end_record"]
    is_new_warp = (np.diff(cta) != 0) | (np.diff(warp_of) != 0)
    warp = np.concatenate((np.zeros(min(len(block), 1), dtype=np.int64), np.cumsum(is_new_warp))) << _WARP_SHIFT
    return innermost_around(warp + start_record, warp + end_record)


def _grown(totals: _Numbers, size: int) -> _Numbers:
    return np.pad(totals, (0, size - len(totals)))


class _ScopeNodes(Protocol):
    """A numbering of nodes; ``paths`` has the path of each."""

    @property
    def paths(self) -> list[tuple[int, ...]]: ...

    def of(self, scope: NDArray[np.int16], around: _Numbers) -> tuple[_Numbers, _Numbers]:
        """Return the nodes of these scopes, and for each the row of the scope that contains it in the tree, or -1.

        ``around`` is the row of the scope that contained each at run time, or -1.
        """
        ...


class _PlannedNodes:
    def __init__(self, table: ScopeTable) -> None:
        self.paths: list[tuple[int, ...]] = []
        for index, scope in enumerate(table.scopes):
            self.paths.append((*(self.paths[scope.parent] if scope.parent >= 0 else ()), index))
        self._is_in = np.array([[outer in path for outer in range(len(self.paths))] for path in self.paths], dtype=bool)

    def of(self, scope: NDArray[np.int16], around: _Numbers) -> tuple[_Numbers, _Numbers]:
        is_in = (around >= 0) & self._is_in[scope, scope[around]]
        return scope.astype(np.int64), np.where(is_in, around, -1)


class _ObservedNodes:
    """Nodes for each nesting of scopes at run time."""

    def __init__(self, table: ScopeTable) -> None:
        self.paths: list[tuple[int, ...]] = []
        self._nodes: dict[int, int] = {}
        self._scopes = len(table.scopes)

    def of(self, scope: NDArray[np.int16], around: _Numbers) -> tuple[_Numbers, _Numbers]:
        node = np.full(len(scope), -1)
        here = np.flatnonzero(around < 0)
        while here.size:
            outer = np.where(around[here] < 0, -1, node[around[here]])
            keys, which = np.unique((outer + 1) * self._scopes + scope[here], return_inverse=True)
            node[here] = np.array([self._node(key) for key in keys.tolist()])[which]
            here = np.flatnonzero((node < 0) & (node[around] >= 0))
        return node, around

    def _node(self, key: int) -> int:
        if key not in self._nodes:
            outer, scope = divmod(key, self._scopes)
            self._nodes[key] = len(self.paths)
            self.paths.append((*(self.paths[outer - 1] if outer else ()), scope))
        return self._nodes[key]


def hatchet_tree(timelines: Sequence[Timeline]) -> Iterator[bytes]:
    """Yield the file's bytes.

    Below the root are the kernels by name, with their launches summed, and in them the scopes. If launches come from
    several processes or devices, these contain the kernels. The scopes of a warp-specialised kernel are in their
    partitions.

    ``cycles`` are SM cycles of all warps together, without the cost of records; ``normalized_cycles`` are their average
    over the warps of a launch, summed over the launches. ``count`` is the number of times a scope ran or a kernel was
    launched; it is the only metric of marks.
    """
    root = _Frame("ROOT", {"cycles": 0, "normalized_cycles": 0})
    names = place_names(timeline.launch.place for timeline in timelines)
    for timeline in timelines:
        place = names[timeline.launch.place]
        kernel = (root.child(place) if place else root).child(_frame_name(timeline.launch.kernel.name))
        _add_launch(kernel, timeline)
    yield (json.dumps([root.to_json(), {}], indent=1) + "\n").encode()


class _Frame(Struct):
    name: str
    metrics: dict[str, Any] = field(default_factory=dict)
    children: dict[Hashable, _Frame] = field(default_factory=dict)

    def child(self, name: str, key: Hashable = None) -> _Frame:
        """Return the child with a key, which by default is its name; add it if there is none."""
        return self.children.setdefault(key or name, _Frame(name))

    def add(self, **metrics: int | float) -> None:
        """Add values to metrics."""
        for name, value in metrics.items():
            self.metrics[name] = self.metrics.get(name, 0) + value

    def to_json(self) -> dict[str, Any]:
        """Return the frame and its children as JSON values."""
        return {
            "frame": {"name": self.name, "type": "function"},
            "metrics": self.metrics,
            "children": [child.to_json() for child in self.children.values()],
        }


def _add_launch(kernel: _Frame, timeline: Timeline) -> None:
    scopes = timeline.table.scopes
    warps = len(timeline.ctas) * len(timeline.warps)
    kernel.add(count=1)
    partitions = partition_names(timeline.table)
    frames = _scope_frames(timeline.table)
    for node in scope_tree(timeline):
        outermost = node.path[0]
        frame = kernel.child(partitions[outermost]) if outermost in partitions else kernel
        for index in node.path:
            frame = frame.child(*frames[index])
        frame.add(count=node.count)
        if node.self_cycles is not None:
            frame.add(cycles=node.self_cycles, normalized_cycles=node.self_cycles / warps)
        frame.metrics |= _properties(timeline.launch, scopes[node.path[-1]].source)


def _scope_frames(table: ScopeTable) -> list[tuple[str, Hashable]]:
    """Return the name and the key of each scope's frame.

    Scopes with the same name in the same scope and partition are numbered, so that those of different launches match;
    their names get what distinguishes them.
    """
    places = [(_frame_name(scope.name), scope.parent, scope.partition) for scope in table.scopes]
    totals, numbers = Counter(places), Counter[Hashable]()
    frames: list[tuple[str, Hashable]] = []
    for place, distinct in zip(places, distinct_names(table.scopes), strict=True):
        frames.append((_frame_name(distinct) if totals[place] > 1 else place[0], (place[0], numbers[place])))
        numbers[place] += 1
    return frames


def _frame_name(name: str) -> str:
    """Return a name that is not empty, because Hatchet does not accept others."""
    return printable(name) or _NO_NAME


def _properties(launch: Launch, source: str) -> dict[str, str]:
    """Return the values that are not summed."""
    known = {
        "device_id": str(launch.device),
        "device_type": _DEVICE_TYPES.get((launch.kernel.metadata.get("target") or {}).get("backend", ""), ""),
        "source": source,
    }
    return {name: value for name, value in known.items() if value}
