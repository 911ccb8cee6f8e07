"""Small modules for tests, written and read in short."""

from __future__ import annotations

import re
from collections.abc import Mapping
from textwrap import indent

from planning import insertion_of

from kprof_inject.select.functions import functions_of, integer_work
from kprof_inject.select.plan import BODY_RECORD, Plan
from kprof_inject.select.spans import USUAL_STYLE, Style
from kprof_inject.ttgir.parser import parse

FILE = "/src/k.py"

TWO_RECORDS = Style(iteration_records="two")
"""A start and an end in each iteration."""

_LOCATION = re.compile(r" @([\w./:<+-]+)$", re.MULTILINE)
_NAME = re.compile(r'(?:%[^=]*= )?"?([\w.]+)')
_RECORD = re.compile(r'proton\.record (start|end) "(.*)"')


def located(text: str) -> str:
    """The text with locations: what ends in `` @57`` is of line 57 of ``FILE``, in `` @h.py:3<57`` of line 3 of h.py,
    inlined by the call on line 57, and in `` @57+60`` of both lines."""
    return _LOCATION.sub(lambda found: f" loc({_fused(found[1])})", text)


def kernel(*lines: str, rest: str = "") -> str:
    """A module of one kernel, whose lines may have locations and need no return; ``rest`` are more functions."""
    is_left = bool(lines) and lines[-1].startswith("tt.return")
    body = indent("\n".join(lines if is_left else (*lines, "tt.return")), "    ")
    return located(f"module {{\n  tt.func public @k(%n: i32) {{\n{body}\n  }}\n{rest}}}\n")


def sequence(text: str, *selectors: str, sources: Mapping[str, str] | None = None, style: Style = USUAL_STYLE) -> str:
    """The operations and records inside the functions of the instrumented text: ``[loop[0]`` starts that scope, and
    ``loop[0]]`` ends it. What stands around a body that nobody selected is left out."""
    done = insertion_of(text, *selectors, sources=sources, style=style)
    lines = [line.strip() for line in done.text.splitlines() if line.startswith("   ") and BODY_RECORD not in line]
    return " ".join(_short(line) for line in lines)


def found(plan: Plan) -> list[tuple[str, str, int, int]]:
    """Each scope's record, block, and how many of its own operations and of others it spans."""
    return [(s.record, s.block, s.operations, s.other_operations) for s in plan.scopes]


def missed(plan: Plan) -> list[tuple[str, str]]:
    """What the selectors found and no site spans, and why."""
    return [(m.operation.name, m.reason) for selection in plan.selections for m in selection.findings.missed]


def _short(line: str) -> str:
    record = _RECORD.match(line)
    if record is not None:
        return f"[{record[2]}" if record[1] == "start" else f"{record[2]}]"
    name = _NAME.match(line)
    return name[1] if name else line.split(" loc(")[0]


def _fused(text: str) -> str:
    parts = [_called(part) for part in text.split("+")]
    return parts[0] if len(parts) == 1 else f"fused[{', '.join(parts)}]"


def _called(text: str) -> str:
    inner, _, outer = text.partition("<")
    return f"callsite({_point(inner)} at {_called(outer)})" if outer else _point(inner)


def _point(text: str) -> str:
    file, _, line = text.rpartition(":")
    return f'"{file or FILE}":{line}:0'


def work_of(text: str) -> list[str]:
    """The results of those operations of a kernel that are integer work, in the order of the text."""
    module = parse(text)
    (function,) = functions_of(module)
    starts = integer_work(module, function.operation)
    return [op.results.partition("=")[0].strip() for op in function.operation.walk() if op.start in starts]
