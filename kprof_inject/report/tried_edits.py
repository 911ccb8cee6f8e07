"""Results of ``try`` in a sentence, sorted, and as JSON with its schema."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

from msgspec import Struct

from kprof_inject.capture.edits import AppliedEdits, EditsRecord, MeasuredGain, TriedEdits
from kprof_inject.capture.encoding import json_values, schema_of
from kprof_inject.quantities import before_and_after, counted, percent, short_time

SchemaVersion = Literal[1]


class KernelEdits(Struct, frozen=True, kw_only=True):
    """Edits of one kernel: the news in a sentence, how to use the best (null if none won), and all that was tried."""

    headline: str
    apply: AppliedEdits | None
    record: EditsRecord


class TriedKernels(Struct, frozen=True, kw_only=True):
    """Output of ``try --json``. ``schema`` changes if a field is removed or changes its meaning."""

    schema: SchemaVersion = 1
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
    gain = winner.confirmed if winner else None
    if winner is None or gain is None:
        measured = _count_of_measured(record)
        if not measured:
            refusals = {one.refusal for one in record.tried if one.outcome != "same code"}
            is_common = len(refusals) == 1 and "" not in refusals
            return f"no edit of {record.name} was measured{f', because {refusals.pop()}' if is_common else ''}"
        at = f"{short_time(record.clean_ns)}, {counted(math.prod(record.grid), 'CTA')}"
        return f"no edit makes {record.name} faster: {counted(measured, 'edit')} measured at {at}"
    change = before_and_after(short_time(record.clean_ns), short_time(record.clean_ns * (1 - gain.won)))
    return f"{winner.text} makes {record.name} {gain_text(gain)} faster{_predicted(winner)}: {change}"


def short_headline(record: EditsRecord) -> str:
    """Return the news on a kernel that the reader knows already, as short as possible."""
    if record.refusal:
        return f"no edits, because {record.refusal}"
    if record.winner is not None:
        return won_text(record.winner)
    measured = _count_of_measured(record)
    return f"{counted(measured, 'edit')} measured, none is faster" if measured else "no edit could be measured"


def won_text(tried: TriedEdits) -> str:
    """Return what edits won, or cost, and what was predicted; they must have been measured."""
    gain = tried.final_gain
    if gain is None:
        raise ValueError(f"{tried.text} has no gain")
    if gain.outcome == "no difference":
        won = f"made no difference ({gain_text(gain)})"
    elif gain.won > 0:
        won = f"won {gain_text(gain)}"
    else:
        won = f"cost {percent(-gain.won)} ± {100 * gain.error:.1f}"
    return f"{tried.text} {won}{_predicted(tried)}"


def ranked(record: EditsRecord) -> list[TriedEdits]:
    """Return the best edits first, then the others by what they won, then those that were not measured."""
    winner = record.winner

    def order(one: TriedEdits) -> tuple[bool, bool, float]:
        gain = one.final_gain
        return one is not winner, gain is None, -gain.won if gain else 0.0

    return sorted(record.tried, key=order)


def best_for(record: EditsRecord | None, rule: str) -> TriedEdits | None:
    """Return those edits that a finding proposed, and that won most; None if none was measured."""
    proposed = [one for one in ranked(record) if one.reason == rule] if record is not None else []
    return next((one for one in proposed if one.final_gain is not None), None)


def _predicted(tried: TriedEdits) -> str:
    return f" (predicted at most {percent(tried.predicted)})" if tried.predicted is not None else ""


def _count_of_measured(record: EditsRecord) -> int:
    return sum(one.gain is not None for one in record.tried)


def gain_text(gain: MeasuredGain) -> str:
    """Return a gain with half of its interval."""
    return f"{percent(gain.won)} ± {100 * gain.error:.1f}"
