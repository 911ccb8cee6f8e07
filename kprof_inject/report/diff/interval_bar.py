"""A change with its interval as a small drawing: a bar from no change to the estimate, a whisker over the interval."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from kprof_inject.report.diff.verdict import Judged, change_words

_WIDTH, _HEIGHT, _MARGIN = 140.0, 20.0, 4.0
_CAP = 4.0
_ENDS_PERCENT = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


def axis_percent(judged: Iterable[Judged | None]) -> float:
    """How far the axis goes to either side: to the next of few round numbers beyond all estimates, so that it stays the
    same from page to page."""
    farthest = max((abs(one.change.percent) for one in judged if one and one.change), default=0.0)
    return next((end for end in _ENDS_PERCENT if end >= farthest), _ENDS_PERCENT[-1])


def interval_bar(judged: Judged | None, axis: float) -> str:
    """An SVG element that takes its colour from the text around it; empty where no change is known. What lies beyond
    the axis ends at its end, there without a cap."""
    change = judged.change if judged else None
    if change is None:
        return ""
    zero, at, low, high = (
        _x(percent, axis) for percent in (0.0, change.percent, change.low_percent, change.high_percent)
    )
    middle = _HEIGHT / 2
    caps = "".join(
        f"M{x:.1f} {middle - _CAP:.1f}V{middle + _CAP:.1f}"
        for x, percent in ((low, change.low_percent), (high, change.high_percent))
        if abs(percent) <= axis
    )
    return (
        f'<svg width="{_WIDTH:g}" height="{_HEIGHT:g}" role="img" aria-label="{escape(change_words(change))}">'
        f'<rect class="bar" x="{min(zero, at):.1f}" y="4" width="{abs(at - zero):.1f}" height="{_HEIGHT - 8:g}"/>'
        f'<path class="zero" d="M{zero:.1f} 0V{_HEIGHT:g}"/>'
        f'<path class="whisker" d="M{low:.1f} {middle:.1f}H{high:.1f}{caps}"/></svg>'
    )


def _x(percent: float, axis: float) -> float:
    part = min(max(percent / axis, -1.0), 1.0)
    return _MARGIN + (part + 1) / 2 * (_WIDTH - 2 * _MARGIN)
