"""Modules whose operations share lines, and selectors that put records between them."""

from __future__ import annotations

from ttgir_forms import FORMS

WITHOUT_RECORDS = FORMS["operations that share a line"].text.replace('proton.record start "x" ', "")
DENSE = """\
module{tt.func public @k(%n: i32, %c: i1){%a = arith.constant 1 : i32%b = arith.constant 2 : i32
scf.for %i = %a to %n step %b : i32{scf.if %c{gpu.barrier}else{gpu.barrier}}scf.for %j = %a to %n step %b : i32{}
tt.return}}
"""
SELECTIONS = (
    ["func"],
    ["func", "loop", "iter"],
    ["op(*)"],
    ["op(arith.*)", "op(gpu.barrier)"],
    ["partition", "default", "func(helper)"],
)
BESIDE_OPERATIONS = [
    ('    gpu.barrier proton.record start "a"\n    tt.return\n', "    gpu.barrier\n    tt.return\n"),
    ('    proton.record start "a" gpu.barrier\n    tt.return\n', "    gpu.barrier\n    tt.return\n"),
    ('    proton.record start "a" proton.record end "a"\n    tt.return\n', "    tt.return\n"),
    ('    gpu.barrier proton.record start "a" // why\n    tt.return\n', "    gpu.barrier\n    tt.return\n"),
    ('  gpu.barrier proton.record start "a"\n  proton.record end "a" tt.return\n', "  gpu.barrier\n  tt.return\n"),
    ('  gpu.barrier proton.record start "a"tt.return\n', "  gpu.barrier tt.return\n"),
]  # fmt: skip
"""Records of others that share a line with operations, and what stripping leaves."""


def kernel_of(lines: str) -> str:
    return "module {\n  tt.func public @k() {\n" + lines + "  }\n}\n"
