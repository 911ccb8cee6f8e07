"""Slopes for programs: as JSON, and as a table with commas."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence

from kprof_inject.analysis.causal.slopes import KernelSlopes, PlaceSlope


def slopes_json(slopes: Sequence[KernelSlopes]) -> str:
    return json.dumps([one.to_json() for one in slopes], indent=1)


_HEADINGS = (
    *("kernel", "variant", "place", "source", "ttgir_first_line", "ttgir_last_line", "executions_by_cta"),
    *("executions_by_chain", "slope", "slope_low", "slope_high", "slack_cycles", "slack_low_cycles"),
    *("slack_high_cycles", "slope_beyond_slack", "spare_cycles", "disturbed_share", "reason"),
)


def slopes_csv(slopes: Sequence[KernelSlopes]) -> str:
    """A row for each place; an empty cell is unknown."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_HEADINGS)
    for one in slopes:
        for place in one.ranked:
            writer.writerow(_row(one, place))
    return text.getvalue()


def _row(one: KernelSlopes, place: PlaceSlope) -> Sequence[object]:
    slope = place.response.slope if place.response else None
    slack = place.response.slack if place.response else None
    lines = place.scope.lines or (None, None)
    return (
        *(one.experiment.name, one.experiment.variant, place.scope.name, place.scope.source, *lines),
        *(place.by_cta, place.by_chain),
        *((slope.value, slope.low, slope.high) if slope else (None,) * 3),
        *((slack.value, slack.low, slack.high) if slack else (None,) * 3),
        place.response.beyond if place.response else None,
        place.spare_cycles,
        place.disturbed.value if place.disturbed else None,
        place.reason,
    )
