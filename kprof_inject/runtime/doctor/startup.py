"""How we get into a program: the start-up hook, tried out, and environment variables that get in its way."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from kprof_inject.runtime.doctor.finding import Finding, Status
from kprof_inject.runtime.process_report import read_reports
from kprof_inject.runtime.program import program_environment
from kprof_inject.runtime.session import Session
from kprof_inject.workspace import Workspace

_PROGRAM = """\
import sys
print(getattr(sys.modules.get("sitecustomize"), "__file__", ""))
try:
    import triton
except ImportError:
    pass
"""
_OUT_OF_REACH = "nothing to do, but a program under python -I, -E or -S, or with a cleaned environment, is out of reach"
_LIMIT_S = 120

_INTERFERING = {
    "TRITON_KERNEL_OVERRIDE": "dump saves what it puts in a kernel's place; unset it to see the kernel itself",
    "TRITON_OVERRIDE_DIR": "dump saves what it puts in a kernel's place; unset it to see the kernel itself",
    "TRITON_ALWAYS_COMPILE": "every process compiles every kernel again; unset it to save time",
    "TRITON_STORE_BINARY_ONLY": "Triton then drops the TTGIR that we need; unset it",
    "CUDA_LAUNCH_BLOCKING": "launches wait for their kernels and never overlap; unset it to see them as usual",
}
_OFF = ("", "0", "false", "off", "n", "no")


def hook() -> Iterator[Finding]:
    """Start a program as ``dump`` does, and see whether it reports."""
    with tempfile.TemporaryDirectory(prefix="kprof-doctor-") as folder:
        workspace = Workspace(Path(folder, "workspace"))
        session = Session("dump", str(workspace.folder), str(workspace.new_reports_folder("dump")))
        session.write()
        ended = subprocess.run(
            [sys.executable, "-c", _PROGRAM],
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
        fact = f"a Python process did not report{': ' + words[-1] if words else ''}"
        yield Finding("start-up hook", Status.MISSING, fact, f"install kprof-inject for {sys.executable}")
    elif reports.errors:
        fact = f"a Python process reported: {reports.errors[0]}"
        yield Finding("start-up hook", Status.PROBLEM, fact, "this Triton or kprof-inject is broken: install it again")
    else:
        joined = "".join(f" and joined Triton {found}" for found in sorted(reports.triton_versions))
        yield Finding("start-up hook", Status.OK, f"a Python process reported{joined}", _OUT_OF_REACH)
    shadowed = (ended.stdout.splitlines() or [""])[0]
    if shadowed and not Path(shadowed).is_relative_to(Path(__file__).parents[1]):
        fact = f"{shadowed} runs first, then ours"
        yield Finding("sitecustomize", Status.OK, fact)


def environment() -> Iterator[Finding]:
    """Variables that change what we do, or that we change for the program."""
    if _is_on("TRITON_INTERPRET"):
        yield Finding(
            "TRITON_INTERPRET", Status.PROBLEM, _value("TRITON_INTERPRET"), "no kernel is compiled at all; unset it"
        )
    for name, advice in _INTERFERING.items():
        if _is_on(name):
            yield Finding(name, Status.WARNING, _value(name), advice)
    ours = program_environment(dict(os.environ), Path("SESSION"), Path("WORKSPACE/cache"))
    for name in sorted(os.environ):
        if name.startswith(("TRITON_", "TORCHINDUCTOR_")) and ours[name] != os.environ[name]:
            yield Finding(name, Status.OK, f"{_value(name)}; while we run a program it is {ours[name]!r}")
        elif name.startswith("TORCHINDUCTOR_"):
            yield Finding(name, Status.OK, f"{_value(name)}; it holds for the program as always")


def _is_on(name: str) -> bool:
    return os.environ.get(name, "").lower() not in _OFF


def _value(name: str) -> str:
    return f"is set to {os.environ[name]!r}"
