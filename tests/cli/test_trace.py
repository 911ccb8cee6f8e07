"""``trace`` of captures of several processes: what it says of them."""

from __future__ import annotations

import json

from command_line import CommandLine
from ranks import BEGIN_NS, Timer, clock_file, save_process

TIMERS = (Timer(5_000_000), Timer(9_000_000_000))


def test_two_ranks_are_merged_and_their_error_is_said(kprof: CommandLine) -> None:
    for rank, timer in enumerate(TIMERS):
        name = f"capture/{rank}"
        save_process(kprof.folder, name, [(timer, BEGIN_NS)], [timer.reading(BEGIN_NS)], rank=rank, pid=11 + rank)
    damaged = clock_file(kprof.folder, "capture/1")
    damaged.write_bytes(b"garbage\n" + damaged.read_bytes() + b'{"device": 0, "host')

    ended = kprof("trace", "capture")

    assert ended.exit_code == 0
    passed_over, wrote, axis, _ = ended.stderr.splitlines()
    assert passed_over == "kprof-inject: passed over 1 damaged line(s) of clock.jsonl of process 12"
    assert wrote.startswith("kprof-inject: wrote capture/trace.json: 2 launch(es), 2 scopes")
    assert axis.startswith("kprof-inject: 2 ranks on one axis, within ± 4.")
    assert len(json.loads(kprof.read("capture/trace.json"))["otherData"]) == 2


def test_of_one_device_it_says_nothing_of_axes(kprof: CommandLine) -> None:
    save_process(kprof.folder, "capture/1", [(TIMERS[0], BEGIN_NS)], [TIMERS[0].reading(BEGIN_NS)], rank=0)
    ended = kprof("trace", "capture")
    assert ended.exit_code == 0
    assert "axis" not in ended.stderr
