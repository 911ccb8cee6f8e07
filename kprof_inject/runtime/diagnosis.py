"""Checks of ``doctor``: what this machine has, and what prevents our start-up hook from working."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from pathlib import Path

from kprof_inject.capture.schema import Target
from kprof_inject.errors import KprofError
from kprof_inject.packages import REQUIRED, install_command, installed_version_of, is_installed
from kprof_inject.runtime.child_process import own_python
from kprof_inject.runtime.counters import cupti
from kprof_inject.runtime.process_report import read_reports
from kprof_inject.runtime.program import program_environment
from kprof_inject.runtime.session import Session
from kprof_inject.version import __version__
from kprof_inject.workspace import Workspace

_HIDING = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
_WITHOUT_GPU = "profile, run, try and causal need one; commands that read captures or TTGIR do not"
_DRIVER_VERSION = Path("/sys/module/nvidia/version")
_AMD_DRIVER = Path("/dev/kfd")

_COMPILE_LIMIT_S = 120.0
# It has no layouts, so it is valid for every target.
_KERNEL = """\
module attributes {{"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32, ttg.target = "{target}", \
"ttg.threads-per-warp" = {warp_size} : i32}} {{
  tt.func public @doctor(%p: !tt.ptr<i32>) {{
    proton.record start "func"
    %x = tt.get_program_id x : i32
    tt.store %p, %x : !tt.ptr<i32>
    proton.record end "func"
    tt.return
  }}
}}
"""
_RECORDS = 2


class Status(StrEnum):
    """Result of a check of ``doctor``."""

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


_OPTIONAL = {
    "pyarrow": ".parquet files, to_arrow",
    "zstandard": "compressed saved launches",
    "pandas": "to_pandas",
    "llnl-hatchet": "proton-viewer shows .hatchet files",
}
"""Features that need each optional package."""

_WITHOUT = "not needed to read captures and .ttgir files; programs that run with this Python need it"
_GET_TORCH = "https://pytorch.org/get-started"


def _versions() -> Iterator[CheckResult]:
    yield CheckResult("Python", Status.OK, f"{platform.python_version()}, {sys.executable}")
    yield CheckResult("kprof-inject", Status.OK, f"{__version__}, {Path(__file__).parents[2]}")
    for name, first in REQUIRED.items():
        found = installed_version_of(name)
        is_old = tuple(map(int, re.findall(r"\d+", found)))[: len(first)] < first
        status, advice = (Status.MISSING, install_command(name)) if is_old else (Status.OK, "")
        yield CheckResult(name, status, found or "not installed", advice)
    for name, use in _OPTIONAL.items():
        yield CheckResult(name, Status.OK, installed_version_of(name) or f"not installed; optional: {use}")


def _triton() -> list[CheckResult]:
    if not is_installed("triton"):
        advice = f"{_WITHOUT}, and so does check: {install_command('triton')}"
        return [CheckResult("Triton", Status.WARNING, "not installed", advice)]
    try:
        module = import_module("triton")
    except ImportError as error:
        return [CheckResult("Triton", Status.MISSING, f"cannot be imported: {error}", "reinstall it")]
    from kprof_inject.runtime.versions import installed_version

    place = f"{module.__version__}, {Path(str(module.__file__)).parent}"
    try:
        installed_version()
    except KprofError as error:
        return [CheckResult("Triton", Status.PROBLEM, f"{place}: {error.what}", error.hint)]
    return [CheckResult("Triton", Status.OK, place)]


def _proton() -> list[CheckResult]:
    try:
        import_module("triton")
    except ImportError:
        return []  # the check of Triton reports it
    try:
        import_module("triton._C.libtriton").proton  # noqa: B018 (raises if it does not exist)
    except (ImportError, AttributeError) as error:
        advice = "install a Triton wheel from PyPI, or build Triton with TRITON_BUILD_PROTON=ON"
        return [CheckResult("Proton", Status.MISSING, f"not in this Triton: {error}", advice)]
    return [CheckResult("Proton", Status.OK, "this Triton can lower records")]


def _torch() -> list[CheckResult]:
    if not is_installed("torch"):
        return [CheckResult("torch", Status.WARNING, "not installed", f"{_WITHOUT}: {_GET_TORCH}")]
    try:
        module = import_module("torch")
    except ImportError as error:
        return [CheckResult("torch", Status.MISSING, f"cannot be imported: {error}", f"reinstall it: {_GET_TORCH}")]
    releases = {"CUDA": module.version.cuda, "ROCm": getattr(module.version, "hip", None)}
    built_for = " and ".join(f"{name} {release}" for name, release in releases.items() if release)
    if built_for:
        return [CheckResult("torch", Status.OK, f"{module.__version__}, built for {built_for}")]
    advice = f"to run on a GPU, install a build for it: {_GET_TORCH}"
    return [CheckResult("torch", Status.WARNING, f"{module.__version__}, built for CPU only", advice)]


def gpus() -> list[CheckResult]:
    """Check which GPUs torch sees."""
    try:
        cuda = import_module("torch").cuda
    except ImportError:
        return [CheckResult("GPU", Status.WARNING, "unknown: torch cannot be imported", _WITHOUT_GPU)]
    if not cuda.is_available():
        hiding = [f"{name}={os.environ[name]!r}" for name in _HIDING if name in os.environ]
        is_set = f" ({', '.join(hiding)} is set)" if hiding else ""
        return [CheckResult("GPU", Status.WARNING, f"torch sees no GPU{is_set}", _WITHOUT_GPU)]
    results = []
    for index in range(cuda.device_count()):
        device = cuda.get_device_properties(index)
        kind = getattr(device, "gcnArchName", "") or f"capability {device.major}.{device.minor}"
        fact = f"{device.name}, {kind}, {device.total_memory / (1 << 30):.0f} GiB"
        results.append(CheckResult(f"GPU {index}", Status.OK, fact))
    return results


def _driver() -> list[CheckResult]:
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        if _AMD_DRIVER.exists():
            return [CheckResult("GPU driver", Status.OK, f"AMD ({_AMD_DRIVER} exists)")]
        return [CheckResult("GPU driver", Status.WARNING, str(error), _WITHOUT_GPU)]
    newest = ctypes.c_int()
    library.cuDriverGetVersion(ctypes.byref(newest))
    release = f"{_DRIVER_VERSION.read_text().strip()}, " if _DRIVER_VERSION.exists() else ""
    cuda = f"{newest.value // 1000}.{newest.value % 1000 // 10}"
    return [CheckResult("GPU driver", Status.OK, f"NVIDIA {release}for CUDA up to {cuda}")]


def _counters() -> list[CheckResult]:
    if not cupti.has_nvidia_module():
        return []
    if not cupti.is_permitted():
        fact = "this user may not read them; profile works without, from TTGIR and machine code"
        return [CheckResult("counters", Status.WARNING, fact, cupti.HOW_TO_GET_PERMISSION)]
    try:
        return [CheckResult("counters", Status.OK, f"may be read, with {cupti.find_cupti()}")]
    except KprofError as error:
        return [CheckResult("counters", Status.WARNING, error.what, error.hint)]


def _compiler() -> list[CheckResult]:
    try:
        import_module("triton")
    except ImportError:
        return []  # the check of Triton reports it
    from kprof_inject.runtime.child_process import CompilerProcess
    from kprof_inject.runtime.compiling.module_check import machine_code_facts

    target = _present_target() or Target("cuda", 90)
    text = _KERNEL.format(target=target, warp_size=target.warp_size)
    with CompilerProcess() as process:
        try:
            arguments = (text, "doctor.ttgir", target, True)
            facts = process.ask(machine_code_facts, *arguments, time_limit_s=_COMPILE_LIMIT_S)
        except KprofError as error:
            return [CheckResult("compiler", Status.PROBLEM, error.what, "reinstall Triton, or use another version")]
    clock_reads = f"{facts.clock_reads} clock reads"
    fact = f"{_RECORDS} records for {target}: {facts.binary_bytes} bytes of machine code, {clock_reads}"
    if facts.clock_reads == _RECORDS:
        return [CheckResult("compiler", Status.OK, fact)]
    advice = "kprof-inject does not know how this Triton lowers records; use another version"
    return [CheckResult("compiler", Status.PROBLEM, fact, advice)]


def _present_target() -> Target | None:
    try:
        if not import_module("torch").cuda.is_available():
            return None
    except ImportError:
        return None
    target = import_module("triton.runtime.driver").driver.active.get_current_target()
    return Target(target.backend, target.arch, target.warp_size)


_PROGRAM = """\
import sys
print(getattr(sys.modules.get("sitecustomize"), "__file__", ""))
try:
    import triton
except ImportError:
    pass
"""
_OUT_OF_REACH = "nothing to do; it cannot reach programs under python -I, -E or -S, or with a cleaned environment"
_LIMIT_S = 120


def _hook() -> Iterator[CheckResult]:
    with tempfile.TemporaryDirectory(prefix="kprof-doctor-") as folder:
        workspace = Workspace(Path(folder, "workspace"))
        session = Session("dump", str(workspace.folder), str(workspace.new_reports_folder("dump")))
        session.write()
        ended = subprocess.run(
            own_python(["-c", _PROGRAM]),
            env=program_environment(dict(os.environ), session.path, workspace.cache_folder("dump")),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_LIMIT_S,
        )
        reports = read_reports(Path(session.reports))
    if not reports.joined:
        words = ended.stderr.strip().splitlines()
        fact = f"did not run in a Python process{': ' + words[-1] if words else ''}"
        yield CheckResult("start-up hook", Status.MISSING, fact, f"install kprof-inject for {sys.executable}")
    elif reports.errors:
        fact = f"ran in a Python process, and failed: {reports.errors[0]}"
        yield CheckResult("start-up hook", Status.PROBLEM, fact, "reinstall Triton and kprof-inject")
    else:
        joined = "".join(f" and joined Triton {found}" for found in sorted(reports.triton_versions))
        yield CheckResult("start-up hook", Status.OK, f"ran in a Python process{joined}", _OUT_OF_REACH)
    shadowed = (ended.stdout.splitlines() or [""])[0]
    if shadowed and not Path(shadowed).is_relative_to(Path(__file__).parents[1]):
        yield CheckResult("sitecustomize", Status.OK, f"{shadowed} runs first, then ours")


def _interpreter() -> Iterator[CheckResult]:
    if os.environ.get("TRITON_INTERPRET", "").lower() not in ("", "0", "false", "off", "n", "no"):
        yield CheckResult("TRITON_INTERPRET", Status.PROBLEM, "is set", "no kernel is compiled; unset it")


_CHECKS: dict[str, Callable[[], Iterable[CheckResult]]] = {
    "packages": _versions,
    "Triton": _triton,
    "Proton": _proton,
    "torch": _torch,
    "GPU": gpus,
    "GPU driver": _driver,
    "counters": _counters,
    "compiler": _compiler,
    "start-up hook": _hook,
    "TRITON_INTERPRET": _interpreter,
}


def examine() -> Iterator[CheckResult]:
    """Run all checks. An unexpected failure of a check is a result as well."""
    for what, check in _CHECKS.items():
        try:
            yield from list(check())
        except Exception as error:  # noqa: BLE001 (a broken installation may fail in any way)
            fact = f"cannot be checked: {type(error).__name__}: {error}"
            advice = "the installation is broken, or unknown to kprof-inject; please report it"
            yield CheckResult(what, Status.PROBLEM, fact, advice)
