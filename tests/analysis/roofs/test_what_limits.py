"""The sentence that says what limits a launch, by its roofs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from buffers import Scope
from timelines import Ran, cta_rows, made_timeline, scope_rows

from kprof_inject.analysis.roofs.limits import limit_of
from kprof_inject.analysis.roofs.memory import DramBound
from kprof_inject.analysis.roofs.operation_work import NO_WORK
from kprof_inject.analysis.roofs.speed_of_light import Roof, SpeedOfLight
from kprof_inject.analysis.summary import LaunchSummary, summarise
from kprof_inject.analysis.unjudged import Unjudged
from kprof_inject.timeline.idle import IdleSms
from kprof_inject.timeline.trust import Overhead

SMS = 4
UNITS = ("tensor cores", "special functions", "fp32 units", "instruction issue", "shared memory and L1", "L2 to SM")
DURATION_NS = 10_000


def roof(scope: str, sm_cycles: int = 1000, **parts: float) -> Roof:
    named = {name.replace("_", " "): part for name, part in parts.items()}
    return Roof(int(scope != "func"), scope, 1, sm_cycles, NO_WORK, {**dict.fromkeys(UNITS, 0.0), **named})


def dram(least: float, streamed: float | None, *, fits_l2: bool = False, unknown: float | None = None) -> DramBound:
    """Of a memory that moves a byte a nanosecond; parts of the launch. ``unknown`` is that of one operation."""
    streamed_bytes = None if streamed is None else int(streamed * DURATION_NS)
    unknown_bytes = int((unknown or 0.0) * DURATION_NS)
    least_bytes = int(least * DURATION_NS)
    return DramBound(0, 0, least_bytes, streamed_bytes, fits_l2, int(unknown is not None), unknown_bytes, 1e9)


@pytest.fixture
def summary(tmp_path: Path) -> LaunchSummary:
    scopes = [Scope("func"), Scope("loop[0]", "loop", 0)]
    rows = scope_rows([Ran(scope, DURATION_NS, cta, 0, cta) for cta in range(SMS) for scope in (0, 1)])
    ctas = cta_rows(*[(cta, cta, 0, DURATION_NS, DURATION_NS) for cta in range(SMS)])
    return replace(summarise(made_timeline(tmp_path, scopes, [rows], ctas, warps=1)), duration_ns=DURATION_NS)


@pytest.mark.parametrize(
    ("light", "sentence"),
    [
        (
            SpeedOfLight((roof("func", tensor_cores=0.75), roof("loop[0]", 900, tensor_cores=0.858))),
            "limited by the tensor cores (at least 75.0 % of peak, 85.8 % in loop[0])",
        ),
        (
            SpeedOfLight((roof("func", tensor_cores=0.64, L2_to_SM=0.62),)),
            "limited by the tensor cores (at least 64.0 % of peak) and the L2 (62.0 % of peak)",
        ),
        (
            SpeedOfLight((roof("func", tensor_cores=0.55), roof("loop[0]", 800, tensor_cores=0.68))),
            "limited by the tensor cores (at least 68.0 % of peak) in loop[0], 80.0 % of the kernel's time; 55.0 % "
            "over the whole kernel",
        ),
        (
            SpeedOfLight((roof("func", special_functions=0.45, tensor_cores=0.44),)),
            "limited by the special function units and the tensor cores in turn (45.0 % and 44.0 % of peak): "
            "without overlap they take 89.0 % of the time",
        ),
        (
            SpeedOfLight((roof("func", fp32_units=0.1),), dram=dram(0.7, 0.8)),
            "limited by DRAM (at least 70.0 % of peak): the launch has to move 7.0 kB",
        ),
        (
            SpeedOfLight((roof("func", fp32_units=0.1),), dram=dram(0.5, 0.8)),
            "limited by DRAM, most likely (50.0 % to 80.0 % of peak: data that is read again, or at unknown "
            "addresses, may hit the L2)",
        ),
        (
            SpeedOfLight((roof("func", fp32_units=0.1),), dram=dram(0.7, 0.8, fits_l2=True)),
            "limited by latency, or instructions that TTGIR does not show: the busiest unit is the fp32 units (10.0 %)",
        ),
        (
            SpeedOfLight((roof("func", fp32_units=0.2),), exchanges=0.4),
            "limit not known: threads exchange elements (reductions, scans, layout conversions, dots without tensor "
            "cores), which may keep shared memory busy for 40.0 % of the time, or longer where its banks conflict; of "
            "what is known, the busiest unit is the fp32 units (20.0 %)",
        ),
        (
            SpeedOfLight((roof("func", L2_to_SM=0.2),), dram=dram(0.1, 0.74, unknown=0.1)),
            "limited by DRAM, most likely (10.0 % to 74.0 % of peak: data that is read again, or at unknown "
            "addresses, may hit the L2)",
        ),
        (
            SpeedOfLight((roof("func", L2_to_SM=0.44),), dram=dram(0.1, 0.948, unknown=0.5)),
            "limit not known: DRAM may be at 10.0 % to 94.8 % of peak: addresses depend on loaded data, so it is "
            "unknown how much hit the L2; of what is known, the busiest units are the L2 (44.0 %) and DRAM (10.0 %)",
        ),
        (
            SpeedOfLight((roof("func", L2_to_SM=0.44),), dram=dram(0.1, 0.9, fits_l2=True, unknown=0.1)),
            "limit not known: DRAM may be at 0.0 % to 90.0 % of peak: addresses depend on loaded data, so it is "
            "unknown how much hit the L2; of what is known, the busiest unit is the L2 (44.0 %)",
        ),
        (
            SpeedOfLight((roof("func", L2_to_SM=0.44),), dram=dram(0.1, 1.95, unknown=1.8)),
            "limit not known: DRAM would take 195.0 % of the time for all that was requested, so some of it hit the "
            "L2; how much is unknown, as addresses depend on loaded data; of what is known, the busiest units are the "
            "L2 (44.0 %) and DRAM (10.0 %)",
        ),
        (
            SpeedOfLight((roof("func", L2_to_SM=0.44),), dram=dram(0.1, None, unknown=0.0)),
            "limit not known: how often some accesses to memory were executed depends on loaded data or a function "
            "that is called (--at iter counts the iterations of loops); of what is known, the busiest units are the "
            "L2 (44.0 %) and DRAM (10.0 %)",
        ),
        (
            SpeedOfLight((roof("func"),), atomics=1),
            "limited by latency (perhaps of its atomic operations), or instructions that TTGIR does not show: no unit "
            "is busy",
        ),
        (
            SpeedOfLight((), missing=Unjudged("records were lost", "use --fit")),
            "limit not known: records were lost; use --fit",
        ),
    ],
)
def test_the_sentence_names_the_unit_that_is_busiest(
    summary: LaunchSummary, light: SpeedOfLight, sentence: str
) -> None:
    assert limit_of(summary, light, SMS).sentence == sentence


def test_a_small_grid_comes_first(summary: LaunchSummary) -> None:
    light = SpeedOfLight((roof("func", tensor_cores=0.9),))
    assert limit_of(summary, light, 2 * SMS).sentence == (
        "limited by the grid: 4 CTAs on 4 of 8 SMs; on these, the busiest unit is the tensor cores (90.0 %)"
    )


IMPOSSIBLE = {"tensor cores": 3.76}


@pytest.mark.parametrize(
    ("light", "sentence"),
    [
        (
            SpeedOfLight((replace(roof("func", fp32_units=0.2), impossible=IMPOSSIBLE),)),
            "limit not known: by the counts, the tensor cores would be busy for 376.0 % of the time, which is "
            "impossible: the counts or the cycles are wrong; of the others, the busiest unit is the fp32 units "
            "(20.0 %)",
        ),
        (
            SpeedOfLight((replace(roof("func", fp32_units=0.7), impossible=IMPOSSIBLE),)),
            "limited by the fp32 units (at least 70.0 % of peak); left out, as it is impossible: by the counts, the "
            "tensor cores would be busy for 376.0 % of the time",
        ),
        (
            SpeedOfLight((roof("func", fp32_units=0.1),), dram=dram(1.3, 1.3)),
            "limited by DRAM, most likely (0.0 % to 100.0 % of peak: data that is read again, or at unknown addresses, "
            "may hit the L2)",
        ),
        (
            SpeedOfLight((roof("func", fp32_units=0.1),), dram=dram(1.03, 1.03)),
            "limited by DRAM (at least 100.0 % of peak): the launch has to move 10.3 kB",
        ),
    ],
)
def test_what_is_impossible_limits_nothing(summary: LaunchSummary, light: SpeedOfLight, sentence: str) -> None:
    assert limit_of(summary, light, SMS).sentence == sentence


# Of 4 SMs: one and a half wait, a quarter of one has no work in between, one is done.
IDLE = IdleSms(SMS, 0.375, 0.0625, 0.25, 2, 7_500, 0.5, 1, 2_500.0, 0.0)
ON_AVERAGE = "SMs without work: on average, 1.2 of 4 SMs have a CTA; the others wait for their first (37.5 %) or are"


def test_sms_without_work_come_before_what_the_others_do(summary: LaunchSummary) -> None:
    light = SpeedOfLight((roof("func", tensor_cores=0.9),))
    limit = limit_of(replace(summary, idle=IDLE), light, SMS)
    assert limit.sentence == (
        f"limited by {ON_AVERAGE} done (25.0 %); on those that have one, the busiest unit is the tensor cores (90.0 %)"
    )
    assert (limit.name, limit.units, limit.parts["tensor cores"]) == ("SMs without work", (), 0.9)


def test_sms_without_work_need_no_records(summary: LaunchSummary) -> None:
    light = SpeedOfLight((), missing=Unjudged("records were lost", "use --fit"))
    assert limit_of(replace(summary, idle=IDLE), light, SMS).sentence == (
        f"limited by {ON_AVERAGE} done (25.0 %); what limits those that have one is not known: "
        "records were lost; use --fit"
    )


def test_few_sms_may_keep_dram_busy(summary: LaunchSummary) -> None:
    light = SpeedOfLight((roof("func"),), dram=dram(0.7, 0.8))
    assert limit_of(replace(summary, idle=IDLE), light, SMS).units == ("DRAM",)


@pytest.mark.parametrize(("idle_share", "name"), [(0.39, "latency"), (0.41, "SMs without work")])
def test_most_sms_have_work_on_average(summary: LaunchSummary, idle_share: float, name: str) -> None:
    idle = replace(IDLE, before_share=0.0, between_share=0.0, after_share=idle_share)
    assert limit_of(replace(summary, idle=idle), SpeedOfLight((roof("func"),)), None).name == name


def test_sms_that_never_get_a_cta_have_no_work(summary: LaunchSummary) -> None:
    """The grid is large enough, so it is not the grid's fault."""
    assert summary.waves is not None and summary.idle is not None
    full = replace(summary, waves=replace(summary.waves, ctas=2 * SMS))
    assert limit_of(full, SpeedOfLight((roof("func"),)), 2 * SMS).text == (
        "SMs without work: on average, 4.0 of 8 SMs have a CTA; the others never get one (50.0 %); on those that have "
        "one, no unit is busy"
    )


def test_json_has_the_parts_of_all_units(summary: LaunchSummary) -> None:
    made = limit_of(summary, SpeedOfLight((roof("func", tensor_cores=0.9),), dram=dram(0.2, 0.2)), SMS).to_json()
    assert made["units"] == ("tensor cores",)
    assert (made["parts"]["tensor cores"], made["parts"]["DRAM"], made["is_known"]) == (0.9, 0.2, True)


@pytest.mark.parametrize(
    ("light", "name"),
    [
        (SpeedOfLight((roof("func", tensor_cores=0.75),)), "tensor cores 75 %"),
        (SpeedOfLight((roof("func", tensor_cores=0.64, L2_to_SM=0.62),)), "tensor cores and L2 to SM 64 %"),
        (SpeedOfLight((roof("func"),)), "latency"),
        (SpeedOfLight((), missing=Unjudged("records were lost", "use --fit")), "not known"),
    ],
)
def test_its_name_is_a_word_or_two(summary: LaunchSummary, light: SpeedOfLight, name: str) -> None:
    assert limit_of(summary, light, SMS).name == name


@pytest.mark.parametrize(
    ("overhead", "part"),
    [(None, 0.5), (Overhead(6.0, 2.0), 0.5), (Overhead(-9.0, 10.0), 0.5), (Overhead(40.0, 10.0), 0.65)],
)
def test_parts_are_of_the_time_without_records_where_they_certainly_cost_much(
    summary: LaunchSummary, overhead: Overhead | None, part: float
) -> None:
    light = SpeedOfLight((roof("func", ALU=0.5, fp32_units=0.1),), dram=dram(0.2, 0.2))
    limit = limit_of(summary, light, SMS, overhead)
    assert limit.parts["ALU"] == pytest.approx(part)
    assert limit.parts["DRAM"] == pytest.approx(part / 2.5)
    told = "limited by the ALU (at least 65.0 % of peak); the 30.0 % that recording adds, at least, are left out"
    assert (limit.sentence == told) == (part > 0.6)
    assert ("recording adds" in limit.text) == (part > 0.6)


def test_parts_are_of_the_time_without_records_where_records_make_the_launch_faster(summary: LaunchSummary) -> None:
    """Else they would not be lower bounds of the program's."""
    light = SpeedOfLight((roof("func", ALU=0.9), roof("loop[0]", ALU=0.95)))
    limit = limit_of(summary, light, SMS, Overhead(-19.0, 1.0))
    assert limit.parts["ALU"] == pytest.approx(0.72)
    told = "limited by the ALU (at least 72.0 % of peak, 76.0 % in loop[0]); without records the launch takes up to "
    assert limit.sentence == told + "25.0 % longer, which is taken into account"
    assert limit_of(summary, light, SMS, Overhead(-2.0, 1.0)).sentence == (
        "limited by the ALU (at least 87.3 % of peak, 92.2 % in loop[0])"
    )


def test_no_part_is_above_its_peak_for_want_of_records(summary: LaunchSummary) -> None:
    light = SpeedOfLight((roof("func", ALU=0.9),))
    assert limit_of(summary, light, SMS, Overhead(50.0, 1.0)).parts["ALU"] == 1.0
