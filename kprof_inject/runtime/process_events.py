"""React to events of this process: the program's signal handlers, forks by other threads, and its end.

The first two may interrupt our code at any line. The end comes in several ways. ``atexit`` calls ``end``, which the
start-up hook registered before the program registered anything. But ``atexit`` misses forked children of
``multiprocessing``, which end by ``os._exit``, and ``os.execv`` and its family, by which the process becomes another
program.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import CodeType, FrameType
from typing import Any, NoReturn

MAX_SECONDS_AT_END = 60.0  # maximum time that the end of a program waits for the device, the disk or a thread of ours

_in_child: list[tuple[weakref.ref[Any], Callable[[Any], None]]] = []


def in_forked_child(method: Callable[[], None]) -> None:
    """Call a bound method in each forked child, as long as its object lives.

    The child has only the thread that forked. A lock that another thread of the parent held is held forever, and what
    another thread had begun never ends.
    """
    bound: Any = method
    _in_child[:] = [entry for entry in _in_child if entry[0]() is not None]
    # Not a ``WeakMethod``: in its callback, an exception of a signal handler would be lost.
    _in_child.append((weakref.ref(bound.__self__), bound.__func__))


def _call_in_child() -> None:
    for reference, function in _in_child.copy():
        if (found := reference()) is not None:
            with suppress(Exception):  # Python would print it on the program's stderr
                function(found)


os.register_at_fork(after_in_child=_call_in_child)


@contextmanager
def keeping_signal_handlers() -> Iterator[None]:
    """Restore the process's handlers of signals at the end: LLVM, when it first compiles, takes several for good.

    By the system's own function, because Python's works in the main thread alone, and knows only its own handlers.
    """
    sigaction = ctypes.CDLL(None).sigaction
    before = {number: ctypes.create_string_buffer(_MAX_SIGACTION_BYTES) for number in signal.valid_signals()}
    for number, action in before.items():
        sigaction(number, None, action)
    try:
        yield
    finally:
        for number, action in before.items():
            sigaction(number, action, None)


_MAX_SIGACTION_BYTES = 512  # glibc's ``struct sigaction`` has 152 on x86-64


def let_through(error: Exception) -> None:
    """Raise an error again that one of the program's signal handlers raised in the middle of our code.

    Such an error, a time-out for example, must reach the program, as it would without us. Triton's compiler may have
    made another one of it.
    """
    if (found := _of_signal_handler(error)) is not None:
        raise found


def _of_signal_handler(error: BaseException | None) -> BaseException | None:
    """Return the error that a signal handler raised: this one, or one that led to it; None if there is none.

    Not one that the program was handling before: a frame of the program that goes on has caught that.
    """
    handlers = {_code_of(signal.getsignal(number)) for number in signal.valid_signals()} - {None}
    frame, going_on = sys._getframe().f_back, set[FrameType]()
    while frame is not None:
        going_on.add(frame)
        frame = frame.f_back
    while error is not None:
        trace = error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code in handlers:
                return error
            trace = trace.tb_next
        error = error.__cause__ or error.__context__
        if error is not None and error.__traceback__ is not None and error.__traceback__.tb_frame in going_on:
            return None
    return None


class Guarded:
    """Context that passes our exceptions to ``failed`` instead of the program; not those of its signal handlers.

    It is not a ``contextmanager``: an exception that a generator catches forms a reference cycle with the generator's
    frame, which leads to all frames below, the program's among them. Their tensors would live until Python collects
    garbage.
    """

    def __init__(self, failed: Callable[[Exception], None]) -> None:
        self._failed = failed

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, Exception):
            return False
        let_through(error)
        self._failed(error)
        return True


def _code_of(handler: Any) -> CodeType | None:
    """Return the code of a function, a method, a partial function, or another callable; None if it has none."""
    handler = getattr(handler, "func", handler)
    handler = getattr(handler, "__func__", handler)
    if not hasattr(handler, "__code__") and callable(handler):
        handler = getattr(type(handler).__call__, "__func__", type(handler).__call__)
    return getattr(handler, "__code__", None)


Callback = Callable[[], None]

_callbacks: list[Callback] = []


def watch_for_the_end() -> None:
    """Call the callbacks also at ends of the process that ``atexit`` misses. Called once."""
    leave = os._exit

    def leave_after_callbacks(status: int) -> NoReturn:
        try:
            end()
        finally:
            leave(status)

    os._exit = leave_after_callbacks
    # All other functions of the family call one of these two.
    os.execv = _after_callbacks(os.execv)
    takes_file_descriptors = os.execve in os.supports_fd
    os.execve = _after_callbacks(os.execve)
    if takes_file_descriptors:
        os.supports_fd.add(os.execve)


def at_end(callback: Callback) -> None:
    """Call ``callback`` when this process ends, before those registered earlier. It must not raise.

    If ``os.execv`` does not start its program after all, ``callback`` is called again at the end.

    A process that a signal kills ends without this. A forked child calls the callbacks that its parent registered, so
    each must check whether it has anything to do there.
    """
    _callbacks.append(callback)


def end() -> None:
    """Call the registered callbacks, and forget them.

    Python ends by SIGINT if the last text that it executed was interrupted. Imports of ours execute texts, too, such as
    those of dataclasses, so the last one is interrupted again.
    """
    is_interrupted = getattr(sys, "last_type", None) is KeyboardInterrupt and not hasattr(sys, "ps1")
    while _callbacks:
        _call(_callbacks.pop())
    if is_interrupted:
        with suppress(KeyboardInterrupt):
            exec("raise KeyboardInterrupt")


def _call(callback: Callback) -> None:
    # Exceptions of signal handlers too: a user who presses Ctrl-C again does not want to wait.
    with suppress(BaseException):
        callback()


def _after_callbacks(execute: Callable[..., Any]) -> Callable[..., Any]:
    def execute_after_callbacks(path: Any, *args: Any, **kwargs: Any) -> Any:
        # ``os.execvp`` tries one folder after another.
        if not os.path.exists(path):
            return execute(path, *args, **kwargs)
        for callback in reversed(_callbacks.copy()):
            _call(callback)
        return execute(path, *args, **kwargs)

    execute_after_callbacks.__name__ = execute_after_callbacks.__qualname__ = execute.__name__
    execute_after_callbacks.__doc__ = execute.__doc__
    execute_after_callbacks.__module__ = execute.__module__
    return execute_after_callbacks
