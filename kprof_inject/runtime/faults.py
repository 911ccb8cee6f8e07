"""How failures are told: each in a line, and on the program's stderr only where that can do no harm.

The start-up hook executes this file before the program's own code, so it imports only what every Python process has.
"""

import _signal  # type: ignore[import-not-found]
import os
import sys


def fault_of(error: Exception) -> str:
    """A failure that is ours, and that the program does not see."""
    return f"an internal error in kprof-inject: {type(error).__name__}: {first_line(error)}"


def first_line(error: Exception) -> str:
    """What an error says first: torch's go on with advice."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def say(message: str) -> None:
    """Tell the program's user something on stderr, from inside the program. Never raises.

    It is not said where there is no stderr to say it on: it is closed, full, or a pipe that nobody reads, or another
    file has its descriptor by now."""
    stream = sys.stderr
    try:
        if stream is None or (_is_descriptor_2(stream) and _identity_of_2() != STDERR):
            return
        with _NoBrokenPipe():
            stream.write(f"kprof-inject: {message}\n")
            stream.flush()
    except Exception:  # noqa: BLE001 (the program's own stream, or the disk; the program must go on)
        return


def flush_stderr() -> None:
    """Have what Python keeps back of its stderr written. Never raises."""
    try:
        with _NoBrokenPipe():
            sys.stderr.flush()
    except Exception:  # noqa: BLE001 (there is none, or the program's own stream, or the disk)
        return


def write_stderr(data: bytes) -> None:
    """Pass on to descriptor 2 what was meant for it. Never raises; what it does not take is lost."""
    try:
        with _NoBrokenPipe():
            while data:
                data = data[os.write(2, data) :]
    except OSError:
        return


def _is_descriptor_2(stream: object) -> bool:
    try:
        return bool(stream.fileno() == 2)  # type: ignore[attr-defined]
    except Exception:  # noqa: BLE001 (a stream of the program's own, in memory or anywhere)
        return False


def _identity_of_2() -> "tuple[int, int] | None":
    try:
        found = os.fstat(2)
    except OSError:
        return None
    return found.st_dev, found.st_ino


STDERR = _identity_of_2()
"""The file that this process has as its stderr when this module is executed; None if it has none."""


class _NoBrokenPipe:
    """A pipe that nobody reads is an error for who writes, even if the program has it end the process by SIGPIPE."""

    def __enter__(self) -> None:
        self._before = _signal.pthread_sigmask(_signal.SIG_BLOCK, [_signal.SIGPIPE])
        self._pending = _signal.SIGPIPE in _signal.sigpending()

    def __exit__(self, *_: object) -> None:
        if not self._pending and _signal.SIGPIPE in _signal.sigpending():
            _signal.sigtimedwait([_signal.SIGPIPE], 0)
        _signal.pthread_sigmask(_signal.SIG_SETMASK, self._before)
