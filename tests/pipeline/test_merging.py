"""Launches in a trace of torch.profiler, judged by Perfetto's trace processor."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from buffers import Cta, JsonWriter, Scope, buffer_words, end, kernel_json, launch_json, start
from replacing import replace
from several_kernels import three_kernels
from snapshots import check
from torch_traces import BASE_NS, Kernel, kineto_text
from trace_processor.processor import query_many

from kprof_inject.analysis.program import Report
from kprof_inject.capture.capture_files import FILES, read_optional
from kprof_inject.capture.measurements import BENCHMARK_SPAN, GpuWork, GpuWorkRecord
from kprof_inject.capture.reader import read_capture
from kprof_inject.errors import KprofError
from kprof_inject.pipeline.torch_traces import merge, save_gpu_work
from kprof_inject.timeline.timeline import Timeline, decode_launch

UNIX_NS = 1_764_000_000_000_000_000
TIMER_NS = 5_000_000_000
"""What each device's clock shows at ``UNIX_NS``."""

INDUCTOR = "triton_poi_fused_add_0"
STEP = ("matmul_kernel", "softmax_kernel", INDUCTOR)
CTAS = 6
BETWEEN_NS = 80_000
CALL_NS = 20_000
"""How long before it begins a kernel is called."""


def begin_ns(step: int, number: int) -> int:
    """When a kernel of a step begins, in Unix time."""
    return UNIX_NS + (len(STEP) * step + number) * BETWEEN_NS + 1_700 * step * number


def length_ns(number: int) -> int:
    return 12_000 + 3_000 * number


def save_steps(
    folder: Path, steps: Sequence[int], *, pid: int = 7, rank: int | None = None, device: int = 0, late_ns: int = 0
) -> list[Timeline]:
    """A process whose kernels ran in these steps, each ``late_ns`` later. Its CTAs, of two warps, begin one after the
    other, 600 ns after the kernel at the earliest."""
    process = {"pid": pid, "rank": rank, "host": "a", "boot_id": "b", "device_names": ["H200"] * 2}
    writer = JsonWriter(folder / f"process-{pid}", process)
    for number, name in enumerate(STEP):
        for step in steps:
            at_ns = TIMER_NS + begin_ns(step, number) + late_ns - UNIX_NS + 600
            until_ns = at_ns + length_ns(number) - 1_100
            ctas = []
            for cta in range(CTAS):
                cta_ns = at_ns + 150 * cta
                cycles = until_ns - 700 - cta_ns
                ctas.append(Cta([[start(0, 30), end(0, cycles)]] * 2, cta % 4, cta_ns, until_ns - 500, until_ns))
            words = buffer_words(ctas, slots=4)
            kernel = kernel_json([Scope("func")], words, 2, name=name)
            kernel["metadata"]["warp_size"] = 32
            writer.add_kernel(f"v{number}", kernel, "module {}\n", {})
            called_ns = begin_ns(step, number) + late_ns - CALL_NS
            launch = launch_json(words, variant=f"v{number}", index=step, host_ns=called_ns)
            launch |= {"device": device, "host_end_ns": called_ns + 15_000}
            writer.add_launch(launch, memoryview(words.tobytes()))
    reading = {"device": device, "host_ns": UNIX_NS, "device_ns": TIMER_NS, "error_ns": 4_000}
    writer.add_clock_reading(reading)
    writer.finish(launches={f"v{number}": len(steps) for number in range(len(STEP))})
    return [decode_launch(launch) for launch in read_capture(folder).launches]


def kernels(steps: Sequence[int], *, device: int = 0, late_ns: int = 0) -> list[Kernel]:
    """The same as a trace has them, with one of ours between that nobody captured."""
    found = []
    for step in steps:
        for number, name in enumerate((*STEP, "at::native::vectorized_elementwise_kernel")):
            grid, threads = ((CTAS, 1, 1), 64) if name in STEP else ((9, 1, 1), 128)
            at_ns = begin_ns(step, number) + late_ns if name in STEP else begin_ns(step, 0) + 30_000
            call_ns = (at_ns - CALL_NS + 5_000, at_ns - CALL_NS + 8_000)
            correlation = 100 * (step + 1) + number
            ended_ns = at_ns + (length_ns(number) if name in STEP else 4_000)
            found.append(Kernel(name, at_ns, ended_ns, correlation, grid, threads, device, 7, call_ns))
    return found


def outside_sql(error_ns: int) -> str:
    """Of our slices, by their kernel: how many there are, and how many lie outside of the kernel's bar."""
    return (
        "SELECT bar.name AS name, bar.correlation AS correlation, count(*) AS slices,"
        f" sum(ours.ts < bar.ts - {error_ns} OR ours.ts + ours.dur > bar.ts + bar.dur + {error_ns}) AS outside"
        " FROM (SELECT name, ts, dur, EXTRACT_ARG(arg_set_id, 'args.correlation') AS correlation FROM slice"
        " WHERE category = 'kernel') bar"
        " JOIN (SELECT ts, dur, EXTRACT_ARG(arg_set_id, 'args.correlation') AS correlation FROM slice"
        " WHERE category IN ('launch', 'func')) ours USING (correlation) GROUP BY bar.name, correlation"
        " ORDER BY correlation"
    )


ARROWS = (
    "SELECT sent.name AS sent, came.name AS came, EXTRACT_ARG(sent.arg_set_id, 'args.correlation')"
    " = EXTRACT_ARG(came.arg_set_id, 'args.correlation') AS same"
    " FROM flow JOIN slice sent ON sent.id = slice_out JOIN slice came ON came.id = slice_in"
    " WHERE came.category = 'launch'"
)
CALLS = (
    "SELECT count(*) AS arrows FROM flow JOIN slice sent ON sent.id = slice_out JOIN slice came ON came.id = slice_in"
    " WHERE sent.category = 'cuda_driver' AND came.category = 'kernel'"
    " AND EXTRACT_ARG(sent.arg_set_id, 'args.correlation') = EXTRACT_ARG(came.arg_set_id, 'args.correlation')"
)
FAULTS = "SELECT name, value FROM stats WHERE severity = 'error' AND value > 0"


def traced(folder: Path, known: Sequence[Kernel], pid: int = 7, **changes: Any) -> Path:
    path = folder / f"torch_trace.{pid}.json.gz"
    path.write_bytes(gzip.compress(kineto_text(known, pid=pid, **changes).encode()))
    return path


def merged(
    folder: Path, timelines: Sequence[Timeline], known: Sequence[Kernel], **changes: Any
) -> tuple[Path, list[str]]:
    """The merged trace, unpacked, and the lines."""
    said = list(merge([traced(folder, known, **changes)], timelines, folder, None))
    path = folder / "merged.json"
    path.write_bytes(gzip.decompress((folder / "torch_trace.kprof.json.gz").read_bytes()))
    return path, said


def test_every_cta_lies_in_its_kernels_bar(tmp_path: Path) -> None:
    timelines = save_steps(tmp_path / "capture", range(3))
    path, said = merged(tmp_path, timelines, kernels(range(3)))
    facts = json.loads(path.read_text())["kprof_inject"]
    error_ns = facts["launches"][0]["error_ns"]
    assert f"torch_trace.kprof.json.gz: 9 launches, within ± {error_ns} ns, " in said[0] and len(said) == 1
    assert 0 < error_ns < 700
    faults, slices, arrows, calls = query_many(path, [FAULTS, outside_sql(error_ns), ARROWS, CALLS])
    assert faults == []
    expected = [(name, 100 * (step + 1) + at) for step in range(3) for at, name in enumerate(STEP)]
    # The launch, and the function of each warp.
    assert [(row["name"], row["correlation"], row["slices"], row["outside"]) for row in slices] == [
        (name, correlation, 1 + 2 * CTAS, 0) for name, correlation in expected
    ]
    assert sorted(row["sent"] for row in arrows) == sorted(row["came"] for row in arrows) == sorted(STEP * 3)
    assert all(row["same"] for row in arrows)
    assert calls == [{"arrows": 12}]


def test_the_events_of_the_trace_stay_as_they_were_byte_for_byte(tmp_path: Path) -> None:
    timelines = save_steps(tmp_path / "capture", [0])
    odd = (
        '\n  {"ph":"X","cat":"cpu_op","name":"caf\\u00e9 \\"x\\"","pid":7,"tid":7,"ts":3e3,"dur":0.10000000000000001},'
    )
    before = kineto_text(kernels([0]), more=odd)
    after = merged(tmp_path, timelines, kernels([0]), more=odd)[0].read_text()
    events = before[before.index('"traceEvents": [') + 15 : before.index('\n  ],\n  "traceName')]
    assert f'"traceEvents":{events},\n' in after
    own = json.loads(before)
    assert json.loads(after).keys() == {*own, "kprof_inject"}
    assert json.loads(after)["traceEvents"][: len(own["traceEvents"])] == own["traceEvents"]


def test_kernels_of_an_autotuners_benchmarks_are_no_launches(tmp_path: Path) -> None:
    known = kernels(range(3))
    begin_us = (begin_ns(0, 0) - 10_000 - BASE_NS) / 1000
    span = {"ph": "X", "cat": "user_annotation", "name": BENCHMARK_SPAN, "ts": begin_us, "dur": 3 * BETWEEN_NS / 1000}
    timelines = save_steps(tmp_path / "capture", range(1, 3))
    path, _ = merged(tmp_path, timelines, known, more=f"\n{json.dumps(span)},")
    facts = json.loads(path.read_text())["kprof_inject"]["launches"]
    assert sorted(one["correlation"] for one in facts) == [200, 201, 202, 300, 301, 302]


def test_variants_of_one_kernel_are_matched_if_all_their_launches_are_captured(tmp_path: Path) -> None:
    timelines = []
    for one in save_steps(tmp_path / "capture", range(3)):
        variant, count = ("other", 1) if one.launch.index == 1 else (one.launch.kernel.variant, 2)
        kernel = replace(one.launch.kernel, program_variant=variant, launches=count)
        timelines.append(one.with_launch(replace(one.launch, kernel=kernel)))
    path, _ = merged(tmp_path, timelines, kernels(range(3)))
    assert len(json.loads(path.read_text())["kprof_inject"]["launches"]) == 9
    with pytest.raises(KprofError) as raised:
        merged(tmp_path, [one for one in timelines if one.launch.index < 2], kernels(range(3)))
    assert "2 variants" in raised.value.what


@pytest.mark.parametrize("case", ["a kernel more", "none", "another grid", "another device", "two streams"])
def test_a_kernel_that_does_not_fit_is_refused_with_the_reason(tmp_path: Path, case: str) -> None:
    timelines = save_steps(tmp_path / "capture", range(3))
    known = kernels(range(3))
    first = next(one for one in known if one.name == INDUCTOR)
    rest = [one for one in known if one is not first]
    wrong = {
        "a kernel more": [*known, replace(first, start_ns=first.start_ns + 10**6, end_ns=first.end_ns + 10**6)],
        "none": [one for one in known if one.name != INDUCTOR],
        "another grid": [replace(first, grid=(1, 1, 1)), *rest],
        "another device": [replace(first, device=1), *rest],
        "two streams": [replace(first, stream=20), *rest],
    }[case]
    path, said = merged(tmp_path, timelines, wrong)
    facts = json.loads(path.read_text())["kprof_inject"]
    check("pipeline/merging", said[0], case)
    assert facts["refused"].keys() >= {INDUCTOR}
    assert INDUCTOR not in [one["kernel"] for one in facts["launches"]]


def test_launches_that_no_clock_places_in_their_kernels_are_refused(tmp_path: Path) -> None:
    timelines = save_steps(tmp_path / "capture", range(3))
    first, *rest = kernels(range(3))
    late = replace(first, start_ns=first.start_ns + 10**5, end_ns=first.end_ns + 10**5)
    with pytest.raises(KprofError) as raised:
        merged(tmp_path, timelines, [late, *rest])
    check("pipeline/merging", str(raised.value), "outside")


def test_each_process_has_a_trace_of_its_own(tmp_path: Path) -> None:
    folder = tmp_path / "capture"
    save_steps(folder, range(2), pid=7, rank=0)
    timelines = save_steps(folder, range(2), pid=8, rank=1, late_ns=3_000)
    traces = [traced(tmp_path, kernels(range(2))), traced(tmp_path, kernels(range(2), late_ns=3_000), pid=8)]
    said = list(merge(traces, timelines, tmp_path, None))
    assert [line.split(",")[0] for line in said] == [
        f"wrote {tmp_path}/torch_trace.{pid}.kprof.json.gz: 6 launches" for pid in (7, 8)
    ]


def test_a_trace_without_launches_or_that_is_none_is_an_error(tmp_path: Path) -> None:
    timelines = save_steps(tmp_path / "capture", [0], pid=99)
    for path in (traced(tmp_path, kernels([0])), tmp_path / "torch_trace.7.json.gz"):
        with pytest.raises(KprofError, match=path.name):
            list(merge([path], timelines, tmp_path, None))
        path.write_bytes(gzip.compress(b"[]"))
    assert not (tmp_path / "torch_trace.kprof.json.gz").exists()


# The GPU's work of a program, added up from traces of torch.profiler


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
