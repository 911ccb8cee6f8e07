"""Calls what has to be done when this process ends, whichever way Python hears of it.

``atexit`` calls ``end``: the start-up hook saw to it, before the program registered anything. But ``atexit`` misses
children of ``multiprocessing`` that were forked: they leave by ``os._exit``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NoReturn

_callbacks: list[Callable[[], None]] = []


def install() -> None:
    """Have the callbacks called where ``atexit`` does not hear of the end. Called once."""
    leave = os._exit

    def leave_after_callbacks(status: int) -> NoReturn:
        try:
            end()
        finally:
            leave(status)

    os._exit = leave_after_callbacks


def at_end(callback: Callable[[], None]) -> None:
    """Call ``callback`` once when this process ends, before those that were registered earlier. It must not raise.

    A process that is killed by a signal ends without it. A forked child calls what its parent had registered: the
    callback has to see whether it has anything to do there."""
    _callbacks.append(callback)


def end() -> None:
    """Call what is registered, once."""
    while _callbacks:
        _callbacks.pop()()
