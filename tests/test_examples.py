"""The examples, without a GPU: their kernels compile, take records, and compile with those."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
import triton
from programs.child import REPO
from triton import knobs
from triton.backends.compiler import GPUTarget

from kprof_inject.capture.mode import Mode
from kprof_inject.insertion import insert_module, view_of
from kprof_inject.runtime.compiling.instrumentation import lower
from kprof_inject.select.selectors import parse_selectors

EXAMPLES = REPO / "examples"
HOPPER, BLACKWELL = 90, 100
TILE = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64}

# Types of arguments that end in :16 are multiples of 16, as the launcher sees of those here.
POINTER, SIZE = "*fp16:16", "i32:16"


def like(kind: str, *names: str) -> dict[str, str]:
    return dict.fromkeys(names, kind)


@dataclass(frozen=True)
class Example:
    """A kernel as one launch compiles it, and the names of the scopes that it should have by default."""

    kernel: str
    signature: dict[str, str]
    constants: dict[str, Any]
    scopes: tuple[str, ...]


OPTIONS = {"num_warps": 4, "num_stages": 3}
LOOP = ("func", "loop[0]", "iter[0]")
CASES = {
    "vector_add": Example(
        "vector_add_kernel",
        {**like("*fp32:16", "x_ptr", "y_ptr", "out_ptr"), "n_elements": SIZE},
        {"BLOCK": 1024},
        ("func",),
    ),
    "matmul": Example(
        "matmul_kernel",
        {
            **like(POINTER, "a_ptr", "b_ptr", "c_ptr"),
            **like(SIZE, "M", "N", "K", "stride_am", "stride_bk", "stride_cm"),
        },
        {**TILE, "stride_ak": 1, "stride_bn": 1, "stride_cn": 1, "GROUP_M": 8, "EVEN_K": True},
        LOOP,
    ),
    "attention": Example(
        "attention_kernel",
        {
            **like(POINTER, "q_ptr", "k_ptr", "v_ptr", "out_ptr"),
            **like(SIZE, "stride_head", "stride_row", "seq_len"),
            "scale": "fp32",
        },
        {"CAUSAL": False, "BLOCK_M": 128, "BLOCK_N": 64, "HEAD_DIM": 64},
        ("keys", "load_k", "qk", "softmax", "load_v", "pv"),
    ),
    "layer_norm": Example(
        "layer_norm_kernel",
        {
            **like(POINTER, "x_ptr", "out_ptr"),
            **like("*fp32:16", "weight_ptr", "bias_ptr"),
            **like(SIZE, "columns", "stride_row"),
            "epsilon": "fp32",
        },
        {"BLOCK": 1024, "EVEN": True},
        (*LOOP, "loop[1]", "iter[1]"),
    ),
    "softmax": Example(
        "softmax_kernel",
        {**like(POINTER, "x_ptr", "out_ptr"), "rows": "i32", **like(SIZE, "columns", "stride_row")},
        {"BLOCK": 2048},
        LOOP,
    ),
    "autotuned_matmul": Example(
        "tuned_matmul_kernel", {**like(POINTER, "a_ptr", "b_ptr", "c_ptr"), "size": SIZE}, TILE, LOOP
    ),
    "warp_specialized_matmul": Example(
        "specialized_matmul_kernel",
        {**like(POINTER, "a_ptr", "b_ptr", "c_ptr"), **like(SIZE, "M", "N", "K")},
        TILE,
        LOOP,
    ),
}

SCRIPTS = sorted(path.stem for path in EXAMPLES.glob("*.py"))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path) -> Iterator[None]:
    with knobs.cache.scope():
        knobs.cache.dir = str(tmp_path / "cache")
        yield


@functools.cache
def ttgir_of(case: str, architecture: int) -> str:
    """What Triton makes of a case's kernel on its way to machine code."""
    example = CASES[case]
    # From the example's file, under a name that no other module has.
    spec = spec_from_file_location(f"example_{case}", EXAMPLES / f"{case}.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    function = getattr(module, example.kernel)
    function = function.fn if isinstance(function, triton.runtime.Autotuner) else function
    names = function.arg_names
    assert set(names) == example.signature.keys() | example.constants.keys()
    signature = {name: example.signature.get(name, "constexpr").removesuffix(":16") for name in names}
    divisible = {(names.index(name),) for name, kind in example.signature.items() if kind.endswith(":16")}
    source = triton.compiler.ASTSource(
        function, signature, example.constants, {place: [["tt.divisibility", 16]] for place in divisible}
    )
    target = GPUTarget("cuda", architecture, 32)
    return str(triton.compile(source, target=target, options=OPTIONS).asm["ttgir"])


@pytest.mark.parametrize(
    ("case", "architecture"),
    [*((case, HOPPER) for case in CASES), ("warp_specialized_matmul", BLACKWELL), ("attention", BLACKWELL)],
)
def test_an_examples_kernel_takes_records(case: str, architecture: int) -> None:
    text = ttgir_of(case, architecture)
    assert ("ttg.warp_specialize(" in text) == (case == "warp_specialized_matmul" and architecture == BLACKWELL)
    path = EXAMPLES / f"{case}.py"
    sources = {str(path): path.read_text()}
    done = insert_module(view_of(text, f"{case}.ttgir", sources), parse_selectors(()))
    assert {scope.name.split("#")[0] for scope in done.plan.scopes} >= set(CASES[case].scopes)
    lowered = lower(done.text, GPUTarget("cuda", architecture, 32), OPTIONS, Mode("shared"))
    assert lowered.binary.startswith(b"\x7fELF")
    assert lowered.clock_reads == len(done.plan.records)


def test_every_example_stands_by_itself_and_its_kernel_is_tried() -> None:
    texts = {name: (EXAMPLES / f"{name}.py").read_text() for name in SCRIPTS}
    assert not any(words in text for text in texts.values() for words in ("import kprof_inject", "from kprof_inject"))
    assert {name for name, text in texts.items() if "@triton.jit" in text} == CASES.keys()
