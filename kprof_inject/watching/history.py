"""The history of a watched program, as Parquet files: a row for each recorded launch and for each scope in it.

Each host writes a file for each hour, so the files of a fleet can share a folder. Needs pyarrow.
"""

from __future__ import annotations

import io
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from kprof_inject.capture.model import Launch
from kprof_inject.capture.scopes import distinct_names
from kprof_inject.errors import KprofError
from kprof_inject.export.arrow import optional_module
from kprof_inject.files import write_bytes
from kprof_inject.report.diff.runs import grid_text
from kprof_inject.timeline.scope_statistics import scope_statistics
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.timeline.waves import launch_duration_ns

MAX_DAYS = 30
"""Files older than this are removed."""

MAX_LAUNCHES = 100_000
"""Launches that a watch reads when it begins."""

_NO_RANK = -1
_HOUR = "%Y-%m-%dT%H"
_S_PER_DAY = 86_400


class HistoryRow(Struct, frozen=True, kw_only=True):
    """A recorded launch, with an empty ``scope``, or one scope of it, by its distinct name.

    ``total_ns``, ``p50_ns`` and ``p99_ns`` are of the scope's executions in all warps that record; those of a launch
    are its duration. ``rank`` is -1 if there is none.
    """

    time_ns: int
    """Time of the launch on the host (``time.time_ns``)."""
    host: str
    rank: int
    pid: int
    capture: str
    """Name of the capture's folder, which may be gone."""
    kernel: str
    variant: str
    grid: str
    device: str
    launch: int
    scope: str
    source: str
    count: int
    total_ns: int
    p50_ns: float
    p99_ns: float
    duration_ns: int
    """Duration of the launch, from the first CTA's begin to the last one's end."""
    clock_hz: float | None
    """Rate of the SMs' clock; None if it was not measured."""

    @property
    def key(self) -> tuple[str, ...]:
        """Key of what is compared with its own past: a variant's launches with one grid, on one kind of device."""
        return self.kernel, self.variant, self.grid, self.device, str(self.rank)

    @property
    def cycles(self) -> float | None:
        """Duration of the launch in cycles of the SMs' clock; None if unknown."""
        return None if self.clock_hz is None else self.duration_ns * self.clock_hz / 1e9


_COLUMNS = tuple(name for name in HistoryRow.__struct_fields__ if name != "time_ns")


def launch_row(timeline: Timeline) -> HistoryRow:
    """Return the row of a launch itself."""
    launch, place, duration_ns = timeline.launch, timeline.launch.place, launch_duration_ns(timeline)
    return HistoryRow(
        time_ns=launch.host_ns,
        host=place.host,
        rank=_NO_RANK if place.rank is None else place.rank,
        pid=place.pid,
        capture=_capture_of(launch),
        kernel=launch.kernel.name,
        variant=launch.kernel.program_variant or launch.kernel.variant,
        grid=grid_text(launch.grid),
        device=launch.device_name,
        launch=launch.index,
        scope="",
        source="",
        count=1,
        total_ns=duration_ns,
        p50_ns=float(duration_ns),
        p99_ns=float(duration_ns),
        duration_ns=duration_ns,
        clock_hz=timeline.clock.measured_hz,
    )


def rows_of(timeline: Timeline) -> list[HistoryRow]:
    """Return the rows of a launch: its own first, then those of the scopes that ran."""
    of_launch, names = launch_row(timeline), distinct_names(timeline.table.scopes)
    return [
        of_launch,
        *(
            HistoryRow(
                **{
                    **asdict(of_launch),
                    "scope": name,
                    "source": scope.source,
                    "count": statistics.count,
                    "total_ns": statistics.total_ns or 0,
                    "p50_ns": statistics.p50_ns,
                    "p99_ns": statistics.p99_ns,
                }
            )
            for name, scope, statistics in zip(names, timeline.table.scopes, scope_statistics(timeline), strict=True)
            if statistics.p50_ns is not None
        ),
    ]


def _capture_of(launch: Launch) -> str:
    return launch.capture_folder.name if launch.capture_folder is not None else ""


class History:
    """The rows in a folder. Raises ``KprofError`` without pyarrow, as its methods do for a damaged file."""

    def __init__(self, folder: Path, host: str) -> None:
        """Continue what ``host`` has written to ``folder``, which need not exist."""
        self._folder = folder
        self._host = re.sub(r"[^A-Za-z0-9._-]", "_", host) or "host"
        self._arrow = optional_module("pyarrow", "pyarrow")
        self._parquet = optional_module("pyarrow.parquet", "pyarrow")
        self._path = Path()
        self._table: Any = None
        """The rows of the file ``_path``, which is written anew with each capture."""

    def append(self, rows: Sequence[HistoryRow], now_ns: int) -> None:
        """Add the rows of a capture to the file of the present hour, and remove files that are too old."""
        path = self._folder / f"{time.strftime(_HOUR, time.gmtime(now_ns / 1e9))}-{self._host}.parquet"
        if path != self._path:
            self._table = self._read(path) if path.exists() else self._table_of(())
            self._path = path
            self._remove_old(now_ns)
        self._table = self._arrow.concat_tables([self._table, self._table_of(rows)]).combine_chunks()
        sink = io.BytesIO()
        self._parquet.write_table(self._table, sink, compression="zstd")
        write_bytes(path, sink.getvalue())

    def launches(self) -> list[HistoryRow]:
        """Return the latest launches that this host has written, about ``MAX_LAUNCHES``, the oldest first."""
        files: list[list[HistoryRow]] = []
        for path in sorted(self._folder.glob(f"*-{self._host}.parquet"), reverse=True):
            table = self._read(path, filters=[("scope", "==", "")])
            files.append([_row(values) for values in table.to_pylist()])
            if sum(map(len, files)) >= MAX_LAUNCHES:
                break
        return [row for rows in reversed(files) for row in rows]

    def _read(self, path: Path, **choice: Any) -> Any:
        try:
            return self._parquet.read_table(path, **choice).cast(self._schema())
        except (self._arrow.ArrowException, ValueError, TypeError) as error:
            what = f"{path} is not a history: {str(error).splitlines()[0]}"
            raise KprofError(what, hint="move the file to another folder") from None

    def _remove_old(self, now_ns: int) -> None:
        oldest = time.strftime(_HOUR, time.gmtime(now_ns / 1e9 - MAX_DAYS * _S_PER_DAY))
        for path in self._folder.glob(f"*-{self._host}.parquet"):
            if path.name < oldest:
                path.unlink(missing_ok=True)

    def _table_of(self, rows: Sequence[HistoryRow]) -> Any:
        arrow = self._arrow
        schema, columns = self._schema(), {name: [getattr(row, name) for row in rows] for name in _COLUMNS}
        times = arrow.array([row.time_ns // 1000 for row in rows], arrow.int64()).cast(schema.field("time").type)
        return arrow.table([times, *(arrow.array(columns[name], schema.field(name).type) for name in _COLUMNS)], schema)

    def _schema(self) -> Any:
        arrow = self._arrow
        texts = ("host", "capture", "kernel", "variant", "grid", "device", "scope", "source")
        floats = ("p50_ns", "p99_ns", "clock_hz")
        kinds = {**dict.fromkeys(texts, arrow.string()), **dict.fromkeys(floats, arrow.float64())}
        moment = ("time", arrow.timestamp("us", tz="UTC"))
        return arrow.schema([moment, *((name, kinds.get(name, arrow.int64())) for name in _COLUMNS)])


def _row(values: dict[str, Any]) -> HistoryRow:
    moment = values.pop("time")
    return HistoryRow(time_ns=round(moment.timestamp() * 1e6) * 1000, **values)
