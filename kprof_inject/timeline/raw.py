"""A launch's buffer, taken apart."""

from __future__ import annotations

from kprof_inject.capture.layouts import LAYOUTS, RawCtas
from kprof_inject.capture.reader import Launch


def recorded_warps(launch: Launch) -> tuple[int, ...]:
    """The ids of the warps of a CTA that recorded, ascending."""
    return launch.kernel.mode.recorded_warps(launch.kernel.num_warps)


def read_raw(launch: Launch) -> RawCtas:
    """Read one launch's buffer and take it apart. Raises ``KprofError`` if it is damaged as a whole."""
    kernel = launch.kernel
    return LAYOUTS[kernel.layout].read(launch.words(), kernel.num_warps, recorded_warps(launch))
