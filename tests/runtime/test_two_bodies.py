"""Kernels with two bodies: ptxas takes them, and a CTA goes where the sample says. Real PTX of the installed Triton."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden import form_of, kernel_of, read
from hypothesis import example, given
from hypothesis import strategies as st
from planning import insertion_of
from test_lower import FIXTURES, described
from triton import knobs
from triton.backends.compiler import GPUTarget

from kprof_inject.capture.buffer_layouts import CLOCK_HIGH_MASK, END, END_SHIFT, LAYOUTS, SCOPE_SHIFT, rows_of
from kprof_inject.capture.cta_samples import END_BYTES, SM_BITS, CtaSample
from kprof_inject.capture.mode import Mode
from kprof_inject.capture.schema import MAX_CTA_SHIFT, SCOPE_IDS
from kprof_inject.errors import KprofError
from kprof_inject.runtime.compiling.instrumentation import Lowered, keeping_body, lower, lower_without_records
from kprof_inject.runtime.compiling.two_bodies import FunctionRecord, with_one_body, with_two_bodies
from kprof_inject.runtime.versions import installed_version

pytestmark = pytest.mark.triton

OFFSET_BITS = installed_version().offset_bits
needs_times = pytest.mark.skipif(OFFSET_BITS is None, reason="CTAs leave no times")
ON_CUDA = [path for path in FIXTURES if path.parent.name.startswith("cuda") and path.name.count(".") <= 2]
# With a loop and dots, with warps of several roles, with branches, with shared memory, and without any of it.
KEPT = {"matmul", "gluon_warp_specialized", "early_returns", "layer_norm", "vector_add", "tma_matmul"}
WITH_EVERY_TRITON = {"matmul", "gluon_warp_specialized"}
COMPILED = {
    name: path
    for path in ON_CUDA
    if path.parent.name == "cuda-90" and (name := kernel_of(path)) in KEPT and not form_of(path)
}
ADDRESS = 0x7F00_0000_0000
of_each_kind = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in WITH_EVERY_TRITON else pytest.mark.slow) for name in COMPILED]
)


def lowered(name: str) -> tuple[GPUTarget, dict[str, Any], Lowered, str]:
    """A fixture's target and options, the kernel without records, and its TTGIR with a record of the function."""
    path = COMPILED[name]
    target, options = described(path)
    return target, options, lower_without_records(read(path), target, options), insertion_of(read(path), "func").text


@needs_times
@of_each_kind
def test_the_code_without_records_is_kept(name: str) -> None:
    target, options, clean, text = lowered(name)
    for mode in (Mode(), Mode("global")):
        try:
            alone = lower(text, target, options, mode)
        except KprofError:
            continue  # shared memory has no room
        with keeping_body(clean.assembly, options.get("num_ctas", 1)):
            both = lower(text, target, options, mode)
        assert both.clock_reads == alone.clock_reads
        assert both.binary[:4] == b"\x7fELF" and len(both.binary) > len(alone.binary)
        # Every return of the kernel without records writes its CTA's end first.
        inner = both.assembly[both.assembly.index("$kprof_without:") : both.assembly.index("$kprof_ended:")]
        assert "ret;" not in inner and "bra $kprof_ended;" in inner
        assert inner.count("%clock") == clean.assembly.count("%clock")


def ptx(name: str, extra: str = "", body: str = "\tret;\n", parameters: str = "\t.param .u64 .ptr k_param_0") -> str:
    return (
        f".version 8.7\n.target sm_90a\n.address_size 64\n{extra}"
        f".visible .entry {name}(\n{parameters}\n)\n.reqntid 128\n{{\n\t.reg .b64 %rd<3>;\n{body}}}\n"
    )


RECORDED = ptx("k", body="\tld.param.b64 %rd1, [k_param_0];\n\tret;\n")


@pytest.mark.parametrize(
    ("clean", "recorded", "message"),
    [
        (ptx("other"), RECORDED, "takes other arguments"),
        (ptx("k"), ptx("k"), "does not read its buffer's address"),
        (ptx("k") + ptx("l"), RECORDED, "2 kernels"),
        (ptx("k", parameters="\t.param .u32 k_param_0"), RECORDED, "no parameter for a buffer"),
    ],
)
def test_what_is_not_one_kernel_is_refused(clean: str, recorded: str, message: str) -> None:
    with pytest.raises(KprofError, match=message):
        with_two_bodies(clean, recorded, 256, 1, 64)
    if "address" not in message:
        with pytest.raises(KprofError, match=message):
            with_one_body(clean, recorded, 256, 1, FunctionRecord(0, 4, 16))


def test_functions_that_records_have_inlined_are_refused() -> None:
    """They follow the kernel, and their returns are not the kernel's."""
    helper = ".func (.param .b32 r) helper()\n{\n\tret;\n}\n"
    with pytest.raises(KprofError, match="functions that are inlined"):
        with_one_body(ptx("k") + helper, RECORDED, 256, 1, FunctionRecord(0, 4, 16))


def test_threads_that_end_by_themselves_are_refused() -> None:
    """Their CTA would leave the row of an earlier launch. A trap ends the program."""
    function = FunctionRecord(0, 4, 16)
    one = with_one_body(ptx("k", body="\ttrap;\n\texit;\n\tret.uni;\n"), RECORDED, 256, 1, function)
    assert "bra $kprof_ended;\n$kprof_ended:" in one
    with pytest.raises(KprofError, match="ends threads by exit"):
        with_one_body(ptx("k", body="\t@%p1 exit;\n\tret;\n"), RECORDED, 256, 1, function)


EXECUTED: dict[str, Callable[..., int]] = {
    "mov": lambda a, b, c: a,
    "cvt": lambda a, b, c: a,
    "and": lambda a, b, c: a & b,
    "xor": lambda a, b, c: a ^ b,
    "not": lambda a, b, c: ~a,
    "shl": lambda a, b, c: a << b,
    "shr": lambda a, b, c: a >> b,
    "add": lambda a, b, c: a + b,
    "sub": lambda a, b, c: a - b,
    "mul": lambda a, b, c: a * b,
    "mad": lambda a, b, c: a * b + c,
    "or": lambda a, b, c: a | b,
    "setp": lambda a, b, c: a == b,
    "bfi": lambda a, b, c, bits: b & ~((1 << bits) - 1 << c) | (a & (1 << bits) - 1) << c,
}


END_NS = (5 << 53) + 500
LEFT_END = (END_NS << SM_BITS) % (1 << 64) | 7


class Cta:
    """Executes the code of our own that one thread of a CTA runs, up to the body it goes to."""

    def __init__(
        self,
        code: str,
        grid: tuple[int, int, int],
        cta: int,
        parameter: int,
        thread: int = 0,
        timer_ns: Sequence[int] = (END_NS,),
    ) -> None:
        x, y, _ = grid
        self.special = {
            "%ctaid.x": cta % x,
            "%ctaid.y": cta // x % y,
            "%ctaid.z": cta // (x * y),
            "%nctaid.x": x,
            "%nctaid.y": y,
            "%tid.x": thread,
            "%smid": 7,
        }
        self.readings = {"%clock": [0xFFFF_FF00, 0x100], "%clock_hi": [0xABC, 0xABD], "%globaltimer": [*timer_ns]}
        self.parameter = parameter
        self.values: dict[str, int] = {"%kprof_d": 0}  # other threads than the first do not read the timer at first
        self.stores: dict[int, int] = {}
        self.label = ""
        lines = [line.strip() for line in code.splitlines() if line.strip()]
        at = 0
        while at < len(lines):
            to = self.step(lines[at])
            if to == "ret":
                self.label = "without"
                return
            at = lines.index(f"{to}:") if to else at + 1
            if (lines[at : at + 1] and lines[at].startswith("$kprof_without")) or (to and to == "$kprof_without"):
                self.label = "without"
                return
        self.label = "with"

    def value(self, text: str) -> int:
        if text in self.readings:
            return self.readings[text].pop(0)
        if text in self.special:
            return self.special[text]
        return self.values[text] if text.startswith("%") else int(text)

    def step(self, line: str) -> str:
        """Execute one instruction; return where it branches to."""
        negated, guard, line = re.match(r"(?:@(!?)(%\w+) )?(.*)", line).groups()  # type: ignore[union-attr]
        if guard and bool(self.values[guard]) == bool(negated):
            return ""
        if line.startswith((".reg", "bar.sync")) or line.endswith(":"):
            return ""
        if line == "ret;":
            return "ret"
        name, rest = line.rstrip(";").split(" ", 1)
        if name == "bra":
            return rest
        if halves := re.fullmatch(r"(.*)\{(%\w+), (%\w+)\}(.*)", rest) if name == "mov.b64" else None:
            before, low, high, after = halves.groups()
            if after:
                value = self.value(after.strip(", "))
                self.values[low], self.values[high] = value & 0xFFFFFFFF, value >> 32
            else:
                self.values[before.strip(", ")] = self.values[high] << 32 | self.values[low]
            return ""
        operands = [operand.strip() for operand in rest.split(",")]
        if name.startswith(("st.global", "red.global.max")):
            base, offset = re.fullmatch(r"\[(%\w+)(?:\+(-?\d+))?\]", operands[0]).groups()  # type: ignore[union-attr]
            size, address = 8 if "64" in name else 4, self.values[base] + int(offset or 0)
            assert address % (size * len(operands[1:])) == 0
            for number, operand in enumerate(operands[1:]):
                stored = self.value(operand.strip("{}")) & (1 << 8 * size) - 1
                self.stores[address + size * number] = stored
            return ""
        if name == "ld.param.b64":
            self.values[operands[0]] = self.parameter
            return ""
        a, b, c, *more = [self.value(operand) for operand in operands[1:]] + [0, 0]
        operation = name.split(".")[0]
        kind = name.split(".")[1] if operation == "cvt" else name.split(".")[-1]
        bits = 64 if "64" in kind or ".wide" in name else 32
        if name == "cvt.s64.s32":
            result = a - (1 << 32) if a >> 31 & 1 else a
        else:
            operands_left = [c, more[0]] if operation == "bfi" else [c]
            result = EXECUTED[operation](a, b, *operands_left) ^ (operation == "setp" and ".ne" in name)
        self.values[operands[0]] = int(result) & ((1 << bits) - 1)
        return ""


@given(
    grid=st.tuples(st.integers(1, 3000), st.integers(1, 40), st.integers(1, 7)),
    bits=st.integers(0, 3),
    shift=st.integers(0, MAX_CTA_SHIFT),
    data=st.data(),
)
@example(grid=(1 << 17, 1, 1), bits=0, shift=7, data=None)
def test_ctas_go_by_the_sample(grid: tuple[int, int, int], bits: int, shift: int, data: st.DataObject | None) -> None:
    cluster_ctas, row_bytes = 1 << bits, 65_664
    grid = (grid[0] * cluster_ctas, *grid[1:])
    sample = CtaSample(prod(grid), cluster_ctas, shift)
    cta = data.draw(st.integers(0, sample.ctas - 1)) if data else sample.ctas - 3
    row = int(rows_of(sample, np.array([cta]))[0])
    for offset_bits in (32, 64):
        both = with_two_bodies(ptx("k"), RECORDED, row_bytes, cluster_ctas, offset_bits)
        code = both[both.index("\t.reg .pred %kprof_p,") : both.index("\tmov.b64 %rd1, %kprof_base;")]
        code = code.replace(code[code.index("{\n") : code.index("$kprof_with:")], "")
        ran = Cta(code, grid, cta, ADDRESS + shift)
        assert ran.label == ("with" if row >= 0 else "without")
        if row >= 0:
            offset = cta * row_bytes
            if offset_bits == 32:  # as Proton computes it: the lower half, with its sign
                offset = (offset & 0xFFFFFFFF) - ((offset & 0x80000000) << 1)
            assert (ran.values["%kprof_base"] + offset) % (1 << 64) == ADDRESS + row * row_bytes
        else:
            assert ran.stores == {}


@given(
    shift=st.integers(0, 6),
    bits=st.integers(0, 2),
    cta=st.integers(0, 6000 - 1),
    scope_id=st.integers(0, SCOPE_IDS - 1),
    warps=st.sampled_from([1, 3, 4, 8]),
)
def test_the_only_body_leaves_what_is_read_as_one_scope_of_each_warp(
    shift: int, bits: int, cta: int, scope_id: int, warps: int
) -> None:
    """Threads of a CTA execute our own code; in place of the kernel's there is its return."""
    sample, row_bytes, ring_bytes, grid = CtaSample(6000, 1 << bits, shift), 128 + 512, 64, (100, 30, 2)
    one = with_one_body(ptx("k"), RECORDED, row_bytes, 1 << bits, FunctionRecord(scope_id, warps, ring_bytes))
    code = one[one.index("\t.reg .pred %kprof_p,") : one.rindex("}")]
    timer_ns = (END_NS - 1500, END_NS, END_NS + 100)
    threads = [
        Cta(code, grid, cta, ADDRESS + shift, thread, timer_ns)
        for warp in range(warps)
        for thread in (32 * warp, 32 * warp + 9)
    ]
    stores = {address: value for thread in threads for address, value in thread.stores.items()}
    row = int(rows_of(sample, np.array([cta]))[0])
    if row < 0:
        assert stores == {ADDRESS - (cta + 1) * END_BYTES: LEFT_END}
        return
    words = np.zeros((sample.rows, row_bytes // 4), np.uint32)
    raw = words.reshape(-1).view(np.uint8)
    for address, value in stores.items():
        data = value.to_bytes(8 if value in timer_ns else 4, "little")
        raw[address - ADDRESS : address - ADDRESS + len(data)] = list(data)
    read = LAYOUTS["timed"].read(words, warps, range(warps), sample, np.zeros(sample.ctas, END))
    assert (read.cta.tolist(), read.sm.tolist(), read.damaged, read.timed) == ([cta], [7], 0, True)
    times_ns = (read.init_ns, read.pre_final_ns, read.post_final_ns)
    assert tuple(map(int, np.concatenate(times_ns))) == timer_ns
    assert read.written_words.tolist() == [[4] * warps] and read.entries.shape == (1, warps, ring_bytes // 8, 2)
    start, end = scope_id << SCOPE_SHIFT | 0xABC & CLOCK_HIGH_MASK, 1 << END_SHIFT | scope_id << SCOPE_SHIFT
    assert read.entries[0, :, :2].tolist() == [[[start, 0xFFFF_FF00], [end | 0xABD & CLOCK_HIGH_MASK, 0x100]]] * warps


@needs_times
@of_each_kind
def test_the_only_body_is_the_kernels_own(name: str) -> None:
    """ptxas takes it with the records around it."""
    target, options, clean, text = lowered(name)
    warps = int(clean.metadata["num_warps"])
    with keeping_body(clean.assembly, options.get("num_ctas", 1), None, FunctionRecord(0, warps, 16)):
        one = lower(text, target, options, Mode("global", 16 * warps))
    before = "mov.pred %kprof_records, %kprof_p;\n"
    body = one.assembly[one.assembly.index(before) + len(before) : one.assembly.index("$kprof_ended:\n")]
    assert body.replace("bra $kprof_ended;", "ret;") in clean.assembly
    assert one.clock_reads == 2 and one.binary[:4] == b"\x7fELF"


@pytest.mark.parametrize("thread", [0, 1, 32])
def test_the_first_thread_leaves_the_end(thread: int) -> None:
    both = with_two_bodies(ptx("k"), RECORDED, 65_664, 1, 64)
    code = both[both.index("\t.reg .pred %kprof_p,") : both.index("\t@%kprof_p bra $kprof_with;")]
    code += both[both.index("$kprof_ended:") : both.index("$kprof_with:")]
    ran = Cta(code, (100, 30, 2), 4321, ADDRESS + 5, thread)
    assert ran.stores == ({} if thread else {ADDRESS - 4322 * END_BYTES: LEFT_END})


@needs_times
def test_registers_can_be_limited() -> None:
    """ptxas takes the directive, and does what it says."""
    target, options, clean, text = lowered("matmul")
    with keeping_body(clean.assembly, options.get("num_ctas", 1), 128):
        both = lower(text, target, options, Mode("global"))
    assert both.assembly.count(".maxnreg 128") == 1
    assert registers_of(both.binary) <= 128 < registers_of(clean.binary)


def registers_of(binary: bytes) -> int:
    """Return the number of registers of a thread, as cuobjdump prints it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kernel.cubin")
        path.write_bytes(binary)
        tool = knobs.nvidia.cuobjdump.path
        printed = subprocess.run([tool, "-res-usage", path], capture_output=True, text=True, check=True).stdout
    (found,) = re.findall(r"REG:(\d+)", printed)
    return int(found)
