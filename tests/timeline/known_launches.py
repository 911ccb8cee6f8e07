"""Launches of which it is known what every warp did, their buffers, and what a decoder must find in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from buffers import Cta, Entry, Scope, buffer_words, kernel_json, save_launches, with_moved_stores
from numpy.typing import NDArray

from kprof_inject.capture.model import Launch

BEGIN_NS = 1_764_000_000_000_000_000
CYCLES_PER_NS = 2
_TIMER_WORDS = range(4, 10)


@dataclass(frozen=True)
class Site:
    """One place in the kernel's code. An "iter" runs several times for each run of what is around it, and a "cross" is
    two scopes of which the second, its body, begins in the first and ends behind it."""

    kind: str
    scope: int
    body: tuple[Site, ...] = ()


@dataclass(frozen=True)
class Ran:
    """One scope that ran: the places of its records among all of its warp's, in the order of time."""

    scope: int
    start: int
    end: int


@dataclass(frozen=True)
class Warp:
    """What a warp did: its records in the order of time, and its scopes in the order of their ends."""

    entries: tuple[Entry, ...]
    scopes: tuple[Ran, ...]


@dataclass(frozen=True)
class Recording:
    """How a launch was recorded. ``long`` says that much of a second may pass between two records."""

    slots: int
    buffer: str = "shared"
    clock_bits: int = 64
    warps: tuple[int, ...] = ()
    sched_stores: bool = False
    timed: bool = True
    long: bool = False

    @property
    def period(self) -> int:
        return 1 << (32 if self.clock_bits == 32 else 43)

    @property
    def mode(self) -> dict[str, Any]:
        return {
            "buffer": self.buffer,
            "clock_bits": self.clock_bits,
            "warps": list(self.warps),
            "sched_stores": self.sched_stores,
        }


@dataclass(frozen=True)
class KnownCta:
    """``warps`` are all that it has; ``begin`` and ``end`` count cycles from the launch's begin, ``ahead`` is what its
    SM's counter showed then."""

    sm: int
    ahead: int
    begin: int
    end: int
    warps: tuple[Warp, ...]

    def as_written(self, recording: Recording) -> Cta:
        order = with_moved_stores if recording.sched_stores else list
        init_ns, done_ns = (BEGIN_NS + cycles // CYCLES_PER_NS for cycles in (self.begin, self.end))
        warps = [order(warp.entries) for warp in self.warps]
        return Cta(warps, self.sm, init_ns, done_ns, done_ns + 500)


@dataclass(frozen=True)
class KnownLaunch:
    """``ctas`` has a row for each CTA of the grid, None for those that never ran."""

    sites: tuple[Site, ...]
    ctas: tuple[KnownCta | None, ...]
    recording: Recording

    @property
    def recorded(self) -> tuple[int, ...]:
        return self.recording.warps or tuple(range(self.num_warps))

    @property
    def num_warps(self) -> int:
        return next(len(cta.warps) for cta in self.ctas if cta)

    @property
    def counts_at(self) -> int:
        """Where in a row the counts stand."""
        return 10 if self.recording.timed else 4

    def words(self) -> NDArray[np.uint32]:
        ctas = [cta.as_written(self.recording) if cta else None for cta in self.ctas]
        bits = 32 if self.recording.clock_bits == 32 else 43
        words = buffer_words(ctas, self.recording.slots, recorded=self.recorded, clock_bits=bits)
        return words if self.recording.timed else np.delete(words, _TIMER_WORDS, axis=1)

    def save(self, folder: Path, words: NDArray[np.uint32]) -> Launch:
        kernel = kernel_json(scope_table(self.sites), words, self.num_warps, mode=self.recording.mode)
        (launch,) = save_launches(folder, kernel | {"layout": "timed" if self.recording.timed else "untimed"}, [words])
        return launch

    def warps(self) -> Iterator[tuple[int, int, Warp]]:
        """Those that recorded, with CTA and warp."""
        for number, cta in enumerate(self.ctas):
            if cta is not None:
                yield from ((number, warp, cta.warps[warp]) for warp in self.recorded)


@dataclass
class Survivors:
    """What is left of a launch in its rings.

    ``scopes`` are rows of CTA, warp, scope, start and end cycles, start and end record, depth and iteration, in the
    order of CTA, warp and start; ``stray_ends`` has one for each scope of the table, ``losses`` rows of CTA, warp, and
    how many records were written, lost, and are without a partner.
    """

    scopes: list[tuple[int, ...]] = field(default_factory=list)
    stray_ends: list[int] = field(default_factory=list)
    losses: list[tuple[int, ...]] = field(default_factory=list)


def survivors(launch: KnownLaunch) -> Survivors:
    kinds = [scope.kind for scope in scope_table(launch.sites)]
    result = Survivors(stray_ends=[0] * len(kinds))
    for cta, number, warp in launch.warps():
        written = _places_as_written(warp, launch.recording)
        lost = max(0, len(written) - launch.recording.slots)
        kept = sorted(written[lost:])
        whole = sorted((ran for ran in warp.scopes if {ran.start, ran.end} <= {*kept}), key=_start)
        stray = [ran.scope for ran in warp.scopes if ran.start not in kept and ran.end in kept]
        known_from = _known_from(warp, written[lost:], launch.recording) if lost else -1
        for ran in whole:
            around = [other for other in whole if other.start < ran.start and ran.end < other.end]
            iteration = _iteration(ran, whole, known_from) if kinds[ran.scope] == "iter" else -1
            cycles = [warp.entries[place].cycles for place in (ran.start, ran.end)]
            records = [lost + kept.index(place) for place in (ran.start, ran.end)]
            result.scopes.append((cta, number, ran.scope, *cycles, *records, len(around), iteration))
        for scope in stray:
            result.stray_ends[scope] += 1
        if lost:
            result.losses.append((cta, number, len(written), lost, len(stray)))
    return result


def _places_as_written(warp: Warp, recording: Recording) -> list[int]:
    if not recording.sched_stores:
        return list(range(len(warp.entries)))
    return [place for ran in warp.scopes for place in (ran.start, ran.end)]


def _known_from(warp: Warp, kept: Sequence[int], recording: Recording) -> int:
    """The place in the order of time from which on nothing can be missing. With moved stores, what was lost had ended
    before the oldest end that is left."""
    ends = {ran.end for ran in warp.scopes}
    return next(place for place in kept if place in ends or not recording.sched_stores)


def _iteration(mine: Ran, whole: Sequence[Ran], known_from: int) -> int:
    """Its number in the innermost scope around it; -1 if one before it there may be missing."""
    around = [other for other in whole if other.start < mine.start and other.end > mine.end]
    begin = max((other.start for other in around), default=-1)
    if begin < known_from:
        return -1
    return sum(other.scope == mine.scope and begin < other.start < mine.start for other in whole)


def _start(ran: Ran) -> int:
    return ran.start


def scope_table(sites: Sequence[Site]) -> list[Scope]:
    """As the scope table has them: outer before inner, in the order of the text."""
    rows: dict[int, Scope] = {}

    def add(site: Site, parent: int) -> None:
        kind = "op" if site.kind == "cross" else site.kind
        rows[site.scope] = Scope(f"{kind}{site.scope}", kind, parent)
        for inner in site.body:
            add(inner, parent if site.kind == "cross" else site.scope)

    for site in sites:
        add(site, -1)
    return [rows[scope] for scope in sorted(rows)]
