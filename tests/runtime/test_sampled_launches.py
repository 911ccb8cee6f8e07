"""A sample of a launch's CTAs records, on the fake GPU: what is kept of it is that part of the whole launch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_gpu.captured import launches_in
from fake_gpu.device import FakeDevice
from fake_runs import FakeRuns, states_in
from msgspec.structs import replace

from kprof_inject.analysis.summary import LaunchSummary, summarise
from kprof_inject.capture.buffer_layouts import rows_of
from kprof_inject.capture.cta_samples import EVERY_CTA, CtaChoice
from kprof_inject.capture.mode import AUTO_BUFFER, Mode
from kprof_inject.capture.model import Launch
from kprof_inject.runtime.devices.cuda_driver import resources_of
from kprof_inject.runtime.launch import planned_kernel
from kprof_inject.runtime.versions import installed_version
from kprof_inject.timeline.timeline import decode_launch
from kprof_inject.workspace import Workspace

pytestmark = pytest.mark.skipif(installed_version().offset_bits is None, reason="all CTAs record")

CTAS, SHIFT = 1000, 3


def launched(runs: FakeRuns, folder: Path, *ctas: int, n: int = 1, **settings: object) -> list[Launch]:
    """Launch grids of so many CTAs; return what is saved."""
    with runs.here(capture=str(folder / "capture"), **settings) as here:
        for count in ctas:
            here.launch(n, ctas=count)
    return launches_in(folder / "capture")


@pytest.mark.triton
def test_a_sample_is_a_part_of_the_whole_launch(planned_once: FakeRuns, tmp_path: Path) -> None:
    (launch,) = launched(planned_once, tmp_path / "whole", CTAS, n=2, ctas=EVERY_CTA)
    whole = decode_launch(launch)
    (launch,) = launched(planned_once, tmp_path / "sampled", CTAS, n=2, ctas=CtaChoice(SHIFT))
    sampled = decode_launch(launch)
    assert launch.sample is not None and launch.sample.shift == SHIFT
    recorded = np.flatnonzero(rows_of(launch.sample, np.arange(CTAS)) >= 0)
    assert sorted(sampled.ctas["cta"].tolist()) == recorded.tolist()
    columns = ["cta", "sm", "warp", "scope", "start_cycles", "end_cycles"]
    kept = whole.scopes[np.isin(whole.scopes["cta"], recorded)]
    assert sampled.scopes[columns].tolist() == kept[columns].tolist()
    # Where all CTAs ran is known, and when they ended.
    ended = ["cta", "sm", "pre_final_ns"]
    assert np.sort(sampled.all_ctas, order="cta")[ended].tolist() == whole.ctas[ended].tolist()
    assert (sampled.ctas_never_ran, sampled.ctas_damaged, sampled.records_lost) == (0, 0, 0)
    of_whole, of_sample = summarise(whole), summarise(sampled)
    assert facts(of_sample) == facts(of_whole)
    assert of_sample.waves is not None and of_whole.waves is not None
    assert of_sample.waves.last.duration_ns == pytest.approx(of_whole.waves.last.duration_ns, rel=0.01)
    assert (of_sample.recorded_ctas, of_whole.recorded_ctas) == (len(recorded), CTAS)
    assert shares(of_sample) == pytest.approx(shares(of_whole), abs=0.01)


def shares(summary: LaunchSummary) -> list[float]:
    return [scope.share or 0.0 for scope in summary.scopes]


def facts(summary: LaunchSummary) -> tuple[object, ...]:
    waves = summary.waves
    assert waves is not None and summary.ending is not None
    # Half of the other CTAs' begins are estimated, from which another order follows.
    ending = replace(summary.ending, longest_first_share=0.0)
    return summary.ctas, summary.duration_ns, ending, waves.fill, waves.last.ctas, waves.tail


@pytest.mark.parametrize("launches", ["all", "first", "5:"])
def test_every_launch_filter_takes_samples(planned_once: FakeRuns, tmp_path: Path, launches: str) -> None:
    found = launched(planned_once, tmp_path, 1, 2, 7, 64, 200, 33, ctas=CtaChoice(1), launches=launches)
    assert found
    for launch in found:
        timeline = decode_launch(launch)
        assert (len(timeline.all_ctas), timeline.ctas_never_ran) == (launch.grid[0], 0)


@pytest.mark.triton
def test_buffers_are_cleared_of_other_grids(planned_once: FakeRuns, tmp_path: Path) -> None:
    """The words of ends only rise, and where one launch has rows, another has ends."""
    (launch,) = launched(
        planned_once, tmp_path, 900, 900, 900, 1033, 1033, 1033, 1033, 700, 700, 700, 700, 700, 700, ctas=CtaChoice(1)
    )
    timeline = decode_launch(launch)
    assert (launch.grid[0], len(timeline.all_ctas), timeline.ctas_damaged, timeline.ctas_never_ran) == (700, 700, 0, 0)
    assert timeline.all_ctas["pre_final_ns"].max() <= timeline.last_ns < timeline.first_ns + 100_000


def test_a_buffer_that_cannot_be_cleared_stops_no_program(
    planned_once: FakeRuns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cleared = []

    def fail(*_: object) -> None:
        cleared.append(1)
        raise ValueError("a fault")

    monkeypatch.setattr(FakeDevice, "clear", fail)
    with planned_once.here(ctas=CtaChoice(1), capture=str(tmp_path / "capture")) as here:
        for count in (900, 900, 900, 1033, 1033, 1033, 1033, 700, 700, 700, 700, 700, 700):
            here.launch(1, ctas=count)
    assert cleared and len(here.ran()) == 13


def test_each_kind_of_build_has_a_name(planned_once: FakeRuns, tmp_path: Path) -> None:
    found = launched(planned_once, tmp_path, 2048, 16, 2048, ctas=CtaChoice(), launches="all")
    program = found[0].kernel.program_variant
    assert [launch.kernel.variant for launch in found] == [program, f"{program}-shared-8192", program]
    assert [launch.sample.shift if launch.sample else 0 for launch in found] == [3, 0, 3]


def test_first_launch_decides_per_sm(planned_once: FakeRuns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planned_kernel, "device_properties", lambda target: {"multiprocessor_count": 10})
    found = launched(planned_once, tmp_path, 400, 100, 1600, ctas=CtaChoice(per_sm=4), launches="all")
    assert [launch.sample.shift if launch.sample else 0 for launch in found] == [3, 3, 3]
    assert [len(decode_launch(launch).all_ctas) for launch in found] == [400, 100, 1600]


@pytest.mark.triton
@pytest.mark.parametrize(
    ("spills", "samples"),
    [((0, 3, 0), True), ((0, 20, 4), False), ((90, 120, 96), False), ((90, 120, 118), True), ((None, 20, 0), True)],
)
def test_no_sample_records_if_a_second_body_spills(
    planned_once: FakeRuns,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    spills: tuple[int | None, int, int],
    samples: bool,
) -> None:
    """``spills`` are those without records, with two bodies, and with records in all CTAs."""
    original, clean_run = resources_of, Workspace.clean_run

    def found(kernel: Any) -> dict[str, Any]:
        return {**original(kernel), "spills": spills[1] if "$kprof_with" in kernel.asm["ptx"] else spills[2]}

    monkeypatch.setattr(planned_kernel, "resources_of", found)
    monkeypatch.setattr(Workspace, "clean_run", lambda *args: replace(clean_run(*args), spills=spills[0]))
    (launch,) = launched(planned_once, tmp_path, 64, n=2, ctas=CtaChoice(1))
    assert (launch.sample is not None) == samples
    if not samples:
        reason = f"with a second body, its threads spill {spills[1]} words instead of {spills[0]}"
        assert f"all its CTAs record: {reason}" in [
            said for _, _, said in states_in(planned_once.folder / "here" / "reports")
        ]


def test_a_sample_records_where_all_ctas_cannot(
    planned_once: FakeRuns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever happens when the build for the comparison is made."""
    original, compiled = resources_of, planned_kernel.PlannedKernel._compiled

    def fail(self: Any, mode: Any, ctas: CtaChoice, *others: Any) -> Any:
        if ctas == EVERY_CTA:
            raise RuntimeError("out of resource")
        return compiled(self, mode, ctas, *others)

    monkeypatch.setattr(planned_kernel, "resources_of", lambda kernel: {**original(kernel), "spills": 20})
    monkeypatch.setattr(planned_kernel.PlannedKernel, "_compiled", fail)
    (launch,) = launched(planned_once, tmp_path, 64, n=2, ctas=CtaChoice(1))
    assert launch.sample is not None


def test_a_sample_needs_a_smaller_buffer(planned_once: FakeRuns, tmp_path: Path) -> None:
    """In as much memory, a CTA of the sample has room for more records."""
    (whole,) = launched(planned_once, tmp_path / "whole", CTAS, ctas=EVERY_CTA, max_bytes=1 << 20)
    (sampled,) = launched(planned_once, tmp_path / "sampled", CTAS, ctas=CtaChoice(SHIFT), max_bytes=1 << 20)
    assert sampled.kernel.stride_bytes >= 2 * whole.kernel.stride_bytes


@pytest.mark.triton
@pytest.mark.parametrize("choice", [EVERY_CTA, CtaChoice(), CtaChoice(1)])
def test_where_records_are_kept(planned_once: FakeRuns, tmp_path: Path, choice: CtaChoice) -> None:
    """In shared memory only if all CTAs of a large grid record."""
    with planned_once.here(
        mode=Mode(AUTO_BUFFER), ctas=choice, launches="all", capture=str(tmp_path / "capture")
    ) as here:
        for count in (1023, 1024):
            here.launch(1, ctas=count)
    small, large = launches_in(tmp_path / "capture")
    assert (small.kernel.mode.buffer, large.kernel.mode.buffer) == (
        "global",
        "shared" if choice == EVERY_CTA else "global",
    )
    assert [len(decode_launch(launch).all_ctas) for launch in (small, large)] == [1023, 1024]


def test_big_buffers_have_small_rings(planned_once: FakeRuns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only if the size is left to us: a program may need the memory."""

    def row_bytes(folder: str, mode: Mode) -> int:
        with planned_once.here(mode=mode, ctas=EVERY_CTA, capture=str(tmp_path / folder)) as here:
            here.launch_power(3)
        (launch,) = launches_in(tmp_path / folder)
        return launch.kernel.stride_bytes

    usual = row_bytes("usual", Mode(AUTO_BUFFER))
    monkeypatch.setattr(planned_kernel, "_MAX_AUTO_BYTES", 16 * usual // 3)
    assert usual / 4 <= row_bytes("limited", Mode(AUTO_BUFFER)) <= usual / 3
    for number, mode in enumerate((Mode("global"), Mode(AUTO_BUFFER, 1 << 16))):
        assert row_bytes(str(number), mode) >= usual - 256
