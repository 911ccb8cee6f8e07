"""What comes upon this process: a signal handler of the program's, a fork by another thread, and its end.

The first two cut into our code at any line. Of the end Python hears in several ways: ``atexit`` calls ``end``, for the
start-up hook saw to it before the program registered anything. But ``atexit`` misses children of ``multiprocessing``
that were forked, which leave by ``os._exit``; and it misses ``os.execv`` and its family, by which the process becomes
another program.
"""

from __future__ import annotations

import os
import signal
import weakref
from collections.abc import Callable
from contextlib import suppress
from types import CodeType, TracebackType
from typing import Any, NoReturn

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


class Guarded:
    """Keeps what fails inside from reaching the program, and calls ``failed`` with it; what a signal handler of the
    program's has raised goes on.

    It is no ``contextmanager``: an exception that a generator catches is in a reference cycle with that generator's
    frame, from which one gets to all frames below it, the program's among them. Their tensors would live on until
    Python collects garbage."""

    def __init__(self, failed: Callable[[Exception], None]) -> None:
        self._failed = failed

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, Exception) or is_of_signal_handler(error):
            return False
        self._failed(error)
        return True


def _code_of(handler: Any) -> CodeType | None:
    """The code of a function, a method, a partial function, or an object that can be called."""
    handler = getattr(handler, "func", handler)
    handler = getattr(handler, "__func__", handler)
    if not hasattr(handler, "__code__") and callable(handler):
        handler = getattr(type(handler).__call__, "__func__", type(handler).__call__)
    return getattr(handler, "__code__", None)


Callback = Callable[[], None]

_callbacks: list[tuple[Callback, Callback | None]] = []


def watch_for_the_end() -> None:
    """Have the callbacks called where ``atexit`` does not hear of the end. Called once."""
    leave = os._exit

    def leave_after_callbacks(status: int) -> NoReturn:
        try:
            end()
        finally:
            leave(status)

    os._exit = leave_after_callbacks
    # All others of the family end in one of these two.
    os.execv = _after_callbacks(os.execv)
    os.execve = _after_callbacks(os.execve)


def at_end(callback: Callback, resume: Callback | None = None) -> None:
    """Call ``callback`` when this process ends, before those that were registered earlier. It must not raise.

    ``resume`` is called if it did not end after all: ``os.execv`` did not find its program. Then ``callback`` is called
    once more at the end.

    A process that is killed by a signal ends without it. A forked child calls what its parent had registered: the
    callback has to see whether it has anything to do there."""
    _callbacks.append((callback, resume))


def end() -> None:
    """Call what is registered, once."""
    while _callbacks:
        _call(_callbacks.pop()[0])


def _call(callback: Callback) -> None:
    # What a handler raises, too: whoever presses Ctrl-C again does not want to wait.
    with suppress(BaseException):
        callback()


def _after_callbacks(execute: Callable[..., Any]) -> Callable[..., Any]:
    def execute_after_callbacks(path: Any, *args: Any, **kwargs: Any) -> Any:
        # The search of ``os.execvp`` tries one folder after the other.
        if not os.path.exists(path):
            return execute(path, *args, **kwargs)
        for callback, _ in reversed(_callbacks.copy()):
            _call(callback)
        try:
            return execute(path, *args, **kwargs)
        finally:
            for _, resume in _callbacks.copy():
                if resume is not None:
                    _call(resume)

    execute_after_callbacks.__name__ = execute_after_callbacks.__qualname__ = execute.__name__
    execute_after_callbacks.__doc__ = execute.__doc__
    execute_after_callbacks.__module__ = execute.__module__
    return execute_after_callbacks
