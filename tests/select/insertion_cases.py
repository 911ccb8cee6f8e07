"""Cases of one kernel each: where records go, what their scopes span, and what is refused.

A file of cases is plain text. A case has the kernel with its records, so it is input and expected output at once: the
input is what is left without them.

    === index arithmetic is left out beside work
    --at 'line(5)=a'
    arith.addi@5 tt.store@6 [a tt.load@5 arith.addi@5 tt.store@5 a] arith.addi@5
    > spans a: function 3+0
    > misses arith.addi: index arithmetic elsewhere
    > misses arith.addi: index arithmetic elsewhere

``--at`` has selectors as on the command line; ``--two-records`` and ``--runs``
are styles. ``|`` has a line of the kernel's source, ``/src/k.py``. ``>`` has a fact (see ``Case``).
``*NAME`` has lines that several cases share, which are before the first one.

All else is TTGIR, one operation a line, in any indentation; or several in short: the names in ``SHORT``, ``}``,
``[a`` and ``a]`` for the start and the end of scope a. ``@57`` is an operation's source line, in all the forms of
``small_modules.located``. Without ``module``, the lines are the body of a kernel, whose return may be left out.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from planning import counts, insertion_of, plan_of, view_of_text
from small_modules import FILE, TWO_RECORDS, found, located, missed, work_of
from snapshots import check
from text_cases import cases_in

from kprof_inject.capture.scopes import PointRecord
from kprof_inject.errors import KprofError
from kprof_inject.select.candidates import candidates
from kprof_inject.select.plan import BODY_RECORD, Plan
from kprof_inject.select.spans import USUAL_STYLE, Style

CASES = Path(__file__).with_name("cases")
STYLES = {"--two-records": TWO_RECORDS, "--runs": Style("runs")}
SHORT = {
    "tt.load": "%x = tt.load %p : !tt.ptr<f32>",
    "tt.store": "tt.store %p, %x : !tt.ptr<f32>",
    "arith.addi": "%i = arith.addi %n, %n : i32",
    "scf.for": "scf.for %i = %a to %n step %c  : i32 {",
    "gpu.barrier": "gpu.barrier",
    "scf.yield": "scf.yield",
    "tt.return": "tt.return",
    "}": "}",
}
_WORD = re.compile(rf"({'|'.join(map(re.escape, SHORT))})(@\S+)?|\[(?P<start>\S+)|(?P<end>\S+)\]")
_RECORD = "proton.record"


@dataclass(frozen=True)
class Case:
    """One kernel, and its facts by kind, in order. Those of a kind that a case does not have are not compared.

    ``scopes``      the records' names
    ``spans``       of each scope ``RECORD: BLOCK OWN+OTHERS``, its operations and those of others
    ``nests``       each scope, ``in`` the one around it; which others it ``crosses``
    ``sites``       of each scope ``RECORD: KIND LABEL FUNCTION``
    ``selectors``   of each scope ``RECORD: SELECTOR``
    ``sources``     of each scope ``RECORD: LINE`` and the lines that it was called from
    ``partitions``  of each scope ``RECORD: PARTITION``
    ``warps``       of each partition ``NAME: WARPS``
    ``counts``      ``NUMBER SELECTOR``, how many sites it has
    ``dropped``     markers of which the compiler left nothing, ``NAME (FILE:LINE) WHAT``, or ``nothing``
    ``candidates``  the selectors that are offered
    ``misses``      ``OPERATION: REASON``, or ``nothing``
    ``work``        the results that are integer work, or ``none``
    ``refused``     the line and column that an error points at, or ``nowhere``; what it says is a snapshot
    """

    name: str
    selectors: Sequence[str]
    style: Style
    sources: Mapping[str, str]
    lines: Sequence[str]
    facts: Mapping[str, Sequence[str]]

    def __repr__(self) -> str:  # the test's id
        return self.name

    @property
    def input(self) -> str:
        return _module([line for line in self.lines if not line.startswith(_RECORD)])

    @property
    def expected(self) -> str:
        return _module(self.lines)

    def check(self) -> None:
        if "work" in self.facts:
            assert [" ".join(work_of(self.input)) or "none"] == self.facts["work"]
        elif "refused" in self.facts:
            assert [self._refused()] == self.facts["refused"]
        else:
            plan = self._inserted()
            offered = [" ".join(candidates(view_of_text(self.input, self.sources)))]
            actual = {kind: offered if kind == "candidates" else _FACTS[kind](plan) for kind in self.facts}
            assert actual == dict(self.facts)

    def _inserted(self) -> Plan:
        """Return the plan. Where the lines have no record, where they would be is not compared."""
        if not any(line.startswith(_RECORD) for line in self.lines):
            assert self.facts
            return plan_of(self.input, *self.selectors, sources=self.sources, style=self.style)
        done = insertion_of(self.input, *self.selectors, sources=self.sources, style=self.style)
        assert self._without_body_records(done.text) == self.expected
        return done.plan

    def _refused(self) -> str:
        with pytest.raises(KprofError) as caught:
            insertion_of(self.input, *self.selectors, sources=self.sources, style=self.style)
        check("select/refused", caught.value.render(), self.name)
        return str(caught.value.where).removeprefix("<ttgir>:") if caught.value.where else "nowhere"

    def _without_body_records(self, text: str) -> str:
        """Records around a body that was not selected are compared only where a case has them."""
        if any(BODY_RECORD in line for line in self.lines):
            return text
        return "".join(line for line in text.splitlines(keepends=True) if BODY_RECORD not in line)


def cases(name: str) -> list[Case]:
    """The cases of one file."""
    return [_case(name, text) for name, text in cases_in(CASES / f"{name}.txt").items()]


def _case(name: str, text: str) -> Case:
    rest = [line for line in text.rstrip().split("\n") if not line.startswith("# ")]
    options = [word for line in rest if line.startswith("--") for word in shlex.split(line)]
    facts: dict[str, list[str]] = {}
    for line in rest:
        if line.startswith("> "):
            kind, _, fact = line.removeprefix("> ").partition(" ")
            facts.setdefault(kind, []).append(fact)
    source = "".join(f"{line[2:]}\n" for line in rest if line.startswith("|"))
    styles = [STYLES[word] for word in options if word in STYLES]
    return Case(
        name=name,
        selectors=[word for word in options if word not in STYLES and word != "--at"],
        style=styles[0] if styles else USUAL_STYLE,
        sources={FILE: source} if source else {},
        lines=[line for text in rest if not text.startswith(("--", "|", ">")) for line in _written_out(text)],
        facts=facts,
    )


def _written_out(line: str) -> Iterator[str]:
    """The operations and records of a line, one each."""
    words = [_WORD.fullmatch(word) for word in line.split()]
    if not words or None in words:
        yield line.strip()
        return
    for word in words:
        assert word is not None
        if word["start"]:
            yield f'{_RECORD} start "{word["start"]}"'
        elif word["end"]:
            yield f'{_RECORD} end "{word["end"]}"'
        else:
            yield f"{SHORT[word[1]]} {word[2] or ''}".rstrip()


def _module(lines: Sequence[str]) -> str:
    """The lines indented, with a kernel around them if there is none."""
    if not any(line.startswith(("module", '"builtin.module"')) for line in lines):
        end = [] if lines and lines[-1].startswith("tt.return") else ["tt.return"]
        lines = ["module {", "tt.func public @k(%n: i32) {", *lines, *end, "}", "}"]
    text, depth = "", 0
    for line in lines:
        depth -= line.startswith("}")
        text += f"{'  ' * depth}{line}".rstrip() + "\n"
        depth += re.sub(r" @[\w./:<+-]+$", "", line).endswith("{")
    return located(text)


def _spans(plan: Plan) -> list[str]:
    return [f"{record}: {block} {own}+{others}" for record, block, own, others in found(plan)]


def _nests(plan: Plan) -> list[str]:
    facts = []
    for scope in plan.scopes:
        parent = f" in {plan.scopes[scope.parent].record}" if scope.parent >= 0 else ""
        crossed = ", ".join(plan.scopes[other].record for other in scope.crosses)
        facts.append(scope.record + parent + (f" crosses {crossed}" if crossed else ""))
    return facts


def _sources(plan: Plan) -> list[str]:
    return [" < ".join([f"{s.record}: {_point(s.place)}", *map(_point, s.calls)]) for s in plan.scopes]


def _point(point: PointRecord | None) -> str:
    return f"{'' if point.file == FILE else f'{point.file}:'}{point.line}" if point else "-"


def _partitions(plan: Plan) -> list[str]:
    return [
        f"{s.record}: {'-' if s.partition is None else plan.table.partitions[s.partition].name}" for s in plan.scopes
    ]


_FACTS: dict[str, Callable[[Plan], list[str]]] = {
    "scopes": lambda plan: [" ".join(scope.record for scope in plan.scopes) or "none"],
    "spans": _spans,
    "nests": _nests,
    "sites": lambda plan: [f"{s.record}: {s.kind} {s.label} {s.function}" for s in plan.scopes],
    "sources": _sources,
    "partitions": _partitions,
    "warps": lambda plan: [f"{partition.name}: {partition.warps}" for partition in plan.table.partitions],
    "counts": lambda plan: [f"{number} {selector}" for selector, number in counts(plan).items()],
    "dropped": lambda plan: (
        [f"{one.marker} {one.what}" for selection in plan.selections for one in selection.findings.dropped]
        or ["nothing"]
    ),
    "selectors": lambda plan: [f"{scope.record}: {scope.selector}" for scope in plan.scopes],
    "misses": lambda plan: [f"{operation}: {reason}" for operation, reason in missed(plan)] or ["nothing"],
}
