"""Buffers of other profilers: each reader against buffers made from a known truth, whole and damaged."""

from __future__ import annotations

import struct
import tracemalloc
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from foreign_buffers import Mark, Scope, Words, flashinfer, triton_distributed
from hypothesis import given, settings
from hypothesis import strategies as st
from snapshots import check_cases

from kprof_inject.analysis.summary import summarise
from kprof_inject.capture.foreign import LAYOUTS, BufferDescription, read_buffer_array, read_saved_buffer
from kprof_inject.errors import KprofError
from kprof_inject.timeline.captures import timeline_of
from kprof_inject.timeline.timeline import Timeline

T = 1_790_000_000_000_000_000
NAMES = ["all", "load", "mma", "tick"]

Found = Counter[tuple[int, int, str, int, int]]
"""How often a CTA's unit ran a scope of this name from here to there."""


def timeline(array: Any, format: str, names: Sequence[str] = NAMES) -> Timeline:
    description = BufferDescription(format, tuple(names))
    return timeline_of(read_buffer_array(array, description).launches[0])


def found(timeline: Timeline) -> Found:
    names = [scope.name for scope in timeline.table.scopes]
    columns = ["cta", "warp", "scope", "start_ns", "end_ns"]
    return Counter((cta, warp, names[scope], *times) for cta, warp, scope, *times in timeline.scopes[columns].tolist())


def rows(runs: Iterable[tuple[int, int, Sequence[Scope]]]) -> Found:
    """What these scopes of a CTA and unit are; those without end are none."""
    return Counter(
        (cta, unit, NAMES[scope.event], scope.start_ns, scope.start_ns if scope.type else scope.end_ns or 0)
        for cta, unit, scopes in runs
        for scope in scopes
        if scope.type or scope.end_ns
    )


def iterations(begin: int) -> list[Scope]:
    """A whole, six loads and dots in it, most of which touch each other in one step of the timer, and a tick."""
    parts = [Scope(1 + turn % 2, begin + 32 * turn, begin + 32 * turn + 32) for turn in range(6)]
    return [Scope(0, begin, begin + 224), *parts, Scope(3, begin + 192, None, 1)]


def marks_of(scopes: Sequence[Scope]) -> list[Mark]:
    """The same as records in the order of time."""
    whole, *parts = scopes
    inside = [mark for part in parts for mark in _marks(part)]
    return [Mark(whole.event, 0, whole.start_ns), *inside, Mark(whole.event, 1, whole.end_ns or 0)]


def _marks(scope: Scope) -> list[Mark]:
    if scope.type:
        return [Mark(scope.event, 2, scope.start_ns)]
    return [Mark(scope.event, 0, scope.start_ns), Mark(scope.event, 1, scope.end_ns or 0)]


def without_ticks(scopes: Sequence[Scope]) -> list[Scope]:
    return [scope for scope in scopes if not scope.type]


def test_triton_distributeds_records_are_paired_by_their_tags() -> None:
    scopes = [[without_ticks(iterations(2_000 + 64 * block + group)) for group in range(3)] for block in range(4)]
    marks = [[marks_of(group) for group in block] for block in scopes]
    made = timeline(triton_distributed(3, marks, [9, 8, 7, 6], rows=20), "triton-distributed")
    assert found(made) == rows((b, g, group) for b, block in enumerate(scopes) for g, group in enumerate(block))
    assert made.ctas["sm"].tolist() == [9, 8, 7, 6]
    assert (made.records_written, made.records_damaged, int(made.open_starts.sum())) == (4 * 3 * 14, 0, 0)


@pytest.mark.parametrize("sms", [None, [131, 0]])
def test_both_forms_of_flashinfers_tag_are_read(sms: list[int] | None) -> None:
    scopes = [[iterations(2_000 + 64 * block + group) for group in range(3)] for block in range(2)]
    marks = [[marks_of(group) for group in block] for block in scopes]
    made = timeline(flashinfer(3, marks, sms), "flashinfer")
    assert found(made) == rows((b, g, group) for b, block in enumerate(scopes) for g, group in enumerate(block))
    assert made.ctas["sm"].tolist() == (sms or [-1, -1])


@pytest.mark.parametrize("numbers_groups", [False, True])
@pytest.mark.parametrize(("blocks", "groups"), [(4095, 1), (4096, 1), (4097, 1), (9000, 1), (4200, 2), (1500, 3)])
def test_flashinfers_sm_is_right_or_unknown(blocks: int, groups: int, numbers_groups: bool) -> None:
    """A number of 12 bits stands below the SM, and a larger one runs into it."""
    marks = [[[Mark(0, 0, 2_000), Mark(0, 1, 2_900)]] * groups] * blocks
    sms = [block * 7 % 132 for block in range(blocks)]
    made = timeline(flashinfer(groups, marks, sms, numbers_groups=numbers_groups), "flashinfer")
    first_lost = -(-4096 // groups) if numbers_groups else 4096
    assert made.ctas["cta"].tolist() == list(range(blocks))
    assert made.ctas["sm"].tolist() == [sm if block < first_lost else -1 for block, sm in enumerate(sms)]
    assert (len(made.scopes), made.records_damaged) == (blocks * groups, 0)
    assert summarise(made).ctas_without_sm == max(blocks - first_lost, 0)


def test_a_block_whose_entries_name_two_sms_has_none() -> None:
    words = flashinfer(1, [[[Mark(0, 0, 2_000), Mark(0, 1, 2_900)]]] * 2, [5, 6])
    words[3] ^= np.uint64(1 << 24)
    made = timeline(words, "flashinfer")
    assert made.ctas["sm"].tolist() == [-1, 6]


def test_a_timer_of_32_bits_may_overflow_within_a_launch() -> None:
    begin = (1 << 32) - 100
    made = timeline(flashinfer(1, [[marks_of(iterations(begin))], [marks_of(iterations(begin + 90))]]), "flashinfer")
    assert found(made) == rows([(0, 0, iterations(begin)), (1, 0, iterations(begin + 90))])
    assert (made.first_ns, made.last_ns) == (begin, begin + 90 + 224)


def test_records_without_partner_are_counted_and_the_rest_is_kept() -> None:
    marks = [Mark(1, 1, 10), Mark(0, 0, 20), Mark(1, 0, 30), Mark(1, 0, 40), Mark(1, 1, 50), Mark(0, 1, 60)]
    made = timeline(flashinfer(1, [[marks]]), "flashinfer")
    assert found(made) == Counter({(0, 0, "all", 20, 60): 1, (0, 0, "load", 40, 50): 1})
    assert (made.open_starts.tolist()[1], made.stray_ends.tolist()[1]) == (1, 1)


def test_events_of_one_name_are_paired_each_by_itself() -> None:
    marks = [Mark(0, 0, 10), Mark(1, 0, 20), Mark(0, 1, 30), Mark(1, 1, 40)]
    made = timeline(flashinfer(1, [[marks]]), "flashinfer", names=["work", "work"])
    assert found(made) == Counter({(0, 0, "work", 10, 30): 1, (0, 0, "work", 20, 40): 1})
    assert len(made.table.scopes) == 1 and made.overlaps is not None and made.overlaps.tolist() == [2]


def whole() -> dict[str, Words]:
    marks = [[marks_of(without_ticks(iterations(5_000 + 64 * block)))] for block in range(3)]
    return {
        "triton-distributed": triton_distributed(1, marks, [4, 5, 6], rows=20),
        "flashinfer": flashinfer(1, marks, [4, 5, 6]),
    }


WHOLE = whole()


def test_every_profiler_has_a_whole_buffer_here() -> None:
    assert set(WHOLE) == set(LAYOUTS)


@pytest.mark.parametrize("format", WHOLE)
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_damaged_words_and_missing_ends_are_counted_or_refused(format: str, data: st.DataObject) -> None:
    words = WHOLE[format]
    damaged = words.copy()
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(words) - 1))
        damaged[place] = data.draw(
            st.sampled_from([0, 1, 2**64 - 1, int(words[place]) ^ 1 << 60]) | st.integers(0, 2**64 - 1)
        )
    damaged = damaged[: data.draw(st.just(len(words)) | st.integers(0, len(words)))]
    try:
        made = timeline(damaged, format)
    except KprofError as error:
        assert error.what
        return
    scopes = made.scopes
    assert len(scopes) == made.scope_count
    assert (scopes["end_ns"] >= scopes["start_ns"]).all() and (scopes["self_ns"] >= 0).all()
    assert made.last_ns - made.first_ns < 200_000_000_000
    # What is left is as it was written.
    if made.records_damaged < 3 and len(damaged) == len(words):
        assert sum((found(made) - found(timeline(words, format))).values()) <= 8


def test_events_are_called_by_their_names_or_numbers(tmp_path: Path) -> None:
    np.save(tmp_path / "decode.npy", WHOLE["flashinfer"])
    kernel = (
        read_saved_buffer(tmp_path / "decode.npy", BufferDescription.of("flashinfer", "all,, mma")).launches[0].kernel
    )
    assert kernel.name == "decode"
    assert [scope.name for scope in kernel.scopes.scopes] == ["all", "scope 1", "mma"]


NO_BUFFER: dict[str, tuple[Any, str | None]] = {
    "an array of floats": (np.zeros(4), "flashinfer"),
    "an array of 32-bit integers": (np.zeros(3, np.int32), "flashinfer"),
    "an empty array": (np.zeros(0, np.int64), "flashinfer"),
    "no format": (np.zeros(9, np.int64), None),
    "an unknown format": (np.zeros(9, np.int64), "flashinfers"),
    "nothing recorded": (np.array([1 | 1 << 32, 0, 0]), "flashinfer"),
    "another profiler's": (WHOLE["flashinfer"], "triton-distributed"),
    "objects": (object(), "flashinfer"),
}


def test_what_is_no_buffer_is_refused() -> None:
    said = {}
    for case, (array, format_name) in NO_BUFFER.items():
        with pytest.raises(KprofError) as caught:
            read_buffer_array(array, BufferDescription(format_name))
        said[case] = caught.value.render()
    check_cases("capture/foreign-buffers", said)


def test_files_that_numpy_cannot_read_are_refused(tmp_path: Path) -> None:
    (tmp_path / "torn.npy").write_bytes(b"\x93NUMPY\x01\x00v\x00{'descr'")
    (tmp_path / "objects.npy").write_bytes(_saved_objects(tmp_path))
    for name in ("torn.npy", "objects.npy"):
        with pytest.raises(KprofError, match=name):
            read_saved_buffer(tmp_path / name, BufferDescription("flashinfer"))


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<u8', 'fortran_order': False, 'shape': (4,), }(",
        "(" * 1000,
        "{'descr': '<u8', 'fortran_order': False, 'shape': (True,)}",
    ],
)
def test_headers_that_are_no_description_of_an_array_are_refused(tmp_path: Path, header: str) -> None:
    path = tmp_path / "made.npy"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + bytes(32))
    with pytest.raises(KprofError, match=r"NumPy cannot read .*made\.npy: "):
        read_saved_buffer(path, BufferDescription("flashinfer"))


def test_an_archive_of_arrays_is_not_unpacked(tmp_path: Path) -> None:
    with (tmp_path / "made.npy").open("wb") as file:
        np.savez_compressed(file, np.zeros(1 << 22, np.uint64))
    tracemalloc.start()
    try:
        with pytest.raises(KprofError, match=r"NumPy cannot read .*made\.npy: "):
            read_saved_buffer(tmp_path / "made.npy", BufferDescription("flashinfer"))
        assert tracemalloc.get_traced_memory()[1] < 1 << 24
    finally:
        tracemalloc.stop()


def _saved_objects(folder: Path) -> bytes:
    np.save(folder / "made.npy", np.array([{}], dtype=object), allow_pickle=True)
    return (folder / "made.npy").read_bytes()
