"""Recording mode: Proton's settings that decide the form of the buffer."""

from __future__ import annotations

import re
from collections.abc import Set
from dataclasses import dataclass

from kprof_inject.errors import KprofError, Position
from kprof_inject.quantities import counted

AUTO_BUFFER = "auto"
"""Value of ``Mode.buffer`` that leaves the choice to us, for each kernel. No kernel was recorded with it."""


@dataclass(frozen=True, slots=True)
class Mode:
    """Recording mode of a kernel.

    ``buffer`` is where a CTA keeps its records (``shared`` or ``global`` memory, or ``auto``); ``buffer_bytes`` how
    many bytes it keeps for all its recorded warps together, where 0 means ``auto``: as many as suit the kernel.

    ``clock_bits`` is how much of the cycle counter a record holds (32, or 64 of which 43 are kept). ``warps`` are the
    warps that record, ascending; empty means all. With ``sched_stores`` the stores of records are moved. With
    ``sched_barriers``, which only AMD has, the compiler moves no instruction past a record.
    """

    buffer: str = "shared"
    buffer_bytes: int = 0
    clock_bits: int = 64
    warps: tuple[int, ...] = ()
    sched_stores: bool = False
    sched_barriers: bool = False

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
