"""What limits a launch by its counters and samples: each cause, and which comes first."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from replacing import replace

from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.analysis.limits.judges import limit_by_counters
from kprof_inject.analysis.limits.limit import Measured
from kprof_inject.analysis.limits.rates import ALU, DRAM, L2
from kprof_inject.analysis.limits.stalls import LineStalls, Stalls
from kprof_inject.analysis.summary import LaunchSummary
from kprof_inject.capture import counters
from kprof_inject.capture.measurements import CountersRecord
from kprof_inject.capture.reader import read_capture
from kprof_inject.machine_code.instructions import Instruction, MachineFunction
from kprof_inject.timeline.timeline import decode_launch

CAPTURE = Path(__file__).parents[3] / "tests/captures/matmul-three-stages"
SOURCE = ("/home/user/kernel.py", 7)
Launched = tuple[LaunchSummary, Measured]


@pytest.fixture(scope="module")
def launch() -> Launched:
    """A launch that fills the device, without any work."""
    report = LaunchAnalysis.of(decode_launch(read_capture(CAPTURE).launches[0]))
    assert report.measured is not None
    return report.summary, replace(report.measured, stalls=None, code=None)


def counted(**metrics: float) -> CountersRecord:
    return CountersRecord(metrics={getattr(counters, name): value for name, value in metrics.items()}, passes=1)


def with_code(launch: Launched, opcode: str) -> Launched:
    summary, measured = launch
    return summary, replace(measured, code=MachineFunction("kernel", (Instruction(0, opcode, ""),)))


def stalled(reasons: Mapping[str, int], operation: str = "LDG") -> Stalls:
    line = LineStalls(3, SOURCE, reasons, {"long_scoreboard": {3: 1}}, "x")
    return Stalls(sum(reasons.values()), reasons, {}, (line,), 0, {3: operation}, {})


def limit(launch: Launched, stalls: Stalls | None = None, **metrics: float) -> Any:
    summary, measured = launch
    values = {"ALU": 1.0, "WARPS_ACTIVE": 32.0, **metrics}
    return limit_by_counters(replace(measured, counted=counted(**values), stalls=stalls), summary.waves, summary.idle)


def test_a_unit_that_is_busy(launch: Launched) -> None:
    found = limit(launch, ALU=87.0)
    assert (found.name, found.units, found.evidence) == ("ALU 87 %", (ALU,), "measured")
    assert found.text == "the ALU (87.0 % of peak)"


def test_dram_with_the_bytes_that_it_moved(launch: Launched) -> None:
    found = limit(launch, DRAM=80.0, DRAM_READ_BYTES=3e6, DRAM_WRITE_BYTES=1e6)
    assert found.units == (DRAM,)
    assert found.text.endswith(": 3.0 MB read and 1.0 MB written")


def test_units_that_are_nearly_as_busy_are_named_together(launch: Launched) -> None:
    assert limit(launch, DRAM=70.0, L2=65.0, ALU=40.0).units == (DRAM, L2)


def test_uncoalesced_access_if_memory_is_busy(launch: Launched) -> None:
    access = {"LOAD_REQUESTS": 1e3, "LOAD_SECTORS": 32e3}
    found = limit(with_code(launch, "LDG.E.64"), L2=81.0, **access)
    assert found.name == "uncoalesced access"
    assert "each load of a warp touches 32.0 sectors of 32 bytes, where 8 would do" in found.text
    assert limit(with_code(launch, "LDG.E.64"), ALU=81.0, **access).name == "ALU 81 %"
    waiting = limit(with_code(launch, "LDG.E.64"), stalled({"long_scoreboard": 60}), L2=81.0, **access)
    assert waiting.text.endswith("; warps wait longest for the load of 'x' at kernel.py:7")
    adjacent = {"LOAD_REQUESTS": 1e3, "LOAD_SECTORS": 8e3}
    assert limit(with_code(launch, "LDG.E.64"), L2=81.0, **adjacent).name == "L2 81 %"


@pytest.mark.parametrize(("read_bytes", "name"), [(380e3, "DRAM and L2 85 %"), (390e3, "uncoalesced access")])
def test_uncoalesced_access_does_not_limit_dram_that_reads_each_byte_once(
    launch: Launched, read_bytes: float, name: str
) -> None:
    """The warps load 256 kB, though their requests touch four times as much."""
    access = {"LOAD_REQUESTS": 1e3, "LOAD_SECTORS": 32e3, "DRAM_READ_BYTES": read_bytes}
    found = limit(with_code(launch, "LDG.E.64"), DRAM=85.0, L2=81.0, **access)
    assert found.name == name
    assert "touches 32.0 sectors of 32 bytes, where 8 would do" in found.text


def test_the_l2_limits_a_gather_that_keeps_it_busier_than_dram(launch: Launched) -> None:
    access = {"LOAD_REQUESTS": 1e3, "LOAD_SECTORS": 14e3, "DRAM_READ_BYTES": 250e3}
    assert limit(with_code(launch, "LDG.E.64"), L2=80.0, DRAM=68.0, **access).units == (L2,)


def test_a_small_grid(launch: Launched) -> None:
    summary, measured = launch
    assert summary.waves is not None
    small = replace(summary, waves=replace(summary.waves, ctas=16, sms=16))
    found = limit((small, measured))
    assert found.name == "grid"
    assert found.text.startswith("the grid: 16 CTAs on 16 of 132 SMs")
    assert limit((small, measured), DRAM=61.0).units == (DRAM,)


def test_ctas_that_start_too_slowly(launch: Launched) -> None:
    summary, measured = launch
    assert summary.waves is not None
    waves = replace(summary.waves, ctas=9000)
    metadata = {**measured.kernel.metadata, "num_warps": 1}
    kernel = replace(measured.kernel, metadata=metadata, clean=replace(measured.kernel.clean, ctas_per_sm=16))
    many = replace(summary, waves=waves), replace(measured, kernel=kernel)
    found = limit(many, WARPS_ACTIVE=5.0)
    assert found.name == "CTAs start too slowly"
    assert "an SM has room for 16, and holds 5.0 on average, though 9000 are to run" in found.text
    assert limit(many, WARPS_ACTIVE=15.0).name == "latency"


def test_atomics(launch: Launched) -> None:
    found = limit(launch, stalled({"long_scoreboard": 60, "selected": 40}, "ATOMG"))
    assert found.name == "atomics"


def test_latency_with_its_reason_and_place(launch: Launched) -> None:
    found = limit(launch, stalled({"long_scoreboard": 60, "selected": 40}), ALU=30.0)
    assert found.name == "latency"
    assert found.text == (
        "latency: warps wait 60.0 % of their time for data from global memory (long_scoreboard), most for LDG of "
        "'x' at kernel.py:7; the busiest unit is the ALU (30.0 % of peak)"
    )


def test_too_few_warps_unless_a_unit_is_rather_busy(launch: Launched) -> None:
    waiting = stalled({"wait": 60, "selected": 40})
    assert limit(launch, waiting, WARPS_ACTIVE=4.0).name == "too few warps in flight"
    assert limit(launch, waiting, WARPS_ACTIVE=4.0, ALU=55.0).name == "latency"


def test_a_busy_loop_of_the_unit_that_is_busiest_in_the_launch() -> None:
    """Its dots are all in the loop; with other warps of the SM, the loop runs for more of the time than a warp's."""
    (launch,) = read_capture(CAPTURE).launches
    report = LaunchAnalysis.of(decode_launch(launch))
    assert report.limit.name == "tensor cores 57 %"
    assert "% in loop[0], 9" in report.limit.text
    uncounted = replace(launch, kernel=replace(launch.kernel, measurements=None))
    assert LaunchAnalysis.of(decode_launch(uncounted)).limit.evidence == "computed"
