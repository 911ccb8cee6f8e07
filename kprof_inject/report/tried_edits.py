"""Results of ``try`` in a sentence, and as JSON with its schema."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Literal

from msgspec import Struct

from kprof_inject.capture.edits import AppliedEdits, EditsRecord, MeasuredGain
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
        measured = [one for one in record.tried if one.gain is not None]
        if not measured:
            return f"no edit of {record.name} was measured{_common_refusal(record)}"
        return f"no edit makes {record.name} faster: {counted(len(measured), 'edit')} measured at {_time(record)}"
    predicted = f" (predicted at most {percent(winner.predicted)})" if winner.predicted is not None else ""
    return f"{winner.text} makes {record.name} {gain_text(gain)} faster{predicted}: {_change(record, gain)}"


def _common_refusal(record: EditsRecord) -> str:
    """Return the reason if all edits were refused for the same one; empty otherwise."""
    refusals = {one.refusal for one in record.tried if one.outcome != "same code"}
    return f", because {refusals.pop()}" if len(refusals) == 1 and "" not in refusals else ""


def gain_text(gain: MeasuredGain) -> str:
    """Return a gain with half of its interval."""
    return f"{percent(gain.won)} ± {100 * gain.error:.1f}"


def _time(record: EditsRecord) -> str:
    return f"{short_time(record.clean_ns)}, {counted(prod(record.grid), 'CTA')}"


def _change(record: EditsRecord, gain: MeasuredGain) -> str:
    return before_and_after(short_time(record.clean_ns), short_time(record.clean_ns * (1 - gain.won)))
