"""The page's scopes are those of the timeline: read back by the page's own modules."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from altered import report_of
from async_launches import in_order
from buffers import Cta, Entry, Scope, end, save_launch, start
from unpacked import unpacked

from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.errors import KprofError
from kprof_inject.report.html.columns import picked_ctas, shares, table_bytes
from kprof_inject.report.html.document import write_html
from kprof_inject.timeline.timeline import Timeline, decode_launch

SCOPES = [
    Scope("kernel", "func", -1, ("/src/k.py", 1)),
    Scope("iter[0]", "iter", 0, ("/src/k.py", 2)),
    Scope("wait", "marker", 0),
]
FUNC, ITER, WAIT = range(len(SCOPES))


def warp(begin: int, noise: np.random.Generator, iterations: int = 9) -> list[Entry]:
    """Iterations of any length in a function; the last scope crosses it."""
    records, at = [start(FUNC, begin)], begin
    for _ in range(iterations):
        at += int(noise.integers(40, 90_000))
        records.append(start(ITER, at))
        at += int(noise.integers(0, 500))
        records.append(end(ITER, at))
    return [*records, start(WAIT, at + 50), end(FUNC, at + 90), end(WAIT, at + 200)]


@pytest.fixture
def timeline(tmp_path: Path) -> Timeline:
    """CTAs on any SM, in rings of which some lose records, and some CTAs that never ran."""
    noise = np.random.default_rng(3)
    ctas = [
        None
        if number % 7 == 3
        else Cta([warp(10_000 * number, noise, 3 + 4 * (number % 4)) for _ in range(3)], sm=5 - number % 5)
        for number in range(20)
    ]
    return decode_launch(save_launch(tmp_path, SCOPES, ctas, slots=16))


def page_of(timeline: Timeline, folder: Path, **options: Any) -> dict[str, Any]:
    write_html(folder / "page.html", report_of(LaunchAnalysis.of(timeline)), **options)
    return unpacked(folder / "page.html")[0]


def test_every_column_comes_back(timeline: Timeline, tmp_path: Path) -> None:
    scopes, ctas = timeline.scopes, timeline.ctas
    page = page_of(timeline, tmp_path)

    assert len(scopes) > 80
    for name in ("scope", "depth", "flags", "iteration", "cta", "sm", "warp"):
        assert page["scopes"][name] == scopes[name].tolist(), name
    assert page["scopes"]["start"] == (scopes["start_ns"] - timeline.first_ns).tolist()
    assert page["scopes"]["end"] == (scopes["end_ns"] - timeline.first_ns).tolist()
    assert page["scopes"]["duration"] == scopes["duration_ns"].tolist()
    assert page["scopes"]["self"] == scopes["self_ns"].tolist()
    for mine, theirs in {"begin": "init_ns", "end": "pre_final_ns", "copied": "post_final_ns"}.items():
        assert page["ctas"][mine] == (ctas[theirs] - timeline.first_ns).tolist()
    assert (page["ctas"]["cta"], page["ctas"]["sm"]) == (ctas["cta"].tolist(), ctas["sm"].tolist())


def test_a_track_holds_a_warps_scopes(timeline: Timeline, tmp_path: Path) -> None:
    page = page_of(timeline, tmp_path)
    scopes, begins = page["scopes"], page["scopes"]["trackStart"]
    warps = page["meta"]["warp_ids"]

    assert len(begins) == len(timeline.ctas) * len(warps) + 1
    assert begins[-1] == timeline.scope_count
    for track, (begin, stop) in enumerate(pairwise(begins)):
        cta, warp = timeline.ctas["cta"][track // len(warps)], warps[track % len(warps)]
        assert set(scopes["cta"][begin:stop]) <= {cta}
        assert set(scopes["warp"][begin:stop]) <= {warp}
        assert set(scopes["track"][begin:stop]) <= {track}


def test_what_was_lost_is_told(timeline: Timeline, tmp_path: Path) -> None:
    lost, page = timeline.incomplete, page_of(timeline, tmp_path)["incomplete"]

    assert lost["records_lost"].any()
    assert page["lost"] == lost["records_lost"].tolist()
    assert page["written"] == lost["records_written"].tolist()
    assert page["warp"] == lost["warp"].tolist()
    assert timeline.ctas["cta"][page["ctaRow"]].tolist() == lost["cta"].tolist()
    assert page["lostStart"] == (lost["lost_start_ns"] - timeline.first_ns).tolist()
    assert page["lostEnd"] == (lost["lost_end_ns"] - timeline.first_ns).tolist()


def test_beyond_the_limit_the_picked_ctas_and_the_first_ones_are_kept(timeline: Timeline, tmp_path: Path) -> None:
    scopes = timeline.scopes
    page = page_of(timeline, tmp_path, max_scopes=80)

    picked = [number for _, number in page["meta"]["picked_ctas"]]
    kept = np.unique(page["scopes"]["cta"])
    expected = scopes[np.isin(scopes["cta"], kept)]
    assert page["scopes"]["cta"] == expected["cta"].tolist()
    assert set(picked) < set(kept.tolist()) and len(expected) <= 80 < len(scopes)
    left = timeline.ctas["cta"][~np.isin(timeline.ctas["cta"], kept)]
    assert max(set(kept.tolist()) - set(picked)) < left.min()
    assert len(page["ctas"]["cta"]) == len(timeline.ctas)
    assert page["meta"]["shown_ctas"] == len(kept)


def test_the_picked_ctas_are_there_however_many_scopes_they_have(timeline: Timeline, tmp_path: Path) -> None:
    meta = page_of(timeline, tmp_path, max_scopes=1)["meta"]

    assert meta["shown_ctas"] == len(meta["picked_ctas"])
    assert meta["shown_scopes"] > 1


def test_ctas_are_picked_by_their_times(tmp_path: Path) -> None:
    times = [(30, 1000), (0, 400), (10, 700), (20, 2000), (40, 800)]
    ctas = [Cta([[start(FUNC, 5), end(FUNC, 90)]], init_ns=begin, pre_final_ns=stop) for begin, stop in times]
    picked = picked_ctas(decode_launch(save_launch(tmp_path, SCOPES, ctas, slots=16)))
    assert picked == [("median", 4), ("longest, last", 3), ("first", 1)]


def test_a_number_that_javascript_does_not_hold_is_refused() -> None:
    with pytest.raises(KprofError, match="does not fit into a page"):
        list(table_bytes(np.array([1 << 53])))


def test_what_was_in_flight_comes_back(tmp_path: Path) -> None:
    """The third iteration waits for the first group, and the last wait for two."""
    launched = in_order(tmp_path)
    page = page_of(launched, tmp_path)

    flights = page["flights"]
    assert page["meta"]["flight_works"] == ["copies"]
    begins = [ns + launched.first_ns for ns in flights["start"]]
    assert sorted(begins) == [0, 1000, 2000, 3000]
    assert dict(zip(begins, flights["lane"], strict=True)) == {0: 0, 1000: 1, 2000: 2, 3000: 0}
    assert dict(zip(begins, flights["inFlight"], strict=True)) == {0: 2600, 1000: 2600, 2000: 3600, 3000: 2600}
    assert flights["blocked"] == [500, 600, 500, 600]
    assert flights["waitScope"] == [1, 2, 1, 2]
    assert flights["bytes"] == [64] * 4


def test_what_small_launches_leave_the_large_ones_get() -> None:
    assert shares([10, 500, 20, 900], 1000) == [10, 485, 20, 485]
    assert shares([10, 20], 1000) == [10, 20]
    assert shares([], 1000) == []
