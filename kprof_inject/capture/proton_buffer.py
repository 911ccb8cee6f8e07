"""Reader of files with Proton's own ``host_buffer``, as captures of one launch about which little else is known.

A header describes the payload. Proton's instrumentation hook packs it (triton/profiler/hooks/instrumentation.py,
``_populate_host_buffer``), and Proton's ``readCircularLayoutTrace`` reads it: ten little-endian words and the ids of
the recorded warps, without padding. It is the same in Triton 3.5.1 to 3.9.0, and lacks the payload's layout.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kprof_inject.capture.buffer_layouts import (
    CLOCK_HIGH_MASK,
    CLOCK_LOW_BITS,
    ENTRY_BYTES,
    EVENT_SHIFT,
    HEADER_WORDS,
    LAYOUTS,
    SCOPE_SHIFT,
    UNUSED_MASK,
    WORDS_PER_ENTRY,
    RawCtas,
)
from kprof_inject.capture.mode import UNKNOWN_BUFFER, Mode
from kprof_inject.capture.model import Capture, Kernel, capture_of_buffer
from kprof_inject.capture.schema import SCOPE_IDS, LayoutName
from kprof_inject.capture.scopes import Scope, ScopeKind, ScopeTable
from kprof_inject.errors import KprofError
from kprof_inject.files import read_text
from kprof_inject.quantities import counted
from kprof_inject.ttgir.strings import STRING, unquote

_VERSION = 1
_LATEST_VERSION = 0xFF
_HEADER_OFFSET = 4
_WORD_BYTES = 4
_MAX_WARPS = 1024  # a CTA has at most 1024 threads

_BACKENDS = {1: "cuda", 2: "hip"}
_SAVE_AGAIN = "save it again, whole: host_buffer.numpy().tofile(PATH)"


class _Header(NamedTuple):
    """Words of the header: ``block_num`` rows of ``scratch_mem_size`` bytes, one for each CTA of ``total_unit`` warps.

    The warps in ``recorded``, ascending, have a ring.
    """

    version: int
    header_offset: int
    header_size: int
    payload_offset: int
    payload_size: int
    device_type: int
    block_num: int
    total_unit: int
    scratch_mem_size: int
    uid_num: int
    recorded: tuple[int, ...] = ()


_FIXED = struct.Struct("<10I")


def is_proton_buffer(path: Path) -> bool:
    """Return whether a file begins as a ``host_buffer`` of any version; the rest may be damaged."""
    # Opening a pipe would block until another process writes to it.
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            version, header_offset = struct.unpack("<2I", file.read(2 * _WORD_BYTES))
    except (OSError, struct.error):  # too short
        return False
    return 1 <= int(version) <= _LATEST_VERSION and header_offset == _HEADER_OFFSET


def _read_header(path: Path) -> _Header:

    def check(holds: bool, field: str, what: str) -> None:
        if not holds:
            at = _Header._fields.index(field) * _WORD_BYTES
            raise KprofError(f"{path} is damaged at byte {at}: {what}", hint=_SAVE_AGAIN)

    def truncated(promise: str) -> KprofError:
        return KprofError(f"{path} is truncated: {promise}, but it ends at byte {file_bytes}", hint=_SAVE_AGAIN)

    try:
        file_bytes = path.stat().st_size
        with path.open("rb") as file:
            begin = file.read(_FIXED.size + _MAX_WARPS * _WORD_BYTES)
    except OSError as error:
        raise KprofError(f"cannot read {path}: {error.strerror}") from None
    if len(begin) < _FIXED.size:
        raise truncated(f"its header takes at least {_FIXED.size} bytes")
    header = _Header(*_FIXED.unpack_from(begin))
    if header.version != _VERSION:
        raise KprofError(
            f"{path} has version {header.version} of Proton's buffer (byte 0), this program reads {_VERSION}",
            hint="update kprof-inject, or give a file that Proton wrote",
        )

    warps, uids = header.total_unit, header.uid_num
    size = _FIXED.size + uids * _WORD_BYTES
    check(header.header_offset == _HEADER_OFFSET, "header_offset", f"its header begins at {header.header_offset}")
    check(0 < warps <= _MAX_WARPS, "total_unit", f"a CTA has {counted(warps, 'warp')}")
    check(0 < uids <= warps, "uid_num", f"{uids} of {counted(warps, 'warp')} were recorded")
    check(header.header_size == size, "header_size", f"{header.header_size} bytes of header, but it takes {size}")
    if len(begin) < size:
        raise truncated(f"its header takes {size} bytes")
    uid_words = struct.unpack_from(f"<{uids}I", begin, _FIXED.size)
    for number, warp in enumerate(uid_words):
        if warp >= warps:
            at, what = _FIXED.size + number * _WORD_BYTES, f"warp {warp} of {counted(warps, 'warp')}"
            raise KprofError(f"{path} is damaged at byte {at}: {what}", hint=_SAVE_AGAIN)
    # Proton's compiler gives each warp one ring, in ascending order, however the user named them.
    recorded = tuple(sorted(set(uid_words)))

    offset = header.payload_offset
    end = offset + header.payload_size
    check(offset >= size, "payload_offset", f"its payload begins at {offset}, within the header")
    if end > file_bytes:
        raise truncated(f"its payload goes from byte {offset} to {end}")
    if end < file_bytes:
        raise KprofError(
            f"{path} has {file_bytes - end} more bytes after its payload, which ends at byte {end}",
            hint="save each launch's host_buffer to its own file",
        )
    row_bytes = header.scratch_mem_size
    if row_bytes == 0 or header.payload_size == 0:
        raise KprofError(
            f"{path} has no records: the kernel that was launched last has none",
            hint="take the buffer right after the launch of a kernel with scopes",
        )
    # Size with the smallest header of all layouts, and one entry in each ring.
    min_bytes = _WORD_BYTES * (HEADER_WORDS + warps + WORDS_PER_ENTRY * len(recorded))
    what = f"{row_bytes} bytes for a CTA, which must be whole words and at least {min_bytes} bytes"
    check(row_bytes % _WORD_BYTES == 0 and row_bytes >= min_bytes, "scratch_mem_size", what)
    rows = header.payload_size // row_bytes
    what = f"{header.block_num} CTAs, but its payload has room for {rows}"
    check(header.block_num == rows and rows > 0, "block_num", what)
    return header._replace(recorded=recorded)


_HALF_PERIOD = 1 << (CLOCK_LOW_BITS - 1)  # a clock that goes back by more than half its period has overflowed instead
# If the compiler moved stores, it did so for all warps that execute the code, and each start directly precedes its end
# (Proton's ``ScheduleBufferStorePass``). Exceptions in less than one of this many cases are damage.
_ONE_OF = 16
_BLOCK_ENTRIES = 1 << 20

_SURPLUS = 1.1  # ratio of starts to ends that damaged entries cannot cause


def _inferred(
    words: NDArray[np.uint32], num_warps: int, recorded: tuple[int, ...]
) -> tuple[LayoutName, Mode, NDArray[np.int64]]:
    """Return the layout, the mode, and the number of starts and of ends with each scope id: shape (2, id)."""
    readings: dict[LayoutName, RawCtas] = {}
    for name, layout in LAYOUTS.items():
        # A row may have room for the counts of one layout but not for those of another.
        with suppress(KprofError):
            readings[name] = layout.read(words, num_warps, recorded)
    if not readings:
        raise KprofError(f"rows of {words.shape[1] * 4} bytes have no room for {counted(num_warps, 'warp')}")
    # A payload that is read with the wrong layout gives implausible counts or times: each is taken for the other.
    layout_name, ctas = max(
        readings.items(),
        key=lambda one: (one[1].written_words.size - one[1].miscounted, one[1].timed or one[0] == "untimed"),
    )
    sides, of_events = np.zeros(2 * SCOPE_IDS, dtype=np.int64), np.zeros(2 * SCOPE_IDS, dtype=np.int64)
    long_clocks = rings = turned = starts = parted = 0
    for first, cycles, followed in _blocks(ctas):
        sound = first[(cycles >= 0) & (first & UNUSED_MASK == 0)]
        tags = sound >> SCOPE_SHIFT & (2 * SCOPE_IDS - 1)
        sides += np.bincount(tags, minlength=2 * SCOPE_IDS)
        of_events += np.bincount(tags[sound >> EVENT_SHIFT & 1 == 1], minlength=2 * SCOPE_IDS)
        long_clocks += int(np.count_nonzero(sound & CLOCK_HIGH_MASK))
        back = cycles[..., :-1] - cycles[..., 1:]
        rings += int(np.count_nonzero(followed.any(axis=-1)))
        turned += int(np.count_nonzero((followed & (back > 0) & (back < _HALF_PERIOD)).any(axis=-1)))
        tag = first >> SCOPE_SHIFT
        is_start = followed & (tag[..., :-1] < SCOPE_IDS)
        starts += int(np.count_nonzero(is_start))
        parted += int(np.count_nonzero(is_start & (tag[..., 1:] - tag[..., :-1] != SCOPE_IDS)))
    # An event has a start and an end; a damaged entry may have the flag, too.
    if (2 * of_events > sides).reshape(2, SCOPE_IDS).all(axis=0).any():
        raise KprofError(
            "the buffer has events of Proton's language (start_event, end_event), which are not read",
            hint="record the kernel with scopes alone",
        )
    mode = Mode(
        buffer=UNKNOWN_BUFFER,
        buffer_bytes=ctas.entries.shape[2] * ENTRY_BYTES * len(recorded),  # 0 if no CTA ran
        # Hardly any reading of a counter of 43 bits fits in 32.
        clock_bits=32 if 2 * long_clocks < sides.sum() else 64,
        warps=() if len(recorded) == num_warps else recorded,
        sched_stores=turned * _ONE_OF > rings and parted * _ONE_OF <= starts,
    )
    return layout_name, mode, sides.reshape(2, SCOPE_IDS)


def _blocks(ctas: RawCtas) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]]:
    """Yield the entries (CTA, warp, slot) of some CTAs at a time: their first words, and their clocks or -1.

    A mask tells for each slot but the last whether the next one was written after it.
    """
    rows, warps, slots, _ = ctas.entries.shape
    slot = np.arange(slots)
    step = max(1, _BLOCK_ENTRIES // max(1, warps * slots))
    for begin in range(0, rows, step):
        part = slice(begin, begin + step)
        written = ctas.written_words[part, :, None] // WORDS_PER_ENTRY
        used = slot < written
        first = ctas.entries[part, :, :, 0].astype(np.int64)
        clocks = (first & CLOCK_HIGH_MASK) << CLOCK_LOW_BITS | ctas.entries[part, :, :, 1]
        followed = used[..., 1:] & (slot[:-1] != (written - 1) % slots)
        yield first, np.where(used, clocks, -1), followed


_TAKES_ID = re.compile(rf"\bproton\.(?:record\s+(?P<side>start|end)\s+({STRING})|allocate_event\s+({STRING}))")
_FUNCTION = re.compile(r'(?<![\w.$-])"?tt\.func\b')

_GIVE_NAMES = 'give the kernel\'s .ttgir with its records, or JSON: {"0": "name", ...}'


def read_scope_names(path: Path) -> dict[int, str]:
    """Read the name of each scope id, which the buffer lacks, from a file; raises ``KprofError``.

    The file is the kernel's TTGIR with its records, or JSON: an object from id to name, the same under ``scope_ids``,
    or a list of names or of pairs (as Triton's ``get_scope_id_names`` returns them).
    """
    text = read_text(path)
    if path.suffix != ".json":
        return names_of_ttgir(text, str(path))
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise KprofError(f"{path} is not JSON: {error}", hint=_GIVE_NAMES) from None
    if isinstance(values, dict):
        values = values.get("scope_ids", values)
    try:
        pairs = list(values.items() if isinstance(values, dict) else values)
        if all(isinstance(value, str) for value in pairs):
            pairs = list(enumerate(pairs))
        names: dict[int, str] = {}
        for scope_id, name in pairs:
            if not isinstance(name, str) or isinstance(scope_id, float):
                raise TypeError
            names[int(scope_id)] = name
    except (TypeError, ValueError):
        raise KprofError(f"{path} names no scope ids", hint=_GIVE_NAMES) from None
    return _checked_names(names, str(path))


def names_of_ttgir(text: str, file: str) -> dict[int, str]:
    """Return the ids of a module's records (Proton's ``ScopeIdAllocation``): starts take the next, ends share it."""
    if len(_FUNCTION.findall(text)) > 1:
        raise KprofError(
            f"{file} has several functions: their records get ids only when they are inlined",
            hint='give JSON: {"0": "name", ...}',
        )
    names: dict[int, str] = {}
    opened: dict[str, str] = {}
    for match in _TAKES_ID.finditer(text):
        name, side = unquote(match[2] or match[3]), match["side"]
        if side is not None and opened.get(name, side) != side:
            del opened[name]
            continue
        if side is not None:
            opened[name] = side
        names[len(names)] = name
    if not names:
        raise KprofError(f"{file} has no proton.record, and so no scope names", hint=_GIVE_NAMES)
    return _checked_names(names, file)


def _checked_names(names: Mapping[int, str], file: str) -> dict[int, str]:
    if wrong := [scope_id for scope_id in names if not 0 <= scope_id < SCOPE_IDS]:
        raise KprofError(
            f"{file} names scope id {wrong[0]}: ids go from 0 to {SCOPE_IDS - 1}",
            hint="give the names of the kernel that wrote the buffer",
        )
    return dict(names)


def read_proton_buffer(path: Path, scope_names: Mapping[int, str] | None = None) -> Capture:
    """Open a ``host_buffer`` that was saved as it is; raises ``KprofError``.

    ``scope_names`` are the names of its scope ids (see ``read_scope_names``). What the file lacks is inferred from its
    records: the layout, the bits of the clock, whether stores were moved, the ids. The kernel has the file's name; its
    scopes have no source and no parents, the grid is the number of CTAs, and the SM's clock is unknown.
    """
    given = _checked_names(scope_names or {}, "the table of names")
    header = _read_header(path)
    payload_bytes = header.block_num * header.scratch_mem_size
    try:
        words = np.fromfile(path, "<u4", payload_bytes // 4, offset=header.payload_offset)
    except OSError as error:
        raise KprofError(f"cannot read {path}: {error.strerror}") from None
    if words.nbytes != payload_bytes:
        raise KprofError(f"{path} was truncated while it was read", hint="give a file that nothing is writing to")
    layout, mode, sides = _inferred(words.reshape(header.block_num, -1), header.total_unit, header.recorded)
    recorded_ids = np.flatnonzero(sides.any(axis=0)).tolist()
    names = dict(sorted(({scope_id: f"scope {scope_id}" for scope_id in recorded_ids} | given).items()))
    ids: dict[str, list[int]] = {}
    for scope_id, name in names.items():
        ids.setdefault(name, []).append(scope_id)
    scopes = []
    for name, own_ids in ids.items():
        # If only starts were recorded, each ends the one before. A ring keeps what was written last, so other scopes
        # have at most as many starts as ends. A scope without any end is open.
        starts, ends = sides[:, own_ids].sum(axis=1).tolist()
        ended_by_next = starts > _SURPLUS * ends > 0
        kind = ScopeKind.ITERATION if ended_by_next else ScopeKind.UNKNOWN
        scopes.append(Scope(record=name, name=name, kind=kind, ended_by_next=ended_by_next))
    kernel = Kernel(
        variant=path.stem,
        name=path.stem,
        layout=layout,
        scope_ids=names,
        scopes=ScopeTable(scopes=tuple(scopes)),
        mode=mode,
        metadata={
            "num_warps": header.total_unit,
            "profile_scratch_size": header.scratch_mem_size,
            "target": {"backend": _BACKENDS.get(header.device_type, "unknown"), "arch": "unknown"},
        },
        # The kernel has no files.
        folder=path,
    )
    return capture_of_buffer(kernel, path, header.block_num, payload_bytes, header.payload_offset)
