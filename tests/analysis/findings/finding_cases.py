"""Cases of one launch each, in ``cases``: what is unusual about it, and what the rules find.

    === a warp that works more than the others is named
    --work 20 20 80 20
    > imbalanced-warps of work: 20 * (80 - 35) / D
    >> other_mean_ns = 400
    >> says a slow warp

The launch is that of ``known_kernels``: 8 CTAs on 8 SMs, of 4 warps, with a loop of 20 iterations of 100 ns.

``--before``, ``--iterations``, ``--after``, ``--work``, ``--wait``  in ns, for each iteration or warp: ``100*19`` is 19
                 times 100, ``-`` is a warp without the scope
``--warps``, ``--looping``  their number; which of them run the loop
``--work-scope``, ``--wait-scope``  KIND NAME
``--ctas``       SMS BEGIN END [xTIMES]: a CTA on each of these SMs, in ns, so many in turn; may be repeated
``--cycles``     those of the wait in a launch of ``known_loops``, whose kernel is the TTGIR in the case
``--sms``, ``--room``, ``--clean-room``  of the device; CTAs that fit on an SM, with records and without
``--set``        fields of the timeline, of its clock, launch, kernel and metadata: ``launch.grid=[9,1,1]``

``>`` has a finding, ``RULE of SCOPE: SHARE``. These are all, in their order, or there is ``nothing``; ``...`` are any
others, but for ``no RULE``. ``>>`` has a fact of the finding above it: a figure, ``says`` with its case in the
snapshot, ``text has``, ``advice lacks``, ``figures lack``. Numbers may be computed; D is how long a CTA takes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from buffers import Scope
from known_kernels import ITER, WARPS, Known, found_in, launched, sentences_of
from known_loops import launched as launched_loop
from replacing import replace
from snapshots import check
from text_cases import cases_in

from kprof_inject.analysis.findings.finding import Finding
from kprof_inject.capture.resources import KernelResources
from kprof_inject.timeline.timeline import Timeline

CASES = Path(__file__).with_name("cases")
SNAPSHOT = "analysis/findings"


@dataclass(frozen=True)
class Case:
    known: Known
    options: list[tuple[str, str]]
    facts: list[str]
    ttgir: str

    @classmethod
    def of(cls, text: str) -> Case:
        lines = [line for line in text.splitlines() if line and not line.startswith("# ")]
        ttgir = [line for line in lines if not line.startswith(("--", ">"))]
        lines = [line for line in lines if line not in ttgir]
        options = [(key, value) for line in lines for key, _, value in [line.partition(" ")] if key.startswith("--")]
        facts = [line for line in lines if line.startswith(">")]
        changes = {key[2:].replace("-", "_"): value for key, value in options}
        made = {name: read(changes[key]) for key, (name, read) in _OF_KNOWN.items() if key in changes}
        warps = made.get("warps", WARPS)
        made = {"work_ns": _each(warps, 60), "wait_ns": _each(warps, 4), **made} if warps != WARPS else made
        return cls(Known(**made), options, facts, "".join(f"{line}\n" for line in ttgir))

    def launched(self, folder: Path) -> Timeline:
        given = dict(self.options)
        ctas = [cta for key, value in self.options if key == "--ctas" for cta in self._ctas(value)]
        kernel: dict[str, Any] = {"with_records": KernelResources(ctas_per_sm=int(given.get("--room", 1)))}
        if room := given.get("--clean-room"):
            kernel["clean"] = KernelResources(ctas_per_sm=int(room))
        if sms := given.get("--sms"):
            kernel["sm_count"] = int(sms)
        if self.ttgir:
            made = launched_loop(folder, self.ttgir, int(given["--cycles"]))
        else:
            made = launched(folder, self.known, ctas or None, kernel=kernel)
        for change in given.get("--set", "").split():
            made = _changed(made, *change.split("="))
        return made

    def check(self, folder: Path) -> None:
        found = found_in(self.launched(folder))
        listed = [fact.removeprefix("> ") for fact in self.facts if fact.startswith("> ")]
        expected = [fact for fact in listed if not fact.startswith(("nothing", "no ", "..."))]
        rules = [re.split(" of |: ", fact)[0] for fact in expected]
        if "..." not in listed:
            assert [finding.rule for finding in found] == rules
        gains = [finding.expected for finding in found]
        assert gains == sorted(gains, reverse=True)
        assert all(finding.expected <= finding.share <= 1 and finding.share > 0 for finding in found)
        assert all(finding.text and finding.advice for finding in found)
        of_rule = {finding.rule: finding for finding in found}
        assert len(of_rule) == len(found)
        assert [fact for fact in listed if fact.startswith("no ") and fact[3:] in of_rule] == []
        finding: Finding | None = None
        for fact in self.facts:
            if fact.startswith(">> "):
                assert finding is not None
                self._check_fact(finding, fact.removeprefix(">> "))
            elif fact.removeprefix("> ") in expected:
                finding = of_rule[rules[expected.index(fact.removeprefix("> "))]]
                self._check_finding(finding, fact.removeprefix("> "))

    def _check_finding(self, finding: Finding, expected: str) -> None:
        head, _, share = expected.partition(": ")
        rule, _, scope = head.partition(" of ")
        assert finding.rule == rule
        if scope:
            assert finding.scope == (None if scope == "the launch" else scope)
        if share:
            assert finding.share == pytest.approx(self._number(share))

    def _check_fact(self, finding: Finding, fact: str) -> None:
        if case := re.fullmatch(r"says (.+)", fact):
            check(SNAPSHOT, sentences_of(finding), case[1])
        elif words := re.fullmatch(r"(text|advice) (has|lacks) (.+)", fact):
            assert (words[3] in getattr(finding, words[1])) == (words[2] == "has")
        elif name := re.fullmatch(r"figures lack (.+)", fact):
            assert name[1] not in finding.figures
        else:
            name, value = fact.split(" = ")
            expected = value if isinstance(finding.figures[name], str) else pytest.approx(self._number(value))
            assert finding.figures[name] == expected

    def _ctas(self, text: str) -> Iterator[tuple[int, int, int]]:
        sms, begin, end, *times = text.split()
        begin_ns, end_ns = int(self._number(begin)), int(self._number(end))
        for wave in range(int(times[0][1:]) if times else 1):
            later_ns = wave * (end_ns - begin_ns)
            yield from ((sm, begin_ns + later_ns, end_ns + later_ns) for sm in _numbers(sms))

    def _number(self, text: str) -> float:
        return float(eval(text, {"D": self.known.duration_ns}))


def cases_of(file: Path) -> dict[str, Case]:
    return {name: Case.of(text) for name, text in cases_in(file).items()}


def _numbers(text: str) -> list[int]:
    """Return ``1 5-7`` written out."""
    spans = [span.split("-") for span in text.replace(",", " ").split()]
    return [number for span in spans for number in range(int(span[0]), int(span[-1]) + 1)]


def _times(text: str) -> tuple[int, ...]:
    parts = [part.split("*") for part in text.split()]
    return tuple(int(part[0]) for part in parts for _ in range(int(part[1]) if part[1:] else 1))


def _each(warps: int, ns: int) -> dict[int, int]:
    return dict.fromkeys(range(warps), ns)


def _of_warps(text: str) -> dict[int, int]:
    return {warp: int(ns) for warp, ns in enumerate(text.split()) if ns != "-"}


def _scope(text: str) -> Scope:
    kind, _, name = text.partition(" ")
    return Scope(name, kind, ITER, ("/src/kernel.py", 9))


_OF_KNOWN: dict[str, tuple[str, Callable[[str], Any]]] = {
    "before": ("before_ns", int),
    "iterations": ("iterations_ns", _times),
    "after": ("after_ns", int),
    "warps": ("warps", int),
    "work": ("work_ns", _of_warps),
    "wait": ("wait_ns", _of_warps),
    "looping": ("looping", _numbers),
    "work_scope": ("work", _scope),
    "wait_scope": ("wait", _scope),
}


def _changed(timeline: Timeline, key: str, text: str) -> Timeline:
    """Set one field of the timeline, or of what its name begins with."""
    of, _, name = key.rpartition(".")
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    if of == "clock":
        return replace(timeline, clock=replace(timeline.clock, **{name: value}))
    if not of:
        return replace(timeline, **{name: value})
    launch = timeline.launch
    kernel = launch.kernel
    if of == "launch":
        return replace(timeline, launch=replace(launch, **{name: tuple(value)}))
    if of == "kernel":
        kernel = replace(kernel, **{name: value})
    else:
        assert of == "metadata", key
        kernel = replace(kernel, metadata={**kernel.metadata, name: value})
    return replace(timeline, launch=replace(launch, kernel=kernel))
