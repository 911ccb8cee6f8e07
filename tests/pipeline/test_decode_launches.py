"""Launches beside each other: the same as one after the other, as far as memory allows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest
from buffers import Cta, Scope, buffer_words, end, kernel_json, save_launches, start
from replacing import replace
from traces import write_trace

from kprof_inject.capture.model import Launch
from kprof_inject.errors import KprofError
from kprof_inject.forks import forked, in_turn
from kprof_inject.pipeline import captures as module
from kprof_inject.pipeline.captures import decode_launches, run_to_decode, run_to_write
from kprof_inject.timeline.timeline import Timeline, decode_launch

T = TypeVar("T")
SCOPES = [Scope("kernel", "func"), Scope("iter[0]", "iter", 0), Scope("of its own")]
COUNT = 7
TOGETHER = 2


@pytest.fixture(autouse=True)
def few_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_BATCH_LAUNCHES", TOGETHER)


@pytest.fixture
def launches(tmp_path: Path) -> Sequence[Launch]:
    """Launches that differ; the third has scopes that cross, the fifth no CTA that ran."""
    grids: list[list[Cta | None]] = []
    for number in range(COUNT):
        entries = [start(0, 100)]
        for cycles in range(200, 200 + 100 * (3 + number), 100):
            entries += [start(1, cycles), end(1, cycles + 50)]
        if number == 2:
            entries += [start(1, 1000), start(2, 1050), end(1, 1100), end(2, 1200)]
        grids.append([None] if number == 4 else [Cta([[*entries, end(0, 3000)]])] * (2 + number))
    buffers = [buffer_words(ctas, 64) for ctas in grids]
    return save_launches(tmp_path / "capture", kernel_json(SCOPES, buffers[0], 1), buffers)


def decoded(launches: Sequence[Launch], count: int) -> list[Timeline]:
    found = list(decode_launches(launches, forked(count)))
    assert all(isinstance(timeline, Timeline) for timeline in found)
    return [timeline for timeline in found if isinstance(timeline, Timeline)]


def test_forks_decode_the_same(launches: Sequence[Launch]) -> None:
    for here, there, launch in zip(decoded(launches, 1), decoded(launches, 3), launches, strict=True):
        assert there.launch is here.launch is launch
        assert there.table is here.table is launch.kernel.scopes
        assert np.array_equal(there.scopes, here.scopes)
        assert np.array_equal(there.ctas, here.ctas)
        assert np.array_equal(there.incomplete, here.incomplete)
        assert np.array_equal(there.lanes, here.lanes)
        assert (there.first_ns, there.last_ns, there.scope_count) == (here.first_ns, here.last_ns, here.scope_count)
        assert there.clock.clock_hz == here.clock.clock_hz


def test_launches_together_are_as_each_alone(launches: Sequence[Launch], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_BATCH_LAUNCHES", COUNT)
    for launch, together in zip(launches, decoded(launches, 1), strict=True):
        alone = decode_launch(launch)
        assert np.array_equal(together.scopes, alone.scopes)
        assert (together.first_ns, together.last_ns) == (alone.first_ns, alone.last_ns)
        assert np.array_equal(together.clock.curves.heights_ns, alone.clock.curves.heights_ns)
        numbers = ("rate_ns", "rate_error", "residual_ns", "source")
        assert [getattr(together.clock, name) for name in numbers] == [getattr(alone.clock, name) for name in numbers]


@pytest.mark.parametrize("ending", [".json", ".pftrace", ".csv", ".parquet"])
def test_forks_write_the_same(launches: Sequence[Launch], ending: str, tmp_path: Path) -> None:
    timelines = decoded(launches, 1)
    write_trace(tmp_path / f"here{ending}", timelines)
    write_trace(tmp_path / f"there{ending}", decoded(launches, 2), run=forked(3))
    assert (tmp_path / f"there{ending}").read_bytes() == (tmp_path / f"here{ending}").read_bytes()


@pytest.mark.parametrize("count", [1, 3])
def test_what_is_wrong_with_one_keeps_no_other_back(launches: Sequence[Launch], count: int) -> None:
    launches[1].path.write_bytes(b"cut off")
    found = list(decode_launches(launches, forked(count)))
    assert [number for number, one in enumerate(found) if isinstance(one, KprofError)] == [1]
    (error,) = (one for one in found if isinstance(one, KprofError))
    assert (error.what, error.hint) != ("", "")
    assert str(launches[1].path) in error.render()


def test_a_buffer_that_is_gone_when_it_is_written_is_an_error(launches: Sequence[Launch], tmp_path: Path) -> None:
    timelines = decoded(launches, 1)
    launches[3].path.unlink()
    with pytest.raises(KprofError) as here:
        write_trace(tmp_path / "here.json", timelines)
    with pytest.raises(KprofError) as there:
        write_trace(tmp_path / "there.json", timelines, run=forked(2))
    assert there.value.render() == here.value.render()
    assert not list(tmp_path.glob("*.json"))


def test_little_work_is_done_here(launches: Sequence[Launch]) -> None:
    assert run_to_decode(launches) is in_turn
    assert run_to_write(decoded(launches, 1)) is in_turn
    assert run_to_decode([]) is run_to_write([]) is in_turn


@pytest.mark.parametrize(
    ("buffer_bytes", "count", "scopes", "forks"),
    [
        # Three times the buffers and 100 MB, less 40 of our own: for each fork a buffer, 28 MB, and 480 bytes a scope.
        (32_000_000, 16, 0, 5),
        (32_000_000, 16, 70_000, 2),
        # There is room for 94, but each takes files.
        (4_000_000_000, 40, 0, 64),
    ],
)
def test_memory_decides_how_many_there_are(
    launches: Sequence[Launch], monkeypatch: pytest.MonkeyPatch, buffer_bytes: int, count: int, scopes: int, forks: int
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(module, "usable_cores", lambda: 1000)
    monkeypatch.setattr(module, "forked", lambda count, _: asked.append(count))
    big = replace(launches[0], buffer_bytes=buffer_bytes // count)
    if scopes:
        run_to_write([replace(decoded(launches[:1], 1)[0], launch=big, scope_count=scopes)] * count)
    else:
        run_to_decode([big] * count)
    assert asked == [forks]
