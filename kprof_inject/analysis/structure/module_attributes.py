"""What a module says of the kernel as a whole: its warps, its clusters, its partitions."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kprof_inject.select.functions import functions_of
from kprof_inject.ttgir.dialect import MODULES
from kprof_inject.ttgir.locations import LocationTable
from kprof_inject.ttgir.nodes import Module

_ATTRIBUTES = {
    "warps": ("num_warps", "ttg.num-warps"),
    "CTAs in a cluster": ("num_ctas", "ttg.num-ctas"),
    "threads in a warp": ("warp_size", "ttg.threads-per-warp"),
}
"""By what it is called: the word for programs, and the attribute."""
_MOST_REGISTERS = "ttg.maxnreg"
"""Of the program's option ``maxnreg``; missing if there is no limit."""
_TARGET = re.compile(r'ttg\.target"?\s*=\s*"([^"]*)"')


def module_changes(a: Module, b: Module) -> Iterator[tuple[str, str]]:
    """A word for programs, and a sentence, for each that differs."""
    text_a, text_b = _attributes(a), _attributes(b)
    target_a, target_b = (_TARGET.search(text) for text in (text_a, text_b))
    if target_a and target_b and target_a[1] != target_b[1]:
        yield "target", f"compiled for {target_a[1]} → {target_b[1]}"
    for called, (word, name) in _ATTRIBUTES.items():
        before, after = _number(text_a, name), _number(text_b, name)
        if before is not None and after is not None and before != after:
            yield word, f"{before} → {after} {called}"
    most_a, most_b = (_number(text, _MOST_REGISTERS) for text in (text_a, text_b))
    if most_a != most_b:
        yield "maxnreg", f"registers per thread limited to {_limit(most_a)} → {_limit(most_b)}"
    partitions_a, partitions_b = _partitions(a), _partitions(b)
    if partitions_a != partitions_b:
        yield "partitions", f"partitions: {', '.join(partitions_a) or 'none'} → {', '.join(partitions_b) or 'none'}"


def _limit(registers: int | None) -> str:
    return "no limit" if registers is None else str(registers)


def _attributes(module: Module) -> str:
    # The generic form has them behind the region.
    return next((f"{one.tail} {one.closing}" for one in module.operations if one.name in MODULES), "")


def _number(text: str, name: str) -> int | None:
    found = re.search(rf'{re.escape(name)}"?\s*=\s*(\d+)', text)
    return int(found[1]) if found else None


def _partitions(module: Module) -> list[str]:
    functions = functions_of(module, LocationTable(module))
    return [label for function in functions for label, _, _ in function.partitions()]
