"""Python packages that we need: which are installed, and where."""

from __future__ import annotations

import os
from importlib.machinery import ModuleSpec
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec


def is_installed_file(path: str, *packages: str) -> bool:
    """Return True if a path leads into the installed folder of one of these packages."""
    return os.path.realpath(path).startswith(installed_folders(*packages))


def installed_folders(*packages: str) -> tuple[str, ...]:
    """Return the installed folders of these packages, without links, each with a separator at its end."""
    specs = [spec for package in packages if (spec := _spec_of(package)) is not None]
    folders = [folder for spec in specs for folder in spec.submodule_search_locations or ()]
    return tuple(os.path.join(os.path.realpath(folder), "") for folder in folders)


REQUIRED = {"click": (8, 1), "lark": (1, 2), "msgspec": (0, 19), "numpy": (1, 26), "rich": (13,)}
"""Minimum versions of the packages that every command needs."""

TO_RUN = {"torch": (2, 7), "triton": (3, 5, 1)}
"""Minimum versions of the packages for commands that compile and run kernels, which the extra ``run`` installs."""


def is_installed(name: str) -> bool:
    """Return True if this Python has the top-level package, which is not imported."""
    return _spec_of(name) is not None


def _spec_of(name: str) -> ModuleSpec | None:
    try:
        return find_spec(name)
    except (ModuleNotFoundError, ValueError):  # an import hook hides it, or a module made by hand has no spec
        return None


def installed_version_of(name: str) -> str:
    """Return the version of a package that this Python would import; empty if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def missing_to_run() -> list[str]:
    """Return the names in ``TO_RUN`` that this Python lacks."""
    return [name for name in TO_RUN if not is_installed(name)]


def install_command(*names: str) -> str:
    """Return the command that installs these packages in at least the versions that we need."""
    first = {**REQUIRED, **TO_RUN}
    return "pip install " + " ".join(f"'{name}>={'.'.join(map(str, first[name]))}'" for name in names)
