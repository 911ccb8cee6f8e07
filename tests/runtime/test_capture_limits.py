"""Which launches a run keeps, on the fake GPU: by number, by size, by count, and what it says of the others."""

from __future__ import annotations

import pytest
from fake_gpu.captured import ends_of
from fake_runs import FakeRuns
from snapshots import check

from kprof_inject.capture.recording import parse_launches
from kprof_inject.errors import KprofError

CTA_BYTES = 8192 + 128
"""The rings, and the header before them."""
LAUNCH_BYTES = 16 * CTA_BYTES


@pytest.mark.parametrize(
    ("launches", "kept"),
    [("last", [6]), ("first", [0]), ("all", [0, 1, 2, 3, 4, 5, 6]), ("9", []), ("1:6:2", [1, 3, 5])],
)
def test_the_launches_that_were_asked_for_are_saved(fake_runs: FakeRuns, launches: str, kept: list[int]) -> None:
    with fake_runs.here(launches=launches) as run:
        run.launch(*range(100, 107))
    assert run.saved() == [(index, 100 + index) for index in kept]
    assert run.left_out() == {}


def test_launches_are_counted_for_each_variant(fake_runs: FakeRuns) -> None:
    with fake_runs.here(launches="1") as run:
        run.launch(1, 2, 3)
        run.launch_power(4)
        run.launch_power(5)
    assert [(launch.kernel.name, launch.index) for launch in run.launches()] == [("scale", 1), ("power", 1)]
    (end,) = ends_of(run.folder)
    assert {variant.split("-")[0]: count for variant, count in end["launches"].items()} == {"scale": 3, "power": 2}


def test_what_does_not_fit_on_disk_is_counted(fake_runs: FakeRuns) -> None:
    with fake_runs.here(launches="all", max_bytes=2 * LAUNCH_BYTES + 1) as run:
        run.launch(1, 2, 3, 4, 5)
    assert run.saved() == [(0, 1), (1, 2)]
    assert run.left_out() == {"the capture reached its size limit": 3}


def test_the_last_launch_replaces_one_that_filled_the_disk(fake_runs: FakeRuns) -> None:
    with fake_runs.here(max_bytes=LAUNCH_BYTES) as run:
        run.launch(*range(1, 20))
    assert run.saved() == [(18, 19)]
    assert run.left_out() == {}


def test_no_more_launches_than_asked_for_are_kept(fake_runs: FakeRuns) -> None:
    with fake_runs.here(launches="1::2", max_launches=2) as run:
        run.launch(*range(10))
    assert run.saved() == [(1, 1), (3, 3)]
    assert run.left_out() == {"more than --max-launches 2": 3}


def test_a_kernel_launched_on_several_grids_has_buffers_of_their_sizes(fake_runs: FakeRuns) -> None:
    with fake_runs.here(launches="all") as run:
        for n, ctas in [(1, 16), (2, 3), (3, 70), (4, 1), (5, 16)]:
            run.launch(n, ctas=ctas)
        run.launch_nothing()
    assert [(launch.grid, launch.buffer_bytes) for launch in run.launches()] == [
        ((ctas, 1, 1), ctas * CTA_BYTES) for ctas in (16, 3, 70, 1, 16)
    ]
    assert run.saved() == [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]


@pytest.mark.parametrize(
    ("launched", "kept"),
    [
        ([(1, 16), (2, 70), (3, 3)], (70, 1, 2)),
        ([(1, 16), (2, 70), (3, 70), (4, 3)], (70, 2, 3)),
        ([(1, 3), (2, 3), (3, 3), (4, 8), (5, 3)], (3, 4, 5)),
        ([(1, 8), (2, 3), (3, 3), (4, 3), (5, 8)], (8, 4, 5)),
        ([(1, 1), (2, 2), (3, 3)], (3, 2, 3)),
    ],
)
def test_the_last_launch_has_the_grid_with_most_ctas_in_all_launches(
    fake_runs: FakeRuns, launched: list[tuple[int, int]], kept: tuple[int, int, int]
) -> None:
    with fake_runs.here() as run:
        for n, ctas in launched:
            run.launch(n, ctas=ctas)
    ((launch,), ((index, n),)) = run.launches(), run.saved()
    assert (launch.grid[0], index, n) == kept
    assert launch.kernel.launches == len(launched)


def test_a_grid_beyond_the_limit_gets_a_smaller_buffer_for_each_cta(fake_runs: FakeRuns) -> None:
    with fake_runs.here(max_bytes=2 * LAUNCH_BYTES) as run:
        run.launch(1, 2)
        run.launch(3, 4, ctas=60)
        run.launch(5, 6, 7, 8, 9, 10, 11, 12, 13)
    (launch,) = run.launches()
    assert (launch.kernel.mode.buffer_bytes, launch.buffer_bytes) == (8192, LAUNCH_BYTES)
    assert run.saved() == [(12, 13)]
    reasons = [reason for name, state, reason in run.states() if reason]
    check("runtime/capture_limits", "\n".join(reasons), "60 CTAs")
    assert {records for _, records in run.ran()} == {True}


def test_a_grid_beyond_all_bounds_runs_clean(fake_runs: FakeRuns) -> None:
    with fake_runs.here(max_bytes=16 * 1024) as run:
        run.launch(1, 2, ctas=64)
        run.launch(3, ctas=1)
    assert run.ran() == [("scale", False)] * 3
    ((name, state, reason),) = run.states()
    assert (name, state) == ("scale", "left alone")
    check("runtime/capture_limits", reason, "64 CTAs")


# Which launches ``--launches`` keeps


def test_a_range_keeps_what_a_slice_of_python_has() -> None:
    numbers = ["", "0", "1", "2", "7"]
    for text in (f"{a}:{b}:{step}" for a in numbers for b in numbers for step in ["", "1", "2", "3"]):
        wanted = list(range(9))[slice(*(int(part) if part else None for part in text.split(":")))]
        if not wanted:
            with pytest.raises(KprofError, match=r"^no launch is in"):
                parse_launches(text)
        else:
            assert [index for index in range(9) if parse_launches(text).keeps(index)] == wanted


def test_only_the_last_one_replaces_those_before() -> None:
    replacing = [text for text in ("last", "first", "all", "3", "2:4", "4:", "::2") if parse_launches(text).replaces]
    assert replacing == ["last"]


@pytest.mark.parametrize(
    ("text", "column", "what"),
    [
        ("", 1, "cannot read the launches ''"),
        ("1-3", 2, "cannot read the launches '1-3'"),
        ("1:2:3x", 6, "cannot read the launches '1:2:3x'"),
        ("1:2:3:4", 6, "cannot read the launches '1:2:3:4'"),
        ("²", 1, "cannot read the launches '²'"),
        ("9" * 5000, 19, f"cannot read the launches '{'9' * 5000}'"),
        ("-1", 1, "there is no launch -1"),
        ("2:-1", 3, "there is no launch -1"),
        ("::-2", 3, "there is no launch -2"),
        ("10:5", 4, "no launch is in 10:5"),
        (":0", 2, "no launch is in :0"),
        ("0:10:0", 6, "the step is 0"),
    ],
)
def test_anything_else_is_refused_as_wrong_usage(text: str, column: int, what: str) -> None:
    with pytest.raises(KprofError) as refusal:
        parse_launches(text)
    assert refusal.value.what == what
    assert str(refusal.value.where) == f"--launches:1:{column}"
    assert refusal.value.exit_code == 2
    if text == "10:5":
        check("runtime/launches", refusal.value.render())
