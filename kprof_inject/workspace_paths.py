"""Where a workspace is: what tells its folder, how commands name it, and where to look for one that is missing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from shlex import quote

from kprof_inject.errors import KprofError, did_you_mean

DEFAULT_WORKSPACE = Path("kprof_out")
"""What commands read and write if no other workspace is named."""

DEMO_WORKSPACE = Path("kprof_demo")
"""What ``demo`` writes if no other is named: its captures are none of the user's."""

MARK_FILE = "workspace.json"
"""Tells a workspace, and its version."""
LOCK_FILE = "workspace.lock"
"""See ``workspace_lock``."""


def is_workspace(folder: Path) -> bool:
    """Whether a folder is one, of whatever version."""
    return (folder / MARK_FILE).is_file()


def named(workspace: Path) -> str:
    """What stands behind a command that reads this workspace: nothing for the default one."""
    return "" if workspace == DEFAULT_WORKSPACE else f" {quote(str(workspace))}"


def into(workspace: Path) -> str:
    """The same behind a command that makes it."""
    return "" if workspace == DEFAULT_WORKSPACE else f" -o {quote(str(workspace))}"


def is_meant(place: Path) -> bool:
    """Whether a place that a user named is a workspace, or lacks one, rather than a file."""
    return place.is_dir() or place == DEFAULT_WORKSPACE


def is_module(place: Path) -> bool:
    """Whether a file is called as Triton's GPU-level IR is."""
    return place.suffix == ".ttgir" and not place.is_dir()


def where_to_look(missing: Path, takes: Callable[[Path], bool] = Path.exists, command: str = "report") -> str:
    """What to do about a place that a user named and that does not exist: those beside it with such a name that the
    ``command`` takes, and how to make a workspace."""
    meant = named_alike(missing, takes)
    around = next((parent for parent in missing.parents if is_workspace(parent)), None)
    if around is not None:
        return f"{meant}the last capture of a workspace: kprof-inject {command}{named(around)}"
    # What has an ending was to be a file.
    if missing.suffix:
        return f"{meant}name a workspace, a capture or a file"
    if missing != DEFAULT_WORKSPACE and is_workspace(DEFAULT_WORKSPACE) and takes(DEFAULT_WORKSPACE):
        meant = meant or f"did you mean {DEFAULT_WORKSPACE}? "
    return meant + how_to_make(missing)


def where_to_find_modules(missing: Path) -> str:
    """The same for a command that takes a workspace's kernels or a ``.ttgir`` file, but no capture."""
    around = next((parent for parent in missing.parents if is_workspace(parent)), None)
    if around is not None:
        return f"{named_alike(missing, is_module)}name its workspace: {quote(str(around))}"
    if missing.suffix:
        return f"{named_alike(missing, is_module)}name a workspace or a .ttgir file, or - for stdin"
    return where_to_look(missing, lambda path: is_workspace(path) or (path.is_file() and is_module(path)))


def named_alike(missing: Path, takes: Callable[[Path], bool] = Path.exists) -> str:
    """A question for what lies beside a place that does not exist, has such a name, and is taken; empty if nothing
    is."""
    beside = [path for path in missing.parent.glob("*") if not path.name.startswith(".") and takes(path)]
    return did_you_mean(missing.name, (path.name for path in beside), 1, lambda name: str(missing.parent / name))


def how_to_make(workspace: Path) -> str:
    """The commands that do."""
    return (
        f"make one: kprof-inject profile{into(workspace)} -- PROG; without a GPU: kprof-inject demo -o "
        f"{quote(str(workspace))}"
    )


def require_ours(folder: Path) -> None:
    """Raise ``KprofError`` if a folder is not for us to write to: it is neither empty nor a workspace."""
    if (
        folder.exists()
        and not (folder / MARK_FILE).exists()
        and any(path.name != LOCK_FILE for path in folder.iterdir())
    ):
        raise KprofError(
            f"{folder} is not empty and not a kprof-inject workspace",
            hint="name another folder (-o, or folder= in Python)",
        )
    require_no_links(folder)


def require_no_links(folder: Path) -> None:
    """Raise ``KprofError`` if what is written to a workspace would land elsewhere. What lies deeper is emptied before
    anything is written there."""
    for path in (*folder.glob("*"), *folder.glob("*/*")):
        if path.is_symlink():
            raise KprofError(f"{path} is a symbolic link", hint="remove it, or use another workspace")
