"""Recording mode: Proton's settings that decide the form of the buffer; and the cost of one record in a mode.

The cost of a record is the time by which it delays a warp.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Set
from typing import Any

from msgspec import Struct

from kprof_inject.capture.schema import BufferChoice, ClockBits, RingBytes, Warps
from kprof_inject.errors import KprofError, Position
from kprof_inject.quantities import counted

AUTO_BUFFER: BufferChoice = "auto"
"""Value of ``Mode.buffer`` that leaves the choice to us, for each kernel. No kernel was recorded with it."""

UNKNOWN_BUFFER: Any = "unknown"  # value of ``Mode.buffer`` for kernels that another profiler recorded


class Mode(Struct, frozen=True):
    """Recording mode of a kernel.

    ``buffer`` is where a CTA keeps its records; ``buffer_bytes`` how many bytes it keeps for all its recorded warps
    together, 0 for as many as suit the kernel. ``clock_bits`` is how much of the cycle counter a record holds (32, or
    64 of which 43 are kept). ``warps`` are the warps that record, ascending; empty means all. With ``sched_stores`` the
    stores of records are moved. With ``sched_barriers``, which only AMD has, no instruction moves past a record.
    """

    buffer: BufferChoice = "shared"
    buffer_bytes: RingBytes = 0
    clock_bits: ClockBits = 64
    warps: Warps = ()
    sched_stores: bool = False
    sched_barriers: bool = False

    def require_ascending_warps(self) -> None:
        """Raise ``ValueError`` for warps that do not ascend: the API's users make modes, too."""
        if any(warp >= following for warp, following in zip(self.warps, self.warps[1:], strict=False)):
            raise ValueError("expected ascending warps - at `$.mode`")

    def recorded_warps(self, total_warps: int) -> tuple[int, ...]:
        """Return the warps that record if CTAs have ``total_warps``; raises ``KprofError`` if there are none."""
        if not self.warps:
            return tuple(range(total_warps))
        recorded = tuple(warp for warp in self.warps if warp < total_warps)
        if not recorded:
            raise KprofError(
                f"it has none of the selected warps ({', '.join(map(str, self.warps))}), only "
                f"{counted(total_warps, 'warp')} (0 to {total_warps - 1})",
                hint="select others with --warps",
            )
        return recorded

    def require_tags_kept(self, has_tags: bool) -> None:
        """Raise ``KprofError`` if there are tags, and the mode would move their values away from their starts."""
        if has_tags and self.sched_stores:
            raise KprofError(
                "--sched-stores cannot record tags: it moves the store of a start away from the values of its tags",
                hint="drop --sched-stores or --tag",
                exit_code=2,
            )

    def require_possible_on(self, backends: Set[str]) -> None:
        """Raise ``KprofError`` if the mode requires a feature that none of these backends (``cuda``, ``hip``) has."""
        if self.sched_barriers and backends and "hip" not in backends:
            raise KprofError(
                "--sched-barriers needs an AMD GPU: Proton has no scheduling barriers for NVIDIA",
                hint="drop --sched-barriers",
                exit_code=2,
            )


_WARP = re.compile(r"\s*(\d{1,4})\s*")


def parse_warps(text: str) -> tuple[int, ...]:
    """Parse the value of ``--warps``: ids separated by commas, or nothing for all; raises ``KprofError``."""
    if not text.strip():
        return ()
    warps = set()
    column = 1
    for part in text.split(","):
        found = _WARP.fullmatch(part)
        if found is None:
            raise KprofError(
                f"{part.strip()!r} is not a warp number" if part.strip() else "a warp is missing",
                where=Position("--warps", 1, column, text),
                hint="give warp numbers from 0, separated by commas: --warps 0,4",
                exit_code=2,
            )
        warps.add(int(found[1]))
        column += len(part) + 1
    return tuple(sorted(warps))


TRUSTED_PERCENT = 5.0
"""Limit of the level *trustworthy*: the parts of a kernel's time that a reader looks for are larger, so their order
holds. An interval wider than ± this exceeds the limits wherever its middle is.
"""

Settings = tuple[str, int, bool, bool]
"""Settings of the mode: ``buffer``, ``clock_bits``, ``sched_stores``, and whether ``warps`` names some."""

SHIPPED: Mapping[tuple[str, str], Mapping[Settings, tuple[float, float, float]]] = {
    ("NVIDIA H100 80GB HBM3", "3.6"): {
        ("shared", 64, False, False): (17.5, 17.5, 11.5),
        ("shared", 64, False, True): (16.2, 16.2, 14.2),
        ("shared", 64, True, False): (12.0, 20.0, 20.0),
        ("shared", 64, True, True): (13.5, 21.0, 18.0),
        ("shared", 32, False, False): (11.5, 11.5, 10.5),
        ("shared", 32, False, True): (14.8, 14.8, 11.8),
        ("shared", 32, True, False): (9.0, 8.0, 8.0),
        ("shared", 32, True, True): (10.5, 17.5, 15.5),
        ("global", 64, False, False): (19.5, 19.5, 17.5),
        ("global", 64, False, True): (20.0, 20.0, 20.0),
        ("global", 64, True, False): (14.2, 25.5, 13.5),
        ("global", 64, True, True): (10.9, 26.5, 24.5),
        ("global", 32, False, False): (18.2, 18.2, 16.2),
        ("global", 32, False, True): (20.0, 20.0, 18.0),
        ("global", 32, True, False): (5.0, 10.0, 10.0),
        ("global", 32, True, True): (11.5, 23.5, 21.5),
    },
    ("NVIDIA H200", "3.6"): {
        ("shared", 64, False, False): (15.2, 15.2, 15.2),
        ("shared", 64, False, True): (16.2, 16.2, 14.2),
        ("shared", 64, True, False): (12.0, 20.0, 20.0),
        ("shared", 64, True, True): (13.0, 20.5, 18.5),
        ("shared", 32, False, False): (13.5, 13.5, 13.5),
        ("shared", 32, False, True): (14.8, 14.8, 11.8),
        ("shared", 32, True, False): (9.0, 8.5, 7.5),
        ("shared", 32, True, True): (10.5, 17.5, 15.5),
        ("global", 64, False, False): (18.2, 18.2, 18.2),
        ("global", 64, False, True): (20.0, 20.0, 20.0),
        ("global", 64, True, False): (13.8, 20.0, 20.0),
        ("global", 64, True, True): (10.0, 29.5, 21.5),
        ("global", 32, False, False): (18.2, 18.2, 16.2),
        ("global", 32, False, True): (20.0, 20.0, 18.0),
        ("global", 32, True, False): (8.0, 10.0, 10.0),
        ("global", 32, True, True): (11.5, 23.5, 21.5),
    },
}
"""Cycles of a start, cycles of an end, and their error (see ``RecordCost``): by the device's name and Triton's minor
version, then by the mode. ``scripts/record-costs`` measures them, and prints these rows.
"""


class RecordCost(Struct, frozen=True):
    """Cycles of the SM's counter that a record adds to the distance to the next one, on one device and in one ``Mode``.

    The costs of the start and of the end of a scope differ where stores are moved, from after the start to after the
    end.

    The cost depends on the neighbouring instructions, because work may overlap with the making of the record. So each
    value is the middle between the smallest and the largest that was measured, next to other records and next to work,
    and a record's true cost may be ``error_cycles`` more or less.
    """

    after_start_cycles: float
    after_end_cycles: float
    error_cycles: float

    @property
    def cycles(self) -> float:
        """Mean of the costs of a start and an end."""
        return (self.after_start_cycles + self.after_end_cycles) / 2

    def resolution_ns(self, clock_hz: float) -> float:
        """Return the smallest duration that exceeds a record's cost and its error, rounded up to one digit."""
        max_cost_ns = 1e9 * (self.cycles + self.error_cycles) / clock_hz
        if max_cost_ns <= 0:
            return 0.0
        unit = 10.0 ** math.floor(math.log10(max_cost_ns))
        return math.ceil(max_cost_ns / unit - 1e-9) * unit


def cost_of(device_name: str, triton: str, mode: Mode) -> RecordCost | None:
    """Return the cost that is shipped for a device, a version of Triton and a mode, whose sizes have no effect."""
    minor = ".".join(triton.split(".")[:2])
    settings = (mode.buffer, mode.clock_bits, mode.sched_stores, bool(mode.warps))
    shipped = SHIPPED.get((device_name, minor), {}).get(settings)
    return RecordCost(*shipped) if shipped else None
