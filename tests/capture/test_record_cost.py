"""The cost of a record: its file, and which one a capture's kernels get."""

from __future__ import annotations

import json
from dataclasses import astuple
from pathlib import Path
from typing import Any

import msgspec
import pytest
from buffers import Cta, JsonWriter, Scope, buffer_words, end, kernel_json, launch_json, start

from kprof_inject.calibration import add_record_costs
from kprof_inject.capture import record_costs as module
from kprof_inject.capture.mode import Mode
from kprof_inject.capture.model import Capture
from kprof_inject.capture.reader import read_capture
from kprof_inject.capture.record_costs import CostKey, MeasuredCost, RecordCost, cost_of, read_costs, write_costs
from kprof_inject.errors import KprofError
from kprof_inject.workspace import Workspace

WORDS = buffer_words([Cta([[start(0, 10), end(0, 20)]])], slots=2)
KEY = CostKey.of("H200", "3.6.0", Mode())


def measured(key: CostKey, cycles: float) -> MeasuredCost:
    """Of a record that beside work costs 3 cycles after a start and 4 after an end."""
    return MeasuredCost(*astuple(key), cycles, cycles - 1, cycles + 1, 3.0, 4.0, cycles - 3, 0.5, 6912)


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


def test_costs_come_back_from_their_file(tmp_path: Path) -> None:
    costs = [measured(KEY, 34.25), measured(CostKey.of("é", "3.7.0+git1", Mode("global", 0, 32, (1,), True)), 44.0)]
    write_costs(tmp_path / "costs.json", costs)
    assert list(read_costs(tmp_path / "costs.json").values()) == costs


def test_no_file_has_no_costs(tmp_path: Path) -> None:
    assert read_costs(tmp_path / "costs.json") == {}


@pytest.mark.parametrize(
    "change",
    [
        {"cycles": None},
        {"cycles": -1.0},
        {"cycles": float("nan")},
        {"cycles": float("inf")},
        {"cycles": True},
        {"after_end_beside_work_cycles": -1.0},
        {"samples": "many"},
        {"device_name": 4},
        {"clock_bits": "64"},
        {"some_warps": 1},
    ],
    ids=str,
)
def test_a_damaged_cost_is_an_error_that_names_the_file(tmp_path: Path, change: dict[str, Any]) -> None:
    path = tmp_path / "costs.json"
    path.write_text(json.dumps({"costs": [msgspec.to_builtins(measured(KEY, 34.0)) | change]}))
    with pytest.raises(KprofError, match=r"costs\.json: "):
        read_costs(path)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"costs": {}}', '{"costs": [3]}', '{"costs": [{"cycles": 3}]}'])
def test_a_file_of_another_form_is_an_error_that_names_it(tmp_path: Path, text: str) -> None:
    path = tmp_path / "costs.json"
    path.write_text(text)
    with pytest.raises(KprofError, match=r"costs\.json: "):
        read_costs(path)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (Mode(), Mode(buffer_bytes=512), True),
        (Mode(warps=(0,)), Mode(warps=(1, 2)), True),
        (Mode(), Mode(warps=(0,)), False),
        (Mode(), Mode("global"), False),
        (Mode(), Mode(clock_bits=32), False),
        (Mode(), Mode(sched_stores=True), False),
    ],
)
def test_modes_whose_records_are_the_same_code_have_one_cost(one: Mode, other: Mode, same: bool) -> None:
    assert (CostKey.of("H200", "3.6.0", one) == CostKey.of("H200", "3.6.0", other)) == same


def test_a_kernel_gets_the_cost_of_its_device_and_mode(tmp_path: Path) -> None:
    others = [("B200", Mode()), ("H200", Mode(clock_bits=32)), ("H200", Mode("global"))]
    costs = [measured(CostKey.of(name, "3.6.0", mode), 10.0 + number) for number, (name, mode) in enumerate(others)]
    mine = measured(CostKey.of("H200", "3.6.0", Mode(warps=(5,))), 34.5)
    newer = measured(CostKey.of("H200", "3.7.0", Mode(warps=(5,))), 99.0)
    write_costs(tmp_path / "record_costs.json", [*costs, mine, newer])
    found = capture(tmp_path, names=["H200"], mode={"warps": [0], "buffer_bytes": 4096})
    assert costs_of(found) == [RecordCost(19.25, 19.25, 16.25, "measured")]


@pytest.mark.parametrize(
    ("sched_stores", "alone", "beside_work", "cost"),
    [
        (False, (30.5, 30.0), (26.0, 0.0), RecordCost(15.25, 15.25, 15.25, "measured")),
        (False, (20.0, 20.0), (20.0, 20.0), RecordCost(20.0, 20.0, 0.0, "measured")),
        (True, (4.0, 38.0), (14.0, 15.0), RecordCost(9.0, 26.5, 11.5, "measured")),
        (True, (24.0, 2.0), (24.0, 16.0), RecordCost(24.0, 9.0, 7.0, "measured")),
    ],
    ids=["whichever kind it is", "the same", "moved, more after a start", "moved, more after an end"],
)
def test_a_record_costs_the_middle_between_the_least_and_the_most(
    sched_stores: bool, alone: tuple[float, float], beside_work: tuple[float, float], cost: RecordCost
) -> None:
    key = CostKey.of("H200", "3.6.0", Mode(sched_stores=sched_stores))
    measured = MeasuredCost(*astuple(key), sum(alone) / 2, *alone, *beside_work, 30.0, 0.5, 6912)
    assert cost_of(key, {key: measured}) == cost


def test_one_variant_on_two_kinds_of_device_has_two_costs(tmp_path: Path) -> None:
    keys = [CostKey.of(name, "3.6.0", Mode()) for name in ("H200", "B200")]
    write_costs(tmp_path / "record_costs.json", [measured(keys[0], 34.0), measured(keys[1], 40.0)])
    found = capture(tmp_path, names=["H200", "B200", "H200"], devices=(0, 1, 2, 0))
    assert [cost and cost.cycles for cost in costs_of(found)] == [19.0, 22.0, 19.0, 19.0]
    kernels = [launch.kernel for launch in found.launches]
    assert kernels[0] is kernels[2] is kernels[3]


@pytest.mark.parametrize("names", [[], [""], ["A100"]], ids=["no names", "no name", "another name"])
def test_without_a_figure_nothing_is_said(tmp_path: Path, names: list[str]) -> None:
    write_costs(tmp_path / "record_costs.json", [measured(KEY, 34.0)])
    assert costs_of(capture(tmp_path, names=names)) == [None]


def test_a_damaged_file_in_a_capture_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "record_costs.json").write_text("{")
    with pytest.raises(KprofError, match=r"record_costs\.json: this is not JSON"):
        capture(tmp_path, names=["H200"])


@pytest.fixture
def shipped(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {("shared", 64, False, False): (33.0, 35.0, 12.0), ("global", 32, True, True): (44.0, 46.0, 8.0)}
    table = {("H200", "3.6"): rows}
    monkeypatch.setattr(module, "SHIPPED", table)


@pytest.mark.usefixtures("shipped")
def test_what_was_measured_goes_before_what_is_shipped(tmp_path: Path) -> None:
    assert costs_of(capture(tmp_path, names=["H200"])) == [RecordCost(33.0, 35.0, 12.0, "shipped")]
    write_costs(tmp_path / "record_costs.json", [measured(KEY, 34.5)])
    assert costs_of(read_capture(tmp_path)) == [RecordCost(19.25, 19.25, 16.25, "measured")]


@pytest.mark.usefixtures("shipped")
def test_what_is_shipped_is_not_measured(tmp_path: Path) -> None:
    capture(tmp_path, names=["H200"])
    assert list(add_record_costs(Workspace(tmp_path / "workspace"), tmp_path)) == []
    assert not (tmp_path / "record_costs.json").exists()


@pytest.mark.usefixtures("shipped")
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
    expected = RecordCost(*figures, "shipped") if figures else None
    assert cost_of(CostKey.of(name, triton, mode), {}) == expected
