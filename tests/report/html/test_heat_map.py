"""How many CTAs each SM had at work, against CTAs whose times are known."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from replacing import replace
from timelines import cta_rows, made_timeline

from kprof_inject.analysis.summary import summarise
from kprof_inject.report.html.pictures import HeatMap, at_work, sm_heat_map
from kprof_inject.timeline.timeline import Timeline

BEGIN_NS = 1_764_000_000_000_000_000


def launch_of(folder: Path, ctas: Sequence[tuple[int, int, int]]) -> Timeline:
    """Of CTAs given by SM, begin and end."""
    rows = cta_rows(*((number, sm, begin, end, end) for number, (sm, begin, end) in enumerate(ctas)))
    for name in ("init_ns", "pre_final_ns", "post_final_ns"):
        rows[name] += BEGIN_NS
    return made_timeline(folder, [], [], rows, first_ns=BEGIN_NS)


def picture(timeline: Timeline) -> HeatMap:
    made = sm_heat_map(timeline, summarise(timeline))
    assert made is not None
    return made


def cells(made: HeatMap) -> NDArray[np.float64]:
    """How many CTAs were at work, by SM and column."""
    return made.cells.reshape(len(made.sms), -1) / 255 * made.most


def test_any_ctas_cover_what_they_cover_one_by_one() -> None:
    random = np.random.default_rng(5)
    row = random.integers(0, 7, 300)
    begin = random.uniform(0, 40, 300)
    end = np.minimum(begin + random.exponential(5, 300), 40)
    expected = np.zeros((7, 40))
    for which, first, last in zip(row, begin, end, strict=True):
        for column in range(40):
            expected[which, column] += max(min(last, column + 1) - max(first, column), 0)
    assert at_work(row, begin, end, 7, 40) == pytest.approx(expected, abs=1e-9)


def test_rows_are_the_sms_and_the_axis_is_the_launch(tmp_path: Path) -> None:
    made = picture(launch_of(tmp_path, [(9, 100, 500), (3, 300, 900), (9, 500, 700)]))
    assert [column.tolist() for column in (made.sms, made.counts, made.done_ns)] == [[3, 9], [1, 2], [900, 700]]
    assert (made.begin_ns, made.end_ns, made.tail_ns) == (100, 900, 700)
    assert cells(made).shape == (2, 400)
    assert cells(made)[1, :300] == pytest.approx(np.ones(300))
    assert cells(made)[1, 300:].sum() == 0
    assert cells(made)[0].sum() == pytest.approx(300)


def test_what_runs_at_once_is_counted(tmp_path: Path) -> None:
    made = picture(launch_of(tmp_path, [(0, 0, 400), (0, 0, 400), (0, 200, 400), (1, 0, 400)]))
    assert made.most == 3.0
    assert cells(made)[0, [0, 399]].tolist() == pytest.approx([2, 3])


def test_more_sms_than_any_device_has_are_counted_not_shown(tmp_path: Path) -> None:
    made = picture(launch_of(tmp_path, [(7 * sm, 0, 60 if sm == 599 else 100) for sm in range(600)]))
    assert (len(made.sms), made.sms[-1], made.sms_left_out) == (512, 7 * 511, 88)
    # The tail is the launch's: it began on an SM without a row.
    assert made.tail_ns == 60


def test_without_a_timer_there_is_no_picture(tmp_path: Path) -> None:
    timeline = launch_of(tmp_path, [(0, 0, 100)])
    untimed = replace(timeline, clock=replace(timeline.clock, source="nominal"))
    assert sm_heat_map(untimed, summarise(untimed)) is None
