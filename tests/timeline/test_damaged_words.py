"""Damaged buffers: nothing raises but ``KprofError``, and nothing is found that did not happen.

Only a word that became another valid one cannot be told from a sound one (see ``damage_judge``).
"""

from __future__ import annotations

import warnings
from bisect import bisect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from buffers import Cta, Entry, buffer_words, end, start, with_moved_stores
from damage_judge import Judge, true_scopes
from decoded_records import decoded
from generated_launches import launches
from hypothesis import given, settings
from hypothesis import strategies as st
from known_launches import KnownLaunch, survivors
from numpy.typing import NDArray
from scratch import scratch_folder

from kprof_inject.capture.buffer_layouts import LAYOUTS
from kprof_inject.timeline.pairs import ScopeRules, scopes_of
from kprof_inject.timeline.timeline import Timeline, decode_launch

pytestmark = pytest.mark.slow

Words = NDArray[np.uint32]


@contextmanager
def saved(launch: KnownLaunch, data: bytes) -> Iterator[Timeline]:
    """The launch, decoded from other bytes than it wrote. A warning of numpy's is a failure."""
    with scratch_folder() as folder, warnings.catch_warnings():
        warnings.simplefilter("error")
        capture = launch.save(Path(folder), launch.words())
        capture.path.write_bytes(data)
        yield decode_launch(capture)


@st.composite
def damages(draw: st.DrawFn, words: Words, first_column: int, most: int = 8) -> Words:
    """The words, some of them replaced: by any, by one of the others, or with one bit flipped."""
    damaged = words.copy()
    places = st.tuples(st.integers(0, len(words) - 1), st.integers(first_column, words.shape[1] - 1))
    for at in draw(st.lists(places, min_size=1, max_size=most)):
        flipped = int(damaged[at]) ^ 1 << draw(st.integers(0, 31))
        damaged[at] = draw(st.just(flipped) | st.integers(0, 0xFFFFFFFF) | places.map(lambda other: int(words[other])))
    return damaged


def read_all(timeline: Timeline) -> NDArray[np.void]:
    """Everything that a timeline has; the scopes."""
    scopes, incomplete = timeline.scopes, timeline.incomplete
    assert (scopes["end_cycles"] >= scopes["start_cycles"]).all()
    assert (scopes["duration_cycles"] >= 0).all()
    assert (scopes["end_ns"] >= scopes["start_ns"]).all()
    assert (scopes["self_ns"] >= 0).all()
    assert len(scopes) == timeline.scope_count
    counts = ("records_written", "records_lost", "open_starts", "stray_ends", "records_damaged")
    assert all((incomplete[count] >= 0).all() for count in counts)
    assert timeline.records_damaged == incomplete["records_damaged"].sum()
    assert timeline.open_starts.sum() == incomplete["open_starts"].sum()
    assert timeline.stray_ends.sum() == incomplete["stray_ends"].sum()
    assert timeline.first_ns <= timeline.last_ns
    assert timeline.warp_time_ns >= 0
    return scopes


@settings(deadline=None, max_examples=50)
@given(st.data(), launches())
def test_any_words_decode_to_something(data: st.DataObject, launch: KnownLaunch) -> None:
    words = data.draw(damages(launch.words(), 0, most=40))
    with saved(launch, words.tobytes()) as timeline:
        read_all(timeline)


def check(judge: Judge, scopes: NDArray[np.void]) -> None:
    """Of warps whose damage is clear, all that was found is true; of those without any, it is all that is left."""
    launch = judge.launch
    truth, left = true_scopes(launch), survivors(launch)
    for number, warp, _ in launch.warps():
        mine = scopes[(scopes["cta"] == number) & (scopes["warp"] == warp)]
        if judge.has_new_header(number) or not judge.is_mostly_sound(number):
            continue
        if judge.is_clear(number, warp):
            begins, ends = mine["start_cycles"].tolist(), mine["end_cycles"].tolist()
            for scope, begin, end in zip(mine["scope"].tolist(), begins, ends, strict=True):
                assert (number, warp, scope, begin % launch.recording.period, end - begin) in truth
        if judge.is_untouched(number, warp):
            columns = ["scope", "start_record", "end_record", "depth", "iteration"]
            assert mine[columns].tolist() == [(row[2], *row[5:]) for row in left.scopes if row[:2] == (number, warp)]


@pytest.mark.parametrize("most", [1, 8])
@settings(deadline=None, max_examples=50)
@given(st.data(), launches(long=False))
def test_damaged_counts_and_entries_invent_no_scope(most: int, data: st.DataObject, launch: KnownLaunch) -> None:
    words = launch.words()
    damaged = data.draw(damages(words, launch.counts_at, most=most))
    with saved(launch, damaged.tobytes()) as timeline:
        check(Judge(launch, words, damaged), read_all(timeline))


@settings(deadline=None, max_examples=50)
@given(st.data(), launches(long=False))
def test_a_damaged_header_spoils_no_other_cta(data: st.DataObject, launch: KnownLaunch) -> None:
    words = launch.words()
    row = data.draw(st.integers(0, len(words) - 1))
    damaged = words.copy()
    damaged[row : row + 1, : launch.counts_at] = data.draw(damages(words[row : row + 1, : launch.counts_at], 0, most=3))
    with saved(launch, damaged.tobytes()) as timeline:
        scopes = read_all(timeline)
    judge = Judge(launch, words, damaged)
    others = [cta for number, cta in enumerate(launch.ctas) if cta is not None and number != row]
    # The sizes of rings are what most rows say, and their times are where those of most are.
    if len(others) > 2 and int(damaged[row, 1]) == int(words[row, 1]):
        check(judge, scopes)


FUNC, LOOP, ITER, OP = range(4)
PARENTS = (-1, FUNC, LOOP, ITER)
SCOPES = {scope: scope for scope in range(4)}


def iterating(begin: int, how: str) -> list[Entry]:
    """A loop of five iterations in a function, with an operation in each; 40 cycles lie between two records."""
    ended = [end(ITER, 0)]
    iteration = [start(ITER, 0), start(OP, 0), end(OP, 0), *([] if how == "told" else ended)]
    sides = [start(FUNC, 0), start(LOOP, 0), *iteration * 5, *(ended if how == "told" else [])]
    sides += [end(LOOP, 0), end(FUNC, 0)]
    return [side._replace(cycles=begin + 40 * place) for place, side in enumerate(sides)]


def scopes_in(words: Words, how: str) -> set[tuple[int, ...]]:
    """CTA and warp as one number, scope, start and end."""
    records = decoded(LAYOUTS["timed"].read(words, 2, range(2)), SCOPES, stores_moved=how == "moved")
    records, pairs = scopes_of(records, ScopeRules(PARENTS, (ITER,) if how == "told" else ()))
    begins, ends = records.cycles[pairs.start_at], records.cycles[pairs.end_at]
    return set(map(tuple, np.stack((records.group[pairs.start_at], pairs.scope, begins, ends), axis=1).tolist()))


# Where ends are told, an iteration's next one begins where it ends.
@pytest.mark.parametrize("how", ["written", "moved", "told"])
# The ring of all records, and rings that begin with a start and with an end.
@pytest.mark.parametrize("slots", [24, 11, 10])
def test_one_flipped_bit_invents_no_scope(slots: int, how: str) -> None:
    order: Callable[[list[Entry]], list[Entry]] = with_moved_stores if how == "moved" else list
    base = 5 << 39
    ran = [[iterating(base + 500 * cta + 7 * warp, how) for warp in range(2)] for cta in range(3)]
    ctas = [Cta([order(warp) for warp in warps], pre_final_ns=2_000) for warps in ran]
    words = buffer_words(ctas, slots)
    truth, left = scopes_in(buffer_words(ctas, 24), how), scopes_in(words, how)
    assert len(truth) == 6 * 12
    assert left <= truth

    written, mine = order(ran[1][1]), 3
    lost = max(0, len(written) - slots)
    # A third of the bits of each record; of three records beside each other, all.
    for place, bit in product(range(lost, len(written)), range(64)):
        if (place + bit) % 3:
            continue
        damaged = words.copy()
        damaged[1, 12 + 2 * slots + 2 * (place % slots) + (bit < 32)] ^= np.uint32(1 << bit % 32)
        found = scopes_in(damaged, how)
        assert {scope for scope in found if scope[0] != mine} == {scope for scope in left if scope[0] != mine}
        if bit < 43:
            # Another time that is as good: in order with the records beside it. Moved stores tell less of the order.
            old, cycles = written[place], written[place].cycles ^ 1 << bit
            others = sorted(entry.cycles for entry in written[lost:] if entry != old)
            is_possible = how == "moved" or bisect(others, cycles) == bisect(others, old.cycles)
            if is_possible and abs(cycles - base) < 50_000:
                continue
        elif bit > 54 and slots == 11 and place == lost and how == "written":
            # The oldest in the ring, an end, may as well be the start of a scope around it.
            continue
        assert found <= truth
        # Of what is inside the loop, only what was made or stored near is missing.
        near = {entry.cycles for entry in written[max(0, place - 8) : place + 8]}
        near |= {entry.cycles for entry in written if abs(entry.cycles - written[place].cycles) <= 8 * 40}
        assert {scope for scope in left if scope[1] >= ITER and not near & set(scope[2:])} <= found
