"""The CUDA graphs that the program captures by torch, and what is to be done before each runs for the first time."""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar

from kprof_inject.runtime.imports import after_import

_Call = TypeVar("_Call", bound=Callable[[], None])


class CapturedGraphs:
    """Of one process. Graphs that are captured or run by other means than torch's are not noticed."""

    def __init__(self) -> None:
        self._of_thread = threading.local()
        self._before: weakref.WeakKeyDictionary[Any, Callable[[], None]] = weakref.WeakKeyDictionary()

    def being_captured(self) -> Any:
        """The graph that this thread captures, or the last one; None if there is none."""
        reference = getattr(self._of_thread, "graph", None)
        return reference() if reference is not None else None

    def before_first_run(self, graph: Any, call: _Call) -> _Call:
        """What is called once, before the graph first runs: ``call``, or one like it that was given earlier."""
        kept: Any = self._before.setdefault(graph, call)
        return kept  # type: ignore[no-any-return]

    def watch(self, module: ModuleType) -> None:
        """Stand in torch's class of graphs."""
        graph: Any = module.CUDAGraph
        begin, run = graph.capture_begin, graph.replay

        @functools.wraps(begin)
        def begin_and_note(one: Any, *args: Any, **kwargs: Any) -> Any:
            self._of_thread.graph = weakref.ref(one)
            self._before.pop(one, None)
            return begin(one, *args, **kwargs)

        @functools.wraps(run)
        def run_after_ours(one: Any) -> Any:
            if (call := self._before.pop(one, None)) is not None:
                call()
            return run(one)

        graph.capture_begin = begin_and_note
        graph.replay = run_after_ours


graphs = CapturedGraphs()


def watch_graphs() -> None:
    """Notice what graphs the program captures. Called once, right after Triton was imported."""
    after_import({"torch.cuda.graphs": graphs.watch})
