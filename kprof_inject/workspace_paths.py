"""The folder of a workspace: how to recognize it, how commands name it, and where to look for a missing one."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from shlex import quote

from kprof_inject.errors import KprofError, did_you_mean

DEFAULT_WORKSPACE = Path("kprof_out")
"""The workspace that commands read and write by default."""

DEMO_WORKSPACE = Path("kprof_demo")
"""The workspace that ``demo`` writes by default: its captures are not the user's."""

MARK_FILE = "workspace.json"
"""The file that marks a workspace and gives its version."""
CACHE_FOLDER = "cache"
"""The folder in which compilers cache, each process in a folder of its own."""
LOCK_FILE = "workspace.lock"
"""The file that a command locks (see ``workspace_lock``)."""


def is_workspace(folder: Path) -> bool:
    """Return whether a folder is a workspace, of any version."""
    return (folder / MARK_FILE).is_file()


def workspace_argument(workspace: Path) -> str:
    """Return the argument for a command that reads this workspace: empty for the default one."""
    return "" if workspace == DEFAULT_WORKSPACE else f" {quote(str(workspace))}"


def workspace_option(workspace: Path) -> str:
    """Return the option for a command that makes this workspace: empty for the default one."""
    return "" if workspace == DEFAULT_WORKSPACE else f" -o {quote(str(workspace))}"


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
        return f"{similar_places(missing, is_module)}name its workspace: {quote(str(around))}"
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
        f"{quote(str(workspace))}"
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
