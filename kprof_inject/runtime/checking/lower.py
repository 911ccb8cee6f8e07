"""Compile a TTGIR file to machine code, with its records or as it is. No GPU is needed."""

from __future__ import annotations

import json
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import triton
from triton import knobs
from triton.backends.compiler import GPUTarget

from kprof_inject.capture.mode import Mode
from kprof_inject.errors import KprofError
from kprof_inject.runtime.instrumentation import instrumented, shared_bytes_of

# Each of these reads one clock register once: PTX ISA "Special Registers"; AMD CDNA3 ISA, section 6.
_CLOCK_READ = {
    "cuda": re.compile(r"mov\.u32\s+%r\d+, %clock;"),
    "hip": re.compile(r"\bs_memtime\b"),
}

_KERNEL = re.compile(r'"?tt\.func"?(?!\s+private\b)')


@dataclass(frozen=True, slots=True)
class Lowered:
    """What the compiler made: ``assembly`` is PTX or AMDGCN, ``binary`` cubin or hsaco, ``clock_reads`` how many
    times the assembly reads the cycle counter, ``metadata`` Triton's own (``profile_scratch_size``, ``shared``)."""

    assembly: str
    binary: bytes
    clock_reads: int
    metadata: dict[str, Any]


def target_of(backend: str, arch: int | str, warp_size: int) -> GPUTarget:
    return GPUTarget(backend, arch, warp_size)


def lower(text: str, target: GPUTarget, options: dict[str, Any], mode: Mode) -> Lowered:
    """Compile TTGIR text with records for ``target``. Raises ``KprofError`` if Triton or Proton refuse, as Proton does
    unless all helpers can be inlined (see ``lowerable``)."""
    with instrumented(target, mode, shared_bytes_of(target)):
        return _lower(text, target, options)


def lower_without_records(text: str, target: GPUTarget, options: dict[str, Any]) -> Lowered:
    """Compile TTGIR text that has no records, as Triton does by itself. Raises ``KprofError`` if it refuses."""
    return _lower(text, target, options)


def _lower(text: str, target: GPUTarget, options: dict[str, Any]) -> Lowered:
    # Of a module without a kernel, Triton reads the signature of a function that is not there, and the process dies.
    if not _KERNEL.search(text):
        raise KprofError("there is no public tt.func to lower", hint="give a .ttgir file as Triton writes it")
    with tempfile.TemporaryDirectory(prefix="kprof-lower-") as folder, knobs.cache.scope():
        knobs.cache.dir = str(Path(folder, "cache"))
        path = Path(folder, "kernel.ttgir")
        path.write_bytes(text.encode())
        try:
            kernel = triton.compile(str(path), target=target, options=options)
        except Exception as error:  # the compiler's errors have no common base
            raise KprofError(
                f"Triton {triton.__version__} does not lower this module for {target.backend}:{target.arch}: {error}",
                hint="the compiler's own messages are above; the module may come from another Triton version",
            ) from error
    assembly = kernel.asm["ptx" if target.backend == "cuda" else "amdgcn"]
    return Lowered(
        assembly,
        kernel.kernel,
        len(_CLOCK_READ[target.backend].findall(assembly)),
        json.loads(json.dumps(kernel.metadata._asdict(), default=vars)),
    )
