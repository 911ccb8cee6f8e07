"""The machine code of fixtures, by the lines of their TTGIR: what Triton and its assembler really make."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from golden import fixture_id, read
from triton_oracle import GPUTarget, installed_fixtures, triton

from kprof_inject.machine_code.control_flow import Wait, blocks_of, waits_in
from kprof_inject.machine_code.instructions import Instruction, MachineFunction
from kprof_inject.machine_code.lines import LoopCode, summary_of
from kprof_inject.machine_code.units import Pipeline, pipeline_of
from kprof_inject.runtime.compiling.disassembly import machine_code_of
from kprof_inject.runtime.compiling.instrumentation import lower_without_records
from kprof_inject.runtime.compiling.module_check import module_target
from kprof_inject.ttgir.nodes import Module
from kprof_inject.ttgir.parser import parse

KERNELS = (
    "cuda-80/matmul",
    "cuda-90/attention",
    "cuda-90/cross_entropy",
    "cuda-90/gluon_warp_specialized",
    "cuda-100/ws_matmul",
)
# No document that we know says which pipeline executes these, or it is one without a row.
MAX_OTHERS = 2
"""Without locations, ptxas was seen to choose another instruction for two."""
OTHERS = {"CS2R", "S2R", "S2UR", "LDC", "LDCU", "VOTE", "VOTEU", "ELECT", "REDUX", "CREDUX", "LDTM", "STTM"}


def module_of(name: str) -> Module:
    found = [path for path in installed_fixtures() if fixture_id(path) == f"{triton.__version__}/{name}"]
    if not found:
        pytest.skip(f"Triton {triton.__version__} cannot compile it")
    return parse(read(found[0]), f"{name}.ttgir")


@pytest.mark.parametrize("name", KERNELS)
def test_the_machine_code_of_a_kernel(name: str) -> None:
    """In one test, because compiling takes most of its time."""
    module = module_of(name)
    functions = machine_code_of(module, {})
    require_lines(module, functions)
    require_the_same_code(module, functions)
    for function in functions:
        require_pipelines(function)
        require_waits(function)


def require_lines(module: Module, functions: Sequence[MachineFunction]) -> None:
    """Every instruction is of a line, and nearly all of an operation: the others move values into a partition."""
    operations = {module.position(one.start).line for one in module.walk()}
    for function in functions:
        lines = [one.line for one in function.instructions]
        assert len(lines) > 16
        assert set(lines) <= set(range(1, len(module.text.splitlines()) + 1))
        assert sum(line in operations for line in lines) > 0.9 * len(lines)


def require_the_same_code(module: Module, functions: Sequence[MachineFunction]) -> None:
    """The code has the instructions of the module with its locations."""
    target = module_target(module)
    lowered = lower_without_records(module.text, GPUTarget(target.backend, target.arch, target.warp_size), {})
    expected = Counter(opcode for opcode, _ in printed(lowered.binary))
    found = Counter(one.opcode for function in functions for one in function.instructions)
    assert found.total() == expected.total()
    assert (found - expected).total() <= MAX_OTHERS


def printed(cubin: bytes) -> list[tuple[str, str]]:
    disassembler = Path(triton.__file__).parent / "backends/nvidia/bin/nvdisasm"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        text = subprocess.run([disassembler, "-c", file.name], capture_output=True, text=True, check=True).stdout
    found = re.findall(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)\s*(.*?)\s*;", text)
    return [(opcode, operands) for opcode, operands in found]


def require_pipelines(function: MachineFunction) -> None:
    others = {one.operation for one in function.instructions if pipeline_of(one) is Pipeline.OTHER}
    assert others <= OTHERS


def loops_in(function: MachineFunction) -> list[LoopCode]:
    return list(summary_of(function).loops)


def test_the_loops_of_the_kernel_are_loops_of_the_machine_code() -> None:
    """The tensor cores' work is inside, and what follows the loop is not."""
    module = module_of("cuda-90/matmul")
    (function,) = machine_code_of(module, {})
    (loop,) = loops_in(function)
    (written,) = [one for one in module.walk() if one.name == "scf.for"]
    inside = range(module.position(written.start).line, module.position(written.end - 1).line + 1)
    assert set(loop.lines) <= set(inside)
    dots = {module.position(one.start).line for one in module.walk() if one.name == "ttng.warp_group_dot"}
    assert dots <= set(loop.lines)
    assert dots <= {one.line for one in function.instructions if pipeline_of(one) is Pipeline.TENSOR}


REGISTER = re.compile(r"\bR(\d+)")


def reads(one: Instruction, register: int) -> bool:
    """Return whether an instruction with one result reads a register: its operands but for the first."""
    operands = one.operands.partition(",")[2]
    return register in map(int, REGISTER.findall(operands))


def loads_and_users(function: MachineFunction) -> Iterator[tuple[int, int]]:
    """Loads of one register, each with the first instruction in its block that reads that."""
    code = function.instructions
    for block in blocks_of(function):
        for index in range(block.first, block.end):
            one = code[index]
            if one.opcode in ("LDG.E", "LDS", "LDG.E.U16", "LDS.U16") and not one.predicate:
                register = int(REGISTER.match(one.operands)[1])  # type: ignore[index]
                users = (later for later in range(index + 1, block.end) if reads(code[later], register))
                if (user := next(users, None)) is not None:
                    yield index, user


def require_waits(function: MachineFunction) -> None:
    """No result of a load is read before it was waited for."""
    waits = set(waits_in(function))
    for load, user in loads_and_users(function):
        assert any(Wait(waiting, load) in waits for waiting in range(load + 1, user + 1))


VECTOR_REGISTER = re.compile(r"\bv(?:(\d+)\b|\[(\d+):(\d+)\])")
AMD_LOAD = re.compile(r"(?:global|buffer)_load_|ds_read")


def vector_registers(operands: str) -> set[int]:
    found: set[int] = set()
    for one, first, last in VECTOR_REGISTER.findall(operands):
        found |= set(range(int(first), int(last) + 1)) if first else {int(one)}
    return found


def amd_loads_and_users(function: MachineFunction) -> Iterator[tuple[int, int]]:
    """Loads into vector registers, each with the first instruction in its block that has one of these."""
    code = function.instructions
    for block in blocks_of(function):
        for index in range(block.first, block.end):
            if AMD_LOAD.match(code[index].opcode):
                result = vector_registers(code[index].operands.partition(",")[0])
                later = range(index + 1, block.end)
                user = next((one for one in later if vector_registers(code[one].operands) & result), None)
                if user is not None:
                    yield index, user


def test_amds_machine_code() -> None:
    """Each instruction's line is one of the module, and no result of a load is used before it was waited for."""
    module = module_of("hip-gfx942/matmul")
    (function,) = machine_code_of(module, {})
    code = function.instructions
    operations = {module.position(one.start).line for one in module.walk()}
    assert {one.line for one in code} <= operations | {0}
    assert sum(one.line > 0 for one in code) > 0.9 * len(code) > 500
    assert not any(pipeline_of(one) is Pipeline.OTHER for one in code)
    (written,) = [one for one in module.walk() if one.name == "scf.for"]
    (loop,) = loops_in(function)
    assert loop.line in range(module.position(written.start).line, module.position(written.end - 1).line + 1)
    dots = {module.position(one.start).line for one in module.walk() if one.name == "tt.dot"}
    assert dots == {one.line for one in code if pipeline_of(one) is Pipeline.TENSOR}
    waits = set(waits_in(function))
    pairs = list(amd_loads_and_users(function))
    assert len(pairs) > 16
    for load, user in pairs:
        assert any(Wait(waiting, load) in waits for waiting in range(load + 1, user))


def test_some_loads_have_users() -> None:
    """Else ``require_waits`` would require nothing."""
    (function,) = machine_code_of(module_of("cuda-90/cross_entropy"), {})
    assert len(list(loads_and_users(function))) >= 4
