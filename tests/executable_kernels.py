"""Kernels for ``brute_force`` in ``analysis/interpreter/kernels``: bodies as text, in TTGIR but for short forms.

``--grid 5x1x1``, ``--parameters`` and ``--arguments`` are those of ``Kernel`` if it has others. Before the body are
``%c0`` to ``%c8``, ``%true``, the ranges ``%r4`` and ``%r8`` and the program's number ``%x``. The short forms::

    ROWS               %rows: four rows for each program
    LOAD %v FROM %at   four elements from an offset on
    TILE %rows %r8     %t_a: the addresses of four rows of eight elements, by the tensors of their numbers
    !memory            a descriptor of shared memory
"""

from __future__ import annotations

import re
from pathlib import Path

from brute_force import Kernel
from text_cases import cases_in

_FOLDER = Path(__file__).parent / "analysis/interpreter/kernels"
_INTEGERS = """\
%c0 = arith.constant 0 : i32
%c1 = arith.constant 1 : i32
%c2 = arith.constant 2 : i32
%c3 = arith.constant 3 : i32
%c4 = arith.constant 4 : i32
%c5 = arith.constant 5 : i32
%c7 = arith.constant 7 : i32
%c8 = arith.constant 8 : i32
%true = arith.constant true
%r4 = tt.make_range {end = 4 : i32, start = 0 : i32} : tensor<4xi32, #l>
%r8 = tt.make_range {end = 8 : i32, start = 0 : i32} : tensor<8xi32, #l>
%x = tt.get_program_id x : i32
"""
_SHORT = {
    r"!memory\b": "!ttg.memdesc<128x128xf16, #s, #ttg.shared_memory>",
    r"ROWS$": """
      %f = arith.muli %x, %c3 : i32
      %f_s = tt.splat %f : i32 -> tensor<4xi32, #l>
      %rows = arith.addi %f_s, %r4 : tensor<4xi32, #l>
""",
    r"LOAD (%\w+) FROM (%[\w#]+)$": r"""
      \1_s = tt.splat \2 : i32 -> tensor<4xi32, #l>
      \1_o = arith.addi \1_s, %r4 : tensor<4xi32, #l>
      \1_b = tt.splat %p : !tt.ptr<i32> -> tensor<4x!tt.ptr<i32>, #l>
      \1_a = tt.addptr \1_b, \1_o : tensor<4x!tt.ptr<i32>, #l>, tensor<4xi32, #l>
      \1 = tt.load \1_a : tensor<4x!tt.ptr<i32>, #l>
""",
    r"TILE (%\w+) (%\w+)$": r"""
      %t_r = tt.expand_dims \1 {axis = 1 : i32} : tensor<4xi32, #l> -> tensor<4x1xi32, #l>
      %t_c = tt.expand_dims \2 {axis = 0 : i32} : tensor<8xi32, #l> -> tensor<1x8xi32, #l>
      %t_k = arith.constant dense<10> : tensor<4x1xi32, #l>
      %t_m = arith.muli %t_r, %t_k : tensor<4x1xi32, #l>
      %t_x = tt.broadcast %t_m : tensor<4x1xi32, #l> -> tensor<4x8xi32, #l>
      %t_y = tt.broadcast %t_c : tensor<1x8xi32, #l> -> tensor<4x8xi32, #l>
      %t_o = arith.addi %t_x, %t_y : tensor<4x8xi32, #l>
      %t_b = tt.splat %p : !tt.ptr<i32> -> tensor<4x8x!tt.ptr<i32>, #l>
      %t_a = tt.addptr %t_b, %t_o : tensor<4x8x!tt.ptr<i32>, #l>, tensor<4x8xi32, #l>
""",
}


def executable(text: str) -> Kernel:
    """Return the kernel of this text, as in a file."""
    options = dict[str, str](re.findall(r"^--(\w+) (.+)\n", text, re.MULTILINE))
    body = _INTEGERS + re.sub(r"^--.*\n", "", text, flags=re.MULTILINE)
    for short, written in _SHORT.items():
        body = re.sub(short, written, body, flags=re.MULTILINE)
    x, y, z = map(int, options.pop("grid", "4x1x1").split("x"))
    arguments = tuple(map(int, options.pop("arguments", "4096").split()))
    return Kernel(body, options.pop("parameters", "%p: !tt.ptr<i32>"), (x, y, z), arguments)


def kernels_in(file: str) -> dict[str, Kernel]:
    """Return the kernels of one file by their names."""
    return {name: executable(text) for name, text in cases_in(_FOLDER / file).items()}
