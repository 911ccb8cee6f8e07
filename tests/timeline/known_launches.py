"""Launches of a made-up kernel, of which it is known what every warp did: what a decoder must find in their buffers."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from buffers import Cta, Entry, Scope, buffer_words, kernel_json, save_launches, with_moved_stores
from hypothesis import strategies as st
from numpy.typing import NDArray

from kprof_inject.capture.reader import Launch

BEGIN_NS = 1_764_000_000_000_000_000
CYCLES_PER_NS = 2
_TIMER_WORDS = range(4, 10)
_MARK = "mark"


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
    """How a launch was recorded. ``long`` says that seconds may pass between two records."""

    slots: int
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
        return {"clock_bits": self.clock_bits, "warps": list(self.warps), "sched_stores": self.sched_stores}


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

    def words(self) -> NDArray[np.uint32]:
        ctas = [cta and cta.as_written(self.recording) for cta in self.ctas]
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

    ``scopes`` are rows of CTA, warp, scope, start and end cycles, start and end record, depth and iteration, in order of
    CTA, warp and start; ``stray_ends`` has one for each scope of the table, ``losses`` rows of CTA, warp, and how many
    records were written, lost, and are without a partner.
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
            around = [other for other in whole if other.start < ran.start < other.end]
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


@dataclass
class _Clockwork:
    """Runs the kernel in one warp, which records the scopes ``records``."""

    records: frozenset[int]
    chance: random.Random
    least_gap: int
    most_gap: int
    clock: int
    entries: list[Entry] = field(default_factory=list)
    scopes: list[Ran] = field(default_factory=list)

    def run(self, site: Site) -> None:
        for _ in range(self.chance.randrange(5) if site.kind == "iter" else 1):
            start = self._record(site.scope, is_end=False)
            if site.kind == "cross":
                inner = self._record(site.body[0].scope, is_end=False)
                self._end(site.scope, start)
                self._end(site.body[0].scope, inner)
                continue
            for part in site.body:
                self.run(part)
            self._end(site.scope, start)

    def _end(self, scope: int, start: int) -> None:
        end = self._record(scope, is_end=True)
        if scope in self.records:
            self.scopes.append(Ran(scope, start, end))

    def _record(self, scope: int, *, is_end: bool) -> int:
        is_long = self.chance.random() < _LONG_SHARE
        self.clock += self.chance.randint(self.least_gap, self.most_gap if is_long else _SHORT_GAP)
        if scope in self.records:
            self.entries.append(Entry(scope, is_end, self.clock))
        return len(self.entries) - 1


def _shifted(warp: Warp, cycles: int) -> Warp:
    return replace(warp, entries=tuple(entry._replace(cycles=entry.cycles + cycles) for entry in warp.entries))


_SHORT_GAP = 60
# Less than half of 32 bits.
_LONG_GAP = 1 << 30
_LONG_SHARE = 0.4
_LEAVES = ("op", _MARK, "cross")


@st.composite
def kernels(draw: st.DrawFn) -> tuple[Site, ...]:
    """A function perhaps, and in it operations, marks, loops with iterations, and scopes that cross."""
    count = iter(range(100))

    def body(depth: int) -> tuple[Site, ...]:
        return tuple(site(kind, depth) for kind in draw(st.lists(st.sampled_from((*_LEAVES, "loop", "iter")), max_size=3)))

    def site(kind: str, depth: int) -> Site:
        scope = next(count)
        if kind == "cross":
            return Site(kind, scope, (Site("op", next(count)),))
        if kind in _LEAVES or depth == 3:
            return Site(_MARK if kind == _MARK else "op", scope)
        if kind == "loop":
            return Site(kind, scope, (Site("iter", next(count), body(depth + 1)),))
        return Site(kind, scope, body(depth + 1))

    if draw(st.booleans()):
        return (Site("func", next(count), body(1)),)
    return (*body(1), Site("iter", next(count)))


@st.composite
def recordings(draw: st.DrawFn, num_warps: int, *, long: bool = True) -> Recording:
    moved = draw(st.booleans())
    timed = draw(st.integers(0, 3)) > 0
    clock_bits = draw(st.sampled_from([64, 32]))
    warps = draw(st.sets(st.integers(0, num_warps - 1), min_size=1).map(sorted).map(tuple) | st.just(()))
    slots = draw(st.sampled_from([1, 2, 3, 4, 8, 13, 32, 128]))
    # Of a scope that takes longer than half a period, moved stores hide how long.
    long = long and timed and not moved and clock_bits == 32 and draw(st.booleans())
    return Recording(slots, clock_bits, warps, moved, timed, long)


@st.composite
def launches(draw: st.DrawFn, *, long: bool = True, most_ctas: int = 8) -> KnownLaunch:
    """Of up to three SMs, on which CTAs follow each other or run side by side. Each warp records other scopes if the
    kernel is specialised."""
    sites = draw(kernels())
    num_warps = draw(st.integers(1, 4))
    specialised = draw(st.booleans())
    # Long pauses: between two records that a warp makes, not two that it could make.
    recording = draw(recordings(num_warps, long=long and not specialised))
    grid = [0, *draw(st.lists(st.none() | st.integers(0, 2), max_size=most_ctas - 1))]
    chance = random.Random(draw(st.integers(0, 1 << 32)))

    scopes = range(len(scope_table(sites)))
    # Counters that are about to overflow, that have just done so, and of any value.
    ahead = [chance.choice([recording.period - chance.randrange(3_000), 5, chance.randrange(recording.period)]) for _ in range(3)]
    records = [frozenset(chance.sample(scopes, chance.randint(0, len(scopes)))) for _ in range(num_warps)]
    begins = [0, 0, 0]
    ctas: list[KnownCta | None] = []
    for sm in grid:
        if sm is None:
            ctas.append(None)
            continue
        begins[sm] += chance.randrange(2_000)
        made = []
        for number in range(num_warps):
            work = _Clockwork(
                records[number] if specialised else frozenset(scopes),
                chance,
                # Moved stores do not tell in which order records of one clock value were made.
                int(recording.sched_stores),
                _LONG_GAP if recording.long else _SHORT_GAP,
                ahead[sm] + begins[sm] + chance.randrange(100),
            )
            for site in sites:
                work.run(site)
            made.append(Warp(tuple(work.entries), tuple(work.scopes)))
        lasts = [warp.entries[-1].cycles for warp in made if warp.entries]
        last = max(lasts, default=ahead[sm] + begins[sm])
        if recording.long:
            made = [_shifted(warp, last - warp.entries[-1].cycles) if warp.entries else warp for warp in made]
        end = last - ahead[sm] + 56
        ctas.append(KnownCta(sm, ahead[sm], begins[sm], end, tuple(made)))
        begins[sm] = chance.choice([end, begins[sm]])
    chance.shuffle(ctas)
    return KnownLaunch(sites, tuple(ctas), recording)
