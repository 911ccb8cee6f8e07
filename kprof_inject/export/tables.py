"""Tables of scopes: a row for each scope that ran, of all launches; as CSV, Parquet, or for pandas and Apache Arrow.

Another table, for Hatchet, has a row for each path of scopes.

The first columns describe the launch and the scope; those of ``SCOPE_COLUMNS`` follow, then those of its asynchronous
work, then a column for each tag of the launches. Times are not rebased: they are on the globaltimer of the launch's
device. A table for pandas or Arrow is in memory as a whole; files are written in chunks.
"""

from __future__ import annotations

import importlib
import io
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from msgspec import Raw
from numpy.typing import NDArray

from kprof_inject.analysis.async_work.flights import IN_FLIGHT_COLUMNS
from kprof_inject.analysis.async_work.in_flight import recorded_in_flight
from kprof_inject.capture.encoding import json_values
from kprof_inject.capture.model import place_names
from kprof_inject.capture.scopes import ScopeKind, distinct_names
from kprof_inject.errors import KprofError, printable
from kprof_inject.export.drawing import launch_facts
from kprof_inject.files import csv_cell
from kprof_inject.forks import JobRunner, in_turn
from kprof_inject.timeline.axis import place_launches
from kprof_inject.timeline.columns import NO_TAG, SCOPE_COLUMNS, Numbers, Rows
from kprof_inject.timeline.nesting import innermost_around
from kprof_inject.timeline.partitions import partition_names
from kprof_inject.timeline.tags import tag_column, tag_columns
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.version import __version__

if TYPE_CHECKING:
    import pandas
    import pyarrow

_TEXTS = ("kernel", "variant", "host", "name", "kind", "partition", "source", "called_from")
_PLACES = ("pid", "rank", "device")

IN_FLIGHT = ("in_flight_ns", "blocked_ns", "depth_in_flight", "bytes_in_flight")
"""The values of ``IN_FLIGHT_COLUMNS`` for scopes that start asynchronous work; -1 for all others."""

COLUMN_TYPES: dict[str, np.dtype[np.signedinteger]] = {
    **dict.fromkeys(_TEXTS, np.dtype(np.int32)),
    **dict.fromkeys(_PLACES, np.dtype(np.int64)),
    **{name: SCOPE_COLUMNS[name] for name in SCOPE_COLUMNS.names or ()},
    **dict.fromkeys(IN_FLIGHT, np.dtype(np.int64)),
}
"""The columns of all tables, in order; those of tags follow. The type of a text is that of its index."""

_NONE = -1
_WARPS, _RECORDS = 1 << 7, 1 << 32  # more than the warps of a CTA, and than the records of a warp

Columns = Mapping[str, NDArray[np.signedinteger]]


def _texts_of(timeline: Timeline) -> list[tuple[str, ...]]:
    launch, partitions = timeline.launch, partition_names(timeline.table)
    described = []
    for index, scope in enumerate(timeline.table.scopes):
        partition, called_from = partitions.get(index, ""), " < ".join(scope.called_from)
        of_launch = launch.kernel.name, launch.kernel.variant, launch.place.host
        texts = (*of_launch, scope.name, scope.kind, partition, scope.source, called_from)
        described.append(tuple(text.encode(errors="replace").decode() for text in texts))
    return described


def _places_of(timeline: Timeline) -> tuple[int, ...]:
    place = timeline.launch.place
    return place.pid, _NONE if place.rank is None else place.rank, place.device


def _number_columns(timeline: Timeline, tags: Mapping[str, str]) -> Iterator[Columns]:
    found = recorded_in_flight(timeline)
    groups = found.groups if found else np.empty(0, IN_FLIGHT_COLUMNS)
    groups = groups[np.argsort(_keys(groups, "record"), kind="stable")]
    keys = _keys(groups, "record")
    values = (groups["end_ns"] - groups["start_ns"], groups["blocked_ns"], groups["depth"], groups["bytes"])
    for block in timeline.blocks():
        columns: dict[str, NDArray[np.signedinteger]] = {name: block[name] for name in SCOPE_COLUMNS.names or ()}
        wanted = _keys(block, "start_record")
        place = np.searchsorted(keys, wanted)
        has_work = np.append(keys, _NONE)[place] == wanted
        for name, column in zip(IN_FLIGHT, values, strict=True):
            columns[name] = np.full(len(block), _NONE)
            columns[name][has_work] = column[place[has_work]]
        yield columns | {column: tag_column(block, timeline.table, name) for column, name in tags.items()}


def _keys(rows: Rows, record: str) -> Numbers:
    keys: Numbers = (rows["cta"].astype(np.int64) * _WARPS + rows["warp"]) * _RECORDS + rows[record]
    return keys


def csv_table(timelines: Sequence[Timeline], run: JobRunner = in_turn) -> Iterator[bytes]:
    """Yield comma-separated values (RFC 4180) in UTF-8, in chunks; launches are ``run``'s jobs."""
    tags = tag_columns(timeline.table for timeline in timelines)
    yield (",".join((*COLUMN_TYPES, *tags)) + "\n").encode()
    yield from run([partial(_lines, timeline, tags) for timeline in timelines])


_CHUNK_ROWS = 1 << 12


def _lines(timeline: Timeline, tags: Mapping[str, str]) -> Iterator[bytes]:
    places = map(str, _places_of(timeline))
    ending = ",".join(("", *places))
    beginnings = [Raw((",".join(map(csv_cell, texts)) + ending).encode()) for texts in _texts_of(timeline)]
    # A row is an array of JSON without its brackets.
    encode, empty = msgspec.json.Encoder().encode, Raw(b"")
    for columns in _number_columns(timeline, tags):
        for first in range(0, len(columns["scope"]), _CHUNK_ROWS):
            part = {name: column[first : first + _CHUNK_ROWS].tolist() for name, column in columns.items()}
            for name in tags:
                part[name] = [empty if value == NO_TAG else value for value in part[name]]
            rows = zip((beginnings[scope] for scope in part["scope"]), *part.values(), strict=True)
            yield b"".join([encode(row)[1:-1] + b"\n" for row in rows])


class _Rows:
    """The rows of all launches; ``tags`` has the tag's name for each column of tags."""

    def __init__(self, timelines: Sequence[Timeline]) -> None:
        if isinstance(timelines, Timeline):
            raise KprofError("expected a list of timelines, got a single one", hint="write [timeline]")
        self._timelines = timelines
        self._described = [_texts_of(timeline) for timeline in timelines]
        self.tags = tag_columns(timeline.table for timeline in timelines)
        self.types = COLUMN_TYPES | dict.fromkeys(self.tags, np.dtype(np.int64))
        rows = [row for described in self._described for row in described]
        self.texts = {name: list(dict.fromkeys(row[at] for row in rows)) for at, name in enumerate(_TEXTS)}

    def parts(self) -> Iterator[Columns]:
        """Yield the columns in parts of at least one row; a text is given as its index in ``texts``."""
        numbers = [{text: number for number, text in enumerate(texts)} for texts in self.texts.values()]
        for timeline, described in zip(self._timelines, self._described, strict=True):
            indices = np.array(
                [[known[text] for known, text in zip(numbers, row, strict=True)] for row in described], dtype=np.int32
            )
            places = dict(zip(_PLACES, _places_of(timeline), strict=True))
            for columns in _number_columns(timeline, self.tags):
                texts = dict(zip(_TEXTS, indices[columns["scope"]].T, strict=True))
                count = len(columns["scope"])
                yield {**texts, **{name: np.full(count, value) for name, value in places.items()}, **columns}


def optional_module(name: str, package: str) -> Any:
    """Import and return a module. Raises ``KprofError`` if the ``package`` that contains it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise KprofError(f"this needs {package}, which is not installed", hint=f"pip install {package}") from None


def to_pandas(timelines: Sequence[Timeline]) -> pandas.DataFrame:
    """Return a data frame of these launches' scopes, with texts as categories; it needs pandas, but no pyarrow."""
    pandas = optional_module("pandas", "pandas")
    rows = _Rows(timelines)
    parts = list(rows.parts())
    columns = {
        name: np.concatenate([np.empty(0, kind), *(part[name] for part in parts)]) for name, kind in rows.types.items()
    }
    tags = {name: pandas.arrays.IntegerArray(columns[name], columns[name] == NO_TAG) for name in rows.tags}
    categories = {
        name: pandas.Categorical.from_codes(columns[name], categories=texts) for name, texts in rows.texts.items()
    }
    return pandas.DataFrame(columns | categories | tags)


def to_arrow(timelines: Sequence[Timeline]) -> pyarrow.Table:
    """Return a table of these launches' scopes, with texts as dictionaries; it needs pyarrow."""
    arrow = optional_module("pyarrow", "pyarrow")
    schema, batches = _arrow_batches(_Rows(timelines))
    return arrow.Table.from_batches(batches, schema)


def _arrow_batches(rows: _Rows) -> tuple[Any, Iterator[Any]]:
    arrow = optional_module("pyarrow", "pyarrow")
    types = {name: arrow.from_numpy_dtype(kind) for name, kind in rows.types.items()}
    types |= {name: arrow.dictionary(types[name], arrow.string()) for name in rows.texts}
    schema = arrow.schema(types.items())
    texts = {name: arrow.array(texts, arrow.string()) for name, texts in rows.texts.items()}

    def columns(part: Columns) -> Iterator[Any]:
        for name in types:
            if name in texts:
                yield arrow.DictionaryArray.from_arrays(np.ascontiguousarray(part[name]), texts[name])
            else:
                yield arrow.array(part[name], mask=part[name] == NO_TAG if name in rows.tags else None)

    return schema, (arrow.record_batch(list(columns(part)), schema=schema) for part in rows.parts())


METADATA_KEY = "kprof_inject"

# The minimum, where there are as many rows: DuckDB writes groups of this size itself, and gives each to one thread.
_MIN_GROUP_ROWS = 122_880


def parquet_table(timelines: Sequence[Timeline]) -> Iterator[bytes]:
    """Yield the file's bytes in chunks; its metadata have the version and the facts of each launch, as JSON."""
    arrow, parquet = optional_module("pyarrow", "pyarrow"), optional_module("pyarrow.parquet", "pyarrow")
    schema, every = _arrow_batches(_Rows(timelines))
    launches = []
    for placed in place_launches(timelines):
        launch, cost = placed.timeline.launch, placed.timeline.launch.kernel.record_cost
        facts = {
            "grid": launch.grid,
            "num_warps": launch.kernel.num_warps,
            "record_cost_cycles": cost and cost.cycles,
            "record_cost_error_cycles": cost and cost.error_cycles,
        }
        # Elsewhere, a capture of a single device omits its place; here, rows and launches are matched by it.
        launches.append(launch_facts(placed) | json_values(launch.place) | facts)
    schema = schema.with_metadata({METADATA_KEY: json.dumps({"version": __version__, "launches": launches})})
    sink = _Sink()
    with parquet.ParquetWriter(sink, schema, compression="zstd") as writer:
        for batches in _groups(every):
            group = arrow.Table.from_batches(batches)
            writer.write_table(group, row_group_size=len(group))
            yield sink.take()
    yield sink.take()


class _Sink(io.BytesIO):
    taken = 0

    def tell(self) -> int:
        return self.taken + super().tell()

    def take(self) -> bytes:
        data = self.getvalue()
        self.seek(0)
        self.truncate()
        self.taken += len(data)
        return data


def _groups(batches: Iterable[Any]) -> Iterator[list[Any]]:
    """Yield the batches of each row group, which may have several because launches may be small."""
    group: list[Any] = []
    for batch in batches:
        group.append(batch)
        if sum(map(len, group)) >= _MIN_GROUP_ROWS:
            yield group
            group = []
    if group:
        yield group


_WARP_SHIFT = 32  # larger than the index of any record
_DEVICE_TYPES = {"hip": "0", "cuda": "1"}  # ``DeviceType`` in Proton's Device.h, as text

_Path = tuple[int, ...]


def hatchet_tree(timelines: Sequence[Timeline]) -> Iterator[bytes]:
    """Yield Proton's tree of metrics, for ``proton-viewer`` and Hatchet: cycles of each scope, in all launches.

    Format: a list of the root frame and the facts of the devices, as Proton's ``TreeData.cpp`` writes it. For the
    metrics that the root has, a reader sums a frame and all frames below it, so this file has exclusive values.

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
        # Scopes with the same name in the same scope and partition are numbered, so those of different launches
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
    child: dict[str, Any] = frame["children"].setdefault(key or name, _frame(name))
    return child


def _add(frame: dict[str, Any], **metrics: float) -> None:
    frame["metrics"] |= {name: frame["metrics"].get(name, 0) + value for name, value in metrics.items()}


def _listed(frame: dict[str, Any]) -> dict[str, Any]:
    return frame | {"children": [_listed(child) for child in frame["children"].values()]}


def _ran(timeline: Timeline) -> dict[_Path, tuple[int, int]]:
    """Return each path's executions, and its cycles of all warps without those of inner paths.

    The nesting is that of the scope table if it has parents, otherwise that at run time. Scopes that cross share time,
    which counts for both.
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
        lasted: Numbers = np.where(is_instant[ran], 0, block["duration_cycles"])
        inside = within >= 0
        # Doubles hold these sums exactly: they are far below 2 ** 53 cycles.
        own = np.bincount(node, lasted - np.bincount(within[inside], lasted[inside], len(block)), len(paths))
        counts.update(dict(zip(paths, np.bincount(node, minlength=len(paths)).tolist(), strict=True)))
        totals.update(dict(zip(paths, np.rint(own).astype(np.int64).tolist(), strict=True)))
    return {path: (count, totals[path]) for path, count in counts.items() if count}


def _around(block: Rows) -> Numbers:
    """Return the row of the innermost scope around each scope, or -1; the block may lack some of those that ran."""
    is_new = np.diff(block["cta"], prepend=block["cta"][:1]) | np.diff(block["warp"], prepend=block["warp"][:1])
    warp = np.cumsum(is_new != 0) << _WARP_SHIFT
    return innermost_around(warp + block["start_record"], warp + block["end_record"])


def _observed(scope: NDArray[np.int16], around: Numbers, nodes: dict[_Path, int]) -> Numbers:
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
