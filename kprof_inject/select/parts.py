"""The parts of a kernel that its operations distinguish.

They are issues of copies, waits, dots, reductions and the like in its innermost loops, and the code before and after
its loops. Causal profiling delays them, one after the other, unless the user selects something else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from kprof_inject.capture.scopes import ScopeKind
from kprof_inject.select.functions import Function, block_kind
from kprof_inject.select.module_view import ModuleView
from kprof_inject.select.python_source import is_library
from kprof_inject.select.sites import Found, Site
from kprof_inject.select.spans import Spread
from kprof_inject.select.tags import is_inserted
from kprof_inject.ttgir.dialect import DOT_COMMIT, ENDS_OF_COPIES, TILE_REQUESTS, traits_of
from kprof_inject.ttgir.locations import Chain
from kprof_inject.ttgir.nodes import Block, Operation

COPIES, LOADS, STORES, WAIT, DOT, ARRIVE = "copies", "loads", "stores", "wait", "dot", "arrive"
PROLOGUE, EPILOGUE = "prologue", "epilogue"


def part_of(operation_name: str) -> str:
    """Return the kind of part for operations of this name; empty for arithmetic, addresses and layouts."""
    traits = traits_of(operation_name)
    if traits.is_dot:
        return DOT
    if traits.is_wait:
        return WAIT
    if traits.combines_elements or traits.is_transcendental:
        return operation_name.rpartition(".")[2]
    if traits.is_foreign:
        return "asm"
    if traits.writes_global:
        return STORES
    if traits.is_arrival:
        return ARRIVE
    if traits.starts_async and operation_name not in (DOT_COMMIT, *TILE_REQUESTS):
        return COPIES
    return LOADS if traits.reads_global else ""


def find_parts(view: ModuleView, _: Spread) -> Found:
    """Return the parts of each innermost loop, or of a function without loops, and the code around its loops."""
    return Found.merge([_parts_of(function) for function in view.functions])


def _parts_of(function: Function) -> Found:
    loops = [loop.operation for loop in function.loops if not function.refusal(loop.operation)]
    around = {owner for loop in loops for owner in loop.owners()}
    innermost = [loop for loop in loops if loop not in around]
    inside = [operation for loop in innermost for operation in loop.walk() if operation is not loop]
    sites = [*_runs(function, inside if innermost else function.operations)]
    if function.is_public and innermost:
        sites += _around_loops(function, loops)
    sites.sort(key=lambda site: site.start.offset)
    return function.findings(sites)


def _runs(function: Function, operations: Sequence[Operation]) -> Iterator[Site]:
    # Operations of one kind in a block, with any arithmetic between them. Dots, waits and arrivals are parts by
    # themselves, and a group of copies ends with its commit.
    by_block: dict[Block, list[tuple[str, Operation]]] = {}
    for operation in operations:
        kind = part_of(operation.name)
        if kind and operation.block and not function.refusal(operation):
            by_block.setdefault(operation.block, []).append((kind, operation))
    for found in by_block.values():
        run: list[Operation] = []
        following = [*(kind for kind, _ in found[1:]), ""]
        for (kind, operation), next_kind in zip(found, following, strict=True):
            run.append(operation)
            if next_kind != kind or kind in (DOT, WAIT, ARRIVE) or operation.name in ENDS_OF_COPIES:
                chain = _users_lines(function, run[0])
                name = f"{kind}@{chain[0].line}" if chain else kind
                if len(run) == 1:
                    site, source = function.operation_site(operation), next(iter(chain), None)
                    yield replace(site, name=name, source=source, called_from=chain[1:])
                else:
                    yield _span(function, name, run[0], operation, chain, len(run))
                run = []


def _users_lines(function: Function, operation: Operation) -> Chain:
    chain = function.source_of(operation)
    own = next((depth for depth, point in enumerate(chain) if not is_library(point.file)), len(chain))
    return chain[own:]


def _span(function: Function, name: str, first: Operation, last: Operation, chain: Chain, own: int) -> Site:
    ends = (function.after(last),)
    return function.site(ScopeKind.PART, name, function.before(first), ends, chain, block_kind(first), own=own)


def _around_loops(function: Function, loops: Sequence[Operation]) -> Iterator[Site]:
    blocks = function.operation.regions[0].blocks
    if len(blocks) > 1:
        return
    operations = blocks[0].operations
    carriers = {owner for loop in loops for owner in (loop, *loop.owners())}
    places = [place for place, operation in enumerate(operations) if operation in carriers]
    if not places:  # a damaged module
        return
    following = [operation for operation in operations[places[-1] + 1 :] if not operation.traits.is_terminator]
    for name, found in ((PROLOGUE, operations[: places[0]]), (EPILOGUE, following)):
        working = [operation for operation in found if function.does_work(operation) and not is_inserted(operation)]
        if working:
            yield _span(function, name, found[0], found[-1], _users_lines(function, working[0]), len(found))
