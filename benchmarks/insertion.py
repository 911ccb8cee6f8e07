"""How long inserting takes, beside Triton's own parser of the same text and beside compiling that kernel. Needs no GPU.

    python benchmarks/insertion.py [--json FILE]

Each size is a process of its own. In it the kernel is compiled for sm_90 once, from its source to a cubin; then parsing
the TTGIR by Triton and inserting the default selectors' records by us take turns. Triton's parser has one context, as
in a program, and next to that a fresh one each time, made outside of its time: that one takes longer. The first
insertion of a process also imports us and builds our parser from its grammar.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

FEATURES = 28
EXPERTS = (1, 12, 38, 120)
REPEATS = 9


@dataclass(frozen=True)
class Row:
    """What one size takes; times are medians, but for the first insertion's and the compile's."""

    lines: int
    scopes: int
    triton_parse_s: float
    fresh_triton_parse_s: float
    our_parse_s: float
    insert_s: float
    first_insert_s: float
    compile_s: float


def measure(experts: int) -> Row:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRITON_CACHE_DIR"] = folder
        text, compile_s = compiled(experts)
        path = Path(folder) / "mixture.ttgir"
        path.write_bytes(text.encode())
        scopes, first_insert_s = timed(lambda: insert(path))
        triton_parse, fresh_triton_parse, our_parse, inserting = [], [], [], []
        usual = fresh_context()
        parse_with_triton(path, usual)
        for _ in range(REPEATS):
            context = fresh_context()
            triton_parse.append(timed(lambda: parse_with_triton(path, usual))[1])
            fresh_triton_parse.append(timed(lambda context=context: parse_with_triton(path, context))[1])
            our_parse.append(timed(lambda: parse(path))[1])
            inserting.append(timed(lambda: insert(path))[1])
    return Row(
        text.count("\n"),
        scopes,
        statistics.median(triton_parse),
        statistics.median(fresh_triton_parse),
        statistics.median(our_parse),
        statistics.median(inserting),
        first_insert_s,
        compile_s,
    )


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    begin = time.perf_counter()
    result = work()
    return result, time.perf_counter() - begin


def compiled(experts: int) -> tuple[str, float]:
    """The kernel's TTGIR, and how many seconds all of its compilation took."""
    import triton
    from triton.backends.compiler import GPUTarget
    from unrolled_kernel import mixture_kernel

    source = triton.compiler.ASTSource(
        mixture_kernel,
        {"x_ptr": "*fp32", "weight_ptr": "*fp32", "out_ptr": "*fp32", "n_columns": "i32"},
        {"EXPERTS": experts, "FEATURES": FEATURES, "BLOCK": 256},
    )
    kernel, seconds = timed(lambda: triton.compile(source, GPUTarget("cuda", 90, 32), {"num_warps": 4}))
    return kernel.asm["ttgir"], seconds


def parse(path: Path) -> None:
    from kprof_inject.ttgir import parser

    parser.parse(path.read_bytes().decode(), str(path))


def insert(path: Path) -> int:
    """Do what ``kprof-inject insert FILE`` does, but for printing. How many scopes there are."""
    from kprof_inject.insertion import insert_module, view_of

    return len(insert_module(view_of(path.read_bytes().decode(), str(path), {}), []).plan.scopes)


def fresh_context() -> Any:
    from triton._C.libtriton import ir
    from triton.backends import backends
    from triton.backends.compiler import GPUTarget

    context = ir.context()
    ir.load_dialects(context)
    backends["nvidia"].compiler(GPUTarget("cuda", 90, 32)).load_dialects(context)
    return context


def parse_with_triton(path: Path, context: Any) -> None:
    from triton._C.libtriton import ir

    ir.parse_mlir_module(str(path), context)


def table(rows: list[Row]) -> str:
    def line(title: str, text_of: Callable[[Row], str]) -> str:
        return f"| {title} | " + " | ".join(text_of(row) for row in rows) + " |"

    return "\n".join(
        [
            line("TTGIR", lambda row: f"{row.lines:,} lines, {row.scopes} scopes"),
            "|---" * (len(rows) + 1) + "|",
            line("Triton's parser", lambda row: f"{1e3 * row.triton_parse_s:.1f} ms"),
            line("our parser", lambda row: f"{1e3 * row.our_parse_s:.1f} ms"),
            line("… ÷ Triton's", lambda row: f"{row.our_parse_s / row.triton_parse_s:.2f} x"),
            line("parse, plan and insert", lambda row: f"{1e3 * row.insert_s:.1f} ms"),
            line("… ÷ Triton's parser", lambda row: f"{row.insert_s / row.triton_parse_s:.2f} x"),
            line("… in a fresh context", lambda row: f"{row.insert_s / row.fresh_triton_parse_s:.2f} x"),
            line("… per line", lambda row: f"{1e6 * row.insert_s / row.lines:.2f} µs"),
            line("… the first of a process", lambda row: f"{1e3 * row.first_insert_s:.1f} ms"),
            line("compiling the kernel", lambda row: f"{row.compile_s:.2f} s"),
            line("… share of it that inserting is", lambda row: f"{100 * row.insert_s / row.compile_s:.2f} %"),
            line("… and that of a first one", lambda row: f"{100 * row.first_insert_s / row.compile_s:.2f} %"),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the figures there, too")
    arguments = parser.parse_args()
    # A process for each size, one after the other: none finds what another has warmed up.
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn, max_tasks_per_child=1) as pool:
        rows = list(pool.map(measure, EXPERTS))
    print(table(rows))
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
