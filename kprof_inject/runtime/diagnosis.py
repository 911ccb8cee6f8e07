"""Checks of ``doctor``: what this machine has, and what prevents our start-up hook from working."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import shutil
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
_WITHOUT_GPU = "profile, dump, run, causal and compare need one; commands that read captures or TTGIR do not"
_NVIDIA_DRIVER = "libcuda.so.1"
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

# The default of --max-bytes.
_ROOM_BYTES = 1 << 30


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


_OPTIONAL = {
    "pyarrow": ".parquet files, to_arrow",
    "zstandard": "compressed saved launches",
    "pandas": "to_pandas",
    "llnl-hatchet": "proton-viewer shows .hatchet files",
}
"""Features that need each optional package."""

_WITHOUT = "not needed to read captures and .ttgir files; programs that run with this Python need it"
_GET_TORCH = "https://pytorch.org/get-started"


def _python() -> Iterator[CheckResult]:
    """Report the versions of Python and of kprof-inject."""
    yield CheckResult("Python", Status.OK, f"{platform.python_version()}, {sys.executable}")
    yield CheckResult("kprof-inject", Status.OK, f"{__version__}, {Path(__file__).parents[2]}")


def _required() -> Iterator[CheckResult]:
    """Check the packages in ``REQUIRED``."""
    for name, first in REQUIRED.items():
        found = installed_version_of(name)
        is_missing = tuple(map(int, re.findall(r"\d+", found)))[: len(first)] < first
        status, advice = (Status.MISSING, install_command(name)) if is_missing else (Status.OK, "")
        yield CheckResult(name, status, found or "not installed", advice)


def _optional() -> Iterator[CheckResult]:
    """Report which optional packages are installed."""
    for name, use in _OPTIONAL.items():
        yield CheckResult(name, Status.OK, installed_version_of(name) or f"not installed; optional: {use}")


def _triton() -> Iterator[CheckResult]:
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


def _proton() -> Iterator[CheckResult]:
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


def _torch() -> Iterator[CheckResult]:
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


def gpus() -> Iterator[CheckResult]:
    """Check which GPUs torch sees."""
    try:
        cuda = import_module("torch").cuda
    except ImportError:
        yield CheckResult("GPU", Status.WARNING, "unknown: torch cannot be imported", _WITHOUT_GPU)
        return
    if not cuda.is_available():
        hiding = [f"{name}={os.environ[name]!r}" for name in _HIDING if name in os.environ]
        is_set = f" ({', '.join(hiding)} is set)" if hiding else ""
        yield CheckResult("GPU", Status.WARNING, f"torch sees no GPU{is_set}", _WITHOUT_GPU)
        return
    for index in range(cuda.device_count()):
        device = cuda.get_device_properties(index)
        kind = getattr(device, "gcnArchName", "") or f"capability {device.major}.{device.minor}"
        fact = f"{device.name}, {kind}, {device.total_memory / (1 << 30):.0f} GiB"
        yield CheckResult(f"GPU {index}", Status.OK, fact)


def driver() -> Iterator[CheckResult]:
    """Check for a GPU driver, and its version."""
    try:
        library = ctypes.CDLL(_NVIDIA_DRIVER)
    except OSError as error:
        if _AMD_DRIVER.exists():
            yield CheckResult("GPU driver", Status.OK, f"AMD ({_AMD_DRIVER} exists)")
        else:
            yield CheckResult("GPU driver", Status.WARNING, str(error), _WITHOUT_GPU)
        return
    newest = ctypes.c_int()
    library.cuDriverGetVersion(ctypes.byref(newest))
    release = f"{_DRIVER_VERSION.read_text().strip()}, " if _DRIVER_VERSION.exists() else ""
    fact = f"NVIDIA {release}for CUDA up to {newest.value // 1000}.{newest.value % 1000 // 10}"
    yield CheckResult("GPU driver", Status.OK, fact)


def counters() -> Iterator[CheckResult]:
    """Check whether the hardware's counters can be read, where there is a GPU that has some."""
    if not cupti.has_nvidia_module():
        return
    if not cupti.is_permitted():
        fact = "this user may not read them; profile works without, from TTGIR and machine code"
        yield CheckResult("counters", Status.WARNING, fact, cupti.HOW_TO_GET_PERMISSION)
        return
    try:
        library = cupti.find_cupti()
    except KprofError as error:
        yield CheckResult("counters", Status.WARNING, error.what, error.hint)
        return
    yield CheckResult("counters", Status.OK, f"may be read, with {library}")


def compiler() -> Iterator[CheckResult]:
    """Check that a kernel with records compiles, in a process of its own, so that a crash is reported too."""
    try:
        import_module("triton")
    except ImportError:
        return  # the check of Triton reports it
    from kprof_inject.runtime.compiling.compiler_process import CompilerProcess
    from kprof_inject.runtime.compiling.module_check import machine_code_facts

    target = _present_target() or Target("cuda", 90)
    text = _KERNEL.format(target=target, warp_size=target.warp_size)
    with CompilerProcess() as process:
        try:
            arguments = (text, "doctor.ttgir", target, True)
            facts = process.ask(machine_code_facts, *arguments, time_limit_s=_COMPILE_LIMIT_S)
        except KprofError as error:
            yield CheckResult("compiler", Status.PROBLEM, error.what, "reinstall Triton, or use another version")
            return
    clock_reads = f"{facts.clock_reads} clock reads"
    fact = f"{_RECORDS} records for {target}: {facts.binary_bytes} bytes of machine code, {clock_reads}"
    if facts.clock_reads == _RECORDS:
        yield CheckResult("compiler", Status.OK, fact)
    else:
        advice = "kprof-inject does not know how this Triton lowers records; use another version"
        yield CheckResult("compiler", Status.PROBLEM, fact, advice)


def _present_target() -> Target | None:
    try:
        if not import_module("torch").cuda.is_available():
            return None
    except ImportError:
        return None
    target = import_module("triton.runtime.driver").driver.active.get_current_target()
    return Target(target.backend, target.arch, target.warp_size)


def current_folder() -> Iterator[CheckResult]:
    """Check that the current folder is writable and has room for a capture."""
    here = Path.cwd()
    try:
        with tempfile.TemporaryFile(dir=here):
            pass
    except OSError as error:
        fact = f"cannot write to {here}: {error.strerror}"
        yield CheckResult(
            "current folder", Status.PROBLEM, fact, "change to another folder, or name a workspace with -o"
        )
        return
    free = shutil.disk_usage(here).free
    fact = f"{here}, {free / (1 << 30):.1f} GiB free"
    if free < _ROOM_BYTES:
        yield CheckResult("current folder", Status.WARNING, fact, "free some space, or limit captures with --max-bytes")
    else:
        yield CheckResult("current folder", Status.OK, fact)


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

_INTERFERING = {
    "TRITON_KERNEL_OVERRIDE": "the replaced kernel is dumped and recorded; unset it to see the original",
    "TRITON_OVERRIDE_DIR": "the replaced kernel is dumped and recorded; unset it to see the original",
    "TRITON_ALWAYS_COMPILE": "every process recompiles every kernel; unset it to save time",
    "TRITON_STORE_BINARY_ONLY": "Triton then drops the TTGIR that kprof-inject needs; unset it",
    "CUDA_LAUNCH_BLOCKING": "launches become synchronous and never overlap; unset it to see them overlap",
}
_OFF = ("", "0", "false", "off", "n", "no")


def hook() -> Iterator[CheckResult]:
    """Check that a program started as ``dump`` does it reports to us."""
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
        fact = f"{shadowed} runs first, then ours"
        yield CheckResult("sitecustomize", Status.OK, fact)


def environment() -> Iterator[CheckResult]:
    """Check for variables that change what we do, or that we change for the program."""
    if _is_on("TRITON_INTERPRET"):
        yield CheckResult(
            "TRITON_INTERPRET", Status.PROBLEM, _value("TRITON_INTERPRET"), "no kernel is compiled; unset it"
        )
    for name, advice in _INTERFERING.items():
        if _is_on(name):
            yield CheckResult(name, Status.WARNING, _value(name), advice)
    ours = program_environment(dict(os.environ), Path("SESSION"), Path("WORKSPACE/cache"))
    for name in sorted(os.environ):
        if name.startswith(("TRITON_", "TORCHINDUCTOR_")) and ours[name] != os.environ[name]:
            yield CheckResult(name, Status.OK, f"{_value(name)}; programs that kprof-inject runs get {ours[name]!r}")
        elif name.startswith("TORCHINDUCTOR_"):
            yield CheckResult(name, Status.OK, f"{_value(name)}, and applies to the program as usual")


def _is_on(name: str) -> bool:
    return os.environ.get(name, "").lower() not in _OFF


def _value(name: str) -> str:
    return f"is set to {os.environ[name]!r}"


Check = Callable[[], Iterable[CheckResult]]

_CHECKS: tuple[tuple[str, Check], ...] = (
    ("Python", _python),
    ("packages", _required),
    ("optional packages", _optional),
    ("Triton", _triton),
    ("Proton", _proton),
    ("torch", _torch),
    ("GPU", gpus),
    ("GPU driver", driver),
    ("counters", counters),
    ("compiler", compiler),
    ("start-up hook", hook),
    ("environment", environment),
    ("current folder", current_folder),
)


def examine() -> Iterator[CheckResult]:
    """Run all checks. An unexpected failure of a check is a result as well."""
    for what, check in _CHECKS:
        try:
            yield from list(check())
        except Exception as error:  # noqa: BLE001 (a broken installation may fail in any way)
            fact = f"cannot be checked: {type(error).__name__}: {error}"
            advice = "the installation is broken, or unknown to kprof-inject; please report it"
            yield CheckResult(what, Status.PROBLEM, fact, advice)
