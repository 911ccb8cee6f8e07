"""Insert a plan's records, or delays, into a text, remove records again, and replace other spans.

All other bytes remain unchanged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from kprof_inject.select.delays import Delay
from kprof_inject.select.plan import Plan, Record
from kprof_inject.select.tags import TAG_OPERATIONS, has_our_name, is_carrier, is_inserted
from kprof_inject.ttgir.nodes import Module, Operation
from kprof_inject.ttgir.ssa_values import names_in, result_names

Replacement = tuple[int, int, str]  # start and end of a span of a text, and what replaces it


def apply(module: Module, plan: Plan) -> str:
    """Return the module's text with the plan's records inserted."""
    return inserted(module, plan.records)


def inserted(module: Module, operations: Iterable[Record | Delay]) -> str:
    """Return the module's text with these operations inserted, which are in the order of their places.

    Each gets a line of its own, unless operations share a line there.
    """
    points = ((one.point.offset, f"{one.line}{one.point.after}") for one in operations)
    return spliced(module.text, [(offset, offset, line) for offset, line in points])


def strip(module: Module) -> str:
    """Return the module's text without its records; ``strip(parse(apply(m, plan))) == m.text``.

    If Triton printed the records, other values keep the numbers that they have with them.
    """
    records = _with_computed_values(module, [operation for operation in module.walk() if is_inserted(operation)])
    return spliced(module.text, [(*_with_blanks(module, *run), "") for run in _runs(records)])


def spliced(text: str, replacements: Iterable[Replacement]) -> str:
    """Return a text with each of these spans replaced; they do not overlap. Of one place, they stay in order."""
    pieces: list[str] = []
    done = 0
    for start, end, replacement in sorted(replacements, key=lambda span: span[:2]):
        pieces += [text[done:start], replacement]
        done = end
    pieces.append(text[done:])
    return "".join(pieces)


def _with_computed_values(module: Module, records: Sequence[Operation]) -> list[Operation]:
    # With those right before them that compute values for these alone. Their names give them away, unless Triton has
    # reprinted the module.
    found = dict.fromkeys(records)
    for record in reversed(records):
        if record.block is None or not is_carrier(record) or has_our_name(record):
            continue
        operations = record.block.operations
        end = operations[-1].end
        for before in reversed(operations[: operations.index(record)]):
            if before in found:
                continue
            used = Counter(names_in(module.text[before.end : end]))
            used.subtract(name for one in found if before.start < one.start < end for name in names_in(one.tail))
            if before.name not in TAG_OPERATIONS or any(used[name] > 0 for name in result_names(before)):
                break
            found[before] = None
    return sorted(found, key=lambda operation: operation.start)


def _runs(operations: Iterable[Operation]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for operation in operations:
        begin = runs.pop()[0] if runs and runs[-1][1] == operation.start else operation.start
        runs.append((begin, operation.end))
    return runs


def _with_blanks(module: Module, start: int, end: int) -> tuple[int, int]:
    # The span to remove for a run of records: whole lines, or within a shared line also one blank.
    text, line = module.text, module.line_start(start)
    if not text[line:start].strip():
        # Keep the indent of the rest of the line.
        return (line if text[end - 1 : end] == "\n" else start), end
    rest = text[start:end]
    if rest.endswith("\n"):  # the line end belongs to the other operations
        return start, start + len(rest) - len(module.newline)
    joins_words = f"_{text[start - 2]}{text[end]}".isidentifier()
    return (start, end) if rest[-1].isspace() or joins_words else (start - text[start - 1].isspace(), end)
