"""The GPU's work of a program, added up from traces of torch.profiler."""

from __future__ import annotations

import gzip
from pathlib import Path

from several_kernels import three_kernels
from torch_traces import Kernel, kineto_text

from kprof_inject.analysis.program import Report
from kprof_inject.capture.capture_files import FILES, read_optional
from kprof_inject.capture.measurements import GpuWork, GpuWorkRecord
from kprof_inject.capture.reader import read_capture
from kprof_inject.pipeline.torch_traces import save_gpu_work
from kprof_inject.timeline.timeline import decode_launch


def event(category: str, name: str, dur: str, correlation: int) -> str:
    return (
        f'{{"ph": "X", "cat": "{category}", "name": "{name}", "pid": 0, "tid": 7, "ts": 5.000, "dur": {dur}, '
        f'"args": {{"correlation": {correlation}, "bytes": 4}}}},'
    )


MORE = (
    event("gpu_memcpy", "Memcpy HtoD", "2.500", 70)
    + event("gpu_memset", "Memset (Device)", "1", 71)
    + event("cuda_runtime", "cudaMemcpyAsync", "99", 70)
    + event("cuda_runtime", "cudaMemsetAsync", "99", 71)
    # Through the driver, as ours are.
    + event("gpu_memcpy", "Memcpy DtoH", "500", 72)
    + event("cuda_driver", "cuLaunchKernel", "1", 72)
    # Kernels begin with their number times 10 µs.
    + event("user_annotation", "kprof_benchmark", "40", 0).replace('"ts": 5.000', '"ts": 500.000')
    + event("user_annotation", "kprof_benchmark", "10", 0).replace('"ts": 5.000', '"ts": 510.000')
    + event("user_annotation", "others", "99999", 0)
)


def kernel(name: str, took_ns: int, number: int) -> Kernel:
    begin_ns = 1_763_900_000_000_000_000 + 10_000 * number
    return Kernel(name, begin_ns, begin_ns + took_ns, number)


def save(path: Path, *kernels: Kernel) -> Path:
    path.write_bytes(gzip.compress(kineto_text(kernels, more=MORE).encode()))
    return path


def test_the_work_of_all_processes_is_added_up(tmp_path: Path) -> None:
    three_kernels(tmp_path / "capture")
    said: list[str] = []
    traces = [
        save(
            tmp_path / "one.json.gz",
            kernel("gemm", 4_000, 1),
            kernel("gemm", 6_000, 2),
            kernel("short", 500, 3),
            kernel("gemm", 900, 50),
            kernel("gemm", 900, 53),
        ),
        save(tmp_path / "two.json.gz", kernel("gemm", 1_000, 1), kernel("kprof_hold", 100_000, 2)),
    ]
    save_gpu_work(tmp_path / "capture", traces, said.append)
    record = read_optional(tmp_path / "capture", GpuWorkRecord)
    assert record is not None and record.processes == 2 and not said
    assert record.work == (
        GpuWork(name="gemm", kind="kernel", count=3, total_ns=11_000.0),
        GpuWork(name="Memcpy HtoD", kind="copy", count=2, total_ns=5_000.0),
        GpuWork(name="Memset (Device)", kind="fill", count=2, total_ns=2_000.0),
        GpuWork(name="short", kind="kernel", count=1, total_ns=500.0),
    )


def test_shares_are_of_all_that_the_gpu_did(tmp_path: Path) -> None:
    three_kernels(tmp_path / "capture")
    alone = {one.name: one for one in report_on(tmp_path / "capture").program.kernels}
    whole_ns = alone["short"].whole_ns / (alone["short"].share or 0)
    save_gpu_work(tmp_path / "capture", [save(tmp_path / "one.json.gz", kernel("gemm", int(whole_ns), 1))], print)
    report = report_on(tmp_path / "capture")
    assert [work.name for work in report.program.others] == ["gemm", "Memcpy HtoD", "Memset (Device)"]
    found = {one.name: one for one in report.program.kernels}
    other_ns = int(whole_ns) + 2_500 + 1_000
    for name, one in found.items():
        assert one.share is not None and abs(one.share - alone[name].whole_ns / (whole_ns + other_ns)) < 1e-9


def report_on(folder: Path) -> Report:
    launches = read_capture(folder).launches
    return Report.of(map(decode_launch, launches), (), launches)


def test_a_trace_that_cannot_be_read_is_no_obstacle(tmp_path: Path) -> None:
    three_kernels(tmp_path / "capture")
    (tmp_path / "cut.json.gz").write_bytes(gzip.compress(b'{"traceEvents": [{"cat": "ker'))
    (tmp_path / "text.json.gz").write_bytes(b"no gzip")
    said: list[str] = []
    save_gpu_work(tmp_path / "capture", [tmp_path / "cut.json.gz", tmp_path / "text.json.gz"], said.append)
    assert len(said) == 2 and said[0].startswith("cannot add up the GPU's work in cut.json.gz: ")
    save_gpu_work(tmp_path / "capture", [], said.append)
    assert not (tmp_path / "capture" / FILES[GpuWorkRecord]).exists() and len(said) == 2
