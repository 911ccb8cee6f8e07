"""``kprof_inject.diff``: what is faster, in Python."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from known_launch import known_launch
from replacing import replace

import kprof_inject
from kprof_inject.errors import KprofError
from kprof_inject.results import Comparison, Results

SLOW = (20_000.0, 20_100.0, 20_050.0, 19_950.0, 20_020.0) * 4
FAST = (10_000.0, 10_050.0, 9_950.0, 10_020.0, 9_990.0) * 4


def launches(folder: Path, times_ns: tuple[float, ...], name: str = "kernel") -> Results:
    """Six launches of a kernel with these times without records."""
    timeline = known_launch(folder)
    kernel = timeline.launch.kernel
    kernel = replace(kernel, name=name, variant=name, clean=replace(kernel.clean, times_ns=times_ns))
    numbered = [replace(timeline.launch, kernel=kernel, index=number) for number in range(6)]
    return Results([replace(timeline, launch=launch) for launch in numbered])


def test_what_is_faster(tmp_path: Path) -> None:
    a, b = launches(tmp_path / "a", SLOW), launches(tmp_path / "b", FAST)
    change = kprof_inject.diff(a, b)
    assert (change.faster, change.slower, change.verdict) == (True, False, "faster")
    assert change.verdicts == {"kernel": "faster"}
    percent, low, high = change.percent or (0, 0, 0)
    assert low < percent < high < -40 and percent == pytest.approx(-50, abs=0.5)
    assert kprof_inject.diff(b, a).slower
    same = kprof_inject.diff(b, b)
    assert (same.faster, same.slower) == (False, False)


def test_what_it_shows(tmp_path: Path) -> None:
    change = kprof_inject.diff(launches(tmp_path / "a", SLOW), launches(tmp_path / "b", FAST))
    assert repr(change).startswith("<Comparison: B takes ") and "\n" not in repr(change)
    assert change.report().splitlines()[0] in repr(change)
    assert re.sub(r"<[^>]*>", "", change._repr_html_()).startswith("B takes ")
    assert json.loads(json.dumps(change.to_json()))["kernels"][0]["verdict"] == "faster"
    page = change.html(tmp_path / "page.html")
    assert "<title>A → B</title>" in page.read_text()
    with pytest.raises(KprofError, match="cannot write"):
        change.html(page / "below a file")


def test_kernels_are_chosen_and_matched_by_name(tmp_path: Path) -> None:
    old, new = launches(tmp_path / "a", SLOW, "old"), launches(tmp_path / "b", FAST, "new")
    other = launches(tmp_path / "c", FAST, "other")
    b = Results([*new.timelines, *other.timelines])
    a = Results([*old.timelines, *other.timelines])
    assert kprof_inject.diff(a, b, kernel="n*", renamed={"old": "new"}).verdicts == {"new": "faster"}
    assert set(kprof_inject.diff(a, b, renamed={"old": "new"}).verdicts) == {"new", "other"}
    with pytest.raises(KprofError, match="no kernel matches 'nwe'") as refused:
        kprof_inject.diff(a, b, kernel="nwe")
    assert "new" in (refused.value.hint or "")


def test_there_must_be_launches(tmp_path: Path) -> None:
    some = launches(tmp_path / "a", SLOW)
    with pytest.raises(KprofError, match="B has no launch"):
        kprof_inject.diff(some, Results())
    with pytest.raises(KprofError):
        kprof_inject.diff(tmp_path / "nothing", some)
    assert isinstance(kprof_inject.diff(some, some), Comparison)
