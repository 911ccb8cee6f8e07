"""What cuts into our code at any line: a signal handler of the program's, and a fork by another thread."""

from __future__ import annotations

import os
import signal
import weakref
from collections.abc import Callable
from contextlib import suppress
from types import CodeType, TracebackType
from typing import Any

_in_child: list[weakref.WeakMethod[Callable[[], None]]] = []


def in_forked_child(method: Callable[[], None]) -> None:
    """Have a bound method called in each forked child, for as long as its object lives.

    Of the threads that the parent had, the child has the one that forked: a lock that another one held is held for
    good, and what another one had begun is never ended."""
    _in_child[:] = [one for one in _in_child if one() is not None]
    _in_child.append(weakref.WeakMethod(method))


def _call_in_child() -> None:
    for reference in _in_child.copy():
        if (method := reference()) is not None:
            with suppress(Exception):  # Python would tell of it on the program's stderr
                method()


os.register_at_fork(after_in_child=_call_in_child)


def is_of_signal_handler(error: BaseException) -> bool:
    """True for what a signal handler of the program's has raised in the midst of our code: a time-out, say. It is for
    the program, as it would be without us."""
    handlers = {_code_of(signal.getsignal(number)) for number in signal.valid_signals()} - {None}
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code in handlers:
            return True
        trace = trace.tb_next
    return False


def _code_of(handler: Any) -> CodeType | None:
    """The code of a function, a method, a partial function, or an object that can be called."""
    handler = getattr(handler, "func", handler)
    handler = getattr(handler, "__func__", handler)
    if not hasattr(handler, "__code__") and callable(handler):
        handler = getattr(type(handler).__call__, "__func__", type(handler).__call__)
    return getattr(handler, "__code__", None)
