"""Runs the user's program with the start-up hook in its environment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from kprof_inject.errors import KprofError
from kprof_inject.runtime.inductor import ENVIRONMENT as INDUCTOR_ENVIRONMENT
from kprof_inject.runtime.program_input import ProgramInput
from kprof_inject.runtime.session import SESSION_VARIABLE, Session

_STARTUP_FOLDER = Path(__file__).parent / "startup"

_PASSED_ON = (signal.SIGTERM, signal.SIGHUP)
"""Signals that we are sent to have the program ended."""

STOPPED = frozenset(128 + number for number in (signal.SIGINT, *_PASSED_ON))
"""Exit codes of a program that somebody stopped: it is not to be started again."""


def is_run_by_us(command: Sequence[str]) -> bool:
    """Whether it is a bare ``prog.py``: the interpreter is then ours, and not one that the user named."""
    return command[0].endswith(".py")


def run_program(command: Sequence[str], session: Session, cache: Path, program_input: ProgramInput) -> int:
    """Run the program to its end and return its exit code: 128 + N if signal N ended it, or stopped us meanwhile.

    A bare ``prog.py`` is run with the current interpreter. Raises ``KprofError`` if it cannot be started.
    """
    session.write()
    argv = [sys.executable, *command] if is_run_by_us(command) else list(command)
    environment = program_environment(dict(os.environ), session.path, cache)
    with program_input.for_a_run() as stdin, _passing_signals_on() as signals:
        try:
            process = subprocess.Popen(argv, env=environment, stdin=stdin)
        except OSError as error:
            raise KprofError(
                f"cannot start {argv[0]}: {error.strerror}", hint="give the program after --, as you run it"
            ) from None
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
