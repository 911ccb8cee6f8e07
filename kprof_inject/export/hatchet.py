"""Proton's tree of metrics, for ``proton-viewer`` and Hatchet: what each scope takes, summed over warps and launches.

Format: a list of the root frame and of what is known of the devices, as Proton's ``TreeData.cpp`` writes it. A reader
adds up those metrics that the root has, from a frame and all beneath it. So here they are what a frame takes by itself,
and what a reader shows is the whole. (In Proton's own files they are the whole already, so that a scope in another is
counted twice.)
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from kprof_inject.capture.origin import place_names
from kprof_inject.capture.reader import Launch
from kprof_inject.export.tables.scope_tree import scope_tree
from kprof_inject.printable import printable
from kprof_inject.timeline.partitions import partition_names
from kprof_inject.timeline.timeline import Timeline

_NO_NAME = "(no name)"

# ``DeviceType`` in Proton's Device.h: its metrics of cycles have the number, as text.
_DEVICE_TYPES = {"hip": "0", "cuda": "1"}


def hatchet_tree(timelines: Sequence[Timeline]) -> Iterator[bytes]:
    """The file's bytes. Below the root stand the kernels by name, with their launches summed, and in them the scopes.
    If launches are of several processes or devices, these stand around the kernels, and the scopes of a kernel that is
    warp specialised stand in their partitions.

    ``cycles`` are the SM's, of all warps together, without what records cost; ``normalized_cycles`` the same for a warp
    on average, each launch's added. ``count`` is how often a scope ran, and of a kernel the launches; marks have that
    alone."""
    root = _Frame("ROOT", {"cycles": 0, "normalized_cycles": 0})
    names = place_names(timeline.launch.place for timeline in timelines)
    for timeline in timelines:
        place = names[timeline.launch.place]
        kernel = (root.child(place) if place else root).child(_frame_name(timeline.launch.kernel.name))
        _add_launch(kernel, timeline)
    yield (json.dumps([root.to_json(), {}], indent=1) + "\n").encode()


@dataclass(slots=True)
class _Frame:
    """Frames of one name in the same frame are one."""

    name: str
    metrics: dict[str, Any] = field(default_factory=dict)
    children: dict[str, _Frame] = field(default_factory=dict)

    def child(self, *path: str) -> _Frame:
        frame = self
        for name in path:
            frame = frame.children.setdefault(name, _Frame(name))
        return frame

    def add(self, **metrics: int | float) -> None:
        for name, value in metrics.items():
            self.metrics[name] = self.metrics.get(name, 0) + value

    def to_json(self) -> dict[str, Any]:
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
    for node in scope_tree(timeline):
        outermost = node.path[0]
        around = kernel.child(partitions[outermost]) if outermost in partitions else kernel
        frame = around.child(*(_frame_name(scopes[index].name) for index in node.path))
        frame.add(count=node.count)
        if node.self_cycles is not None:
            frame.add(cycles=node.self_cycles, normalized_cycles=node.self_cycles / warps)
        frame.metrics |= _properties(timeline.launch, scopes[node.path[-1]].source)


def _frame_name(name: str) -> str:
    """Hatchet takes no frame without a name."""
    return printable(name) or _NO_NAME


def _properties(launch: Launch, source: str) -> dict[str, str]:
    """What is not added up."""
    known = {
        "device_id": str(launch.device),
        "device_type": _DEVICE_TYPES.get(launch.kernel.metadata.get("target", {}).get("backend", ""), ""),
        "source": source,
    }
    return {name: value for name, value in known.items() if value}
