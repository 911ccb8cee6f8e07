"""Run the user's program with the start-up hook in its environment."""

from __future__ import annotations

import array
import errno
import fcntl
import os
import re
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from kprof_inject.errors import KprofError
from kprof_inject.runtime.session import SESSION_VARIABLE, Session
from kprof_inject.workspace_folder import is_workspace

_STDIN = 0


class ProgramInput:
    """Our stdin, which each run of the program inherits; a file is rewound to where it was.

    ``refusal`` is the reason why a second run would not get the same input as the first; empty if it will. An empty
    pipe, such as the stdin of a job or an agent, is no reason.
    """

    refusal = ""

    def __init__(self) -> None:
        self._offset: int | None = None
        try:
            mode = os.fstat(_STDIN).st_mode
            if stat.S_ISREG(mode) or stat.S_ISBLK(mode):
                self._offset = os.lseek(_STDIN, 0, os.SEEK_CUR)
            elif stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
                waiting_bytes = array.array("i", [0])
                fcntl.ioctl(_STDIN, termios.FIONREAD, waiting_bytes)
                if waiting_bytes[0]:
                    self.refusal = "its stdin is a pipe with input, which can be read only once"
        except OSError:  # it is closed, or a socket without a connection
            return

    def rewind(self) -> None:
        """Have the next run read a file from where the first began."""
        if self._offset is not None:
            os.lseek(_STDIN, self._offset, os.SEEK_SET)


_STARTUP_FOLDER = Path(__file__).parent / "startup"

_PASSED_ON = (signal.SIGTERM, signal.SIGHUP)  # signals to us that ask to end the program, which we pass on to it

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
    try:
        words = shlex.split(command[0])
    except ValueError:
        words = []
    if is_workspace(Path(command[0])):
        hint = f"name the workspace before the program: -o {shlex.quote(command[0])} -- PROG"
    elif re.match(r"\w+=", command[0]):
        hint = f"a shell sets variables, so do it before kprof-inject, or write: -- env {shlex.join(command)}"
    elif len(words) > 1 and (os.path.isfile(words[0]) or shutil.which(words[0])):
        hint = f"leave out the quotes: -- {shlex.join([*words, *command[1:]])}"
    else:
        hint = "put the program after --, as you would run it"
    return KprofError(f"cannot start {command[0]}: {reason}", hint=hint)


def run_program(command: Sequence[str], session: Session, cache: Path, program_input: ProgramInput) -> int:
    """Run the program to its end and return its exit code: 128 + N if signal N ended it, or stopped us meanwhile.

    A bare ``prog.py`` runs with the current interpreter, and ``./prog.py`` with the options of its first line. Every
    path in its environment is absolute, because the program may change its folder. Raises ``KprofError`` if it cannot
    be started.
    """
    session.write()
    argv = [sys.executable, *_shebang_options(command[0]), *command] if is_run_by_us(command) else list(command)
    environment = program_environment(dict(os.environ), session.path, cache.resolve())
    received: list[int] = []
    process: subprocess.Popen[bytes] | None = None

    def pass_on(number: int, _: FrameType | None) -> None:
        received.append(number)
        if process is not None:
            process.send_signal(number)

    program_input.rewind()
    # A terminal sends Ctrl-C to the program too: it ends by itself, and then we go on.
    with handling({signal.SIGINT: lambda *_: None, **dict.fromkeys(_PASSED_ON, pass_on)}):
        try:
            process = subprocess.Popen(argv, env=environment)
        except OSError as error:
            raise _cannot_start(argv, error.strerror) from None
        for number in received:  # before it had started
            process.send_signal(number)
        status = process.wait()
    if received:
        return 128 + received[0]
    return status if status >= 0 else 128 - status


_SHEBANG = re.compile(rb"#![^\n]*\bpython[\d.]*((?:[ \t]+-[A-Za-z]\S*)+)[ \t\r]*\n")


def _shebang_options(script: str) -> list[str]:
    """Return Python's options in the first line of a script that could be run without naming Python."""
    try:
        if os.sep not in script or not os.access(script, os.X_OK):
            return []
        with open(script, "rb") as file:
            found = _SHEBANG.match(file.readline(1 << 16))
    except OSError:
        return []
    return found[1].decode(errors="surrogateescape").split() if found else []


@contextmanager
def handling(handlers: Mapping[int, Callable[[int, FrameType | None], None]]) -> Iterator[None]:
    """Handle signals in this context, except those that our caller ignores (``nohup``).

    A program does not inherit the handlers: it begins with the dispositions that we began with.
    """
    before = {number: signal.getsignal(number) for number in handlers}
    changed = [number for number in handlers if before[number] != signal.SIG_IGN]
    for number in changed:
        signal.signal(number, handlers[number])
    try:
        yield
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


INDUCTOR_ENVIRONMENT = {
    # A kernel compiled by a worker process arrives as a pickle, without a launcher for its records.
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
    # Inductor's static launcher uses neither Triton's launcher nor its profile buffer.
    "TORCHINDUCTOR_USE_STATIC_CUDA_LAUNCHER": "0",
}
"""Variables that have Inductor compile in the program's own process, and launch through Triton."""


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
