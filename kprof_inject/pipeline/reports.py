"""The reports of a capture's launches. Of many launches, only those that are shown are decoded and analysed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from kprof_inject.analysis.launch_report import LaunchReport, PendingReport, report_on
from kprof_inject.capture.experiments import ExperimentRecord
from kprof_inject.capture.model import Capture, Launch
from kprof_inject.pipeline.captures import ReadLaunch, read_launches
from kprof_inject.timeline.choice import Choice


def pending_reports(
    capture: Capture, experiments: Sequence[ExperimentRecord], say: Callable[[str], None], choice: Choice
) -> list[PendingReport]:
    """Return the report of each launch that is chosen, made when it is asked for. Raises ``KprofError`` as
    ``decode_capture`` does."""
    captured = capture.launches
    return [
        PendingReport(read.launch, read.duration_ns, captured, partial(_report, read, experiments, captured))
        for read in read_launches(capture, say, choice)
    ]


def _report(read: ReadLaunch, experiments: Sequence[ExperimentRecord], captured: Sequence[Launch]) -> LaunchReport:
    return report_on(read.decode(), experiments, captured)
