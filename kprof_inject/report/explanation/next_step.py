"""The command to run after a report: what it takes to trust it, to judge the rest, or to see what a change did."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from shlex import quote

from kprof_inject.analysis.advice import fewer_records
from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.capture.scopes import ScopeKind
from kprof_inject.quantities import percent
from kprof_inject.report.explanation.budget import short_name, short_text
from kprof_inject.report.explanation.explanation_schema import Next
from kprof_inject.timeline.trust import Level

_PROGRAM = " -- PROG"
_DEFAULT_LAUNCHES = "last"
# What `diff` needs to tell a change from chance, and some to spare.
_LAUNCHES = " --launches 0:20"
_REPLAYS = " --replay 50"


@dataclass(frozen=True, slots=True)
class Options:
    """What stands in each command: the workspace where it is not the default one, and the kernel of several; and which
    launches were kept, where that is not the default. Each is empty, or begins with a blank."""

    workspace: str = ""
    kernel: str = ""
    launches: str = ""

    @classmethod
    def of(cls, workspace: str, kernel: str, launches: str = "") -> Options:
        """``workspace`` is empty for the default one, ``kernel`` for the only one, ``launches`` is as ``run`` takes
        them. A workspace with too long a name is left to the reader to fill in."""
        at = workspace if short_name(workspace) == workspace else "WORKSPACE"
        return cls(
            f" -o {quote(at)}" if workspace else "",
            f" --kernel {quote(_glob_of(kernel))}" if kernel else "",
            f" --launches {quote(launches)}" if launches not in ("", _DEFAULT_LAUNCHES) else "",
        )

    def profile(self, options: str) -> str:
        """The same launches again."""
        return f"kprof-inject profile{self.workspace}{self.kernel}{self.launches}{options}{_PROGRAM}"

    def to_compare(self) -> str:
        """As many launches as a comparison needs: where a range of them was kept, that again."""
        is_range = self.launches.endswith(" all") or ":" in self.launches
        return self.profile("") if is_range else replace(self, launches=_LAUNCHES).profile("")

    def causal(self) -> str:
        return f"kprof-inject causal{self.workspace}{self.kernel}{_PROGRAM}"


def _glob_of(name: str) -> str:
    """A glob for a kernel's name, however long that is."""
    begin, cut, _ = short_name(name).partition("…")
    return f"{begin}*" if cut else begin


def next_step(report: LaunchAnalysis, options: Options) -> Next:
    for step in (_save_again, _keep_all_records, _record_less, _time_it, _change_it, _judge_the_rest, _delay_it):
        found = step(report, options)
        if found is not None:
            return Next(found.command, short_text(found.why))
    return Next(options.to_compare(), "after a change; then kprof-inject diff says whether it helped")


def _save_again(report: LaunchAnalysis, options: Options) -> Next | None:
    """Of a buffer that another profiler recorded into: no command of ours makes it again."""
    if not report.summary.is_foreign:
        return None
    first = "with a larger buffer, as records were lost; " if report.summary.records_lost else ""
    why = "save the buffer of the changed kernel, too; this says whether the change helped"
    return Next("kprof-inject diff BEFORE AFTER", f"{first}{why}")


def _keep_all_records(report: LaunchAnalysis, options: Options) -> Next | None:
    lost, written = report.summary.records_lost, report.summary.records_written
    if not lost:
        return None
    return Next(options.profile(" --fit"), f"{percent(lost / written)} of the records were lost; --fit keeps them all")


def _record_less(report: LaunchAnalysis, options: Options) -> Next | None:
    if report.verdict.level is not Level.UNRELIABLE:
        return None
    if fewer := fewer_records(report):
        return Next(options.profile(f" {fewer}"), f"the records disturb the kernel; use fewer: {report.verdict.text}")
    if report.slopes is None:
        return Next(options.causal(), f"the records disturb the kernel, and this needs none: {report.verdict.text}")
    why = "the records disturb the kernel: after a change, diff compares its times without them"
    return Next(options.to_compare(), why)


def _time_it(report: LaunchAnalysis, options: Options) -> Next | None:
    tells_nothing = report.verdict.level in (Level.CANNOT_TELL, Level.UNKNOWN)
    kernel = report.launch.kernel
    if not tells_nothing or kernel.clean.replayed_ns or kernel.not_replayed:
        return None
    return Next(options.profile(_REPLAYS), f"the cost of the records is unknown: {report.verdict.text}")


def _change_it(report: LaunchAnalysis, options: Options) -> Next | None:
    if not report.findings:
        return None
    why = "after the change that the first finding advises; then kprof-inject diff says whether it helped"
    return Next(options.to_compare(), why)


def _judge_the_rest(report: LaunchAnalysis, options: Options) -> Next | None:
    for why, rules in report.unjudged.items():
        if why.options:
            command = options.profile(f"{''.join(_selected(report))} {why.options}")
            return Next(command, f"{', '.join(rules)} could not be judged: {why.reason}")
    return None


_SELECTORS = {
    ScopeKind.FUNCTION: "func",
    ScopeKind.LOOP: "loop",
    ScopeKind.ITERATION: "iter",
    ScopeKind.PART: "parts",
    ScopeKind.MARKER: "marker",
}


def _selected(report: LaunchAnalysis) -> Iterator[str]:
    """What was recorded, as far as one selector finds all of its kind: another one takes the place of the default."""
    kinds = {scope.kind for scope in report.timeline.table.scopes}
    return (f" --at {selector}" for kind, selector in _SELECTORS.items() if kind in kinds)


def _delay_it(report: LaunchAnalysis, options: Options) -> Next | None:
    if report.slopes is not None:
        return None
    return Next(options.causal(), "no rule found anything worth a change; this shows which part sets the pace")
