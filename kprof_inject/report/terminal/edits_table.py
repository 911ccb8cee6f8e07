"""Edits that were tried, as a table on a terminal, the best ones first."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from kprof_inject.capture.edits import AppliedEdits, EditsRecord, TriedEdits
from kprof_inject.quantities import before_and_after, listed, percent
from kprof_inject.report.terminal.tables import Column, print_fitted, say
from kprof_inject.report.tried_edits import gain_text, headline, ranked

_STYLES = {"faster": "green", "slower": "dim", "no difference": "dim", "same code": "dim", "refused": "yellow"}
_MAX_SAME = 6


def print_edits(tried: Sequence[tuple[EditsRecord, AppliedEdits | None]], console: Console) -> None:
    """Print the news, a table, and what to do for each kernel."""
    for record, applied in tried:
        say(headline(record), console)
        shown = [one for one in ranked(record) if one.outcome != "same code"]
        if shown:
            print_fitted(_layouts(record, shown), console)
        for line in _notes(record):
            say(line, console)
        for line in _to_apply(applied):
            say(line, console)


def _layouts(record: EditsRecord, tried: Sequence[TriedEdits]) -> list[list[Column]]:
    styles = [_STYLES.get(one.outcome, "") for one in tried]
    names = Column("edit", [one.text for one in tried], styles, name=True)
    why = Column("because of", [one.reason for one in tried], left=True)
    predicted = Column("predicted", ["-" if one.predicted is None else f"≤ {percent(one.predicted)}" for one in tried])
    gains = [one.final_gain for one in tried]
    outcomes = [gain_text(gain) if gain else one.outcome for one, gain in zip(tried, gains, strict=True)]
    won = Column("won", outcomes, styles)
    results = Column("results", [_results(one) for one in tried], left=True)
    registers = Column("registers", [_resource(one, record, "registers") for one in tried])
    spills = Column("spills", [_resource(one, record, "spills") for one in tried])
    shared = Column("shared", [_resource(one, record, "shared_bytes") for one in tried])
    ctas = Column("CTAs/SM", [_resource(one, record, "ctas_per_sm") for one in tried])
    return [
        [names, why, predicted, won, results, registers, spills, shared, ctas],
        [names, why, predicted, won, results],
        [names, predicted, won, results],
        [names, won],
    ]


def _results(one: TriedEdits) -> str:
    if one.outcome == "refused":
        return one.refusal
    if one.results == "within":
        return f"within {one.difference or 0:.1g}"
    return one.results or "-"


def _resource(one: TriedEdits, record: EditsRecord, name: str) -> str:
    value = getattr(one.resources, name, None)
    before = getattr(record.clean, name, None)
    if value is None:
        return "-"
    return str(value) if before is None else before_and_after(str(before), str(value))


def _notes(record: EditsRecord) -> list[str]:
    notes = []
    same = [one.text for one in record.tried if one.outcome == "same code"]
    if same:
        notes.append(f"same machine code as another build, so not timed: {listed(same, _MAX_SAME)}")
    if not record.is_repeatable:
        notes.append("the unchanged kernel's own results vary from launch to launch; results are compared within that")
    if not record.changes_memory:
        notes.append("memory had the results before the launch, so results that an edit leaves out are not noticed")
    if record.tried:
        notes.append(
            f"measuring took {record.gpu_seconds:.1f} s, compiling {record.compile_seconds:.1f} s; gains are medians, "
            "± half of their 95 % intervals" + ("; a second process confirmed the best" if record.winner else "")
        )
    return notes


def _to_apply(applied: AppliedEdits | None) -> list[str]:
    if applied is None:
        return []
    lines = []
    if passed := {**applied.constants, **applied.options}:
        words = ", ".join(f"{name}={value!r}" for name, value in passed.items())
        lines.append(f"to use it, launch {applied.kernel}[grid](..., {words}), or configure its autotuner:")
    if applied.source:
        lines.append(f"to use it, write {applied.source}")
    if applied.triton_config:
        lines.append(f"  {applied.triton_config}")
    if applied.command:
        lines.append(f"without a change of the source: {applied.command}")
    elif applied.environment:
        variables = " ".join(f"{name}={value}" for name, value in applied.environment.items())
        lines.append(f"together with these variables: {variables}")
    return lines
