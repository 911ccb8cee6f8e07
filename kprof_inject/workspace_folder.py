"""The folder of a workspace: how to recognize, name and hold it, and where to look for a missing one."""

from __future__ import annotations

import fcntl
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from kprof_inject.errors import KprofError, did_you_mean, printable
from kprof_inject.files import make_folder

DEFAULT_WORKSPACE = Path("kprof_out")  # the workspace that commands read and write by default

DEMO_WORKSPACE = Path("kprof_demo")  # the workspace that ``demo`` writes by default: its captures are not the user's

MARK_FILE = "workspace.json"  # the file that marks a workspace and gives its version
CACHE_FOLDER = "cache"  # the folder in which compilers cache, each process in a folder of its own
LOCK_FILE = "workspace.lock"  # the file that a command locks (see ``held``)


def is_workspace(folder: Path) -> bool:
    """Return whether a folder is a workspace, of any version."""
    return (folder / MARK_FILE).is_file()


def workspace_argument(workspace: Path) -> str:
    """Return the argument for a command that reads this workspace: empty for the default one."""
    return "" if workspace == DEFAULT_WORKSPACE else f" {shlex.quote(str(workspace))}"


def workspace_option(workspace: Path) -> str:
    """Return the option for a command that makes this workspace: empty for the default one."""
    return "" if workspace == DEFAULT_WORKSPACE else f" -o {shlex.quote(str(workspace))}"


def may_be_workspace(place: Path) -> bool:
    """Return whether a place that a user named is a workspace, or a missing one, rather than a file."""
    return place.is_dir() or place == DEFAULT_WORKSPACE


def is_module(place: Path) -> bool:
    """Return whether a file's name is that of Triton's GPU-level IR."""
    return place.suffix == ".ttgir" and not place.is_dir()


def where_to_look(missing: Path, takes: Callable[[Path], bool] = Path.exists) -> str:
    """Return the hint for a place that a user named and that does not exist.

    It names similar ones in the same folder that the command ``takes``, and the way to make a workspace.
    """
    suggestion = similar_places(missing, takes)
    around = next((parent for parent in missing.parents if is_workspace(parent)), None)
    if around is not None:
        return f"{suggestion}the last capture of a workspace: kprof-inject report{workspace_argument(around)}"
    # A name with an ending was meant as a file.
    if missing.suffix:
        return f"{suggestion}name a workspace, a capture or a file"
    if missing != DEFAULT_WORKSPACE and is_workspace(DEFAULT_WORKSPACE) and takes(DEFAULT_WORKSPACE):
        suggestion = suggestion or f"did you mean {DEFAULT_WORKSPACE}? "
    return suggestion + how_to_make(missing)


def where_to_find_modules(missing: Path) -> str:
    """Return the hint for a command that takes a workspace's kernels or a ``.ttgir`` file, but no capture."""
    around = next((parent for parent in missing.parents if is_workspace(parent)), None)
    if around is not None:
        return f"{similar_places(missing, is_module)}name its workspace: {shlex.quote(str(around))}"
    if missing.suffix:
        return f"{similar_places(missing, is_module)}name a workspace or a .ttgir file, or - for stdin"
    return where_to_look(missing, lambda path: is_workspace(path) or (path.is_file() and is_module(path)))


def similar_places(missing: Path, takes: Callable[[Path], bool] = Path.exists) -> str:
    """Ask for places with a similar name in the folder of a missing one, if ``takes`` accepts them; may be empty."""
    siblings = [path for path in missing.parent.glob("*") if not path.name.startswith(".") and takes(path)]
    return did_you_mean(missing.name, (path.name for path in siblings), 1, lambda name: str(missing.parent / name))


def how_to_make(workspace: Path) -> str:
    """Return the commands that make a workspace."""
    return (
        f"make one: kprof-inject profile{workspace_option(workspace)} -- PROG; without a GPU: kprof-inject demo -o "
        f"{shlex.quote(str(workspace))}"
    )


def require_ours(folder: Path) -> None:
    """Raise ``KprofError`` if we must not write to a folder: it is neither empty nor a workspace."""
    if (
        folder.exists()
        and not (folder / MARK_FILE).exists()
        and any(path.name != LOCK_FILE for path in folder.iterdir())
    ):
        raise KprofError(
            f"{folder} is neither empty nor a kprof-inject workspace",
            hint="name another folder (-o, or folder= in Python)",
        )
    require_no_links(folder)


def require_no_links(folder: Path) -> None:
    """Raise ``KprofError`` if a link would redirect writes to a workspace; caches are emptied before they are used."""
    folders = [str(folder)] if folder.is_dir() else []
    for parent in folders:
        with suppress(OSError), os.scandir(parent) as entries:  # a running program may remove it
            for entry in entries:
                if entry.is_symlink():
                    raise link_error(entry.path)
                if entry.is_dir(follow_symlinks=False) and os.path.dirname(parent) != str(folder / CACHE_FOLDER):
                    folders.append(entry.path)


def link_error(path: str | Path) -> KprofError:
    """Return the error for a link where we choose the path ourselves: its target must not be overwritten."""
    return KprofError(f"{path} is a symbolic link", hint="remove it, or use another workspace")


_MAX_HOLDER = 4096
_held: set[IO[bytes]] = set()  # the lock files that this process holds


class WorkspaceInUseError(KprofError):
    """Another process holds the workspace."""


@contextmanager
def held(folder: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Hold a workspace against writes by other commands, and by the program that this one runs.

    The folder need not be a workspace yet. The lock ends with this process, however it ends; children do not have it.

    Raises ``WorkspaceInUseError`` if another process holds it, and ``KprofError`` if the folder has other contents or
    cannot be written to. If the file system cannot lock, the block runs nevertheless, after a message through ``say``.
    """
    try:
        require_ours(folder)
        make_folder(folder)
        # Only now does a path such as new/../.. lead to a folder.
        require_ours(folder)
        lock_file = (folder / LOCK_FILE).open("a+b", buffering=0)
        lock_file.seek(0)
    except OSError as error:
        what = f"cannot use {error.filename or folder}: {error.strerror}"
        raise KprofError(what, hint="name a folder that can be written to, or a new one in such a folder") from None
    with lock_file as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = printable(file.read(_MAX_HOLDER).decode(errors="replace").strip()) or "another command"
            hint = "wait until it has ended, or name another folder with -o"
            raise WorkspaceInUseError(f"{folder} is in use by {holder}", hint=hint) from None
        except OSError as error:
            say(f"{folder} cannot be locked ({error.strerror}): make sure that no other command uses it")
            yield
            return
        with suppress(OSError):  # as on a full disk: the lock holds nevertheless
            file.truncate(0)
            holder = f"process {os.getpid()} on {os.uname().nodename} since {time.strftime('%Y-%m-%d %H:%M:%S')}"
            file.write(f"{holder}: {shlex.join(sys.orig_argv)}".encode())
        _held.add(file)
        try:
            yield
        finally:
            if file in _held:  # not in a fork
                _held.discard(file)
                fcntl.flock(file, fcntl.LOCK_UN)


def _release_in_child() -> None:
    for file in _held:
        file.close()
    _held.clear()


# A fork shares the lock, and may outlive us.
os.register_at_fork(after_in_child=_release_in_child)
