"""What is read of a trace of ``torch.profiler``: torch's own, and one as of a GPU."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch_traces import BASE_NS, Kernel, kineto_text, save_kineto

from kprof_inject.errors import KprofError
from kprof_inject.export import torch_trace
from kprof_inject.export.torch_trace import Bar, Span, member_spans, packed_text, read_torch_trace

START_NS = BASE_NS + 4_586_234_511_375_813
KERNEL = Kernel(
    "matmul_kernel", START_NS, START_NS + 12_345, 90, (4, 2, 1), 128, 1, 7, (START_NS - 9_000, START_NS - 5_001)
)


def test_a_kernel_has_its_times_to_the_nanosecond(tmp_path: Path) -> None:
    trace = read_torch_trace(save_kineto(tmp_path / "t.json", [KERNEL], pid=55, rank=3))
    span, call = Span(START_NS, START_NS + 12_345), Span(START_NS - 9_000, START_NS - 5_001)
    assert trace.bars == (Bar("matmul_kernel", span, 1, 7, 1, 7, 90, (4, 2, 1), (128, 1, 1), call),)
    assert (trace.base_ns, trace.is_unix_time, trace.rank, trace.host_pids) == (BASE_NS, True, 3, frozenset({55}))
    assert trace.sort_indices == {55: 55, 1: 5_000_001}
    assert trace.process_names == {55: "python", 1: "python"}
    assert trace.pids == {55, 1, ""}


def test_without_a_base_times_are_unix_time_if_they_can_be(tmp_path: Path) -> None:
    trace = read_torch_trace(save_kineto(tmp_path / "t.json", [KERNEL], base_ns=None))
    assert (trace.bars[0].span.start_ns, trace.base_ns, trace.is_unix_time) == (START_NS, 0, True)


def test_protons_traces_have_names_and_times_alone(tmp_path: Path) -> None:
    event = {"name": "add", "cat": "kernel", "ph": "X", "ts": 0.5, "dur": 2.25, "tid": 0, "args": {"call_stack": []}}
    (tmp_path / "t.json").write_text(json.dumps({"displayTimeUnit": "us", "traceEvents": [event]}))
    trace = read_torch_trace(tmp_path / "t.json")
    assert trace.bars == (Bar("add", Span(500, 2750), 0, 0),)
    assert not trace.is_unix_time


def test_packed_traces_are_the_same(tmp_path: Path) -> None:
    plain = read_torch_trace(save_kineto(tmp_path / "t.json", [KERNEL]))
    (tmp_path / "t.json.gz").write_bytes(gzip.compress((tmp_path / "t.json").read_bytes()))
    packed = read_torch_trace(tmp_path / "t.json.gz")
    assert (packed.text, packed.bars) == (plain.text, plain.bars)


def test_bytes_that_are_no_text_stay_as_they_are(tmp_path: Path) -> None:
    data = kineto_text([KERNEL]).encode().replace(b"aten::mm", b"caf\xe9\x01")
    (tmp_path / "t.json").write_bytes(data)
    assert packed_text(read_torch_trace(tmp_path / "t.json").text) == data


def test_torchs_own_trace_is_read_and_has_no_kernel_here(tmp_path: Path) -> None:
    path = tmp_path / "torch.json"
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiled:
        _ = torch.ones(8, 8) @ torch.ones(8, 8)
    profiled.export_chrome_trace(str(path))
    with pytest.raises(KprofError, match="has no kernel") as raised:
        read_torch_trace(path)
    assert "ProfilerActivity.CUDA" in raised.value.hint
    # With a kernel put into its events, it is one that could be merged into.
    text = path.read_text()
    event = json.dumps({"ph": "X", "cat": "kernel", "name": "add", "pid": 0, "tid": 7, "ts": 1.5, "dur": 2})
    path.write_text(text.replace('"traceEvents": [', f'"traceEvents": [{event},', 1))
    trace = read_torch_trace(path)
    base_ns = json.loads(text)["baseTimeNanoseconds"]
    assert trace.bars[0].span == Span(base_ns + 1_500, base_ns + 3_500)
    assert len(trace.host_pids) == 1
    assert text.rstrip().endswith(trace.text[trace.events_end :].rstrip())
    assert trace.text[trace.events_end :].lstrip().startswith("]")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b" \n", "t.json is empty"),
        (b"garbage", "not a trace: expected {"),
        (b'[{"cat": "kernel"}]', "a bare list of events"),
        (b"{}", "has no traceEvents"),
        (b'{"traceEvents": 5}', "has no traceEvents"),
        (b'{"traceEvents": []}', "has no kernel"),
        (b'{"traceEvents": [{"cat": kernel}]}', "this is not a trace"),
        (b'{"traceEvents": [], "traceEvents": []}', "it has traceEvents twice"),
        (b'{"traceEvents": [1, null, {"cat": "kernel", "ph": "X"}]}', "kernel with a name and times"),
        (b'{"traceEvents": [{"cat":"kernel","ph":"X","name":"a","ts":1e999,"dur":1}]}', "with a name and times"),
        (b'{"traceEvents": [{"cat":"kernel","ph":"X","name":"a","ts":NaN,"dur":1}]}', "with a name and times"),
        (b'{"traceEvents": ' + b"[" * 100_000, "nested too deeply"),
        (b'{"a": 1' + b"0" * 5_000 + b"}", "thousands of digits"),
        (b'{"traceEvents": []}\n{"traceEvents": []}', "more than one object"),
        (b'{"traceEvents": [], "kprof_inject": {}}', "already contains kprof-inject launches"),
        (gzip.compress(bytes(range(256)), mtime=0)[:100], "cannot unpack"),
        (b"\x1f\x8bgarbage", "cannot unpack"),
    ],
)
def test_what_is_no_trace_is_an_error_with_a_hint(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "t.json").write_bytes(content)
    with pytest.raises(KprofError, match=message) as raised:
        read_torch_trace(tmp_path / "t.json")
    assert raised.value.hint


@pytest.mark.parametrize(
    "text", [kineto_text([KERNEL]), '{"traceEvents": [{"ts": -1.5e3, "a": "}\\u00e4", "b": true}]}']
)
def test_a_trace_that_was_cut_anywhere_is_called_truncated(tmp_path: Path, text: str) -> None:
    path = tmp_path / "t.json"
    for end in range(text.index("{") + 1, len(text), 7 if len(text) > 100 else 1):
        path.write_text(text[:end])
        with pytest.raises(KprofError, match="the trace is truncated"):
            read_torch_trace(path)


def test_a_trace_that_is_missing_is_looked_for_beside_it(tmp_path: Path) -> None:
    (tmp_path / "trace.json").touch()
    with pytest.raises(KprofError, match=r"hint: did you mean .*/trace\.json"):
        read_torch_trace(tmp_path / "traces.json")


def test_a_trace_that_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_trace, "MAX_BYTES", 1_000)
    (tmp_path / "t.json.gz").write_bytes(gzip.compress(b" " * 5_000))
    with pytest.raises(KprofError, match="too large"):
        read_torch_trace(tmp_path / "t.json.gz")


def test_members_are_found_where_they_stand() -> None:
    text = '{ "a" : {"pid": 1}, "pid":2.50 ,"b":[1,2]}'
    assert [(name, text[begin:end]) for name, begin, end in member_spans(text)] == [
        ("a", '{"pid": 1}'),
        ("pid", "2.50"),
        ("b", "[1,2]"),
    ]
    assert list(member_spans(" {} ")) == []


@given(st.data())
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_damage_ends_in_another_error(tmp_path: Path, data: st.DataObject) -> None:
    text = bytearray(kineto_text([KERNEL]).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        cut = data.draw(st.integers(0, 40))
        text[at : at + cut] = data.draw(
            st.sampled_from([b"", b'"', b"}", b"]", b",", b"null", b"-7", b"1e400", b"\xff", b"[[{"])
        )
    (tmp_path / "t.json").write_bytes(text)
    try:
        trace = read_torch_trace(tmp_path / "t.json")
    except KprofError as error:
        assert error.hint
    else:
        assert trace.bars
        assert packed_text(trace.text) == bytes(text)
