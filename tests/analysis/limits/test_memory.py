"""The bytes that a launch has to move: never more than plain loops over all elements count."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

import pytest
from brute_force import Kernel, Overflow, Ran, bytes_of, run
from buffers import Scope
from executable_kernels import executable
from generated_kernels import kernels
from hypothesis import HealthCheck, given, reject, settings
from replacing import replace
from timelines import cta_rows, made_timeline

from kprof_inject.analysis.interpreter.accesses import Access
from kprof_inject.analysis.interpreter.executions import CountedOperation, evaluated
from kprof_inject.analysis.interpreter.interpreter import executed
from kprof_inject.analysis.limits.memory import DramBound, Traffic, sms_of_ctas
from kprof_inject.capture.scopes import ScopeTable
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.ttgir.dialect import FUNCTION
from kprof_inject.ttgir.nodes import Module
from kprof_inject.ttgir.parser import parse

L2_BYTES = 40

L1_BYTES = 256 << 10


@pytest.fixture(scope="module")
def timeline(tmp_path_factory: pytest.TempPathFactory) -> Timeline:
    """Of a device whose L2 is small."""
    kernel = {"l2_bytes": L2_BYTES, "dram_bytes_per_s": 1e9}
    folder: Path = tmp_path_factory.mktemp("capture")
    return made_timeline(folder, [Scope("func")], [], cta_rows((0, 0, 0, 1, 1)), kernel=kernel)


@dataclass
class LaunchTraffic:
    """The traffic of a launch whose CTAs ran on known SMs."""

    traffic: Traffic
    kept_bytes: Sequence[int]

    @classmethod
    def of(cls, operations: Sequence[CountedOperation], module: Module, launched: Timeline) -> LaunchTraffic:
        launch = launched.launch
        traffic = Traffic(operations, module, launch.kernel, prod(launch.grid))
        return cls(traffic, traffic.kept_bytes(sms_of_ctas(launched)))

    def l2_bytes(self, first: int, last: int) -> int:
        return self.traffic.l2_bytes(self._in_lines(first, last), self.kept_bytes)

    def l1_bytes(self, first: int, last: int) -> int:
        return self.traffic.l1_bytes(self._in_lines(first, last))

    def dram_bound(self) -> DramBound | None:
        return self.traffic.dram_bound(L1_BYTES, self.kept_bytes[-1])

    def _in_lines(self, first: int, last: int) -> range:
        """The accesses that begin in these lines."""
        return range(bisect_left(self.traffic.lines, first), bisect_right(self.traffic.lines, last))


def traffic_of(timeline: Timeline, ran: Ran, grid: tuple[int, int, int], sms: Sequence[int]) -> LaunchTraffic:
    """The CTAs are told from the last to the first. Each operation stands in a line of its own, from 1 on."""
    ctas = cta_rows(*((cta, sm, 0, 1, 1) for cta, sm in reversed(list(enumerate(sms)))))
    launched = replace(timeline, ctas=ctas, launch=replace(timeline.launch, grid=grid))
    return LaunchTraffic.of(
        [CountedOperation.of(line, one) for line, one in enumerate(ran.found, 1)], ran.module, launched
    )


def passes_by(access: Access) -> bool:
    """Copies by threads do not, as nothing says that one copies 16 bytes."""
    return access.form.passes_by_l1 and "async_copy" not in access.operation.name


def counted_l2_bytes(ran: Ran, sms: Sequence[int]) -> int:
    """Count what passes by the L1 in each execution, and the sectors of all else once for each SM."""
    passing = 0
    kept: set[int] = set()
    for access, executions in ran.executions():
        if not access.form.reads:
            continue
        for touched in executions:
            if passes_by(access):
                passing += len(bytes_of(touched, access.element_bytes))
            elif not access.form.writes:
                kept |= {byte // 32 for byte in bytes_of(touched, access.element_bytes, dict(enumerate(sms)))}
    return passing + 32 * len(kept)


def counted_l1_bytes(ran: Ran) -> int:
    """What is different in each execution."""
    return sum(
        len(bytes_of(touched, access.element_bytes))
        for access, executions in ran.executions()
        for touched in executions
        if access.form.by_registers
    )


def counted_writes(ran: Ran) -> int:
    """What each execution writes; atomic operations read it, too."""
    return sum(
        (2 if access.form.reads else 1) * len(bytes_of(touched, access.element_bytes))
        for access, executions in ran.executions()
        for touched in executions
        if access.form.writes
    )


def counted_dram(ran: Ran) -> tuple[set[int], set[int], int]:
    """What is read, what is written, and how much is asked for."""
    read: set[int] = set()
    written: set[int] = set()
    requested = 0
    for access, touched in ran.accesses():
        requested += len(touched) * access.element_bytes
        chosen = written if access.form.writes else read
        if access.form.reads != access.form.writes:
            chosen |= bytes_of(touched, access.element_bytes)
    return read, written, requested


def assert_least(bound: DramBound | None, ran: Ran) -> None:
    """And no less where all is known."""
    assert bound is not None
    read, written, requested = counted_dram(ran)
    least = len(read) + max(len(written) - L2_BYTES, 0)
    found = (bound.read_bytes, bound.written_bytes, bound.least_bytes)
    counted = (len(read), len(written), least)
    assert all(one <= another for one, another in zip(found, counted, strict=True))
    assert bound.streamed_bytes is None or len(read) <= bound.streamed_bytes <= requested
    assert bound.least_ns == bound.least_bytes
    if not bound.unknown:
        assert found == counted
        assert bound.fits_l2 == (len(read | written) <= L2_BYTES)


def is_known(ran: Ran) -> bool:
    return all(access.touched() is not None for access, _ in ran.accesses())


@given(kernels())
@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_no_more_is_moved_than_loops_count(timeline: Timeline, kernel: Kernel) -> None:
    try:
        ran = run(kernel)
    except Overflow:
        reject()
    sms = [3 * cta % 4 for cta in range(prod(kernel.grid))]
    traffic = traffic_of(timeline, ran, kernel.grid, sms)
    lines = len(ran.found)
    found = traffic.l2_bytes(1, lines)
    assert found <= counted_l2_bytes(ran, sms)
    if is_known(ran) and not any(passes_by(access) for access, _ in ran.accesses()):
        assert found == counted_l2_bytes(ran, sms)
    assert traffic.l1_bytes(1, lines) <= counted_l1_bytes(ran)
    assert traffic.traffic.l2_written_bytes <= counted_writes(ran)
    # Each byte belongs to one line.
    assert sum(traffic.l2_bytes(line, line) for line in range(1, lines + 1)) == found
    assert_least(traffic.dram_bound(), ran)


COPY = """
#rows = #ttg.blocked<{sizePerThread = [1, 4], threadsPerWarp = [2, 16], warpsPerCTA = [4, 1], order = [1, 0]}>
module {
  tt.func public @k(%p: !tt.ptr<i32>) {
    %c8 = arith.constant dense<8> : tensor<16xi32>
    %many = arith.constant dense<WRAP> : tensor<64xi32>
    %r = tt.make_range {end = 16 : i32, start = 0 : i32} : tensor<16xi32>
    %s = tt.make_range {end = 64 : i32, start = 0 : i32} : tensor<64xi32>
    %rows = arith.divsi %r, %c8 : tensor<16xi32>
    %columns = arith.remsi %s, %many : tensor<64xi32>
    %a = tt.expand_dims %rows {axis = 1 : i32} : tensor<16xi32> -> tensor<16x1xi32>
    %b = tt.expand_dims %columns {axis = 0 : i32} : tensor<64xi32> -> tensor<1x64xi32>
    %t = tt.splat %p : !tt.ptr<i32> -> tensor<16x64x!tt.ptr<i32>, #rows>
    %x = tt.broadcast %a : tensor<16x1xi32> -> tensor<16x64xi32>
    %y = tt.broadcast %b : tensor<1x64xi32> -> tensor<16x64xi32>
    %c64 = arith.constant dense<64> : tensor<16x64xi32>
    %z = arith.muli %x, %c64 : tensor<16x64xi32>
    %o = arith.addi %z, %y : tensor<16x64xi32>
    %q = tt.addptr %t, %o : tensor<16x64x!tt.ptr<i32>, #rows>, tensor<16x64xi32>
    %m = ttg.local_alloc : () -> !ttg.memdesc<16x64xi32, #s, #smem, mutable>
    %k = ttg.async_copy_global_to_local %q, %m {contiguity = WIDTH : i32} : tensor<16x64x!tt.ptr<i32>, #rows> -> \
<16x64xi32, #s, #smem, mutable>
    tt.return
  }
}
"""


@pytest.mark.parametrize(
    ("wrap", "width", "l2_bytes"),
    [
        # Eight rows copy the same words, each by lanes that are served by themselves.
        (64, 4, 16 * 64 * 4),
        # Lanes of a row copy the same words, perhaps by one request.
        (16, 4, 16 * 64 * 4 // 4),
        # What passes through the L1 comes to the SM once.
        (64, 2, 2 * 64 * 4),
    ],
)
def test_copies_by_threads(timeline: Timeline, wrap: int, width: int, l2_bytes: int) -> None:
    text = COPY.replace("WRAP", str(wrap)).replace("WIDTH", str(width))
    ran = evaluated(text, "kernel.ttgir", (1, 1, 1), (4096,), ScopeTable())
    launched = replace(timeline, launch=replace(timeline.launch, grid=(1, 1, 1)))
    traffic = LaunchTraffic.of(ran.operations, ran.module, launched)
    assert traffic.l2_bytes(1, text.count("\n")) == l2_bytes


LINES = """
    %x = tt.get_program_id x : i32
    %r = tt.make_range {end = 4 : i32, start = 0 : i32} : tensor<4xi32>
    %b = tt.splat %p : !tt.ptr<i32> -> tensor<4x!tt.ptr<i32>>
    %a = tt.addptr %b, %r : tensor<4x!tt.ptr<i32>>, tensor<4xi32>
    %s = tt.splat %x : i32 -> tensor<4xi32>
    %c = tt.addptr %a, %s : tensor<4x!tt.ptr<i32>>, tensor<4xi32>
    %one = tt.load %a : tensor<4x!tt.ptr<i32>>
    %two = tt.load %c : tensor<4x!tt.ptr<i32>>
    %again = tt.load %a : tensor<4x!tt.ptr<i32>>
    %by = tt.load %a cacheModifier = cg : tensor<4x!tt.ptr<i32>>
    %far = tt.addptr %p, %one : !tt.ptr<i32>, i32
    %unknown = tt.load %far : !tt.ptr<i32>
    tt.store %c, %r : tensor<4x!tt.ptr<i32>>
"""
GRID = (4, 1, 1)


def test_what_an_sm_has_got_does_not_come_again(timeline: Timeline) -> None:
    """Four CTAs on two SMs: by hand, of elements of 4 bytes."""
    ran = run(Kernel(LINES))
    traffic = traffic_of(timeline, ran, GRID, (0, 1, 1, 1))
    # A sector of 8 elements, for elements 0 to 3, to both SMs; elements 4 to 6 are in it, too; what passes by the L1 to
    # each CTA.
    assert [traffic.l2_bytes(line, line) // 4 for line in range(7, 11)] == [8 + 8, 0, 0, 4 * 4]
    assert traffic.l2_bytes(7, 10) == 4 * (16 + 16)
    assert traffic.l2_bytes(1, 13) == 4 * (16 + 16)


LOADED = "addresses depend on loaded data"
GATHER = "%v = tt.load %p : !tt.ptr<i32>\nLOAD %w FROM %v\n"
REDUCE = '%v = "tt.reduce"(%r4) : (tensor<4xi32>) -> i32\nLOAD %w FROM %v\n'
BRANCH = "%v = tt.load %p : !tt.ptr<i32>\n%few = arith.cmpi slt, %v, %c2 : i32\nscf.if %few {\nLOAD %w FROM %x\n}\n"
LOOP = "%n = tt.load %p : !tt.ptr<i32>\n%e = scf.for %i = %c0 to %n step %c1 iter_args(%k = %x) -> (i32)  : i32 {\n"
LOOP += "%k2 = arith.addi %k, %c1 : i32\nscf.yield %k2 : i32\n}\nLOAD %w FROM %e\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (GATHER, LOADED),
        (BRANCH, LOADED),
        (LOOP, LOADED),
        (REDUCE, "the addresses of tt.load are not modelled"),
        ("%v = tt.atomic_load %p : !tt.ptr<i32>\n", "the addresses of tt.atomic_load are not modelled"),
        ("LOAD %v FROM %x\n", ""),
    ],
)
def test_addresses_are_unknown_by_loaded_data_or_as_they_are_not_modelled(
    timeline: Timeline, text: str, reason: str
) -> None:
    kernel = executable(text)
    module = parse(kernel.text)
    function = next(one for one in module.walk() if one.name == FUNCTION)
    ran = Ran(executed(module, function, GRID, kernel.arguments), {}, module)
    bound = traffic_of(timeline, ran, GRID, (0, 0, 1, 1)).dram_bound()
    assert bound is not None and bound.unknown_reason == reason


def test_bytes_of_dram_are_counted_once(timeline: Timeline) -> None:
    """And of those written only what the L2 has no room for."""
    ran = run(Kernel(LINES))
    bound = traffic_of(timeline, ran, GRID, (0, 0, 1, 1)).dram_bound()
    assert bound == DramBound(4 * 7, 4 * 7, 4 * 7, 4 * (7 + 4 + 4 + 7), True, 1, 4 * 4, 1e9, LOADED, scattered=4)
    apart = "%e = arith.constant 8 : i32\n    %f = arith.muli %x, %e : i32\n    %s = tt.splat %f"
    bound = traffic_of(timeline, run(Kernel(LINES.replace("%s = tt.splat %x", apart))), GRID, (0, 0, 1, 1)).dram_bound()
    assert bound is not None and (bound.written_bytes, bound.least_bytes) == (4 * 16, 4 * 16 + 4 * 16 - L2_BYTES)
    assert not bound.fits_l2


def test_where_ctas_are_missing_each_byte_comes_once(timeline: Timeline) -> None:
    """Nobody knows on how many SMs it was asked for."""
    ran = run(Kernel(LINES))
    traffic = traffic_of(timeline, ran, GRID, (0, 0, 1))
    assert [traffic.l2_bytes(line, line) // 4 for line in range(7, 11)] == [8, 0, 0, 4 * 4]


@pytest.mark.parametrize("lacking", ["l2_bytes", "dram_bytes_per_s"])
def test_of_unknown_memory_there_is_no_bound(timeline: Timeline, lacking: str) -> None:
    kernel = replace(timeline.launch.kernel, **{lacking: None})  # type: ignore[arg-type]
    other = replace(timeline, launch=replace(timeline.launch, kernel=kernel))
    assert traffic_of(other, run(Kernel(LINES)), GRID, (0, 0, 1, 1)).dram_bound() is None
