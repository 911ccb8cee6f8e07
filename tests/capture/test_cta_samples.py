"""Tests of the sample of a launch's CTAs: the clusters that record, their rows, and the others' spans."""

from __future__ import annotations

import numpy as np
import pytest
from buffers import Cta, Entry, buffer_words
from hypothesis import given
from hypothesis import strategies as st

from kprof_inject.capture.buffer_layouts import END, LAYOUTS, rows_of
from kprof_inject.capture.cta_samples import ADDRESS_ALIGNMENT, END_BYTES, SM_BITS, CtaChoice, CtaSample, parse_ctas
from kprof_inject.capture.schema import MAX_CTA_SHIFT
from kprof_inject.errors import KprofError

samples = st.builds(
    lambda clusters, bits, shift: CtaSample(clusters << bits, 1 << bits, shift),
    st.integers(1, 5000),
    st.integers(0, 4),
    st.integers(0, MAX_CTA_SHIFT),
)


@given(samples)
def test_each_block_of_clusters_has_one_that_records(sample: CtaSample) -> None:
    ctas = np.arange(sample.ctas)
    row = rows_of(sample, ctas)
    recorded = ctas[row >= 0]
    # All CTAs of a cluster record, or none.
    clusters, counts = np.unique(recorded // sample.cluster_ctas, return_counts=True)
    assert set(counts.tolist()) <= {sample.cluster_ctas}
    blocks = clusters >> sample.shift
    whole_blocks = (sample.ctas // sample.cluster_ctas) >> sample.shift
    assert blocks[:whole_blocks].tolist() == list(range(whole_blocks))
    assert len(blocks) <= whole_blocks + 1
    # A block has the rows of one cluster.
    rows = row[row >= 0]
    assert (rows // sample.cluster_ctas).tolist() == (recorded // sample.cluster_ctas >> sample.shift).tolist()
    assert len(set(rows.tolist())) == len(rows) and rows.max(initial=-1) < sample.rows


def test_a_sample_follows_no_pattern_of_the_grid() -> None:
    sample = CtaSample(1 << 16, 1, 4)
    recorded = np.flatnonzero(rows_of(sample, np.arange(sample.ctas)) >= 0)
    for period in (2, 4, 8, 16, 64, 132, 256):
        counts = np.bincount(recorded % period, minlength=period)
        expected = len(recorded) / period
        assert (abs(counts - expected) < 6 * expected**0.5).all(), period


@pytest.mark.parametrize(("ctas", "shift"), [(1, 0), (1023, 0), (1024, 2), (2048, 3), (65_536, 8), (1 << 30, 12)])
def test_auto_has_256_clusters_of_a_large_grid_record(ctas: int, shift: int) -> None:
    sample = CtaChoice().sample((ctas, 1, 1), 2)
    assert (sample.shift, sample.ctas) == (shift, 2 * ctas)


def test_rows_begin_where_the_alignment_wants_them() -> None:
    assert END.itemsize == END_BYTES and ADDRESS_ALIGNMENT > MAX_CTA_SHIFT
    for ctas in (1, 3, 4, 1025):
        sample = CtaSample(ctas, 1, 3)
        assert sample.ends_bytes % ADDRESS_ALIGNMENT == 0 and sample.ends_bytes >= ctas * END_BYTES
        assert sample.buffer_bytes(256) == sample.ends_bytes + 256 * -(-ctas // 8)
    assert CtaSample(1025, 1, 0).buffer_bytes(256) == 1025 * 256


def test_a_choice_is_read() -> None:
    read = {text: parse_ctas(text) for text in ("auto", "all", "1/2", "1/8", "1/4096", "per-sm:4")}
    assert read == {
        "auto": CtaChoice(),
        "all": CtaChoice(0),
        "1/2": CtaChoice(1),
        "1/8": CtaChoice(3),
        "1/4096": CtaChoice(12),
        "per-sm:4": CtaChoice(per_sm=4),
    }


@pytest.mark.parametrize("text", ["", "1/3", "1/8192", "8", "1/0", "some", "2/8", "per-sm:0", "per-sm:", "per-sm 4"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(KprofError, match="is not a part of the CTAs") as refused:
        parse_ctas(text)
    assert refused.value.exit_code == 2


@pytest.mark.parametrize(("grid", "shift"), [(132, 0), (526, 0), (528, 1), (65_536, 7), (1 << 30, 12)])
def test_about_so_many_ctas_of_each_sm_record(grid: int, shift: int) -> None:
    choice = parse_ctas("per-sm:2")
    assert choice.of_launch((grid // 2, 1, 1), 2, 132) == CtaChoice(shift)
    assert choice.of_launch((grid, 1, 1), 1, 0) == CtaChoice(), "without a device, as suits the grid"


def test_ends_that_another_launch_left_do_not_count() -> None:
    """The buffer held a launch of another grid: CTAs with a row have an end there, too."""
    ctas = [Cta([[Entry(0, False, 2_000), Entry(0, True, 3_000)]], 3, 1_000, 1_600, 1_700) for _ in range(16)]
    words, sample = buffer_words(ctas, slots=4), CtaSample(16, 1, 2)
    row = rows_of(sample, np.arange(16))
    ends = np.full(16, 1_600 << SM_BITS | 3, dtype=END)
    found = LAYOUTS["timed"].read(words[row >= 0], 1, [0], sample, ends)
    assert found.cta.tolist() == np.flatnonzero(row >= 0).tolist()
    assert found.others[0].tolist() == np.flatnonzero(row < 0).tolist()
    assert (set(found.others[1]), set(found.others[3])) == ({3}, {1_600})
    assert (found.never_ran, found.damaged) == (0, 0)


def test_without_a_timer_there_are_no_ends() -> None:
    ctas = [Cta([[Entry(0, False, 2_000), Entry(0, True, 3_000)]], 3, 0, 0, 0) for _ in range(16)]
    words, sample = buffer_words(ctas, slots=4), CtaSample(16, 1, 2)
    row = rows_of(sample, np.arange(16))
    found = LAYOUTS["timed"].read(words[row >= 0], 1, [0], sample, np.where(row < 0, 3, 0).astype(END))
    assert (found.others.shape, found.never_ran, found.damaged) == ((4, 0), 0, 12)


@pytest.mark.parametrize("start_ns", [0, 1 << 60, (1 << 54) - 3_000, (1 << 61) - 3_000])
def test_the_highest_bits_of_an_end_are_those_of_the_nearest_time(start_ns: int) -> None:
    ctas = [
        Cta([[Entry(0, False, 2_000), Entry(0, True, 3_000)]], 3, start_ns + 1_000, start_ns + 5_000, start_ns + 5_100)
        for _ in range(16)
    ]
    words, sample = buffer_words(ctas, slots=4), CtaSample(16, 1, 2)
    row = rows_of(sample, np.arange(16))
    ends_ns = start_ns + 1_000 + 400 * np.arange(16)
    ends = (ends_ns.astype(END) << np.uint64(SM_BITS)) | np.uint64(3)
    found = LAYOUTS["timed"].read(words[row >= 0], 1, [0], sample, np.where(row < 0, ends, 0).astype(END))
    assert found.others[3].tolist() == ends_ns[row < 0].tolist()
