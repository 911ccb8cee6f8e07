"""Eviction policies and cache modifiers of loads and stores in global memory.

They are hints to the caches, so no value changes. Asynchronous copies, into which the pipeliner turns loads of loops,
keep theirs: NVIDIA's lowering ignores eviction policies there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec.structs import replace

from kprof_inject.rewrite import spliced
from kprof_inject.runtime.experiments.edits.edit import EditKind, EditRefused, KernelToEdit
from kprof_inject.ttgir.nodes import Module, Operation

_OPERATIONS = {"loads": "tt.load", "stores": "tt.store"}
_HINTS = {
    "evict_first": "evictionPolicy = evict_first",
    "evict_last": "evictionPolicy = evict_last",
    "cg": "cacheModifier = cg",
}
# Triton 3.9 prints both hints as one attribute.
_FIRST_WITH_POLICY = (3, 9)
_POLICIES = {
    "evict_first": "cache_modifier = none, eviction_policy = evict_first",
    "evict_last": "cache_modifier = none, eviction_policy = evict_last",
    "cg": "cache_modifier = cg, eviction_policy = evict_normal",
}
# In the printed form, the hints follow the operands.
_OPERANDS = re.compile(r"\s*%[\w$.#-]+(?:\s*,\s*%[\w$.#-]+)*(?P<hints>(?:\s+\w+ = \w+)*)(?=\s*[:{])")
_VOLATILE = "isVolatile = true"


class CacheHints(EditKind):
    """Hints for all loads, or for all stores, that have none of that kind."""

    name = "cache"
    values = f"{' or '.join(_OPERATIONS)}, a colon, and {', '.join(_HINTS)}; such as loads:evict_first"
    edits_ttgir = True

    def more(self, kernel: KernelToEdit) -> Sequence[str]:
        """Return the hints for which the kernel has operations."""
        present = [what for what, name in _OPERATIONS.items() if re.search(rf"\b{re.escape(name)} %", kernel.ttgir)]
        return [f"{what}:{hint}" for hint in _HINTS for what in present]

    def applied(self, kernel: KernelToEdit, value: str) -> KernelToEdit:
        """Add the hint to each operation."""
        what, _, hint = value.partition(":")
        if what not in _OPERATIONS or hint not in _HINTS:
            raise EditRefused(f"{value} is none of {self.values}")
        module = kernel.parsed("ttgir")
        places = [
            _place_of_hint(module, operation, hint)
            for operation in module.walk()
            if operation.name == _OPERATIONS[what]
        ]
        edits = [(place, place, f" {_printed(kernel, hint)}") for place in places if place]
        if not edits:
            raise EditRefused(f"it has no {what} without such a hint (asynchronous copies keep theirs)")
        return replace(kernel, ttgir=spliced(kernel.ttgir, edits))


def _printed(kernel: KernelToEdit, hint: str) -> str:
    """Return a hint as the kernel's Triton prints it."""
    release = kernel.record.triton_release
    if release is None or release < _FIRST_WITH_POLICY:
        return _HINTS[hint]
    return f"{{cachePolicy = #tt.cache_policy<{_POLICIES[hint]}>}}"


def _place_of_hint(module: Module, operation: Operation, hint: str) -> int:
    """Return the offset where to insert a hint; 0 if the operation has one, or is volatile."""
    found = _OPERANDS.match(operation.tail)
    attribute = _HINTS[hint].partition(" ")[0]
    if found is None or attribute in found["hints"] or _VOLATILE in operation.tail:
        return 0
    if operation.tail[found.end() :].lstrip().startswith("{"):
        return 0  # it has attributes, which may be such a hint
    # The printed form has the cache modifier before the eviction policy.
    at = found.start("hints") if attribute == "cacheModifier" else found.end("hints")
    name = module.text.index(operation.name, operation.start + len(operation.results))
    return name + len(operation.name) + at
