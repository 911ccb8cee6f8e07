"""Child processes of ours that answer requests, one at a time.

On bad input a compiler may end its process, or never return, and so may a kernel.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any, Self

from kprof_inject.errors import KprofError

_ENDING_S = 5.0
_PACKAGE_ROOT = Path(__file__).parents[2]


def own_python(words: Sequence[str], executable: str = "") -> list[str]:
    """Return the command of a Python, ours by default, that imports nothing from the current folder.

    That may be a stranger's, or have a module with the name of one that we need.
    """
    return [executable or sys.executable, "-P", *words]


def finding_this_package(variables: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which Python finds this package first, and no empty path: the current folder."""
    paths = [str(_PACKAGE_ROOT), *variables.get("PYTHONPATH", "").split(os.pathsep)]
    return {**variables, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


class ProcessOverdueError(KprofError):
    """The process did not answer in time, and was killed."""


class ProcessDiedError(KprofError):
    """The process ended without an answer: how, and the lines that it wrote meanwhile."""

    def __init__(self, exit_code: int, written: str) -> None:
        names = {int(number): number.name for number in signal.Signals}
        self.how = f"exit code {exit_code}" if exit_code >= 0 else f"signal {names.get(-exit_code, -exit_code)}"
        super().__init__(f"the process ended with {self.how}")
        self.lines = [line.rstrip() for line in written.splitlines() if line.strip()]


class ChildProcess:
    """Child process that runs ``module``, which calls ``serve``, with ``python`` or ours.

    The first request starts it, and so does the next one after its end. Use it as a context manager, which at its end
    kills the child and all processes that the child started.
    """

    def __init__(self, module: str, python: str = "") -> None:
        self._command = module, python
        self._folder = tempfile.TemporaryDirectory(prefix="kprof-process-")
        self.folder = Path(self._folder.name)
        self._process: subprocess.Popen[bytes] | None = None
        self.connection: Connection
        """To the child, if it was asked."""
        self.until_s = 0.0
        """When the answer is overdue, by ``time.monotonic()``."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()
        self._folder.cleanup()

    def environment(self) -> Mapping[str, str]:
        """Return the child's environment."""
        return os.environ

    @property
    def is_due(self) -> bool:
        """True if the child, which was asked, answered, ended, or is overdue."""
        return self.connection.poll() or time.monotonic() >= self.until_s

    def begin(self, request: Any, time_limit_s: float) -> None:
        """Send a request to the child, which has no other."""
        if self._process is None:
            self._process = self._started()
        (self.folder / "written").write_bytes(b"")
        self.until_s = time.monotonic() + time_limit_s
        with suppress(ConnectionError):  # it died: there is no answer
            self.connection.send(request)

    def answer(self) -> Any:
        """Wait for the answer to the request. Raises ``ProcessOverdueError``, ``ProcessDiedError``."""
        try:
            if self.connection.poll(max(self.until_s - time.monotonic(), 0)):
                return self.connection.recv()
        except (EOFError, ConnectionError):
            exit_code = self.stop(_ENDING_S)
            written = (self.folder / "written").read_bytes().decode(errors="replace")
            raise ProcessDiedError(exit_code, written) from None
        self.stop()
        raise ProcessOverdueError("the compiler did not finish in time", hint="raise --time-limit SECONDS")

    def _started(self) -> subprocess.Popen[bytes]:
        # Not forked, because the child must not inherit our threads and locks.
        written = self.folder / "written"
        module, python = self._command
        self.connection, theirs = Pipe()
        with theirs, written.open("ab") as log:
            return subprocess.Popen(
                own_python(["-m", module, str(written)], python),
                env={**finding_this_package(self.environment()), "KPROF_INJECT": ""},  # it does not profile itself
                stdin=theirs.fileno(),
                stdout=log,
                stderr=log,
                start_new_session=True,  # leads a group, so that an assembler that it waits for ends with it
            )

    def stop(self, after_s: float = 0.0) -> int:
        """Kill the child, unless it ends within ``after_s``, and return its exit code."""
        process, self._process = self._process, None
        if process is None:
            return 0
        self.connection.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(after_s)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        return process.wait()


def wait_for(processes: Sequence[ChildProcess], until_s: float) -> list[ChildProcess]:
    """Wait until an answer of a process is due, or until ``until_s``; return the processes whose answers are due.

    All have been asked.
    """
    first_s = min([until_s, *(process.until_s for process in processes)])
    wait([process.connection for process in processes], max(first_s - time.monotonic(), 0))
    return [process for process in processes if process.is_due]


def serve(answer_to: Callable[[Any, Path], Any]) -> None:
    """Answer requests in the child until the parent closes the connection, which is stdin.

    ``answer_to`` is also given the file that all output goes to, empty at first, in a folder for temporary files.
    """
    written = Path(sys.argv[1])
    connection = Connection(os.dup(sys.stdin.fileno()))
    with open(os.devnull) as nothing:  # for the assembler
        os.dup2(nothing.fileno(), sys.stdin.fileno())
    # The parent removes this folder, including what a dying compiler leaves there.
    tempfile.tempdir = os.environ["TMPDIR"] = str(written.parent)
    while True:
        try:
            request = connection.recv()
        except EOFError:
            return
        answer = answer_to(request, written)
        sys.stdout.flush()
        sys.stderr.flush()
        connection.send(answer)
