"""Put a plan's records, or delays, into a text, and take records out again. Bytes that are neither never change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Protocol

from kprof_inject.select.plan import Plan
from kprof_inject.select.sites import InsertPoint
from kprof_inject.select.tags import is_inserted
from kprof_inject.ttgir.dialect import EVENT
from kprof_inject.ttgir.nodes import Module, Operation
from kprof_inject.ttgir.ssa_values import names_in, result_names


class Insertable(Protocol):
    """An operation and its place; ``line`` has the place's indent."""

    @property
    def point(self) -> InsertPoint: ...

    @property
    def line(self) -> str: ...


def apply(module: Module, plan: Plan) -> str:
    """The module's text with the plan's records inserted."""
    return inserted(module, plan.records)


def inserted(module: Module, operations: Iterable[Insertable]) -> str:
    """The module's text with these, which are in the order of their places: as whole lines, but where operations share
    a line."""
    pieces: list[str] = []
    done = 0
    for one in operations:
        pieces += [module.text[done : one.point.offset], one.line, one.point.after]
        done = one.point.offset
    pieces.append(module.text[done:])
    return "".join(pieces)


def strip(module: Module) -> str:
    """The module's text without its records; ``strip(parse(apply(m, plan))) == m.text``.

    An event's number that anything but an event takes becomes a constant."""
    recording = [operation for operation in module.walk() if is_inserted(operation)]
    numbers = _passed_on(module, recording)
    edits = [(*_with_blanks(module, *run), "") for run in _runs(one for one in recording if one not in numbers)]
    edits += [(*_behind_results(module, one), f" {_NUMBER} {one.location_text}".rstrip()) for one in numbers]
    pieces: list[str] = []
    done = 0
    for start, end, instead in sorted(edits):
        pieces += [module.text[done:start], instead]
        done = end
    pieces.append(module.text[done:])
    return "".join(pieces)


_NUMBER = "arith.constant 0 : i32"


def _passed_on(module: Module, recording: Sequence[Operation]) -> list[Operation]:
    """The operations that give events their numbers and whose results are named elsewhere, too."""
    events = [one for one in recording if one.name == EVENT]
    named = Counter(names_in(module.text) if events else ())
    named.subtract(name for one in recording for name in (*result_names(one), *names_in(one.tail)))
    return [one for one in events if any(named[name] > 0 for name in result_names(one))]


def _behind_results(module: Module, operation: Operation) -> tuple[int, int]:
    text = module.text[operation.start : operation.end]
    return operation.start + len(operation.results), operation.start + len(text.rstrip())


def _runs(operations: Iterable[Operation]) -> list[tuple[int, int]]:
    """Where operations begin and end that stand one right behind the other."""
    runs: list[tuple[int, int]] = []
    for operation in operations:
        begin = runs.pop()[0] if runs and runs[-1][1] == operation.start else operation.start
        runs.append((begin, operation.end))
    return runs


def _with_blanks(module: Module, start: int, end: int) -> tuple[int, int]:
    """What goes with a run of records: whole lines, or in a line that they share the blank that parts them from it."""
    text, line = module.text, module.line_start(start)
    if not text[line:start].strip():
        # The indent of what follows in the line stays.
        return (line if text[end - 1 : end] == "\n" else start), end
    rest = text[start:end]
    if rest.endswith("\n"):  # the end of the line is not the record's
        return start, start + len(rest) - len(module.newline)
    return (start, end) if rest[-1].isspace() else (start - text[start - 1].isspace(), end)
