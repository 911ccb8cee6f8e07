"""A trace of the program by ``torch.profiler``, while its launches are recorded."""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kprof_inject.capture.measurements import BENCHMARK_SPAN
from kprof_inject.runtime.faults import say
from kprof_inject.runtime.launch import triton_wrapping
from kprof_inject.runtime.process_report import ProcessReport
from kprof_inject.runtime.session import TORCH_TRACE


class TorchTracer:
    """Tracer of this process by ``torch.profiler``, from its first kernel with records to its end. No method raises.

    A process can have only one such profiler. If the program starts its own, ours ends before that.
    """

    def __init__(self, folder: Path, report: ProcessReport) -> None:
        self._folder = folder
        self._report = report
        self._was_started = False
        self._profiler: Any = None
        self._started_by: tuple[int, int] | None = None

    def start(self) -> None:
        """Start the trace unless it was started before."""
        if self._was_started:
            return
        self._was_started = True
        if threading.current_thread() is not threading.main_thread():
            # torch ends a profiler in the thread that started it.
            say("no torch.profiler trace: the main thread does not launch the first kernel")
            return
        with self._report.guard("starting torch.profiler"):
            torch: Any = sys.modules.get("torch")
            if torch is None:
                say("no torch.profiler trace: the program has not imported torch")
                return
            profiler = torch.profiler.profile(activities=torch.profiler.supported_activities())
            profiler.start()
            triton_wrapping.span_benchmarks(functools.partial(self._benchmark, torch))
            self._profiler, self._started_by = profiler, _this_thread()
            kind = torch.autograd.profiler.profile  # torch makes one object of it for each of its profilers
            original = kind.__init__

            def give_way(programs: Any, *args: Any, **kwargs: Any) -> None:
                if self._profiler is not None:
                    say("the torch.profiler trace ends here: the program starts its own profiler")
                    self.finish()
                original(programs, *args, **kwargs)

            kind.__init__ = give_way

    def finish(self) -> None:
        """Stop, and write the trace. A forked child writes nothing."""
        profiler, self._profiler = self._profiler, None
        if profiler is None or self._started_by != _this_thread():
            return
        with self._report.guard("writing the trace of torch.profiler"):
            profiler.stop()
            path = self._folder / TORCH_TRACE.format(process=os.getpid())
            partial = path.with_name(f"partial-{path.name}")
            profiler.export_chrome_trace(str(partial))
            partial.replace(path)

    @contextmanager
    def _benchmark(self, torch: Any) -> Iterator[None]:
        """Mark a benchmark in the trace, without the ops in it.

        With ops, a launch takes the host so long that an autotuner measures the host, and chooses another configuration
        than without a trace.
        """
        if self._profiler is None:
            yield
            return
        with torch.profiler.record_function(BENCHMARK_SPAN):
            # Only for this thread: a backward pass tunes in a thread of its own.
            torch.autograd._enable_record_function(False)
            try:
                yield
            finally:
                torch.autograd._enable_record_function(True)


def _this_thread() -> tuple[int, int]:
    return os.getpid(), threading.get_ident()
