"""The lock that keeps other commands, and the program that a command runs, from writing to its workspace."""

from __future__ import annotations

import fcntl
import os
import platform
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from kprof_inject.errors import KprofError, printable
from kprof_inject.files import make_folder
from kprof_inject.workspace_paths import LOCK_FILE, require_ours

_MAX_HOLDER = 4096
_held: set[IO[bytes]] = set()
"""The lock files that this process holds."""


class WorkspaceInUseError(KprofError):
    """Another process holds the workspace."""


@contextmanager
def held(folder: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Hold a workspace so that nothing else writes to it: other commands, and the program that this one runs.

    The folder need not be a workspace yet. The lock ends with this process, however it ends; children do not have it.

    Raises ``WorkspaceInUseError`` if another process holds it, and ``KprofError`` if the folder has other contents or
    cannot be written to. If the file system cannot lock, the block runs nevertheless, after a message through ``say``.
    """
    with _lock_file(folder) as file:
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
            since = time.strftime("%Y-%m-%d %H:%M:%S")
            file.write(
                f"process {os.getpid()} on {platform.node()} since {since}: {shlex.join(sys.orig_argv)}".encode()
            )
        _held.add(file)
        try:
            yield
        finally:
            if file in _held:  # not in a fork
                _held.discard(file)
                fcntl.flock(file, fcntl.LOCK_UN)


def _lock_file(folder: Path) -> IO[bytes]:
    try:
        require_ours(folder)
        make_folder(folder)
        # Only now does a path such as new/../.. lead to a folder.
        require_ours(folder)
        file = (folder / LOCK_FILE).open("a+b", buffering=0)
        file.seek(0)
        return file
    except OSError as error:
        what = f"cannot use {error.filename or folder}: {error.strerror}"
        raise KprofError(what, hint="name a folder that can be written to, or a new one in such a folder") from None


def _release_in_child() -> None:
    for file in _held:
        file.close()
    _held.clear()


# A fork shares the lock, and may outlive us.
os.register_at_fork(after_in_child=_release_in_child)
