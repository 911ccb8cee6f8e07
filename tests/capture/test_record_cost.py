"""The cost of a record: which one a capture's kernels get."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from buffers import Cta, JsonWriter, Scope, buffer_words, end, kernel_json, launch_json, start

from kprof_inject.capture import mode as module
from kprof_inject.capture.mode import Mode, RecordCost, cost_of
from kprof_inject.capture.model import Capture
from kprof_inject.capture.reader import read_capture

WORDS = buffer_words([Cta([[start(0, 10), end(0, 20)]])], slots=2)


@pytest.fixture(autouse=True)
def shipped(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {("shared", 64, False, False): (33.0, 35.0, 12.0), ("global", 32, True, True): (44.0, 46.0, 8.0)}
    other = {("shared", 64, False, False): (22.0, 22.0, 3.0)}
    monkeypatch.setattr(module, "SHIPPED", {("H200", "3.6"): rows, ("B200", "3.6"): other})


def capture(
    folder: Path, *, names: list[str], devices: tuple[int, ...] = (0,), mode: dict[str, Any] | None = None
) -> Capture:
    """A capture with a launch of one kernel on each of these devices."""
    writer = JsonWriter(folder / "p", {"pid": 7, "triton": "3.6.0", "device_names": names})
    writer.add_kernel("v0", kernel_json([Scope("s")], WORDS, 1, mode=mode), "module {}\n", {})
    for number, device in enumerate(devices):
        line = launch_json(WORDS, index=number, host_ns=number) | {"device": device}
        writer.add_launch(line, memoryview(WORDS.tobytes()))
    return read_capture(folder)


def costs_of(capture: Capture) -> list[RecordCost | None]:
    return [launch.kernel.record_cost for launch in capture.launches]


def test_one_variant_on_two_kinds_of_device_has_two_costs(tmp_path: Path) -> None:
    found = capture(tmp_path, names=["H200", "B200", "H200"], devices=(0, 1, 2, 0))
    assert [cost and cost.cycles for cost in costs_of(found)] == [34.0, 22.0, 34.0, 34.0]
    kernels = [launch.kernel for launch in found.launches]
    assert kernels[0] is kernels[2] is kernels[3]


@pytest.mark.parametrize("names", [[], [""], ["A100"]], ids=["no names", "no name", "another name"])
def test_without_a_figure_nothing_is_said(tmp_path: Path, names: list[str]) -> None:
    assert costs_of(capture(tmp_path, names=names)) == [None]


@pytest.mark.parametrize(
    ("name", "triton", "mode", "figures"),
    [
        ("H200", "3.6.0", Mode(), (33.0, 35.0, 12.0)),
        ("H200", "3.6.1+git4", Mode(buffer_bytes=512), (33.0, 35.0, 12.0)),
        ("H200", "3.6.0", Mode("global", 0, 32, (1,), True), (44.0, 46.0, 8.0)),
        ("H200", "3.6.0", Mode("global"), None),
        ("H200", "3.7.0", Mode(), None),
        ("H200", "3", Mode(), None),
        ("H100", "3.6.0", Mode(), None),
    ],
)
def test_a_shipped_figure_holds_for_its_device_minor_version_and_mode(
    name: str, triton: str, mode: Mode, figures: tuple[float, float, float] | None
) -> None:
    assert cost_of(name, triton, mode) == (RecordCost(*figures) if figures else None)
