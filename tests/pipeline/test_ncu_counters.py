"""Which launch of a report of Nsight Compute a kernel of a capture gets its counters from."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from programs.child import REPO

from kprof_inject.capture import counters
from kprof_inject.capture.counters import DEFAULT_METRICS
from kprof_inject.capture.measurements import CountersRecord, MeasurementsRecord, SamplesRecord
from kprof_inject.capture.model import Capture, Launch, redacted
from kprof_inject.capture.nsight_compute import ProfiledLaunch
from kprof_inject.capture.reader import read_capture
from kprof_inject.errors import KprofError
from kprof_inject.pipeline.ncu_counters import with_report_counters
from kprof_inject.timeline.choice import EVERYTHING, Choice

NAME, GRID, THREADS, REGISTERS = "matmul_kernel", (256, 1, 1), 128, 213
PATH = Path("a.ncu-rep")
RECORDED = read_capture(REPO / "tests/captures/matmul")
SAMPLES = SamplesRecord(period_cycles=512, launches=1, total=0, dropped=0, instructions=())
OWN = MeasurementsRecord(counters=CountersRecord(metrics={counters.TENSOR: 5.0}, passes=2), samples=SAMPLES)


def profiled(value: float = 1.0, **changes: Any) -> ProfiledLaunch:
    fields = {"kernel": NAME, "grid": GRID, "block_threads": THREADS, "registers": REGISTERS}
    record = CountersRecord(metrics=dict.fromkeys(DEFAULT_METRICS, value), passes=7)
    return ProfiledLaunch(**{**fields, "counters": record, **changes})


def launch(
    number: int = 0, grid: tuple[int, int, int] = GRID, registers: int | None = REGISTERS, **changes: Any
) -> Launch:
    """A launch of the recorded kernel, or of another in a folder of its own."""
    one = RECORDED.launches[-1]
    kernel = replace(one.kernel, clean=replace(one.kernel.clean, registers=registers), **changes)
    if number:
        kernel = replace(kernel, folder=Path(f"kernel-{number}"), variant=f"v{number}", program_variant=f"p{number}")
    return dataclasses.replace(one, grid=grid, kernel=kernel, index=number, host_ns=number)


def capture_of(*launches: Launch) -> Capture:
    return replace(RECORDED, processes=(replace(RECORDED.processes[0], launches=launches),))


def matched(
    capture: Capture, *report: ProfiledLaunch, choice: Choice = EVERYTHING
) -> tuple[list[float | None], list[str]]:
    """The value that each launch's metrics have, None for those without; and what is said."""
    lines: list[str] = []
    changed = with_report_counters(capture, report, PATH, choice, lines.append)
    records = [one.kernel.measurements for one in changed.launches]
    return [one.counters.metrics[counters.TENSOR] if one and one.counters else None for one in records], lines


def refused(capture: Capture, *report: ProfiledLaunch) -> KprofError:
    with pytest.raises(KprofError, match=r"^a\.ncu-rep has no counters for ") as raised:
        matched(capture, *report)
    return raised.value


def test_a_kernel_gets_the_counters_of_the_launch_of_its_name() -> None:
    values, lines = matched(RECORDED, profiled(3, kernel="other"), profiled(4))
    assert values == [4]
    assert lines == [f"{NAME}: {len(DEFAULT_METRICS)} metrics from a.ncu-rep, of its only launch"]


def test_of_several_launches_of_its_shape_it_is_the_last() -> None:
    others = profiled(8, grid=(128, 1, 1)), profiled(9, block_threads=256)
    values, (line,) = matched(capture_of(launch()), profiled(1), profiled(2), *others)
    assert values == [2]
    assert line.endswith("of the last of 2 launches")


def test_a_name_that_is_unique_is_enough() -> None:
    values, (line,) = matched(capture_of(launch()), profiled(2, grid=(64, 2, 1), block_threads=256))
    assert values == [2]
    assert "grid (64, 2, 1) of 256 threads: in the capture, it has grid (256, 1, 1) of 128 threads" in line


def test_what_a_report_does_not_have_is_not_compared() -> None:
    values, _ = matched(capture_of(launch(), launch(grid=(1, 1, 1))), profiled(2, grid=None, block_threads=None))
    assert values == [2, 2]


def test_each_grid_of_a_kernel_has_its_own_counters() -> None:
    capture = capture_of(launch(), launch(grid=(8, 8, 1)), launch(grid=(4, 16, 1), measurements=OWN))
    values, lines = matched(capture, profiled(1), profiled(2, grid=(8, 8, 1)))
    assert values == [1, 2, 5]
    assert [line.partition(": ")[0] for line in lines] == [
        f"{NAME} with grid {grid} of 128 threads" for grid in ((256, 1, 1), (8, 8, 1), (4, 16, 1))
    ]
    assert "its own counters, because it ran there with grid (256, 1, 1)" in lines[-1]


def test_variants_are_told_apart_by_the_size_of_a_cta() -> None:
    capture = capture_of(launch(1), launch(2, num_warps=8), launch(3, num_warps=2))
    values, lines = matched(capture, profiled(1), profiled(2, block_threads=256))
    assert values == [1, 2, None]
    assert ": no counters, because " in lines[-1]


def test_variants_of_one_shape_are_told_apart_by_their_registers() -> None:
    capture = capture_of(launch(1), launch(2, registers=100))
    values, _ = matched(capture, profiled(2, registers=100), profiled(1))
    assert values == [1, 2]
    values, lines = matched(capture, profiled(2, registers=100))
    assert values == [None, 2]
    assert "not known which of 2 variants" in lines[0]


def test_variants_that_look_the_same_get_no_counters() -> None:
    error = refused(capture_of(launch(1), launch(2)), profiled())
    assert "not known which of 2 variants with grid (256, 1, 1) of 128 threads ran there" in error.what


def test_a_variant_in_two_processes_is_one() -> None:
    first, second = launch(1), launch(2, registers=None)
    second = dataclasses.replace(second, kernel=replace(second.kernel, program_variant=first.kernel.program_variant))
    assert matched(capture_of(first, second), profiled(3))[0] == [3, 3]


def test_another_build_is_named() -> None:
    (line,) = matched(capture_of(launch()), profiled(registers=99))[1]
    assert line.endswith("of another build: it has 99 registers per thread, not 213")


def test_ctas_of_a_cluster_count_singly() -> None:
    clusters = launch(metadata={"num_ctas": 2})
    assert matched(capture_of(clusters), profiled(2, grid=(512, 1, 1)), profiled(1))[0] == [2]


def test_a_buffer_alone_has_the_number_of_its_ctas() -> None:
    alone = dataclasses.replace(launch(), process=None)
    assert matched(capture_of(alone), profiled(2, grid=(16, 16, 1)), profiled(1, grid=(16, 8, 1)))[0] == [2]


def test_only_chosen_kernels_are_matched() -> None:
    capture = capture_of(launch(1), launch(2, name="other"))
    values, lines = matched(capture, profiled(1), profiled(2, kernel="other"), choice=Choice(kernels=("other",)))
    assert values == [None, 2]
    assert len(lines) == 1


def test_samples_of_the_capture_stay() -> None:
    capture = with_report_counters(capture_of(launch(measurements=OWN)), [profiled()], PATH, EVERYTHING, print)
    found = capture.launches[0].kernel.measurements
    assert found is not None and found.samples == SAMPLES and found.not_counted == ""
    assert found.counters == profiled().counters
    assert redacted(capture).launches[0].kernel.measurements == found


def test_units_without_a_metric_are_named_with_the_option_for_them() -> None:
    metrics = {name: 1.0 for name in DEFAULT_METRICS if name not in (counters.ALU, counters.DRAM, counters.FP16)}
    (line,) = matched(capture_of(launch()), profiled(counters=CountersRecord(metrics=metrics, passes=1)))[1]
    assert f"--metrics {counters.ALU},{counters.DRAM}" in line and line.endswith(counters.DRAM)


def test_without_a_metric_of_any_unit_the_error_has_the_option_for_all() -> None:
    record = CountersRecord(metrics={counters.TIME_NS: 1.0, counters.SM_CYCLES: 1.0}, passes=1)
    error = refused(capture_of(launch()), profiled(counters=record))
    words = shlex.split(error.hint)
    assert words[words.index("--metrics") + 1] == ",".join(DEFAULT_METRICS)
    assert words[words.index("--kernel-name") + 1] == NAME


def test_a_report_of_other_kernels_is_an_error_that_lists_them() -> None:
    error = refused(capture_of(launch()), profiled(kernel="add"), profiled(kernel="mul\x1b"), profiled(kernel="add"))
    assert error.what.endswith(f"for {NAME}: the report has only launches of add, mul ")


def test_of_many_kernels_some_are_listed() -> None:
    grids = [(number, 1, 1) for number in range(1, 31)]
    values, lines = matched(
        capture_of(*(launch(grid=grid) for grid in grids)), *(profiled(grid=grid) for grid in grids)
    )
    assert values == [1] * 30
    assert len(lines) == 21 and lines[-1].startswith("the counters of 10 more ")
