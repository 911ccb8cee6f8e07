"""Records whose clock's halves were read on both sides of an overflow of the lower one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from buffers import Cta, Entry, Scope, end, save_launch, start, with_moved_stores

from kprof_inject.timeline.timeline import Timeline, decode_launch
from kprof_inject.timeline.unwrap import torn_by_cycles

HALF = 1 << 32
SCOPES = [Scope("kernel", "func"), Scope("a")]
# One launch in which the lower half overflows, from 5000 cycles before to as many behind.
TRUE = [
    start(0, HALF - 5000),
    start(1, HALF - 3000),
    end(1, HALF - 12),
    start(1, HALF - 3),
    end(1, HALF + 900),
    end(0, HALF + 5000),
]


def torn(entry: Entry) -> Entry:
    """As it is written if the lower half overflows between the two reads."""
    return entry._replace(cycles=entry.cycles + HALF)


def decoded(
    folder: Path,
    entries: Sequence[Entry],
    mode: dict[str, object] | None = None,
    true: Sequence[Entry] = TRUE,
) -> Timeline:
    """Three CTAs of two warps, of which one wrote these records, the others the true ones."""
    in_order = with_moved_stores if mode and mode.get("sched_stores") else list
    true, hit = in_order(true), in_order(entries)
    ctas = [Cta(warps, pre_final_ns=9_000, post_final_ns=9_500) for warps in ([true, true], [hit, true], [true, true])]
    return decode_launch(save_launch(folder, SCOPES, ctas, slots=8, mode=mode))


def test_a_value_is_torn_if_it_was_about_to_overflow_and_is_near_the_others_without_that() -> None:
    """The two reads are at most 4096 cycles apart."""
    about = 2 * HALF - 4096
    cycles = np.array([about, about - 1, 2 * HALF - 1, 2 * HALF, HALF - 1])
    everywhere, nowhere = 1 << 40, 999
    distance = np.full(5, HALF + 1000)
    assert torn_by_cycles(cycles, distance, everywhere).tolist() == [HALF, 0, HALF, 0, 0]
    assert torn_by_cycles(cycles, distance, nowhere).tolist() == [0] * 5
    assert torn_by_cycles(cycles, distance, nowhere + 1).tolist() == [HALF, 0, HALF, 0, 0]
    assert torn_by_cycles(cycles, 2 * HALF - distance, nowhere + 1).tolist() == [HALF, 0, HALF, 0, 0]


@pytest.mark.parametrize("torn_at", [(2,), (3,), (2, 3)])
def test_a_torn_record_is_put_together(tmp_path: Path, torn_at: tuple[int, ...]) -> None:
    entries = [torn(entry) if at in torn_at else entry for at, entry in enumerate(TRUE)]
    found, true = decoded(tmp_path / "torn", entries), decoded(tmp_path / "true", TRUE)
    assert found.records_damaged == 0
    assert found.scopes.tolist() == true.scopes.tolist()
    assert found.scope_count == 18


def test_with_moved_stores_too(tmp_path: Path) -> None:
    entries = [torn(entry) if at == 3 else entry for at, entry in enumerate(TRUE)]
    found = decoded(tmp_path, entries, {"sched_stores": True})
    hit = found.scopes[(found.scopes["cta"] == 1) & (found.scopes["warp"] == 0) & (found.scopes["scope"] == 1)]
    assert found.records_damaged == 0
    assert hit["start_cycles"].tolist() == [HALF - 3000, HALF - 3]


@pytest.mark.parametrize(
    "wrong",
    [
        # The lower half was not about to overflow, the upper one is too large by two, too small, and the CTA is over.
        start(1, 2 * HALF - 5000),
        start(1, 3 * HALF - 3),
        start(1, 7),
        start(1, 2 * HALF + 60_000),
    ],
)
def test_what_is_wrong_otherwise_is_damaged(tmp_path: Path, wrong: Entry) -> None:
    found = decoded(tmp_path, [*TRUE[:3], wrong, *TRUE[4:]])
    assert found.records_damaged == 1
    # Of its warp only what ended before: what goes on over a damaged record may be two.
    assert found.scope_count == 15 + 1


PERIOD = 1 << 43


@pytest.mark.parametrize("place", range(6))
def test_a_word_below_the_first_overflow_is_no_time_before_the_counter_began(tmp_path: Path, place: int) -> None:
    """The counter may have passed 2^43, but no record of its SM says so."""
    true = [entry._replace(cycles=entry.cycles - HALF + 6000) for entry in TRUE]
    wrong = true[place]._replace(cycles=HALF - 16)
    whole = decoded(tmp_path / "true", [*true[:place], wrong, *true[place + 1 :]], true=true)
    assert whole.records_damaged == 1
    assert whole.scopes["start_cycles"].min() >= 0


def test_a_record_that_was_torn_where_all_bits_overflowed_is_put_together(tmp_path: Path) -> None:
    true = [entry._replace(cycles=entry.cycles - HALF + PERIOD) for entry in TRUE]
    entries = [entry._replace(cycles=entry.cycles % PERIOD) for entry in true]
    entries[2] = entries[2]._replace(cycles=HALF - 12)
    found, whole = decoded(tmp_path / "torn", entries, true=true), decoded(tmp_path / "true", true, true=true)
    assert found.records_damaged == 0
    assert found.scopes.tolist() == whole.scopes.tolist()


def test_what_would_run_backwards_then_is_damaged(tmp_path: Path) -> None:
    """It would fit into the CTA, but not between its neighbours."""
    entries = [start(0, HALF - 5000), start(1, HALF + 100), end(1, 2 * HALF - 12), end(0, HALF + 5000)]
    found = decoded(tmp_path, entries)
    assert found.records_damaged == 2
    assert found.scope_count == 15


def test_a_clock_of_one_half_is_never_torn(tmp_path: Path) -> None:
    entries = [entry._replace(cycles=entry.cycles % HALF) for entry in TRUE]
    found = decoded(tmp_path, entries, {"clock_bits": 32})
    assert (found.records_damaged, found.scope_count) == (0, 18)
