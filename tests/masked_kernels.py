"""Kernels with masks and with offsets of 64 bits, as Triton compiles them for sm_90, and evidence of their launches."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from known_kernels import launched
from replacing import replace
from triton_oracle import GPUTarget, triton

from kprof_inject.analysis.evidence.executed_instructions import block_executions
from kprof_inject.analysis.findings.evidence import Evidence
from kprof_inject.analysis.interpreter.executions import evaluated
from kprof_inject.analysis.roofs.coalescing import requests_of
from kprof_inject.analysis.roofs.speed_of_light import SpeedOfLight
from kprof_inject.analysis.summary import summarise
from kprof_inject.analysis.unjudged import Unjudged
from kprof_inject.capture.scopes import ScopeTable
from kprof_inject.machine_code.control_flow import blocks_of
from kprof_inject.machine_code.instructions import MachineFunction
from kprof_inject.runtime.compiling.disassembly import machine_code_of
from kprof_inject.ttgir.parser import parse

tl = triton.language

ADDRESS = 1 << 24
BLOCK, ROWS, COLUMNS = 1024, 32, 128
ALL = 16


@triton.jit
def product(x_ptr, y_ptr, out_ptr, size, BLOCK: tl.constexpr, EVEN: tl.constexpr, WIDE: tl.constexpr):  # type: ignore[no-untyped-def]
    program = tl.program_id(0)
    if WIDE:
        program = program.to(tl.int64)
    places = program * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.store(out_ptr + places, tl.load(x_ptr + places) * tl.load(y_ptr + places))
    else:
        mask = places < size
        x = tl.load(x_ptr + places, mask=mask)
        tl.store(out_ptr + places, x * tl.load(y_ptr + places, mask=mask), mask=mask)


@triton.jit
def row_sums(x_ptr, out_ptr, size, width, step, ROWS: tl.constexpr, COLUMNS: tl.constexpr, WIDE: tl.constexpr):  # type: ignore[no-untyped-def]
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    sums = tl.zeros((ROWS, COLUMNS), tl.float32)
    for first in range(0, size, COLUMNS):
        columns = first + tl.arange(0, COLUMNS)
        if WIDE:
            places = rows[:, None].to(tl.int64) * width + columns[None, :].to(tl.int64) * step
        else:
            places = rows[:, None] * width + columns[None, :] * step
        sums += tl.load(x_ptr + places)
    tl.store(out_ptr + rows, tl.sum(sums, 1))


@triton.jit
def scattered(x_ptr, out_ptr, far, stride, BLOCK: tl.constexpr, WIDE: tl.constexpr):  # type: ignore[no-untyped-def]
    program, places = tl.program_id(0), tl.arange(0, BLOCK)
    mixed = (places ^ (places >> 3)) - 5
    if WIDE:
        x = tl.load(x_ptr + (program * far + mixed * stride))
    else:
        x = tl.load(x_ptr + program * far + mixed * stride.to(tl.int32))
    tl.store(out_ptr + program * BLOCK + places, x)


@triton.jit
def matmul(a_ptr, b_ptr, c_ptr, m, n, k, TILE: tl.constexpr, DEPTH: tl.constexpr, EVEN: tl.constexpr):  # type: ignore[no-untyped-def]
    rows = tl.program_id(0) * TILE + tl.arange(0, TILE)
    columns = tl.program_id(1) * TILE + tl.arange(0, TILE)
    total = tl.zeros((TILE, TILE), tl.float32)
    for first in range(0, k, DEPTH):
        inner = first + tl.arange(0, DEPTH)
        a_places, b_places = rows[:, None] * k + inner[None, :], inner[:, None] * n + columns[None, :]
        if EVEN:
            a, b = tl.load(a_ptr + a_places), tl.load(b_ptr + b_places)
        else:
            a = tl.load(a_ptr + a_places, mask=(rows[:, None] < m) & (inner[None, :] < k), other=0.0)
            b = tl.load(b_ptr + b_places, mask=(inner[:, None] < k) & (columns[None, :] < n), other=0.0)
        total = tl.dot(a, b, total)
    c_places = rows[:, None] * n + columns[None, :]
    if EVEN:
        tl.store(c_ptr + c_places, total.to(tl.float16))
    else:
        tl.store(c_ptr + c_places, total.to(tl.float16), mask=(rows[:, None] < m) & (columns[None, :] < n))


_TYPES = {"x_ptr": "*fp32", "y_ptr": "*fp32", "out_ptr": "*fp32", "a_ptr": "*fp16", "b_ptr": "*fp16", "c_ptr": "*fp16"}
_TYPES |= {"far": "i64", "stride": "i64"}


@cache
def compiled(kernel: Any, aligned: tuple[str, ...], **constants: int) -> tuple[str, MachineFunction]:
    """Return the TTGIR and the machine code; arguments in ``aligned`` are known to be multiples of 16."""
    names = kernel.arg_names
    signature = {name: "constexpr" if name in constants else _TYPES.get(name, "i32") for name in names}
    attributes = {(names.index(name),): [["tt.divisibility", ALL]] for name in aligned}
    values = {(names.index(name),): value for name, value in constants.items()}
    source = triton.compiler.ASTSource(kernel, signature, values, attributes)
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4})
    text = made.asm["ttgir"]
    (code,) = machine_code_of(parse(text, "kernel.ttgir"), {})
    return text, code


def evidence_of(
    folder: Path,
    built: tuple[str, MachineFunction],
    grid: tuple[int, int, int],
    arguments: tuple[int, ...],
    parts: Mapping[str, float],
) -> Evidence:
    """Return evidence of a launch in which units are busy for ``parts`` of the time."""
    text, code = built
    timeline = launched(folder)
    ran = evaluated(text, "kernel.ttgir", grid, arguments, ScopeTable(()))
    summary = replace(summarise(timeline), duration_ns=100_000)
    light = SpeedOfLight((), missing=Unjudged("made by hand", ""))
    return Evidence(timeline, summary, light, ran, parts=parts, code=code, requests=requests_of(ran, code))


def issued(evidence: Evidence) -> int:
    """The number of instructions that the warps of a launch issue, where it is known."""
    assert evidence.code is not None
    assert evidence.ran is not None
    executions = block_executions(evidence.code, evidence.ran, evidence.kernel.requested_warps).known
    blocks = blocks_of(evidence.code)
    return sum((block.end - block.first) * (count or 0) for block, count in zip(blocks, executions, strict=True))
