"""We count no more elementwise work than there is in the machine code that Triton makes for sm_90."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from golden import FIXTURES
from triton_oracle import GPUTarget, triton

from kprof_inject.analysis.interpreter.executions import evaluated
from kprof_inject.analysis.limits.computed_elements import computed_shares
from kprof_inject.analysis.limits.memory import passes_by_l1
from kprof_inject.analysis.limits.operation_work import NO_WORK, Work, work_of, work_with_integers
from kprof_inject.capture.scopes import ScopeTable
from kprof_inject.ttgir.parser import parse

HOPPER = GPUTarget("cuda", 90, 32)
THREADS, ELEMENTS = 128, 1024
KERNEL = """\
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def kernel(x_ptr, y_ptr, out_ptr, n):
    places = tl.program_id(0) * {elements} + tl.arange(0, {elements})
    mask = places < n
    x, y = tl.load(x_ptr + places){cast}, tl.load(y_ptr + places){cast}
    {lines}
    tl.store(out_ptr + places, z.to(out_ptr.dtype.element_ty))
"""
# The units of sm_90, by the instructions that nothing else executes. ALU and FMA share moves; the FMA unit multiplies.
UNITS = {
    "special": re.compile(r"MUFU"),
    "logic": re.compile(
        r"IADD3|LOP3|SHF|ISETP|VIMNMX|VIADD|F?SEL\b|FMNMX|FSETP|PRMT|LEA|SGXT|HMNMX2|HSETP2|HSET2|IABS|F2FP"
    ),
    "fp32": re.compile(r"F(ADD|MUL|FMA)|H(ADD|MUL|FMA)2|IMAD"),
    "integer_multiplications": re.compile(r"IMAD(?!\.(MOV|SHL|IADD|X|U32)\b)"),
    "fp64": re.compile(r"D(ADD|MUL|FMA|SETP)"),
    "issue": re.compile(r""),
}
_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)")


def compiled(folder: Path, lines: Sequence[str], element: str, out: str, cast: str) -> Any:
    path = folder / "made.py"
    path.write_text(KERNEL.format(elements=ELEMENTS, cast=cast, lines="\n    ".join(lines)))
    spec = importlib.util.spec_from_file_location("made", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    signature = {"x_ptr": f"*{element}", "y_ptr": f"*{element}", "out_ptr": f"*{out}", "n": "i32"}
    aligned = {(place,): [["tt.divisibility", 16]] for place in range(4)}
    source = triton.compiler.ASTSource(module.kernel, signature, {}, aligned)
    return triton.compile(source, target=HOPPER, options={"num_warps": THREADS // 32})


def instructions(cubin: bytes, folder: Path) -> Counter[str]:
    (folder / "kernel.cubin").write_bytes(cubin)
    disassembler = Path(triton.__file__).parent / "backends/nvidia/bin/nvdisasm"
    command = [str(disassembler), "-c", str(folder / "kernel.cubin")]
    return Counter(_INSTRUCTION.findall(subprocess.run(command, capture_output=True, text=True, check=True).stdout))


def counted(text: str) -> Work:
    """Of a module without loops."""
    module, total = parse(text), NO_WORK
    shares, integers = computed_shares(module), work_with_integers(module)
    for one in module.walk():
        total += (work_of(one, module.aliases) + integers.get(one, NO_WORK)) * shares.get(one, 1.0)
    return total


def most_counted(
    folder: Path, lines: Sequence[str], element: str, out: str = "", cast: str = ""
) -> dict[str, tuple[float, int]]:
    """By unit, what is counted for each thread, and how many instructions there are."""
    made = compiled(folder, lines, element, out or element, cast)
    work = counted(made.asm["ttgir"])
    fp32 = max(work.multiplications, work.additions) + work.integer_multiplications
    found = {
        "special": work.special,
        "logic": work.logic,
        "fp32": fp32,
        "integer_multiplications": work.integer_multiplications,
        "fp64": work.fp64,
        "issue": fp32 + work.special + work.logic + work.conversions + work.fp64,
    }
    code = instructions(made.asm["cubin"], folder)
    return {
        unit: (count / THREADS, sum(times for name, times in code.items() if UNITS[unit].match(name)))
        for unit, count in found.items()
    }


FLOAT, FLOATS = ".to(tl.float32)", ("fp32", "fp64")


@pytest.mark.parametrize(
    ("expression", "element", "unit"),
    [
        # What is counted in full.
        ("x * tl.sigmoid(x) * y", "fp32", "special"),
        ("x / y", "bf16", "special"),
        ("tl.maximum(x, y)", "fp32", "logic"),
        ("x * y + x", "fp32", "fp32"),
        ("x * y + x", "fp64", "fp64"),
        ("tl.maximum(x, y) + x * y", "fp64", "fp64"),
        # Pairs of 16 bits, and what is done in them.
        ("x + y", "fp16", "fp32"),
        ("tl.where(x > 0, x, 0.0)", "fp16", "logic"),
        ("tl.minimum(x, y)", "bf16", "logic"),
        # Predicates choose.
        ("tl.where(x > 0, x, x * 0.1)", "fp32", "logic"),
        ("tl.where(mask, x * y + x, x)", "fp32", ""),
        # None at all.
        ("tl.log2(x)", "fp32", ""),
        ("tl.clamp(x, 0.0, 1.0)", "fp32", ""),
        ("tl.where(mask, 1.0, 2.0) / tl.where(mask, 3.0, x)", "fp32", ""),
    ],
)
def test_no_more_floats_are_counted_than_computed(tmp_path: Path, expression: str, element: str, unit: str) -> None:
    found = most_counted(tmp_path, [f"z = {expression}"], element, cast="" if element in FLOATS else FLOAT)
    assert {name: counts for name, counts in found.items() if counts[0] > counts[1]} == {}
    assert not unit or found[unit][0]


@pytest.mark.parametrize(
    ("expression", "unit"),
    [
        pytest.param("(x ^ (x >> 13)) * 0x5bd1e995", "integer_multiplications", marks=pytest.mark.triton),
        pytest.param("tl.where((x & 0xF0F0) == 0, x, y)", "logic", marks=pytest.mark.triton),
        ("tl.where((x > 0) & (x < 100), x, y)", ""),
        ("((x >> 4) & 0xF).to(tl.float32).to(tl.int32)", "logic"),
        ("(x << 16) | (y & 0xffff)", ""),
        ("tl.umulhi(x.to(tl.uint32), y.to(tl.uint32)).to(tl.int32) ^ (x * y)", "integer_multiplications"),
        ("x * 3 + y * 7", ""),
    ],
)
def test_no_more_integers_are_counted_than_computed(tmp_path: Path, expression: str, unit: str) -> None:
    found = most_counted(tmp_path, [f"z = {expression}"], "i32")
    assert {name: counts for name, counts in found.items() if counts[0] > counts[1]} == {}
    assert not unit or found[unit][0]


@pytest.mark.parametrize("is_aligned", [True, False])
def test_copies_pass_by_the_l1_where_they_have_16_bytes(tmp_path: Path, is_aligned: bool) -> None:
    """As PTX says: ``cp.async.cg`` passes by, ``cp.async.ca`` does not."""
    text = (FIXTURES / "3.6.0" / "cuda-90" / "gluon_async_pipeline.ttgir").read_text()
    path = tmp_path / "kernel.ttgir"
    path.write_text(text if is_aligned else text.replace(": i32 {tt.divisibility = 16 : i32}", ": i32"))
    made = triton.compile(str(path), target=HOPPER).asm["ptx"]
    assert ("cp.async.cg" in made, "cp.async.ca" in made) == (is_aligned, not is_aligned)
    ran = evaluated(path.read_text(), str(path), (1, 1, 1), (None,) * 4, ScopeTable())
    copies = [one.access for one in ran.operations if one.access and "async_copy" in one.operation.name]
    assert {passes_by_l1(one, ran.module.aliases) for one in copies} == {is_aligned}


ALU = re.compile(r"(IADD3|LOP3|SHF|ISETP|VIMNMX|VIADDMNMX|VIADD|F?SEL|FMNMX|FSETP|PRMT|LEA|PLOP3|SGXT|I2FP)\b")
NO_PRODUCTS = ("IMAD.MOV", "IMAD.SHL", "IMAD.IADD", "IMAD.X")


def test_machine_code_has_no_fewer_instructions(tmp_path: Path) -> None:
    """Dropout mostly makes random numbers, and has no loop."""
    path = FIXTURES / "3.6.0" / "cuda-90" / "dropout.ttgir"
    code = instructions(triton.compile(str(path), target=HOPPER).asm["cubin"], tmp_path)
    total, threads = NO_WORK, 128
    for work in work_with_integers(parse(path.read_text())).values():
        total += work
    alu = sum(count for name, count in code.items() if ALU.match(name))
    products = sum(
        count for name, count in code.items() if name.startswith("IMAD") and not name.startswith(NO_PRODUCTS)
    )
    assert 0.5 * alu < total.logic / threads <= alu
    assert 0.9 * products < total.integer_multiplications / threads <= products
