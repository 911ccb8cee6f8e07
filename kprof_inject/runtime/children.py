"""The processes that the program starts: a Python that would start without the hook is reached, or named.

A program may give its children an environment of their own. In one that keeps our session, our folder is put first on
PYTHONPATH again; nothing else changes. What cannot be reached without changing the program (no session in the
environment; ``python -I``, ``-E``, ``-S``) is written down, so that no launch is missing silently.

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
"""Of files in the folder of the reports, with a line for each Python process that starts without us."""

_PYTHONPATH = b"PYTHONPATH"
_MAX_BYTES_OF_COMMAND = 300


class Starts:
    """Looks at what this process starts, before it does."""

    def __init__(self, startup_folder: str, session_variable: str, reports_folder: str) -> None:
        self._startup_folder = os.fsencode(startup_folder)
        self._session_variable = os.fsencode(session_variable)
        self._unreached_path = os.path.join(reports_folder, str(os.getpid()) + UNREACHED_ENDING)

    def watch_os(self) -> None:
        """The functions that all others of ``os`` call."""
        _prepare_calls(os, "system", self._before_system)
        _prepare_calls(os, "execv", self._before_execv)
        for name in ("execve", "posix_spawn", "posix_spawnp"):
            _prepare_calls(os, name, self._before_execve)

    def watch_subprocess(self, subprocess: "ModuleType") -> None:
        """To be called once it was imported; ``multiprocessing`` imports it before it starts anything."""
        _prepare_calls(subprocess, "_fork_exec", self._before_fork_exec)
        _prepare_calls(sys.modules.get("_posixsubprocess"), "fork_exec", self._before_fork_exec)

    def _before_system(self, command: "Any") -> "tuple[Any, ...]":
        self._inherited()
        return (command,)

    def _before_execv(self, path: "Any", words: "Sequence[Any]") -> "tuple[Any, ...]":
        self._note([os.fsencode(path)], _as_bytes(words), self._inherited())
        return path, words

    def _before_execve(
        self, path: "Any", words: "Sequence[Any]", environment: "Mapping[Any, Any]"
    ) -> "tuple[Any, ...]":
        variables = {os.fsencode(name): os.fsencode(value) for name, value in environment.items()}
        keeps_session, repaired = self._repaired(variables)
        self._note([os.fsencode(path)], _as_bytes(words), keeps_session)
        return path, words, environment if repaired is None else repaired

    def _before_fork_exec(self, words: "Words", executables: "Words", *others: "Any") -> "tuple[Any, ...]":
        close_fds, fds_to_keep, folder, variables, *rest = others
        if variables is None:
            keeps_session = self._inherited()
        else:
            variables = list(variables)
            keeps_session, repaired = self._repaired(dict(entry.split(b"=", 1) for entry in variables))
            if repaired is not None:
                variables = [name + b"=" + value for name, value in repaired.items()]
        self._note(_as_bytes(executables), _as_bytes(words), keeps_session)
        return (words, executables, close_fds, fds_to_keep, folder, variables, *rest)

    def _inherited(self) -> bool:
        """Whether this process's environment keeps the session. If so, children get a PYTHONPATH with us; what the
        program itself reads in ``os.environ`` stays as it set it."""
        keeps_session, repaired = self._repaired(os.environb)
        if repaired is not None:
            os.putenv(_PYTHONPATH, repaired[_PYTHONPATH])
        return keeps_session

    def _repaired(self, variables: "Mapping[bytes, bytes]") -> "tuple[bool, dict[bytes, bytes] | None]":
        """Whether an environment keeps the session, and what it has to be instead, if anything. Our folder must be the
        first: any before it may hold a ``sitecustomize`` that shadows ours."""
        if not variables.get(self._session_variable):
            return False, None
        separator = os.fsencode(os.pathsep)
        folders = variables.get(_PYTHONPATH, b"").split(separator)
        if folders[0] == self._startup_folder:
            return True, None
        others = [folder for folder in folders if folder and folder != self._startup_folder]
        return True, {**variables, _PYTHONPATH: separator.join([self._startup_folder, *others])}

    def _note(self, executables: "Words", words: "Words", keeps_session: bool) -> None:
        """Write down a Python that starts without us."""
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
    """Have ``prepare`` look at the positional arguments of a function's calls first, and replace them."""
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
    """The words after Python's own name in a command; None if it starts no Python. ``executables`` are the places where
    the system will look for it."""
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
    """Whether Python does so with these options, by PYTHONPATH (https://docs.python.org/3/using/cmdline.html)."""
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
            if letter in "WX":  # the rest of the word is its argument, or else the next one
                if place == len(word) - 1:
                    next(rest, None)
                break
    return True
