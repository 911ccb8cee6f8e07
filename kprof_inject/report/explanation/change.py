"""The answer to what changed between two captures: what ``diff`` says of the kernel that takes most of the time."""

from __future__ import annotations

from collections.abc import Sequence

from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.analysis.program_overview import overview
from kprof_inject.report.diff.kernel_diff import CaptureDiff, KernelDiff, diff_captures
from kprof_inject.report.diff.wording import kernel_sentence
from kprof_inject.report.explanation.explanation_schema import SCHEMA_VERSION, Answer, VerdictFact
from kprof_inject.report.explanation.gathering import verdict_of
from kprof_inject.report.explanation.questions import Question
from kprof_inject.report.explanation.shortening import known_figure, short_name, short_text
from kprof_inject.timeline.comparison import CONFIDENCE
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.timeline.trust import Level, judge


def answer_on_change(question: Question, a: Sequence[Timeline], b: Sequence[Timeline]) -> Answer:
    """Raises ``KprofError`` if no kernel is in both."""
    diff = _of_longest(diff_captures(a, b), b)
    change = diff.launch.change
    launches = diff.clean_launches if diff.by_clean_times else (len(diff.sides.a), len(diff.sides.b))
    error = known_figure(change.error_percent if change else None)
    return Answer(
        schema=SCHEMA_VERSION,
        question=short_text(question.text),
        kernel=short_name(diff.b.kernel.name),
        launch=None,
        text=short_text(kernel_sentence(diff)),
        value=known_figure(change.percent if change else None),
        unit="percent of A's time",
        error=error,
        error_from={} if error is None else {f"interval of {100 * CONFIDENCE:.0f} %": error},
        samples=sum(launches),
        samples_of="launches",
        verdict=_verdict(diff),
    )


def _of_longest(diff: CaptureDiff, b: Sequence[Timeline]) -> KernelDiff:
    if len(diff.kernels) == 1:
        return diff.kernels[0]
    ranked = [kernel.name for kernel in overview([LaunchAnalysis.of(timeline) for timeline in b])]
    return min(diff.kernels, key=lambda kernel: ranked.index(kernel.b.kernel.name))


def _verdict(diff: KernelDiff) -> VerdictFact:
    """Of the side whose records are less to be trusted, of B if both are alike."""
    sides = [judge(runs.kernel) for runs in (diff.b, diff.a)]
    verdict = next((side for side in sides if side.level is not Level.TRUSTWORTHY), sides[0])
    return verdict_of(verdict.level, verdict.text, verdict.overhead)
