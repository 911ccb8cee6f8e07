"""Every fixture with records compiles to machine code; the clock is read once for each record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import triton
from golden import fixture_id, installed_fixtures, read
from triton.backends.compiler import GPUTarget

from kprof_inject.capture.mode import Mode
from kprof_inject.errors import KprofError
from kprof_inject.insertion import insert_module
from kprof_inject.runtime.lower import lower, target_of
from kprof_inject.select.selectors import parse_selectors
from kprof_inject.ttgir.parser import parse

ELF = b"\x7fELF"
SHARED = Mode("shared")
GLOBAL = Mode("global", 16384)

# Proton lowers modules of one function only.
LOWERABLE = [path for path in installed_fixtures() if path.stem != "noinline_helper"]
ON_CUDA = [path for path in LOWERABLE if path.parent.name.startswith("cuda")]
ON_HIP = [path for path in LOWERABLE if path.parent.name.startswith("hip")]
CASES = [(path, mode) for path in ON_CUDA for mode in (SHARED, GLOBAL)] + [(path, SHARED) for path in ON_HIP]


def described(path: Path) -> tuple[GPUTarget, dict[str, Any]]:
    """The target and the options that a fixture is compiled for."""
    values = json.loads(path.with_suffix(".json").read_text())
    return target_of(**values["target"]), values["options"]


def shared_bytes(path: Path) -> int:
    """The shared memory that a fixture takes without records."""
    return int(json.loads(path.with_suffix(".json").read_text())["shared"])


@pytest.mark.parametrize(("path", "mode"), CASES, ids=lambda value: getattr(value, "buffer", "") or fixture_id(value))
def test_a_fixture_with_records(path: Path, mode: Mode) -> None:
    plan, text = insert_module(parse(read(path)), parse_selectors([]))
    target, options = described(path)

    lowered = lower(text, target, options, mode)

    if target.backend == "cuda":
        assert lowered.clock_reads == len(plan.records)
    else:
        # LLVM may peel an iteration off a loop, and the reads in it are then there twice.
        assert lowered.clock_reads >= len(plan.records)
    assert lowered.binary.startswith(ELF)
    assert lowered.metadata["name"] == plan.kernel
    if mode == SHARED:
        assert lowered.metadata["profile_scratch_size"] > 0
        assert lowered.metadata["shared"] > shared_bytes(path)
    else:
        assert lowered.metadata["profile_scratch_size"] > mode.buffer_bytes
        assert lowered.metadata["shared"] == shared_bytes(path)


@pytest.mark.parametrize(
    ("selectors", "reads"), [(["func"], 2), (["loop"], 2), (["iter"], 2), (["iter", "loop", "func"], 6)]
)
def test_each_record_of_a_gemm_reads_the_clock_once(selectors: list[str], reads: int) -> None:
    (path,) = (path for path in ON_CUDA if path.parts[-2:] == ("cuda-90", "matmul.ttgir"))
    _, text = insert_module(parse(read(path)), parse_selectors(selectors))

    assert lower(text, *described(path), SHARED).clock_reads == reads


def test_the_installed_triton_has_fixtures_for_both_backends() -> None:
    assert len(ON_CUDA) >= 9
    assert len(ON_HIP) >= 2


@pytest.mark.parametrize("path", LOWERABLE, ids=fixture_id)
def test_a_fixture_without_records_reads_no_clock(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton.knobs.cache, "dir", str(tmp_path))
    target, options = described(path)

    compiled = triton.compile(str(path), target=target, options=options)

    assembly = compiled.asm["ptx" if target.backend == "cuda" else "amdgcn"]
    assert "%clock" not in assembly
    assert "s_memtime" not in assembly


HEAD = 'module attributes {"ttg.num-warps" = 4 : i32} {\n  tt.func public @k() {\n'


@pytest.mark.parametrize(
    "text",
    [HEAD + "    tt.retur\n", HEAD + "    tt.no_such_operation\n    tt.return\n  }\n}\n"],
    ids=["cut off", "an unknown operation"],
)
def test_what_triton_does_not_compile_is_refused(text: str) -> None:
    target, options = described(ON_CUDA[0])

    with pytest.raises(KprofError) as caught:
        lower(text, target, options, SHARED)

    assert caught.value.what.startswith(
        f"Triton {triton.__version__} does not lower this module for cuda:{target.arch}: "
    )
    assert caught.value.hint == (
        "the compiler's own messages are above; the module may come from another Triton version"
    )


@pytest.mark.parametrize("text", ["", "import triton\n", "module {\n}\n"], ids=["nothing", "Python", "an empty module"])
def test_a_text_without_a_kernel_is_refused(text: str) -> None:
    target, options = described(ON_CUDA[0])

    with pytest.raises(KprofError) as caught:
        lower(text, target, options, SHARED)

    assert caught.value.what == "there is no public tt.func to lower"
    assert caught.value.hint == "give a .ttgir file as Triton writes it"
