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

    Prepare = Callable[..., tuple[Any, ...]]
    Words = Sequence[bytes]

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
        self._note([os.fsencode(path)], _as_bytes(words), self._repair_inherited())
        return path, words

    def _before_execve(
        self, path: "Any", words: "Sequence[Any]", environment: "Mapping[Any, Any]"
    ) -> "tuple[Any, ...]":
        variables = {os.fsencode(name): os.fsencode(value) for name, value in environment.items()}
        keeps_session, repaired = self._repaired(variables)
        self._note([os.fsencode(path)], _as_bytes(words), keeps_session)
        return path, words, environment if repaired is None else repaired

    def _before_fork_exec(self, words: "Words", executables: "Words", *arguments: "Any") -> "tuple[Any, ...]":
        close_fds, fds_to_keep, folder, variables, *rest = arguments
        if variables is None:
            keeps_session = self._repair_inherited()
        else:
            variables = list(variables)
            keeps_session, repaired = self._repaired(dict(entry.split(b"=", 1) for entry in variables))
            if repaired is not None:
                variables = [name + b"=" + value for name, value in repaired.items()]
        self._note(_as_bytes(executables), _as_bytes(words), keeps_session)
        return (words, executables, close_fds, fds_to_keep, folder, variables, *rest)

    def _repair_inherited(self) -> bool:
        """Return whether this process's environment keeps the session; if so, children get a PYTHONPATH with us.

        ``os.environ``, which the program itself reads, does not change.
        """
        keeps_session, repaired = self._repaired(os.environb)
        if repaired is not None:
            os.putenv(_PYTHONPATH, repaired[_PYTHONPATH])
        return keeps_session

    def _repaired(self, variables: "Mapping[bytes, bytes]") -> "tuple[bool, dict[bytes, bytes] | None]":
        """Return whether an environment keeps the session, and the repaired environment, or None if it needs no repair.

        Our folder must be the first: one before it may have a ``sitecustomize`` that shadows ours.
        """
        if not variables.get(self._session_variable):
            return False, None
        separator = os.fsencode(os.pathsep)
        folders = variables.get(_PYTHONPATH, b"").split(separator)
        if folders[0] == self._startup_folder:
            return True, None
        other_folders = [folder for folder in folders if folder and folder != self._startup_folder]
        return True, {**variables, _PYTHONPATH: separator.join([self._startup_folder, *other_folders])}

    def _note(self, executables: "Words", words: "Words", keeps_session: bool) -> None:
        """Append the command to the file of unreached processes if it starts a Python without us."""
        options = _python_options(executables, words)
        if options is None or (keeps_session and _imports_sitecustomize(options)):
            return
        line = b" ".join(words).replace(b"\n", b" ")[:_MAX_BYTES_OF_COMMAND] + b"\n"
        file = os.open(self._unreached_path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o666)
        try:
            os.write(file, line)
        finally:
            os.close(file)


def _prepare_calls(module: "Any", name: str, prepare: "Prepare") -> None:
    """Wrap a function so that each call first passes its positional arguments through ``prepare``."""
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


def _as_bytes(words: "Sequence[Any]") -> "list[bytes]":
    return [os.fsencode(word) for word in words]


def _python_options(executables: "Words", words: "Words") -> "Words | None":
    """Return the words after Python's own name in a command, or None if it does not start Python.

    ``executables`` are the paths at which the system looks for the program.
    """
    if os.path.basename(executables[0]).startswith((b"python", b"pypy")):
        return words[1:]
    for path in executables:
        try:
            file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        except OSError:
            continue
        try:
            first_line = os.read(file, 256).split(b"\n", 1)[0]
        finally:
            os.close(file)
        interpreter, *options = first_line[2:].split() or [b""]
        if not first_line.startswith(b"#!"):
            return None
        if os.path.basename(interpreter) == b"env":  # env [-S] python …
            interpreter, *options = [option for option in options if option != b"-S"] or [b""]
        return options if os.path.basename(interpreter).startswith((b"python", b"pypy")) else None
    return None


def _imports_sitecustomize(options: "Words") -> bool:
    """Return whether Python imports ``sitecustomize`` from PYTHONPATH with these options.

    Source: https://docs.python.org/3/using/cmdline.html
    """
    rest = iter(options)
    for word in rest:
        if word == b"--check-hash-based-pycs":
            next(rest, None)
        if not word.startswith(b"-") or word == b"-":
            return True
        if word.startswith(b"--"):
            continue
        for place, letter in enumerate(word.decode("latin-1")):
            if letter in "IES":
                return False
            if letter in "cm":
                return True
            if letter in "WX":  # its argument is the rest of the word, or the next word if there is no rest
                if place == len(word) - 1:
                    next(rest, None)
                break
    return True
