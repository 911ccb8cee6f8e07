"""Reports of Nsight Compute in JSON, and as much of NVIDIA's module ``ncu_report`` as we use, to read them.

Tests put this module in its place. As with NVIDIA's (2026.3.1), a file that is no report has no ranges.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kprof_inject.capture.counters import DEFAULT_METRICS

Metrics = dict[str, float | None]
ProfiledAction = tuple[str, Metrics]


def shape(grid: tuple[int, int, int], threads: int) -> Metrics:
    """What a report has of every launch."""
    return {**{f"launch__grid_dim_{axis}": grid["xyz".index(axis)] for axis in "xyz"}, "launch__block_size": threads}


def complete(name: str, grid: tuple[int, int, int], threads: int, value: float = 1.0) -> ProfiledAction:
    """A launch of which each metric has this value."""
    return name, {**dict.fromkeys(DEFAULT_METRICS, value), **shape(grid, threads)}


def save_report(path: Path, *ranges: Iterable[ProfiledAction]) -> Path:
    path.write_text(json.dumps([list(actions) for actions in ranges]))
    return path


class IMetric:
    def __init__(self, value: float | None) -> None:
        self._value = value

    def has_value(self) -> bool:
        return self._value is not None

    def as_double(self) -> float:
        assert self._value is not None
        return self._value


class IAction:
    def __init__(self, name: str, metrics: Metrics) -> None:
        self._name = name
        self._metrics = metrics

    def name(self) -> str:
        return self._name

    def metric_by_name(self, name: str) -> IMetric | None:
        return IMetric(self._metrics[name]) if name in self._metrics else None


class IRange:
    def __init__(self, actions: list[ProfiledAction]) -> None:
        self._actions = actions

    def num_actions(self) -> int:
        return len(self._actions)

    def action_by_idx(self, index: int) -> IAction:
        return IAction(*self._actions[index])


class IContext:
    def __init__(self, ranges: list[Any]) -> None:
        self._ranges = ranges

    def num_ranges(self) -> int:
        return len(self._ranges)

    def range_by_idx(self, index: int) -> IRange:
        return IRange(self._ranges[index])


def load_report(file_name: str) -> IContext:
    text = Path(file_name).read_text()
    if text == "damaged":
        raise RuntimeError("unexpected end")
    return IContext(json.loads(text) if text.startswith("[") else [])
