"""What the page shows of each scope, against brute force over the decoded scopes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from buffers import Scope
from msgspec.structs import asdict
from timelines import Ran, cta_rows, made_timeline, scope_rows

from kprof_inject.analysis.summary import summarise
from kprof_inject.report.html.pictures import ScopePictures
from kprof_inject.timeline.timeline import Timeline

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
