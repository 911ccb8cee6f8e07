"""Traces and tables of timelines as the commands write them: with all that is known to be in flight."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from kprof_inject.export import chrome, perfetto, tables
from kprof_inject.export.drawing import draw as draw_launches
from kprof_inject.export.events import Part, Scene
from kprof_inject.export.formats import TraceFile
from kprof_inject.export.hooks import Hook
from kprof_inject.export.tracks import LAYOUT_NAMES
from kprof_inject.forks import JobRunner, in_turn
from kprof_inject.timeline.timeline import Timeline


def draw(timelines: Sequence[Timeline], layout: str = LAYOUT_NAMES[0], hooks: Sequence[Hook] = ()) -> Scene:
    return draw_launches(timelines, layout, hooks)


def parts_of(scene: Scene) -> list[Part]:
    return [part for section in scene.sections for part in section()]


def chrome_trace(timelines: Sequence[Timeline], layout: str = LAYOUT_NAMES[0]) -> Iterator[bytes]:
    return chrome.encode(draw(timelines, layout))


def perfetto_trace(timelines: Sequence[Timeline], layout: str = LAYOUT_NAMES[0]) -> Iterator[bytes]:
    return perfetto.encode(draw(timelines, layout))


def csv_table(timelines: Sequence[Timeline]) -> Iterator[bytes]:
    return tables.csv_table(timelines)


def parquet_table(timelines: Sequence[Timeline]) -> Iterator[bytes]:
    return tables.parquet_table(timelines)


def write_trace(
    path: Path,
    timelines: Sequence[Timeline],
    layout: str | None = None,
    run: JobRunner = in_turn,
    hooks: Sequence[Hook] = (),
) -> int:
    return TraceFile.at(path, layout, hooks).write(timelines, run)
