"""The operations that the CTAs of a launch executed, with their operands and counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from math import prod

from msgspec import Struct
from msgspec.structs import replace

from kprof_inject.analysis.interpreter.accesses import Access, Executed, access_of, asks_for_iteration, predicate_of
from kprof_inject.analysis.interpreter.axis_arrays import loop_axis
from kprof_inject.analysis.interpreter.interpreter import executed
from kprof_inject.analysis.interpreter.loaded_integers import KnownRanges
from kprof_inject.analysis.scope_map import ScopeMap
from kprof_inject.analysis.summary import LaunchSummary
from kprof_inject.analysis.unjudged import evaluating
from kprof_inject.capture.measurements import LoadedIntegersRecord
from kprof_inject.capture.model import KERNELS_CACHED, Launch
from kprof_inject.capture.schema import Grid
from kprof_inject.capture.scopes import ScopeKind, ScopeTable
from kprof_inject.capture.source_text import ttgir_of
from kprof_inject.ttgir.dialect import FUNCTION
from kprof_inject.ttgir.nodes import Module, Operation
from kprof_inject.ttgir.parser import parse


class CountedOperation(Struct, frozen=True):
    """An operation of a launch's kernel, and how often all CTAs together executed it."""

    line: int
    executed: Executed
    access: Access | None  # its access to global memory
    times: int | None  # none in called functions, and where a condition or a loop depends on loaded data

    @classmethod
    def of(cls, line: int, executed: Executed) -> CountedOperation:
        """Count an operation's executions by the launch's arguments."""
        return cls(line, executed, access_of(executed), executed.times)

    @property
    def operation(self) -> Operation:
        """The operation in the module."""
        return self.executed.operation

    @property
    def whole_times(self) -> int | None:
        """``times`` in full executions: masked elements do not count."""
        if self.access is None or not self.access.whole_bytes:
            return self.times
        requested_bytes = self.access.requested_bytes(self.times)
        return None if requested_bytes is None else requested_bytes // self.access.whole_bytes


_MAX_SAMPLED = 32
_GOLDEN_RATIO = 0.6180339887498949


class ExecutedKernel(Struct, frozen=True, eq=False, dict=True):
    """The module that a launch was compiled from, its operations in the order of the text, and the recorded scopes."""

    scope_map: ScopeMap
    operations: tuple[CountedOperation, ...]
    grid: Grid
    arguments: tuple[int | None, ...]
    memory: KnownRanges | None

    @property
    def sampled_ctas(self) -> Sequence[int]:
        """Up to 32 CTAs, spread without a period, as rows and columns of a grid have one."""
        ctas = prod(self.grid)
        if ctas <= _MAX_SAMPLED:
            return range(ctas)
        return sorted({int(ctas * (number * _GOLDEN_RATIO % 1)) for number in range(_MAX_SAMPLED)})

    @cached_property
    def sample(self) -> tuple[CountedOperation, ...]:
        """The operations as these CTAs execute them: their masks and addresses stay small."""
        with evaluating():
            return _counted(self.module, self.grid, self.arguments, self.memory, self.sampled_ctas)

    @property
    def module(self) -> Module:
        """The parsed TTGIR."""
        return self.scope_map.module

    def of_loop(self, loop: Operation) -> list[CountedOperation]:
        """Return the operations of a loop's body, without those of inner loops."""
        return [one for one in self.operations if one.operation.loop is loop]


def evaluated_kernel(launch: Launch) -> ExecutedKernel:
    """Return a launch's kernel, evaluated for its arguments. Raises ``KprofError``."""
    kernel = launch.kernel
    loaded = kernel.loaded if kernel.loaded and kernel.loaded.is_of(launch.grid, launch.arguments) else None
    return evaluated(ttgir_of(kernel), str(kernel.folder), launch.grid, launch.arguments, kernel.scopes, loaded)


def with_recorded_iterations(ran: ExecutedKernel, summary: LaunchSummary) -> ExecutedKernel:
    """Return the kernel with the iterations that were recorded, assuming that no record is missing."""
    recorded = [one for one in summary.scopes if one.kind == ScopeKind.ITERATION]
    found = ((ran.scope_map.loop_of(one.index), round(one.executions * summary.ctas_per_recorded)) for one in recorded)
    iterations = tuple((loop, count) for loop, count in found if loop is not None)
    return _with_iterations(ran, iterations) if iterations else ran


@lru_cache(maxsize=KERNELS_CACHED)  # mostly, all launches have the same
def _with_iterations(ran: ExecutedKernel, recorded: tuple[tuple[Operation, int], ...]) -> ExecutedKernel:
    counted = (replace(one, times=_times(one.executed, dict(recorded))) for one in ran.operations)
    return replace(ran, operations=tuple(counted))


_parse_once = lru_cache(maxsize=KERNELS_CACHED)(parse)


@lru_cache(maxsize=KERNELS_CACHED)  # many launches have the same arguments
def evaluated(
    text: str,
    file: str,
    grid: Grid,
    arguments: tuple[int | None, ...],
    table: ScopeTable,
    loaded: LoadedIntegersRecord | None = None,
) -> ExecutedKernel:
    """Return a module with its recorded scopes, evaluated for a grid and arguments. Raises ``KprofError``."""
    module = _parse_once(text, file)
    with evaluating():
        memory = KnownRanges.of(loaded) if loaded else None
        counted = _counted(module, grid, arguments, memory)
        return ExecutedKernel(ScopeMap(module, table), counted, grid, arguments, memory)


def _counted(
    module: Module,
    grid: Grid,
    arguments: tuple[int | None, ...],
    memory: KnownRanges | None,
    ctas: Sequence[int] = (),
) -> tuple[CountedOperation, ...]:
    entry, found = entry_function(module), list[Executed]()
    for function in _functions(module):
        if function is entry:
            found += executed(module, function, grid, arguments, memory, ctas)
        else:
            found += [Executed.unknown(one) for one in function.walk() if one is not function]
    lines = module.line_numbers([one.operation.start for one in found])
    return tuple(map(CountedOperation.of, lines, found))


def entry_function(module: Module) -> Operation | None:
    """Return the function that is launched, or None in a module without functions."""
    functions = _functions(module)
    return next((one for one in functions if " public @" in one.tail), functions[0] if functions else None)


def _functions(module: Module) -> list[Operation]:
    return [one for one in module.walk() if one.name == FUNCTION]


def _times(one: Executed, recorded: Mapping[Operation, int]) -> int | None:
    """Count an operation by recorded iterations, or by the launch's arguments in loops that were not recorded."""
    # Records do not show when a predicate holds, unless it holds in every iteration.
    if one.is_predicated:
        predicate = predicate_of(one.operation)
        if one.times is not None or predicate is None or not asks_for_iteration(predicate, one.operation):
            return one.times
    differs = {axis for part in one.when.parts for axis in part.axes} if one.when else set()
    times = 1
    for owner in one.operation.ancestors():
        axis = loop_axis(owner.start)
        if owner in recorded:
            return times * recorded[owner]
        if not owner.traits.is_loop and owner.name != FUNCTION and owner.traits.regions != "branch":
            continue
        if axis not in one.sizes or axis in differs:
            break
        times *= one.sizes[axis]
    return one.times
