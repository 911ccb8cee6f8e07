"""The buffer's layout: every field where Proton writes it, and rows that cannot be trusted set aside."""

from __future__ import annotations

import heapq

import numpy as np
import pytest
from buffers import Cta, buffer_words, end, start
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from kprof_inject.capture.buffer_layouts import LAYOUTS, RawCtas, estimated_begins, rows_of
from kprof_inject.capture.cta_samples import CtaSample
from kprof_inject.errors import KprofError

PREAMBLE = 0xDEADBEEF

# Two warps with a ring of two entries each, so 32 bytes of rings; times need both of their words.
ROW = [
    *(PREAMBLE, 0, 77, 32),
    *(0xF1111111, 0x00000001, 0x22222222, 0x00000002, 0x33333333, 0x00000003),
    *(4, 10),
    *(0xA0, 0xA1, 0xA2, 0xA3),
    *(0xB0, 0xB1, 0xB2, 0xB3),
]
BEGIN_NS, END_NS, COPIED_NS = 0x1_F1111111, 0x2_22222222, 0x3_33333333
HOUR_NS = 3_600_000_000_000


def rows(count: int) -> NDArray[np.uint32]:
    """The same row for each CTA, but with its own id and SM."""
    words = np.array([ROW] * count, dtype="<u4")
    words[:, 1] = np.arange(count)
    words[:, 2] += words[:, 1]
    return words


def set_times(words: NDArray[np.uint32], row: int, *times_ns: int) -> None:
    words[row, 4 : 4 + 2 * len(times_ns)] = np.array(times_ns, dtype="<u8").view("<u4")


def read(words: NDArray[np.uint32]) -> RawCtas:
    return LAYOUTS["timed"].read(words, 2, range(2))


def test_every_field_is_read_from_its_place() -> None:
    raw = LAYOUTS["timed"].read(np.array([ROW], dtype="<u4"), 2, range(2))

    assert raw.cta.tolist() == [0]
    assert raw.sm.tolist() == [77]
    assert raw.init_ns.tolist() == [BEGIN_NS]
    assert raw.pre_final_ns.tolist() == [END_NS]
    assert raw.post_final_ns.tolist() == [COPIED_NS]
    assert raw.written_words.tolist() == [[4, 10]]
    assert raw.entries.tolist() == [[[[0xA0, 0xA1], [0xA2, 0xA3]], [[0xB0, 0xB1], [0xB2, 0xB3]]]]
    assert (raw.never_ran, raw.damaged, raw.timed, raw.miscounted) == (0, 0, True, 0)


def test_without_timer_readings_the_counts_follow_the_header() -> None:
    raw = LAYOUTS["untimed"].read(np.array([ROW[:4] + ROW[10:]], dtype="<u4"), 2, range(2))

    assert (raw.cta.tolist(), raw.sm.tolist(), raw.timed) == ([0], [77], False)
    assert (raw.init_ns.tolist(), raw.pre_final_ns.tolist(), raw.post_final_ns.tolist()) == ([0], [0], [0])
    assert raw.written_words.tolist() == [[4, 10]]
    assert raw.entries.tolist() == [[[[0xA0, 0xA1], [0xA2, 0xA3]], [[0xB0, 0xB1], [0xB2, 0xB3]]]]


def test_a_cta_that_never_ran_has_no_row() -> None:
    words = buffer_words([None, Cta([[start(0, 10), end(0, 20)]], sm=3), None], slots=4)
    raw = LAYOUTS["timed"].read(words, 1, range(1))
    assert raw.cta.tolist() == [1]
    assert raw.sm.tolist() == [3]
    assert (raw.never_ran, raw.damaged) == (2, 0)


def test_a_launch_that_never_ran_has_no_rows() -> None:
    raw = LAYOUTS["timed"].read(np.zeros((4, 20), dtype="<u4"), 2, range(2))
    assert raw.written_words.shape == (0, 2)
    assert raw.entries.shape == (0, 2, 0, 2)
    assert (raw.never_ran, raw.damaged) == (4, 0)


@pytest.mark.parametrize("buffer_bytes", [0, 16, 33 * 4, 36, 0xFFFFFFFF])
def test_a_row_whose_size_is_not_that_of_the_others_is_damaged(buffer_bytes: int) -> None:
    words = rows(3)
    words[1, 3] = buffer_bytes
    raw = read(words)
    assert raw.cta.tolist() == [0, 2]
    assert (raw.never_ran, raw.damaged) == (0, 1)


@pytest.mark.parametrize("buffer_bytes", [0, 8, 24, 40, 64, 1 << 20])
def test_rows_are_damaged_if_their_rings_cannot_lie_in_them(buffer_bytes: int) -> None:
    words = rows(2)
    words[:, 3] = buffer_bytes
    raw = read(words)
    assert raw.cta.size == 0
    assert raw.entries.shape == (0, 2, 0, 2)
    assert (raw.never_ran, raw.damaged) == (0, 2)


def test_a_row_with_an_impossible_sm_is_damaged() -> None:
    words = rows(2)
    words[1, 2] = 0xFFFFFFFF
    raw = read(words)
    assert raw.sm.tolist() == [77]
    assert raw.damaged == 1


@pytest.mark.parametrize("cta", [3, 0xFFFFFFFF])
def test_a_row_with_an_id_outside_the_grid_is_damaged(cta: int) -> None:
    words = rows(3)
    words[1, 1] = cta
    raw = read(words)
    assert raw.cta.tolist() == [0, 2]
    assert raw.damaged == 1


def test_of_two_rows_with_one_id_the_one_in_its_place_is_kept() -> None:
    words = rows(4)
    words[[0, 1], 1] = 3
    raw = read(words)
    assert raw.cta.tolist() == [2, 3]
    assert raw.sm.tolist() == [79, 80]
    assert raw.damaged == 2


def test_of_two_rows_with_one_id_and_none_in_its_place_the_first_is_kept() -> None:
    # A cluster's CTAs may stand in another order than their ids.
    words = rows(4)
    words[:, 1] = 1, 0, 1, 2
    raw = read(words)
    assert raw.cta.tolist() == [1, 0, 2]
    assert raw.sm.tolist() == [77, 78, 80]
    assert raw.damaged == 1


@pytest.mark.parametrize(
    "times_ns",
    [
        (END_NS, BEGIN_NS, COPIED_NS),
        (BEGIN_NS + 2 * HOUR_NS, END_NS + 2 * HOUR_NS, COPIED_NS + 2 * HOUR_NS),
        (BEGIN_NS, END_NS + HOUR_NS),
        (0, 0, 0),
        (BEGIN_NS | 1 << 63, END_NS | 1 << 63, COPIED_NS | 1 << 63),
        (BEGIN_NS, (1 << 64) - 1),
    ],
    ids=["ends before its begin", "hours later", "for an hour", "none", "negative", "without an end"],
)
def test_a_row_with_times_that_are_none_of_the_launch_is_damaged(times_ns: tuple[int, ...]) -> None:
    words = rows(3)
    for row in (0, 2):
        set_times(words, row, BEGIN_NS + HOUR_NS, END_NS + HOUR_NS, COPIED_NS + HOUR_NS)
    set_times(words, 1, *times_ns)
    raw = read(words)
    assert raw.cta.tolist() == [0, 2]
    assert (raw.damaged, raw.timed) == (1, True)


def test_rows_of_an_earlier_launch_are_damaged() -> None:
    words = rows(5)
    for row in (0, 2, 3):
        set_times(words, row, *(time + 70_000_000_000 for time in (BEGIN_NS, END_NS, COPIED_NS)))
    assert read(words).cta.tolist() == [0, 2, 3]


def test_if_no_times_make_sense_it_is_the_timer() -> None:
    words = rows(3)
    for row in range(3):
        set_times(words, row, END_NS, BEGIN_NS)
    raw = read(words)
    assert raw.cta.tolist() == [0, 1, 2]
    assert (raw.damaged, raw.timed) == (0, False)
    assert raw.init_ns.tolist() == raw.pre_final_ns.tolist() == raw.post_final_ns.tolist() == [0, 0, 0]


@pytest.mark.parametrize("copied_ns", [0, BEGIN_NS, END_NS + 2 * HOUR_NS, (1 << 64) - 1])
def test_an_impossible_end_of_copying_is_no_time_of_copying(copied_ns: int) -> None:
    words = rows(2)
    set_times(words, 1, BEGIN_NS, END_NS, copied_ns)
    raw = read(words)
    assert raw.damaged == 0
    assert raw.post_final_ns.tolist() == [COPIED_NS, END_NS]


def test_a_count_may_be_high_if_the_cta_took_its_time() -> None:
    words = rows(1)
    words[0, 10] = 2 * (END_NS - BEGIN_NS)
    assert read(words).miscounted == 0
    words[0, 10] += 2
    assert read(words).miscounted == 1


@pytest.mark.parametrize(("count", "position"), [(0x80000000, 0), (0xFFFFFFFE, 2)])
def test_of_an_impossible_count_the_place_in_the_ring_is_kept(count: int, position: int) -> None:
    words = rows(2)
    words[1, 10] = count
    raw = read(words)
    # A ring of four words that went round once.
    assert raw.written_words.tolist() == [[4, 10], [4 + position, 10]]
    assert (raw.damaged, raw.miscounted) == (0, 1)


def test_half_a_record_is_miscounted() -> None:
    words = rows(2)
    words[0, 11] = 3
    raw = read(words)
    assert raw.written_words.tolist() == [[4, 3], [4, 10]]
    assert raw.miscounted == 1


def test_entries_are_those_of_their_rows_if_others_stand_between() -> None:
    words = rows(4)
    words[:, 12] = range(4)
    words[1, 0] = 0
    assert read(words).entries[:, 0, 0, 0].tolist() == [0, 2, 3]


any_word = st.integers(0, 0xFFFFFFFF) | st.integers(0, 40)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 11), any_word), max_size=20), st.booleans())
def test_whatever_a_header_holds_all_rows_are_accounted_for(
    corruption: list[tuple[int, int, int]], untimed: bool
) -> None:
    words = rows(5)
    for row, column, word in corruption:
        words[row, column] = word
    raw = LAYOUTS["untimed"].read(words, 2, range(2)) if untimed else read(words)
    assert len(raw.cta) + raw.never_ran + raw.damaged == 5
    assert len(set(raw.cta.tolist())) == len(raw.cta)
    assert (raw.init_ns <= raw.pre_final_ns).all()
    assert (raw.pre_final_ns <= raw.post_final_ns).all()
    assert raw.entries.shape[:2] == raw.written_words.shape == (len(raw.cta), 2)
    assert (raw.written_words < 1 << 31).all()


def test_a_kernel_without_warps_is_an_error() -> None:
    with pytest.raises(KprofError, match="has no room for 0 warps"):
        LAYOUTS["timed"].read(rows(1), 0, range(0))


def test_a_row_without_room_for_the_counts_is_an_error() -> None:
    with pytest.raises(KprofError, match=r"80 bytes .* 11 warps"):
        LAYOUTS["timed"].read(np.array([ROW], dtype="<u4"), 11, range(11))


# When CTAs began that left only their end: as an SM starts them.


START_NS = 1_795_000_000_000_000_000
Launch = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]


def launch(
    ctas: int, sms: int, slots: int, seed: int, gaps_ns: tuple[int, ...] = (700,), spread: float = 0.5
) -> Launch:
    """Number, SM, begin and end of each CTA, as a device starts them: in order, each where there is room first."""
    random = np.random.default_rng(seed)
    lasts_ns = (4_000 * np.exp(spread * random.standard_normal(ctas))).astype(np.int64)
    free = [(START_NS + slot * sms + sm, sm) for sm in range(sms) for slot in range(slots)]
    heapq.heapify(free)
    sm, begin_ns = np.empty(ctas, np.int64), np.empty(ctas, np.int64)
    for cta in range(ctas):
        at_ns, sm[cta] = heapq.heappop(free)
        begin_ns[cta] = at_ns
        heapq.heappush(free, (at_ns + int(lasts_ns[cta]) + int(random.choice(gaps_ns)), int(sm[cta])))
    return np.arange(ctas), sm, begin_ns, begin_ns + lasts_ns


@pytest.mark.parametrize(("sms", "slots"), [(132, 16), (132, 1), (16, 32), (4, 5)])
def test_begins_are_estimated_from_ends(sms: int, slots: int) -> None:
    cta, sm, begin_ns, end_ns = launch(8000, sms, slots, seed=1)
    known = rows_of(CtaSample(8000, 1, 4), cta) >= 0
    assert 0.05 < known.mean() < 0.07
    recorded = np.stack((cta, sm, begin_ns, end_ns))[:, known]
    found_ns, _ = estimated_begins(recorded, np.stack((cta, sm, end_ns))[:, ~known])
    errors_ns = np.abs(found_ns - begin_ns[~known])
    assert np.median(errors_ns) <= 32
    assert np.percentile(errors_ns, 99) < 2_500


@pytest.mark.parametrize("gaps_ns", [(300, 300, 300, 1500), (300, 1500, 1500, 1500)])
def test_the_mean_begin_is_right_where_a_median_would_not_be(gaps_ns: tuple[int, ...]) -> None:
    """A median would be off by 300 ns."""
    for seed in range(5):
        cta, sm, begin_ns, end_ns = launch(8000, 132, 4, seed, gaps_ns, spread=0.2)
        known = rows_of(CtaSample(8000, 1, 4), cta) >= 0
        recorded = np.stack((cta, sm, begin_ns, end_ns))[:, known]
        found_ns, error_ns = estimated_begins(recorded, np.stack((cta, sm, end_ns))[:, ~known])
        assert abs(np.mean(found_ns - begin_ns[~known])) < 3 * error_ns < 100


@given(st.integers(2, 300), st.integers(1, 8), st.integers(1, 8), st.integers(0, 1000))
def test_a_cta_never_ends_before_it_begins(ctas: int, sms: int, slots: int, seed: int) -> None:
    cta, sm, begin_ns, end_ns = launch(ctas, sms, slots, seed)
    known = np.random.default_rng(seed).random(ctas) < 0.2
    known[seed % ctas] = True
    recorded = np.stack((cta, sm, begin_ns, end_ns))[:, known]
    found_ns, _ = estimated_begins(recorded, np.stack((cta, sm, end_ns))[:, ~known])
    assert found_ns.shape == (int((~known).sum()),) and (found_ns <= end_ns[~known]).all()


@given(st.integers(2, 300), st.integers(1, 8), st.integers(1, 8), st.integers(0, 1000))
def test_no_cta_begins_before_the_first_that_records_unless_it_ended_before(
    ctas: int, sms: int, slots: int, seed: int
) -> None:
    random = np.random.default_rng(seed)
    cta, sm, begin_ns, end_ns = launch(ctas, sms, slots, seed)
    known = random.random(ctas) < 0.2
    known[seed % ctas] = True
    end_ns = np.where(known, end_ns, end_ns - random.integers(0, 20_000, ctas))
    recorded = np.stack((cta, sm, begin_ns, end_ns))[:, known]
    found_ns, _ = estimated_begins(recorded, np.stack((cta, sm, end_ns))[:, ~known])
    assert (found_ns >= np.minimum(end_ns[~known], begin_ns[known].min())).all()
