"""Print the machine code of a kernel by the lines of its TTGIR."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from kprof_inject.machine_code.lines import CodeSummary, LineCode, Moved, Side
from kprof_inject.quantities import counted

_MAX_OPERATION = 48
_MAX_AWAITED = 3


def headline(summary: CodeSummary) -> list[str]:
    """Return the sentences above the table."""
    loops = [f"  loop at line {loop.line}: {counted(loop.instructions, 'instruction')}" for loop in summary.loops]
    return [f"{summary.function.name}: {counted(len(summary.function.instructions), 'instruction')}", *loops]


def code_table(summary: CodeSummary, ttgir: Sequence[str]) -> Table:
    """Return a table with a row for each line of the TTGIR that has instructions."""
    table = Table(box=None, pad_edge=True)
    table.add_column("line", justify="right", no_wrap=True)
    table.add_column("TTGIR", no_wrap=True)
    table.add_column("instructions", justify="right", no_wrap=True)
    for heading in ("by pipeline", "waits for"):
        table.add_column(heading, overflow="fold")
    for code in summary.lines:
        text = ttgir[code.line - 1].partition(" loc(")[0].strip() if 0 < code.line <= len(ttgir) else ""
        counts = sorted(code.pipelines.items(), key=lambda entry: -entry[1])
        pipelines = ", ".join(f"{count} {pipeline.value}" for pipeline, count in counts)
        operation = Text(text[:_MAX_OPERATION])
        table.add_row(str(code.line), operation, str(code.instructions), pipelines, Text(_awaited(code)))
    return table


def _awaited(code: LineCode) -> str:
    counts = sorted(code.awaited.items(), key=lambda entry: -entry[1])
    named = [f"{count} {awaited.operation} of line {awaited.line}" for awaited, count in counts[:_MAX_AWAITED]]
    return ", ".join([*named, *(["…"] if len(counts) > _MAX_AWAITED else [])])


def to_json(summary: CodeSummary) -> dict[str, Any]:
    """Return a function's machine code as JSON values."""
    return {
        "name": summary.function.name,
        "instructions": len(summary.function.instructions),
        "loops": [
            {"line": loop.line, "lines": list(loop.lines), "instructions": loop.instructions} for loop in summary.loops
        ],
        "lines": [
            {
                "line": code.line,
                "instructions": code.instructions,
                "pipelines": {pipeline.value: count for pipeline, count in code.pipelines.items()},
                "waits_for": [
                    {"line": awaited.line, "operation": awaited.operation, "instructions": count}
                    for awaited, count in code.awaited.items()
                ],
            }
            for code in summary.lines
        ],
    }


def moved_sentence(scope: str, moved: Moved) -> str:
    """Return what moved, as ``math.exp: all 64 MUFU of line 247 are after its end``."""
    if moved.side is Side.INSIDE:
        return f"{scope}: {moved.count} {moved.operation} of line {moved.line}, which is outside, {_is(moved)} in it"
    how_many = f"{moved.count} of {moved.total}"
    if moved.count == moved.total:
        how_many = "the" if moved.total == 1 else f"all {moved.total}"
    return f"{scope}: {how_many} {moved.operation} of line {moved.line} {_is(moved)} {moved.side.value}"


def _is(moved: Moved) -> str:
    return "is" if moved.count == 1 else "are"


def moved_json(scope: str, moved: Sequence[Moved] | None) -> dict[str, Any]:
    """Return what moved out of a scope and into it as JSON values; ``moved`` is null if it is unknown."""
    return {
        "scope": scope,
        "moved": moved
        and [
            {
                "line": one.line,
                "operation": one.operation,
                "instructions": one.count,
                "of": one.total,
                "where": one.side.name.lower(),
            }
            for one in moved
        ],
    }
