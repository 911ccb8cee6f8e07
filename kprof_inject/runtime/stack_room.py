"""Room on Python's stack for our own frames, which stand between the program's and Triton's.

A program that recurses to Python's limit gets as far as it does without us.
"""

from __future__ import annotations

import os
import sys
import threading

FRAMES_OF_COMPILER = 500
"""More than Triton's compiler takes."""

# Up to Python 3.11, calls through C count, too: that of an object which has a ``__call__``.
FRAMES_OF_LAUNCHER = 1 if sys.version_info >= (3, 12) else 2
"""What a launcher of ours takes."""


class StackRoom:
    """A context in which Python's recursion limit is higher by ``frames``, in all threads.

    It is entered where the program would go deeper anyway: at the limit itself, ``__exit__`` could not set it back."""

    _lock = threading.RLock()  # a signal handler may come in the midst of this

    def __init__(self, frames: int) -> None:
        self._frames = frames

    def __enter__(self) -> None:
        self._add(self._frames)

    def __exit__(self, *_: object) -> None:
        self._add(-self._frames)

    def _add(self, frames: int) -> None:
        # By what is added, not to what it was: other threads do the same meanwhile, and the program may set its own.
        with StackRoom._lock:
            sys.setrecursionlimit(sys.getrecursionlimit() + frames)


def _begin_in_child() -> None:
    StackRoom._lock = threading.RLock()


os.register_at_fork(after_in_child=_begin_in_child)

ONE_FRAME = StackRoom(1)
"""For a function of ours that stands in for one of Triton's or torch's, and calls it."""
COMPILING = StackRoom(8)
"""For what of ours is around Triton's compiler, and around the loading of a kernel."""
