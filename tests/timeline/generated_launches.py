"""Launches of made-up kernels, in all modes."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from buffers import Entry
from hypothesis import strategies as st
from known_launches import KnownCta, KnownLaunch, Ran, Recording, Site, Warp, scope_table
from replacing import replace


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
_LEAVES = ("op", "mark", "cross")


@st.composite
def kernels(draw: st.DrawFn) -> tuple[Site, ...]:
    """A function perhaps, and in it operations, marks, loops with iterations, and scopes that cross."""
    count = iter(range(100))

    def body(depth: int) -> tuple[Site, ...]:
        return tuple(
            site(kind, depth) for kind in draw(st.lists(st.sampled_from((*_LEAVES, "loop", "iter")), max_size=3))
        )

    def site(kind: str, depth: int) -> Site:
        scope = next(count)
        if kind == "cross":
            return Site(kind, scope, (Site("op", next(count)),))
        if kind in _LEAVES or depth == 3:
            return Site("mark" if kind == "mark" else "op", scope)
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
    return Recording(slots, draw(st.sampled_from(["shared", "global"])), clock_bits, warps, moved, timed, long)


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
    ahead = [
        chance.choice([recording.period - chance.randrange(3_000), 5, chance.randrange(recording.period)])
        for _ in range(3)
    ]
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
