"""Cases of one kernel each: where records go, what their scopes span, and what is refused.

A file of cases is plain text. A case has the kernel with its records, so it is input and expected output at once: the
input is what is left without them.

    === index arithmetic is left out beside work
    --at 'line(5)=a'
    arith.addi@5 tt.store@6 [a tt.load@5 arith.addi@5 tt.store@5 a] arith.addi@5
    > spans a: function 3+0
    > misses arith.addi: index arithmetic elsewhere
    > misses arith.addi: index arithmetic elsewhere

``===`` begins a case and has its name. ``--at`` has selectors as on the command line; ``--two-records`` and ``--runs``
are styles. ``|`` has a line of the kernel's source, ``/src/k.py``. ``>`` has a fact (see ``Case``).

All else is TTGIR, one operation a line, in any indentation; or several in short: the names in ``SHORT``, ``}``,
``[a`` and ``a]`` for the start and the end of scope a. ``@57`` is an operation's source line, in all the forms of
``small_modules.located``. Without ``module``, the lines are the body of a kernel, whose return may be left out.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from planning import insertion_of
from small_modules import FILE, TWO_RECORDS, found, located, missed

from kprof_inject.errors import KprofError
from kprof_inject.select.plan import BODY_RECORD, Plan
from kprof_inject.select.spans import USUAL_STYLE, Style, in_runs

CASES = Path(__file__).with_name("cases")
STYLES = {"--two-records": TWO_RECORDS, "--runs": Style(in_runs)}
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

    ``spans``   of each scope ``RECORD: BLOCK OWN+OTHERS``, its operations and those of others
    ``nests``   each scope, ``in`` the one around it; which others it ``crosses``
    ``misses``  ``OPERATION: REASON``, or ``nothing``
    ``error``, ``where``, ``hint``  of a refusal
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
        if "error" in self.facts:
            assert self._refused() == dict(self.facts)
            return
        done = insertion_of(self.input, *self.selectors, sources=self.sources, style=self.style)
        assert self._without_body_records(done.text) == self.expected
        actual = {"spans": _spans(done.plan), "nests": _nests(done.plan), "misses": _misses(done.plan)}
        assert {kind: actual[kind] for kind in self.facts} == dict(self.facts)

    def _refused(self) -> dict[str, Sequence[str]]:
        try:
            insertion_of(self.input, *self.selectors, sources=self.sources, style=self.style)
        except KprofError as error:
            facts = {"error": error.what, "where": str(error.where), "hint": error.hint}
            return {kind: [facts[kind]] for kind in self.facts}
        raise AssertionError(f"{self.name}: nothing was refused")

    def _without_body_records(self, text: str) -> str:
        """Records around a body that was not selected are compared only where a case has them."""
        if any(BODY_RECORD in line for line in self.lines):
            return text
        return "".join(line for line in text.splitlines(keepends=True) if BODY_RECORD not in line)


def cases(name: str) -> list[Case]:
    """The cases of one file."""
    head, *parts = (CASES / f"{name}.txt").read_text(encoding="utf-8").split("=== ")
    assert not head
    return [_case(part) for part in parts]


def _case(text: str) -> Case:
    name, *rest = text.rstrip().split("\n")
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


def _misses(plan: Plan) -> list[str]:
    return [f"{operation}: {reason}" for operation, reason in missed(plan)] or ["nothing"]
