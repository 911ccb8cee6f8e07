"""Distinguish an autotuner's benchmarks from the program's own launches, and report its choices."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from typing import Any

from triton.runtime.autotuner import Autotuner

from kprof_inject.runtime.process_report import ProcessReport
from kprof_inject.runtime.stack_room import ONE_FRAME


class _Depth(threading.local):
    value = 0


_depth = _Depth()


def is_benchmarking() -> bool:
    """Return whether an autotuner is comparing configurations in this thread."""
    return _depth.value > 0


def mark_benchmarks() -> None:
    """Mark the benchmarks of Triton's autotuner. Called once, right after the import of Triton."""
    Autotuner._bench = benchmarking(Autotuner._bench)


def report_choices(report: ProcessReport) -> None:
    """Add the choices of this process's Triton autotuners to the report. Called once."""
    run = Autotuner.run

    @functools.wraps(run)
    def run_and_note(tuner: Any, *args: Any, **kwargs: Any) -> Any:
        known = len(tuner.cache)
        with ONE_FRAME:
            result = run(tuner, *args, **kwargs)
        if len(tuner.cache) != known:
            with report.guard("noting an autotuner's choice"):
                key, config = list(tuner.cache.items())[-1]
                report.add_choice(str(tuner.base_fn.__name__), str(key), str(config))
        return result

    Autotuner.run = run_and_note


def install_for_inductor(module: Any) -> None:
    """Mark the benchmarks of Inductor's autotuner. ``module`` is its ``triton_heuristics``, just imported."""
    tuner = module.CachingAutotuner
    tuner.bench = benchmarking(tuner.bench)
    run = tuner.run
    benchmark = benchmarking(run)

    @functools.wraps(run)
    def run_or_benchmark(*args: Any, **kwargs: Any) -> Any:
        # max-autotune compares templates this way.
        with ONE_FRAME:
            return (benchmark if kwargs.get("benchmark_run") else run)(*args, **kwargs)

    tuner.run = run_or_benchmark
    benchmarkers = sys.modules.get("torch._inductor.runtime.benchmarking")
    if benchmarkers is None:
        return
    for benchmarker in list(vars(benchmarkers).values()):
        # Inductor compares library kernels with these: events recorded meanwhile are not the program's own.
        if isinstance(benchmarker, type) and callable(vars(benchmarker).get("benchmark_gpu")):
            benchmarker.benchmark_gpu = benchmarking(benchmarker.benchmark_gpu)  # type: ignore[attr-defined]


def report_inductors_choices(module: Any, report: ProcessReport) -> None:
    """Add the choices of Inductor's autotuner to the report. Called once."""
    tune = module.CachingAutotuner.autotune_to_one_config

    @functools.wraps(tune)
    def tune_and_note(tuner: Any, *args: Any, **kwargs: Any) -> Any:
        with ONE_FRAME:
            result = tune(tuner, *args, **kwargs)
        with report.guard("noting an autotuner's choice"):
            report.add_choice(str(tuner.fn.__name__), "its first arguments", str(tuner.launchers[0].config))
        return result

    module.CachingAutotuner.autotune_to_one_config = tune_and_note


def benchmarking(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function, wrapped so that its launches count as benchmarks."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        _depth.value += 1
        try:
            with ONE_FRAME:
                return function(*args, **kwargs)
        finally:
            _depth.value -= 1

    return call
