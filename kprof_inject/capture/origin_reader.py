"""Reads where a process ran, and how its devices' timers stood to the host's clock."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeGuard

from kprof_inject.capture.origin import HostReading, Origin
from kprof_inject.errors import KprofError

_READING_KEYS = ("device", "host_ns", "device_ns", "error_ns")
# The year 2116. Two such times still have a difference in 64 bits.
_END_OF_TIME_NS = 1 << 62


def origin_of(folder: Path, info: dict[str, Any], readings: tuple[HostReading, ...]) -> Origin:
    """The origin of the process with this folder; ``info`` is what its ``process.json`` holds."""
    rank = info.get("rank")
    return Origin(
        folder.name,
        info["pid"],
        rank if _is_whole(rank) else None,
        str(info.get("host") or ""),
        str(info.get("boot_id") or ""),
        _texts(info.get("device_names")),
        _texts(info.get("device_uuids")),
        readings,
    )


def _texts(values: Any) -> tuple[str, ...]:
    """A list by index, in which anything but a text is unknown."""
    return tuple(value if isinstance(value, str) else "" for value in values) if isinstance(values, list) else ()


def host_readings(path: Path) -> tuple[tuple[HostReading, ...], int]:
    """The readings, and how many lines hold none: a trace does without, so that a damaged line stops no reader."""
    try:
        lines = path.read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        return (), 0
    except OSError as error:
        raise KprofError(f"cannot read {path}: {error.strerror}") from None
    readings = [reading for line in lines if (reading := _host_reading(line)) is not None]
    return tuple(readings), len(lines) - len(readings)


def _host_reading(line: bytes) -> HostReading | None:
    try:
        values = json.loads(line)
    except (ValueError, RecursionError):
        return None
    numbers = [values.get(key) for key in _READING_KEYS] if isinstance(values, dict) else []
    whole = [number for number in numbers if _is_whole(number)]
    return HostReading(*whole) if len(whole) == len(_READING_KEYS) else None


def _is_whole(value: Any) -> TypeGuard[int]:
    """A count or a time as this format has them."""
    return type(value) is int and 0 <= value < _END_OF_TIME_NS
