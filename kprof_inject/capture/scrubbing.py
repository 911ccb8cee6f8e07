"""Replace the floating-point data of a saved launch by noise of the same range, so that no weights or inputs travel.

Integers stay: they decide control flow and addresses. So do scalar arguments, and NaN, infinities, zeros and signs, on
which control flow may depend. Of all other numbers, only the powers of two remain, in random order.
"""

from __future__ import annotations

import os
import shutil
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from kprof_inject.capture.saved_launch import (
    MEMORY_FILE,
    MemoryRecord,
    SavedLaunch,
    checksums,
    write_saved_launch,
)
from kprof_inject.errors import KprofError


@dataclass(frozen=True, slots=True)
class _FloatFormat:
    """Bits of a floating-point type: of a whole number, its exponent and its mantissa."""

    bits: int
    exponent_bits: int
    mantissa_bits: int
    has_infinities: bool = True
    """True if the largest exponent is for infinities and NaN alone; else it is for finite numbers and one NaN."""

    @property
    def unsigned(self) -> np.dtype[np.unsignedinteger]:
        """Unsigned integers of this size."""
        return np.dtype(f"<u{self.bits // 8}")


# Source: IEEE 754, and for the 8-bit ones "FP8 Formats for Deep Learning" (Micikevicius et al., 2022) and Triton's
# names (triton/language/core.py).
_FORMATS: Mapping[str, _FloatFormat] = {
    "fp64": _FloatFormat(64, 11, 52),
    "fp32": _FloatFormat(32, 8, 23),
    "fp16": _FloatFormat(16, 5, 10),
    "bf16": _FloatFormat(16, 8, 7),
    "fp8e5": _FloatFormat(8, 5, 2),
    "fp8e4nv": _FloatFormat(8, 4, 3, has_infinities=False),
    "fp8e4b8": _FloatFormat(8, 4, 3, has_infinities=False),
    "fp8e5b16": _FloatFormat(8, 5, 2, has_infinities=False),
    "fp8e4b15": _FloatFormat(8, 4, 3, has_infinities=False),
}


def scrub(saved: SavedLaunch, folder: Path, *, seed: int = 0, also_integers: bool = False) -> list[MemoryRecord]:
    """Write a copy of a saved launch with noise for its floating-point data; return the ranges that are noise.

    ``also_integers`` replaces ranges of 8-bit integers and bytes by random bytes, too. Raises ``KprofError`` if
    ``folder`` exists or the launch is damaged, and ``OSError``.
    """
    if folder.exists():
        raise KprofError(f"{folder} exists", hint="name another place with -o")
    for name in saved.record.files:  # no others, which a link may lead to
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(saved.folder / name, folder / name)
    generator = np.random.default_rng(seed)
    scrubbed: list[MemoryRecord] = []
    memory: list[MemoryRecord] = []
    place = 0
    with (folder / MEMORY_FILE).open("wb") as file:
        os.ftruncate(file.fileno(), sum(one.size_bytes for one in saved.record.memory))
        for one in saved.record.memory:
            changes = one.element in _FORMATS or (also_integers and one.element in ("i8", "u8"))
            crc32: list[int] = []
            for offset, data in saved.chunks(one):
                written = _noise(data, one.element, generator) if changes else data
                crc32.append(zlib.crc32(written))
                if any(written):
                    os.pwrite(file.fileno(), written, place + offset)
            # What the program's launch left there is known no more: it was computed from the data.
            digest = one.before if not changes else None
            changed = replace(one, offset=place, chunk_crc32=tuple(crc32), chunk_bytes=(), before=digest, after=None)
            memory.append(changed)
            place += one.size_bytes
            scrubbed += [one] if changes else []
    record = replace(saved.record, memory=tuple(memory), scrubbed=True, argv=(), files=checksums(folder))
    write_saved_launch(folder, record)
    return scrubbed


def _noise(data: bytes, element: str, generator: np.random.Generator) -> bytes:
    """Return noise of the same range, type and special values as the numbers in ``data``, of whole elements."""
    form = _FORMATS.get(element)
    if form is None:
        return generator.bytes(len(data))
    size = form.bits // 8
    whole = len(data) // size * size
    numbers = np.frombuffer(data[:whole], form.unsigned)
    return _like(numbers, form, generator).tobytes() + bytes(len(data) - whole)


def _like(
    numbers: NDArray[np.unsignedinteger], form: _FloatFormat, generator: np.random.Generator
) -> NDArray[np.unsignedinteger]:
    """Return numbers with random mantissas, and with the exponents of ``numbers`` in random order."""
    kind = numbers.dtype.type
    exponent_mask = kind(((1 << form.exponent_bits) - 1) << form.mantissa_bits)
    mantissa_mask = kind((1 << form.mantissa_bits) - 1)
    exponents, mantissas = numbers & exponent_mask, numbers & mantissa_mask
    is_special = (
        (exponents == exponent_mask)
        if form.has_infinities
        else ((numbers & ~_sign(form, kind)) == kind((1 << (form.bits - 1)) - 1))
    )
    is_plain = ~is_special & ((exponents | mantissas) != 0)
    result = numbers.copy()
    plain_exponents = exponents[is_plain]
    generator.shuffle(plain_exponents)
    noise = generator.integers(0, int(mantissa_mask) + 1, plain_exponents.size, dtype=numbers.dtype)
    if not form.has_infinities:
        # With the largest exponent, the largest mantissa is NaN.
        noise[(plain_exponents == exponent_mask) & (noise == mantissa_mask)] = 0
    # An exponent of zero needs a mantissa, or the number would become zero.
    noise[(plain_exponents == 0) & (noise == 0)] = 1
    result[is_plain] = (numbers[is_plain] & _sign(form, kind)) | plain_exponents | noise
    return result


def _sign(form: _FloatFormat, kind: type[np.unsignedinteger]) -> np.unsignedinteger:
    return kind(1 << (form.bits - 1))
