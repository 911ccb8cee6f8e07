"""Report failures, each in one line, and on the program's stderr only if that can do no harm.

The start-up hook executes this file before the program's own code, so it imports only what every Python process has.
"""

import _signal  # type: ignore[import-not-found]
import os
import sys


def fault_of(error: Exception) -> str:
    """Describe one of our own failures, which the program does not see."""
    return f"an internal error in kprof-inject: {type(error).__name__}: {first_line(error)}"


def first_line(error: Exception) -> str:
    """Return the first line of an error; torch's errors continue with advice."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def say(message: str) -> None:
    """Print a message for the program's user on stderr, from inside the program. Never raises.

    Nothing is printed if stderr is closed or full, is a pipe without a reader, or if its descriptor now belongs to
    another file.
    """
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
    """Flush Python's buffer of stderr. Never raises."""
    try:
        with _NoBrokenPipe():
            sys.stderr.flush()
    except Exception:  # noqa: BLE001 (there is none, or the program's own stream, or the disk)
        return


def write_stderr(data: bytes) -> None:
    """Write bytes to descriptor 2. Never raises; bytes that cannot be written are lost."""
    try:
        with _NoBrokenPipe():
            while data:
                data = data[os.write(2, data) :]
    except OSError:
        return


def _is_descriptor_2(stream: object) -> bool:
    try:
        return bool(stream.fileno() == 2)  # type: ignore[attr-defined]
    except Exception:  # noqa: BLE001 (the program's own stream, of any kind)
        return False


def _identity_of_2() -> "tuple[int, int] | None":
    try:
        found = os.fstat(2)
    except OSError:
        return None
    return found.st_dev, found.st_ino


STDERR = _identity_of_2()
"""Identity of the file that is stderr when this module is executed; None if there is no stderr."""


class _NoBrokenPipe:
    """Context in which writing to a pipe without a reader is an error, even if SIGPIPE would end the program."""

    def __enter__(self) -> None:
        self._before = _signal.pthread_sigmask(_signal.SIG_BLOCK, [_signal.SIGPIPE])
        self._pending = _signal.SIGPIPE in _signal.sigpending()

    def __exit__(self, *_: object) -> None:
        if not self._pending and _signal.SIGPIPE in _signal.sigpending():
            _signal.sigtimedwait([_signal.SIGPIPE], 0)
        _signal.pthread_sigmask(_signal.SIG_SETMASK, self._before)
