"""A comparison as JSON values."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from kprof_inject.report.diff.headline import first_sentence
from kprof_inject.report.diff.kernel_diff import CaptureDiff, KernelDiff, ScopeChange
from kprof_inject.report.diff.matching import Unmatched
from kprof_inject.report.diff.notes import kernel_notes
from kprof_inject.report.diff.runs import KernelRuns
from kprof_inject.report.diff.wording import kernel_sentence
from kprof_inject.timeline.statistics.comparison import CONFIDENCE


def diff_json(diff: CaptureDiff) -> dict[str, Any]:
    return {
        "sentence": first_sentence(diff),
        "confidence": CONFIDENCE,
        "kernels": [_kernel(kernel) for kernel in diff.kernels],
        "only_a": [_runs(runs) for runs in diff.only_a],
        "only_b": [_runs(runs) for runs in diff.only_b],
    }


def _kernel(diff: KernelDiff) -> dict[str, Any]:
    return {
        "kernel": diff.b.kernel.name,
        "a": _runs(diff.a),
        "b": _runs(diff.b),
        "sentence": kernel_sentence(diff),
        "verdict": diff.launch.verdict.value,
        "differences": {one.what: [one.a, one.b] for one in diff.differences},
        "clock_hz": [diff.clocks.a_hz, diff.clocks.b_hz],
        "without_records": diff.clean and {**diff.clean.to_json(), "median_ns": asdict(diff.clean_ns)},
        "with_records": {**diff.recorded.to_json(), "median_ns": asdict(diff.duration_ns)},
        "compared_warps": diff.warps,
        "first_launches_left_out": diff.left_out,
        "scopes": [_scope(scope) for scope in diff.scopes],
        "only_a": [_unmatched(one) for one in diff.only_a],
        "only_b": [_unmatched(one) for one in diff.only_b],
        "notes": list(kernel_notes(diff)),
    }


def _runs(runs: KernelRuns) -> dict[str, Any]:
    return {
        "kernel": runs.kernel.name,
        "variant": runs.kernel.variant,
        "grid": runs.grid,
        "launches": [timeline.launch.index for timeline in runs.timelines],
        "clean_launches": sum(map(len, runs.clean_times_ns())),
    }


def _scope(scope: ScopeChange) -> dict[str, Any]:
    values = asdict(scope)
    judged = scope.judged.to_json() if scope.judged else {"verdict": None, "change": None, "change_in_cycles": None}
    del values["judged"]
    return {**values, **judged}


def _unmatched(one: Unmatched) -> dict[str, Any]:
    return {"scope": one.scope.name, "kind": one.scope.kind, "source": one.scope.source, "why": one.why}
