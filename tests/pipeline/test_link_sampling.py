"""The step that has a process of ours sample the links while a program runs."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from ranks import BEGIN_NS, Timer, save_process

from kprof_inject.capture.link_traffic import DeviceTraffic, LinkTrafficRecord, read_link_traffic
from kprof_inject.pipeline import link_traffic
from kprof_inject.pipeline.link_traffic import sampled_links

METRICS = ("sm__cycles_elapsed.max",)
TRAFFIC = DeviceTraffic(device="GPU-0", begins_ns=(7,), sent_bytes=(3,), received_bytes=(4,))
RECORD = '{"interval_ns":50,"devices":[{"device":"GPU-0","begins_ns":[7],"sent_bytes":[3],"received_bytes":[4]}]}'
NOTHING = '{"interval_ns":50,"devices":[],"not_sampled":"no two GPUs have counters of NVLink"}'


def process(record: str) -> str:
    """A process as ours: it is ready, waits until its input ends, and writes."""
    return f"import sys\nprint(flush=True)\nsys.stdin.read()\nprint({record!r}, end='')\n"


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
    with sampled_links(METRICS, uses_several_gpus=True) as links:
        pass
    links.save(tmp_path / "capture")
    found = read_link_traffic(tmp_path / "capture")
    assert (found and found.devices) == expected
    assert found is None or found == LinkTrafficRecord(interval_ns=50, devices=(TRAFFIC,))


def test_a_process_that_does_not_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "samples_links.py").write_text("import time\nprint(flush=True)\ntime.sleep(600)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(link_traffic, "_MODULE", "samples_links")
    monkeypatch.setattr(link_traffic, "_MAX_SECONDS", 0.5)
    begun_s = time.monotonic()
    with sampled_links(METRICS, uses_several_gpus=True):
        pass
    assert time.monotonic() - begun_s < 60


@pytest.mark.parametrize(("metrics", "several"), [((), True), (METRICS, False)], ids=["no counters", "one GPU"])
def test_nothing_is_started_without_need(
    monkeypatch: pytest.MonkeyPatch, metrics: tuple[str, ...], several: bool
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(link_traffic.subprocess, "Popen", fail)
    with sampled_links(metrics, uses_several_gpus=several) as links:
        assert links is not None
