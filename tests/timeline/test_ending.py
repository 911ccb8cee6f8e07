"""What SMs lose at the end of a launch, and for which of two reasons."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from buffers import Scope
from timelines import cta_rows, made_timeline

from kprof_inject.timeline.waves import Ending, ending_of


def ending(folder: Path, *ctas: tuple[int, int, int]) -> Ending | None:
    """Of CTAs by SM, begin and end."""
    rows = cta_rows(*[(cta, sm, begin_ns, end_ns, end_ns) for cta, (sm, begin_ns, end_ns) in enumerate(ctas)])
    return ending_of(made_timeline(folder, [Scope("func")], [], rows), 1)


def test_an_sm_with_one_cta_more(tmp_path: Path) -> None:
    found = ending(tmp_path, (0, 0, 100), (1, 0, 100), (2, 0, 100), (3, 0, 100), (0, 100, 200))
    assert found == Ending(4, 3 / 8, 2, 1, 3 / 8, 5, 100.0, 4, 0, 100)
    assert found.uneven_share == 0


@pytest.mark.parametrize(("both_ns", "gain"), [(112, 0.44), (200, 0.0)])
def test_what_a_second_cta_on_an_sm_gains(tmp_path: Path, both_ns: int, gain: float) -> None:
    ctas = [(sm, 0, 100) for sm in range(3)] + [(3, 0, both_ns)] * 2
    rows = cta_rows(*[(cta, sm, begin_ns, end_ns, end_ns) for cta, (sm, begin_ns, end_ns) in enumerate(ctas)])
    timeline = made_timeline(tmp_path, [Scope("func")], [], rows)
    found = ending_of(timeline, 2)
    assert found is not None and found.sharing_share == pytest.approx(gain)
    in_turn = ending_of(timeline, 1)
    assert in_turn is not None and in_turn.sharing_share is None


def test_a_cta_that_takes_longer(tmp_path: Path) -> None:
    found = ending(tmp_path, (0, 0, 100), (1, 0, 100), (2, 0, 200), (3, 0, 100))
    assert found == Ending(4, 3 / 8, 1, 4, 0.0, 4, 100.0, 2, 2, 200)
    assert found.uneven_share == 3 / 8


def test_both_at_once(tmp_path: Path) -> None:
    # SM 0 has two CTAs; SM 1 has one, which is as long as three.
    found = ending(tmp_path, (0, 0, 100), (1, 0, 300), (2, 0, 100), (0, 100, 200), (3, 0, 100))
    assert found is not None
    assert found.idle_share == pytest.approx(1 - (200 + 300 + 100 + 100) / 1200)
    assert found.count_share == pytest.approx(100 / 300 * 3 / 4)
    assert (found.last_cta, found.last_cta_ns, found.cta_ns) == (1, 300, 100.0)


def test_an_sm_with_fewer_but_longer_ctas_has_not_too_many(tmp_path: Path) -> None:
    found = ending(tmp_path, (0, 0, 100), (0, 100, 200), (1, 0, 100), (1, 100, 200), (2, 0, 400))
    assert found is not None
    assert (found.count_share, found.uneven_share) == (0.0, pytest.approx(1 / 3))


def test_that_an_sm_ran_more_ctas_because_they_were_short_is_not_for_their_number(tmp_path: Path) -> None:
    # 8 CTAs on 4 SMs would be two on each, if all took as long. SM 0 ran three.
    ctas = [(0, 0, 60), (1, 0, 100), (2, 0, 100), (3, 0, 150)]
    found = ending(tmp_path, *ctas, (0, 60, 120), (1, 100, 160), (2, 100, 160), (0, 120, 200))
    assert found is not None
    assert (found.most_ctas, found.fullest_sms) == (3, 1)
    assert found.idle_share == pytest.approx(1 - (200 + 160 + 160 + 150) / 800)
    assert found.count_share == 0


def test_the_number_of_ctas_explains_no_more_than_of_equal_ones(tmp_path: Path) -> None:
    # 5 CTAs that took as long would be done after 200 ns, and 125 each would do. SM 0 has one more, which is long.
    found = ending(tmp_path, *[(sm, 0, 100) for sm in range(4)], (0, 100, 400))
    assert found is not None
    assert found.idle_share == pytest.approx(3 / 4 * 3 / 4)
    assert found.count_share == pytest.approx(1 - 125 / 200)


@pytest.mark.parametrize(
    "ctas",
    [[(0, 0, 100)], [(0, 0, 100), (1, 0, 100)], [(0, 0, 100), (0, 100, 200), (1, 0, 50), (1, 50, 200)]],
    ids=["one", "two", "of different lengths"],
)
def test_where_all_end_at_once_nothing_is_lost(tmp_path: Path, ctas: Sequence[tuple[int, int, int]]) -> None:
    found = ending(tmp_path, *ctas)
    assert found is not None
    assert (found.idle_share, found.count_share, found.uneven_share) == (0, 0, 0)


@pytest.mark.parametrize("ctas", [[], [(0, 50, 50), (1, 50, 50)]], ids=["no CTA", "one step of the timer"])
def test_nothing_to_tell(tmp_path: Path, ctas: Sequence[tuple[int, int, int]]) -> None:
    assert ending(tmp_path, *ctas) is None


def test_timers_that_contradict_each_other_make_no_cta_run_backwards(tmp_path: Path) -> None:
    found = ending(tmp_path, (0, 100, 50), (1, 0, 200))
    assert found is not None
    assert 0 <= found.idle_share <= 1
