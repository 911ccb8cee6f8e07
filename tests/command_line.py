"""``kprof-inject`` as a child process."""

from __future__ import annotations

import importlib
import os
import pkgutil
import re
import select
import signal
import sys
import tempfile
import traceback
from contextlib import suppress
from pathlib import Path
from typing import IO, NoReturn

from planning import plan_of
from programs.child import GUARD_S, SMALL_TORCH, Ended, clean_environment, python_path, run_child

import kprof_inject.cli
from kprof_inject.cli.main import main

REAL_TORCH = {"PYTHONPATH": python_path()}
_SMALL_TORCH = python_path(SMALL_TORCH)
# What commands import, and the grammars, are made once.
for module in pkgutil.iter_modules(kprof_inject.cli.__path__, "kprof_inject.cli."):
    importlib.import_module(module.name)
plan_of('module {\n  tt.func public @k() {\n    tt.return loc("k.py":1:1)\n  }\n}\n', "line(1)")

# What it finds out about its own process, a fork of this one would not show.
_ALONE = {"doctor"}
_READ_AT_START = ("PYTHON", "LANG", "LC_")


class CommandLine:
    """Runs ``kprof-inject`` with ``folder`` as its working directory, and with an empty home in it.

    It is a fork of this process, which has imported already what takes most of a command's time. Where a variable in
    ``env`` is one that Python reads at its start, it is a process from scratch.

    Programs that it starts find modules in ``path``. By default that has a small torch, for they only compile; with
    ``REAL_TORCH`` as ``env`` they do not."""

    def __init__(self, folder: Path, path: str = _SMALL_TORCH) -> None:
        self.folder = folder
        self._environment = {"PYTHONPATH": path}

    def __call__(self, *arguments: str | Path, stdin: bytes = b"", env: dict[str, str] | None = None) -> Ended:
        words = [str(word) for word in arguments]
        environment = {**self._environment, **(env or {})}
        read_at_start = env != REAL_TORCH and any(name.startswith(_READ_AT_START) for name in env or ())
        if not _ALONE.intersection(words) and not read_at_start:
            return forked(words, self.folder, environment, stdin)
        command = [sys.executable, "-m", "kprof_inject", *words]
        return run_child(command, self.folder, stdin=stdin, env=environment)

    def read(self, name: str) -> str:
        """A file's text, line ends as they are."""
        return (self.folder / name).read_bytes().decode()

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_bytes(text.encode())


def diagnosis(ended: Ended) -> str:
    """Return an error and its hint, without what the program said before."""
    lines = ended.stderr.splitlines()
    (begin,) = [number for number, line in enumerate(lines) if line.startswith("error: ")]
    return "\n".join(lines[begin:])


def without_sizes(messages: str) -> str:
    """Return messages with the sizes of files replaced, which any change of a format changes."""
    return re.sub(r"\b[\d.]+ ([kMG]?B|bytes)\b", "SIZE", messages)


def forked(
    arguments: list[str], folder: Path, settings: dict[str, str], stdin: bytes = b"", in_one: bool = False
) -> Ended:
    """Run a command in a fork of this process; ``in_one`` has stderr in stdout, as a terminal shows both."""
    environment = {**clean_environment(folder), **settings}
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        theirs, ours = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(ours)
            _become(arguments, folder, environment, (theirs, stdout, stdout if in_one else stderr))
        os.close(theirs)
        exit_code = _exit_code_of(pid, ours, stdin)
        return Ended(exit_code, _text(stdout), _text(stderr))


def _become(
    arguments: list[str], folder: Path, environment: dict[str, str], streams: tuple[int, IO[bytes], IO[bytes]]
) -> NoReturn:
    """Go on as the program that a shell would start."""
    exit_code: object = 1
    try:
        # Of its own, so that a program may send a signal to its whole group as a terminal does.
        os.setsid()
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        stdin, stdout, stderr = streams
        for number, descriptor in enumerate((stdin, stdout.fileno(), stderr.fileno())):
            os.dup2(descriptor, number)
        os.close(stdin)
        sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
        sys.stderr = os.fdopen(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        sys.argv = ["kprof-inject", *arguments]
        main()
    except SystemExit as ended:
        exit_code = ended.code
    except BaseException:  # noqa: BLE001 - it would go on as a second pytest
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(exit_code if isinstance(exit_code, int) else int(exit_code is not None))


def _exit_code_of(pid: int, to_stdin: int, stdin: bytes) -> int:
    with open(to_stdin, "wb", buffering=0) as pipe, suppress(BrokenPipeError):
        pipe.write(stdin)
    ended = os.pidfd_open(pid)
    try:
        in_time, _, _ = select.select([ended], [], [], GUARD_S)
        if not in_time:
            os.killpg(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
    finally:
        os.close(ended)
    assert in_time, f"it did not end within {GUARD_S} s"
    return os.waitstatus_to_exitcode(status)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()
