"""Check that the Python packages that we need are installed, and that we can work with them."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from kprof_inject.errors import KprofError
from kprof_inject.version import __version__


class Status(StrEnum):
    """Result of a check of ``doctor``.

    With a ``missing`` package or a ``problem``, ``run`` or decoding does not work here.
    """

    OK = "ok"
    WARNING = "warning"
    MISSING = "missing"
    PROBLEM = "problem"

    @property
    def is_fatal(self) -> bool:
        """True if ``run`` or decoding does not work with this."""
        return self in (Status.MISSING, Status.PROBLEM)


@dataclass(frozen=True, slots=True)
class CheckResult:
    """A fact about the subject ``what``, and what to do about it, if anything."""

    what: str
    status: Status
    fact: str
    advice: str = ""


def is_installed_file(path: str, *packages: str) -> bool:
    """Return whether a path leads into the folder of one of these packages, as they are installed here."""
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

_OPTIONAL = {
    "pyarrow": ".parquet files, to_arrow",
    "zstandard": "compressed saved launches",
    "pandas": "to_pandas",
    "llnl-hatchet": "proton-viewer shows .hatchet files",
}
"""Features that need each optional package."""

_WITHOUT = "not needed to read captures and .ttgir files; programs that run with this Python need it"
_GET_TORCH = "https://pytorch.org/get-started"


def is_installed(name: str) -> bool:
    """Return whether this Python has the top-level package, without importing it."""
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


def python() -> Iterator[CheckResult]:
    """Report the versions of Python and of kprof-inject."""
    yield CheckResult("Python", Status.OK, f"{platform.python_version()}, {sys.executable}")
    yield CheckResult("kprof-inject", Status.OK, f"{__version__}, {Path(__file__).parents[2]}")


def required() -> Iterator[CheckResult]:
    """Check the packages in ``REQUIRED``."""
    for name, first in REQUIRED.items():
        found = installed_version_of(name)
        is_missing = tuple(map(int, re.findall(r"\d+", found)))[: len(first)] < first
        status, advice = (Status.MISSING, install_command(name)) if is_missing else (Status.OK, "")
        yield CheckResult(name, status, found or "not installed", advice)


def optional() -> Iterator[CheckResult]:
    """Report which optional packages are installed."""
    for name, use in _OPTIONAL.items():
        yield CheckResult(name, Status.OK, installed_version_of(name) or f"not installed; optional: {use}")


def triton() -> Iterator[CheckResult]:
    """Check that Triton can be imported, and that its version is supported."""
    if not is_installed("triton"):
        yield CheckResult(
            "Triton", Status.WARNING, "not installed", f"{_WITHOUT}, and so does check: {install_command('triton')}"
        )
        return
    try:
        module = import_module("triton")
    except ImportError as error:
        yield CheckResult("Triton", Status.MISSING, f"cannot be imported: {error}", "reinstall it")
        return
    from kprof_inject.runtime.versions import installed_version

    place = f"{module.__version__}, {Path(str(module.__file__)).parent}"
    try:
        installed_version()
    except KprofError as error:
        yield CheckResult("Triton", Status.PROBLEM, f"{place}: {error.what}", error.hint)
    else:
        yield CheckResult("Triton", Status.OK, place)


def proton() -> Iterator[CheckResult]:
    """Check that Triton was built with Proton."""
    try:
        import_module("triton")
    except ImportError:
        return  # the check of Triton reports it
    try:
        import_module("triton._C.libtriton").proton  # noqa: B018 (raises if it does not exist)
    except (ImportError, AttributeError) as error:
        advice = "install a Triton wheel from PyPI, or build Triton with TRITON_BUILD_PROTON=ON"
        yield CheckResult("Proton", Status.MISSING, f"not in this Triton: {error}", advice)
    else:
        yield CheckResult("Proton", Status.OK, "this Triton can lower records")


def torch() -> Iterator[CheckResult]:
    """Check that torch can be imported, and whether it was built for GPUs."""
    if not is_installed("torch"):
        yield CheckResult("torch", Status.WARNING, "not installed", f"{_WITHOUT}: {_GET_TORCH}")
        return
    try:
        module = import_module("torch")
    except ImportError as error:
        advice = f"reinstall it: {_GET_TORCH}"
        yield CheckResult("torch", Status.MISSING, f"cannot be imported: {error}", advice)
        return
    built_for = [
        f"{name} {release}"
        for name, release in (("CUDA", module.version.cuda), ("ROCm", getattr(module.version, "hip", None)))
        if release
    ]
    if built_for:
        yield CheckResult("torch", Status.OK, f"{module.__version__}, built for {' and '.join(built_for)}")
    else:
        advice = f"to run on a GPU, install a build for it: {_GET_TORCH}"
        yield CheckResult("torch", Status.WARNING, f"{module.__version__}, built for CPU only", advice)
