"""Which launch is which kernel, of programs whose truth is known: kernels are dropped, repeated and in any order."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replacing import replace
from snapshots import check

from kprof_inject.capture.schema import ClockRecord
from kprof_inject.export.launch_matching import Captured, LaunchMatching, match, to_trace_time
from kprof_inject.export.torch_trace import Bar, Span
from kprof_inject.timeline.host_clock import HostClock, fit_host_clock

UNIX_NS = 1_764_000_000_000_000_000
TIMER_NS = 1_700_000_000_000_000_000
"""What the device's clock shows at ``UNIX_NS``."""

NAMES = ("matmul", "add", "triton_poi_fused_add_0")


@dataclass(frozen=True)
class Program:
    """Launches in the order in which they ran, and the bar of each, all on one stream. The device's clock is too fast
    by ``drift``."""

    launches: list[Captured]
    bars: list[Bar]
    drift: float

    def at_device(self, unix_ns: int) -> int:
        return TIMER_NS + unix_ns - UNIX_NS + round((unix_ns - UNIX_NS) * self.drift)

    def prior(self, error_ns: int = 5_000) -> HostClock | None:
        """As captures read it: at begin and end, each reading somewhat off."""
        last_ns = self.bars[-1].span.end_ns
        return fit_host_clock(
            [
                ClockRecord(0, at_ns + late_ns, self.at_device(at_ns), error_ns)
                for at_ns, late_ns in ((UNIX_NS - 10_000_000, error_ns // 2), (last_ns, -error_ns // 3))
            ]
        )


def program(seed: int, count: int, *, drift: float = 0.0, gap_ns: int = 30_000, beat: bool = False) -> Program:
    """Random lengths and gaps; or, to a ``beat``, always the same."""
    chance = random.Random(seed)
    made = Program([], [], drift)
    called_ns, free_ns = UNIX_NS, UNIX_NS
    for number in range(count):
        name = NAMES[0] if beat else chance.choice(NAMES)
        took_ns = 12_000 if beat else 8_000 + 4_000 * NAMES.index(name) + chance.randrange(3_000)
        called_ns += 16_000 + (gap_ns if beat else chance.randrange(gap_ns // 2, 2 * gap_ns))
        call = Span(called_ns + 6_000, called_ns + 9_000)
        start_ns = max(free_ns + 1_000, call.end_ns + 2_000)
        before_ns, after_ns = (700, 600) if beat else (chance.randrange(300, 1_500), chance.randrange(200, 1_200))
        ran = Span(made.at_device(start_ns + before_ns), made.at_device(start_ns + before_ns + took_ns))
        bar = Span(start_ns, start_ns + before_ns + took_ns + after_ns)
        grid = (NAMES.index(name) + 1, 1, 1)
        host = Span(called_ns, called_ns + 15_000)
        made.launches.append(Captured(frozenset({name}), frozenset({grid}), 128, 0, ran, host))
        made.bars.append(Bar(name, bar, 0, 7, 0, 7, number, grid, (128, 1, 1), call))
        free_ns = bar.end_ns
    return made


def require_truth(made: Program, launches: list[Captured], found: LaunchMatching, bars: list[Bar]) -> None:
    """Every match is a true one, and the clock is off by no more than it says."""
    for each in found.matches:
        launch, bar = launches[each.launch], bars[each.bar]
        number = made.launches.index(launch)
        assert bar.correlation == made.bars[number].correlation
        assert found.clock is not None
        assert launch.span is not None
        placed = to_trace_time(found.clock, launch.span)
        true_ns = UNIX_NS + (launch.span.start_ns - TIMER_NS) / (1 + made.drift)
        assert abs(placed.start_ns - true_ns) <= found.error_ns + 1
        assert placed.start_ns >= bar.span.start_ns - found.error_ns
        assert placed.end_ns <= bar.span.end_ns + found.error_ns
    assert sorted([m.launch for m in found.matches] + [r.launch for r in found.refusals]) == list(range(len(launches)))
    assert all(each.reason for each in (*found.matches, *found.refusals))


@given(
    st.integers(0, 10**6),
    st.integers(1, 40),
    st.sampled_from([0.0, 1e-6, -3e-5, 1e-4]),
    st.booleans(),
    st.floats(0.2, 1.0),
    st.floats(0.2, 1.0),
)
@settings(max_examples=150, deadline=None)
def test_dropped_and_shuffled_kernels_are_told_apart(
    seed: int, count: int, drift: float, has_prior: bool, kept: float, seen: float
) -> None:
    chance = random.Random(seed)
    made = program(seed, count, drift=drift, gap_ns=chance.choice([5_000, 30_000, 2_000_000]))
    launches = [launch for launch in made.launches if chance.random() < kept] or made.launches[:1]
    bars = [bar for bar in made.bars if chance.random() < seen] or made.bars[:1]
    chance.shuffle(launches)
    chance.shuffle(bars)
    found = match(launches, bars, made.prior() if has_prior else None)
    require_truth(made, launches, found, bars)


@given(st.integers(0, 10**6), st.integers(1, 60), st.sampled_from([0.0, 1e-6, -5e-5]))
@settings(max_examples=60, deadline=None)
def test_whatever_is_in_both_is_matched(seed: int, count: int, drift: float) -> None:
    made = program(seed, count, drift=drift)
    found = match(made.launches, made.bars, made.prior())
    require_truth(made, made.launches, found, made.bars)
    assert len(found.matches) == count


@pytest.mark.parametrize("drift", [0.0, 2e-5, -1e-4])
def test_over_seconds_a_drift_is_followed_without_readings_of_the_clock(drift: float) -> None:
    made = program(3, 200, drift=drift, gap_ns=30_000_000)
    found = match(made.launches, made.bars)
    require_truth(made, made.launches, found, made.bars)
    assert len(found.matches) == 200
    assert found.error_ns < 3_000
    assert found.clock is not None
    assert found.clock.drift == pytest.approx(-drift, abs=2e-6)


def test_many_launches_narrow_the_offset_down() -> None:
    few, many = (program(5, count) for count in (2, 200))
    errors = [match(made.launches, made.bars, made.prior()).error_ns for made in (few, many)]
    # CTAs have at least 500 ns of room in each bar.
    assert errors[1] < 400 and errors[1] < errors[0]


def test_a_launch_whose_kernel_is_not_in_the_trace_takes_no_other(count: int = 12) -> None:
    # As where the profiler stopped before the last launch, which is the one that the capture kept.
    made = program(7, count, beat=True)
    found = match(made.launches[-1:], made.bars[:-1], made.prior())
    assert not found.matches
    assert "by the host's clock" in found.refusals[0].reason


def in_graph(launch: Captured) -> Captured:
    return replace(launch, call=None)


def test_replays_to_a_beat_are_not_guessed() -> None:
    made = program(11, 12, beat=True)
    found = match([in_graph(made.launches[6])], made.bars, made.prior())
    if found.matches:
        require_truth(made, [made.launches[6]], found, made.bars)
    without = match([in_graph(made.launches[6])], made.bars)
    assert not without.matches
    assert "no host call decides which" in without.refusals[0].reason


def test_a_replay_is_found_beside_launches_that_the_host_called() -> None:
    made = program(13, 12, beat=True)
    launches = [in_graph(launch) if number == 8 else launch for number, launch in enumerate(made.launches)]
    found = match(launches, made.bars, made.prior())
    assert {(each.launch, each.bar) for each in found.matches} == {(at, at) for at in range(12)}


def test_an_outlier_is_named_and_leaves_the_others_their_error() -> None:
    made = program(17, 40)
    bars = list(made.bars)
    span = bars[20].span
    bars[20] = replace(bars[20], span=Span(span.start_ns + 9_000, span.end_ns + 9_000))
    found = match(made.launches, bars, made.prior())
    assert [refusal.launch for refusal in found.refusals] == [20]
    assert "outside the nearest kernel" in found.refusals[0].reason
    assert found.error_ns < 500


def test_kernels_at_the_same_time_are_told_apart_by_their_streams() -> None:
    made = program(19, 10)
    beside = [replace(bar, stream=13, correlation=100 + at, call=None) for at, bar in enumerate(made.bars)]
    bars = [replace(bar, call=None) for bar in made.bars]
    alone = bars[:8]
    found = match(made.launches, [*alone, *beside[8:], *bars[8:]], made.prior())
    pairs = {each.launch: ([*alone, *beside[8:], *bars[8:]])[each.bar].correlation for each in found.matches}
    assert pairs == {at: at for at in range(10)}


LAUNCH = Captured(frozenset({"matmul"}), frozenset({(4, 1, 1)}), 128, 0, Span(1_000, 9_000), None)
BAR = Bar("matmul", Span(50_500, 59_500), 0, 7, 0, 7, 1, (4, 1, 1), (128, 1, 1))


@pytest.mark.parametrize(
    ("case", "launch"),
    [
        ("no timer readings", replace(LAUNCH, span=None)),
        ("another name", replace(LAUNCH, names=frozenset({"add"}))),
        ("another grid", replace(LAUNCH, grids=frozenset({(8, 1, 1)}))),
        ("64 threads", replace(LAUNCH, threads=64)),
        ("too long", replace(LAUNCH, span=Span(1_000, 40_000))),
    ],
)
def test_each_refusal_has_its_reason(case: str, launch: Captured) -> None:
    (refusal,) = match([launch], [BAR]).refusals
    check("export/kernel_matching", refusal.reason, case)


def test_a_call_before_the_kernel_is_no_reason_to_refuse() -> None:
    assert not match([replace(LAUNCH, call=Span(100, 200))], [BAR]).refusals


def test_what_a_trace_does_not_tell_is_no_hindrance() -> None:
    # As in Proton's traces.
    found = match([LAUNCH], [replace(BAR, grid=None, block=None, correlation=None, stream=None, device=None)])
    check("export/kernel_matching", found.matches[0].reason, "matched by name and time")


def test_two_launches_of_one_kernel_get_none() -> None:
    found = match([LAUNCH, LAUNCH], [BAR])
    assert not found.matches
    (reason,) = {refusal.reason for refusal in found.refusals}
    check("export/kernel_matching", reason, "two launches")
