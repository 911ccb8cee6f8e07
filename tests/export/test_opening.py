"""The slice on which a trace opens, judged by the trace processor."""

from __future__ import annotations

from pathlib import Path

import pytest
from buffers import make_editable
from ranks import BEGIN_NS, Timer, decode_all, save_process
from trace_processor.processor import query
from traces import write_trace

from kprof_inject.export.open_trace import last_launch

LAUNCHES = "SELECT ts, dur FROM slice WHERE category = 'launch' ORDER BY ts"
# Two devices that were switched on at different times: by their own timers the first's launches come last.
TIMERS = (Timer(77_000_000_000), Timer(5_000_000))


@pytest.mark.parametrize("at_ns", [(0, 90_000), (90_000, 0)])
def test_it_is_the_launch_that_began_last(tmp_path: Path, at_ns: tuple[int, int]) -> None:
    for rank, (timer, begin_ns) in enumerate(zip(TIMERS, at_ns, strict=True)):
        launches = [(timer, BEGIN_NS + begin_ns + ns) for ns in (0, 10_000)]
        save_process(tmp_path, str(rank), launches, [timer.reading(BEGIN_NS)], rank=rank)
    timelines = decode_all(tmp_path)

    write_trace(tmp_path / "trace.pftrace", timelines)

    found = last_launch(timelines)
    assert found
    assert {"ts": found.start_ns, "dur": found.duration_ns} == query(tmp_path / "trace.pftrace", LAUNCHES)[-1]
    assert found.start_ns > 90_000


def test_without_a_launch_there_is_none() -> None:
    assert last_launch([]) is None


def test_a_launch_of_which_no_cta_ran_is_not_it(tmp_path: Path) -> None:
    timer = Timer(5_000_000)
    save_process(tmp_path, "0", [(timer, BEGIN_NS), (timer, BEGIN_NS + 10_000)])
    ran, _ = decode_all(tmp_path)
    make_editable(tmp_path)
    buffer = tmp_path / "0/launch-000001.bin"
    buffer.write_bytes(bytes(buffer.stat().st_size))
    timelines = decode_all(tmp_path)
    assert [timeline.ctas.size for timeline in timelines] == [1, 0]
    assert last_launch(timelines) == last_launch([ran])
