"""A module's text compiles to the very assembly that the source compiles to: else delays would be compared with another
kernel."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import os
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import triton
from programs.child import REPO
from replacing import replace
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import make_backend

from kprof_inject.capture.schema import DumpedKernelRecord, Target
from kprof_inject.errors import KprofError
from kprof_inject.runtime.compiling.builds import Build, assembly_in, compile_text, compiled
from kprof_inject.runtime.compiling.compiler import as_json, environment, is_harmless_setting
from kprof_inject.runtime.compiling.disassembly import disassembled

pytestmark = pytest.mark.triton

KERNELS = [*("matmul", "tma_matmul", "gluon_warp_specialized"), pytest.param("attention", marks=pytest.mark.exhaustive)]


@pytest.fixture(scope="module")
def fixtures_script() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("fixtures_script", str(REPO / "scripts/fixtures"))
    spec = importlib.util.spec_from_loader("fixtures_script", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def dumped(fixtures: Any, name: str, folder: Path) -> tuple[Any, DumpedKernelRecord]:
    """A kernel compiled for an H200 from its source, and what ``dump`` would save of it."""
    (kernel,) = [one for one in fixtures.ALL if one.module == name]
    with knobs.cache.scope():
        knobs.cache.dir = str(folder / "cache")
        made = fixtures.compile_kernel(kernel, "cuda-90")
    options = make_backend(GPUTarget("cuda", 90, 32)).parse_options(fixtures.compile_options(kernel, "cuda-90"))
    record = DumpedKernelRecord(
        name=made.metadata.name,
        override_key="key",
        file_name=made.metadata.name,
        target=Target("cuda", 90),
        options=json.loads(json.dumps(as_json(options.__dict__))),
        metadata=as_json(made.metadata._asdict()),
        triton_version=triton.__version__,
        environment=environment(),
    )
    return made, record


@pytest.mark.parametrize("name", KERNELS)
def test_the_same_assembly(fixtures_script: ModuleType, tmp_path: Path, name: str) -> None:
    (kernel,) = [one for one in fixtures_script.ALL if one.module == name]
    if not fixtures_script.targets_of(kernel, triton.__version__):
        pytest.skip("this Triton does not compile it")
    made, record = dumped(fixtures_script, name, tmp_path)
    (tmp_path / "built").mkdir()
    compile_text(made.asm["ttgir"], record, tmp_path / "built")
    assert assembly_in(tmp_path / "built") == made.asm["ptx"]
    saved = json.loads((tmp_path / "built" / f"{record.file_name}.json").read_text())
    assert {key for key in made.metadata._asdict() if key not in saved} == set()


def test_a_programs_own_assembler(fixtures_script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Inductor sets it, in the program alone: its version decides what the compiler writes."""
    own = Path(knobs.nvidia.ptxas.path)
    other = tmp_path / "ptxas"
    other.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo "release 12.4, V12.4.99" || exec {own} "$@"\n')
    other.chmod(0o755)
    with monkeypatch.context() as program:
        for name in ("TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH"):  # newer Tritons take the second for all
            program.setenv(name, str(other))
        made, record = dumped(fixtures_script, "softmax", tmp_path)
    assert record.environment["TRITON_PTXAS_PATH"] == str(other)
    (tmp_path / "stranger").mkdir()
    compile_text(made.asm["ttgir"], record, tmp_path / "stranger")
    assert ".version 8.4" in made.asm["ptx"]
    assert ".version 8.4" not in assembly_in(tmp_path / "stranger"), "a record may be a stranger's"
    with monkeypatch.context() as installed:
        torch = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
        found = {"torch": torch, "triton": find_spec("triton")}
        installed.setattr("kprof_inject.packages.find_spec", found.get)
        compile_text(made.asm["ttgir"], record, tmp_path)
    assert assembly_in(tmp_path) == made.asm["ptx"]
    assert "TRITON_PTXAS_PATH" not in os.environ


def test_records_set_nothing_else(fixtures_script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be a stranger's, and the assembler would load what ``LD_PRELOAD`` names."""
    made, record = dumped(fixtures_script, "softmax", tmp_path)
    hostile = replace(record, environment={**record.environment, "LD_PRELOAD": "/tmp/evil.so", "PATH": "/tmp/evil"})
    seen = []
    monkeypatch.setattr(triton, "compile", lambda *_, **__: seen.append(dict(os.environ)) or made)
    compile_text(made.asm["ttgir"], hostile, tmp_path)
    (environment,) = seen
    assert "LD_PRELOAD" not in environment
    assert environment["PATH"] == os.environ["PATH"]


def test_what_fails_says_why_and_leaves_nothing(fixtures_script: ModuleType, tmp_path: Path) -> None:
    made, record = dumped(fixtures_script, "softmax", tmp_path)
    good, bad = Build(made.asm["ttgir"], record), Build(made.asm["ttgir"].replace("tt.return", "tt.retour"), record)
    assert good.name != bad.name
    nothing, failure = compiled([good, bad], tmp_path / "builds")
    assert nothing is None
    assert isinstance(failure, KprofError)
    assert "tt.retour" in failure.what
    assert [path.name for path in (tmp_path / "builds").iterdir()] == [good.name]
    # Again, it is there.
    before = (tmp_path / "builds" / good.name).stat().st_mtime_ns
    assert list(compiled([good], tmp_path / "builds")) == [None]
    assert (tmp_path / "builds" / good.name).stat().st_mtime_ns == before


@pytest.mark.parametrize(
    ("name", "value"),
    [("ptx_options", "-o x"), ("ir_override", "x.ttgir"), ("extern_libs", [["m", "/tmp/x.bc"]]), ("extern_libs", [1])],
)
def test_a_record_names_no_file_to_the_compiler(tmp_path: Path, name: str, value: object) -> None:
    record = DumpedKernelRecord(
        name="k",
        override_key="k",
        file_name="k",
        target=Target("cuda", 90),
        options={name: value},
        triton_version=triton.__version__,
    )
    for compiles in (
        lambda: compile_text("module {}", record, tmp_path),
        lambda: disassembled("module {}", Target("cuda", 90), record.options, tmp_path),
    ):
        with pytest.raises(KprofError, match=f"it sets {name}, which may name any file"):
            compiles()


def test_a_record_names_no_plugin_to_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLVM_PASS_PLUGIN_PATH", "/mine.so")
    assert is_harmless_setting("LLVM_PASS_PLUGIN_PATH", "/mine.so")
    assert not is_harmless_setting("LLVM_PASS_PLUGIN_PATH", "/theirs.so")
    assert is_harmless_setting("DISABLE_LLVM_OPT", "1")


def test_another_triton_is_refused(tmp_path: Path) -> None:
    record = DumpedKernelRecord(name="k", override_key="k", file_name="k", triton_version="3.0.0")
    with pytest.raises(KprofError, match=r"Triton 3\.0\.0 dumped it"):
        compile_text("module {}", record, tmp_path)
