"""A child process for Triton to work in: on bad input its compiler may end the process, or never come back."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import signal
import sys
import tempfile
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Protocol

from kprof_inject.errors import KprofError
from kprof_inject.runtime.checking.compiler_messages import last_words


class Request(Protocol):
    """Something to do in the child. ``written`` is the file that all output goes to, empty at first, in a folder for
    temporary files. Raises ``KprofError`` if the compiler refuses."""

    def run(self, written: Path) -> Any: ...


class CompilerProcess:
    """The child, started at the first request, and anew after one that it did not survive.

    Use it as a context manager: at the end the child is gone, and so is whatever it had started."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="kprof-compiler-")
        self._written = Path(self._folder.name, "written")
        self._child: tuple[BaseProcess, Connection] | None = None

    def __enter__(self) -> CompilerProcess:
        return self

    def __exit__(self, *error: object) -> None:
        self._stop()
        self._folder.cleanup()

    def ask(self, request: Request, time_limit_s: float) -> Any:
        """What ``request.run`` returns in the child. Raises what it raises if that is a ``KprofError``, and one of its
        own if the child dies or takes longer than the limit."""
        process, connection = self._child or self._start()
        self._written.write_bytes(b"")
        try:
            connection.send(request)
            if not connection.poll(max(time_limit_s, 0)):
                self._stop()
                raise KprofError("the compiler did not finish in time", hint="give it more: --time-limit SECONDS")
            reply = connection.recv()
        except (EOFError, ConnectionError):
            self._stop()
            raise KprofError(_obituary(process.exitcode, self._written.read_bytes())) from None
        if isinstance(reply, KprofError):
            raise reply
        return reply

    def _start(self) -> tuple[BaseProcess, Connection]:
        # Not forked: the child must have none of our threads and locks.
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs, str(self._written)), daemon=True)
        process.start()
        theirs.close()  # or its end would stay open when the child is gone
        self._child = process, ours
        return self._child

    def _stop(self) -> None:
        if self._child is None:
            return
        process, connection = self._child
        self._child = None
        connection.close()
        # The child leads a group, so that an assembler which it waits for ends with it; unless it has barely begun.
        if process.pid is not None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        process.kill()
        process.join()


def _serve(connection: Connection, written: str) -> None:
    """The child's life: answer requests until the parent hangs up."""
    # Where the parent's stdout is closed, the connection may have its number.
    connection = Connection(fcntl.fcntl(connection.fileno(), fcntl.F_DUPFD_CLOEXEC, 3))
    os.setsid()  # also keeps the terminal's Ctrl-C with the parent, which ends us
    log = os.open(written, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    # What the compiler leaves behind when it dies goes with the parent's folder.
    tempfile.tempdir = os.environ["TMPDIR"] = str(Path(written).parent)
    while True:
        try:
            request = connection.recv()
        except EOFError:
            return
        connection.send(_answer(request, Path(written)))


def _answer(request: Request, written: Path) -> Any:
    try:
        return request.run(written)
    except KprofError as error:
        return error
    except Exception as error:  # noqa: BLE001 (whatever it is, the other files are still to be seen)
        return KprofError(
            f"{type(error).__name__}: {error}",
            hint="this is a fault of kprof-inject or of the version of Triton; please report it",
        )
    finally:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:  # as it is where the parent's is closed
                stream.flush()


def _obituary(exit_code: int | None, written: bytes) -> str:
    how = f"exit code {exit_code}"
    if exit_code is not None and exit_code < 0:
        with suppress(ValueError):
            how = f"signal {signal.Signals(-exit_code).name}"
    return "\n".join([f"the compiler died ({how})", *(f"  {line}" for line in last_words(written))])
