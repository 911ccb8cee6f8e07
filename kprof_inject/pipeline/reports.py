"""Analyses of a capture's launches; of many launches, only those that are shown are decoded."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.capture.experiments import ExperimentRecord
from kprof_inject.capture.model import Capture
from kprof_inject.pipeline.captures import read_launches
from kprof_inject.timeline.choice import Choice


def analyses(
    capture: Capture, experiments: Sequence[ExperimentRecord], say: Callable[[str], None], choice: Choice
) -> list[LaunchAnalysis]:
    """Return the analysis of each chosen launch; its parts are computed when they are needed.

    Raises ``KprofError`` as ``decode_capture`` does.
    """
    captured = capture.launches
    return [
        LaunchAnalysis(read.launch, read.duration_ns, read.decode, experiments, captured)
        for read in read_launches(capture, say, choice)
    ]
