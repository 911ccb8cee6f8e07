"""Runs the user's program with the start-up hook in its environment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from kprof_inject.errors import KprofError
from kprof_inject.runtime.inductor import ENVIRONMENT as INDUCTOR_ENVIRONMENT
from kprof_inject.runtime.session import SESSION_VARIABLE, Session
from kprof_inject.workspace import Workspace

_STARTUP_FOLDER = Path(__file__).parent / "startup"


def run_program(command: Sequence[str], session: Session) -> int:
    """Run the program to its end and return its exit code (128 + N if signal N ended it).

    A bare ``prog.py`` is run with the current interpreter. Raises ``KprofError`` if it cannot be started.
    """
    workspace = Workspace(Path(session.workspace))
    session_path = workspace.folder / f"session-{session.step}.json"
    session.write(session_path)
    argv = [sys.executable, *command] if command[0].endswith(".py") else list(command)
    # Ctrl-C reaches the program too, for it shares our terminal: let it end by itself, and then go on.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        process = subprocess.Popen(
            argv,
            env=program_environment(dict(os.environ), session_path, workspace.cache_folder(session.step)),
            preexec_fn=_restore_interrupt,
        )
        status = process.wait()
    except OSError as error:
        raise KprofError(
            f"cannot start {argv[0]}: {error.strerror}", hint="give the program after --, as you run it"
        ) from None
    finally:
        signal.signal(signal.SIGINT, before)
    return status if status >= 0 else 128 - status


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


def _restore_interrupt() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
