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
_MAX_LAST_LINES = 5
_PACKAGE_ROOT = Path(__file__).parents[2]


def own_python(words: Sequence[str], python: str = sys.executable) -> list[str]:
    """Return the command of a Python, ours by default, that imports nothing from the current folder.

    That may be a stranger's, or have a module with the name of one that we need.
    """
    return [python, "-P", *words]


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
    """Child process that runs ``module``, which calls ``serve``.

    The first request starts it, or ``start`` before that, and so does the next request after its end. Use it as a
    context manager, which at its end kills the child and all processes that the child started.
    """

    def __init__(self, module: str) -> None:
        self._module = module
        self.python = sys.executable
        self._folder = tempfile.TemporaryDirectory(prefix="kprof-process-")
        self.folder = Path(self._folder.name)
        self._process: subprocess.Popen[bytes] | None = None
        self.connection: Connection  # to the child, if it was asked
        self.until_s = 0.0  # when the answer is overdue, by ``time.monotonic()``

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
        self.start()
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

    def start(self) -> None:
        """Start the child unless it runs."""
        if self._process is not None:
            return
        # Not forked, because the child must not inherit our threads and locks.
        written = self.folder / "written"
        variables = self.environment()
        # An empty path would be the current folder.
        paths = filter(None, [str(_PACKAGE_ROOT), *variables.get("PYTHONPATH", "").split(os.pathsep)])
        self.connection, theirs = Pipe()
        with theirs, written.open("ab") as log:
            self._process = subprocess.Popen(
                own_python(["-m", self._module, str(written)], self.python),
                # It does not profile itself.
                env={**variables, "PYTHONPATH": os.pathsep.join(paths), "KPROF_INJECT": ""},
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


class CompilerProcess(ChildProcess):
    """Child process for the tasks of Triton's compiler: the installed one, or that in the folder ``triton``.

    It is started again for another target: in Triton 3.5 and 3.6, compiling for one target changes how the process
    compiles for the next.
    """

    def __init__(self, triton: Path | None = None) -> None:
        super().__init__(__name__)
        self._triton = triton
        self._target: object = None

    def environment(self) -> Mapping[str, str]:
        """Return an environment with the folder of ``triton`` first."""
        folders = [str(self._triton.resolve())] if self._triton is not None else []
        return {**os.environ, "PYTHONPATH": os.pathsep.join([*folders, os.environ.get("PYTHONPATH", "")])}

    def ask(self, task: Callable[..., Any], *arguments: Any, time_limit_s: float, target: object = None) -> Any:
        """Run ``task(*arguments, written)`` in the child, and return its result, as ``begin_task`` and ``result``."""
        self.begin_task(task, *arguments, time_limit_s=time_limit_s, target=target)
        return self.result()

    def begin_task(self, task: Callable[..., Any], *arguments: Any, time_limit_s: float, target: object = None) -> None:
        """Begin with ``task(*arguments, written)`` in the child; ``target`` is what it compiles for."""
        if target is not None and target != self._target:
            self.stop()
            self._target = target
        self.begin((task, arguments), time_limit_s)

    def result(self) -> Any:
        """Wait for the task's result. Raises its ``KprofError``, or another one if the child dies or is overdue."""
        try:
            answer = self.answer()
        except ProcessDiedError as error:
            lines = [f"  {line}" for line in [*dict.fromkeys(error.lines)][-_MAX_LAST_LINES:]]
            raise KprofError("\n".join([f"the compiler died ({error.how})", *lines])) from None
        if isinstance(answer, KprofError):
            raise answer
        return answer


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


def _answer_to(request: tuple[Callable[..., Any], tuple[Any, ...]], written: Path) -> Any:
    task, arguments = request
    try:
        return task(*arguments, written)
    except KprofError as error:
        return error
    except Exception as error:  # noqa: BLE001 (after any failure, the caller must get to the other files)
        return KprofError(
            f"{type(error).__name__}: {error}",
            hint="this is a bug in kprof-inject or in this version of Triton; please report it",
        )


if __name__ == "__main__":
    serve(_answer_to)
