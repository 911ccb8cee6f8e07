"""Slopes of experiments whose times are made by a known answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
from snapshots import check

from kprof_inject.analysis.causal.slopes import KernelSlopes, kernel_slopes
from kprof_inject.analysis.interpreter.executions import evaluated
from kprof_inject.capture.encoding import decode, encode
from kprof_inject.capture.experiments import ExperimentRecord, MeasuredDelayRecord, SpinRecord
from kprof_inject.capture.resources import Resources
from kprof_inject.capture.scopes import Scope, ScopeTable
from kprof_inject.errors import KprofError

TEXT = """\
module {
  tt.func public @k(%p: !tt.ptr<f32>) {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %c64 = arith.constant 64 : i32
    %x = tt.load %p : !tt.ptr<f32>
    scf.for %i = %c0 to %c64 step %c1  : i32 {
      %y = tt.load %p : !tt.ptr<f32>
      %z = math.exp2 %y : f32
    }
    tt.return
  }
}
"""
CLOCK_HZ, CLEAN_NS = 1.5e9, 100_000.0
DELAYS = (0, 60, 180, 540, 1620)
Answer = Callable[[float], float]
"""How many cycles longer an iteration is, for each number of cycles that a delay adds to it."""


def scope(name: str, line: int) -> Scope:
    return Scope(record=name, name=name, kind="op", lines=(line, line))


TABLE = ScopeTable(scopes=(scope("load", 8), scope("exp2", 9)))


def taken_cycles(delay_cycles: int) -> float:
    return 30 + 1.1 * delay_cycles


def experiment(answers: dict[int, Answer], *, chain: int = 1, noise: float = 0.001, **changes: Any) -> ExperimentRecord:
    """Of a kernel whose clock drifts by a fifth, and which takes 2 % longer with anything in it at all. ``answers`` say
    what the cycles that a delay takes by itself, 30 for one of none, add to the kernel."""
    chance = np.random.default_rng(0)
    delays = []
    for index, answer in answers.items():
        for cycles in DELAYS:
            longer_ns = 64 * chain * answer(taken_cycles(cycles)) / CLOCK_HZ * 1e9
            drift = np.linspace(1.0, 1.2, 200)
            clean = CLEAN_NS * drift
            ns = (1.02 * CLEAN_NS + longer_ns) * drift * np.exp(chance.normal(0, noise, 200))
            delays.append(
                MeasuredDelayRecord(
                    scope=index,
                    delay_cycles=cycles,
                    ns=tuple(ns.tolist()),
                    clean_ns=tuple(clean.tolist()),
                    registers=32,
                )
            )
    record = ExperimentRecord(
        name="k",
        variant="k-0",
        pid=1,
        scopes=TABLE,
        sm_count=1,
        sm_clock_hz=CLOCK_HZ / 1.1,  # at the middle of the drift
        clean=Resources(ctas_per_sm=1),
        grid=(chain, 1, 1),
        delays=tuple(delays),
        spins=tuple(SpinRecord(cycles, taken_cycles(cycles)) for cycles in DELAYS),
    )
    return msgspec.structs.replace(record, **changes)


def slopes_of(record: ExperimentRecord, text: str = TEXT) -> KernelSlopes:
    return kernel_slopes(record, evaluated(text, "k.ttgir", record.grid, (), ScopeTable()))


@pytest.mark.parametrize("chain", [1, 3])
def test_a_critical_and_a_hidden_place(chain: int) -> None:
    found = slopes_of(experiment({0: lambda cycles: max(cycles - 400, 0), 1: lambda cycles: 0.9 * cycles}, chain=chain))
    assert [place.scope.name for place in found.ranked] == ["exp2", "load"]
    exp2, load = found.ranked
    assert (exp2.by_cta, exp2.by_chain) == (64, 64 * chain)
    assert exp2.response is not None and load.response is not None
    assert exp2.response.slope.value == pytest.approx(0.9, abs=0.05)
    assert exp2.response.slack is None
    assert load.response.slope.value == pytest.approx(0, abs=0.1)
    assert load.response.slack is not None
    # Of the kernel without delays: one of no cycles has used up 30 of it.
    assert load.response.slack.value == pytest.approx(400, rel=0.03)
    assert found.chain == chain


def test_what_it_costs_to_insert_anything_is_not_in_the_slope() -> None:
    (place,) = slopes_of(experiment({0: lambda _: 0.0})).places
    assert place.disturbed is not None
    assert place.disturbed.value == pytest.approx(0.02, abs=0.002)
    assert place.response is not None
    assert place.response.slope.value == pytest.approx(0, abs=0.02)
    assert place.spare_cycles == pytest.approx(taken_cycles(DELAYS[-1]))


def test_a_delay_takes_what_was_measured_and_not_what_it_says() -> None:
    at_its_word = experiment({1: lambda cycles: cycles}, spins=())
    (place,) = slopes_of(at_its_word).places
    assert place.response is not None
    assert place.response.slope.value == pytest.approx(1.1, abs=0.05)


@pytest.mark.parametrize(
    ("changes", "text", "reason"),
    [
        ({}, TEXT.replace("%c0 to %c64", "%c0 to %p"), "how often it runs is unknown"),
        ({"sm_clock_hz": 0.0}, TEXT, "the clock is unknown"),
    ],
)
def test_without_a_count_or_a_clock_there_is_no_slope(changes: dict[str, Any], text: str, reason: str) -> None:
    (place,) = slopes_of(experiment({1: lambda cycles: cycles}, **changes), text).places
    assert place.response is None
    assert place.reason == reason
    assert len(place.points) == len(DELAYS)


def test_a_build_that_was_left_out_says_why() -> None:
    record = experiment({1: lambda cycles: cycles})
    refused = tuple(
        msgspec.structs.replace(one, ns=(), clean_ns=(), refusal="it does not load") for one in record.delays
    )
    (place,) = slopes_of(msgspec.structs.replace(record, delays=refused)).places
    assert (place.response, place.reason) == (None, "it does not load")


def test_json_has_what_the_table_has() -> None:
    found = slopes_of(experiment({1: lambda cycles: cycles})).to_json()
    (place,) = found["places"]
    assert place["scope"] == "exp2"
    assert place["executions_by_cta"] == 64
    assert place["slope"]["low"] <= 1 <= place["slope"]["high"]
    assert [point["pairs"] for point in place["points"]] == [200] * len(DELAYS)


def decoded(record: ExperimentRecord) -> ExperimentRecord:
    return decode(encode(record), ExperimentRecord, "x.experiment.json")


def test_a_delay_that_was_measured_twice_is_refused() -> None:
    record = experiment({0: lambda _: 0.0, 1: lambda _: 0.0})
    assert decoded(record) == record
    said = msgspec.to_builtins(record)
    said["delays"] = [*said["delays"], said["delays"][1]]
    with pytest.raises(KprofError) as caught:
        decode(encode(said), ExperimentRecord, "x.experiment.json")
    assert "x.experiment.json: $: " in caught.value.what
    check("analysis/errors", caught.value.render(), "a delay measured twice")


@pytest.mark.parametrize("ns", [0.0, 1e-320, 0.5])
def test_a_time_that_nothing_takes_is_refused(ns: float) -> None:
    record = experiment({0: lambda _: 0.0})
    first, *rest = record.delays
    for column in ("ns", "clean_ns"):
        changed = msgspec.structs.replace(first, **{column: (ns,) * len(first.ns)})
        with pytest.raises(KprofError, match=rf"\$.delays\[0\].{column}\[0\]: expected float >= 1"):
            decoded(msgspec.structs.replace(record, delays=(changed, *rest)))


@pytest.mark.parametrize("ns", [1.0, 9e17])
def test_times_far_from_all_others_have_slopes_that_are_numbers(ns: float) -> None:
    record = experiment({0: lambda cycles: cycles})
    delays = [msgspec.structs.replace(one, ns=(ns,) * len(one.ns)) for one in record.delays]
    for changed in ((*delays,), (record.delays[0], *delays[1:]), (delays[0], *record.delays[1:])):
        (place,) = slopes_of(msgspec.structs.replace(record, delays=changed)).places
        assert place.response is None or np.isfinite([place.response.slope.value, place.response.slope.error]).all()


def test_delays_that_take_the_same_by_themselves_count_once() -> None:
    record = experiment({0: lambda cycles: cycles})
    spins = tuple(SpinRecord(cycles, 30.0 + min(cycles, 180)) for cycles in DELAYS)
    (place,) = slopes_of(msgspec.structs.replace(record, spins=spins)).places
    assert place.response is not None and np.isfinite(place.response.slope.value)
