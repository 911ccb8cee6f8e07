"""Room on Python's stack for our own frames, which come between the program's and Triton's.

With it, a program that recurses to Python's limit gets as far as without us.
"""

from __future__ import annotations

import os
import sys
import threading

# Up to Python 3.11, calls through C count too, such as that of an object with ``__call__``.
FRAMES_OF_LAUNCHER = 1 if sys.version_info >= (3, 12) else 2
"""Frames that a launcher of ours needs."""


class StackRoom:
    """A context in which Python's recursion limit is higher by ``frames``, in all threads.

    Enter it only where the program would go deeper anyway: at the limit itself, ``__exit__`` could not restore it.
    """

    _lock = threading.RLock()  # reentrant, because a signal handler may interrupt its holder

    def __init__(self, frames: int) -> None:
        """Prepare a context, which may be entered several times."""
        self._frames = frames

    def __enter__(self) -> None:
        """Raise the limit."""
        self._add(self._frames)

    def __exit__(self, *_: object) -> None:
        """Lower the limit by as much as it was raised."""
        self._add(-self._frames)

    def _add(self, frames: int) -> None:
        # A difference, not a saved limit: other threads change it meanwhile, and the program may set its own.
        with StackRoom._lock:
            sys.setrecursionlimit(sys.getrecursionlimit() + frames)


def _begin_in_child() -> None:
    StackRoom._lock = threading.RLock()


os.register_at_fork(after_in_child=_begin_in_child)

ONE_FRAME = StackRoom(1)
"""Room for a function of ours that wraps one of Triton's or torch's."""
COMPILING = StackRoom(8)
"""Room for our functions around Triton's compiler, and around the loading of a kernel."""
