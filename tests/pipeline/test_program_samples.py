"""Samples of a program reach its capture and the report: all kernels, with what their warps wait for."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from programs.child import REPO

from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.analysis.program_samples import program_samples
from kprof_inject.capture.measurements import SampledInstruction
from kprof_inject.capture.program_samples import ProgramSamplesRecord, SampledKernel
from kprof_inject.capture.reader import read_capture
from kprof_inject.cli.capture_lines import print_json
from kprof_inject.errors import KprofError
from kprof_inject.pipeline import program_samples as pipeline
from kprof_inject.report.explanation import explanation
from kprof_inject.report.html.stalls import sampled_program
from kprof_inject.report.terminal.screens import answers_text
from kprof_inject.timeline.timeline import decode_launch
from kprof_inject.workspace import Workspace

NOT_PERMITTED = "the program is not sampled: this user may not read hardware counters; doctor says how to permit it"
CAPTURE = REPO / "tests" / "captures" / "matmul-three-stages"


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    shutil.copytree(CAPTURE, tmp_path / "capture")
    return tmp_path / "capture"


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace.begin(tmp_path / "workspace")


def reports_of(capture: Path) -> list[LaunchAnalysis]:
    return [LaunchAnalysis.of(decode_launch(launch)) for launch in read_capture(capture).launches]


def save_two_processes(workspace: Workspace, capture: Path) -> None:
    """Save a process of torch's kernel alone, and one of the recorded kernel, too, which waits where it begins."""
    launch = read_capture(capture).launches[0]
    record = launch.kernel.measurements
    assert record is not None and record.samples is not None
    reasons: dict[str, int] = {}
    for instruction in record.samples.instructions:
        for name, count in instruction.samples.items():
            reasons[name] = reasons.get(name, 0) + count
    own = SampledKernel(
        name=launch.kernel.name,
        variant=launch.kernel.program_variant,
        reasons=reasons,
        instructions=record.samples.instructions,
    )
    total = sum(count for name, count in reasons.items() if not name.endswith("_not_issued"))
    other = SampledKernel(name="at::native::fill<float>", reasons={"wait": total, "wait_not_issued": 10 * total})
    second = SampledKernel(name="at::native::fill<float>", reasons={"lg_throttle": 2 * total})
    for process, kernels in (("1", (own, other)), ("2", (second,))):
        workspace.write_program_samples(
            process, ProgramSamplesRecord(period_cycles=1 << 16, processes=1, dropped=3, kernels=kernels)
        )
    pipeline.save_program_samples(workspace, capture)


def test_kernels_of_all_processes_share_the_sms_time(workspace: Workspace, capture: Path) -> None:
    save_two_processes(workspace, capture)
    reports = reports_of(capture)
    found = program_samples(reports)
    assert found is not None
    assert [(kernel.name, kernel.share.value) for kernel in found.kernels] == [
        ("at::native::fill<float>", 0.75),
        (reports[0].launch.kernel.name, 0.25),
    ]
    assert found.dropped == 6
    assert [reason for reason, _ in found.kernels[0].waiting] == ["lg_throttle", "wait"]
    stalls, measured = found.kernels[1].stalls, reports[0].stalls
    assert stalls is not None and measured is not None
    assert stalls.lines == measured.lines
    assert found.kernels[0].stalls is None


def test_the_report_and_json_show_them(workspace: Workspace, capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_two_processes(workspace, capture)
    reports = reports_of(capture)
    lines = answers_text(reports, 120).splitlines()
    begin = next(number for number, line in enumerate(lines) if "sampled kernel" in line)
    assert "75.0 %" in lines[begin + 1] and "lg_throttle 66.7 %, wait 33.3 %" in lines[begin + 1]
    assert "25.0 %" in lines[begin + 2] and reports[0].launch.kernel.name in lines[begin + 2]
    assert "dropped 6 of" in lines[begin + 3]
    print_json(reports[:1])
    (printed,) = json.loads(capsys.readouterr().out)
    samples = printed["program"]["samples"]
    assert samples["share"] == 0.25
    assert not any(name.endswith("_not_issued") for name in samples["reasons"])


def test_the_page_has_them(workspace: Workspace, capture: Path) -> None:
    save_two_processes(workspace, capture)
    sampled = sampled_program(reports_of(capture))
    assert sampled is not None
    assert [(kernel.name, kernel.share) for kernel in sampled.kernels] == [
        ("at::native::fill<float>", 0.75),
        ("matmul_kernel", 0.25),
    ]
    assert {share.reason for share in sampled.kernels[0].shares} == {"lg_throttle", "wait"}
    assert sampled.left_out == 0


def test_explain_has_them(workspace: Workspace, capture: Path) -> None:
    save_two_processes(workspace, capture)
    first, second = explanation(reports_of(capture)).sampled_kernels
    assert (first.name, first.share, second.share) == ("at::native::fill<float>", 0.75, 0.25)
    assert [wait.reason for wait in first.waits] == ["lg_throttle", "wait"]


def test_instructions_of_several_processes_are_added(workspace: Workspace, capture: Path) -> None:
    kernel = SampledKernel(
        name="k", variant="v", reasons={"wait": 5}, instructions=(SampledInstruction(16, {"wait": 5}),)
    )
    for process in ("1", "2"):
        workspace.write_program_samples(
            process, ProgramSamplesRecord(period_cycles=1 << 16, processes=1, dropped=0, kernels=(kernel,))
        )
    pipeline.save_program_samples(workspace, capture)
    record = json.loads((capture / "program_samples.json").read_text())
    assert record["processes"] == 2
    assert record["kernels"] == [
        {"name": "k", "variant": "v", "reasons": {"wait": 10}, "instructions": [[16, {"wait": 10}]]}
    ]


def test_a_file_of_another_run_is_refused(workspace: Workspace, capture: Path) -> None:
    save_two_processes(workspace, capture)
    path = capture / "program_samples.json"
    path.write_bytes(path.read_bytes().replace(b'"dropped":6', b'"dropped":0'))
    with pytest.raises(KprofError, match="checksum does not match"):
        program_samples(reports_of(capture))


def test_without_samples_nothing_is_saved_or_shown(workspace: Workspace, capture: Path) -> None:
    pipeline.save_program_samples(workspace, capture)
    assert not (capture / "program_samples.json").exists()
    assert program_samples(reports_of(capture)) is None


@pytest.mark.parametrize(
    ("has_module", "permitted", "said"),
    [
        (False, False, ["the program is not sampled: this machine has no NVIDIA driver"]),
        (
            True,
            False,
            [NOT_PERMITTED],
        ),
        (True, True, []),
    ],
)
def test_what_does_not_permit_it_is_said(
    monkeypatch: pytest.MonkeyPatch, has_module: bool, permitted: bool, said: list[str]
) -> None:
    monkeypatch.setattr(pipeline, "has_nvidia_module", lambda: has_module)
    monkeypatch.setattr(pipeline, "is_permitted", lambda: permitted)
    messages: list[str] = []
    assert pipeline.can_sample(messages.append) == (not said)
    assert messages == said


def test_processes_that_were_not_sampled_are_reported_once(workspace: Workspace) -> None:
    messages: list[str] = []
    pipeline.say_not_sampled(workspace, messages.append)
    assert messages == ["the program was not sampled: no process of it loaded a kernel and then ended on its own"]
    for process in ("1", "2"):
        record = ProgramSamplesRecord(
            period_cycles=1 << 16, processes=1, dropped=0, kernels=(), not_sampled=("it is busy",)
        )
        workspace.write_program_samples(process, record)
    messages.clear()
    pipeline.say_not_sampled(workspace, messages.append)
    assert messages == ["a process of the program was not sampled to its end: it is busy"]
