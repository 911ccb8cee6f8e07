"""Traces of ``torch.profiler``: their kernels, in the order of their calls."""

from __future__ import annotations

import msgspec
import pytest
from torch_traces import BASE_NS, GPU_POSITION, Kernel, kineto_text

from kprof_inject.pipeline.torch_traces import Args, Bar, read_torch_trace

FIRST = Kernel("a", BASE_NS + 10**15 + 1, BASE_NS + 10**15 + 7_003, 5, (4, 2, 1), 128, 1, 20)
SECOND = Kernel("b", BASE_NS + 5, BASE_NS + 9, 6)


def test_kernels_are_in_the_order_of_their_calls() -> None:
    trace = read_torch_trace(kineto_text([SECOND, FIRST]).encode())
    assert trace.bars == (
        Bar("a", FIRST.start_ns, FIRST.end_ns, 1, 20, Args(1, 20, 5, (4, 2, 1))),
        Bar("b", SECOND.start_ns, SECOND.end_ns, 0, 7, Args(0, 7, 6, (1, 1, 1))),
    )
    assert (trace.base_ns, trace.positions[1]) == (BASE_NS, GPU_POSITION + 1)


def test_times_of_older_traces_have_no_base() -> None:
    trace = read_torch_trace(kineto_text([FIRST], base_ns=None).encode())
    assert (trace.base_ns, trace.bars[0].start_ns) == (0, FIRST.start_ns)


@pytest.mark.parametrize("text", ["", "[]", '{"traceEvents": 3}', kineto_text([FIRST])[:-900]])
def test_what_is_no_trace_is_refused(text: str) -> None:
    with pytest.raises(msgspec.MsgspecError):
        read_torch_trace(text.encode())
