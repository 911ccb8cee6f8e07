"""Launches of warp-specialised kernels: real modules, their plans, and buffers as their warps would fill them.

Which warps run which partition follows Triton's ``AllocateWarpGroups`` pass: it fills each ``ttg.warp_specialize`` up
to whole groups of four warps with idle partitions, and the largest comes first, behind the default one's warps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from buffers import Cta, Entry, buffer_words, end, kernel_json, num_warps_of, save_launches, start

from kprof_inject.capture.model import Launch
from kprof_inject.select.plan import Plan, table_json

ITERATIONS = 5
_STEP_CYCLES = 50
# Of a clock of 2 GHz: the CTA begins so long before the kernel's first record and ends so long after its last.
_MARGIN_NS = 100


def warps_of_partitions(plan: Plan) -> list[tuple[int, ...]]:
    """The warps of each of the plan's partitions."""
    sizes = [partition.warps or 0 for partition in plan.table.partitions]
    found: list[tuple[int, ...]] = [tuple(range(sizes[0])), *[()] * (len(sizes) - 1)]
    operations = _operations(plan)
    for operation in operations:
        idle = _extra_warps(plan) - sum(sizes[index] for index in operation)
        blocks = [(sizes[index], index) for index in operation]
        while idle:
            blocks.append((1 << idle.bit_length() - 1, 0))
            idle -= blocks[-1][0]
        first = sizes[0]
        for size, index in sorted(blocks, key=lambda block: -block[0]):
            if index:
                found[index] = tuple(range(first, first + size))
            first += size
    return found


def _extra_warps(plan: Plan) -> int:
    """Those that all but the default partition have, in whole groups of four."""
    most = max(sum(plan.table.partitions[index].warps or 0 for index in operation) for operation in _operations(plan))
    return -(-most // 4) * 4


def _operations(plan: Plan) -> list[list[int]]:
    """The partitions of each ``ttg.warp_specialize``."""
    found: list[list[int]] = []
    for index, partition in enumerate(plan.table.partitions[1:], 1):
        if partition.name.startswith("partition 0"):
            found.append([])
        found[-1].append(index)
    return found


def records_of(plan: Plan, partition: int, cycles: int) -> list[Entry]:
    """What a warp of a partition writes, from these cycles on: iterations run ``ITERATIONS`` times each. The id of a
    scope is its index."""
    clock = iter(range(cycles, 1 << 40, _STEP_CYCLES))

    def run(parent: int) -> Iterator[Entry]:
        for index, scope in enumerate(plan.scopes):
            if scope.partition == partition and scope.parent == parent:
                for _ in range(ITERATIONS if scope.kind == "iter" else 1):
                    yield start(index, next(clock))
                    yield from run(index)
                    yield end(index, next(clock))

    return list(run(-1))


def specialised_ctas(plan: Plan, ctas: int = 2) -> list[Cta]:
    """CTAs on SMs of their own. Each partition's warps begin a little later than those of the one before."""
    warps = warps_of_partitions(plan)
    total = len(warps[0]) + _extra_warps(plan)
    found = []
    for number in range(ctas):
        begin_cycles = 1_000_000 + 10_000 * number
        rows: list[list[Entry]] = [[] for _ in range(total)]
        for partition, mine in enumerate(warps):
            for warp in mine:
                later = rows[warp][-1].cycles + 100 if rows[warp] else begin_cycles + 100 * partition
                rows[warp] = [*rows[warp], *records_of(plan, partition, later)]
        last = max(entries[-1].cycles for entries in rows if entries)
        init_ns = begin_cycles // 2 - _MARGIN_NS
        end_ns = last // 2 + _MARGIN_NS
        found.append(Cta(rows, number, init_ns, end_ns, end_ns + 50))
    return found


def save_specialised(
    folder: Path, plan: Plan, ctas: Sequence[Cta] | None = None, *, slots: int = 256, mode: dict[str, Any] | None = None
) -> Launch:
    """A capture of one launch of the plan's kernel, with the plan's own scope table."""
    ctas = specialised_ctas(plan) if ctas is None else ctas
    words = buffer_words(ctas, slots, recorded=(mode or {}).get("warps"))
    kernel = kernel_json([], words, num_warps_of(ctas), name=plan.table.kernel, mode=mode)
    table = table_json(plan.table)
    records = {str(index): scope["record"] for index, scope in enumerate(table["scopes"])}
    return save_launches(folder, {**kernel, "scope_table": table, "scope_ids": records}, [words])[0]
