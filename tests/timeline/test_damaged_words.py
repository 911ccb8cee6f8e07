"""Damaged buffers: nothing raises but ``KprofError``, and nothing is found that did not happen.

A word that is damaged so that it is another valid one cannot be told from a sound one: a clock value between those of
the records beside it, or, if there are two such words in a warp, the id or the end flag of a record. Nor can it be told
what is sound where less than half of a CTA is. All else is found out.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from buffers import Entry
from hypothesis import given, settings
from hypothesis import strategies as st
from known_launches import KnownLaunch, launches, survivors
from numpy.typing import NDArray

from kprof_inject.errors import KprofError
from kprof_inject.timeline.timeline import Timeline, decode_launch

PREAMBLE_AT, COUNTS_AT = 0, 10
Words = NDArray[np.uint32]


@contextmanager
def saved(launch: KnownLaunch, data: bytes) -> Iterator[Timeline]:
    """The launch, decoded from other bytes than it wrote. A warning of numpy's is a failure."""
    with TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("error")
        capture = launch.save(Path(folder), launch.words())
        capture.path.write_bytes(data)
        yield decode_launch(capture)


any_word = st.integers(0, 0xFFFFFFFF) | st.integers(0, 31).map(lambda bit: 1 << bit) | st.just(0)


@st.composite
def damages(draw: st.DrawFn, words: Words, first_column: int, most: int = 8) -> Words:
    """The words, some of them replaced: by any, by one of the others, or with one bit flipped."""
    damaged = words.copy()
    places = st.tuples(st.integers(0, len(words) - 1), st.integers(first_column, words.shape[1] - 1))
    for at in draw(st.lists(places, min_size=1, max_size=most)):
        flipped = int(damaged[at]) ^ 1 << draw(st.integers(0, 31))
        damaged[at] = draw(st.one_of(st.just(flipped), any_word, places.map(lambda other: int(words[other]))))
    return damaged


def read_all(timeline: Timeline) -> NDArray[np.void]:
    """Everything that a timeline has."""
    scopes = timeline.scopes
    assert (scopes["end_cycles"] >= scopes["start_cycles"]).all()
    assert (scopes["duration_cycles"] >= 0).all()
    assert (scopes["self_ns"] >= 0).all()
    assert len(scopes) == timeline.scope_count
    for name in timeline.incomplete.dtype.names or ():
        assert name.endswith("_ns") or (timeline.incomplete[name] >= 0).all()
    assert timeline.first_ns <= timeline.last_ns
    assert timeline.warp_time_ns >= 0
    return scopes


@settings(deadline=None, max_examples=300)
@given(st.data(), launches())
def test_any_words_decode_to_something(data: st.DataObject, launch: KnownLaunch) -> None:
    words = data.draw(damages(launch.words(), PREAMBLE_AT, most=40))
    with saved(launch, words.tobytes()) as timeline:
        read_all(timeline)


@settings(deadline=None, max_examples=100)
@given(launches(), st.integers(0, 1 << 32), st.floats(0, 1))
def test_any_bytes_decode_to_something(launch: KnownLaunch, seed: int, share: float) -> None:
    random = np.random.default_rng(seed)
    raw = np.frombuffer(launch.words().tobytes(), dtype=np.uint8)
    noise = np.where(random.random(raw.size) < share, random.integers(0, 256, raw.size), raw).astype(np.uint8)
    with saved(launch, noise.tobytes()) as timeline:
        read_all(timeline)


@settings(deadline=None, max_examples=50)
@given(launches(), st.floats(0, 0.999))
def test_a_buffer_that_was_cut_off_is_an_error(launch: KnownLaunch, share: float) -> None:
    whole = launch.words().tobytes()
    with pytest.raises(KprofError, match="is damaged"), saved(launch, whole[: int(share * len(whole))]):
        pass


@dataclass(frozen=True)
class Judge:
    """What may be said of a launch whose words were damaged behind their headers."""

    launch: KnownLaunch
    words: Words
    damaged: Words

    def __post_init__(self) -> None:
        assert (self.words[:, : self._counts_at] == self.damaged[:, : self._counts_at]).all()

    @property
    def _counts_at(self) -> int:
        return COUNTS_AT if self.launch.recording.timed else 4

    def _count(self, words: Words, cta: int, warp: int) -> int:
        return int(words[cta, self._counts_at + warp])

    def _ring(self, words: Words, cta: int, warp: int) -> list[Entry]:
        slots = self.launch.recording.slots
        at = self._counts_at + self.launch.num_warps + 2 * slots * self.launch.recorded.index(warp)
        return [_entry(*pair) for pair in words[cta, at : at + 2 * slots].reshape(-1, 2).tolist()]

    def is_untouched(self, cta: int, warp: int) -> bool:
        same_count = self._count(self.words, cta, warp) == self._count(self.damaged, cta, warp)
        return same_count and self._ring(self.words, cta, warp) == self._ring(self.damaged, cta, warp)

    def is_clear(self, cta: int, warp: int) -> bool:
        """Whether the damage to a warp does not look like something else that it could have done."""
        new_count = self._count(self.words, cta, warp) != self._count(self.damaged, cta, warp)
        changed = [
            (old, new)
            for old, new in zip(self._ring(self.words, cta, warp), self._ring(self.damaged, cta, warp), strict=True)
            if old != new and new.scope_id < self._scopes
        ]
        other_times = [new for old, new in changed if old.cycles != new.cycles and self._could_be(cta, new.cycles)]
        other_records = [new for old, new in changed if old.cycles == new.cycles]
        others = new_count + sum(
            old != new
            for old, new in zip(self._ring(self.words, cta, warp), self._ring(self.damaged, cta, warp), strict=True)
        )
        return not other_times and (not other_records or others == 1)

    @property
    def _scopes(self) -> int:
        return len(survivors(self.launch).stray_ends)

    def _could_be(self, number: int, cycles: int) -> bool:
        """Whether a clock value may be one of the CTA's."""
        cta = self.launch.ctas[number]
        assert cta is not None
        period = self.launch.recording.period
        most = 5 * ((cta.end - cta.begin) // 2 + 4_001) + cta.end - cta.begin
        away = (cycles - cta.ahead - cta.begin + period // 2) % period - period // 2
        return not self.launch.recording.timed or abs(away) <= most

    def is_mostly_sound(self, cta: int) -> bool:
        """Whether more of a CTA's records are sound than not, by the counts that the damaged words tell."""
        sound = wrong = 0
        for warp in self.launch.recorded:
            kept = min(self._count(self.damaged, cta, warp) // 2, self.launch.recording.slots)
            rings = (self._ring(words, cta, warp) for words in (self.words, self.damaged))
            same = sum(old == new for old, new in zip(*rings, strict=True))
            wrong += self.launch.recording.slots - same
            sound += max(0, kept - (self.launch.recording.slots - same))
        return sound > wrong

    def has_a_clock(self, sm: int) -> bool:
        """Whether most of an SM's warps are untouched."""
        mine = [number for number, cta in enumerate(self.launch.ctas) if cta and cta.sm == sm]
        untouched = [self.is_untouched(cta, warp) for cta in mine for warp in self.launch.recorded]
        wrote = [
            self._count(self.damaged, cta, warp) > 0 or self._count(self.words, cta, warp) > 0
            for cta in mine
            for warp in self.launch.recorded
        ]
        return sum(a and b for a, b in zip(untouched, wrote, strict=True)) * 2 > sum(wrote)


def _entry(high: int, low: int) -> Entry:
    return Entry(high >> 23 & 0xFF, high >> 31 == 1, (high & 0x7FF) << 32 | low)


def true_scopes(launch: KnownLaunch) -> set[tuple[int, ...]]:
    """All that ran, left or not: CTA, warp, scope, start and length."""
    return {
        (cta, number, ran.scope, begin % launch.recording.period, warp.entries[ran.end].cycles - begin)
        for cta, number, warp in launch.warps()
        for ran in warp.scopes
        for begin in [warp.entries[ran.start].cycles]
    }


@settings(deadline=None, max_examples=400)
@given(st.data(), launches(long=False))
def test_damaged_words_invent_no_scope(data: st.DataObject, launch: KnownLaunch) -> None:
    words = launch.words()
    counts_at = COUNTS_AT if launch.recording.timed else 4
    damaged = data.draw(damages(words, counts_at))
    judge = Judge(launch, words, damaged)
    truth, left = true_scopes(launch), survivors(launch)
    with saved(launch, damaged.tobytes()) as timeline:
        scopes = read_all(timeline)

    for number, cta in enumerate(launch.ctas):
        if cta is None or not judge.is_mostly_sound(number) or not judge.has_a_clock(cta.sm):
            continue
        for warp in launch.recorded:
            mine = scopes[(scopes["cta"] == number) & (scopes["warp"] == warp)]
            if judge.is_clear(number, warp):
                for scope in mine:
                    begin = int(scope["start_cycles"])
                    length = int(scope["end_cycles"]) - begin
                    assert (number, warp, scope["scope"], begin % launch.recording.period, length) in truth
            if judge.is_untouched(number, warp):
                # As if nothing was damaged elsewhere.
                columns = ["scope", "start_record", "end_record", "depth", "iteration"]
                expected = [(row[2], *row[5:]) for row in left.scopes if row[:2] == (number, warp)]
                assert mine[columns].tolist() == expected
