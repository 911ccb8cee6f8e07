"""Pictures of the page, against CTAs and scopes whose times are known, and brute force."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from buffers import Scope
from msgspec.structs import asdict
from numpy.typing import NDArray
from replacing import replace
from timelines import Ran, cta_rows, made_timeline, scope_rows

from kprof_inject.analysis.summary import summarise
from kprof_inject.report.html.pictures import HeatMap, Histogram, IterationTimes, ScopePictures, at_work, sm_heat_map
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


@pytest.mark.parametrize(
    ("least", "greatest", "median"),
    [(0, 0, 0.0), (7, 7, 7.0), (0, 3, 1.0), (100, 900, 500.0), (0, 10**9, 40.0), (5, 10**15, 6.0), (1, 97, 1.0)],
)
def test_bins_hold_all_from_the_least_to_the_greatest(least: int, greatest: int, median: float) -> None:
    edges = Histogram.holding(least, greatest, median).edges_ns
    assert (edges[0], edges[-1]) == (least, greatest + 1)
    assert (np.diff(edges) > 0).all()
    assert len(edges) <= 99


def test_every_duration_is_counted_in_its_bin() -> None:
    random = np.random.default_rng(3)
    durations = np.concatenate((random.lognormal(6, 0.4, 500), [90_000, 0])).astype(np.int64)
    found = Histogram.holding(0, 90_000, float(np.median(durations)))
    # Block by block.
    found.add(durations[:200])
    found.add(durations[200:])
    expected = [sum(first <= ns < after for ns in durations) for first, after in pairwise(found.edges_ns)]
    assert found.counts.tolist() == expected
    assert found.counts.sum() == len(durations)
    assert found.log


def bands(folder: Path, runs: Sequence[Sequence[tuple[int, int]]]) -> dict[str, list[Any]]:
    """Of runs of a loop, each in a warp of its own, with numbers and durations of their iterations."""
    rows = [Ran(0, ns, cta, iteration=number) for cta, run in enumerate(runs) for number, ns in run]
    ctas = cta_rows(*((cta, cta, 0, 100, 100) for cta in range(len(runs))))
    series = summarise(made_timeline(folder, [Scope("iter[0]", "iter")], [scope_rows(rows)], ctas)).scopes[0].iterations
    assert series is not None
    times = IterationTimes(series)
    for run in runs:
        numbers, durations = np.array(run, dtype=np.int64).reshape(-1, 2).T
        times.add(numbers.astype(np.int32), durations)
    return {name: column.tolist() for name, column in asdict(times.bands()).items()}


def test_a_short_loop_has_a_point_for_each_iteration(tmp_path: Path) -> None:
    found = bands(tmp_path, [[(0, 900), (1, 100), (2, 120)], [(0, 1100), (1, 104)]])
    assert (found["first"], found["last"], found["counts"]) == ([0, 1, 2], [0, 1, 2], [2, 2, 1])
    assert (found["p10_ns"], found["p50_ns"], found["p90_ns"]) == (
        [920.0, 100.4, 120.0],
        [1000.0, 102.0, 120.0],
        [1080.0, 103.6, 120.0],
    )


def test_a_long_loop_keeps_its_first_ones_and_groups_the_rest(tmp_path: Path) -> None:
    random = np.random.default_rng(8)
    runs = [[(number, int(random.integers(50, 5000))) for number in range(length)] for length in (3000, 2999, 1200)]
    found = bands(tmp_path, runs)
    assert found["first"][:66] == [*range(64), 64, 71]
    assert found["last"][:65] == [*range(64), 70]
    assert found["last"][-1] == 2999
    assert found["first"][1:] == [last + 1 for last in found["last"][:-1]]
    assert 400 < len(found["first"]) <= 512
    for index, (first, last) in enumerate(zip(found["first"], found["last"], strict=True)):
        values = [ns for run in runs for number, ns in run if first <= number <= last]
        assert found["counts"][index] == len(values)
        expected = np.quantile(values, [0.1, 0.5, 0.9])
        shown = [found[name][index] for name in ("p10_ns", "p50_ns", "p90_ns")]
        assert shown == pytest.approx(expected, abs=0.051)


def test_a_damaged_record_cannot_spoil_the_other_points(tmp_path: Path) -> None:
    found = bands(tmp_path, [[(0, 1 << 60), (1, 10)]])
    assert (found["first"], found["p50_ns"][1]) == ([0, 1], 10.0)


SCOPES = [
    Scope("func"),
    Scope("iter", "iter", 0, ("/k.py", 3)),
    Scope("here\u202e", "mark", 1),
    Scope("never", "op", 1),
]
CTAS = cta_rows((0, 3, 0, 1000, 1000), (1, 5, 0, 1000, 1000))


def drawn(timeline: Timeline) -> list[dict[str, Any]]:
    """Each scope's summary and pictures."""
    summary = summarise(timeline)
    pictures = ScopePictures(summary)
    for _ in pictures.seeing(timeline.blocks()):
        pass
    return [asdict(scope) | asdict(picture) for scope, picture in zip(summary.scopes, pictures.drawn(), strict=True)]


def rows_of(cta: int, warp: int, random: np.random.Generator) -> list[Ran]:
    times = random.integers(20, 200, 9).tolist()
    iterations = [Ran(1, ns, cta, warp, (3, 5)[cta], number, ns) for number, ns in enumerate(times)]
    return [Ran(0, 1000, cta, warp, (3, 5)[cta]), *iterations, Ran(2, 0, cta, warp, (3, 5)[cta])]


def test_all_blocks_count(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    blocks = [scope_rows([*rows_of(cta, 0, random), *rows_of(cta, 1, random)]) for cta in (0, 1)]
    timeline = made_timeline(tmp_path, SCOPES, blocks, CTAS)
    pictures = drawn(timeline)
    mine = np.concatenate(blocks)
    mine = mine[mine["scope"] == 1]
    iteration = pictures[1]
    assert iteration["histogram"].counts.sum() == iteration["count"] == len(mine) == 36
    assert iteration["bands"].first.tolist() == list(range(9))
    for number, median in enumerate(iteration["bands"].p50_ns):
        assert median == pytest.approx(np.median(mine["duration_ns"][mine["iteration"] == number]), abs=0.051)


def test_instants_and_what_never_ran_have_no_pictures(tmp_path: Path) -> None:
    timeline = made_timeline(tmp_path, SCOPES, [scope_rows(rows_of(0, 0, np.random.default_rng(2)))], CTAS)
    _, _, instant, never = drawn(timeline)
    assert (instant["count"], instant["histogram"], instant["bands"]) == (1, None, None)
    assert (never["count"], never["histogram"], never["per_cta"], never["per_cta_ns"]) == (0, None, "", None)


def test_only_iterations_have_a_plot_by_iteration(tmp_path: Path) -> None:
    timeline = made_timeline(tmp_path, SCOPES, [scope_rows(rows_of(0, 0, np.random.default_rng(2)))], CTAS)
    assert drawn(timeline)[0]["bands"] is None
