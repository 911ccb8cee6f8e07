"""Buffers of other profilers that record inside a kernel, as captures of one launch: one table of their layouts.

A buffer is an array of 64-bit words. The lower half of the first is the number of blocks, the upper half that of groups
in each. All groups write next to each other, so an entry's position gives its group, and its row the order of writing.
An entry is a tag, and above it the lower 32 bits of ``%globaltimer``, in nanoseconds. The layouts are those of

* flashinfer-ai/flashinfer at 004903ca828822934e51d1a3ac30640cca7758eb, flashinfer/profiler/__init__.py, and before
  that at 40db3fadfd5f361882dcd4cc797bd8867b7893a2, include/flashinfer/profiler.cuh;
* ByteDance-Seed/Triton-distributed at 8b9af3012c03ccafaa3288ff9b3d951d94537f28,
  python/triton_dist/tools/profiler/language.py.
"""

from __future__ import annotations

import tokenize
from collections.abc import Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any, Literal

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from kprof_inject.capture.mode import UNKNOWN_BUFFER, Mode
from kprof_inject.capture.model import Capture, Kernel, Recorded, capture_of_buffer
from kprof_inject.capture.scopes import Scope, ScopeKind, ScopeTable
from kprof_inject.errors import KprofError, did_you_mean
from kprof_inject.files import open_regular
from kprof_inject.quantities import counted

_Numbers = NDArray[np.int64]
BufferFormat = Literal["flashinfer", "triton-distributed"]


class Side(IntEnum):
    """Kind of an entry: a start, its end, or a point in time."""

    START = 0
    END = 1
    INSTANT = 2
    DAMAGED = 3


class Tag(Struct, frozen=True):
    """Bits of a tag: side, event up to bit 11, number of the group or block; an SM follows a number of 12 bits."""

    sides: tuple[Side, ...]
    number_bits: int = 20
    is_block: bool = False


class Layout(Struct, frozen=True):
    """Layout of a profiler's buffer: forms of its tags, of which the one that fits most entries counts.

    ``empty`` is an unwritten entry. If it ``has_sms``, a word for each block, its number and SM, precedes the entries.
    """

    tags: tuple[Tag, ...]
    empty: int = 0
    has_sms: bool = False


_FLASHINFER = (Side.START, Side.END, Side.INSTANT, Side.DAMAGED)
LAYOUTS: dict[BufferFormat, Layout] = {
    "flashinfer": Layout((Tag(_FLASHINFER), Tag(_FLASHINFER, 12), Tag(_FLASHINFER, 12, is_block=True))),
    "triton-distributed": Layout((Tag((Side.END, Side.START)),), empty=(1 << 64) - 1, has_sms=True),
}

UNKNOWN_SM = -1
UNIT_COLUMNS = np.dtype([("cta", "i4"), ("warp", "i2"), ("sm", "i4"), ("written", "i8"), ("damaged", "i8")])
"""Group that wrote something: its CTA and its number there, its SM, the numbers of its entries and of invalid ones."""

ENTRY_COLUMNS = np.dtype([("unit", "i8"), ("event", "i8"), ("side", "i1"), ("scope", "i2"), ("ns", "i8")])
"""Entry: index of its unit, number of its event, ``Side``, index of its scope, time."""

_MAX_GROUPS = 1024
_MAX_EVENTS = 1 << 11
_HINT = "save the whole buffer of one launch, numpy.save(PATH, buffer.cpu().numpy()), and name its profiler"


class BufferDescription(Struct, frozen=True):
    """Facts about a buffer that it lacks: its profiler, and the names of its events from 0 on."""

    format: str | None = None
    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, format_name: str | None, names: str | Sequence[str]) -> BufferDescription:
        """Return the description with these names, or those of a text with commas; ``KprofError`` for anything else."""
        if isinstance(names, str):
            return cls(format_name, tuple(name.strip() for name in names.split(",")) if names else ())
        if isinstance(names, Sequence) and all(isinstance(name, str) for name in names):
            return cls(format_name, tuple(names))
        raise KprofError(f"names are no list of texts: {names!r}", hint="give one name for each event, from event 0 on")


NO_DESCRIPTION = BufferDescription()


def is_saved_array(path: Path) -> bool:
    """Return whether the file's name is that of an array of NumPy."""
    return path.suffix == ".npy" and path.is_file()


def read_saved_buffer(path: Path, description: BufferDescription = NO_DESCRIPTION) -> Capture:
    """Open a buffer that was saved with NumPy; raises ``KprofError`` if it is not of the described format."""
    try:
        with open_regular(path) as file:  # not np.load, which also reads archives of any number of large arrays
            array = np.lib.format.read_array(file, allow_pickle=False)
        return read_buffer_array(array, description, path)
    except KprofError as error:
        raise KprofError(f"{path}: {error.what}", hint=error.hint, exit_code=error.exit_code) from None
    # NumPy reads a header as a Python literal, an invalid one token by token, and checks little of the result.
    except (
        ArithmeticError,
        LookupError,
        MemoryError,
        OSError,
        EOFError,
        SyntaxError,
        TypeError,
        ValueError,
        tokenize.TokenError,
    ) as error:
        raise KprofError(f"NumPy cannot read {path}: {error}", hint=_HINT) from None


def read_buffer_array(array: Any, description: BufferDescription, path: Path | None = None) -> Capture:
    """Open a buffer that is an array of NumPy, or can be converted to one; ``path`` is its file, if any."""
    name, names, path = description.format, description.names, path or Path("buffer")
    layout = next((layout for known, layout in LAYOUTS.items() if known == name), None)
    if layout is None:
        raise KprofError(
            f"no profiler is called {name!r}" if name else "the profiler that wrote the array is unknown",
            hint=f"{did_you_mean(name or '', LAYOUTS)}--buffer-format (format=) is one of {', '.join(LAYOUTS)}",
            exit_code=2,
        )
    try:
        words = np.ascontiguousarray(array).reshape(-1)
    except (TypeError, ValueError, RuntimeError) as error:
        raise KprofError(
            f"NumPy cannot make an array of it: {error}", hint="copy it to the host: buffer.cpu()"
        ) from None
    if words.dtype.kind not in "iu" or words.nbytes % 8:
        what = f"a buffer consists of 64-bit integers, but this has {counted(words.size, 'item')} of {words.dtype}"
        raise KprofError(what, hint=_HINT)
    recorded, blocks, table = _recorded(
        words.astype(words.dtype.newbyteorder("<"), copy=False).view("<u8"), layout, names
    )
    written, damaged = int(recorded.units["written"].sum()), int(recorded.units["damaged"].sum())
    if not written or 2 * damaged > written:
        wrong = f"{damaged} of {written} entries are not {name} entries" if written else "it has no records"
        raise KprofError(wrong, hint=_HINT)
    numbers = np.unique(recorded.units["warp"]).tolist()
    kernel = Kernel(
        variant=path.stem,
        name=path.stem,
        # ``Launch.recorded`` takes precedence over this layout, which is for Proton's buffers.
        layout="timed",
        scope_ids={},
        scopes=table,
        mode=Mode(buffer=UNKNOWN_BUFFER, warps=() if len(numbers) == numbers[-1] + 1 else tuple(numbers)),
        metadata={
            "num_warps": numbers[-1] + 1,
            "profile_scratch_size": 8,
            "target": {"backend": "unknown", "arch": "unknown"},
        },
        # The kernel has no files.
        folder=path,
        warp_name="group",
    )
    return capture_of_buffer(kernel, path, blocks, words.nbytes, recorded=recorded)


def _recorded(words: NDArray[np.uint64], layout: Layout, names: Sequence[str]) -> tuple[Recorded, int, ScopeTable]:
    """Return the sound entries by group, the number of blocks, and the scopes: events of one name are one scope."""
    blocks, groups = (int(words[0]) & 0xFFFFFFFF, int(words[0]) >> 32) if len(words) else (0, 0)
    if not (blocks and 0 < groups <= _MAX_GROUPS and blocks * groups < len(words)):
        what = f"the header is invalid: {blocks} blocks of {groups} groups, in {counted(len(words), 'word')}"
        raise KprofError(what, hint=_HINT)
    begin = 1 + blocks * layout.has_sms
    place = np.flatnonzero(words[begin:] != np.uint64(layout.empty))
    place = place[np.argsort(place % (blocks * groups), kind="stable")]
    group, halves = place % (blocks * groups), words[begin:][place].view("<u4").reshape(-1, 2)
    tag = halves[:, 0].astype(np.int64)
    numbers = [group // groups if form.is_block else group for form in layout.tags]
    masks = [(1 << form.number_bits) - 1 for form in layout.tags]
    fits = [tag >> 12 & mask == number & mask for number, mask in zip(numbers, masks, strict=True)]
    best = max(range(len(fits)), key=lambda form: int(fits[form].sum()))
    sides = np.array(layout.tags[best].sides)
    side = sides[tag & (len(sides) - 1)]
    sound = fits[best] & (side != Side.DAMAGED)
    sm = np.where((numbers[best] <= masks[best]) & (masks[best] < 1 << 12), tag >> 24, UNKNOWN_SM)
    if layout.has_sms:
        of_block = words[1:begin].view("<u4").reshape(-1, 2).astype(np.int64)
        is_sound = (of_block[:, 0] == np.arange(blocks)) & (of_block[:, 1] < 1 << 12)
        sm = np.where(is_sound, of_block[:, 1], UNKNOWN_SM)[group // groups]

    ran, unit = np.unique(group, return_inverse=True)
    units = np.zeros(len(ran), dtype=UNIT_COLUMNS)
    units["cta"], units["warp"] = np.divmod(ran, groups)
    units["written"] = np.bincount(unit, minlength=len(ran))
    units["damaged"] = np.bincount(unit[~sound], minlength=len(ran))
    has_sm = np.flatnonzero(sound & (sm != UNKNOWN_SM))
    block, sms = group[has_sm] // groups, np.full(blocks, UNKNOWN_SM)
    sms[block] = sm[has_sm]
    # A block stays on its SM: where entries contradict each other, it is unknown.
    sms[block[sms[block] != sm[has_sm]]] = UNKNOWN_SM
    units["sm"] = sms[units["cta"]]

    entries = np.zeros(int(sound.sum()), dtype=ENTRY_COLUMNS)
    entries["unit"], entries["side"] = unit[sound], side[sound]
    entries["event"] = (tag[sound] & 0xFFF) >> (len(sides) - 1).bit_length()
    entries["ns"] = _unwrapped(entries["unit"], halves[sound, 1])
    # Instants are scopes of their own, after the others.
    kind = entries["event"] + _MAX_EVENTS * (entries["side"] == Side.INSTANT)
    kinds = set(np.unique(kind).tolist())
    kinds |= {event for event, name in enumerate(names) if name and _MAX_EVENTS + event not in kinds}
    scopes: dict[tuple[str, str], int] = {}
    scope_of_kind = np.zeros(2 * _MAX_EVENTS, dtype=np.int16)
    for number in sorted(kinds):
        is_instant, event = divmod(number, _MAX_EVENTS)
        name = (names[event] if event < len(names) else "") or f"scope {event}"
        scope_kind = ScopeKind.INSTANT if is_instant else ScopeKind.UNKNOWN
        scope_of_kind[number] = scopes.setdefault((name, scope_kind), len(scopes))
    entries["scope"] = scope_of_kind[kind]
    table = ScopeTable(scopes=tuple(Scope(record=f"{kind} {name}", name=name, kind=kind) for name, kind in scopes))
    return Recorded(units, entries, blocks - len(np.unique(units["cta"]))), blocks, table


def _unwrapped(unit: _Numbers, low_words: NDArray[np.uint32]) -> _Numbers:
    """Complete times of which only the lower 32 bits were kept, if neighbours are within 2.1 seconds of each other."""
    if not unit.size:
        return np.zeros(0, dtype=np.int64)
    begins = np.append(True, unit[1:] != unit[:-1])
    # A difference of more than half the 32-bit period ahead is a step back.
    steps = (low_words - np.where(begins, low_words[0], np.roll(low_words, 1))).view(np.int32).astype(np.int64)
    total = np.cumsum(steps)
    rest = np.repeat((total - steps)[begins], np.diff(np.flatnonzero(begins), append=len(unit)))
    ns: _Numbers = int(low_words[0]) + total - rest
    return ns + (1 << 32) if int(ns.min()) < 0 else ns
