"""Both sides of a comparison next to each other on its page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from known_launch import known_launch
from programs.child import REPO
from replacing import replace

from kprof_inject.analysis.comparison.verdicts import KernelDiff, diff_captures
from kprof_inject.capture.scopes import ScopeKind
from kprof_inject.pipeline.captures import decode_capture, open_capture
from kprof_inject.report.diff.page import sides_html
from kprof_inject.scope_colours import scope_colours
from kprof_inject.timeline.timeline import Timeline

CAPTURES = REPO / "tests" / "captures"


@pytest.fixture(scope="module")
def html() -> str:
    sides = [
        list(decode_capture(open_capture(CAPTURES / name), print))
        for name in ("matmul-one-stage", "matmul-three-stages")
    ]
    return of_kernel(*sides)


def of_kernel(a: list[Timeline], b: list[Timeline]) -> str:
    (kernel,) = diff_captures(a, b).kernels
    assert isinstance(kernel, KernelDiff)
    return "\n".join(sides_html(kernel))


def test_the_limit_of_each_side_is_shown(html: str) -> None:
    limits = re.findall(r"<b>([AB]): LIMIT</b> ([^<]*)<", html)
    assert [name for name, _ in limits] == ["A", "B"]
    assert limits[0][1].startswith("shared memory and L1 (68.9 %") and limits[1][1].startswith(
        "the tensor cores (57.2 %"
    )


def test_a_median_cta_of_each_side_is_drawn_on_one_axis(html: str) -> None:
    titles = re.findall(r">([AB]): CTA \d+ on SM \d+, warp 0: ([\d.]+) µs<", html)
    assert [name for name, _ in titles] == ["A", "B"]
    bodies = [float(width) for width in re.findall(r'width="([\d.]+)" height="14"><title>func:', html)]
    assert bodies[0] > 990 and bodies[1] / bodies[0] == pytest.approx(
        float(titles[1][1]) / float(titles[0][1]), abs=0.01
    )
    assert len(re.findall(r"<title>iter\[0\]:", html)) == 2 * 16
    assert html.count('class="guide"') == 2, "the begin and the end of the loop"
    colours = {
        name: set(re.findall(rf'fill="(#\w+)"[^>]*><title>{re.escape(name)}', html)) for name in ("func", "loop[0]")
    }
    func, loop = scope_colours([ScopeKind.FUNCTION, ScopeKind.LOOP])
    assert colours == {"func": {func.rgb}, "loop[0]": {loop.rgb}}, "as on the page of each side"


def test_names_are_no_markup(tmp_path: Path) -> None:
    timeline = known_launch(tmp_path)
    scopes = tuple(replace(scope, name=f"<b>{scope.name}") for scope in timeline.table.scopes)
    kernel = replace(timeline.launch.kernel, scopes=replace(timeline.table, scopes=scopes))
    hostile = replace(timeline, launch=replace(timeline.launch, kernel=kernel), table=kernel.scopes)
    drawn = of_kernel([hostile], [hostile])
    assert "<b>" not in drawn.replace("<b>A: LIMIT</b>", "").replace("<b>B: LIMIT</b>", "") and "&lt;b&gt;" in drawn
