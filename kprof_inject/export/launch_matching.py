"""Matching of a capture's launches to the kernels of a trace, and of the device's clock to the trace's clock.

Everything here is pure and concerns one device. A kernel is a candidate for a launch if both have the same name, grid
and size, and if the kernel's call is within the time that the host took for the launch. A launch's CTAs run while its
kernel does, so each candidate bounds the offset between the two clocks: it is an option, and at most one option of a
launch is true. The pairs are those of the offset on which most launches agree. Calls would not suffice: Proton's trace
has none and a clock of its own, and replays of a graph have none in any trace. If several offsets fit equally well,
nothing is matched.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from math import prod

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from kprof_inject.capture.schema import ClockRecord
from kprof_inject.export.torch_trace import Bar, Span
from kprof_inject.quantities import listed, time_text
from kprof_inject.timeline.host_clock import HostClock, fit_host_clock


class Option(Struct, frozen=True):
    """A possible pair of ``item`` and ``choice``, with the bounds that it sets on the shift between the clocks.

    If the minimum exceeds the maximum, no shift fits, and the difference is how far the pair is from fitting.
    """

    item: int
    choice: int
    min_shift_ns: int
    max_shift_ns: int

    def fits(self, shift_ns: int, slack_ns: int) -> bool:
        """Return whether the interval contains this shift if both its ends move out by ``slack_ns``."""
        return max(self.min_shift_ns - shift_ns, shift_ns - self.max_shift_ns, 0) <= slack_ns


class Agreement(Struct, frozen=True):
    """A range of shifts on which the same number of ``items`` agree, and no more items on either side of it."""

    items: int
    min_shift_ns: int
    max_shift_ns: int

    @property
    def shift_ns(self) -> int:
        """The middle of the range."""
        return (self.min_shift_ns + self.max_shift_ns) // 2


def agreements(options: Sequence[Option], slack_ns: int) -> list[Agreement]:
    """Return the ranges of shifts on which more items agree than on either side.

    Both ends of each option's interval first move out by ``slack_ns``. The range with the most items comes first;
    ranges with equally many are in ascending order.
    """
    found = []
    edges: list[tuple[int, int, int]] = []
    for option in options:
        min_shift_ns, max_shift_ns = option.min_shift_ns - slack_ns, option.max_shift_ns + slack_ns
        if min_shift_ns <= max_shift_ns:
            # At equal times, starts sort before ends: an interval contains both its ends.
            edges += [(min_shift_ns, 0, option.item), (max_shift_ns, 1, option.item)]
    edges.sort()
    open_options: Counter[int] = Counter()
    rose_at_ns: int | None = None
    for at_ns, is_end, item in edges:
        if is_end:
            if rose_at_ns is not None:
                found.append(Agreement(len(open_options), rose_at_ns, at_ns))
                rose_at_ns = None
            open_options[item] -= 1
            if not open_options[item]:
                del open_options[item]
        else:
            if item not in open_options:
                rose_at_ns = at_ns
            open_options[item] += 1
    return sorted(found, key=lambda agreement: (-agreement.items, agreement.min_shift_ns))


# Kineto's clock and the host's both show Unix time, but Kineto's comes from CUPTI.
_MAX_CLOCK_DIFFERENCE_NS = 5_000_000
# The capture and the trace both read a call's times from the host's clock.
_MAX_CALL_DIFFERENCE_NS = 5_000
# How far CTAs may be outside their kernel: the trace's times of a kernel are converted from the device's clock, and not
# always linearly. The smallest slack is used that loses at most ``_MAX_LOST`` of the launches.
_SLACKS_NS = (0, 1_000, 5_000)
_MAX_LOST = 0.1
# This many options take some seconds. If neither calls nor clocks are known, each launch has one for every kernel of
# its name.
_MAX_OPTIONS = 2_000_000
# A shift rivals the best one if more than this share as many launches agree on it. Half suffices, because fewer agree
# on the true shift where the trace lacks kernels.
_RIVAL_SHARE = 0.5
_MAX_AGREEMENTS = 64
# Among rivals, the shift nearest to zero is used only if the next one is farther from zero by more than this factor.
_MIN_RIVAL_DISTANCE = 4
_MAX_ROUNDS = 32
_MAX_NAMED = 3

_AMBIGUOUS = "matches several kernels, or one that another launch also matches"


class Captured(Struct, frozen=True):
    """A launch in a capture; its kernel in the trace may have any of ``names`` and any of ``grids``.

    ``span`` is from the start of the first CTA to the end of the last one, on the device's clock. ``call`` is the
    host's call, in Unix time. ``threads`` is the number of threads of a CTA. Each of the three is None if it is
    unknown; the call of a graph's replay is.
    """

    names: frozenset[str]
    grids: frozenset[tuple[int, ...]]
    threads: int | None
    stream: int
    span: Span | None
    call: Span | None


class LaunchMatch(Struct, frozen=True):
    """A pair of a launch and a bar, as indices of the sequences given to ``match``.

    ``outside_ns`` is how far the launch's CTAs are outside the bar, by the fitted clock. ``by_call`` is true if the
    host's call supports the match, too, and not only the time of the kernel.
    """

    launch: int
    bar: int
    reason: str
    outside_ns: int
    by_call: bool


class Refusal(Struct, frozen=True):
    """A launch without a bar, and the reason: a phrase that continues "it"."""

    launch: int
    reason: str


class LaunchMatching(Struct, frozen=True):
    """Result of ``match`` for all launches of a device.

    ``clock`` converts the device's times to the trace's; it is None if nothing was matched. ``error_ns`` is its maximum
    error at the matched launches, as far as their bars bound it.
    """

    matches: tuple[LaunchMatch, ...]
    refusals: tuple[Refusal, ...]
    clock: HostClock | None
    error_ns: int


def match(launches: Sequence[Captured], bars: Sequence[Bar], prior: HostClock | None = None) -> LaunchMatching:
    """Match launches to bars, both of one device and in any order.

    ``prior`` converts the device's times to the trace's, correct to some milliseconds; None if no such clock is known.
    """
    candidates, refusals = _find_candidates(launches, bars, prior)
    if sum(map(len, candidates.values())) > _MAX_OPTIONS:
        return _no_matches(refusals, candidates, "has too many candidates with its name")
    found = _match_candidates(launches, bars, candidates, prior)
    only_choices = {at: choices[0] for at, choices in candidates.items() if len(choices) == 1}
    if isinstance(found, str) or 2 * len(found.matches) < len(only_choices):
        # The clocks may drift apart by more than a kernel's length. The launches with one candidate show the drift.
        refined = _match_candidates(launches, bars, candidates, _fit_clock(launches, bars, only_choices, 0))
        if not isinstance(refined, str) and (isinstance(found, str) or len(refined.matches) > len(found.matches)):
            found = refined
    if isinstance(found, str):
        return _no_matches(refusals, candidates, found)
    return replace(found, refusals=_sorted_refusals(refusals | {each.launch: each.reason for each in found.refusals}))


def _match_candidates(
    launches: Sequence[Captured],
    bars: Sequence[Bar],
    candidates: Mapping[int, Sequence[int]],
    prior: HostClock | None,
) -> LaunchMatching | str:
    """Match the launches that have candidates, or return the reason why none of them can be matched."""
    options = list(_options(launches, bars, candidates, prior))
    slack_ns, found = _best_agreements(options)
    if not found:
        return "took longer than every candidate kernel"
    shift_ns = _choose_shift(options, found, slack_ns, near_zero=prior is not None)
    if shift_ns is None:
        return "matches several kernels of its name equally well, and no host call decides which"
    pairs = _unique_pairs(launches, bars, options, shift_ns, slack_ns)
    clock = _fit_clock(launches, bars, pairs, slack_ns)
    for _ in range(_MAX_ROUNDS):
        refined = _unique_pairs(launches, bars, list(_options(launches, bars, candidates, clock)), 0, slack_ns)
        if not refined or refined == pairs:
            break
        pairs, clock = refined, _fit_clock(launches, bars, refined, slack_ns)
    if clock is None:
        return _AMBIGUOUS
    matches = tuple(_matches(launches, bars, candidates, pairs, clock))
    refusals = {
        at: _refusal_reason(launches[at], [bars[bar] for bar in choices], clock, slack_ns)
        for at, choices in candidates.items()
        if at not in pairs
    }
    spans = [span for at in pairs if (span := launches[at].span)]
    clock_error_ns = clock.error_ns(min(span.start_ns for span in spans), max(span.end_ns for span in spans))
    error_ns = max(clock_error_ns, *(each.outside_ns for each in matches))
    return LaunchMatching(matches, _sorted_refusals(refusals), clock, error_ns)


def to_trace_time(clock: HostClock | None, span: Span) -> Span:
    """Convert a time on the device's clock to the trace's; without a ``clock``, return it unchanged."""
    if clock is None:
        return span
    start_ns, end_ns = clock.to_host_ns(np.array([span.start_ns, span.end_ns], dtype=np.int64)).tolist()
    return Span(start_ns, end_ns)


def _no_matches(refusals: dict[int, str], candidates: Mapping[int, Sequence[int]], reason: str) -> LaunchMatching:
    return LaunchMatching((), _sorted_refusals(refusals | dict.fromkeys(candidates, reason)), None, 0)


def _sorted_refusals(refusals: dict[int, str]) -> tuple[Refusal, ...]:
    return tuple(Refusal(at, reason) for at, reason in sorted(refusals.items()))


class _SameKind(Struct, frozen=True):
    """Bars of one name, grid and size, as indices of ``bars``.

    ``by_start`` has them sorted by start. ``by_call`` has them sorted by call; it is empty unless all calls are known.
    """

    bars: Sequence[Bar]
    by_start: Sequence[int]
    starts_ns: Sequence[int]
    by_call: Sequence[int]
    calls_ns: Sequence[int]

    @classmethod
    def of(cls, bars: Sequence[Bar], found: Sequence[int]) -> _SameKind:
        by_start = sorted(found, key=lambda at: bars[at].span.start_ns)
        called = sorted((call.start_ns, at) for at in found if (call := bars[at].call) is not None)
        if len(called) < len(found):
            called = []
        starts_ns = [bars[at].span.start_ns for at in by_start]
        return cls(bars, by_start, starts_ns, [at for _, at in called], [call_ns for call_ns, _ in called])

    def near(self, launch: Captured, span: Span, prior: HostClock | None) -> Sequence[int]:
        """Return the bars that fit the launch's call and time, too, as far as these are known."""
        found = self.by_start
        if launch.call is not None and self.by_call:
            first = bisect_left(self.calls_ns, launch.call.start_ns - _MAX_CALL_DIFFERENCE_NS)
            found = self.by_call[first : bisect_right(self.calls_ns, launch.call.end_ns + _MAX_CALL_DIFFERENCE_NS)]
        elif prior is not None:
            error_ns = prior.error_ns(span.start_ns, span.end_ns) + _MAX_CLOCK_DIFFERENCE_NS
            start_ns = to_trace_time(prior, span).start_ns
            first = bisect_left(self.starts_ns, start_ns - error_ns)
            found = self.by_start[first : bisect_right(self.starts_ns, start_ns + error_ns)]
        return [at for at in found if _may_be_same_call(launch.call, self.bars[at].call)]

    def refusal_reason(self, launch: Captured) -> str:
        """Return why a launch has no candidate, if no bar is near it."""
        reason = "ran at a time at which the trace has no kernel of its name and grid, by the host's clock"
        call = launch.call
        if call is None or not self.calls_ns:
            return reason
        apart_ns = min(max(call.start_ns - call_ns, call_ns - call.end_ns) for call_ns in self.calls_ns)
        return f"{reason}: the nearest call is {time_text(apart_ns)} away"


def _may_be_same_call(launch_call: Span | None, bar_call: Span | None) -> bool:
    """Return whether a bar's call is within the time that the host took for a launch, or one of them is unknown."""
    if launch_call is None or bar_call is None:
        return True
    first_ns = launch_call.start_ns - _MAX_CALL_DIFFERENCE_NS
    last_ns = launch_call.end_ns + _MAX_CALL_DIFFERENCE_NS
    return first_ns <= bar_call.start_ns and bar_call.end_ns <= last_ns


def _find_candidates(
    launches: Sequence[Captured], bars: Sequence[Bar], prior: HostClock | None
) -> tuple[dict[int, Sequence[int]], dict[int, str]]:
    """Return the candidate bars of each launch, and for launches without any the reason."""
    by_name: defaultdict[str, list[int]] = defaultdict(list)
    for at, bar in enumerate(bars):
        by_name[bar.name].append(at)
    kinds: dict[tuple[object, ...], _SameKind | str] = {}
    candidates: dict[int, Sequence[int]] = {}
    refusals: dict[int, str] = {}
    for at, launch in enumerate(launches):
        kind = launch.names, launch.grids, launch.threads
        if kind not in kinds:
            named = [bar for name in sorted(launch.names) for bar in by_name[name]]
            kinds[kind] = _find_same_kind(launch, bars, named)
        same_kind = kinds[kind]
        if launch.span is None:
            refusals[at] = "has no CTA with timer readings"
        elif isinstance(same_kind, str):
            refusals[at] = same_kind
        elif near := same_kind.near(launch, launch.span, prior):
            candidates[at] = near
        else:
            refusals[at] = same_kind.refusal_reason(launch)
    return candidates, refusals


def _find_same_kind(launch: Captured, bars: Sequence[Bar], named: Sequence[int]) -> _SameKind | str:
    """Return the bars among ``named`` that have the launch's grid and size, or the reason why there are none.

    A bar whose grid or size is not in the trace is included.
    """
    if not named:
        return "has no kernel of its name in the trace"
    same_grid = [at for at in named if bars[at].grid is None or bars[at].grid in launch.grids]
    if not same_grid:
        grids = sorted({"x".join(map(str, bars[at].grid or ())) for at in named})
        return f"has a different grid from the kernels of its name: {listed(grids, _MAX_NAMED)}"
    same = [at for at in same_grid if bars[at].block is None or launch.threads in (None, prod(bars[at].block or ()))]
    if not same:
        threads = sorted({str(prod(bars[at].block or ())) for at in same_grid})
        return (
            f"has {launch.threads} threads per CTA, but the kernels of its name and grid have "
            f"{listed(threads, _MAX_NAMED)}"
        )
    return _SameKind.of(bars, same)


def _options(
    launches: Sequence[Captured],
    bars: Sequence[Bar],
    candidates: Mapping[int, Sequence[int]],
    clock: HostClock | None,
) -> Iterator[Option]:
    """Yield an option for each launch and candidate; its shift is how far the trace's clock is ahead of ``clock``."""
    for at, choices in candidates.items():
        if span := launches[at].span:
            placed = to_trace_time(clock, span)
            for bar in choices:
                bar_span = bars[bar].span
                yield Option(at, bar, bar_span.start_ns - placed.start_ns, bar_span.end_ns - placed.end_ns)


def _best_agreements(options: Sequence[Option]) -> tuple[int, list[Agreement]]:
    """Return the smallest slack that loses few launches, and the agreements with it."""
    found = [(slack_ns, agreements(options, slack_ns)) for slack_ns in _SLACKS_NS]
    max_items = max((ranked[0].items for _, ranked in found if ranked), default=0)
    for slack_ns, ranked in found:
        if ranked and ranked[0].items >= (1 - _MAX_LOST) * max_items:
            return slack_ns, ranked
    return 0, []


def _choose_shift(
    options: Sequence[Option], found: Sequence[Agreement], slack_ns: int, *, near_zero: bool
) -> int | None:
    """Return the shift to use, or None if several are equally plausible.

    ``near_zero`` is true if the true shift is known to be near zero.
    """

    def pairs_at(agreement: Agreement) -> dict[int, int]:
        return {option.item: option.choice for option in options if option.fits(agreement.shift_ns, slack_ns)}

    best, *others = found[:_MAX_AGREEMENTS]
    best_pairs = pairs_at(best)
    rivals = [best]
    for other in others:
        pairs = pairs_at(other)
        # If the clocks drift, other launches agree on another shift. Only a shift that pairs the same launches with
        # other bars contradicts the best one.
        contradictions = sum(bar != pairs.get(at, bar) for at, bar in best_pairs.items())
        if other.items > _RIVAL_SHARE * best.items and 2 * contradictions > len(best_pairs):
            rivals.append(other)
    rivals.sort(key=lambda rival: abs(rival.shift_ns))
    nearest = rivals[0]
    if len(rivals) > 1 and not (near_zero and _MIN_RIVAL_DISTANCE * abs(nearest.shift_ns) < abs(rivals[1].shift_ns)):
        return None
    return nearest.shift_ns


def _unique_pairs(
    launches: Sequence[Captured], bars: Sequence[Bar], options: Sequence[Option], shift_ns: int, slack_ns: int
) -> dict[int, int]:
    """Return the bar of each launch that fits exactly one, unless another launch has the same bar.

    A launch may fit several kernels that ran at the same time. Of these, only those count whose stream in the trace is
    the usual one for the launch's stream, judged by the launches that fit one kernel.
    """
    fitting: defaultdict[int, list[int]] = defaultdict(list)
    for option in options:
        if option.fits(shift_ns, slack_ns):
            fitting[option.item].append(option.choice)
    streams: defaultdict[int, Counter[int | None]] = defaultdict(Counter)
    for at, choices in fitting.items():
        if len(choices) == 1:
            streams[launches[at].stream][bars[choices[0]].stream] += 1
    pairs = {}
    for at, choices in fitting.items():
        counts = streams[launches[at].stream]
        if len(choices) > 1 and counts:
            usual_stream = counts.most_common(1)[0][0]
            choices = [bar for bar in choices if bars[bar].stream == usual_stream]
        if len(choices) == 1:
            pairs[at] = choices[0]
    uses = Counter(pairs.values())
    return {at: bar for at, bar in pairs.items() if uses[bar] == 1}


def _fit_clock(
    launches: Sequence[Captured], bars: Sequence[Bar], pairs: Mapping[int, int], slack_ns: int
) -> HostClock | None:
    """Fit a clock that all pairs allow; None if there are none.

    Each pair is a reading: the CTAs ran somewhere within the bar.
    """
    readings = []
    for at, bar in pairs.items():
        if span := launches[at].span:
            bar_span = bars[bar].span
            middle_ns = (span.start_ns + span.end_ns) // 2
            offset_ns = (bar_span.start_ns - span.start_ns + bar_span.end_ns - span.end_ns) // 2
            room_ns = (bar_span.end_ns - bar_span.start_ns) - (span.end_ns - span.start_ns)
            readings.append(ClockRecord(0, middle_ns + offset_ns, middle_ns, max(room_ns // 2 + slack_ns, 0)))
    return fit_host_clock(sorted(readings, key=lambda reading: reading.device_ns))


def _outside_ns(span: Span, bar: Bar, clock: HostClock) -> int:
    placed = to_trace_time(clock, span)
    return max(bar.span.start_ns - placed.start_ns, placed.end_ns - bar.span.end_ns, 0)


def _matches(
    launches: Sequence[Captured],
    bars: Sequence[Bar],
    candidates: Mapping[int, Sequence[int]],
    pairs: Mapping[int, int],
    clock: HostClock,
) -> Iterator[LaunchMatch]:
    for at, bar in sorted(pairs.items()):
        if span := launches[at].span:
            is_only = len(candidates[at]) == 1
            reason = (
                "the only kernel of its name at that time"
                if is_only
                else f"the only one of {len(candidates[at])} kernels that fits its time"
            )
            by_call = launches[at].call is not None and bars[bar].call is not None
            reason = f"{reason}, confirmed by its call" if by_call else reason
            yield LaunchMatch(at, bar, reason, _outside_ns(span, bars[bar], clock), by_call)


def _refusal_reason(launch: Captured, candidates: Sequence[Bar], clock: HostClock, slack_ns: int) -> str:
    if launch.span is None:
        return "has no CTA with timer readings"
    outside_ns = min(_outside_ns(launch.span, bar, clock) for bar in candidates)
    if outside_ns <= slack_ns:
        return _AMBIGUOUS
    return f"ran {time_text(outside_ns)} outside the nearest kernel of its name"
