"""Buffers of other profilers: each reader against buffers made from a known truth, whole and damaged."""

from __future__ import annotations

import struct
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from foreign_buffers import Mark, Scope, Words, cute, cute_compact, flashinfer, sm_profiler, triton_distributed
from hypothesis import example, given, settings
from hypothesis import strategies as st
from snapshots import check_cases

from kprof_inject.analysis.summary import summarise
from kprof_inject.capture.foreign_buffer import (
    PROFILERS,
    BufferDescription,
    BufferFormat,
    read_buffer_array,
    read_saved_buffer,
)
from kprof_inject.errors import KprofError
from kprof_inject.timeline.foreign import timeline_of
from kprof_inject.timeline.timeline import Timeline

T = 1_790_000_000_000_000_000
NAMES = ["all", "load", "mma", "tick"]

Found = Counter[tuple[int, int, str, int, int]]
"""How often a CTA's unit ran a scope of this name from here to there."""


def timeline(array: Any, format: str, **said: Any) -> Timeline:
    description = BufferDescription(format=format, **({"names": NAMES} | said))
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


def test_sm_profilers_scopes_are_those_that_were_written() -> None:
    ran = {(block, group): iterations(T + 64 * block + group) for block in range(5) for group in range(2)}
    made = timeline(sm_profiler(5, 2, 9, ran, [7, 3, 7, 3, 131]), "sm-profiler")
    assert found(made) == rows((*place, scopes) for place, scopes in ran.items())
    assert made.ctas["sm"].tolist() == [7, 3, 7, 3, 131]
    assert (made.records_written, made.records_lost, made.records_damaged) == (80, 0, 0)
    # Scopes that touch each other stand beside each other, and in the whole.
    assert made.scopes["depth"].tolist() == [0, 1, 1, 1, 1, 1, 1, 1] * 10
    assert made.scopes["self_ns"].tolist() == [32, 32, 32, 32, 32, 32, 32, 0] * 10
    assert made.lanes.tolist() == [0, 0, 0, 0]


def test_sm_profilers_counter_tells_what_found_no_room() -> None:
    ran = {(0, 0): [Scope(1, T, T + 32), Scope(2, T + 32, None)], (2, 1): [Scope(1, T, T + 64)] * 3}
    made = timeline(sm_profiler(4, 2, 2, ran, [1, 2, 3, 4], {(2, 1): 9}), "sm-profiler")
    assert (made.records_written, made.records_lost, made.ctas_never_ran) == (11, 7, 2)
    assert dict(zip(NAMES, made.open_starts.tolist(), strict=True))["mma"] == 1
    lacking = made.incomplete[["cta", "warp", "records_lost", "open_starts"]].tolist()
    assert lacking == [(0, 0, 0, 1), (2, 1, 7, 0)]


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


def test_flashinfers_earlier_tag_has_20_bits_for_the_group() -> None:
    blocks = (1 << 20) + 3
    words = np.zeros(1 + 2 * blocks, dtype=np.uint64)
    words[0] = blocks | 1 << 32
    for side in range(2):
        tags = np.arange(blocks, dtype=np.uint64) << np.uint64(12) & np.uint64(0xFFFFFFFF) | np.uint64(side)
        words[1 + side * blocks : 1 + (side + 1) * blocks] = tags | np.uint64(2_000 + 900 * side) << np.uint64(32)
    units = PROFILERS["flashinfer"].read(words, 1, 0).units
    assert (len(units), int(units["damaged"].sum())) == (blocks, 0)


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


def test_cute_scopes_that_overlap_their_own_kind_are_kept_on_lanes() -> None:
    """As tokens make them, that are taken in one iteration and given back in the next."""
    tokens = [Scope(1, T + 100 * turn, T + 100 * turn + 250) for turn in range(5)]
    slots = {0: (Scope(0, T, T + 900), 0), **{turn + 2: (scope, 0) for turn, scope in enumerate(tokens)}}
    made = timeline(cute(8, [slots, slots], [12, 0]), "cute", units=2)
    assert found(made) == rows((unit, 0, [Scope(0, T, T + 900), *tokens]) for unit in range(2))
    assert (made.records_written, made.records_lost) == (6 + 4 + 6, 4)
    assert made.overlaps is not None and made.overlaps.tolist() == [1, 3, 1, 1]
    assert made.lanes[1] > made.lanes[0]
    mine = made.scopes[made.scopes["scope"] == 1]
    assert mine["depth"].tolist() == [0, 1, 2, 0, 1] * 2


def test_cute_lanes_keep_their_numbers_where_units_share_them() -> None:
    scopes = {number: (Scope(1, T + 40 * number, T + 40 * number + 30), number % 3) for number in range(6)}
    made = timeline(cute(6, [scopes, scopes]), "cute", units=2)
    assert made.warps == (0, 1, 2)
    ran = found(made)
    assert ran == rows((unit, number % 3, [scopes[number][0]]) for unit in range(2) for number in range(6))


def test_cute_lanes_of_the_whole_launch_are_numbered_in_each_unit() -> None:
    units = [{0: (Scope(1, T, T + 30), 4 * unit), 1: (Scope(1, T, T + 40), 4 * unit + 3)} for unit in range(3)]
    made = timeline(cute(2, units), "cute", units=3)
    assert made.warps == (0, 1)
    assert found(made) == rows(
        (unit, lane, [Scope(1, T, T + 30 + 10 * lane)]) for unit in range(3) for lane in range(2)
    )


def test_one_slice_for_all_has_a_block_for_each_lane_that_it_names() -> None:
    slots = {block: (Scope(1, T + block, T + block + 30), block) for block in range(5)}
    made = timeline(cute(5, [slots], [7]), "cute")
    assert found(made) == rows((block, 0, [slots[block][0]]) for block in range(5))
    # Nobody knows whose the two were that found no room.
    assert (made.records_written, made.records_lost, len(made.incomplete)) == (7, 2, 0)


def test_compact_times_go_on_from_their_anchor() -> None:
    anchor = (T >> 32 << 32) - 40
    slots = {1: Scope(1, anchor + 8, anchor + 30), 2: Scope(2, anchor + 60, anchor + 90)}
    made = timeline(
        cute_compact(4, [anchor, anchor - 3], [slots, {0: Scope(0, anchor, anchor + 7)}]), "cute-compact", units=2
    )
    assert found(made) == rows([(0, 0, list(slots.values())), (1, 0, [Scope(0, anchor, anchor + 7)])])


def whole() -> dict[str, tuple[Words, dict[str, Any]]]:
    ran = {(block, 0): iterations(T + 64 * block) for block in range(3)}
    marks = [[marks_of(without_ticks(iterations(5_000 + 64 * block)))] for block in range(3)]
    slots = {number: (scope, 0) for number, scope in enumerate(without_ticks(iterations(T)))}
    compact = {number: scope for number, (scope, _) in slots.items()}
    return {
        "sm-profiler": (sm_profiler(3, 1, 9, ran, [1, 2, 3]), {}),
        "triton-distributed": (triton_distributed(1, marks, [4, 5, 6], rows=20), {}),
        "flashinfer": (flashinfer(1, marks, [4, 5, 6]), {}),
        "cute": (cute(9, [slots, slots]).view(np.uint64), {"units": 2}),
        "cute-compact": (cute_compact(9, [T - 1, T - 1], [compact, compact]), {"units": 2}),
    }


WHOLE = whole()


def test_every_profiler_has_a_whole_buffer_here() -> None:
    assert set(WHOLE) == set(PROFILERS)


@pytest.mark.parametrize("format", WHOLE)
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_damaged_words_and_missing_ends_are_counted_or_refused(format: str, data: st.DataObject) -> None:
    words, said = WHOLE[format]
    damaged = words.copy()
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(words) - 1))
        damaged[place] = data.draw(
            st.sampled_from([0, 1, 2**64 - 1, int(words[place]) ^ 1 << 60]) | st.integers(0, 2**64 - 1)
        )
    damaged = damaged[: data.draw(st.just(len(words)) | st.integers(0, len(words)))]
    try:
        made = timeline(damaged, format, **said)
    except KprofError as error:
        assert error.what
        return
    scopes = made.scopes
    assert len(scopes) == made.scope_count
    assert (scopes["end_ns"] >= scopes["start_ns"]).all() and (scopes["self_ns"] >= 0).all()
    assert made.last_ns - made.first_ns < 200_000_000_000
    # What is left is as it was written; but if the times of all units go on from other anchors, nobody can tell.
    anchors = [0, len(words) // 2] if format == "cute-compact" else []
    if made.records_damaged + made.records_lost >= 3 or len(damaged) < len(words):
        return
    other_anchors = anchors and (damaged[anchors] != words[anchors]).all()
    if not other_anchors:
        assert sum((found(made) - found(timeline(words, format, **said))).values()) <= 8


@pytest.mark.parametrize("format", WHOLE)
@pytest.mark.parametrize("other", WHOLE)
def test_a_buffer_given_as_another_profilers_is_no_fault_of_ours(format: str, other: str) -> None:
    words, said = WHOLE[other]
    units = said if PROFILERS[format].takes_units else {}
    if format != other:
        try:
            assert timeline(words, format, **units).records_damaged >= 0
        except KprofError as error:
            assert error.hint


@given(st.binary(max_size=400), st.sampled_from(sorted(WHOLE)))
@settings(max_examples=100, deadline=None)
def test_any_bytes_are_read_or_refused(data: bytes, format: str) -> None:
    words = np.frombuffer(data[: len(data) // 8 * 8], dtype="<u8")
    try:
        timeline(words, format)
    except KprofError as error:
        assert error.what


def test_a_description_beside_the_file_says_what_it_is(tmp_path: Path) -> None:
    words, _ = WHOLE["flashinfer"]
    np.save(tmp_path / "decode.npy", words)
    (tmp_path / "decode.npy.json").write_text('{"format": "flashinfer", "names": {"0": "all", "2": "mma"}}')
    kernel = read_saved_buffer(tmp_path / "decode.npy").launches[0].kernel
    assert kernel.name == "decode"
    assert [scope.name for scope in kernel.scopes.scopes] == ["all", "scope 1", "mma"]
    named = read_saved_buffer(tmp_path / "decode.npy", BufferDescription(names=["a", "b"], kernel="attention"))
    assert named.launches[0].kernel.name == "attention"
    assert [scope.name for scope in named.launches[0].kernel.scopes.scopes] == ["a", "b", "scope 2"]


NO_BUFFER: dict[str, tuple[Any, dict[str, Any]]] = {
    "an array of floats": (np.zeros(4), {"format": "cute"}),
    "an array of 32-bit integers": (np.zeros(3, np.int32), {"format": "cute"}),
    "an empty array": (np.zeros(0, np.int64), {"format": "flashinfer"}),
    "no format": (np.zeros(9, np.int64), {}),
    "an unknown format": (np.zeros(9, np.int64), {"format": "cuter"}),
    "nothing recorded": (np.zeros(9, np.int64), {"format": "cute"}),
    "too many units": (np.zeros(9, np.int64), {"format": "cute", "units": 2}),
    "no units": (np.zeros(9, np.int64), {"format": "flashinfer", "units": 2}),
    "an event before the first": (np.zeros(9, np.int64), {"format": "cute", "names": {-1: "a"}}),
    "units of unknown number": (
        cute_compact(3, [T, T + 40], [{0: Scope(0, T, T + 9)}] * 2),
        {"format": "cute-compact"},
    ),
    "a truncated buffer": (sm_profiler(2, 1, 3, {}, [0, 1])[:-1], {"format": "sm-profiler"}),
    "objects": (object(), {"format": "cute"}),
}


def test_what_is_no_buffer_is_refused() -> None:
    said = {}
    for case, (array, description) in NO_BUFFER.items():
        with pytest.raises(KprofError) as caught:
            read_buffer_array(array, BufferDescription(**description))
        said[case] = caught.value.render()
    check_cases("capture/foreign-buffers", said)


def test_files_that_numpy_cannot_read_are_refused(tmp_path: Path) -> None:
    said = BufferDescription(format="cute")
    (tmp_path / "torn.npy").write_bytes(b"\x93NUMPY\x01\x00v\x00{'descr'")
    np.savez(tmp_path / "two.npz", a=np.zeros(5), b=np.zeros(5))
    (tmp_path / "objects.npy").write_bytes(_saved_objects(tmp_path))
    np.savez(tmp_path / "encrypted.npz", np.zeros(5))
    encrypted = bytearray((tmp_path / "encrypted.npz").read_bytes())
    for signature, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        encrypted[encrypted.index(signature) + flags] |= 1
    (tmp_path / "encrypted.npz").write_bytes(encrypted)
    for name in ("torn.npy", "two.npz", "objects.npy", "encrypted.npz"):
        with pytest.raises(KprofError, match=name):
            read_saved_buffer(tmp_path / name, said)
    np.save(tmp_path / "bad.npy", WHOLE["flashinfer"][0])
    (tmp_path / "bad.npy.json").write_text('{"formt": "flashinfer"}')
    with pytest.raises(KprofError, match="formt"):
        read_saved_buffer(tmp_path / "bad.npy")


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<u8', 'fortran_order': False, 'shape': (4,), }(",
        "{'descr': '<u8', 'fortran_order': False, 'shape': (4,)\n  }\n }",
        "(" * 1000,
        "{[]: 1}",
        "{'descr': '<u8', b'fortran_order': False}",
        "{'descr': (), 'fortran_order': False, 'shape': (4,)}",
        "{'descr': '<u8', 'fortran_order': False, 'shape': (True,)}",
    ],
)
def test_headers_that_are_no_description_of_an_array_are_refused(tmp_path: Path, header: str) -> None:
    path = tmp_path / "made.npy"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + bytes(32))
    with pytest.raises(KprofError, match=r"made\.npy: NumPy cannot read it"):
        read_saved_buffer(path, BufferDescription(format="flashinfer"))


@pytest.mark.parametrize("ending", ["npy", "npz"])
@given(damage=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=3), cut=st.integers(0, 400))
@example(damage=[(67, 0)], cut=0)
@settings(max_examples=60, deadline=None)
def test_damaged_files_are_read_or_refused(ending: str, damage: list[tuple[int, int]], cut: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"b.{ending}")
        (np.save if ending == "npy" else np.savez_compressed)(path, WHOLE["flashinfer"][0])
        data = bytearray(path.read_bytes())
        for place, value in damage:
            data[place % len(data)] = value
        path.write_bytes(data[: len(data) - cut % len(data)] if cut > 300 else data)
        try:
            read_saved_buffer(path, BufferDescription(format="flashinfer"))
        except KprofError as error:
            assert path.name in error.what


def _saved_objects(folder: Path) -> bytes:
    np.save(folder / "made.npy", np.array([{}], dtype=object), allow_pickle=True)
    return (folder / "made.npy").read_bytes()


def test_the_type_of_formats_has_all_of_them() -> None:
    assert set(get_args(BufferFormat)) == set(PROFILERS)
