"""Verdicts, word by word, on kernels whose costs are made up."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from buffers import Cta, Scope, save_launch

from kprof_inject.capture.costs import KernelCost
from kprof_inject.capture.reader import Kernel
from kprof_inject.timeline.trust import Level, Verdict, judge

# A median of 10 ms, between order statistics that are 14 µs apart: so long that two processes compare well.
TIMES_NS = tuple(1e3 * us for us in (9_990, 9_993, 9_995, 9_998, 10_000, 10_002, 10_005, 10_007, 10_010))
CLEAN = KernelCost(128, 0, 1024, 8, TIMES_NS)


def slower(percent: float) -> tuple[float, ...]:
    return tuple(time * (1 + percent / 100) for time in TIMES_NS)


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    return save_launch(tmp_path, [Scope("k")], [Cta([[]])], slots=4).kernel


def verdict_on(kernel: Kernel, clean: dict[str, Any], with_records: dict[str, Any]) -> Verdict:
    """Of a kernel that costs nothing more with records, but for what is given."""
    return judge(replace(kernel, clean=replace(CLEAN, **clean), with_records=replace(CLEAN, **with_records)))


SPILLS = "spills appeared: durations unreliable"
OVERLAP = "occupancy fell from 8 to 4 CTAs per SM: the kernel overlaps less than it does by itself"


@pytest.mark.parametrize(
    ("clean", "with_records", "level", "text"),
    [
        ({}, {"times_ns": slower(0.6)}, Level.TRUSTWORTHY, "+0.6 % ± 0.3, same registers: trustworthy"),
        ({}, {}, Level.TRUSTWORTHY, "no measurable cost (+0.0 % ± 0.3), same registers: trustworthy"),
        (
            {},
            {"times_ns": slower(-0.1)},
            Level.TRUSTWORTHY,
            "no measurable cost (-0.1 % ± 0.3), same registers: trustworthy",
        ),
        (
            {},
            {"times_ns": slower(0.6), "registers": 136},
            Level.TRUSTWORTHY,
            "+0.6 % ± 0.3, registers 128 → 136: trustworthy",
        ),
        (
            {"registers": None},
            {"times_ns": slower(4.5)},
            Level.TRUSTWORTHY,
            "+4.5 % ± 0.3, registers unknown: trustworthy",
        ),
        (
            {},
            {"times_ns": slower(5.5)},
            Level.CAREFUL,
            "+5.5 % ± 0.3: the kernel runs longer than it does by itself",
        ),
        (
            {},
            {"times_ns": slower(-6)},
            Level.CAREFUL,
            "-6.0 % ± 0.3: faster than by itself; the records changed how it runs, or something else slowed the run "
            "without them",
        ),
        ({}, {"times_ns": slower(25)}, Level.UNRELIABLE, "+25.0 % ± 0.4: durations unreliable"),
        ({}, {"spills": 12}, Level.UNRELIABLE, SPILLS),
        ({"spills": 4}, {"spills": 12}, Level.UNRELIABLE, "spills grew from 4 to 12: durations unreliable"),
        ({}, {"ctas_per_sm": 4}, Level.CAREFUL, OVERLAP),
        (
            {"ctas_per_sm": 2},
            {"ctas_per_sm": 3},
            Level.CAREFUL,
            "occupancy rose from 2 to 3 CTAs per SM: the kernel overlaps more than it does by itself",
        ),
        (
            {},
            {"times_ns": TIMES_NS[:2]},
            Level.UNKNOWN,
            "too few launches to time (2): run the kernel more often",
        ),
        ({"times_ns": ()}, {}, Level.UNKNOWN, "too few launches to time (0): run the kernel more often"),
        (
            {"times_ns": None, "registers": None},
            {"times_ns": None},
            Level.UNKNOWN,
            "unknown: the capture has no times without records",
        ),
        ({}, {"times_ns": None}, Level.UNKNOWN, "unknown: the capture has no times with records"),
    ],
)
def test_a_verdict(
    kernel: Kernel, clean: dict[str, Any], with_records: dict[str, Any], level: Level, text: str
) -> None:
    verdict = verdict_on(kernel, clean, with_records)
    assert (verdict.level, verdict.text) == (level, text)


def test_the_weightiest_ground_stands_first(kernel: Kernel) -> None:
    verdict = verdict_on(kernel, {}, {"ctas_per_sm": 4, "times_ns": slower(25)})
    assert (verdict.level, verdict.text) == (Level.UNRELIABLE, f"+25.0 % ± 0.4: durations unreliable; {OVERLAP}")
    verdict = verdict_on(kernel, {}, {"ctas_per_sm": 4, "spills": 1, "times_ns": slower(0.6)})
    assert (verdict.level, verdict.text) == (Level.UNRELIABLE, f"{SPILLS}; {OVERLAP}")


def test_what_is_known_to_be_bad_is_said_before_what_is_not_known(kernel: Kernel) -> None:
    verdict = verdict_on(kernel, {"times_ns": None}, {"ctas_per_sm": 4})
    assert verdict.level is Level.CAREFUL
    assert verdict.text == f"{OVERLAP}; unknown: the capture has no times without records"


def test_times_that_scatter_are_not_called_good(kernel: Kernel) -> None:
    """The medians are equal, and might as well be a tenth apart."""
    middle = TIMES_NS[4]
    scattered = tuple(middle + 0.01 * (time - middle) ** 2 * (1 if time > middle else -1) for time in TIMES_NS)
    verdict = verdict_on(kernel, {"times_ns": scattered}, {"times_ns": scattered})
    assert verdict.level is Level.CAREFUL
    assert verdict.text.startswith("+0.0 % ± ")
    assert verdict.text.endswith(
        "the times scatter too much to tell; run the kernel more often, on a GPU that does nothing else"
    )


def test_an_unknown_occupancy_and_unknown_spills_are_not_held_against_it(kernel: Kernel) -> None:
    verdict = verdict_on(kernel, {"ctas_per_sm": None, "spills": None}, {"ctas_per_sm": 4, "spills": 3})
    assert verdict.level is Level.TRUSTWORTHY


def test_the_json_form_has_the_figures(kernel: Kernel) -> None:
    values = verdict_on(kernel, {}, {"times_ns": slower(0.6), "registers": 136}).to_json()
    assert json.loads(json.dumps(values)) == values
    assert values.pop("overhead_error_percent") == pytest.approx(0.26, abs=0.01)
    assert values == {
        "level": "trustworthy",
        "text": "+0.6 % ± 0.3, registers 128 → 136: trustworthy",
        "overhead_percent": 0.6,
        "confidence": 0.95,
        "clean": {
            "registers": 128,
            "spills": 0,
            "shared_bytes": 1024,
            "ctas_per_sm": 8,
            "launches_timed": 9,
            "median_time_ns": 10_000_000.0,
        },
        "with_records": {
            "registers": 136,
            "spills": 0,
            "shared_bytes": 1024,
            "ctas_per_sm": 8,
            "launches_timed": 9,
            "median_time_ns": pytest.approx(10_060_000.0),
        },
    }
