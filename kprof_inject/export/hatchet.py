"""Proton's tree of metrics, for ``proton-viewer`` and Hatchet: cycles of each scope, summed over warps and launches.

Format: a list of the root frame and the facts of the devices, as Proton's ``TreeData.cpp`` writes it. For the metrics
that the root has, a reader sums a frame and all frames below it, so this file has exclusive values.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kprof_inject.capture.model import place_names
from kprof_inject.capture.scopes import ScopeKind, distinct_names
from kprof_inject.errors import printable
from kprof_inject.timeline.nesting import innermost_around
from kprof_inject.timeline.partitions import partition_names
from kprof_inject.timeline.timeline import Timeline

_WARP_SHIFT = 32  # larger than the index of any record
_DEVICE_TYPES = {"hip": "0", "cuda": "1"}  # ``DeviceType`` in Proton's Device.h, as text

_Path = tuple[int, ...]


def hatchet_tree(timelines: Sequence[Timeline]) -> Iterator[bytes]:
    """Yield the file's bytes.

    Below the root are the kernels by name, with their launches summed, and in them the scopes. If launches come from
    several processes or devices, these contain the kernels. The scopes of a warp-specialised kernel are in their
    partitions. ``cycles`` are SM cycles of all warps, without the cost of records; ``normalized_cycles`` are their
    average over the warps of a launch, summed over the launches. Marks only have a ``count``.
    """
    root = _frame("ROOT", cycles=0, normalized_cycles=0)
    places = place_names(timeline.launch.place for timeline in timelines)
    for timeline in timelines:
        place, launch = places[timeline.launch.place], timeline.launch
        kernel = _child(_child(root, place) if place else root, launch.kernel.name)
        _add(kernel, count=1)
        scopes, warps = timeline.table.scopes, len(timeline.ctas) * len(timeline.warps)
        partitions = partition_names(timeline.table)
        device_type = _DEVICE_TYPES.get((launch.kernel.metadata.get("target") or {}).get("backend", ""), "")
        # Scopes with the same name in the same scope and partition are numbered, so that those of different launches
        # match; their names get what distinguishes them.
        keys = [(printable(scope.name), scope.parent, scope.partition) for scope in scopes]
        names = [
            distinct if keys.count(key) > 1 else key[0]
            for key, distinct in zip(keys, distinct_names(scopes), strict=True)
        ]
        for path, (count, cycles) in _ran(timeline).items():
            frame = _child(kernel, partitions[path[0]]) if path[0] in partitions else kernel
            for index in path:
                frame = _child(frame, names[index], (keys[index][0], keys[:index].count(keys[index])))
            _add(frame, count=count)
            if scopes[path[-1]].kind != ScopeKind.INSTANT:
                _add(frame, cycles=cycles, normalized_cycles=cycles / warps)
            facts = {"device_id": str(launch.device), "device_type": device_type, "source": scopes[path[-1]].source}
            frame["metrics"] |= {name: value for name, value in facts.items() if value}
    yield (json.dumps([_listed(root), {}], indent=1) + "\n").encode()


def _frame(name: str, **metrics: float) -> dict[str, Any]:
    # Hatchet accepts no empty name.
    return {"frame": {"name": printable(name) or "(no name)", "type": "function"}, "metrics": metrics, "children": {}}


def _child(frame: dict[str, Any], name: str, key: object = None) -> dict[str, Any]:
    """Return the child with a key, by default its name; add it if there is none."""
    child: dict[str, Any] = frame["children"].setdefault(key or name, _frame(name))
    return child


def _add(frame: dict[str, Any], **metrics: float) -> None:
    frame["metrics"] |= {name: frame["metrics"].get(name, 0) + value for name, value in metrics.items()}


def _listed(frame: dict[str, Any]) -> dict[str, Any]:
    return frame | {"children": [_listed(child) for child in frame["children"].values()]}


def _ran(timeline: Timeline) -> dict[_Path, tuple[int, int]]:
    """Return how often each path of scopes ran, and the cycles of all warps without those of inner paths.

    The nesting is that of the scope table if it has parents, whatever a ring lost; otherwise it is the nesting at run
    time. Scopes that cross overlap, so the time they share counts for both.
    """
    scopes = timeline.table.scopes
    planned: list[_Path] = []
    for index, scope in enumerate(scopes):
        planned.append((*(planned[scope.parent] if scope.parent >= 0 else ()), index))
    is_planned = any(scope.parent >= 0 for scope in scopes)
    is_in = np.array([[outer in path for outer in range(len(scopes))] for path in planned], dtype=bool)
    is_instant = np.array([scope.kind == ScopeKind.INSTANT for scope in scopes], dtype=bool)
    nodes: dict[_Path, int] = {}
    counts, totals = Counter[_Path](), Counter[_Path]()
    for block in timeline.blocks():
        within, ran = _around(block), block["scope"]
        if is_planned:
            within = np.where((within >= 0) & is_in[ran, ran[within]], within, -1)
            paths, node = planned, ran.astype(np.int64)
        else:
            node = _observed(ran, within, nodes)
            paths = list(nodes)
        lasted: NDArray[np.int64] = np.where(is_instant[ran], 0, block["duration_cycles"])
        inside = within >= 0
        # Doubles hold these sums exactly: they are far below 2 ** 53 cycles.
        own = np.bincount(node, lasted - np.bincount(within[inside], lasted[inside], len(block)), len(paths))
        counts.update(dict(zip(paths, np.bincount(node, minlength=len(paths)).tolist(), strict=True)))
        totals.update(dict(zip(paths, np.rint(own).astype(np.int64).tolist(), strict=True)))
    return {path: (count, totals[path]) for path, count in counts.items() if count}


def _around(block: NDArray[np.void]) -> NDArray[np.int64]:
    """Return the row of the innermost scope around each scope, or -1; the block may lack some of those that ran."""
    is_new = np.diff(block["cta"], prepend=block["cta"][:1]) | np.diff(block["warp"], prepend=block["warp"][:1])
    warp = np.cumsum(is_new != 0) << _WARP_SHIFT
    return innermost_around(warp + block["start_record"], warp + block["end_record"])


def _observed(scope: NDArray[np.int16], around: NDArray[np.int64], nodes: dict[_Path, int]) -> NDArray[np.int64]:
    """Return the number in ``nodes`` of each scope's path at run time; add those that are new."""
    node = np.full(len(scope), -1)
    here = np.flatnonzero(around < 0)
    while here.size:
        outer = np.where(around[here] < 0, -1, node[around[here]])
        pairs, which = np.unique(np.stack((outer, scope[here])), axis=1, return_inverse=True)
        known = list(nodes)
        paths = [(*(known[above] if above >= 0 else ()), one) for above, one in pairs.T.tolist()]
        node[here] = np.array([nodes.setdefault(path, len(nodes)) for path in paths])[which.reshape(-1)]
        here = np.flatnonzero((node < 0) & (node[around] >= 0))
    return node
