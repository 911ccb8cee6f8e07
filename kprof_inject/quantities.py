"""Quantities as a reader sees them."""

from __future__ import annotations

import math
from collections.abc import Sequence

_UNITS = (("s", 1e9), ("ms", 1e6), ("µs", 1e3))
_SIZE_UNITS = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))
_AGES = (("day", 86_400), ("hour", 3_600), ("minute", 60))
_SIGNIFICANT_DIGITS = 3
_DECIMALS = 3
_NEXT_UNIT = 1000
_PLURAL_ES = ("ch", "sh", "s", "x")


def time_text(nanoseconds: float | None) -> str:
    """A time with the unit that suits it; "-" where there is none."""
    if nanoseconds is None:
        return "-"
    if round(nanoseconds) < _NEXT_UNIT:
        return f"{nanoseconds:.0f} ns"
    fitting = (one for one in reversed(_UNITS) if round(nanoseconds / one[1], _DECIMALS) < _NEXT_UNIT)
    unit, size = next(fitting, _UNITS[0])
    return f"{nanoseconds / size:.{_DECIMALS}f} {unit}"


def short_time(nanoseconds: float | None) -> str:
    """The same with three significant digits: for tables and lines that are read at a glance."""
    if nanoseconds is None:
        return "-"
    rounded = float(f"{nanoseconds:.{_SIGNIFICANT_DIGITS}g}")
    for unit, size in _UNITS:
        if rounded >= size:
            decimals = max(_SIGNIFICANT_DIGITS - 1 - math.floor(math.log10(rounded / size)), 0)
            return f"{rounded / size:.{decimals}f} {unit}"
    return f"{nanoseconds:.0f} ns"


def size_text(size_bytes: int) -> str:
    """A file's size with the unit that suits it."""
    for unit, size in _SIZE_UNITS:
        if size_bytes >= size:
            return f"{size_bytes / size:.1f} {unit}"
    return counted(size_bytes, "byte")


def age_text(seconds: float) -> str:
    """How long ago something was: ``2 hours ago``."""
    for unit, size in _AGES:
        if seconds >= size:
            return f"{counted(int(seconds // size), unit)} ago"
    return "just now"


def percent(part: float) -> str:
    """A share from 0 to 1."""
    # Without the sign of what is rounded to nothing.
    return f"{round(100 * part, 1) + 0.0:.1f} %"


def ratio(value: float) -> str:
    """How many times as much."""
    return f"{value:.2f} x" if round(value, 2) < 2 else f"{value:.1f} x"


def factor(value: float) -> str:
    """Format a speed-up or a slow-down, from 1 up: ``1.48 ×``, ``1.025 ×``."""
    decimals = 1 if value >= 10 else 2 if value >= 1.1 else 3
    return f"{value:.{decimals}f} ×"


def resolved_time(nanoseconds: float | None, resolution_ns: float) -> str:
    """Format a duration as ``short_time`` does, or as ``< 20 ns`` if it is below the resolution."""
    if nanoseconds is None or nanoseconds >= resolution_ns:
        return short_time(nanoseconds)
    return f"< {short_time(resolution_ns)}"


def signed_time(nanoseconds: float) -> str:
    """Format a difference of times: ``-9.06 µs``."""
    text = short_time(abs(nanoseconds))
    return text if float(text.split()[0]) == 0 else f"{'-' if nanoseconds < 0 else '+'}{text}"


def counted(count: int, noun: str) -> str:
    """``1 warp``, ``2 warps``, ``2 launches``."""
    return f"{count} {noun}" if count == 1 else f"{count} {plural(noun)}"


def plural(noun: str) -> str:
    return f"{noun}es" if noun.endswith(_PLURAL_ES) else f"{noun}s"


def before_and_after(before: str, after: str) -> str:
    """``128 → 136``, or what both are."""
    return after if before == after else f"{before} → {after}"


def listed(words: Sequence[str], most: int, separator: str = ", ") -> str:
    """The first of them, and how many more there are."""
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return separator.join(words[:most]) + more


def numbered(noun: str, numbers: Sequence[int]) -> str:
    """``warp 3``, ``warps 0-3, 8``: of at least one number, ascending."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    parts = ["-".join(map(str, run)) for run in runs]
    return f"{noun if len(numbers) == 1 else plural(noun)} {', '.join(parts)}"
