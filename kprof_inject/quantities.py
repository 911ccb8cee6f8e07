"""Format quantities for readers."""

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
    """Format a time with a suitable unit; "-" for None."""
    if nanoseconds is None:
        return "-"
    if round(nanoseconds) < _NEXT_UNIT:
        return f"{nanoseconds:.0f} ns"
    fitting = (item for item in reversed(_UNITS) if round(nanoseconds / item[1], _DECIMALS) < _NEXT_UNIT)
    unit, size = next(fitting, _UNITS[0])
    return f"{nanoseconds / size:.{_DECIMALS}f} {unit}"


def short_time(nanoseconds: float | None) -> str:
    """Format a time with three significant digits, for tables and lines that are read at a glance."""
    if nanoseconds is None:
        return "-"
    rounded = float(f"{nanoseconds:.{_SIGNIFICANT_DIGITS}g}")
    for unit, size in _UNITS:
        if rounded >= size:
            decimals = max(_SIGNIFICANT_DIGITS - 1 - math.floor(math.log10(rounded / size)), 0)
            return f"{rounded / size:.{decimals}f} {unit}"
    return f"{nanoseconds:.0f} ns"


def size_text(size_bytes: int) -> str:
    """Format a file's size with a suitable unit."""
    for unit, size in _SIZE_UNITS:
        if size_bytes >= size:
            return f"{size_bytes / size:.1f} {unit}"
    return counted(size_bytes, "byte")


def age_text(seconds: float) -> str:
    """Format an age: ``2 hours ago``."""
    for unit, size in _AGES:
        if seconds >= size:
            return f"{counted(int(seconds // size), unit)} ago"
    return "just now"


def percent(part: float) -> str:
    """Format a share from 0 to 1 in percent."""
    # Adding 0.0 removes the sign of a share that rounds to zero.
    return f"{round(100 * part, 1) + 0.0:.1f} %"


def ratio(value: float) -> str:
    """Format a ratio of two values: ``1.05 x``, ``12.3 x``."""
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


def signed_microseconds(nanoseconds: float) -> str:
    """Format a difference of times in one unit, for a column of differences: ``-9.06 µs``, ``+0.31 µs``."""
    return f"{round(nanoseconds / 1e3, 2) + 0.0:+.2f} µs"


def counted(count: int, noun: str) -> str:
    """Format a count with its noun: ``1 warp``, ``2 warps``, ``2 launches``."""
    return f"{count} {noun}" if count == 1 else f"{count} {plural(noun)}"


def plural(noun: str) -> str:
    """Return the plural of a noun."""
    return f"{noun}es" if noun.endswith(_PLURAL_ES) else f"{noun}s"


def before_and_after(before: str, after: str) -> str:
    """Format a change: ``128 → 136``, or the value if both are equal."""
    return after if before == after else f"{before} → {after}"


def listed(words: Sequence[str], max_words: int, separator: str = ", ") -> str:
    """List the first words, and the number of further ones."""
    more = f" and {len(words) - max_words} more" if len(words) > max_words else ""
    return separator.join(words[:max_words]) + more


def numbered(noun: str, numbers: Sequence[int]) -> str:
    """Format numbers in ascending order, at least one: ``warp 3``, ``warps 0-3, 8``."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    parts = ["-".join(map(str, run)) for run in runs]
    return f"{noun if len(numbers) == 1 else plural(noun)} {', '.join(parts)}"
