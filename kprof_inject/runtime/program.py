"""Runs the user's program with the start-up hook in its environment, and gives each run of it the same stdin."""

from __future__ import annotations

import errno
import os
import re
import select
import shlex
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import IO, Protocol

from kprof_inject.errors import KprofError
from kprof_inject.runtime.hook import ENVIRONMENT as INDUCTOR_ENVIRONMENT
from kprof_inject.runtime.session import SESSION_VARIABLE, Session
from kprof_inject.workspace_paths import is_workspace

MAX_KEPT_BYTES = 1 << 30
"""How much of a pipe is kept for the next run."""

_STDIN = 0
_CHUNK_BYTES = 1 << 16


class ProgramInput(Protocol):
    """The stdin of one run after the other. Whether it is a terminal, a file, a pipe or closed is in each run what it
    is without us."""

    @property
    def refusal(self) -> str:
        """Why the next run would not get what the first one got; empty if it will."""

    def for_a_run(self) -> AbstractContextManager[int | None]:
        """While a run lasts: the file descriptor that it has for stdin, or None for ours."""


def own_input() -> ProgramInput:
    """For a program that is run once: ours."""
    return _OwnInput()


def kept_input(folder: Path) -> ProgramInput:
    """For a program that is run more than once.

    A terminal, a device or a closed stdin is the same for each run, and a file is rewound. What comes by a pipe is
    copied to disk on its way: the next run gets that first, and then what is still to come. What has to be
    kept is kept in ``folder``, in a file without a name."""
    try:
        mode = os.fstat(_STDIN).st_mode
    except OSError:  # it is closed
        return _OwnInput()
    if stat.S_ISREG(mode) or stat.S_ISBLK(mode):
        return _RewoundInput()
    if stat.S_ISFIFO(mode) or (stat.S_ISSOCK(mode) and _is_connected_stream()):
        return _CopiedInput(folder, stat.S_ISSOCK(mode))
    return _OwnInput()


def _is_connected_stream() -> bool:
    with socket.socket(fileno=os.dup(_STDIN)) as ours:
        return ours.type == socket.SOCK_STREAM and not ours.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)


class _OwnInput:
    refusal = ""

    @contextmanager
    def for_a_run(self) -> Iterator[None]:
        yield


class _RewoundInput:
    refusal = ""

    def __init__(self) -> None:
        self._offset = os.lseek(_STDIN, 0, os.SEEK_CUR)

    @contextmanager
    def for_a_run(self) -> Iterator[None]:
        os.lseek(_STDIN, self._offset, os.SEEK_SET)
        yield


class _CopiedInput:
    """Each run has a pipe (or socket) of its own. A thread writes to it as long as there is room in it."""

    def __init__(self, folder: Path, is_socket: bool) -> None:
        self.refusal = ""
        self._folder = folder
        self._is_socket = is_socket
        self._kept: IO[bytes] | None = None
        self._kept_bytes = 0
        self._ended = False

    @contextmanager
    def for_a_run(self) -> Iterator[int]:
        with ExitStack() as files:
            theirs, ours = self._connection()
            files.callback(os.close, theirs)
            stopped, stop = os.pipe()
            files.callback(os.close, stopped)
            feeder = threading.Thread(target=self._feed, args=(ours, stopped), daemon=True)
            feeder.start()
            try:
                yield theirs
            finally:
                os.close(stop)
                feeder.join()

    def _connection(self) -> tuple[int, int]:
        """The program's end, and ours, which does not wait."""
        if self._is_socket:
            theirs, ours = (end.detach() for end in socket.socketpair())
        else:
            theirs, ours = os.pipe()
        os.set_blocking(ours, False)
        return theirs, ours

    def _feed(self, sink: int, stopped: int) -> None:
        """Write to ``sink`` what was kept, then what comes, until there is no more, or the run is over."""
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # they are for the main thread
        fed_bytes = 0
        data = memoryview(b"")
        try:
            while True:
                if not data and fed_bytes < self._kept_bytes and self._kept is not None:
                    data = memoryview(os.pread(self._kept.fileno(), _CHUNK_BYTES, fed_bytes))
                if not data and self._ended:
                    return
                place, event = (sink, select.POLLOUT) if data else (_STDIN, select.POLLIN)
                if _is_stopped(stopped, place, event):
                    return
                if data:
                    written = os.write(sink, data)
                    fed_bytes += written
                    data = data[written:]
                else:
                    data = memoryview(self._take())
        except OSError:  # nobody reads any more
            return
        finally:
            os.close(sink)

    def _take(self) -> bytes:
        """The next of what comes, which is kept. Empty at its end."""
        try:
            data = os.read(_STDIN, _CHUNK_BYTES)
        except BlockingIOError:  # somebody else has read it, too
            return b""
        except OSError:
            data = b""
        self._ended = not data
        if not self.refusal:
            self._keep(data)
        return data

    def _keep(self, data: bytes) -> None:
        if self._kept_bytes + len(data) > MAX_KEPT_BYTES:
            self._keep_nothing(f"it read more than {MAX_KEPT_BYTES} bytes from stdin, which is too much to keep")
            return
        try:
            if self._kept is None:
                self._kept = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115 (it outlasts the run)
            self._kept.write(data)
            self._kept.flush()
            self._kept_bytes += len(data)
        except OSError as error:
            self._keep_nothing(f"its stdin could not be kept: {error.strerror}")

    def _keep_nothing(self, refusal: str) -> None:
        self.refusal = refusal
        self._kept_bytes = 0
        if self._kept is not None:
            self._kept.close()
            self._kept = None


def _is_stopped(stopped: int, place: int, event: int) -> bool:
    """Wait for ``event`` at ``place``; True if the run is over instead."""
    waiting = select.poll()
    waiting.register(stopped, select.POLLIN)
    waiting.register(place, event)
    return stopped in dict(waiting.poll())


_STARTUP_FOLDER = Path(__file__).parent / "startup"

_PASSED_ON = (signal.SIGTERM, signal.SIGHUP)
"""Signals that we are sent to have the program ended."""

STOPPED = frozenset(128 + number for number in (signal.SIGINT, *_PASSED_ON))
"""Exit codes of a program that somebody stopped: it is not to be started again."""


def is_run_by_us(command: Sequence[str]) -> bool:
    """Whether it is a bare ``prog.py``: the interpreter is then ours, and not one that the user named."""
    return command[0].endswith(".py")


def require_startable(command: Sequence[str]) -> None:
    """Raise ``KprofError`` for a program that is not there: before anything is done for it."""
    program = command[0]
    if os.path.isdir(program):
        raise _cannot_start(command, os.strerror(errno.EACCES))
    if not os.path.lexists(program) and (is_run_by_us(command) or shutil.which(program) is None):
        raise _cannot_start(command, os.strerror(errno.ENOENT))


def _cannot_start(command: Sequence[str], reason: str | None) -> KprofError:
    return KprofError(f"cannot start {command[0]}: {reason}", hint=_as_it_would_be_run(command))


_USUAL_HINT = "put the program after --, as you would run it"


def _as_it_would_be_run(command: Sequence[str]) -> str:
    """What to write instead of a command that cannot be started."""
    if is_workspace(Path(command[0])):
        return f"name the workspace before the program: -o {shlex.quote(command[0])} -- PROG"
    if re.match(r"\w+=", command[0]):
        return f"a shell sets variables, so do it before kprof-inject, or write: -- env {shlex.join(command)}"
    try:
        words = shlex.split(command[0])
    except ValueError:
        return _USUAL_HINT
    if len(words) > 1 and (os.path.isfile(words[0]) or shutil.which(words[0])):
        return f"leave out the quotes: -- {shlex.join([*words, *command[1:]])}"
    return _USUAL_HINT


def run_program(command: Sequence[str], session: Session, cache: Path, program_input: ProgramInput) -> int:
    """Run the program to its end and return its exit code: 128 + N if signal N ended it, or stopped us meanwhile.

    A bare ``prog.py`` is run with the current interpreter. Every path in its environment is absolute, since the program
    may change its folder. Raises ``KprofError`` if it cannot be started.
    """
    session.write()
    argv = [sys.executable, *command] if is_run_by_us(command) else list(command)
    environment = program_environment(dict(os.environ), session.path, cache.resolve())
    with program_input.for_a_run() as stdin, _passing_signals_on() as signals:
        try:
            process = subprocess.Popen(argv, env=environment, stdin=stdin)
        except OSError as error:
            raise _cannot_start(argv, error.strerror) from None
        signals.pass_to(process)
        status = process.wait()
    if signals.received:
        return 128 + signals.received[0]
    return status if status >= 0 else 128 - status


class _Signals:
    """What we are sent while the program runs. Handlers are not inherited by the program: it begins with the signals
    as they were for us, and those that our caller ignores (``nohup``) stay ignored."""

    def __init__(self) -> None:
        self.received: list[int] = []
        self._process: subprocess.Popen[bytes] | None = None

    def pass_to(self, process: subprocess.Popen[bytes]) -> None:
        """Have ``process`` get all of them, those too that have come."""
        self._process = process
        for number in self.received:
            process.send_signal(number)

    def handle(self, number: int, _: FrameType | None) -> None:
        self.received.append(number)
        if self._process is not None:
            self._process.send_signal(number)


@contextmanager
def _passing_signals_on() -> Iterator[_Signals]:
    signals = _Signals()
    # A terminal sends Ctrl-C to the program too: let it end by itself, and then go on.
    handlers = {signal.SIGINT: _do_nothing, **dict.fromkeys(_PASSED_ON, signals.handle)}
    before = {number: signal.getsignal(number) for number in handlers}
    changed = {number: handler for number, handler in handlers.items() if before[number] != signal.SIG_IGN}
    for number, handler in changed.items():
        signal.signal(number, handler)
    try:
        yield signals
    finally:
        for number in changed:
            signal.signal(number, before[number])


def _do_nothing(number: int, _: FrameType | None) -> None:
    pass


def program_environment(inherited: dict[str, str], session_path: Path, cache: Path) -> dict[str, str]:
    """The program's environment: the hook first on its path, and caches of our own.

    ``TRITON_HOME`` moves every default folder of Triton's away from the user's home.
    """
    paths = [str(_STARTUP_FOLDER), inherited.get("PYTHONPATH", "")]
    return {
        **inherited,
        SESSION_VARIABLE: str(session_path),
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        "TRITON_HOME": str(cache),
        "TRITON_CACHE_DIR": str(cache / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"),
        "TRITON_STORE_BINARY_ONLY": "0",  # without the TTGIR there is nothing to dump
        **INDUCTOR_ENVIRONMENT,
    }
