"""Values of tags, out of rings that are known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from buffers import Cta, Entry, Scope, end, halved, save_launch, start, tagged

from kprof_inject.timeline.columns import NO_TAG, SCOPE_COLUMNS
from kprof_inject.timeline.tags import MAX_VALUES, TagSums, TagValue, tag_column
from kprof_inject.timeline.timeline import Timeline, decode_launch

KERNEL, WORK = 0, 1
SCOPES = [Scope("kernel"), Scope("work", "op", 0, tags=("tile", "expert"))]
TILE, EXPERT = 2, 3
BASE = 1_000_000


def visit(tile: int, expert: int, begin: int, cycles: int = 60) -> list[Entry]:
    return [*tagged(TILE, tile), *tagged(EXPERT, expert), start(WORK, BASE + begin), end(WORK, BASE + begin + cycles)]


def whole(*visits: list[Entry]) -> list[Entry]:
    last = max((entry.cycles for one in visits for entry in one if entry.scope_id == WORK), default=BASE)
    return [start(KERNEL, BASE), *(entry for one in visits for entry in one), end(KERNEL, last + 10)]


def decoded(
    folder: Path, entries: list[Entry], slots: int = 256, scopes: list[Scope] = SCOPES, **how: object
) -> Timeline:
    cta = Cta([entries], pre_final_ns=200_000, post_final_ns=200_500)
    return decode_launch(save_launch(folder, scopes, [cta], slots, **how))  # type: ignore[arg-type]


def values(timeline: Timeline) -> list[list[int]]:
    rows = timeline.scopes
    return [row["tags"].tolist() for row in rows[rows["scope"] == WORK]]


EXTREMES = [(0, 0), (1, -1), ((1 << 31) - 1, -(1 << 31)), (7, 3)]


@pytest.mark.parametrize("mode", [{}, {"clock_bits": 32}])
def test_values_are_those_that_were_stored(tmp_path: Path, mode: dict[str, int]) -> None:
    entries = whole(*(visit(tile, expert, 100 * number) for number, (tile, expert) in enumerate(EXTREMES)))
    timeline = decoded(tmp_path, entries, mode=mode)
    assert values(timeline) == [list(pair) for pair in EXTREMES]
    assert timeline.scopes["scope"].tolist() == [KERNEL, WORK, WORK, WORK, WORK]
    assert timeline.scopes["tags"][0].tolist() == [NO_TAG, NO_TAG]
    assert (timeline.records_damaged, timeline.records_written) == (0, len(entries))
    # The cycle counter is read as if no value had been stored between.
    assert (timeline.scopes["end_cycles"] - timeline.scopes["start_cycles"])[1:].tolist() == [60] * 4


@pytest.mark.parametrize("slots", range(1, 26))
def test_a_ring_that_was_overwritten_gives_the_value_of_every_scope_or_none(tmp_path: Path, slots: int) -> None:
    """Wherever the ring was cut, also amid the records of a tag."""
    written = [(number, -number) for number in range(40)]
    entries = whole(*(visit(tile, expert, 100 * number) for number, (tile, expert) in enumerate(written)))
    found = decoded(tmp_path, entries, slots)
    kept = entries[len(entries) - slots :]
    begun = [entry for entry in kept if entry.scope_id == WORK and not entry.is_end]
    assert len(values(found)) == len(begun)
    for row, pair in zip(reversed(values(found)), reversed(written), strict=False):
        assert all(value in (known, NO_TAG) for value, known in zip(row, pair, strict=True))
    assert values(found)[1:] == [list(pair) for pair in written[len(written) - len(begun) :]][1:]
    assert found.records_damaged == 0
    # A ring that begins with a tag begins without a clock.
    cycles = found.scopes["start_cycles"].tolist()
    assert cycles == [entry.cycles for entry in begun]


@pytest.mark.parametrize("slots", range(1, 30))
def test_a_ring_that_begins_or_ends_with_a_value_tells_the_clock_all_the_same(tmp_path: Path, slots: int) -> None:
    """Read as clock values, these would be right before an overflow. The last visit never began."""
    value = (1 << 43) - 1
    tags = [Entry(tag, is_end, value) for tag in (TILE, EXPERT) for is_end in (False, True)]
    ran = [
        entry for begin in range(BASE, BASE + 600, 100) for entry in (*tags, start(WORK, begin), end(WORK, begin + 60))
    ]
    ctas = [Cta([[*ran, *tags[:count]]], sm=count, pre_final_ns=200_000, post_final_ns=200_500) for count in range(5)]
    timeline = decode_launch(save_launch(tmp_path, SCOPES, ctas, slots))

    kept = [[entry for entry in cta.warps[0][-slots:] if entry.scope_id == WORK] for cta in ctas]
    begun = [[entry.cycles for entry in warp if not entry.is_end] for warp in kept]
    rows = timeline.scopes
    for cta, cycles in enumerate(begun):
        assert rows["start_cycles"][rows["cta"] == cta].tolist() == cycles
    assert (timeline.records_damaged, timeline.open_starts.tolist()) == (0, [0, 0])


@pytest.mark.parametrize("number", range(3))
def test_values_stay_with_their_scopes_where_stores_were_moved(tmp_path: Path, number: int) -> None:
    """The records of a tag are no scope's, so that its start is stored between them and its end."""
    scopes = [Scope("kernel", tags=("tile",)), Scope("work", "op", 0, tags=("tile",))]
    ids = {0: "kernel", 1: "work", 2: "tile of kernel", 3: "tile of work"}
    works = [
        entry
        for at in range(number)
        for entry in (*tagged(3, 10 + at), start(1, BASE + 100 * at + 10), end(1, BASE + 100 * at + 20))
    ]
    written = [*works, *tagged(2, 5), start(0, BASE), end(0, BASE + 500)]
    rows = decoded(tmp_path, written, scopes=scopes, scope_ids=ids, mode={"sched_stores": True}).scopes
    assert rows["scope"].tolist() == [0] + [1] * number
    assert rows["tags"].tolist() == [[5], *([10 + at] for at in range(number))]


@pytest.mark.parametrize(
    ("gone", "left"), [((0,), [5, 6]), ((1,), [5, 6]), ((0, 1), [NO_TAG, 6]), ((2, 3), [5, NO_TAG])]
)
def test_one_of_the_two_records_of_a_tag_is_enough(tmp_path: Path, gone: tuple[int, ...], left: list[int]) -> None:
    first = [entry._replace(scope_id=200) if at in gone else entry for at, entry in enumerate(visit(5, 6, 100))]
    timeline = decoded(tmp_path, whole(first, visit(7, 8, 300)))
    assert values(timeline) == [left, [7, 8]]
    assert timeline.records_damaged == len(gone)
    assert len(timeline.scopes) == 3


def test_two_records_of_a_tag_that_differ_tell_nothing(tmp_path: Path) -> None:
    (first, second), *rest = tagged(TILE, 5), *visit(5, 6, 100)[2:]
    timeline = decoded(tmp_path, whole([first, second._replace(cycles=second.cycles ^ 1), *rest]))
    assert values(timeline) == [[NO_TAG, 6]]


def test_a_value_without_its_start_belongs_to_no_other(tmp_path: Path) -> None:
    lost_start = [entry for entry in visit(5, 6, 100) if entry.scope_id != WORK]
    timeline = decoded(tmp_path, whole(visit(1, 2, 0), lost_start, visit(7, 8, 300)))
    assert values(timeline) == [[1, 2], [7, 8]]


def test_tags_of_iterations_that_the_next_one_ends(tmp_path: Path) -> None:
    scopes = [Scope("kernel"), Scope("iter", "iter", 0, ended_by_next=True, tags=("tile",))]
    turns = [entry for number in range(4) for entry in (*tagged(TILE, number), start(1, BASE + 100 * number))]
    entries = [start(KERNEL, BASE), *turns, end(1, BASE + 400), end(KERNEL, BASE + 410)]
    assert values(decoded(tmp_path, entries, scopes=scopes)) == [[0], [1], [2], [3]]
    # A damaged entry of the kernel's own scope doubts no iteration that it does not stand in.
    damaged = [*entries[:-2], Entry(250, False, 0), *entries[-2:]]
    assert values(decoded(tmp_path, damaged, scopes=scopes))[:3] == [[0], [1], [2]]


def with_damaged(entries: list[Entry], *before: Entry) -> list[Entry]:
    """Return the same words with a damaged entry before each of these."""
    return [one for entry in entries for one in ((Entry(250, False, 0), entry) if entry in before else (entry,))]


def test_entries_of_tags_are_none_of_the_damaged_ones(tmp_path: Path) -> None:
    """Two damaged entries may split a scope, however many records of tags it contains."""
    entries = whole(visit(1, 2, 100), visit(3, 4, 300))
    second = start(WORK, BASE + 300)
    one, two = with_damaged(entries, end(WORK, BASE + 160)), with_damaged(entries, end(WORK, BASE + 160), second)

    assert decoded(tmp_path / "one", one).scopes["scope"].tolist() == [KERNEL, WORK, WORK]
    timeline = decoded(tmp_path / "two", two)
    assert timeline.scopes["scope"].tolist() == [WORK, WORK]
    assert (timeline.records_damaged, timeline.open_starts.tolist(), timeline.stray_ends.tolist()) == (
        2, [1, 0], [1, 0]
    )  # fmt: skip
    in_work = with_damaged(with_damaged(entries, end(WORK, BASE + 160)), end(WORK, BASE + 160))
    assert decoded(tmp_path / "in work", in_work).scopes["scope"].tolist() == [WORK]


def test_the_tags_of_a_start_that_ends_an_iteration_precede_that_end(tmp_path: Path) -> None:
    """Their entries are between the records of the previous iteration, and a damaged entry is one more."""
    scopes = [Scope("kernel"), Scope("iter", "iter", 0, ended_by_next=True, tags=("tile",)), Scope("work", "op", 1)]
    ids = {0: "kernel", 1: "iter", 2: "tile of iter", 3: "work"}
    turns = [
        entry
        for number in range(4)
        for entry in (
            *tagged(2, number),
            start(1, BASE + 100 * number),
            start(3, BASE + 100 * number + 20),
            end(3, BASE + 100 * number + 40),
        )
    ]
    entries = [start(KERNEL, BASE), *turns, end(1, BASE + 400), end(KERNEL, BASE + 410)]

    def iterations(folder: str, written: list[Entry]) -> list[int]:
        rows = decoded(tmp_path / folder, written, scopes=scopes, scope_ids=ids).scopes
        return [int(row["start_cycles"] - BASE) for row in rows[rows["scope"] == 1]]

    assert iterations("sound", entries) == [0, 100, 200, 300]
    # Nor are the records of tags taken for damaged ones of the kernel, and two of those are enough to part it.
    for count, left in ((1, [KERNEL]), (2, [])):
        written = [*entries[:-1], *[Entry(250, False, 0)] * count, entries[-1]]
        rows = decoded(tmp_path / f"{count} at the end", written, scopes=scopes, scope_ids=ids).scopes
        assert rows["scope"][rows["scope"] == KERNEL].tolist() == left
    # A damaged entry may have begun another iteration.
    for number in range(4):
        damaged = with_damaged(entries, start(3, BASE + 100 * number + 20))
        assert iterations(str(number), damaged) == [at for at in (0, 100, 200, 300) if at != 100 * number]


def test_the_tags_of_a_loop_count_right_before_an_iteration_without_any(tmp_path: Path) -> None:
    scopes = [Scope("kernel"), Scope("loop", "loop", 0, tags=("tile",)), Scope("iter", "iter", 1, ended_by_next=True)]
    ids = {0: "kernel", 1: "loop", 2: "tile of loop", 3: "iter"}
    entries = [start(KERNEL, BASE), *tagged(2, 7), start(1, BASE + 5)]
    entries += [start(3, BASE + 10), start(3, BASE + 20), end(3, BASE + 30), end(1, BASE + 35)]
    entries += [Entry(250, False, 0), end(KERNEL, BASE + 40)]
    rows = decoded(tmp_path, entries, scopes=scopes, scope_ids=ids).scopes
    assert rows["scope"].tolist() == [0, 1, 2, 2]


def test_captures_without_tags_have_no_column_for_them(tmp_path: Path) -> None:
    timeline = decoded(tmp_path, [start(0, BASE), end(0, BASE + 10)], scopes=[Scope("kernel")])
    assert timeline.columns == timeline.scopes.dtype == SCOPE_COLUMNS


def test_a_column_by_name_has_the_values_of_every_scope_that_has_it(tmp_path: Path) -> None:
    scopes = [Scope("kernel", tags=("tile",)), Scope("work", "op", 0, tags=("expert", "tile"))]
    ids = {0: "kernel", 1: "work", 2: "tile of kernel", 3: "expert of work", 4: "tile of work"}
    work = [*tagged(3, 8), *tagged(4, 9), start(1, BASE + 20), end(1, BASE + 30)]
    entries = [*tagged(2, 5), start(0, BASE), *work, end(0, BASE + 40)]
    timeline = decoded(tmp_path, entries, scopes=scopes, scope_ids=ids)
    rows = timeline.scopes
    assert tag_column(rows, timeline.table, "tile").tolist() == [5, 9]
    assert tag_column(rows, timeline.table, "expert").tolist() == [NO_TAG, 8]


def sums_of(timeline: Timeline, scope: int) -> TagSums:
    sums = TagSums(timeline.table)
    for block in timeline.blocks():
        sums.add(block)
    return sums


def test_statistics_by_value(tmp_path: Path) -> None:
    takes = {0: (100, 100), 1: (100, 100, 100), 3: (210, 210)}
    ran = [(expert, cycles) for expert, each in takes.items() for cycles in each]
    entries = whole(*(visit(9, expert, 300 * at, cycles) for at, (expert, cycles) in enumerate(ran)))
    timeline = decoded(tmp_path, entries)
    tile, expert = sums_of(timeline, WORK).of(WORK)
    assert (tile.name, tile.distinct, tile.unknown) == ("tile", 1, 0)
    assert tile.values[0].times_others is None
    assert (expert.name, expert.distinct) == ("expert", 3)
    by_value = {row.value: row for row in expert.values}
    assert {value: row.count for value, row in by_value.items()} == {0: 2, 1: 3, 3: 2}
    assert expert.values[0].value == 3
    assert by_value[3].times_others == pytest.approx(2.1, abs=0.05)
    assert sum(row.total_ns or 0 for row in expert.values) == timeline.scopes["duration_ns"][1:].sum()


def test_of_many_values_those_are_kept_that_take_most(tmp_path: Path) -> None:
    rows = [visit(number, 0, 2000 * number, 100 + number) for number in range(2 * MAX_VALUES)]
    tile, _ = sums_of(decoded(tmp_path, whole(*rows), 4096), WORK).of(WORK)
    assert (tile.distinct, len(tile.values)) == (2 * MAX_VALUES, MAX_VALUES)
    assert {row.value for row in tile.values} <= {*range(MAX_VALUES // 2, 2 * MAX_VALUES)}


def test_of_a_mark_values_are_counted(tmp_path: Path) -> None:
    scopes = [Scope("kernel"), Scope("here", "mark", 0, tags=("tile",))]
    marks = [entry for value in (4, 4, 2) for entry in (*tagged(TILE, value), start(1, BASE + 9), end(1, BASE + 9))]
    timeline = decoded(tmp_path, [start(0, BASE), *marks, end(0, BASE + 10)], scopes=scopes)
    (tile,) = sums_of(timeline, 1).of(1)
    assert tile.values == (TagValue(4, 2, None, None, None), TagValue(2, 1, None, None, None))
    assert np.isin(timeline.scopes["scope"], (0, 1)).all()


WIDE = [Scope("kernel"), Scope("work", "op", 0, tags=("address", "value"), wide_tags=("address",))]
WIDE_VALUES = [(0x7F00_1234_5678, 5), (1, -1), (0xFFFF_FFFF, 0), (0xFFFF_8000_0000, 3)]


def wide_visit(address: int, value: int, begin: int) -> list[Entry]:
    return [*halved(TILE, address), *tagged(EXPERT, value), start(WORK, BASE + begin), end(WORK, BASE + begin + 60)]


def test_a_wide_value_is_in_two_halves(tmp_path: Path) -> None:
    entries = whole(*(wide_visit(*pair, 100 * number) for number, pair in enumerate(WIDE_VALUES)))
    assert values(decoded(tmp_path, entries, scopes=WIDE)) == [list(pair) for pair in WIDE_VALUES]


@pytest.mark.parametrize("slots", range(1, 26))
def test_a_wide_value_of_which_a_half_is_lost_is_unknown(tmp_path: Path, slots: int) -> None:
    entries = whole(*(wide_visit(*WIDE_VALUES[0], 100 * number) for number in range(20)))
    found = decoded(tmp_path, entries, slots, scopes=WIDE)
    assert all(pair[0] in (WIDE_VALUES[0][0], NO_TAG) for pair in values(found))
    assert all(pair == list(WIDE_VALUES[0]) for pair in values(found)[1:])
    assert found.records_damaged == 0
