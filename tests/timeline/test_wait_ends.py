"""Waits that known changes of flags end at known times, and a capture of two GPUs whose arrows are known."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from buffers import Scope
from flag_launches import ADD, FLAG, SCOPES, SET, TAKE, WAIT, Use, launch
from programs.child import REPO
from replacing import replace
from timelines import incomplete_rows

from kprof_inject.capture.reader import read_capture
from kprof_inject.capture.schema import FlagMemoryRecord
from kprof_inject.timeline.axis import PlacedLaunch, place_launches
from kprof_inject.timeline.columns import NO_TAG
from kprof_inject.timeline.foreign import timelines_of
from kprof_inject.timeline.holders import critical_path, flag_waits
from kprof_inject.timeline.wait_ends import Ending, WaitEnds, wait_ends

CHANGED, BEFORE, NOT_RECORDED, NOT_SURE = Ending.CHANGED, Ending.CHANGED_BEFORE, Ending.NOT_RECORDED, Ending.NOT_SURE
Ended = tuple[int, Ending, tuple[int, int] | None]


def ends_of(*launches: PlacedLaunch) -> WaitEnds:
    (ends,) = wait_ends(launches)
    return ends


def ended(*launches: PlacedLaunch) -> list[Ended]:
    """Each wait's CTA, how it ended, and the CTA and the value of the change, by the ends of the waits."""
    ends = ends_of(*launches)
    changes = [ends.visits.changes[at] if at >= 0 else None for at in ends.changes.tolist()]
    return [
        (int(wait["cta"]), Ending(ending), None if change is None else (int(change["cta"]), int(change["value"])))
        for wait, ending, change in zip(ends.visits.waits, ends.endings.tolist(), changes, strict=True)
    ]


PEER = 0x7E00_0000_0000
SIZE = 1 << 21
MEMORY = {
    "one": [FlagMemoryRecord(FLAG - 0x1000, SIZE, 0, is_exported=True)],
    "other": [FlagMemoryRecord(PEER, SIZE, 0)],
}
THERE = PEER + 0x1000
SETS_THERE = Use(1, SET, 29_000, 29_900, 3, THERE)


def tagged_peer(scope: Scope) -> Scope:
    """A copy of a scope, with a tag of the user's."""
    return dataclasses.replace(scope, tags=["peer"])


def of_rank(placed: PlacedLaunch, rank: int) -> PlacedLaunch:
    made = placed.timeline.launch
    made = replace(made, origin=replace(made.origin, rank=rank))
    return replace(placed, timeline=replace(placed.timeline, launch=made))


WAITS = Use(0, WAIT, 10_000, 30_500, 3)
"""Goes on while the flag is less than 3."""


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([Use(1, SET, 29_000, 29_900, 3)], (CHANGED, (1, 3))),
        ([Use(1, SET, 5_000, 5_900, 2), Use(1, SET, 29_000, 29_900, 3)], (CHANGED, (1, 3))),
        ([Use(1, SET, 29_000, 29_300, 3), Use(1, SET, 30_000, 30_300, 4)], (CHANGED, (1, 3))),
        ([Use(1, SET, 29_000, 29_300, 3), Use(2, SET, 29_200, 29_500, 3)], (NOT_SURE, None)),
        ([Use(1, SET, 29_000, 29_900, 2)], (NOT_RECORDED, None)),
        ([Use(1, SET, 5_000, 5_900, 3)], (NOT_RECORDED, None)),
        ([Use(1, SET, 31_000, 31_900, 3)], (NOT_RECORDED, None)),
        ([Use(1, SET, 29_000, 29_900, 3, FLAG + 4)], (NOT_RECORDED, None)),
        ([], (NOT_RECORDED, None)),
    ],
    ids=[
        "one",
        "an earlier value",
        "a later value",
        "two at once",
        "too small",
        "long before",
        "after the end",
        "another flag",
        "none",
    ],
)
def test_the_change_that_made_the_value_ends_the_wait(
    tmp_path: Path, changes: list[Use], expected: tuple[Ending, tuple[int, int] | None]
) -> None:
    assert ended(launch(tmp_path, [WAITS, *changes])) == [(0, *expected)]


TAGGED_SCOPES = [tagged_peer(scope) if number == WAIT else scope for number, scope in enumerate(SCOPES)]


@pytest.mark.parametrize(
    ("peer", "expected"),
    [(NO_TAG, (NOT_SURE, None)), (1, (CHANGED, (1, 3))), (0, (CHANGED, (2, 3))), (7, (Ending.TAGGED, None))],
    ids=["unknown", "the other rank", "the own rank", "a rank without launches"],
)
def test_of_two_at_once_the_tagged_rank_ended_the_wait(
    tmp_path: Path, peer: int, expected: tuple[Ending, tuple[int, int] | None]
) -> None:
    own = [WAITS._replace(peer=peer), Use(2, SET, 29_200, 29_500, 3)]
    launches = [
        launch(tmp_path / "own", own, "one", memory=MEMORY["one"], scopes=TAGGED_SCOPES),
        launch(tmp_path / "other", [SETS_THERE], "other", memory=MEMORY["other"], scopes=TAGGED_SCOPES),
    ]
    assert ended(*(of_rank(one, rank) for rank, one in enumerate(launches))) == [(0, *expected)]


def test_without_an_address_a_tag_still_names_the_rank(tmp_path: Path) -> None:
    own = [WAITS._replace(peer=1, address=NO_TAG)]
    launches = [
        of_rank(launch(tmp_path / place, uses, place, scopes=TAGGED_SCOPES), rank)
        for rank, (place, uses) in enumerate({"one": own, "other": [SETS_THERE]}.items())
    ]
    assert ended(*launches) == [(0, Ending.TAGGED, None)]
    ends = ends_of(*launches)
    assert not ends.arrows().size
    (waits,) = flag_waits([ends])
    assert (waits.tagged, waits.unknown) == (1, 0)


def test_a_flag_that_was_set_before_is_waited_for_by_none(tmp_path: Path) -> None:
    uses = [Use(0, WAIT, 10_000, 10_700, 3), Use(1, SET, 5_000, 5_900, 3)]
    assert ended(launch(tmp_path, uses)) == [(0, BEFORE, (1, 3))]
    assert not ends_of(launch(tmp_path, uses)).arrows().size


@pytest.mark.parametrize(("late_ns", "expected"), [(20_000, CHANGED), (2_000, CHANGED), (300, NOT_SURE)])
def test_the_last_to_add_ends_the_waits_for_a_counter(tmp_path: Path, late_ns: int, expected: Ending) -> None:
    comes_ns = [10_000, 10_100, 10_200 + late_ns]
    leaves_ns = comes_ns[-1] + 1_500
    uses = [
        use
        for cta, ns in enumerate(comes_ns)
        for use in (Use(cta, ADD, ns, ns + 900, 1), Use(cta, WAIT, ns + 950, leaves_ns + 10 * cta))
    ]
    last = [(2, 1)] if expected == CHANGED else [None]
    found = ended(launch(tmp_path, uses))
    assert found[:2] == [(0, expected, *last), (1, expected, *last)]


def test_who_was_last_to_add_is_unknown_if_records_are_missing(tmp_path: Path) -> None:
    uses = [Use(0, ADD, 10_000, 10_900, 1), Use(0, WAIT, 10_950, 32_000), Use(1, ADD, 30_000, 30_900, 1)]
    whole = launch(tmp_path, uses)
    lost = incomplete_rows({"cta": 1, "sm": 6, "warp": 0, "records_written": 20, "records_lost": 4})
    cut = replace(whole, timeline=replace(whole.timeline, incomplete=lost))
    assert ended(whole) == [(0, CHANGED, (1, 1))]
    assert ended(cut) == [(0, NOT_RECORDED, None)]


def test_the_first_to_see_a_counter_may_change_it_again_before_the_others_see_it(tmp_path: Path) -> None:
    uses = [
        *(Use(0, ADD, 10_000, 10_900, 1), Use(0, WAIT, 10_950, 32_000), Use(0, ADD, 32_100, 32_900, 1)),
        *(Use(1, ADD, 30_000, 30_900, 1), Use(1, WAIT, 30_950, 33_500)),
    ]
    assert ended(launch(tmp_path, uses)) == [(0, CHANGED, (1, 1)), (1, BEFORE, (1, 1))]


def test_a_lock_that_was_given_back_ends_the_wait_for_it(tmp_path: Path) -> None:
    uses = [
        *(Use(0, TAKE, 1_000, 2_000), Use(0, SET, 20_000, 20_900, 0)),
        *(Use(1, TAKE, 5_000, 21_500), Use(1, SET, 40_000, 40_900, 0)),
        Use(2, TAKE, 6_000, 41_600),
    ]
    assert ended(launch(tmp_path, uses))[1:] == [(1, CHANGED, (0, 0)), (2, CHANGED, (1, 0))]


def test_times_within_a_slow_launch_are_less_sure(tmp_path: Path) -> None:
    """At 90 % of the highest clock, a launch of 1 ms may have lost 100 µs in either part of it; CTAs lose alike."""
    uses = [Use(0, ADD, 10_000, 10_900, 1), Use(0, WAIT, 10_950, 32_000), Use(1, ADD, 30_000, 30_900, 1)]
    slow = launch(tmp_path / "slow", uses, clock_hz=0.9 * launch(tmp_path, uses).timeline.launch.kernel.sm_clock_hz)
    assert ended(slow) == [(0, CHANGED, (1, 1))]
    adds = [Use(2, ADD, 29_000, 29_900, 1, THERE), Use(3, ADD, 20_000, 20_900, 1, THERE)]
    other = launch(tmp_path / "other", adds, "other", memory=MEMORY["other"])
    one = launch(tmp_path / "one", uses[:2], "one", clock_hz=slow.timeline.clock.clock_hz, memory=MEMORY["one"])
    assert ended(one, other)[0][1] == NOT_SURE


def test_processes_share_an_allocation_of_one_size_and_device(tmp_path: Path) -> None:
    one = launch(tmp_path / "one", [WAITS], "one", memory=MEMORY["one"])
    other = launch(tmp_path / "other", [SETS_THERE], "other", memory=MEMORY["other"])
    assert ended(one, other) == [(0, CHANGED, (1, 3))]
    own = [FlagMemoryRecord(PEER, SIZE, 0, is_exported=True)]
    assert ended(one, launch(tmp_path / "own", [SETS_THERE], "other", memory=own)) == [(0, NOT_RECORDED, None)]
    unclear = launch(tmp_path / "unclear", [WAITS], "one", memory=[replace(MEMORY["one"][0], is_exported=False)])
    assert ended(unclear, other) == [(0, NOT_RECORDED, None)]
    elsewhere = [FlagMemoryRecord(PEER, 2 * SIZE, 0)]
    assert ended(one, launch(tmp_path / "away", [SETS_THERE], "other", memory=elsewhere)) == [(0, NOT_RECORDED, None)]


def test_of_two_allocations_of_one_size_only_those_that_a_process_exports_are_known(tmp_path: Path) -> None:
    own_there, own_here = PEER - SIZE, FLAG + SIZE
    memory = {
        "one": [*MEMORY["one"], FlagMemoryRecord(own_here, SIZE, 0)],
        "other": [*MEMORY["other"], FlagMemoryRecord(own_there, SIZE, 0, is_exported=True)],
    }

    def pair(memory: dict[str, list[FlagMemoryRecord]]) -> list[PlacedLaunch]:
        one = launch(tmp_path / "one", [WAITS], "one", memory=memory["one"])
        return [one, launch(tmp_path / "other", [SETS_THERE], "other", memory=memory["other"])]

    assert ended(*pair(memory)) == [(0, CHANGED, (1, 3))]
    unknown = {name: [FlagMemoryRecord(one.address, SIZE, 0) for one in own] for name, own in memory.items()}
    assert ended(*pair(unknown)) == [(0, NOT_RECORDED, None)]


CTAS, LATE_CTA = 64, 37


@pytest.fixture(scope="module")
def two_gpus() -> WaitEnds:
    """Launches of ``examples/all_reduce.py --repeat 8 --late-rank 1 --late-cta 37`` on two H200."""
    launches = read_capture(REPO / "tests/captures/late-flags").launches
    (ends,) = wait_ends(place_launches(list(timelines_of(launches))))
    return ends


def test_all_waits_of_two_gpus_end_with_the_flag_of_the_same_cta(two_gpus: WaitEnds) -> None:
    """In each meeting, a CTA sets a flag on either rank, and then waits for that of rank 0 and that of rank 1."""
    visits = two_gpus.visits
    scopes = visits.launches[0].timeline.table.scopes
    signals = [index for index, scope in enumerate(scopes) if scope.kind == "signal"]
    spins = [index for index, scope in enumerate(scopes) if scope.kind == "spin"]
    assert (len(signals), len(spins)) == (4, 4)
    assert len(visits.waits) == 2 * 6 * CTAS * len(spins)
    for wait, at in zip(visits.waits, two_gpus.changes.tolist(), strict=True):
        assert at >= 0
        change = visits.changes[at]
        own, other = (visits.launches[one["launch"]].timeline.launch for one in (wait, change))
        meeting, rank = divmod(spins.index(int(wait["scope"])), 2)
        assert (other.index, int(change["cta"]), other.origin.rank) == (own.index, int(wait["cta"]), rank)
        assert int(change["scope"]) == signals[2 * meeting + own.origin.rank]


def test_the_late_cta_of_two_gpus_holds_the_other_up(two_gpus: WaitEnds) -> None:
    waits = {one.scope: one for one in flag_waits([two_gpus])}
    assert not any(one.unknown for one in waits.values())
    worst = waits["spin[3]"].holders[0]
    assert (worst.place, worst.cta, worst.change, worst.waits) == ("rank 1, device 1", LATE_CTA, "tt.atomic_rmw #2", 6)
    # It waits for 20 µs, and then reads alone, 5 µs faster than the others.
    assert worst.late_ns == pytest.approx(15_000, rel=0.02)
    launches = two_gpus.visits.launches
    together = [at for at, placed in enumerate(launches) if placed.timeline.launch.index == 4]
    path = critical_path(two_gpus, together)
    assert [(launches[work.launch].place_name, work.cta) for work in path] == [
        ("rank 1, device 1", LATE_CTA),
        ("rank 0, device 0", LATE_CTA),
    ]
    assert path[0].duration_ns > 20_000
