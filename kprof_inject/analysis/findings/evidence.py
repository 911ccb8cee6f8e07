"""The evidence by which rules judge a launch, and the bounds of gains that follow from it."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from msgspec import Struct

from kprof_inject.analysis.causal.slopes import KernelSlopes
from kprof_inject.analysis.interpreter.accesses import Access
from kprof_inject.analysis.interpreter.executions import CountedOperation, ExecutedKernel
from kprof_inject.analysis.limits.coalescing import Requests
from kprof_inject.analysis.limits.limit import LIMITING, Measured
from kprof_inject.analysis.limits.rates import DRAM, L2, L2_TO_SM, TENSOR, UNITS_OF_SM, ceiling
from kprof_inject.analysis.limits.speed_of_light import Roof, SpeedOfLight
from kprof_inject.analysis.limits.stalls import Stalls
from kprof_inject.analysis.limits.unit_evidence import UnitUse, issued_instructions
from kprof_inject.analysis.structure.values import Uses, uses_of
from kprof_inject.analysis.summary import LaunchSummary
from kprof_inject.capture import counters
from kprof_inject.capture.model import Kernel
from kprof_inject.capture.resources import KernelResources
from kprof_inject.machine_code.instructions import Instruction, MachineFunction
from kprof_inject.quantities import listed
from kprof_inject.select.functions import functions_of
from kprof_inject.select.module_view import called_only_by
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.ttgir.dialect import CALL, DIVISIONS, INTEGER_DIVISIONS
from kprof_inject.ttgir.locations import LocationTable
from kprof_inject.ttgir.loops import body_of
from kprof_inject.ttgir.nodes import Module, Operation
from kprof_inject.ttgir.ssa_values import result_names
from kprof_inject.ttgir.strings import variable_in
from kprof_inject.ttgir.types import if_misfit, types_of

_MAX_ABOVE, _MIN_REST = 1.2, 0.9  # on an H100, removing operations won 0.7 to 1.1 of their share of the warps' time
MAX_NAMES = 3
_MIN_LAUNCH_NS = 2_000  # an empty launch takes as long: 2.0 to 2.4 us on an H100
_MIN_CTA_NS = 500  # to start, to load from the L2, and to end: an H100's L2 answers after 0.2 to 0.3 us

_WORDS = {
    "tt.load": "the load",
    "tt.store": "the store",
    "tt.reduce": "the reduction",
    "tt.atomic_rmw": "the atomic operation",
    "ttg.async_copy_global_to_local": "the copy",
    "ttg.convert_layout": "the change of layout",
    **dict.fromkeys(DIVISIONS, "the division"),
    **dict.fromkeys(INTEGER_DIVISIONS, "the integer division"),
}


@functools.lru_cache(maxsize=8)
def _has_calls(ttgir: str) -> bool:
    return CALL in ttgir


def launch_times(clean: KernelResources) -> tuple[float, float] | None:
    """Return the median times of a launch without records and of an empty launch in ns, if both were measured."""
    pairs = ((clean.times_ns, clean.empty_launch_ns), (clean.replayed_ns, clean.empty_replay_ns))
    known = ((median(times_ns), empty_ns) for times_ns, empty_ns in pairs if times_ns and empty_ns)
    return min(known, default=None)  # back-to-back launches hide host overhead


class Evidence(Struct, frozen=True, eq=False):
    """The evidence by which rules judge a launch.

    ``executed`` has the module's operations, ``slopes`` a causal experiment, ``measured`` counters, ``stalls`` samples
    of the warps. ``parts`` has each unit's utilization over the launch: counted, or a lower bound. ``requests`` are
    those of loads and stores to the L1 whose addresses are known.
    """

    timeline: Timeline
    summary: LaunchSummary
    speed_of_light: SpeedOfLight
    executed: ExecutedKernel | None
    slopes: KernelSlopes | None = None
    parts: Mapping[str, float] = {}
    measured: Measured | None = None
    stalls: Stalls | None = None
    machine_code: MachineFunction | None = None
    requests: tuple[Requests, ...] = ()

    @property
    def kernel(self) -> Kernel:
        """The kernel of the launch."""
        return self.timeline.launch.kernel

    @property
    def operations(self) -> Sequence[CountedOperation]:
        """The operations that the launch executed; empty if they are unknown."""
        return self.executed.operations if self.executed else ()

    @property
    def sample(self) -> Sequence[CountedOperation]:
        """The operations as the sampled CTAs executed them; empty if they are unknown."""
        return self.executed.sample if self.executed else ()

    @property
    def loops(self) -> list[Operation]:
        """The module's loops, an outer one before those in it; empty if the operations are unknown."""
        return [one for one in self.module.walk() if one.traits.is_loop] if self.executed else []

    @property
    def ran(self) -> ExecutedKernel:
        """``executed``, which must be known: rows of the account, and rules that walk over operations, know it."""
        if self.executed is None:
            raise ValueError("the kernel's operations are unknown")
        return self.executed

    @property
    def module(self) -> Module:
        """The kernel's module, whose operations must be known."""
        return self.ran.module

    @property
    def uses(self) -> Uses:
        """The uses of the module's values."""
        return uses_of(self.module)

    def max_gain(self, removed: Mapping[str, float] = {}) -> float:
        """Return the gain if everything overlapped perfectly, and units no longer had the ``removed`` part of work."""
        device = self.timeline.launch.device_name
        left = [part * (1 - removed.get(unit, 0.0)) / ceiling(device, unit) for unit, part in self.parts.items()]
        return max(1 - max([*left, self._min_launching]), 0.0)

    def necessary(self, removed: Mapping[str, float] = {}) -> float:
        """Return the part of the launch's time that its necessary work takes, and the launching."""
        return min(max(*self.necessary_parts(removed).values(), self._min_launching), 1.0)

    def necessary_parts(self, removed: Mapping[str, float] = {}) -> dict[str, float]:
        """Return the part of the launch's time that necessary work takes on each unit, at the device's ceilings.

        Known to be necessary are each byte that the launch reads and writes, once, and the products of its dots.
        """
        device, rest = self.timeline.launch.device_name, 1 - removed.get(DRAM, 0.0)
        needed = {DRAM: min(self.dram_once, rest), TENSOR: 1 - removed.get(TENSOR, 0.0)}
        return {unit: self.parts.get(unit, 0.0) * part / ceiling(device, unit) for unit, part in needed.items()}

    @property
    def _min_launching(self) -> float:
        return self.launching or _MIN_LAUNCH_NS / max(self.summary.duration_ns, 1)

    @property
    def launching(self) -> float:
        """The part of the launch's time that an empty launch and a short CTA take; 0 if no empty launch was timed."""
        times_ns = launch_times(self.kernel.clean)
        if times_ns is None:
            return 0.0
        launch_ns, empty_ns = times_ns
        return min((empty_ns + _MIN_CTA_NS) / launch_ns, 1.0)

    def max_gain_of_units(self, removed: Mapping[str, float]) -> float:
        """Return the gain of a launch whose time follows the busiest unit's, as much as that unit limits it now."""
        less = 1 - (1 - self.max_gain(removed)) / max(1 - self.max_gain(), 1e-9)
        return less * min(self.busiest[1] / LIMITING, 1.0)

    def max_gain_of_waits(self, operations: Sequence[Operation], loop: Operation) -> float:
        """Return an upper bound of the gain if a loop waited neither for some of its operations nor at barriers."""
        if self.stalls is None:
            return 1.0
        waits = self.stalls.share_of_waits(self.lines_of(operations))
        # Warps wait at barriers for what other warps load. Waits for the tensor cores count: once loads are
        # asynchronous, dots are, too. Without them, an attention kernel's bound was 11 %, and it won 17 % (H100).
        at_barriers = self.stalls.share_of_barriers(self.lines_of([loop]), with_wgmma=True)
        return self.bound_of(min(waits + at_barriers, 1.0))

    @staticmethod
    def bound_of(share: float) -> float:
        """Return the most that a launch gains without what takes this share of the warps' time."""
        return min(_MAX_ABOVE * share, 1 - (1 - share) * _MIN_REST)

    def first_lines_of(self, operations: Iterable[Operation]) -> tuple[int, ...]:
        """Return the lines of the TTGIR in which operations begin, in the order of the text."""
        starts = [one.start for one in operations]
        return tuple(sorted(set(self.module.line_numbers(starts)))) if starts else ()

    def lines_of(self, operations: Iterable[Operation]) -> set[int]:
        """Return the lines of the TTGIR with operations, their regions, and the functions that they alone call."""
        top = [*operations]
        if top and _has_calls(self.module.text):
            top += [one.operation for one in called_only_by(functions_of(self.module), top)]
        return self.module.lines_of(top) if top else set()

    def time_share_of(self, operations: Iterable[Operation]) -> float:
        """Return the share of the warps' time in operations and waits for their results, else ``issued_share_of``."""
        if self.stalls is None:
            return self.issued_share_of(operations)
        return self.stalls.share_of(self.lines_of(operations))

    def execution_share_of(self, operations: Iterable[Operation]) -> float:
        """Return ``time_share_of`` without waits for the operations' operands, which a replacement has, too."""
        if self.stalls is None:
            return self.issued_share_of(operations)
        return self.stalls.share_of_execution(self.lines_of(operations))

    def iterations_of(self, loop: Operation) -> float:
        """Return how many iterations a loop has on average; infinite if unknown."""
        times = {one.operation: one.times for one in self.operations}
        around = loop.block.operations if loop.block else ()
        loops, iterations = (
            next((count for one in block if (count := times.get(one)) is not None), None)
            for block in (around, body_of(loop))
        )
        return iterations / loops if loops and iterations is not None else math.inf

    @property
    def dram_moved(self) -> float:
        """Bytes from and to DRAM: counted, or the least without counters."""
        dram, measured = self.speed_of_light.dram, self.measured
        if measured is not None:
            return measured.metric(counters.DRAM_READ_BYTES) + measured.metric(counters.DRAM_WRITE_BYTES)
        return dram.once_bytes if dram else 0.0

    @property
    def dram_once(self) -> float:
        """The part of DRAM's bytes that suffices if each byte moves once; 1 at unknown addresses: all may be needed."""
        dram, moved = self.speed_of_light.dram, self.dram_moved
        # Of what is written, the L2 may keep a part: less moves than each byte once.
        return min(dram.once_bytes / moved, 1.0) if dram and moved and not dram.unknown else 1.0

    @property
    def dram_waste(self) -> float | None:
        """The part of DRAM's bytes that the launch does not need: lost before they are used, or not even its data."""
        dram = self.speed_of_light.dram
        return None if dram is None or dram.unknown or self.measured is None else 1 - self.dram_once

    def without(self, operations: Sequence[Operation]) -> dict[str, float]:
        """Return the part of each unit's work that a launch would not have without some operations; none of DRAM's."""
        loads = (one for top in operations for one in top.walk() if one.traits.reads_global and is_tensor(one))
        sectors, lines = 1.0, self.lines_of(operations)
        if self.lines_of(loads) <= {one.line for one in self.requests}:
            whole = sum(one.sectors * one.requests for one in self.requests)
            sectors = sum(one.sectors * one.requests for one in self.requests if one.line in lines) / max(whole, 1)
        return {**self.unit_shares_of(operations), L2: sectors, L2_TO_SM: sectors}

    @property
    def unit_use(self) -> UnitUse:
        """The lines for which the units of the SMs work."""
        return UnitUse(self.kernel, self.issued, self.requests)

    @property
    def issued(self) -> Sequence[tuple[Instruction, float]]:
        """The machine instructions, with the share of each among all that are issued; empty if it is unknown."""
        return issued_instructions(self.kernel, self.machine_code, self.executed) if self.machine_code else ()

    def unit_shares_of(self, operations: Iterable[Operation], part: float = 1.0) -> dict[str, float]:
        """Return the part of each SM unit's work that is done for some operations, times ``part``."""
        chosen = [*operations]
        lines, use = self.lines_of(chosen), self.unit_use
        shares = {unit: part * use.share_of(unit, lines) for unit in UNITS_OF_SM}
        # The compiler gives some instructions of dots the lines of others.
        has_dots = any(one.traits.is_of_dot for top in chosen for one in top.walk())
        return shares if has_dots else {**shares, TENSOR: 0.0}

    def saved_by(self, operations: Sequence[Operation], part: float) -> tuple[dict[str, float], float]:
        """Return the parts of each SM unit's work, and of the warps' time, that go with ``part`` of some operations."""
        return self.unit_shares_of(operations, part), self.time_share_of(operations) * part

    def issued_share_of(self, operations: Iterable[Operation]) -> float:
        """Return the share of operations among all instructions that are issued; 0 if it is unknown."""
        lines = self.lines_of(operations)
        return sum(share for one, share in self.issued if one.line in lines)

    def roof_around(self, operation: Operation) -> Roof | None:
        """Return the roof of the innermost scope around an operation that has one."""
        if self.executed is None:
            return None
        roofs = {roof.index: roof for roof in self.speed_of_light.roofs}
        index = self.executed.scope_map.innermost_around(operation, roofs)
        return None if index is None else roofs[index]

    def name_around(self, operation: Operation) -> str:
        """Return the name of that scope; *a loop* if there is none."""
        roof = self.roof_around(operation)
        return self.name_of(roof) if roof else "a loop"

    def name_of(self, roof: Roof) -> str:
        """Return the name of a roof's scope, with its site if other scopes have that name."""
        return self.summary.scopes[roof.index].distinct_name

    def place_of(self, operation: Operation) -> str:
        """Return an operation's source line, such as ``matmul.py:58``, or its TTGIR line if the source is unknown."""
        source = LocationTable(self.module).source_line(operation)
        return source or f"TTGIR line {self.module.line_numbers([operation.start])[0]}"

    def places_of(self, operations: Iterable[Operation]) -> str:
        """Return the places of operations, each once, such as ``norm.py:40 and norm.py:47``."""
        return listed(list(dict.fromkeys(map(self.place_of, operations))), MAX_NAMES)

    def names_of(self, operations: Iterable[Operation]) -> str:
        """Return operations in words, each once, and no more than three by name."""
        return listed(list(dict.fromkeys(map(self.words_of, operations))), MAX_NAMES)

    def words_of(self, operation: Operation) -> str:
        """Return an operation in words, such as *the load of 'x' at matmul.py:58*."""
        if operation.traits.is_loop:  # its location names one of the values that it carries
            return f"the loop at {self.place_of(operation)}"
        what = _WORDS.get(operation.name, operation.name.rpartition(".")[2])
        variable = next(map(variable_in, result_names(operation)), "")
        return f"{what}{f' of {variable!r}' if variable else ''} at {self.place_of(operation)}"

    @property
    def dram_part(self) -> float:
        """The part of DRAM's peak that the launch uses: counted, or a lower bound."""
        if self.measured is not None and DRAM in self.parts:
            return self.parts[DRAM]  # records may make the launch faster or slower
        dram = self.speed_of_light.dram
        return dram.min_part(self.summary.duration_ns) if dram else 0.0

    @property
    def has_dots(self) -> bool:
        """True if the kernel is known to have dots."""
        return self.executed is not None and any(one.traits.is_dot for one in self.module.walk())

    @property
    def room(self) -> int:
        """The number of CTAs that fit on an SM at once; 0 if that is unknown."""
        waves = self.summary.waves
        return self.kernel.clean.ctas_per_sm or (waves.slots_per_sm if waves else 0)

    @property
    def has_one_wave(self) -> bool:
        """True if it is known that SMs have room for all CTAs at once."""
        waves = self.summary.waves
        return waves is not None and waves.ctas <= (self.kernel.sm_count or waves.sms) * self.room

    @property
    def sm_cycles(self) -> int:
        """SM cycles of the scope with the most: the kernel's function, if that was recorded."""
        return self._whole.sm_cycles if self._whole else 0

    @property
    def _whole(self) -> Roof | None:
        return max(self.speed_of_light.roofs, key=lambda roof: roof.sm_cycles, default=None)

    @property
    def busiest(self) -> tuple[str, float]:
        """The busiest unit, with the part of the launch's time that it is busy, or a lower bound."""
        parts = [*self.parts.items()]
        if not parts:
            parts = [(self._whole.unit, self._whole.part)] if self._whole else []
            parts.append((DRAM, min(self.dram_part, 1.0)))
        return max(*parts, ("", 0.0), key=lambda one: one[1])

    @property
    def busiest_of_device(self) -> tuple[str, float]:
        """The busiest unit, with the part of all SMs' time in the launch that it is busy."""
        waves, sms = self.summary.waves, self.kernel.sm_count
        if self.measured is not None or waves is None or not sms or not self.parts:
            return self.busiest
        # Computed figures of an SM's units refer to the time in which SMs have work.
        working = waves.sms / sms * (1 - (waves.idle_sm_share or 0.0))
        parts = {unit: part if unit in (DRAM, L2) else working * part for unit, part in self.parts.items()}
        return max(parts.items(), key=lambda one: one[1])

    def share_of(self, roof: Roof) -> float:
        """Return the part of the SMs' time that a scope takes."""
        return roof.sm_cycles / self.sm_cycles if self.sm_cycles else 0.0


@if_misfit(True)
def is_tensor(operation: Operation) -> bool:
    """Return True if an operation has a tensor among its printed types."""
    return any(printed.shape for printed in types_of(operation))


def accesses_in(operations: Iterable[CountedOperation]) -> list[tuple[CountedOperation, Access]]:
    """Return the operations that access global memory, with their accesses."""
    return [(one, one.access) for one in operations if one.access is not None]


def accesses_of_a_byte(access: Access, times: int | None) -> float:
    """Return how often all CTAs access a byte on average; infinite if unknown."""
    touched, requested_bytes = access.touched(), access.requested_bytes(times)
    if touched is None or not touched.size_bytes or requested_bytes is None:
        return math.inf
    return requested_bytes / touched.size_bytes


def elements_of(operation: Operation) -> int:
    """Return the number of elements of an operation's last result; 1 for scalars and unknown types."""
    types = types_of(operation)
    return types[-1].elements if types else 1
