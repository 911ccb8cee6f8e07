"""Profile buffers and captures made from a known truth.

Written from Proton's description of the buffer, with no code of ``kprof_inject``, so that a wrong offset there cannot
hide here.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from kprof_inject.capture.capture_files import CaptureWriter, ClockRecord, KernelRecord, LaunchRecord, ProcessRecord
from kprof_inject.capture.model import Launch
from kprof_inject.capture.reader import read_capture
from kprof_inject.capture.resources import TimingRecord

PREAMBLE = 0xDEADBEEF
CLOCK_PERIOD = 1 << 43
SM_CLOCK_HZ = 1.98e9

# Rings are copied from shared memory as they are, so that a slot without an entry holds what was there before.
GARBAGE = 0xA5A5A5A5
_ALIGN_WORDS = 32


class Entry(NamedTuple):
    """One record as a warp writes it."""

    scope_id: int
    is_end: bool
    cycles: int
    is_event: bool = False


def start(scope_id: int, cycles: int) -> Entry:
    return Entry(scope_id, False, cycles)


def end(scope_id: int, cycles: int) -> Entry:
    return Entry(scope_id, True, cycles)


def tagged(tag_id: int, value: int) -> tuple[Entry, Entry]:
    """The two records of a tag; of the upper half of the clock, which no value has, anything may be left."""
    stored = 0x2A5 << 32 | value & 0xFFFFFFFF
    return start(tag_id, stored), end(tag_id, stored)


def halved(tag_id: int, value: int) -> tuple[Entry, Entry]:
    """The two records of a wide tag, with the lower half first."""
    low, high = value & 0xFFFFFFFF, value >> 32 & 0xFFFFFFFF
    return start(tag_id, 0x2A5 << 32 | low), end(tag_id, 0x2A5 << 32 | high)


@dataclass(frozen=True)
class Cta:
    """What one CTA did: for each warp its records, in the order in which they were written."""

    warps: Sequence[Sequence[Entry]]
    sm: int = 0
    init_ns: int = 1_000
    pre_final_ns: int = 2_000
    post_final_ns: int = 2_500


@dataclass(frozen=True)
class Scope:
    """One row of the scope table. ``record`` is its name in the IR, by default the user's; ``partition`` is the
    index of its partition, where there are some."""

    name: str
    kind: str = "func"
    parent: int = -1
    source: tuple[str, int] | None = None
    called_from: Sequence[tuple[str, int]] = ()
    record: str = ""
    partition: int | None = None
    ended_by_next: bool = False
    tags: Sequence[str] = ()
    """The names of its tags; the records of each are called ``NAME of RECORD``."""
    wide_tags: Sequence[str] = ()
    """Those of its ``tags`` that have 64 bits."""


def buffer_words(
    ctas: Sequence[Cta | None], slots: int, *, recorded: Sequence[int] | None = None, clock_bits: int = 43
) -> NDArray[np.uint32]:
    """The buffer that Proton leaves: one row for each CTA of the grid, zeros where it never ran (None).

    Every warp, or each of those ``recorded``, has a ring of ``slots`` entries that hold ``clock_bits`` of the clock.
    """
    rings = range(num_warps_of(ctas)) if recorded is None else recorded
    rings_at = 10 + num_warps_of(ctas)
    used = rings_at + 2 * slots * len(rings)
    words = np.zeros((len(ctas), -(-used // _ALIGN_WORDS) * _ALIGN_WORDS), dtype="<u4")
    for number, cta in enumerate(ctas):
        if cta is not None:
            row = words[number]
            row[:rings_at] = _header(number, cta, 8 * slots * len(rings))
            row[rings_at:used] = GARBAGE
            for ring_at, warp in zip(range(rings_at, used, 2 * slots), rings, strict=True):
                written = _written(cta.warps[warp], slots, 1 << clock_bits)
                row[ring_at : ring_at + len(written)] = written
    return words


def num_warps_of(ctas: Sequence[Cta | None]) -> int:
    """How many warps each CTA has: 1 if none ran."""
    return next((len(cta.warps) for cta in ctas if cta is not None), 1)


def _header(number: int, cta: Cta, rings_bytes: int) -> list[int]:
    row = [PREAMBLE, number, cta.sm, rings_bytes]
    for time in (cta.init_ns, cta.pre_final_ns, cta.post_final_ns):
        row += [time & 0xFFFFFFFF, time >> 32]
    # A warp without a ring counts all the same.
    return row + [2 * len(entries) for entries in cta.warps]


def _written(entries: Sequence[Entry], slots: int, clock_period: int) -> list[int]:
    """The words of a ring, as far as any were written."""
    ring = [0] * (2 * min(slots, len(entries)))
    for position, entry in enumerate(entries):
        clock = entry.cycles % clock_period
        at = 2 * (position % slots)
        ring[at] = entry.is_end << 31 | entry.scope_id << 23 | entry.is_event << 22 | clock >> 32
        ring[at + 1] = clock & 0xFFFFFFFF
    return ring


def with_moved_stores(entries: Sequence[Entry]) -> list[Entry]:
    """The records of a warp in the order in which they are written with ``sched_stores``: each start right before its
    end."""
    opened: dict[int, Entry] = {}
    written: list[Entry] = []
    for entry in entries:
        if not entry.is_end:
            opened[entry.scope_id] = entry
        else:
            written += [opened.pop(entry.scope_id), entry] if entry.scope_id in opened else [entry]
    return written


def kernel_json(
    scopes: Sequence[Scope],
    words: NDArray[np.uint32],
    num_warps: int,
    *,
    name: str = "kernel",
    scope_ids: Mapping[int, str] | None = None,
    mode: Mapping[str, Any] | None = None,
    partitions: Sequence[tuple[str, int | None]] = (),
    body_record: str = "",
) -> dict[str, Any]:
    """What a capture says of a kernel. ``scope_ids`` is Proton's table; by default each scope has its index as id,
    and tags have those behind. ``mode`` is what is unusual in it. ``partitions`` are names with numbers of warps.
    ``body_record`` is the name of records around the body that are no scope's."""
    records = [scope.record or scope.name for scope in scopes]
    tags = [[f"{tag} of {record}" for tag in scope.tags] for scope, record in zip(scopes, records, strict=True)]
    names = scope_ids or dict(enumerate([*records, *(tag for mine in tags for tag in mine)]))
    return {
        "name": name,
        "layout": "timed",
        "scope_ids": {str(scope_id): record for scope_id, record in names.items()},
        "sm_clock_hz": SM_CLOCK_HZ,
        "mode": {"buffer": "shared", "buffer_bytes": 0, "clock_bits": 64, **(mode or {})},
        "metadata": {"num_warps": num_warps, "profile_scratch_size": words.shape[1] * 4},
        "scope_table": {
            "kernel": name,
            **({"body_record": body_record} if body_record else {}),
            **({"partitions": [{"name": one, "warps": warps} for one, warps in partitions]} if partitions else {}),
            "scopes": [
                {
                    "record": record,
                    "name": scope.name,
                    "kind": scope.kind,
                    "source": _point(scope.source) if scope.source else None,
                    "called_from": [_point(point) for point in scope.called_from],
                    "parent": scope.parent,
                    **({"partition": scope.partition} if partitions else {}),
                    **({"ended_by_next": True} if scope.ended_by_next else {}),
                    "tags": [
                        {"name": tag, "record": one, "is_wide": tag in scope.wide_tags}
                        for tag, one in zip(scope.tags, mine, strict=True)
                    ],
                }
                for scope, record, mine in zip(scopes, records, tags, strict=True)
            ],
        },
    }


def _point(place: tuple[str, int]) -> dict[str, Any]:
    return {"file": place[0], "line": place[1], "column": 1}


def launch_json(words: NDArray[np.uint32], *, variant: str = "v0", index: int = 0, host_ns: int = 0) -> dict[str, Any]:
    """What a capture says of a launch."""
    return {
        "variant": variant,
        "index": index,
        "grid": [len(words), 1, 1],
        "device": 0,
        "stream": 0,
        "host_ns": host_ns,
        "buffer_bytes": words.nbytes,
    }


class JsonWriter:
    """Writes a capture as the program does, from JSON values."""

    def __init__(self, folder: Path, process: Mapping[str, Any]) -> None:
        self._writer = CaptureWriter(folder, msgspec.convert(process, ProcessRecord))

    def add_kernel(self, variant: str, kernel: Mapping[str, Any], ttgir: str, sources: Mapping[str, str]) -> None:
        self._writer.add_kernel(variant, msgspec.convert(kernel, KernelRecord, str_keys=True), ttgir, sources)

    def add_launch(self, launch: Mapping[str, Any], buffer: memoryview) -> str:
        return self._writer.add_launch(msgspec.convert({**launch, "file": "named-later"}, LaunchRecord), buffer)

    def drop_launch(self, name: str) -> None:
        self._writer.drop_launch(name)

    def add_times(self, variant: str, times_ns: Sequence[float]) -> None:
        self._writer.add_times(variant, TimingRecord(tuple(times_ns)))

    def add_clock_reading(self, reading: Mapping[str, int]) -> None:
        self._writer.add_clock_reading(msgspec.convert(reading, ClockRecord))

    def finish(self, left_out: Mapping[str, int] | None = None, launches: Mapping[str, int] | None = None) -> None:
        self._writer.finish(left_out or {}, launches)


def make_editable(folder: Path) -> None:
    """Remove the checksums of a capture or of one process of it, so that it is open to any edit."""
    for path in folder.rglob("*.json*"):
        path.write_text(re.sub(r',\s*"(?:\w+_)?crc32":\s*\d+', "", path.read_text()))


def save_launches(
    folder: Path,
    kernel: dict[str, Any],
    buffers: Sequence[NDArray[np.uint32]],
    *,
    variant: str = "v0",
    host_ns: int = 0,
) -> tuple[Launch, ...]:
    """A capture of one process that launched one kernel, written to disk and read back. A test may edit it.
    It replaces what an earlier call saved there."""
    save_process(folder / f"process-{variant}", kernel, buffers, variant=variant, host_ns=host_ns)
    return read_capture(folder).launches


def save_process(
    folder: Path, kernel: dict[str, Any], buffers: Sequence[NDArray[np.uint32]], *, variant: str, host_ns: int = 0
) -> None:
    """As ``save_launches``, without reading the capture, whose process is ``folder``."""
    shutil.rmtree(folder, ignore_errors=True)
    writer = JsonWriter(folder, {"pid": 7})
    writer.add_kernel(variant, kernel, "module {}\n", {})
    for index, words in enumerate(buffers):
        launch = launch_json(words, variant=variant, index=index, host_ns=host_ns + index)
        writer.add_launch(launch, memoryview(words.tobytes()))
    writer.finish()
    make_editable(folder)


def save_launch(
    folder: Path,
    scopes: Sequence[Scope],
    ctas: Sequence[Cta | None],
    slots: int,
    *,
    mode: Mapping[str, Any] | None = None,
    host_ns: int = 0,
    **unusual: Any,
) -> Launch:
    """As ``save_launches``, of a single launch with these CTAs, recorded as ``mode`` says; ``unusual`` is for
    ``kernel_json``."""
    mode = mode or {}
    words = buffer_words(ctas, slots, recorded=mode.get("warps"), clock_bits=32 if mode.get("clock_bits") == 32 else 43)
    kernel = kernel_json(scopes, words, num_warps_of(ctas), mode=mode, **unusual)
    return save_launches(folder, kernel, [words], host_ns=host_ns)[0]
