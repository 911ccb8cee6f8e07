"""Put a plan's records into a text, and take records out again. Bytes that are no record never change."""

from __future__ import annotations

from kprof_inject.select.legality import RECORD
from kprof_inject.select.plan import Plan
from kprof_inject.ttgir.nodes import Module


def apply(module: Module, plan: Plan) -> str:
    """The module's text with the plan's records inserted as whole lines."""
    pieces: list[str] = []
    done = 0
    for record in plan.records:
        pieces += [module.text[done : record.point.offset], record.line, module.newline]
        done = record.point.offset
    pieces.append(module.text[done:])
    return "".join(pieces)


def strip(module: Module) -> str:
    """The module's text without the lines of its records; ``strip(parse(apply(m, plan))) == m.text``."""
    pieces: list[str] = []
    done = 0
    for operation in module.walk():
        if operation.name == RECORD:
            pieces.append(module.text[done : module.line_start(operation.start)])
            done = operation.end
    pieces.append(module.text[done:])
    return "".join(pieces)
