"""The cases of all kinds of flaws, by name."""

from __future__ import annotations

import atomics
import few_ctas
import few_warps
import invariant
import partial_wave
import reduction_in_loop
import shortest_first
import small_ctas
import special_functions
import table
import tile_order
import transposed_fp8
import unpipelined
import wrong_dimension
from case import Case

_FILES = (
    unpipelined,
    few_ctas,
    transposed_fp8,
    shortest_first,
    table,
    partial_wave,
    special_functions,
    atomics,
    wrong_dimension,
    small_ctas,
    few_warps,
    tile_order,
    invariant,
    reduction_in_loop,
)

CASES: dict[str, Case] = {name: case for file in _FILES for name, case in file.CASES.items()}
