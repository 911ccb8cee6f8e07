"""Which launch of a capture is which kernel of a trace, and how the device's clock stands to the trace's. Pure.

All is of one device. A kernel may be a launch if it has its name, grid and size, and if its call lies in the time that
the host took for the launch. A launch's CTAs ran while its kernel did, so each such pair says in which interval the
offset of the two clocks lies (an option: one of a launch's at most is true). The pairs on which most launches agree are
the true ones: a trace of Proton's has no calls and a clock of its own, and the replays of a graph have no call in any
trace. Where several offsets would do as well, nothing is matched.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from kprof_inject.capture.model import HostReading
from kprof_inject.export.merging.torch_trace import Bar, Span
from kprof_inject.quantities import listed, time_text
from kprof_inject.timeline.host_clock import HostClock, fit_host_clock


@dataclass(frozen=True, slots=True)
class Option:
    """If ``item`` is paired with ``choice``, the shift is from ``least_ns`` to ``most_ns``. There is none if that is
    the greater one; by how much is how far the pair is from fitting."""

    item: int
    choice: int
    least_ns: int
    most_ns: int

    def outside_ns(self, shift_ns: int) -> int:
        """How much further the interval has to reach for this shift to lie in it."""
        return max(self.least_ns - shift_ns, shift_ns - self.most_ns, 0)

    def fits(self, shift_ns: int, slack_ns: int) -> bool:
        return self.outside_ns(shift_ns) <= slack_ns


@dataclass(frozen=True, slots=True)
class Agreement:
    """From ``least_ns`` to ``most_ns`` the same ``items`` agree, and no more on either side."""

    items: int
    least_ns: int
    most_ns: int

    @property
    def shift_ns(self) -> int:
        return (self.least_ns + self.most_ns) // 2


def agreements(options: Sequence[Option], slack_ns: int) -> list[Agreement]:
    """Where more items agree than to either side, if each interval reaches ``slack_ns`` further at both ends: those on
    which most agree first, then by shift."""
    found = _peaks(options, slack_ns)
    return sorted(found, key=lambda agreement: (-agreement.items, agreement.least_ns))


def _peaks(options: Sequence[Option], slack_ns: int) -> Iterator[Agreement]:
    edges: list[tuple[int, int, int]] = []
    for option in options:
        least_ns, most_ns = option.least_ns - slack_ns, option.most_ns + slack_ns
        if least_ns <= most_ns:
            # At equal times what begins comes first: an interval holds its ends.
            edges += [(least_ns, 0, option.item), (most_ns, 1, option.item)]
    edges.sort()
    open_options: Counter[int] = Counter()
    rose_at_ns: int | None = None
    for at_ns, is_end, item in edges:
        if is_end:
            if rose_at_ns is not None:
                yield Agreement(len(open_options), rose_at_ns, at_ns)
                rose_at_ns = None
            open_options[item] -= 1
            if not open_options[item]:
                del open_options[item]
        else:
            if item not in open_options:
                rose_at_ns = at_ns
            open_options[item] += 1


# How far the clocks of Kineto and of the host may be apart: both are Unix time, the one by way of CUPTI.
_CLOCKS_APART_NS = 5_000_000
# The same of host times alone, which both read from its clock.
_CALLS_APART_NS = 5_000
# How far CTAs may lie outside of their kernel, in steps: the least one that loses few launches is taken. The trace's
# times of a kernel were converted from the device's clock, which need not be a straight line.
_SLACKS_NS = (0, 1_000, 5_000)
_FEW = 0.1
# Pairs to be looked at, if nothing but names tells which belong together: some seconds.
_MOST_OPTIONS = 2_000_000
# Another shift is a rival if so many agree on it of those that agree on the best: kernels that the trace lacks make the
# true one look worse.
_RIVAL = 0.5
_MOST_RIVALS = 64
# Of several shifts, the one near zero has to be so many times nearer than the next.
_NEARER = 4
_MOST_ROUNDS = 32
_MOST_NAMED = 3

_SHARED = "matches several kernels, or one that another launch also matches"


@dataclass(frozen=True, slots=True)
class Captured:
    """A launch as its capture has it. A kernel may be called by any of ``names``, and have any of ``grids``.

    ``ran`` is from its first CTA's begin to its last one's end on the device's clock, ``called`` is the host's call in
    Unix time, ``threads`` is how many a CTA has. Each is None if it is unknown, as the call of a graph's replay is."""

    names: frozenset[str]
    grids: frozenset[tuple[int, ...]]
    threads: int | None
    stream: int
    ran: Span | None
    called: Span | None


@dataclass(frozen=True, slots=True)
class LaunchMatch:
    """The launch and the bar, by their places in what was given. ``outside_ns`` is how far the launch's CTAs lie
    outside of the bar, by the clock that was found. ``by_call``: the host's call speaks for it, not its time alone."""

    launch: int
    bar: int
    reason: str
    outside_ns: int
    by_call: bool


@dataclass(frozen=True, slots=True)
class Refusal:
    """A launch that has no bar, and why: words that follow *it*."""

    launch: int
    reason: str


@dataclass(frozen=True, slots=True)
class LaunchMatching:
    """``clock`` takes the device's clock to the trace's; None if nothing was matched. At the matched launches it is off
    by ``error_ns`` at most, as far as their bars can tell."""

    matches: tuple[LaunchMatch, ...]
    refusals: tuple[Refusal, ...]
    clock: HostClock | None
    error_ns: int


def match(launches: Sequence[Captured], bars: Sequence[Bar], prior: HostClock | None = None) -> LaunchMatching:
    """``prior`` takes the device's clock to the trace's, within some milliseconds; None if that is unknown. Launches
    and bars may be in any order."""
    candidates, refusals = _candidates(launches, bars, prior)
    if sum(map(len, candidates.values())) > _MOST_OPTIONS:
        return _nothing(refusals, candidates, "has too many candidates with its name")
    found = _matched(launches, bars, candidates, prior)
    sure = {at: choices[0] for at, choices in candidates.items() if len(choices) == 1}
    if isinstance(found, str) or 2 * len(found.matches) < len(sure):
        # The clocks drift apart by more than a kernel's length, and nobody has said how much.
        again = _matched(launches, bars, candidates, _fitted(launches, bars, sure, 0))
        if not isinstance(again, str) and (isinstance(found, str) or len(again.matches) > len(found.matches)):
            found = again
    if isinstance(found, str):
        return _nothing(refusals, candidates, found)
    return replace(found, refusals=_listed(refusals | {each.launch: each.reason for each in found.refusals}))


def _matched(
    launches: Sequence[Captured],
    bars: Sequence[Bar],
    candidates: Mapping[int, Sequence[int]],
    prior: HostClock | None,
) -> LaunchMatching | str:
    """The launches that have candidates, or why none of them can be matched."""
    options = list(_options(launches, bars, candidates, prior))
    slack_ns, found = _best_agreements(options)
    if not found:
        return "took longer than every candidate kernel"
    shift_ns = _decided(options, found, slack_ns, near_zero=prior is not None)
    if shift_ns is None:
        return "matches several kernels of its name equally well, and no host call decides which"
    pairs = _one_to_one(launches, bars, options, shift_ns, slack_ns)
    clock = _fitted(launches, bars, pairs, slack_ns)
    for _ in range(_MOST_ROUNDS):
        again = _one_to_one(launches, bars, list(_options(launches, bars, candidates, clock)), 0, slack_ns)
        if not again or again == pairs:
            break
        pairs, clock = again, _fitted(launches, bars, again, slack_ns)
    if clock is None:
        return _SHARED
    matches = tuple(_matches(launches, bars, candidates, pairs, clock))
    refusals = {
        at: _why_not(launches[at], [bars[bar] for bar in choices], clock, slack_ns)
        for at, choices in candidates.items()
        if at not in pairs
    }
    times_ns = [time_ns for at in pairs if (ran := launches[at].ran) for time_ns in (ran.start_ns, ran.end_ns)]
    error_ns = max(clock.error_ns(min(times_ns), max(times_ns)), *(each.outside_ns for each in matches))
    return LaunchMatching(matches, _listed(refusals), clock, error_ns)


def on_trace(clock: HostClock | None, ran: Span) -> Span:
    """A time on the device's clock by the trace's; as it is, if it is not known how these stand to each other."""
    if clock is None:
        return ran
    start_ns, end_ns = clock.to_host_ns(np.array([ran.start_ns, ran.end_ns], dtype=np.int64)).tolist()
    return Span(start_ns, end_ns)


def _nothing(refusals: dict[int, str], others: Mapping[int, Sequence[int]], reason: str) -> LaunchMatching:
    return LaunchMatching((), _listed(refusals | dict.fromkeys(others, reason)), None, 0)


def _listed(refusals: dict[int, str]) -> tuple[Refusal, ...]:
    return tuple(Refusal(at, reason) for at, reason in sorted(refusals.items()))


@dataclass(frozen=True, slots=True)
class _Alike:
    """Bars that a launch may be by what they are: by when they begin and, if all of them are known, by their calls."""

    bars: Sequence[Bar]
    by_start: Sequence[int]
    starts_ns: Sequence[int]
    by_call: Sequence[int]
    calls_ns: Sequence[int]

    @classmethod
    def of(cls, bars: Sequence[Bar], found: Sequence[int]) -> _Alike:
        by_start = sorted(found, key=lambda at: bars[at].span.start_ns)
        called = sorted((call.start_ns, at) for at in found if (call := bars[at].call) is not None)
        if len(called) < len(found):
            called = []
        starts_ns = [bars[at].span.start_ns for at in by_start]
        return cls(bars, by_start, starts_ns, [at for _, at in called], [call_ns for call_ns, _ in called])

    def near(self, launch: Captured, ran: Span, prior: HostClock | None) -> Sequence[int]:
        """Those that it may be by the clocks, too, as far as these are known."""
        found = self.by_start
        if launch.called is not None and self.by_call:
            first_ns, last_ns = launch.called.start_ns - _CALLS_APART_NS, launch.called.end_ns + _CALLS_APART_NS
            found = self.by_call[_between(self.calls_ns, first_ns, last_ns)]
        elif prior is not None:
            error_ns = prior.error_ns(ran.start_ns, ran.end_ns) + _CLOCKS_APART_NS
            begin_ns = on_trace(prior, ran).start_ns
            found = self.by_start[_between(self.starts_ns, begin_ns - error_ns, begin_ns + error_ns)]
        return [at for at in found if _may_be_called(launch.called, self.bars[at].call)]

    def why_none(self, launch: Captured) -> str:
        """Of a launch that none is near."""
        reason = "ran at a time at which the trace has no kernel of its name and grid, by the host's clock"
        if launch.called is None or not self.calls_ns:
            return reason
        apart_ns = min(max(launch.called.start_ns - at, at - launch.called.end_ns) for at in self.calls_ns)
        return f"{reason}: the nearest call is {time_text(apart_ns)} away"


def _may_be_called(ours: Span | None, theirs: Span | None) -> bool:
    """Whether a call in the trace lies in the time that the host took for a launch; so it may if one is unknown."""
    return (
        ours is None
        or theirs is None
        or (ours.start_ns - _CALLS_APART_NS <= theirs.start_ns and theirs.end_ns <= ours.end_ns + _CALLS_APART_NS)
    )


def _between(ascending: Sequence[int], least: int, most: int) -> slice:
    return slice(bisect_left(ascending, least), bisect_right(ascending, most))


def _candidates(
    launches: Sequence[Captured], bars: Sequence[Bar], prior: HostClock | None
) -> tuple[dict[int, Sequence[int]], dict[int, str]]:
    """For each launch the bars that it may be, and why others have none."""
    by_name: defaultdict[str, list[int]] = defaultdict(list)
    for at, bar in enumerate(bars):
        by_name[bar.name].append(at)
    kinds: dict[tuple[object, ...], _Alike | str] = {}
    candidates: dict[int, Sequence[int]] = {}
    refusals: dict[int, str] = {}
    for at, launch in enumerate(launches):
        kind = launch.names, launch.grids, launch.threads
        if kind not in kinds:
            kinds[kind] = _alike(launch, bars, [bar for name in sorted(launch.names) for bar in by_name[name]])
        alike = kinds[kind]
        if launch.ran is None:
            refusals[at] = "has no CTA with timer readings"
        elif isinstance(alike, str):
            refusals[at] = alike
        elif near := alike.near(launch, launch.ran, prior):
            candidates[at] = near
        else:
            refusals[at] = alike.why_none(launch)
    return candidates, refusals


def _alike(launch: Captured, bars: Sequence[Bar], named: Sequence[int]) -> _Alike | str:
    """Those that it may be by what they are, or why there are none. What a trace does not tell fits."""
    if not named:
        return "has no kernel of its name in the trace"
    same_grid = [at for at in named if bars[at].grid is None or bars[at].grid in launch.grids]
    if not same_grid:
        others = sorted({"x".join(map(str, bars[at].grid or ())) for at in named})
        return f"has a different grid from the kernels of its name: {listed(others, _MOST_NAMED)}"
    same = [at for at in same_grid if bars[at].block is None or launch.threads in (None, prod(bars[at].block or ()))]
    if not same:
        others = sorted({str(prod(bars[at].block or ())) for at in same_grid})
        return (
            f"has {launch.threads} threads per CTA, but the kernels of its name and grid have "
            f"{listed(others, _MOST_NAMED)}"
        )
    return _Alike.of(bars, same)


def _options(
    launches: Sequence[Captured],
    bars: Sequence[Bar],
    candidates: Mapping[int, Sequence[int]],
    clock: HostClock | None,
) -> Iterator[Option]:
    """By how much the trace's clock may be ahead of ``clock``."""
    for at, found in candidates.items():
        if ran := launches[at].ran:
            placed = on_trace(clock, ran)
            for bar in found:
                span = bars[bar].span
                yield Option(at, bar, span.start_ns - placed.start_ns, span.end_ns - placed.end_ns)


def _best_agreements(options: Sequence[Option]) -> tuple[int, list[Agreement]]:
    """The least slack that loses few launches, and where they agree with it."""
    found = [(slack_ns, agreements(options, slack_ns)) for slack_ns in _SLACKS_NS]
    most = max((all_agree[0].items for _, all_agree in found if all_agree), default=0)
    for slack_ns, all_agree in found:
        if all_agree and all_agree[0].items >= (1 - _FEW) * most:
            return slack_ns, all_agree
    return 0, []


def _decided(options: Sequence[Option], found: Sequence[Agreement], slack_ns: int, *, near_zero: bool) -> int | None:
    """The shift to go by; None if nothing tells several apart. ``near_zero`` says that the true one is."""
    best, *others = found[:_MOST_RIVALS]
    chosen = _chosen(options, best, slack_ns)
    rivals = [best]
    for other in others:
        pairs = _chosen(options, other, slack_ns)
        # Where the clocks drift, other launches agree on another shift, and that is no contradiction.
        otherwise = sum(bar != pairs.get(at, bar) for at, bar in chosen.items())
        if other.items > _RIVAL * best.items and 2 * otherwise > len(chosen):
            rivals.append(other)
    rivals.sort(key=lambda rival: abs(rival.shift_ns))
    nearest = rivals[0]
    if len(rivals) > 1 and not (near_zero and _NEARER * abs(nearest.shift_ns) < abs(rivals[1].shift_ns)):
        return None
    return nearest.shift_ns


def _chosen(options: Sequence[Option], agreement: Agreement, slack_ns: int) -> dict[int, int]:
    """Of each launch a bar that it fits."""
    return {option.item: option.choice for option in options if option.fits(agreement.shift_ns, slack_ns)}


def _one_to_one(
    launches: Sequence[Captured], bars: Sequence[Bar], options: Sequence[Option], shift_ns: int, slack_ns: int
) -> dict[int, int]:
    """The bar of each launch that fits one alone, and shares it with no other launch. Of kernels that ran at the same
    time, the one counts that is on the stream of the launch's others."""
    fitting: defaultdict[int, list[int]] = defaultdict(list)
    for option in options:
        if option.fits(shift_ns, slack_ns):
            fitting[option.item].append(option.choice)
    streams: defaultdict[int, Counter[int | None]] = defaultdict(Counter)
    for at, found in fitting.items():
        if len(found) == 1:
            streams[launches[at].stream][bars[found[0]].stream] += 1
    pairs = {}
    for at, found in fitting.items():
        if len(found) > 1 and (known := streams[launches[at].stream]):
            usual = known.most_common(1)[0][0]
            found = [bar for bar in found if bars[bar].stream == usual]
        if len(found) == 1:
            pairs[at] = found[0]
    taken = Counter(pairs.values())
    return {at: bar for at, bar in pairs.items() if taken[bar] == 1}


def _fitted(
    launches: Sequence[Captured], bars: Sequence[Bar], pairs: Mapping[int, int], slack_ns: int
) -> HostClock | None:
    """The clock that all pairs allow. Each is a reading: somewhere in its bar, its CTAs ran."""
    readings = []
    for at, bar in pairs.items():
        if ran := launches[at].ran:
            span = bars[bar].span
            middle_ns = (ran.start_ns + ran.end_ns) // 2
            offset_ns = (span.start_ns - ran.start_ns + span.end_ns - ran.end_ns) // 2
            room_ns = (span.end_ns - span.start_ns) - (ran.end_ns - ran.start_ns)
            readings.append(HostReading(0, middle_ns + offset_ns, middle_ns, max(room_ns // 2 + slack_ns, 0)))
    return fit_host_clock(sorted(readings, key=lambda reading: reading.device_ns))


def _outside_ns(ran: Span, bar: Bar, clock: HostClock) -> int:
    placed = on_trace(clock, ran)
    return max(bar.span.start_ns - placed.start_ns, placed.end_ns - bar.span.end_ns, 0)


def _matches(
    launches: Sequence[Captured],
    bars: Sequence[Bar],
    candidates: Mapping[int, Sequence[int]],
    pairs: Mapping[int, int],
    clock: HostClock,
) -> Iterator[LaunchMatch]:
    for at, bar in sorted(pairs.items()):
        if ran := launches[at].ran:
            few = len(candidates[at]) == 1
            reason = "the only kernel of its name then" if few else f"by its time, of {len(candidates[at])} kernels"
            by_call = launches[at].called is not None and bars[bar].call is not None
            reason = f"{reason}, and by its call" if by_call else reason
            yield LaunchMatch(at, bar, reason, _outside_ns(ran, bars[bar], clock), by_call)


def _why_not(launch: Captured, candidates: Sequence[Bar], clock: HostClock, slack_ns: int) -> str:
    if launch.ran is None:
        return "has no CTA with timer readings"
    outside_ns = min(_outside_ns(launch.ran, bar, clock) for bar in candidates)
    if outside_ns <= slack_ns:
        return _SHARED
    return f"would lie {time_text(outside_ns)} outside the nearest kernel of its name"
