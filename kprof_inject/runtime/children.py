"""Watch the processes that the program starts, so that each Python among them starts with the hook or is reported.

A program may give its children an environment of their own. If that keeps our session, our folder becomes the first on
PYTHONPATH again; nothing else changes. A Python that we cannot reach without changing the program (no session in the
environment; ``python -I``, ``-E``, ``-S``) is noted in a file, so that the user learns of missing launches.

The start-up hook executes this file before the program's own code, so it imports only what every Python process has.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import ModuleType
    from typing import Any

UNREACHED_ENDING = ".unreached"
"""Suffix of files in the reports' folder, with a line for each Python process that starts without us."""

_PYTHONPATH = b"PYTHONPATH"
_MAX_BYTES_OF_COMMAND = 300


class ProcessStarts:
    """Watcher of the processes that this process starts."""

    def __init__(self, startup_folder: str, session_variable: str, reports_folder: str) -> None:
        self._startup_folder = os.fsencode(startup_folder)
        self._session_variable = os.fsencode(session_variable)
        self._unreached_path = os.path.join(reports_folder, str(os.getpid()) + UNREACHED_ENDING)

    def watch_os(self) -> None:
        """Wrap the functions of ``os`` that all others call."""
        _prepare_calls(os, "system", self._before_system)
        _prepare_calls(os, "execv", self._before_execv)
        for name in ("execve", "posix_spawn", "posix_spawnp"):
            _prepare_calls(os, name, self._before_execve)

    def watch_subprocess(self, subprocess: "ModuleType") -> None:
        """Wrap the imported ``subprocess``; ``multiprocessing`` imports it before it starts a process."""
        _prepare_calls(subprocess, "_fork_exec", self._before_fork_exec)
        _prepare_calls(sys.modules.get("_posixsubprocess"), "fork_exec", self._before_fork_exec)

    def _before_system(self, command: "Any") -> "tuple[Any, ...]":
        self._repair_inherited()
        return (command,)

    def _before_execv(self, path: "Any", words: "Sequence[Any]") -> "tuple[Any, ...]":
        self._note([path], words, self._repair_inherited())
        return path, words

    def _before_execve(
        self, path: "Any", words: "Sequence[Any]", environment: "Mapping[Any, Any]"
    ) -> "tuple[Any, ...]":
        variables = {os.fsencode(name): os.fsencode(value) for name, value in environment.items()}
        keeps_session = self._repair(variables)
        self._note([path], words, keeps_session)
        return path, words, variables if keeps_session else environment

    def _before_fork_exec(
        self, words: "Sequence[Any]", executables: "Sequence[Any]", *arguments: "Any"
    ) -> "tuple[Any, ...]":
        close_fds, fds_to_keep, folder, entries, *rest = arguments
        if entries is None:
            keeps_session = self._repair_inherited()
        else:
            variables = dict(entry.split(b"=", 1) for entry in entries)
            keeps_session = self._repair(variables)
            if keeps_session:
                entries = [name + b"=" + value for name, value in variables.items()]
        self._note(executables, words, keeps_session)
        return (words, executables, close_fds, fds_to_keep, folder, entries, *rest)

    def _repair_inherited(self) -> bool:
        """Return whether this process's environment keeps the session; if so, children get a PYTHONPATH with us.

        ``os.environ``, which the program itself reads, does not change.
        """
        variables = dict(os.environb)
        keeps_session = self._repair(variables)
        if variables != os.environb:
            os.putenv(_PYTHONPATH, variables[_PYTHONPATH])
        return keeps_session

    def _repair(self, variables: "dict[bytes, bytes]") -> bool:
        """Return whether an environment keeps the session; if so, put our folder first on its PYTHONPATH.

        A folder before it may have a ``sitecustomize`` that shadows ours.
        """
        if not variables.get(self._session_variable):
            return False
        separator = os.fsencode(os.pathsep)
        ours = self._startup_folder
        folders = variables.get(_PYTHONPATH, b"").split(separator)
        if folders[0] != ours:
            others = [folder for folder in folders if folder and folder != ours]
            variables[_PYTHONPATH] = separator.join([ours, *others])
        return True

    def _note(self, executables: "Sequence[Any]", words: "Sequence[Any]", keeps_session: bool) -> None:
        """Append the command to the file of unreached processes if it starts a Python without us."""
        command = [os.fsencode(word) for word in words]
        options = _python_options([os.fsencode(path) for path in executables], command)
        if options is None or (keeps_session and _imports_sitecustomize(options)):
            return
        line = b" ".join(command).replace(b"\n", b" ")[:_MAX_BYTES_OF_COMMAND] + b"\n"
        file = os.open(self._unreached_path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o666)
        try:
            os.write(file, line)
        finally:
            os.close(file)


def _prepare_calls(module: "Any", name: str, prepare: "Callable[..., tuple[Any, ...]]") -> None:
    original = getattr(module, name, None)
    if original is None:
        return

    def prepared(*arguments: "Any", **keywords: "Any") -> "Any":
        try:  # noqa: SIM105 (contextlib may not be imported)
            arguments = prepare(*arguments)
        except Exception:  # noqa: BLE001 (whatever it is, the program must go on)
            pass
        return original(*arguments, **keywords)

    prepared.__name__ = prepared.__qualname__ = name
    prepared.__doc__ = original.__doc__
    prepared.__wrapped__ = original  # type: ignore[attr-defined]
    setattr(module, name, prepared)
    for supports in (os.supports_fd, os.supports_dir_fd, os.supports_follow_symlinks, os.supports_effective_ids):
        if original in supports:
            supports.add(prepared)


def _python_options(executables: "list[bytes]", command: "list[bytes]") -> "list[bytes] | None":
    """Return the words after Python's own name in a command, or None if it does not start Python.

    ``executables`` are the paths at which the system looks for the program. A script's first line may name Python.
    """
    if _is_python(executables[0]):
        return command[1:]
    for path in executables:
        try:
            file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        except OSError:
            continue
        try:
            first_line = os.read(file, 256).split(b"\n", 1)[0]
        finally:
            os.close(file)
        words = first_line[2:].split() if first_line.startswith(b"#!") else []
        for place, word in enumerate(words):
            if _is_python(word):
                return words[place + 1 :]
        return None
    return None


def _is_python(path: bytes) -> bool:
    return os.path.basename(path).startswith((b"python", b"pypy"))


def _imports_sitecustomize(options: "list[bytes]") -> bool:
    """Return whether Python imports ``sitecustomize`` from PYTHONPATH: not with -I, -E or -S."""
    for word in options:
        if not word.startswith(b"-") or word == b"-":
            break
        # The rest of these words is their argument.
        if not word.startswith((b"-c", b"-m", b"-W", b"-X", b"--")) and any(letter in b"IES" for letter in word):
            return False
    return True
