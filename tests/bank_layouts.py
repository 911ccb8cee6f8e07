"""Layouts of threads and of shared memory as text, and the conflicts of a store from one to the other."""

from __future__ import annotations

from kprof_inject.analysis.structure.layouts import conflict_cycles, min_cycles
from kprof_inject.ttgir.parser import parse

BLOCKED = "#ttg.blocked<{{sizePerThread = {}, threadsPerWarp = {}, warpsPerCTA = [4, 1], order = {}}}>"
SWIZZLED = "#ttg.swizzled_shared<{{vec = {}, perPhase = {}, maxPhase = {}, order = {}}}>"
OF_MATRICES = "#ttg.nvmma_shared<{{swizzlingByteWidth = {}, transposed = {}, elementBitWidth = {}}}>"


def cycles(threads: str, memory: str, shape: tuple[int, int], bits: int, of: str = "") -> tuple[int, int]:
    """Return a store's cycles above the minimum, and the minimum; ``of`` is the shape of the allocation."""
    size, kind = "x".join(map(str, shape)), {8: "i8", 16: "f16", 32: "f32", 64: "f64"}[bits]
    line = f"ttg.local_store %x, %m : tensor<{size}x{kind}, #t> -> !ttg.memdesc<{size}x{kind}, #m, #smem, mutable{of}>"
    module = parse(
        f"#t = {threads}\n#m = {memory}\nmodule {{\n  tt.func @k() {{\n    {line}\n    tt.return\n  }}\n}}\n"
    )
    store = next(one for one in module.walk() if one.name == "ttg.local_store")
    return conflict_cycles(store, module.aliases), min_cycles(store)
