"""Choose where a CTA keeps its records, and how many bytes of them.

Proton gives each recorded warp a ring, all of one size, which must be a power of two. By default it takes shared memory
regardless of how many CTAs then fit on an SM, and silently reduces a requested size; so we choose the size.
"""

from __future__ import annotations

from msgspec.structs import replace

from kprof_inject.capture.buffer_layouts import ENTRY_BYTES, HEADER_WORDS, TIMES_WORDS
from kprof_inject.capture.cta_samples import CtaSample
from kprof_inject.capture.mode import Mode
from kprof_inject.capture.resources import ctas_per_sm, limits_of
from kprof_inject.errors import KprofError
from kprof_inject.quantities import counted

_HEADER_BYTES = 4 * (HEADER_WORDS + TIMES_WORDS)
_COUNT_BYTES = 4
ROW_ALIGNMENT_BYTES = 128

MAX_LAUNCH_BYTES = (1 << 31) - 1
"""Largest buffer of a launch: up to Triton 3.7 the kernel computes a CTA's offset with a signed 32-bit word."""

# A ring with fewer records shows next to nothing; one scope takes two.
_USEFUL_RING_BYTES = 16 * ENTRY_BYTES
_MIN_RING_BYTES = 2 * ENTRY_BYTES
# Proton's defaults: in global memory, bytes for each warp; in shared memory, if more than one CTA fits on an SM, the
# maximum share of what a CTA may have.
_PROTON_GLOBAL_RING_BYTES = 16384
_PROTON_SHARED_SHARE = 0.04

_MIN_FOR_SHARED = 1024  # number of CTAs from which on shared memory suits their records, if all of them record


def auto_buffer(sample: CtaSample) -> str:
    """Return where records of these CTAs cost less on NVIDIA, mostly, as measured on an H100 (docs/accuracy.md).

    In global memory, they leave the L1 and the room for CTAs as they are, and no CTA copies them when it ends.
    """
    return "shared" if not sample.shift and sample.ctas >= _MIN_FOR_SHARED else "global"


def row_bytes(buffer_bytes: int, total_warps: int) -> int:
    """Return the size of a CTA's row in a buffer (Triton's ``profile_scratch_size``): header, counts and rings."""
    size = _HEADER_BYTES + _COUNT_BYTES * total_warps + buffer_bytes
    return -(-size // ROW_ALIGNMENT_BYTES) * ROW_ALIGNMENT_BYTES


def mode_of_kernel(
    mode: Mode,
    clean_shared_bytes: int,
    total_warps: int,
    registers: int | None,
    target: str,
    max_records: int | None = None,
) -> Mode:
    """Adapt the user's mode to one kernel: the warps that it has, and the bytes of its rings as Proton takes them.

    Of a size that the user named, each ring gets the largest power of two. ``auto`` takes no more than ``max_records``
    of a warp need, because each CTA copies its whole ring at the end. It only lowers the number of CTAs on an SM if a
    ring would otherwise have less than 16 records. Raises ``KprofError`` if the rings do not fit.
    """
    rings, limit_bytes = len(mode.recorded_warps(total_warps)), limits_of(target).cta_shared_bytes
    if mode.buffer_bytes:
        chosen = in_whole_rings(mode.buffer_bytes, rings)
    elif mode.buffer == "global":
        chosen = rings * _PROTON_GLOBAL_RING_BYTES
    else:
        # By default, Proton would give each ring a power of two of all that is left, a small share if several CTAs fit.
        ring = _power_of_two_within((limit_bytes - _shared_bytes_with_records(clean_shared_bytes, 0)) // rings)
        if limit_bytes // max(1, clean_shared_bytes) > 1:
            ring = min(ring, _power_of_two_within(int(limit_bytes * _PROTON_SHARED_SHARE) // rings))
        while ring > _USEFUL_RING_BYTES and not keeps_occupancy(
            ring * rings, clean_shared_bytes, total_warps, registers, target
        ):
            ring //= 2
        chosen = max(ring, _USEFUL_RING_BYTES) * rings
    if max_records is not None and not mode.buffer_bytes:
        chosen = min(chosen, rings * max(_MIN_RING_BYTES, 1 << (max_records * ENTRY_BYTES - 1).bit_length()))
    if mode.buffer == "shared" and _shared_bytes_with_records(clean_shared_bytes, chosen) > limit_bytes:
        raise KprofError(
            f"its shared memory has no room for {chosen} bytes of records: it uses {clean_shared_bytes} of the "
            f"{limit_bytes} bytes that a CTA can have",
            hint="choose --buffer-type global, a smaller --buffer-size, or fewer --warps",
        )
    return replace(mode, buffer_bytes=chosen, warps=mode.recorded_warps(total_warps) if mode.warps else ())


def smaller_buffer_bytes(mode: Mode, ctas: int, total_warps: int, budget_bytes: int) -> int | None:
    """Return the largest ``buffer_bytes``, up to the mode's, with which a launch's buffer fits in ``budget_bytes``.

    None if a ring would have less than 16 records, or less than it had.
    """
    rings = len(mode.recorded_warps(total_warps))
    row = min(budget_bytes, MAX_LAUNCH_BYTES) // max(ctas, 1) // ROW_ALIGNMENT_BYTES * ROW_ALIGNMENT_BYTES
    ring = _power_of_two_within((row - _HEADER_BYTES - _COUNT_BYTES * total_warps) // rings)
    if mode.buffer_bytes:
        ring = min(ring, _power_of_two_within(mode.buffer_bytes // rings))
    floor = min(_USEFUL_RING_BYTES, mode.buffer_bytes // rings or _USEFUL_RING_BYTES)
    return ring * rings if ring >= floor else None


def keeps_occupancy(
    buffer_bytes: int, clean_shared_bytes: int, total_warps: int, registers: int | None, target: str
) -> bool:
    """Determine whether as many CTAs fit on an SM with these bytes of records in shared memory as without."""
    limits = limits_of(target)
    before = ctas_per_sm(limits, clean_shared_bytes, total_warps, registers)
    after = ctas_per_sm(limits, _shared_bytes_with_records(clean_shared_bytes, buffer_bytes), total_warps, registers)
    return 0 < after == before


def in_whole_rings(buffer_bytes: int, rings: int) -> int:
    """Return the bytes that ``rings`` equal powers of two can use; raises ``KprofError`` for too few."""
    ring = _power_of_two_within(buffer_bytes // rings)
    if ring < _MIN_RING_BYTES:
        raise KprofError(
            f"{counted(buffer_bytes, 'byte')} for {counted(rings, 'warp')} are too few: one scope takes "
            f"{_MIN_RING_BYTES} bytes, and a warp gets {buffer_bytes // rings}",
            hint=f"use at least --buffer-size {rings * _MIN_RING_BYTES}, or record fewer --warps",
        )
    return ring * rings


def _shared_bytes_with_records(clean_shared_bytes: int, buffer_bytes: int) -> int:
    return -(-clean_shared_bytes // ENTRY_BYTES) * ENTRY_BYTES + buffer_bytes


def _power_of_two_within(value: int) -> int:
    return 1 << (value.bit_length() - 1) if value > 0 else 0
