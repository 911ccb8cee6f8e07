"""Run the user's program with the start-up hook in its environment, and give each run the same stdin."""

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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import IO

from kprof_inject.errors import KprofError
from kprof_inject.quantities import size_text
from kprof_inject.runtime.inductor import ENVIRONMENT as INDUCTOR_ENVIRONMENT
from kprof_inject.runtime.session import SESSION_VARIABLE, Session
from kprof_inject.workspace_folder import is_workspace

MAX_KEPT_BYTES = 1 << 30
"""Maximum size of piped input that is kept for the next run."""

_STDIN = 0
_CHUNK_BYTES = 1 << 16


class ProgramInput:
    """The stdin of the program's runs, each of the same kind as without us: a terminal, a file, a pipe, or closed.

    This base class is our own stdin, for a program that runs once. ``refusal`` is the reason why the next run would not
    get the same input as the first; empty if it will.
    """

    refusal = ""

    def for_run(self) -> AbstractContextManager[int | None]:
        """Return a context for one run, with its file descriptor for stdin, or None to inherit ours."""
        return nullcontext()


def kept_input(folder: Path) -> ProgramInput:
    """Return the input of a program that runs more than once.

    A terminal, a device or a closed stdin is the same for each run, and a file is rewound. Piped input is copied to
    disk as the program reads it: the next run gets the copy first, and then the rest of the pipe. The copy is in an
    unnamed file in ``folder``.
    """
    try:
        mode = os.fstat(_STDIN).st_mode
    except OSError:  # it is closed
        return ProgramInput()
    if stat.S_ISREG(mode) or stat.S_ISBLK(mode):
        return _RewoundInput()
    if stat.S_ISFIFO(mode) or (stat.S_ISSOCK(mode) and _is_connected_stream()):
        return _CopiedInput(folder, stat.S_ISSOCK(mode))
    return ProgramInput()


def _is_connected_stream() -> bool:
    with socket.socket(fileno=os.dup(_STDIN)) as ours:
        return ours.type == socket.SOCK_STREAM and not ours.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)


class _RewoundInput(ProgramInput):
    def __init__(self) -> None:
        self._offset = os.lseek(_STDIN, 0, os.SEEK_CUR)

    def for_run(self) -> AbstractContextManager[None]:
        os.lseek(_STDIN, self._offset, os.SEEK_SET)
        return nullcontext()


class _CopiedInput(ProgramInput):
    """Piped input: each run has a pipe (or socket) of its own, and a thread writes to it while it has room."""

    def __init__(self, folder: Path, is_socket: bool) -> None:
        self._folder = folder
        self._is_socket = is_socket
        self._kept: IO[bytes] | None = None
        self._kept_bytes = 0
        self._ended = False

    @contextmanager
    def for_run(self) -> Iterator[int]:
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
        if self._is_socket:
            theirs, ours = (end.detach() for end in socket.socketpair())
        else:
            theirs, ours = os.pipe()
        os.set_blocking(ours, False)
        return theirs, ours

    def _feed(self, sink: int, stopped: int) -> None:
        """Write the kept input to ``sink``, then new input, until the input or the run ends."""
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
        except OSError:  # the program has closed its end
            return
        finally:
            os.close(sink)

    def _take(self) -> bytes:
        """Read and keep the next input; return nothing at its end."""
        try:
            data = os.read(_STDIN, _CHUNK_BYTES)
        except BlockingIOError:  # another reader of the same pipe was faster
            return b""
        except OSError:
            data = b""
        self._ended = not data
        if not self.refusal:
            self._keep(data)
        return data

    def _keep(self, data: bytes) -> None:
        if self._kept_bytes + len(data) > MAX_KEPT_BYTES:
            self._stop_keeping(f"it read more than {size_text(MAX_KEPT_BYTES)} from stdin, which is too much to keep")
            return
        try:
            if self._kept is None:
                self._kept = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115 (it outlasts the run)
            self._kept.write(data)
            self._kept.flush()
            self._kept_bytes += len(data)
        except OSError as error:
            self._stop_keeping(f"kprof-inject cannot keep its stdin: {error.strerror}")

    def _stop_keeping(self, refusal: str) -> None:
        self.refusal = refusal
        self._kept_bytes = 0
        if self._kept is not None:
            self._kept.close()
            self._kept = None


def _is_stopped(stopped: int, place: int, event: int) -> bool:
    """Wait for ``event`` on descriptor ``place``; return True if the run ends first."""
    waiting = select.poll()
    waiting.register(stopped, select.POLLIN)
    waiting.register(place, event)
    return stopped in dict(waiting.poll())


_STARTUP_FOLDER = Path(__file__).parent / "startup"

_PASSED_ON = (signal.SIGTERM, signal.SIGHUP)
"""Signals to us that ask to end the program, which we pass on to it."""

STOPPED = frozenset(128 + number for number in (signal.SIGINT, *_PASSED_ON))
"""Exit codes of a program that a signal stopped: it must not be started again."""


def is_run_by_us(command: Sequence[str]) -> bool:
    """Return whether the command is a bare ``prog.py``, which runs with our interpreter."""
    return command[0].endswith(".py")


def require_startable(command: Sequence[str]) -> None:
    """Raise ``KprofError`` for a program that does not exist, before any work is done for it."""
    program = command[0]
    if os.path.isdir(program):
        raise _cannot_start(command, os.strerror(errno.EACCES))
    if not os.path.lexists(program) and (is_run_by_us(command) or shutil.which(program) is None):
        raise _cannot_start(command, os.strerror(errno.ENOENT))


def _cannot_start(command: Sequence[str], reason: str | None) -> KprofError:
    return KprofError(f"cannot start {command[0]}: {reason}", hint=_start_hint(command))


_USUAL_HINT = "put the program after --, as you would run it"


def _start_hint(command: Sequence[str]) -> str:
    """Return what to write instead of a command that cannot be started."""
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

    A bare ``prog.py`` runs with the current interpreter, and ``./prog.py`` with the options of its first line. Every
    path in its environment is absolute, because the program may change its folder. Raises ``KprofError`` if it cannot
    be started.
    """
    session.write()
    argv = [sys.executable, *_shebang_options(command[0]), *command] if is_run_by_us(command) else list(command)
    environment = program_environment(dict(os.environ), session.path, cache.resolve())
    with program_input.for_run() as stdin, _passing_signals_on() as signals:
        try:
            process = subprocess.Popen(argv, env=environment, stdin=stdin)
        except OSError as error:
            raise _cannot_start(argv, error.strerror) from None
        signals.pass_to(process)
        status = process.wait()
    if signals.received:
        return 128 + signals.received[0]
    return status if status >= 0 else 128 - status


_SHEBANG = re.compile(rb"#![^\n]*\bpython[\d.]*((?:[ \t]+-[A-Za-z]\S*)+)[ \t\r]*\n")


def _shebang_options(script: str) -> list[str]:
    """Return Python's options in the first line of a script that could be run without naming Python."""
    try:
        if os.sep not in script or not os.access(script, os.X_OK):
            return []
        with open(script, "rb") as file:
            found = _SHEBANG.match(file.readline(_CHUNK_BYTES))
    except OSError:
        return []
    return found[1].decode(errors="surrogateescape").split() if found else []


class _Signals:
    """Signals that we receive while the program runs.

    The program does not inherit the handlers. It begins with the dispositions that we began with, and signals that our
    caller ignores (``nohup``) stay ignored.
    """

    def __init__(self) -> None:
        self.received: list[int] = []
        self._process: subprocess.Popen[bytes] | None = None

    def pass_to(self, process: subprocess.Popen[bytes]) -> None:
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
    # A terminal sends Ctrl-C to the program too: it ends by itself, and then we go on.
    handlers = {signal.SIGINT: lambda *_: None, **dict.fromkeys(_PASSED_ON, signals.handle)}
    before = {number: signal.getsignal(number) for number in handlers}
    changed = {number: handler for number, handler in handlers.items() if before[number] != signal.SIG_IGN}
    for number, handler in changed.items():
        signal.signal(number, handler)
    try:
        yield signals
    finally:
        for number in changed:
            signal.signal(number, before[number])


_REMOVED_VARIABLES = (
    SESSION_VARIABLE,
    "TRITON_KERNEL_OVERRIDE",
    "TRITON_OVERRIDE_DIR",
    "TRITON_KERNEL_DUMP",
    "TRITON_DUMP_DIR",
)
"""Variables that make Triton replace kernels, or write outside of the workspace. The others decide how it compiles, and
stay.
"""


def process_environment(inherited: Mapping[str, str], cache: Path) -> dict[str, str]:
    """Return the environment of a process of ours that uses Triton, whose caches are in ``cache``."""
    kept = {name: value for name, value in inherited.items() if name not in _REMOVED_VARIABLES}
    cache = cache.resolve()
    return {**kept, "TRITON_HOME": str(cache), "TRITON_CACHE_DIR": str(cache / "triton")}


def programs_triton_cache(environment: Mapping[str, str]) -> Path:
    """Return the folder where Triton caches in a program with these variables, which begins in the current folder."""
    home = environment.get("TRITON_HOME") or os.path.expanduser("~")
    return Path(os.path.abspath(environment.get("TRITON_CACHE_DIR") or os.path.join(home, ".triton", "cache")))


def program_environment(inherited: dict[str, str], session_path: Path, cache: Path) -> dict[str, str]:
    """Return the program's environment: the hook is first on PYTHONPATH, and the caches are our own.

    ``TRITON_HOME`` moves all default folders of Triton out of the user's home.
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
