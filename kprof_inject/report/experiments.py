"""Results of ``try`` and ``causal`` in words, sorted, as JSON and as CSV."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from msgspec import Struct

from kprof_inject.analysis.causal.slopes import KernelSlopes, PlaceSlope
from kprof_inject.capture.edits import AppliedEdits, EditsRecord, MeasuredGain, TriedEdits
from kprof_inject.capture.encoding import json_values, schema_of
from kprof_inject.files import csv_cell
from kprof_inject.quantities import before_and_after, counted, percent, short_time

TOO_SHORT = "the time was too short"  # reason if pairs of launches were too few to know the gain


class KernelEdits(Struct, frozen=True, kw_only=True):
    """Edits of one kernel: the news in a sentence, how to use the best (null if none won), and all that was tried."""

    headline: str
    apply: AppliedEdits | None
    record: EditsRecord


class TriedKernels(Struct, frozen=True, kw_only=True):
    """Output of ``try --json``. ``schema`` changes if a field is removed or changes its meaning."""

    schema: Literal[1] = 1
    kernels: tuple[KernelEdits, ...]


def tried_values(tried: Sequence[tuple[EditsRecord, AppliedEdits | None]]) -> dict[str, Any]:
    """Return the JSON values of what was tried."""
    kernels = [KernelEdits(headline=headline(record), apply=applied, record=record) for record, applied in tried]
    return json_values(TriedKernels(kernels=tuple(kernels)))


def tried_schema() -> dict[str, Any]:
    """Return the JSON Schema 2020-12 of what ``try --json`` prints."""
    return schema_of(TriedKernels, "kprof-inject try")


def headline(record: EditsRecord) -> str:
    """Return the news on a kernel in one sentence."""
    if record.refusal:
        return f"{record.name} was not tried, because {record.refusal}"
    winner = record.winner
    gain = winner.final_gain if winner else None
    if winner is None or gain is None:
        measured = _count_of_measured(record)
        if not measured:
            refusals = {one.refusal for one in record.tried if one.outcome != "same code"}
            is_common = len(refusals) == 1 and "" not in refusals
            return f"no edit of {record.name} was measured{f', because {refusals.pop()}' if is_common else ''}"
        at = f"{short_time(record.clean_ns)}, {counted(math.prod(record.grid), 'CTA')}"
        return f"no edit makes {record.name} faster: {counted(measured, 'edit')} measured at {at}"
    change = before_and_after(short_time(record.clean_ns), short_time(record.clean_ns * (1 - gain.won)))
    won = f"{gain_text(gain)} faster{_predicted(winner)}: {change}"
    return f"{winner.text} makes {record.name} {won}{_unconfirmed(winner)}"


def short_headline(record: EditsRecord) -> str:
    """Return the news on a kernel that the reader knows already, as short as possible."""
    if record.refusal:
        return f"no edits, because {record.refusal}"
    if record.winner is not None:
        return f"{won_text(record.winner)}{_unconfirmed(record.winner)}"
    measured = _count_of_measured(record)
    return f"{counted(measured, 'edit')} measured, none is faster" if measured else "no edit could be measured"


def won_text(tried: TriedEdits) -> str:
    """Describe the measured gain or loss of edits, and the predicted one; they must have been measured."""
    gain = tried.final_gain
    if gain is None:
        raise ValueError(f"{tried.text} has no gain")
    won = f"won {gain_text(gain)}" if gain.won > 0 else f"cost {percent(-gain.won)} ± {100 * gain.error:.1f}"
    if gain.outcome == "no difference":
        won = f"made no difference ({gain_text(gain)})"
    return f"{tried.text} {won}{_predicted(tried)}"


def result_text(tried: TriedEdits) -> str:
    """Return the result of edits in one line."""
    if tried.outcome == "same code":
        return f"{tried.text} compiles to the same machine code as {tried.same_code_as or 'the unchanged kernel'}"
    if tried.final_gain is None:
        return f"{tried.text} is {tried.outcome}: {tried.refusal or TOO_SHORT}"
    return f"{won_text(tried)}, results {results_text(tried)}"


def results_text(tried: TriedEdits) -> str:
    """Return how the results of edits compare with the unchanged kernel's, or why there are none."""
    if tried.refusal:
        return tried.refusal
    return f"within {tried.difference or 0:.1g}" if tried.results == "within" else tried.results or "-"


def ranked(record: EditsRecord) -> list[TriedEdits]:
    """Return the best edits first, then the others by what they won, then those that were not measured."""

    def order(one: TriedEdits) -> tuple[bool, bool, float]:
        gain = one.final_gain
        return one is not record.winner, gain is None, -gain.won if gain else 0.0

    return sorted(record.tried, key=order)


def best_for(record: EditsRecord | None, rule: str) -> TriedEdits | None:
    """Return those edits that a finding proposed, and that won most; None if none was measured."""
    tried = ranked(record) if record is not None else []
    return next((one for one in tried if one.reason == rule and one.final_gain is not None), None)


def _unconfirmed(tried: TriedEdits) -> str:
    return "" if tried.confirmed is not None else " (no time for a second process to confirm it)"


def _predicted(tried: TriedEdits) -> str:
    return f" (predicted at most {percent(tried.predicted)})" if tried.predicted is not None else ""


def _count_of_measured(record: EditsRecord) -> int:
    return sum(one.gain is not None for one in record.tried)


def gain_text(gain: MeasuredGain) -> str:
    """Return a gain with half of its interval."""
    return f"{percent(gain.won)} ± {100 * gain.error:.1f}"


SLOPE_MEANING = (
    "slope: cycles that the kernel loses per cycle of delay on a CTA's path: 1 is critical, 0 is hidden; above 1, CTAs "
    "slow each other down. Saving a few cycles there gains as much."
)

_DISTURBING = 0.03  # from this change of its time by a zero-cycle delay, the kernel counts as changed


def slope_text(place: PlaceSlope) -> str:
    """Return the slope with its interval; "-" if there is none."""
    if place.response is None:
        return "-"
    slope = place.response.slope
    return f"{round(slope.value, 2) + 0.0:.2f} ± {slope.error:.2f}"


def slack_text(place: PlaceSlope) -> str:
    """Return up to which delay the kernel's time stays the same, or why that is unknown."""
    if place.response is None:
        return place.reason
    if slack := place.response.slack:
        cycles = f"{slack.value:.0f}" if slack.error < 1 else f"{slack.value:.0f} ± {slack.error:.0f}"
        return f"{cycles} cycles, then {place.response.beyond or 0.0:.2f}"
    return f"{place.spare_cycles:.0f} cycles or more" if place.spare_cycles else "none"


def doubts_on_slopes(slopes: KernelSlopes) -> Iterator[str]:
    """Yield where a delay changes the kernel itself, and that lengths of delays are nominal."""
    for place in slopes.places:
        moved = place.disturbed
        if moved is not None and abs(moved.value) > max(_DISTURBING, moved.error):
            more = "more" if moved.value > 0 else "less"
            yield (
                f"{place.name}: any insertion there changes the kernel: a zero-cycle delay takes it "
                f"{percent(abs(moved.value))} {more} time; the slope is that of the changed kernel"
            )
    if not slopes.experiment.spins:
        yield "delays have their nominal lengths, because the real ones could not be measured here"


_HEADINGS = (
    *("kernel", "variant", "place", "source", "ttgir_first_line", "ttgir_last_line", "executions_by_cta"),
    *("executions_by_chain", "slope", "slope_low", "slope_high", "slack_cycles", "slack_low_cycles"),
    *("slack_high_cycles", "slope_beyond_slack", "spare_cycles", "disturbed_share", "reason"),
)


def slopes_csv(slopes: Sequence[KernelSlopes]) -> str:
    """Return the slopes as CSV text, a row for each place; an empty cell is unknown."""

    def cell(value: object) -> str:
        if isinstance(value, str):
            return csv_cell(value)
        return "" if value is None else str(value)

    rows = (_HEADINGS, *(_row(kernel, place) for kernel in slopes for place in kernel.ranked))
    return "".join(",".join(map(cell, row)) + "\n" for row in rows)


def _row(kernel: KernelSlopes, place: PlaceSlope) -> Sequence[object]:
    slope, slack = (place.response.slope, place.response.slack) if place.response else (None, None)
    return (
        *(kernel.experiment.name, kernel.experiment.variant, place.scope.name, place.scope.source),
        *(place.scope.lines or (None, None)),
        *(place.by_cta, place.by_chain),
        *((slope.value, slope.low, slope.high) if slope else (None,) * 3),
        *((slack.value, slack.low, slack.high) if slack else (None,) * 3),
        place.response.beyond if place.response else None,
        place.spare_cycles,
        place.disturbed.value if place.disturbed else None,
        place.reason,
    )
