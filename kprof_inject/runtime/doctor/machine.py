"""What this machine has: GPUs, their driver, a compiler that works, a folder to write to."""

from __future__ import annotations

import ctypes
import os
import shutil
import tempfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from kprof_inject.errors import KprofError
from kprof_inject.runtime.doctor.finding import Finding, Status

_HIDING = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
_WITHOUT_GPU = "dump, insert, check, trace and demo work without one; run and profile need it"
_NVIDIA_DRIVER = "libcuda.so.1"
_DRIVER_VERSION = Path("/sys/module/nvidia/version")
_AMD_DRIVER = Path("/dev/kfd")

_COMPILE_LIMIT_S = 120.0
# Without layouts, so that it is right for every target.
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


def gpus() -> Iterator[Finding]:
    try:
        cuda = import_module("torch").cuda
    except ImportError:
        yield Finding("GPU", Status.WARNING, "unknown: torch cannot be imported", _WITHOUT_GPU)
        return
    if not cuda.is_available():
        hiding = [f"{name}={os.environ[name]!r}" for name in _HIDING if name in os.environ]
        yield Finding("GPU", Status.WARNING, f"torch sees none{_set(hiding)}", _WITHOUT_GPU)
        return
    for index in range(cuda.device_count()):
        device = cuda.get_device_properties(index)
        kind = getattr(device, "gcnArchName", "") or f"capability {device.major}.{device.minor}"
        fact = f"{device.name}, {kind}, {device.total_memory / (1 << 30):.0f} GiB"
        yield Finding(f"GPU {index}", Status.OK, fact)


def _set(variables: list[str]) -> str:
    return f" ({', '.join(variables)} is set)" if variables else ""


def driver() -> Iterator[Finding]:
    try:
        library = ctypes.CDLL(_NVIDIA_DRIVER)
    except OSError as error:
        if _AMD_DRIVER.exists():
            yield Finding("GPU driver", Status.OK, f"AMD ({_AMD_DRIVER} is there)")
        else:
            yield Finding("GPU driver", Status.WARNING, str(error), _WITHOUT_GPU)
        return
    newest = ctypes.c_int()
    library.cuDriverGetVersion(ctypes.byref(newest))
    release = f"{_DRIVER_VERSION.read_text().strip()}, " if _DRIVER_VERSION.exists() else ""
    fact = f"NVIDIA {release}for CUDA up to {newest.value // 1000}.{newest.value % 1000 // 10}"
    yield Finding("GPU driver", Status.OK, fact)


def compiler() -> Iterator[Finding]:
    """Compile a kernel with records, in a process of its own: what it dies of is then a row too."""
    try:
        import_module("triton")
    except ImportError:
        return  # said of Triton already
    from kprof_inject.runtime.checking.check import Lower
    from kprof_inject.runtime.checking.compiler_process import CompilerProcess
    from kprof_inject.runtime.checking.module_target import ModuleTarget

    target = ModuleTarget(*(_present_target() or ("cuda", 90, 32)))
    text = _KERNEL.format(target=target, warp_size=target.warp_size)
    with CompilerProcess() as process:
        try:
            size, clock_reads = process.ask(Lower(text, "doctor.ttgir", target, has_records=True), _COMPILE_LIMIT_S)
        except KprofError as error:
            yield Finding("compiler", Status.PROBLEM, error.what, "install Triton again, or another version of it")
            return
    fact = f"{_RECORDS} records for {target}: {size} bytes of machine code, {clock_reads} clock reads"
    if clock_reads == _RECORDS:
        yield Finding("compiler", Status.OK, fact)
    else:
        advice = "Proton's lowering in this Triton is not as we know it; use another version"
        yield Finding("compiler", Status.PROBLEM, fact, advice)


def _present_target() -> tuple[str, int | str, int] | None:
    """Backend, architecture and warp size of this machine's first GPU, if there is one."""
    try:
        if not import_module("torch").cuda.is_available():
            return None
    except ImportError:
        return None
    target = import_module("triton.runtime.driver").driver.active.get_current_target()
    return target.backend, target.arch, target.warp_size


def current_folder() -> Iterator[Finding]:
    here = Path.cwd()
    try:
        with tempfile.TemporaryFile(dir=here):
            pass
    except OSError as error:
        fact = f"{here} cannot be written to: {error.strerror}"
        yield Finding("current folder", Status.PROBLEM, fact, "go elsewhere, or name a workspace with -o")
        return
    free = shutil.disk_usage(here).free
    fact = f"{here}, {free / (1 << 30):.1f} GiB free"
    if free < _ROOM_BYTES:
        yield Finding("current folder", Status.WARNING, fact, "make room, or limit captures with --max-bytes")
    else:
        yield Finding("current folder", Status.OK, fact)
