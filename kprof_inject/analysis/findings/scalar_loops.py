"""Loops over elements, of which all threads of a CTA do the same."""

from __future__ import annotations

from collections.abc import Iterator

from kprof_inject.analysis.findings.evidence import Evidence
from kprof_inject.analysis.findings.finding import MIN_SHARE, Finding
from kprof_inject.analysis.structure.dependence import varying_names
from kprof_inject.analysis.unjudged import Unjudged
from kprof_inject.capture.resources import THREADS_PER_WARP
from kprof_inject.quantities import percent
from kprof_inject.ttgir.nodes import Module, Operation
from kprof_inject.ttgir.ssa_values import definition_of, operand_names, result_names
from kprof_inject.ttgir.types import types_of

_ADDRESSES = frozenset(("tt.addptr", "tt.bitcast"))


def scalar_loops(evidence: Evidence) -> Iterator[Finding | Unjudged]:
    """Yield loops that store one element at a time and carry nothing from one iteration to the next."""
    if evidence.ran is None:
        return
    module = evidence.ran.module
    for loop in (one for one in module.walk() if one.traits.is_loop):
        stores = _stores_of_elements(module, loop)
        share = evidence.time_share_of([loop]) if stores else 0.0
        if share < MIN_SHARE:
            continue
        gain = evidence.max_gain_without([loop], share)
        if gain < MIN_SHARE:
            continue
        threads = THREADS_PER_WARP * evidence.kernel.requested_warps
        where = evidence.name_around(stores[0], "a loop")
        what = evidence.names_of(stores)
        yield evidence.at(
            stores,
            Finding(
                rule="scalar-loops",
                scope=None,
                share=gain,
                text=f"{where} stores one element per iteration, and all {threads} threads of a CTA do the same for it "
                f"({what}): {percent(share)} of the warps' time",
                advice="let threads work on elements of their own: a tensor of them (tl.arange) instead of the loop",
                figures={"stores": len(stores), "time_share": share},
                likely=gain / 2,
            ),
        )


def _stores_of_elements(module: Module, loop: Operation) -> list[Operation]:
    """Return the stores of a loop to addresses that depend on the iteration.

    There are none if it has tensors, results or inner loops, or if an iteration may load what another stores.
    """
    inside = [one for region in loop.regions for one in region.walk()]
    stores = [one for one in inside if one.name == "tt.store"]
    if not stores or any(result_names(loop)) or any(one.traits.is_loop for one in inside):
        return []
    if any(printed.shape for one in inside for printed in types_of(one)):
        return []
    bases = {_base_of(one) for one in stores}
    stored = {operand_names(one)[0] for one in stores}
    loads = (one for one in inside if one.traits.reads_global and operand_names(one)[0] not in stored)
    if any(_base_of(one) in bases for one in loads):
        return []
    varying = varying_names(module, loop)
    return [one for one in stores if operand_names(one)[0] in varying]


def _base_of(access: Operation) -> str:
    """Return the pointer that the address of an access is computed from."""
    name, user = operand_names(access)[0], access
    while (made := definition_of(name, user)) is not None and made.name in _ADDRESSES:
        name, user = operand_names(made)[0], made
    return name
