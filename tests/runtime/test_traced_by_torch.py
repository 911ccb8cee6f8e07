"""The trace of ``torch.profiler`` that a process makes of itself, and the program's own beside it."""

from __future__ import annotations

import gzip
import json
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from command_line import CommandLine
from fake_runs import REAL_TORCH
from snapshots import check

from kprof_inject.capture.measurements import BENCHMARK_SPAN
from kprof_inject.runtime.launch import triton_wrapping
from kprof_inject.runtime.launch.triton_wrapping import benchmarking
from kprof_inject.runtime.process_report import ProcessReport, read_reports
from kprof_inject.runtime.torch_tracer import TorchTracer

PROGRAM = """
from fake_gpu.program import gpu  # isort: skip  (before Triton)
import torch
from fake_gpu.kernels import scale

x = torch.arange(1, 17, dtype=torch.float32)
for n in range(3):
    scale[(16,)](x, torch.zeros_like(x), n)
    torch.cumsum(x, 0)
"""


@pytest.fixture
def without_inductor(monkeypatch: pytest.MonkeyPatch) -> None:
    """The profiler asks Inductor for one setting, and would import it for that, which takes seconds."""
    inductor, config = ModuleType("torch._inductor"), ModuleType("torch._inductor.config")
    inductor.config, config.triton = config, SimpleNamespace(cudagraphs=False)  # type: ignore[attr-defined]
    for module in (inductor, config):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(torch, "_inductor", inductor, raising=False)


@pytest.fixture
def trace(tmp_path: Path, without_inductor: None) -> Iterator[TorchTracer]:
    made = torch.autograd.profiler.profile.__init__
    trace = TorchTracer(tmp_path, ProcessReport(str(tmp_path)))
    yield trace
    trace.finish()
    triton_wrapping._spans.clear()
    torch.autograd.profiler.profile.__init__ = made  # type: ignore[method-assign]


def events_in(folder: Path) -> list[dict[str, Any]]:
    (path,) = folder.glob("torch_trace.*.json.gz")
    events: list[dict[str, Any]] = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    return events


def names_in(folder: Path) -> set[str]:
    (path,) = folder.glob("torch_trace.*.json.gz")
    assert path.name == f"torch_trace.{os.getpid()}.json.gz"
    return {event["name"] for event in events_in(folder)}


def test_it_ends_at_the_programs_own(trace: TorchTracer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace.start()
    trace.start()
    torch.cumsum(torch.ones(3), 0)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as own:
        torch.cumprod(torch.ones(3), 0)
    assert "aten::cumprod" in {event.key for event in own.key_averages()}
    trace.finish()
    assert "aten::cumsum" in names_in(tmp_path)
    assert "aten::cumprod" not in names_in(tmp_path)
    check("runtime/traced_by_torch", capsys.readouterr().err, "its own profiler")


def test_what_an_autotuner_does_is_marked_and_its_ops_are_left_out(trace: TorchTracer, tmp_path: Path) -> None:
    """With ops in it, the autotuner would measure the host."""

    def tune() -> None:
        benchmarking(torch.cumsum)(torch.ones(3), 0)
        torch.flip(torch.ones(3), (0,))

    trace.start()
    benchmarking(tune)()
    torch.cumprod(torch.ones(3), 0)
    trace.finish()
    named = {event["name"]: event for event in events_in(tmp_path)}
    span = named[BENCHMARK_SPAN]
    assert span["cat"] == "user_annotation"
    assert span["ts"] + span["dur"] <= named["aten::cumprod"]["ts"]
    assert not {"aten::cumsum", "aten::flip"} & named.keys()


def test_another_thread_starts_none(trace: TorchTracer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    thread = threading.Thread(target=trace.start)
    thread.start()
    thread.join()
    trace.finish()
    assert not list(tmp_path.glob("*torch_trace*"))
    assert "the main thread does not launch the first kernel" in capsys.readouterr().err


def test_a_failure_is_reported_and_no_more(trace: TorchTracer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.profiler, "supported_activities")
    trace.start()
    trace.finish()
    assert read_reports(tmp_path).errors[0].startswith("starting torch.profiler: AttributeError")


def test_profile_traces_the_run_with_records(tmp_path: Path) -> None:
    """There are no kernels in it without a GPU: it cannot be merged, which is said behind the report."""
    (tmp_path / "program.py").write_text(PROGRAM)
    ended = CommandLine(tmp_path, REAL_TORCH)("profile", "--torch-profiler", "--replay", "none", "--", "program.py")
    assert ended.exit_code == 1
    assert "scale #2" in ended.stdout
    (path,) = (tmp_path / "kprof_out/captures/001").glob("torch_trace.*.json.gz")
    assert f"{path.relative_to(tmp_path)}" in ended.stderr.splitlines()[-2]
    names = [event["name"] for event in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]]
    # It begins when the first kernel is compiled.
    assert names.count("aten::cumsum") == 3
    assert names.count("aten::zeros_like") == 2
