"""Calls what has to be done when this process ends, whichever way Python hears of it.

``atexit`` misses children of ``multiprocessing`` that were forked: they leave by ``os._exit``.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable
from typing import NoReturn

_callbacks: list[Callable[[], None]] = []


def install() -> None:
    """Have the callbacks called at the end of the process. Called once, before the program's own code."""
    atexit.register(_end)
    leave = os._exit

    def leave_after_callbacks(status: int) -> NoReturn:
        try:
            _end()
        finally:
            leave(status)

    os._exit = leave_after_callbacks


def at_end(callback: Callable[[], None]) -> None:
    """Call ``callback`` once when this process ends, before those that were registered earlier. It must not raise.

    A process that is killed by a signal ends without it. A forked child calls what its parent had registered: the
    callback has to see whether it has anything to do there."""
    _callbacks.append(callback)


def _end() -> None:
    while _callbacks:
        _callbacks.pop()()
