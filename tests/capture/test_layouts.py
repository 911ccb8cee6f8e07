"""The buffer's layout: every field where Proton writes it, and rows that cannot be trusted set aside."""

from __future__ import annotations

import numpy as np
import pytest
from buffers import Cta, buffer_words, end, start

from kprof_inject.capture.layouts import TimedLayout, UntimedLayout, layout_named
from kprof_inject.errors import KprofError

PREAMBLE = 0xDEADBEEF

# Two warps with a ring of two entries each, so 32 bytes of rings; times need both of their words.
ROW = [
    *(PREAMBLE, 5, 77, 32),
    *(0x11111111, 0x00000001, 0x22222222, 0x00000002, 0x33333333, 0x00000003),
    *(4, 10),
    *(0xA0, 0xA1, 0xA2, 0xA3),
    *(0xB0, 0xB1, 0xB2, 0xB3),
]


def test_every_field_is_read_from_its_place() -> None:
    raw = TimedLayout().read(np.array([ROW], dtype="<u4"), 2, range(2))

    assert raw.cta.tolist() == [5]
    assert raw.sm.tolist() == [77]
    assert raw.init_ns.tolist() == [0x1_11111111]
    assert raw.pre_final_ns.tolist() == [0x2_22222222]
    assert raw.post_final_ns.tolist() == [0x3_33333333]
    assert raw.written_words.tolist() == [[4, 10]]
    assert raw.entries.tolist() == [[[[0xA0, 0xA1], [0xA2, 0xA3]], [[0xB0, 0xB1], [0xB2, 0xB3]]]]
    assert (raw.never_ran, raw.damaged) == (0, 0)


def test_without_timer_readings_the_counts_follow_the_header() -> None:
    raw = UntimedLayout().read(np.array([ROW[:4] + ROW[10:]], dtype="<u4"), 2, range(2))

    assert (raw.cta.tolist(), raw.sm.tolist(), raw.timed) == ([5], [77], False)
    assert (raw.init_ns.tolist(), raw.pre_final_ns.tolist(), raw.post_final_ns.tolist()) == ([0], [0], [0])
    assert raw.written_words.tolist() == [[4, 10]]
    assert raw.entries.tolist() == [[[[0xA0, 0xA1], [0xA2, 0xA3]], [[0xB0, 0xB1], [0xB2, 0xB3]]]]


def test_words_after_the_rings_are_no_entries() -> None:
    padded = TimedLayout().read(np.array([[*ROW, 9, 9, 9, 9]], dtype="<u4"), 2, range(2))
    assert padded.entries.tolist() == [[[[0xA0, 0xA1], [0xA2, 0xA3]], [[0xB0, 0xB1], [0xB2, 0xB3]]]]


def test_a_cta_that_never_ran_has_no_row() -> None:
    words = buffer_words([None, Cta([[start(0, 10), end(0, 20)]], sm=3), None], slots=4)
    raw = TimedLayout().read(words, 1, range(1))
    assert raw.cta.tolist() == [1]
    assert raw.sm.tolist() == [3]
    assert (raw.never_ran, raw.damaged) == (2, 0)


def test_a_launch_that_never_ran_has_no_rows() -> None:
    raw = TimedLayout().read(np.zeros((4, 20), dtype="<u4"), 2, range(2))
    assert raw.written_words.shape == (0, 2)
    assert raw.entries.shape == (0, 2, 0, 2)
    assert (raw.never_ran, raw.damaged) == (4, 0)


@pytest.mark.parametrize("buffer_bytes", [0, 16, 33 * 4, 0xFFFFFFFF])
def test_a_row_whose_size_is_not_that_of_the_others_is_damaged(buffer_bytes: int) -> None:
    words = np.array([ROW, ROW, ROW], dtype="<u4")
    words[1, 1:4] = 6, 78, buffer_bytes
    raw = TimedLayout().read(words, 2, range(2))
    assert raw.sm.tolist() == [77, 77]
    assert (raw.never_ran, raw.damaged) == (0, 1)


@pytest.mark.parametrize("buffer_bytes", [0, 8, 24, 40, 64, 1 << 20])
def test_rows_are_damaged_if_their_rings_cannot_lie_in_them(buffer_bytes: int) -> None:
    words = np.array([ROW, ROW], dtype="<u4")
    words[:, 3] = buffer_bytes
    raw = TimedLayout().read(words, 2, range(2))
    assert raw.cta.size == 0
    assert raw.entries.shape == (0, 2, 0, 2)
    assert (raw.never_ran, raw.damaged) == (0, 2)


def test_a_row_with_an_impossible_sm_is_damaged() -> None:
    words = np.array([ROW, ROW], dtype="<u4")
    words[1, 2] = 0xFFFFFFFF
    raw = TimedLayout().read(words, 2, range(2))
    assert raw.sm.tolist() == [77]
    assert raw.damaged == 1


def test_a_row_without_room_for_the_counts_is_an_error() -> None:
    with pytest.raises(KprofError, match="80 bytes per CTA has no room for 11 warps"):
        TimedLayout().read(np.array([ROW], dtype="<u4"), 11, range(11))


def test_a_layout_is_found_by_its_name() -> None:
    assert isinstance(layout_named("timed"), TimedLayout)


def test_an_unknown_layout_is_an_error_that_names_the_known_ones() -> None:
    with pytest.raises(KprofError, match="layout 'spiral' is unknown") as caught:
        layout_named("spiral")
    assert caught.value.hint == "this version reads timed, untimed; update kprof-inject"
