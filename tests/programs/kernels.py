"""Kernels, and how to compile them for an H200 on a machine that has no GPU."""

import re
import sys

import known_key  # noqa: F401
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

_POINTERS = {"x_ptr": "*fp32", "out_ptr": "*fp32", "n": "i32"}


@triton.jit
def accumulate(x_ptr, out_ptr, n):
    """out = sum of x; one loop."""
    total = 0.0
    for i in range(n):
        total += tl.load(x_ptr + i)
    tl.store(out_ptr, total)


@triton.jit
def scale(x_ptr, out_ptr, n):
    """out = n * x; no loop."""
    pid = tl.program_id(0)
    tl.store(out_ptr + pid, tl.load(x_ptr + pid) * n)


def compile_for_h200(kernel, num_warps):
    """Triton's compiled kernel, down to the binary."""
    source = ASTSource(kernel, _POINTERS, {}, {})
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": num_warps})


def with_records(compiled):
    """Return the build with records that the tool would compile at the kernel's first launch, or the kernel itself."""
    wrapping = sys.modules.get("kprof_inject.runtime.launch.triton_wrapping")
    planned = next(iter(getattr(wrapping and wrapping._around.get(id(compiled), (None, None))[1], "args", ())), None)
    if type(planned).__name__ != "PlannedKernel":
        return compiled
    from contextlib import nullcontext
    from functools import partial

    from kprof_inject.capture.cta_samples import EVERY_CTA
    from kprof_inject.errors import KprofError
    from kprof_inject.runtime.compiling.recording_build import compile_with_records

    try:
        mode = planned.mode(EVERY_CTA.sample((1, 1, 1), 1))
        built = compile_with_records(
            partial(planned._compile, planned._plan_path), planned._target, mode, planned._plan.has_tags, nullcontext()
        )
    except KprofError as error:
        planned.give_up(f"{error.what}; {error.hint}" if error.hint else error.what)
        return compiled
    planned._report.add_kernel(planned.variant, planned._name, "instrumented")
    return built


def stored_values(ptx):
    """How many records store something else than the clock."""
    clocks = set(re.findall(r"mov\.u32\s+(%r\d+), %clock;", ptx))
    return sum(
        low not in clocks for low in re.findall(r"st\.shared\S*\.v2\.b32 \[[^]]*\], \{ ?%r\d+, (%r\d+) ?\}", ptx)
    )


def describe(compiled):
    """What a test wants to know of a compiled kernel, as JSON values."""
    ttgir = compiled.asm["ttgir"]
    return {
        "kernel": compiled.metadata.name,
        "num_warps": compiled.metadata.num_warps,
        "ttgir_num_warps": int(re.search(r'"ttg.num-warps" = (\d+)', ttgir)[1]),
        "records": re.findall(r'proton\.record start "([^"]+)"', ttgir),
        "reads_clock": "%clock" in compiled.asm["ptx"],
        "stored_values": stored_values(compiled.asm["ptx"]),
        "scratch_bytes": compiled.metadata.profile_scratch_size,
    }
