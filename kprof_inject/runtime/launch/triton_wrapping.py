"""Wrap Triton's loading of kernels, to replace their launchers, its autotuners and Inductor's, and torch's graphs.

The launches of an autotuner's benchmarks are not the program's own, and its choices are reported. Triton's functions
show the grids that the program would use with other values of a kernel's constants.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from types import ModuleType
from typing import Any

from msgspec.structs import replace
from triton.compiler.compiler import CompiledKernel
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

from kprof_inject.capture.edits import OtherValues, grid_of
from kprof_inject.capture.schema import Grid
from kprof_inject.runtime.process_report import ProcessReport

Load = Callable[[], None]

_lock = threading.RLock()  # a forked child replaces it
_around: dict[int, tuple[weakref.ref[Any], Callable[[Any, Load], None]]] = {}
"""What to call around the loading of a kernel, by its identity: Triton asks at each launch whether it is loaded, and a
dictionary of weak keys would make a reference each time."""


def wrap_loading() -> None:
    """Wrap the method with which Triton loads a compiled kernel onto the device at its first launch.

    Called once, right after the import of Triton. The class's method is wrapped, not the object's, because Inductor
    pickles kernels with all their attributes.
    """
    original = CompiledKernel._init_handles

    @functools.wraps(original)
    def load(kernel: Any) -> None:
        if id(kernel) not in _around:
            original(kernel)
            return
        # Another thread that launches the kernel meanwhile comes here too, and waits until the launcher is replaced.
        with _lock:
            _, around = _around.get(id(kernel), (None, None))
            if around is None:
                return
            around(kernel, functools.partial(original, kernel))
            _around.pop(id(kernel), None)

    CompiledKernel._init_handles = load


def _begin_in_child() -> None:
    global _lock, _benchmarks
    _lock = threading.RLock()
    _benchmarks = _Benchmarks()


os.register_at_fork(after_in_child=_begin_in_child)


def around_load(kernel: Any, call: Callable[[Any, Load], None]) -> None:
    """Arrange that loading this kernel calls ``call(kernel, load)`` instead of ``load()``.

    ``call`` must not refer to the kernel: one that is never launched would then never be freed.
    """
    key, forget = id(kernel), _around.pop  # at the interpreter's end, this module may have no ``_around``
    _around[key] = weakref.ref(kernel, lambda _: forget(key, None)), call


HOOK_ARGUMENTS = 3
"""Arguments of Triton's launchers between the metadata and the kernel's own: the launch metadata for a profiler's
hooks, and the two hooks."""


class StandInLauncher:
    """Replacement for the launcher that Triton made for a kernel, until it steps aside.

    All other attributes are the launcher's.
    """

    def __init__(self, kernel: Any) -> None:
        self._kernel = weakref.ref(kernel)
        self._launch = kernel._run

    def _step_aside(self) -> None:
        kernel = self._kernel()
        if kernel is not None and kernel._run is self:
            kernel._run = self._launch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._launch, name)


class _Depth(threading.local):
    value = 0


_depth = _Depth()


class _Benchmarks:
    def __init__(self) -> None:
        self.changes = threading.Condition()
        self.running = 0

    @contextlib.contextmanager
    def one_more(self) -> Iterator[None]:
        with self.changes:
            self.running += 1
        try:
            yield
        finally:
            with self.changes:
                self.running -= 1
                self.changes.notify_all()


_benchmarks = _Benchmarks()


_MAX_PAUSE_S = 1.0  # how long a thread pauses at most for an autotuner before it goes on for some milliseconds


def wait_for_benchmarks() -> None:
    """Wait until no thread's autotuner is comparing configurations, for a limited time.

    An autotuner that shares the device and the processor with our threads may choose another configuration.
    """
    benchmarks = _benchmarks
    with benchmarks.changes:
        benchmarks.changes.wait_for(lambda: not benchmarks.running, _MAX_PAUSE_S)


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
        result = run(tuner, *args, **kwargs)
        if len(tuner.cache) != known:
            with report.guard("noting an autotuner's choice"):
                key, config = list(tuner.cache.items())[-1]
                report.add_choice(str(tuner.base_fn.__name__), str(key), str(config))
        return result

    Autotuner.run = run_and_note


def mark_inductors_benchmarks(module: Any) -> None:
    """Mark the benchmarks of Inductor's autotuner. ``module`` is its ``triton_heuristics``, just imported."""
    tuner = module.CachingAutotuner
    tuner.bench = benchmarking(tuner.bench)
    run = tuner.run
    benchmark = benchmarking(run)

    @functools.wraps(run)
    def run_or_benchmark(*args: Any, **kwargs: Any) -> Any:
        # max-autotune compares templates this way.
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
        result = tune(tuner, *args, **kwargs)
        with report.guard("noting an autotuner's choice"):
            report.add_choice(str(tuner.fn.__name__), "its first arguments", str(tuner.launchers[0].config))
        return result

    module.CachingAutotuner.autotune_to_one_config = tune_and_note


_spans: list[Callable[[], AbstractContextManager[Any]]] = []


def span_benchmarks(span: Callable[[], AbstractContextManager[Any]]) -> None:
    """Enter a context of ``span()`` around each benchmark from now on; of nested ones, around the outermost."""
    _spans.append(span)


def benchmarking(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function, wrapped so that its launches count as benchmarks."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        _depth.value += 1
        try:
            with contextlib.ExitStack() as contexts:
                for context in (_benchmarks.one_more, *_spans) if _depth.value == 1 else ():
                    contexts.enter_context(context())
                return function(*args, **kwargs)
        finally:
            _depth.value -= 1

    return call


class _Launches(threading.local):
    """Launches that this thread is in the middle of, the innermost last."""

    def __init__(self) -> None:
        self.grids: list[Callable[[Mapping[str, Any]], Any]] = []


class ProgramGrids:
    """Grid functions of the launches that each thread is in the middle of. A process makes one."""

    def __init__(self) -> None:
        self._launches = _Launches()
        original, launches = JITFunction.run, self._launches

        @functools.wraps(original)
        def run(function: Any, *args: Any, grid: Any, warmup: Any, **kwargs: Any) -> Any:
            def grid_with(others: Mapping[str, Any]) -> Any:
                if not callable(grid):
                    return None
                own = {name: value for name, value in kwargs.items() if name in function.arg_names}
                bound = function.signature.bind(*args, **own)
                bound.apply_defaults()
                return grid({**bound.arguments, **others})

            launches.grids.append(grid_with)
            try:
                return original(function, *args, grid=grid, warmup=warmup, **kwargs)
            finally:
                launches.grids.pop()

        JITFunction.run = run

    def with_grids(self, others: Sequence[OtherValues], present: Grid) -> tuple[OtherValues, ...]:
        """Return other values with the grid that the launch of this thread would have with each.

        ``present`` is the launch's grid. A grid is None if the program gives no function, or that gives another grid
        for the present values, or fails.
        """
        grids = self._launches.grids
        if not grids or _grid_of(grids[-1], {}) != present:
            return tuple(others)
        return tuple(replace(one, grid=_grid_of(grids[-1], one.values)) for one in others)


def _grid_of(function: Callable[[Mapping[str, Any]], Any], others: Mapping[str, Any]) -> Grid | None:
    try:
        return grid_of([int(size) for size in function(others)])
    except Exception:  # noqa: BLE001 (the program's function need not know other values)
        return None


# What to do right before a CUDA graph runs for the first time, which cannot be done while it is captured. Source:
# ``torch.cuda.graphs.CUDAGraph``; graphs that a program captures without that class are not known.
Action = Callable[[], None]

_ATTRIBUTE = "_kprof_before_first_run"

# One list for each graph that is being captured: autograd launches into it from a thread of its own.
_being_captured: list[list[Action]] = []


def before_first_run(action: Action) -> bool:
    """Have ``action`` called right before the graph that is being captured runs; it must not raise.

    Returns False if no graph is known to be captured.
    """
    if not _being_captured:
        return False
    _being_captured[-1].append(action)
    return True


def watch_graphs_of(module: ModuleType) -> None:
    """Watch the graphs that torch captures from now on. Called once, with the module of the class ``CUDAGraph``."""
    graph_class: Any = module.CUDAGraph
    begin, end, replay = graph_class.capture_begin, graph_class.capture_end, graph_class.replay

    @functools.wraps(begin)
    def capture_begin(graph: Any, *args: Any, **kwargs: Any) -> Any:
        result = begin(graph, *args, **kwargs)
        _being_captured.append([])
        return result

    @functools.wraps(end)
    def capture_end(graph: Any, *args: Any, **kwargs: Any) -> Any:
        actions = _being_captured.pop() if _being_captured else []
        result = end(graph, *args, **kwargs)
        if actions:
            setattr(graph, _ATTRIBUTE, actions)
        return result

    @functools.wraps(replay)
    def replay_after_actions(graph: Any, *args: Any, **kwargs: Any) -> Any:
        for action in vars(graph).pop(_ATTRIBUTE, ()):
            action()
        return replay(graph, *args, **kwargs)

    graph_class.capture_begin = capture_begin
    graph_class.capture_end = capture_end
    graph_class.replay = replay_after_actions
