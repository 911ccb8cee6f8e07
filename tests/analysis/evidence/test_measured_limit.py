"""What limits a launch by its counters and samples: each cause, and which comes first."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from replacing import replace

from kprof_inject.analysis.evidence.measured_limit import Measured, measured_limit
from kprof_inject.analysis.evidence.stalls import LineStalls, Stalls
from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.analysis.roofs.coalescing import Requests
from kprof_inject.analysis.roofs.limits import DRAM
from kprof_inject.analysis.roofs.memory import DramBound
from kprof_inject.analysis.roofs.rates import ALU, L2, SHARED
from kprof_inject.analysis.roofs.speed_of_light import SpeedOfLight
from kprof_inject.capture import counters
from kprof_inject.capture.measurements import CountersRecord
from kprof_inject.capture.reader import read_capture
from kprof_inject.machine_code.instructions import Instruction, MachineFunction
from kprof_inject.timeline.timeline import decode_launch

CAPTURE = Path(__file__).parents[3] / "tests/captures/matmul-three-stages"
SOURCE = ("/home/user/kernel.py", 7)


@pytest.fixture(scope="module")
def measured() -> Measured:
    """A launch that fills the device, without any work."""
    (launch,) = read_capture(CAPTURE).launches
    found = LaunchAnalysis.of(decode_launch(launch)).measured
    assert found is not None
    return replace(found, counted=counted(ALU=1.0, WARPS_ACTIVE=32.0), stalls=None, light=SpeedOfLight(()))


def counted(**metrics: float) -> CountersRecord:
    return CountersRecord(metrics={getattr(counters, name): value for name, value in metrics.items()}, passes=1)


def stalled(reasons: Mapping[str, int], operation: str = "LDG") -> Stalls:
    line = LineStalls(3, SOURCE, reasons, {"long_scoreboard": {3: 1}}, "x")
    return Stalls(sum(reasons.values()), reasons, {}, (line,), 0, {3: operation}, {})


def limit_of(measured: Measured, stalls: Stalls | None = None, **metrics: float) -> Any:
    values = {"ALU": 1.0, "WARPS_ACTIVE": 32.0, **metrics}
    return measured_limit(replace(measured, counted=counted(**values), stalls=stalls))


def test_a_unit_that_is_busy(measured: Measured) -> None:
    limit = limit_of(measured, ALU=87.0)
    assert (limit.name, limit.units, limit.evidence) == ("ALU 87 %", (ALU,), "measured")
    assert limit.text == "the ALU (87.0 % of peak)"


def test_dram_with_the_bytes_that_it_moved(measured: Measured) -> None:
    limit = limit_of(measured, DRAM=80.0, DRAM_READ_BYTES=3e6, DRAM_WRITE_BYTES=1e6)
    assert limit.units == (DRAM,)
    assert limit.text.endswith(": 3.0 MB read and 1.0 MB written")


def test_units_that_are_nearly_as_busy_are_named_together(measured: Measured) -> None:
    assert limit_of(measured, DRAM=70.0, L2=65.0, ALU=40.0).units == (DRAM, L2)


def test_uncoalesced_access_if_memory_is_busy(measured: Measured) -> None:
    code = MachineFunction("kernel", (Instruction(0, "LDG.E.64", ""),))
    access = {"LOAD_REQUESTS": 1e3, "LOAD_SECTORS": 32e3}
    limit = limit_of(replace(measured, code=code), L2=81.0, **access)
    assert limit.name == "uncoalesced access"
    assert "each load of a warp touches 32.0 sectors of 32 bytes, where 8 would do" in limit.text
    assert limit_of(replace(measured, code=code), ALU=81.0, **access).name == "ALU 81 %"
    waiting = limit_of(replace(measured, code=code), stalled({"long_scoreboard": 60}), L2=81.0, **access)
    assert waiting.text.endswith("; warps wait longest for the load of 'x' at kernel.py:7")
    adjacent = {"LOAD_REQUESTS": 1e3, "LOAD_SECTORS": 8e3}
    assert limit_of(replace(measured, code=code), L2=81.0, **adjacent).name == "L2 81 %"


@pytest.mark.parametrize(
    ("read_bytes", "unknown", "name"),
    [(1.5e6, 0, "DRAM and L2 85 %"), (1.6e6, 0, "uncoalesced access"), (1.5e6, 1, "uncoalesced access")],
)
def test_uncoalesced_access_does_not_limit_dram_that_reads_each_byte_once(
    measured: Measured, read_bytes: float, unknown: int, name: str
) -> None:
    code = MachineFunction("kernel", (Instruction(0, "LDG.E.64", ""),))
    bound = DramBound(1_000_000, 0, 1_000_000, 1_000_000, False, unknown, 0, 1e9)
    known = replace(measured, code=code, light=SpeedOfLight((), dram=bound))
    access = {"LOAD_REQUESTS": 1e3, "LOAD_SECTORS": 32e3, "DRAM_READ_BYTES": read_bytes}
    limit = limit_of(known, DRAM=85.0, L2=81.0, **access)
    assert limit.name == name
    assert "touches 32.0 sectors of 32 bytes, where 8 would do" in limit.text


SPREAD = Requests(9, "load", 8, 100, 1.0, 32, 8, 8, 2, 8, "of 'y' at kernel.py:9")
APART = Requests(5, "load", 16, 100, 1.0, 16, 16, 16, 4, 16, "of 'z' at kernel.py:5")


def test_the_line_of_uncoalesced_access_is_computed_if_possible(measured: Measured) -> None:
    code = MachineFunction("kernel", (Instruction(0, "LDG.E.64", ""),))
    known = replace(measured, code=code, requests=(replace(SPREAD, kind="store"), SPREAD))
    limit = limit_of(known, stalled({"long_scoreboard": 60}), L2=81.0, LOAD_REQUESTS=110, LOAD_SECTORS=3300)
    assert limit.text.endswith(
        "each load of 'y' at kernel.py:9 touches 32.0 sectors of 32 bytes, where 8 would do; all loads touch 30.0 on "
        "average"
    )
    others = limit_of(known, stalled({"long_scoreboard": 60}), L2=81.0, LOAD_REQUESTS=1e3, LOAD_SECTORS=30e3)
    assert others.text.endswith("; warps wait longest for the load of 'x' at kernel.py:7")


@pytest.mark.parametrize(
    ("wavefronts", "conflicts", "name"),
    [(4e3, 0, "uncoalesced access"), (4e3, 2e3, "shared memory and L1 81 %"), (4e4, 0, "shared memory and L1 81 %")],
)
def test_lines_may_keep_the_l1_busy_where_sectors_do_not(
    measured: Measured, wavefronts: float, conflicts: float, name: str
) -> None:
    """The access takes 1,200 cycles more than it would if its addresses were adjacent."""
    known = replace(measured, requests=(APART,))
    limit = limit_of(known, L1=81.0, WAVEFRONTS=wavefronts, SHARED_CONFLICTS=conflicts)
    assert (limit.name, limit.units) == (name, (SHARED,))
    text = "each load of 'z' at kernel.py:5 touches 16.0 lines of 128 bytes, where 4 would do"
    assert (text in limit.text) == (name == "uncoalesced access")


def test_a_small_grid(measured: Measured) -> None:
    assert measured.summary.waves is not None
    waves = replace(measured.summary.waves, ctas=16, sms=16)
    limit = limit_of(replace(measured, summary=replace(measured.summary, waves=waves)))
    assert limit.name == "grid"
    assert limit.text.startswith("the grid: 16 CTAs on 16 of 132 SMs")


def test_ctas_that_start_too_slowly(measured: Measured) -> None:
    assert measured.summary.waves is not None
    waves = replace(measured.summary.waves, ctas=9000)
    metadata = {**measured.kernel.metadata, "num_warps": 1}
    kernel = replace(measured.kernel, metadata=metadata, clean=replace(measured.kernel.clean, ctas_per_sm=16))
    many = replace(measured, summary=replace(measured.summary, waves=waves), kernel=kernel)
    limit = limit_of(many, WARPS_ACTIVE=5.0)
    assert limit.name == "CTAs start too slowly"
    assert "an SM has room for 16, and holds 5.0 on average, though 9000 are to run" in limit.text
    assert limit_of(many, WARPS_ACTIVE=15.0).name == "latency"


def test_atomics(measured: Measured) -> None:
    limit = limit_of(measured, stalled({"long_scoreboard": 60, "selected": 40}, "ATOMG"))
    assert limit.name == "atomics"


def test_latency_with_its_reason_and_place(measured: Measured) -> None:
    limit = limit_of(measured, stalled({"long_scoreboard": 60, "selected": 40}), ALU=30.0)
    assert limit.name == "latency"
    assert limit.text == (
        "latency: warps wait 60.0 % of their time for data from global memory (long_scoreboard), most for LDG of "
        "'x' at kernel.py:7; the busiest unit is the ALU (30.0 % of peak)"
    )


def test_too_few_warps_unless_a_unit_is_rather_busy(measured: Measured) -> None:
    waiting = stalled({"wait": 60, "selected": 40})
    assert limit_of(measured, waiting, WARPS_ACTIVE=4.0).name == "too few warps in flight"
    assert limit_of(measured, waiting, WARPS_ACTIVE=4.0, ALU=55.0).name == "latency"


def test_a_busy_loop_of_the_unit_that_is_busiest_in_the_launch() -> None:
    (launch,) = read_capture(CAPTURE).launches
    report = LaunchAnalysis.of(decode_launch(launch))
    assert report.limit.name == "tensor cores 57 %"
    assert "in loop[0]" in report.limit.text
    uncounted = replace(launch, kernel=replace(launch.kernel, measurements=None))
    assert LaunchAnalysis.of(decode_launch(uncounted)).limit.evidence == "computed"
