"""The step that has a process of ours sample the links while a program runs."""

from __future__ import annotations

import select
from pathlib import Path
from typing import Any

import pytest
from ranks import BEGIN_NS, Timer, save_process

from kprof_inject.capture.encoding import encode
from kprof_inject.capture.link_traffic import DeviceTraffic, LinkTrafficRecord, read_link_traffic
from kprof_inject.capture.peer_clocks import PeerReading
from kprof_inject.pipeline import link_traffic
from kprof_inject.pipeline.link_traffic import sampled_links

METRICS = ("sm__cycles_elapsed.max",)
TRAFFIC = DeviceTraffic(device="GPU-0", from_ns=1, to_ns=9, begins_ns=(7,), sent_bytes=(3,), received_bytes=(4,))
RECORD = encode(LinkTrafficRecord(interval_ns=50, devices=(TRAFFIC,))).decode()
NOTHING = encode(LinkTrafficRecord(interval_ns=50, devices=(), not_sampled="there is no link")).decode()
PEERS = (PeerReading(reference="GPU-0", device="GPU-1", reference_ns=1, device_ns=2, error_ns=3),)


def process(record: str) -> str:
    """A process as ours: it is ready, waits until its input ends, and writes."""
    checks = "assert sys.argv[1:] == ['20000', 'GPU-0', 'GPU-1']"
    return f"import sys\n{checks}\nprint(flush=True)\nsys.stdin.read()\nprint({record!r}, end='')\n"


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        (process(RECORD), (TRAFFIC,)),
        (process(NOTHING), None),
        (process("no JSON"), None),
        ("raise SystemExit(1)", None),
        ("import os; os.abort()", None),
    ],
    ids=["samples", "no links", "damaged", "fails", "dies"],
)
def test_what_the_process_found_is_in_the_capture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, expected: tuple[DeviceTraffic, ...] | None
) -> None:
    (tmp_path / "samples_links.py").write_text(module)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(link_traffic, "_MODULE", "samples_links")
    timer = Timer()
    save_process(tmp_path / "capture", "0", [(timer, BEGIN_NS)], [timer.reading(BEGIN_NS)], rank=0, pid=0)
    with sampled_links(METRICS, PEERS) as links:
        pass
    said: list[str] = []
    links.save(tmp_path / "capture", said.append)
    assert said == (["NVLink was not sampled: there is no link"] if module == process(NOTHING) else [])
    found = read_link_traffic(tmp_path / "capture")
    assert (found and found.devices) == expected
    assert found is None or found == LinkTrafficRecord(interval_ns=50, devices=(TRAFFIC,))


def test_a_process_that_does_not_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "samples_links.py").write_text(STUBBORN.format(folder=str(tmp_path)))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(link_traffic, "_MODULE", "samples_links")
    with sampled_links(METRICS, PEERS):
        monkeypatch.setattr(link_traffic, "_MAX_SECONDS", 0.5)
    assert_gone(tmp_path)


@pytest.mark.parametrize("when", ["begin", "end"])
def test_an_interruption_leaves_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    (tmp_path / "samples_links.py").write_text(STUBBORN.format(folder=str(tmp_path)))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(link_traffic, "_MODULE", "samples_links")
    monkeypatch.setattr(link_traffic, "_MAX_SECONDS", 20.0 if when == "begin" else 0.5)
    waited = select.select

    def interrupted(*arguments: Any) -> Any:
        waited(*arguments)
        raise KeyboardInterrupt

    if when == "begin":
        monkeypatch.setattr(link_traffic.select, "select", interrupted)
    with pytest.raises(KeyboardInterrupt), sampled_links(METRICS, PEERS):
        monkeypatch.setattr(link_traffic, "_MAX_SECONDS", 0.5)
        raise KeyboardInterrupt
    monkeypatch.undo()
    assert_gone(tmp_path)


STUBBORN = """
import os, time, pathlib
pathlib.Path({folder!r}, "pid").write_text(str(os.getpid()))
print(flush=True)
time.sleep(600)
"""


def assert_gone(folder: Path) -> None:
    pid = int((folder / "pid").read_text())
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize(("metrics", "peers"), [((), PEERS), (METRICS, ())], ids=["no counters", "one GPU"])
def test_nothing_is_started_without_need(
    monkeypatch: pytest.MonkeyPatch, metrics: tuple[str, ...], peers: tuple[PeerReading, ...]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(link_traffic.subprocess, "Popen", fail)
    with sampled_links(metrics, peers) as links:
        assert links is not None
