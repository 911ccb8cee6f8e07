"""Launches of which it is known when they compute, transfer and wait for peers."""

from __future__ import annotations

from pathlib import Path

import pytest
from buffers import Scope
from flag_launches import LENGTH_NS, Use, flag, launch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from replacing import replace
from timelines import incomplete_rows

from kprof_inject.timeline.overlap import Doing, Overlap, median_overlap, overlap_of
from kprof_inject.timeline.partitions import PartitionScopes

FUNC, LOOP, TILE, SEND, WAIT = range(5)
SCOPES = [
    Scope("func"),
    Scope("loop", "loop", FUNC),
    Scope("tile", "op", LOOP),
    Scope("send", "op", FUNC),
    Scope("wait", "spin", LOOP, flag=flag("waits", "wait", "slt")),
]
DOING = [Doing.NOTHING, Doing.NOTHING, Doing.COMPUTING, Doing.TRANSFERRING, Doing.WAITING]
SENDS = [Use(0, FUNC, 0, 90_000), Use(0, SEND, 10_000, 50_000)]


def overlap(folder: Path, uses: list[Use], doing: list[Doing] = DOING, sms: int | None = None) -> Overlap | None:
    return overlap_of(launch(folder, uses, scopes=SCOPES, sms=sms).timeline, doing)


def multiplies(cta: int, *, from_ns: int, waits_ns: int) -> list[Use]:
    """A CTA that waits for ``waits_ns``, computes for 30 µs, and ends."""
    begins_ns = from_ns + waits_ns
    return [
        Use(cta, FUNC, 0, begins_ns + 31_000),
        Use(cta, LOOP, from_ns, begins_ns + 30_500),
        Use(cta, WAIT, from_ns, begins_ns),
        Use(cta, TILE, begins_ns, begins_ns + 30_000),
    ]


COMPUTES = [Use(1, FUNC, 0, 31_000), Use(1, TILE, 0, 30_000)]


def test_times_are_those_in_which_any_cta_does_so(tmp_path: Path) -> None:
    found = overlap(
        tmp_path, [*SENDS, *multiplies(1, from_ns=0, waits_ns=20_000), *multiplies(2, from_ns=0, waits_ns=45_000)]
    )
    assert found is not None
    assert (found.transferring_ns, found.waiting_ns, found.communicating_ns) == (40_000, 45_000, 50_000)
    # From 20 to 50 µs and from 45 to 75 µs, of which the first 50 µs are with communication.
    assert (found.computing_ns, found.both_ns) == (55_000, 30_000)
    assert found.ctas == 2
    assert found.mean_ctas == pytest.approx((30 + 5) / 50)


def test_what_encloses_a_scope_does_not_compute_in_it(tmp_path: Path) -> None:
    doing = [Doing.NOTHING, Doing.COMPUTING, *DOING[2:]]
    found = overlap(tmp_path, [*SENDS, *multiplies(1, from_ns=0, waits_ns=20_000)], doing)
    assert found is not None
    assert (found.computing_ns, found.both_ns) == (30_500, 30_000)


@pytest.mark.parametrize("waits_ns", [0, 5_000, 45_000])
def test_without_communication_the_slowest_cta_takes_its_work(tmp_path: Path, waits_ns: int) -> None:
    uses = [*SENDS, *multiplies(1, from_ns=2_000, waits_ns=waits_ns), *multiplies(2, from_ns=2_000, waits_ns=1_000)]
    found = overlap(tmp_path, uses, sms=3)
    assert found is not None
    assert found.without_ns == 33_000


def test_ctas_of_one_sm_give_up_the_time_in_which_none_computes(tmp_path: Path) -> None:
    """The first waits for 60 µs and the second never: from 30 µs on, the SM has nothing to compute until 60 µs."""
    uses = [*multiplies(0, from_ns=0, waits_ns=60_000), *multiplies(1, from_ns=0, waits_ns=0)]
    found = overlap(tmp_path, uses, sms=1)
    assert found is not None
    assert found.without_ns == 91_000 - 30_000


def test_a_cta_gives_up_the_time_of_one_before_it_that_only_sends(tmp_path: Path) -> None:
    after = [use._replace(start_ns=use.start_ns + 50_000, end_ns=use.end_ns + 50_000) for use in COMPUTES]
    found = overlap(tmp_path, [Use(0, FUNC, 0, 50_000), Use(0, SEND, 0, 50_000), *after], sms=1)
    assert found is not None
    assert found.without_ns == 31_000
    assert (found.both_ns, found.ctas) == (0, 1)


def test_partitions_of_a_cta_work_at_the_same_time(tmp_path: Path) -> None:
    """Warp 4 computes while warp 0 sends; the function's records are those of warp 0 alone."""
    uses = [Use(0, FUNC, 0, 90_000), Use(0, SEND, 5_000, 85_000), Use(0, TILE, 10_000, 80_000, warp=4)]
    timeline = launch(tmp_path, uses, scopes=SCOPES, sms=1).timeline
    partitions = [
        PartitionScopes(name, "", (), warps, len(warps), is_shared=False)
        for name, warps in (("default", (0, 1, 2, 3)), ("partition0", (4, 5)))
    ]
    found = overlap_of(replace(timeline, partitions=tuple(partitions)), DOING)
    assert found is not None
    assert (found.transferring_ns, found.computing_ns, found.both_ns) == (80_000, 70_000, 70_000)
    assert (found.ctas, found.mean_ctas) == (1, pytest.approx(70 / 80))
    assert found.without_ns == 90_000 - 10_000
    # Without partitions, all warps of a CTA do the same.
    alone = overlap_of(timeline, DOING)
    assert alone is not None
    assert (alone.transferring_ns, alone.computing_ns) == (80_000, 0)


def test_a_launch_without_communication_has_none(tmp_path: Path) -> None:
    assert overlap(tmp_path, [Use(0, FUNC, 0, 9_000), Use(0, TILE, 10, 8_000)]) is None


def test_nothing_is_said_if_records_are_missing(tmp_path: Path) -> None:
    whole = launch(tmp_path, SENDS, scopes=SCOPES).timeline
    lost = incomplete_rows({"cta": 0, "sm": 5, "warp": 0, "records_written": 20, "records_lost": 4})
    assert overlap_of(whole, DOING) is not None
    assert overlap_of(replace(whole, incomplete=lost), DOING) is None


def test_a_launch_that_computes_nothing_has_nothing_left(tmp_path: Path) -> None:
    found = overlap(tmp_path, SENDS)
    assert found is not None
    assert (found.ctas, found.mean_ctas, found.without_ns) == (0, 0.0, None)
    assert found.communicating_ns == 40_000 < LENGTH_NS


def test_medians_are_of_each_figure(tmp_path: Path) -> None:
    one, other, third = (
        overlap(tmp_path / str(ns), [*SENDS, *multiplies(1, from_ns=0, waits_ns=ns)]) for ns in (10_000, 20_000, 60_000)
    )
    assert one and other and third
    assert median_overlap([third, one, other]) == other


def brute(uses: list[Use], sms: int) -> tuple[int, ...]:
    """Count the figures of ``Overlap`` nanosecond by nanosecond."""
    ctas = sorted({use.cta for use in uses})
    ends_ns = {cta: max(use.end_ns for use in uses if use.cta == cta) for cta in ctas}

    def doing(cta: int, ns: int) -> Doing:
        around = [use.scope for use in uses if use.cta == cta and use.start_ns <= ns < use.end_ns]
        depth = {FUNC: 0, LOOP: 1, SEND: 1, TILE: 2, WAIT: 2}
        return DOING[max(around, key=depth.__getitem__)] if around else Doing.NOTHING

    states = [{cta: doing(cta, ns) for cta in ctas} for ns in range(max(ends_ns.values()))]
    sent = (Doing.TRANSFERRING, Doing.WAITING)

    def lasting(*is_wanted: set[Doing]) -> int:
        return sum(all(any(does in one for does in state.values()) for one in is_wanted) for state in states)

    computing_ctas = [cta for cta in ctas if any(state[cta] == Doing.COMPUTING for state in states)]
    without_ns = 0
    for sm in {cta % sms for cta in computing_ctas}:
        on_sm = [cta for cta in ctas if cta % sms == sm]
        end_ns = max(ends_ns[cta] for cta in computing_ctas if cta % sms == sm)
        only = [
            any(state[cta] in sent for cta in on_sm) and not any(state[cta] == Doing.COMPUTING for cta in on_sm)
            for state in states[:end_ns]
        ]
        without_ns = max(without_ns, end_ns - sum(only))
    return (
        lasting({Doing.TRANSFERRING}),
        lasting({Doing.WAITING}),
        lasting(set(sent)),
        lasting({Doing.COMPUTING}),
        lasting(set(sent), {Doing.COMPUTING}),
        len(computing_ctas),
        without_ns,
    )


@given(st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_figures_are_those_of_every_nanosecond(tmp_path: Path, data: st.DataObject) -> None:
    uses: list[Use] = []
    for cta in range(data.draw(st.integers(1, 5))):
        times = sorted(data.draw(st.lists(st.integers(0, 60), min_size=8, max_size=8)))
        uses.append(Use(cta, FUNC, times[0], times[7] + 1))
        if data.draw(st.booleans()):
            uses += [Use(cta, SEND, times[1], times[2])]
        if data.draw(st.booleans()):
            uses += [Use(cta, LOOP, times[3], times[6])]
            uses += [Use(cta, WAIT, times[3], times[4]), Use(cta, TILE, times[5], times[6])]
    uses = [use for use in uses if use.end_ns > use.start_ns]
    sms = data.draw(st.integers(1, 3))
    found = overlap(tmp_path / str(len(list(tmp_path.iterdir()))), uses, sms=sms)
    expected = brute(uses, sms)
    if found is None:
        assert not expected[2]
        return
    figures = (
        found.transferring_ns,
        found.waiting_ns,
        found.communicating_ns,
        found.computing_ns,
        found.both_ns,
        found.ctas,
        found.without_ns or 0,
    )
    assert figures == expected
