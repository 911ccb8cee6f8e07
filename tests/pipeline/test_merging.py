"""Launches in a trace of ``torch.profiler``, judged by Perfetto's trace processor."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from buffers import Cta, JsonWriter, Scope, buffer_words, end, kernel_json, launch_json, start
from replacing import replace
from snapshots import check
from torch_traces import GPU_POSITION, Kernel, save_kineto
from trace_processor.processor import query_many

from kprof_inject.capture.reader import read_capture
from kprof_inject.errors import KprofError
from kprof_inject.pipeline.merging import default_output, merge_into
from kprof_inject.timeline.choice import Choice, NumberSet
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
    writer.finish()
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
BARS = (
    "SELECT sent.ts AS bar, sent.dur AS length, came.ts AS ts, came.dur AS dur"
    " FROM flow JOIN slice sent ON sent.id = slice_out JOIN slice came ON came.id = slice_in"
    " WHERE came.category = 'launch'"
)
CALLS = (
    "SELECT count(*) AS arrows FROM flow JOIN slice sent ON sent.id = slice_out JOIN slice came ON came.id = slice_in"
    " WHERE sent.category = 'cuda_driver' AND came.category = 'kernel'"
    " AND EXTRACT_ARG(sent.arg_set_id, 'args.correlation') = EXTRACT_ARG(came.arg_set_id, 'args.correlation')"
)
FAULTS = "SELECT name, value FROM stats WHERE severity = 'error' AND value > 0"


def merged(paths: Sequence[Path], timelines: Sequence[Timeline], output: Path | None = None) -> tuple[Path, list[str]]:
    done = merge_into(paths, timelines, output)
    return done.path, list(done.lines())


def test_every_cta_lies_in_its_kernels_bar(tmp_path: Path) -> None:
    timelines = save_steps(tmp_path / "capture", range(3))
    path, said = merged([save_kineto(tmp_path / "torch.json", kernels(range(4)))], timelines)

    assert path == tmp_path / "torch.kprof.json"
    facts = json.loads(path.read_text())["kprof_inject"]
    error_ns = facts["devices"][0]["error_ns"]
    assert said[0].startswith("torch.json, device 0: 9 of 9 ") and said[0].endswith(f" ± {error_ns} ns")
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
    assert calls == [{"arrows": 16}]


def test_a_part_of_a_launch_is_matched_by_all_of_it(tmp_path: Path) -> None:
    trace, timelines = save_kineto(tmp_path / "torch.json", kernels(range(2))), save_steps(tmp_path / "capture", [0, 1])
    last_cta = [timeline.chosen(Choice(ctas=NumberSet.of([CTAS - 1]))) for timeline in timelines]
    whole, part = (
        json.loads(merged([trace], some, tmp_path / name)[0].read_text())["kprof_inject"]
        for name, some in (("whole.json", timelines), ("part.json", last_cta))
    )
    assert part["devices"] == whole["devices"]
    for name in ("matched", "outside_ns", "error_ns"):
        assert [launch[name] for launch in part["launches"]] == [launch[name] for launch in whole["launches"]]


def test_the_judge_sees_what_lies_outside(tmp_path: Path) -> None:
    # With shorter bars the same CTAs stick out of them, by more than the error: the query has to count them.
    timelines = save_steps(tmp_path / "capture", [0])
    path, _ = merged([save_kineto(tmp_path / "torch.json", kernels([0]))], timelines)
    trace = json.loads(path.read_text())
    for event in trace["traceEvents"]:
        if event.get("cat") == "kernel":
            event["dur"] -= 2
    (tmp_path / "shorter.json").write_text(json.dumps(trace))
    (slices,) = query_many(tmp_path / "shorter.json", [outside_sql(trace["kprof_inject"]["devices"][0]["error_ns"])])
    assert len(slices) == 3
    assert all(row["outside"] for row in slices)


def test_the_trace_stays_as_it_was_byte_for_byte(tmp_path: Path) -> None:
    timelines = save_steps(tmp_path / "capture", [0])
    odd = (
        '\n  {"ph":"X","cat":"cpu_op","name":"caf\\u00e9 \\"x\\"","pid":7,"tid":7,"ts":3e3,"dur":0.10000000000000001},'
    )
    source = save_kineto(tmp_path / "torch.json", kernels([0]), more=odd)
    before = source.read_bytes()
    path, _ = merged([source], timelines)
    assert source.read_bytes() == before
    after = path.read_bytes()
    head, tail = before.rsplit(b"\n  ],", 1)
    assert after.startswith(head + b",\n")
    assert after.endswith(tail)
    events = json.loads(before)["traceEvents"]
    assert json.loads(after)["traceEvents"][: len(events)] == events


def test_launches_stand_where_their_gpu_does_and_take_no_number_of_others(tmp_path: Path) -> None:
    # As if the program had the very number from which ours count.
    pid = 1 << 23
    timelines = save_steps(tmp_path / "capture", [0], pid=pid)
    source = save_kineto(tmp_path / "torch.json", kernels([0]), pid=pid)
    path, _ = merged([source], timelines)
    events = json.loads(path.read_text())["traceEvents"]
    ours = [event for event in events if event.get("cat") in ("launch", "func")]
    places = {event["pid"]: event["args"]["sort_index"] for event in events if event["name"] == "process_sort_index"}
    assert {places[event["pid"]] for event in ours} == {GPU_POSITION}
    theirs = {event.get(key) for event in json.loads(source.read_text())["traceEvents"] for key in ("pid", "tid")}
    assert theirs.isdisjoint(event[key] for event in ours for key in ("pid", "tid"))


def test_what_could_not_be_matched_is_listed_with_its_reason(tmp_path: Path) -> None:
    timelines = save_steps(tmp_path / "capture", range(3))
    known = [one for one in kernels(range(2)) if one.name != INDUCTOR]
    path, said = merged([save_kineto(tmp_path / "torch.json", known)], timelines)
    facts = json.loads(path.read_text())["kprof_inject"]
    assert len(facts["launches"]) == 4
    reasons = {(one["kernel"], one["launch"]): one["reason"] for one in facts["not_matched"]}
    assert reasons.keys() == {(INDUCTOR, 0), (INDUCTOR, 1), (INDUCTOR, 2), (STEP[0], 2), (STEP[1], 2)}
    assert "by the host's clock" in reasons[STEP[0], 2]
    assert any(f"launch 0 of {INDUCTOR}, which {reasons[INDUCTOR, 0]}" in line for line in said)
    check("pipeline/merging", reasons[INDUCTOR, 0], "not matched")


def test_two_ranks_become_one_trace(tmp_path: Path) -> None:
    # Both call their GPU process 0, and number their calls alike.
    folder = tmp_path / "capture"
    save_steps(folder, range(2), pid=7, rank=0)
    timelines = save_steps(folder, range(2), pid=8, rank=1, late_ns=3_000)
    paths = [
        save_kineto(tmp_path / "rank0.json", kernels(range(2)), pid=7, rank=0),
        save_kineto(tmp_path / "rank1.json", kernels(range(2), late_ns=3_000), pid=8, rank=1, base_ns=UNIX_NS - 10**9),
    ]
    path, said = merged(paths, timelines, tmp_path / "both.json.gz")
    assert [line.split(",")[0] for line in said[:2]] == ["rank 0", "rank 1"]
    facts = json.loads(gzip.decompress(path.read_bytes()))["kprof_inject"]
    assert [device["matched"] for device in facts["devices"]] == [6, 6]
    error_ns = max(device["error_ns"] for device in facts["devices"])
    faults, pairs, calls, names = query_many(
        path, [FAULTS, BARS, CALLS, "SELECT DISTINCT name FROM process WHERE name LIKE 'rank%python' ORDER BY name"]
    )
    assert faults == []
    assert len(pairs) == 12
    for pair in pairs:
        assert pair["ts"] >= pair["bar"] - error_ns
        assert pair["ts"] + pair["dur"] <= pair["bar"] + pair["length"] + error_ns
    # The calls' arrows still lead to their own rank's kernels.
    assert calls == [{"arrows": 16}]
    assert [row["name"] for row in names] == ["rank 0: python", "rank 1: python"]
    # The other rank's kernels began later, on one axis.
    (starts,) = query_many(
        path, ["SELECT ts FROM slice WHERE category = 'kernel' AND name = 'matmul_kernel' ORDER BY ts"]
    )
    assert starts[1]["ts"] - starts[0]["ts"] == 3_000


def test_a_rank_without_launches_is_told_and_no_trace_is_taken_twice(tmp_path: Path) -> None:
    timelines = save_steps(tmp_path / "capture", [0], pid=7, rank=0)
    paths = [save_kineto(tmp_path / f"rank{rank}.json", kernels([0]), pid=7 + rank, rank=rank) for rank in range(2)]
    _, said = merged(paths, timelines)
    (unused,) = (line for line in said if line.startswith("rank 1: "))
    check("pipeline/merging", unused, "rank 1")
    with pytest.raises(KprofError, match=r"rank0\.json is named twice"):
        merged([paths[0], tmp_path / "capture" / ".." / "rank0.json"], timelines)


def proton(folder: Path, known: Sequence[Kernel]) -> Path:
    """Proton's trace of a whole program, which counts from its first kernel."""
    first_ns = min(one.start_ns for one in known)
    events = [
        {
            **{"name": one.name, "cat": "kernel", "ph": "X", "tid": 0, "args": {"call_stack": ["ROOT", one.name]}},
            **{"ts": (one.start_ns - first_ns) / 1000, "dur": (one.end_ns - one.start_ns) / 1000},
        }
        for one in known
    ]
    path = folder / "proton.json"
    path.write_text(json.dumps({"displayTimeUnit": "us", "traceEvents": events}))
    return path


def test_protons_trace_of_a_whole_program_takes_launches_too(tmp_path: Path) -> None:
    timelines = save_steps(tmp_path / "capture", range(3))
    path, said = merged([proton(tmp_path, kernels(range(3)))], timelines)
    assert "9 of 9 launches matched" in said[0]
    faults, arrows = query_many(path, [FAULTS, ARROWS])
    assert faults == []
    assert len(arrows) == 9


@pytest.mark.parametrize(("case", "changes"), [("process 99", {"pid": 99}), ("rank 5", {"pid": 7, "rank": 5})])
def test_a_trace_of_another_process_is_an_error(tmp_path: Path, case: str, changes: dict[str, Any]) -> None:
    timelines = save_steps(tmp_path / "capture", [0], rank=0)
    with pytest.raises(KprofError) as raised:
        merged([save_kineto(tmp_path / "torch.json", kernels([0]), **changes)], timelines)
    check("pipeline/merging", str(raised.value), case)
    assert not (tmp_path / "torch.kprof.json").exists()


def test_launches_of_another_gpu_are_named_with_theirs(tmp_path: Path) -> None:
    timelines = save_steps(tmp_path / "capture", [0])
    others = [replace(kernel, device=device) for kernel in kernels([0]) for device in (5, 3)]
    with pytest.raises(KprofError, match="only on device 3, device 5"):
        merged([save_kineto(tmp_path / "torch.json", others)], timelines)


def test_a_trace_of_another_run_is_an_error(tmp_path: Path) -> None:
    timelines = save_steps(tmp_path / "capture", [0])
    later = kernels([0], late_ns=3_600 * 10**9)
    with pytest.raises(KprofError, match="the nearest call is "):
        merged([save_kineto(tmp_path / "torch.json", later)], timelines)


@pytest.mark.parametrize("name", ["torch.json", "link.json", "torch.pftrace"])
def test_an_output_that_cannot_be_is_an_error_at_once(tmp_path: Path, name: str) -> None:
    path = save_kineto(tmp_path / "torch.json", kernels([0]))
    (tmp_path / "link.json").symlink_to(path)
    with pytest.raises(KprofError) as raised:
        merged([path], [], tmp_path / name)
    assert raised.value.exit_code == 2


@pytest.mark.parametrize(
    ("name", "expected"),
    [("a.json", "a.kprof.json"), ("b.pt.trace.JSON.gz", "b.pt.trace.kprof.json.gz"), ("c", "c.kprof.json")],
)
def test_the_output_is_named_after_the_trace(name: str, expected: str) -> None:
    assert default_output(Path("runs") / name) == Path("runs") / expected
