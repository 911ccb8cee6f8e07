"""Do something right before a CUDA graph runs for the first time, which cannot be done while it is captured.

Source: ``torch.cuda.graphs.CUDAGraph``. Graphs that a program captures without that class are not known.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

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
