"""The sentence that says what limits a launch, by its roofs."""

from __future__ import annotations

from pathlib import Path

import pytest
from barrier_launches import launch
from buffers import Scope
from replacing import replace
from snapshots import check
from timelines import Ran, cta_rows, made_timeline, scope_rows

from kprof_inject.analysis.limits.coalescing import Requests
from kprof_inject.analysis.limits.judges import limit_by_bounds as limit_of
from kprof_inject.analysis.limits.limit import CodeBounds
from kprof_inject.analysis.limits.memory import DramBound
from kprof_inject.analysis.limits.operation_work import NO_WORK, Work
from kprof_inject.analysis.limits.rates import ALU, ISSUE
from kprof_inject.analysis.limits.speed_of_light import Roof, SpeedOfLight
from kprof_inject.analysis.summary import LaunchSummary, summarise
from kprof_inject.analysis.unjudged import Unjudged
from kprof_inject.timeline.trust import Overhead
from kprof_inject.timeline.waves import IdleSms

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
    reason = "addresses depend on loaded data"
    return DramBound(
        least_bytes, 0, least_bytes, streamed_bytes, fits_l2, int(unknown is not None), unknown_bytes, 1e9, reason
    )


@pytest.fixture
def summary(tmp_path: Path) -> LaunchSummary:
    scopes = [Scope("func"), Scope("loop[0]", "loop", 0)]
    rows = scope_rows([Ran(scope, DURATION_NS, cta, 0, cta) for cta in range(SMS) for scope in (0, 1)])
    ctas = cta_rows(*[(cta, cta, 0, DURATION_NS, DURATION_NS) for cta in range(SMS)])
    return replace(summarise(made_timeline(tmp_path, scopes, [rows], ctas, warps=1)), duration_ns=DURATION_NS)


@pytest.mark.parametrize(
    ("light", "case"),
    [
        (
            SpeedOfLight((roof("func", tensor_cores=0.75), roof("loop[0]", 900, tensor_cores=0.858))),
            "one unit, busier in a loop",
        ),
        (SpeedOfLight((roof("func", tensor_cores=0.64, L2_to_SM=0.62),)), "two units"),
        (SpeedOfLight((roof("func", tensor_cores=0.55), roof("loop[0]", 800, tensor_cores=0.68))), "a unit in a loop"),
        (SpeedOfLight((roof("func", special_functions=0.45, tensor_cores=0.44),)), "two units in turn"),
        (SpeedOfLight((roof("func", fp32_units=0.1),), dram=dram(0.7, 0.8)), "DRAM"),
        (SpeedOfLight((roof("func", fp32_units=0.1),), dram=dram(0.4, 0.8)), "DRAM or L2, most likely"),
        (SpeedOfLight((roof("func", fp32_units=0.1),), dram=dram(0.7, 0.8, fits_l2=True)), "data that fits the L2"),
        (SpeedOfLight((roof("func", fp32_units=0.2),), exchanges=0.4), "threads that exchange elements"),
        (
            SpeedOfLight((roof("func", L2_to_SM=0.2),), dram=dram(0.1, 0.74, unknown=0.1)),
            "a little at unknown addresses",
        ),
        (SpeedOfLight((roof("func", L2_to_SM=0.44),), dram=dram(0.1, 0.948, unknown=0.5)), "half at unknown addresses"),
        (
            SpeedOfLight((roof("func", L2_to_SM=0.44),), dram=dram(0.1, 0.9, fits_l2=True, unknown=0.1)),
            "unknown addresses, in the L2",
        ),
        (SpeedOfLight((roof("func", L2_to_SM=0.44),), dram=dram(0.1, 1.95, unknown=1.8)), "more than DRAM can move"),
        (
            SpeedOfLight((roof("func", L2_to_SM=0.44),), dram=dram(0.1, None, unknown=0.0)),
            "accesses that cannot be counted",
        ),
        (SpeedOfLight((roof("func"),), atomics=1), "atomic operations"),
        (SpeedOfLight((), missing=Unjudged("records were lost", "use --fit")), "lost records"),
    ],
)
def test_the_sentence_names_the_unit_that_is_busiest(summary: LaunchSummary, light: SpeedOfLight, case: str) -> None:
    check("analysis/limits", limit_of(summary, light, SMS).sentence, case)


def test_a_small_grid_comes_first(summary: LaunchSummary) -> None:
    light = SpeedOfLight((roof("func", tensor_cores=0.9),))
    limit = limit_of(summary, light, 2 * SMS)
    assert limit.name == "grid"
    check("analysis/limits", limit.sentence, "a small grid")


IMPOSSIBLE = {"tensor cores": 3.76}


@pytest.mark.parametrize(
    ("light", "case"),
    [
        (SpeedOfLight((replace(roof("func", fp32_units=0.2), impossible=IMPOSSIBLE),)), "an impossible unit"),
        (
            SpeedOfLight((replace(roof("func", fp32_units=0.7), impossible=IMPOSSIBLE),)),
            "an impossible unit, a limiting one",
        ),
        (SpeedOfLight((roof("func", fp32_units=0.1),), dram=dram(1.3, 1.3)), "more than DRAM could move"),
        (SpeedOfLight((roof("func", fp32_units=0.1),), dram=dram(1.03, 1.03)), "about what DRAM can move"),
    ],
)
def test_what_is_impossible_limits_nothing(summary: LaunchSummary, light: SpeedOfLight, case: str) -> None:
    check("analysis/limits", limit_of(summary, light, SMS).sentence, case)


# Of 4 SMs: one and a half wait, a quarter of one has no work in between, one is done.
IDLE = IdleSms(SMS, 0.375, 0.0625, 0.25, 1, 2_500.0, 0.0)


def test_sms_without_work_come_before_what_the_others_do(summary: LaunchSummary) -> None:
    light = SpeedOfLight((roof("func", tensor_cores=0.9),))
    limit = limit_of(replace(summary, idle=IDLE), light, SMS)
    check("analysis/limits", limit.sentence, "SMs without work")
    assert (limit.name, limit.units, limit.parts["tensor cores"]) == ("SMs without work", (), 0.9)


def test_sms_without_work_need_no_records(summary: LaunchSummary) -> None:
    light = SpeedOfLight((), missing=Unjudged("records were lost", "use --fit"))
    limit = limit_of(replace(summary, idle=IDLE), light, SMS)
    assert limit.name == "SMs without work"
    check("analysis/limits", limit.sentence, "SMs without work, lost records")


def test_few_sms_may_keep_dram_busy(summary: LaunchSummary) -> None:
    light = SpeedOfLight((roof("func"),), dram=dram(0.7, 0.8))
    assert limit_of(replace(summary, idle=IDLE), light, SMS).units == ("DRAM", "L2")


@pytest.mark.parametrize(("idle_share", "name"), [(0.39, "latency"), (0.41, "SMs without work")])
def test_most_sms_have_work_on_average(summary: LaunchSummary, idle_share: float, name: str) -> None:
    idle = replace(IDLE, before_share=0.0, between_share=0.0, after_share=idle_share)
    assert limit_of(replace(summary, idle=idle), SpeedOfLight((roof("func"),)), None).name == name


def test_the_l2_rests_while_sms_have_no_work(summary: LaunchSummary) -> None:
    idle = replace(IDLE, before_share=0.0, between_share=0.0, after_share=0.25)
    light = lit(L2_to_SM=0.7, tensor_cores=0.1, loop=roof("loop[0]", 900, L2_to_SM=0.7))
    assert limit_of(replace(summary, idle=None), light, SMS).name == "L2 to SM 70 %"
    found = limit_of(replace(summary, idle=idle), light, SMS)
    assert found.name == "L2, most likely"
    assert (found.parts["L2 to SM"], found.parts["tensor cores"]) == pytest.approx((0.525, 0.1))


@pytest.mark.parametrize(
    ("parts", "scattered", "name"),
    [
        ({"ALU": 0.72}, 510, "ALU 72 %"),
        ({"ALU": 0.72}, 530, "not known"),
        ({"ALU": 0.72, "shared_memory_and_L1": 0.65}, 530, "ALU and shared memory and L1 72 %"),
        ({"ALU": 0.4}, 390, "latency"),
        ({"ALU": 0.4}, 410, "not known"),
    ],
)
def test_scattered_accesses_may_take_a_cycle_each(
    summary: LaunchSummary, parts: dict[str, float], scattered: int, name: str
) -> None:
    """The roof has 1,000 cycles, of which shared memory and L1 need 200 without conflicts."""
    bound = replace(dram(0.1, 0.2, unknown=0.1), scattered=scattered)
    light = lit(more=SpeedOfLight((), dram=bound), **{"shared_memory_and_L1": 0.2, **parts})
    assert limit_of(summary, light, SMS).name == name


def test_sms_that_never_get_a_cta_have_no_work(summary: LaunchSummary) -> None:
    """The grid is large enough, so it is not the grid's fault."""
    assert summary.waves is not None and summary.idle is not None
    full = replace(summary, waves=replace(summary.waves, ctas=2 * SMS))
    limit = limit_of(full, SpeedOfLight((roof("func"),)), 2 * SMS)
    assert limit.name == "SMs without work"
    check("analysis/limits", limit.text, "SMs that never get a CTA")


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
    assert limit.name == ("ALU 65 %" if part > 0.6 else "latency, or ALU 50 %")
    assert ("recording" in limit.text) == (part > 0.6)
    if part > 0.6:
        check("analysis/limits", limit.sentence, "records that cost much")


def test_parts_are_of_the_time_without_records_where_records_make_the_launch_faster(summary: LaunchSummary) -> None:
    """Else they would not be lower bounds of the program's."""
    light = SpeedOfLight((roof("func", ALU=0.9), roof("loop[0]", ALU=0.95)))
    limit = limit_of(summary, light, SMS, Overhead(-19.0, 1.0))
    assert limit.parts["ALU"] == pytest.approx(0.72)
    check("analysis/limits", limit.sentence, "records that make the launch faster")
    little = limit_of(summary, light, SMS, Overhead(-2.0, 1.0))
    assert little.parts["ALU"] == pytest.approx(0.873)
    check("analysis/limits", little.sentence, "records that change little")


def test_no_part_is_above_its_peak_for_want_of_records(summary: LaunchSummary) -> None:
    light = SpeedOfLight((roof("func", ALU=0.9),))
    assert limit_of(summary, light, SMS, Overhead(50.0, 1.0)).parts["ALU"] == 1.0


def lit(*, loop: Roof | None = None, more: SpeedOfLight | None = None, **parts: float) -> SpeedOfLight:
    """A kernel with these parts, and perhaps a loop; what else is known of it is that of ``more``."""
    return replace(more or SpeedOfLight(()), roofs=(roof("func", **parts), *([loop] if loop else [])))


@pytest.mark.parametrize(
    ("light", "name"),
    [
        # A unit limits from 60 %; units within 10 points of it do, too.
        (lit(tensor_cores=0.6), "tensor cores 60 %"),
        (lit(tensor_cores=0.59), "latency, or tensor cores 59 %"),
        (lit(tensor_cores=0.75, L2_to_SM=0.66), "tensor cores and L2 to SM 75 %"),
        (lit(tensor_cores=0.75, L2_to_SM=0.64), "tensor cores 75 %"),
        # Two units in turn from 75 % together.
        (lit(special_functions=0.45, fp32_units=0.31), "special functions and fp32 units in turn"),
        (lit(special_functions=0.45, fp32_units=0.29), "latency"),
        (lit(special_functions=0.45, ALU=0.45), "latency"),
        # A loop from half of the kernel's time.
        (lit(loop=roof("loop[0]", 500, fp32_units=0.6)), "fp32 units 60 %"),
        (lit(loop=roof("loop[0]", 499, fp32_units=0.6)), "latency"),
        (lit(loop=roof("loop[0]", 900, fp32_units=0.59)), "latency"),
        # All that is requested of DRAM, where no other unit may be the limit.
        (lit(ALU=0.5, more=SpeedOfLight((), dram=dram(0.1, 0.6))), "DRAM or L2, most likely"),
        (lit(ALU=0.5, more=SpeedOfLight((), dram=dram(0.1, 0.59))), "latency, or ALU 50 %"),
        (lit(ALU=0.51, more=SpeedOfLight((), dram=dram(0.1, 0.6))), "latency, or ALU 51 %"),
        (lit(ALU=0.51, more=SpeedOfLight((), dram=dram(0.1, 0.62))), "DRAM or L2, most likely"),
        (lit(more=SpeedOfLight((), dram=dram(0.1, 0.9, fits_l2=True))), "latency"),
        (lit(more=SpeedOfLight((), dram=dram(0.49, 0.8))), "DRAM or L2, most likely"),
        # DRAM from 50 %, as it cannot reach its peak.
        (lit(more=SpeedOfLight((), dram=dram(0.5, 0.8))), "DRAM 50 %, and L2"),
        (lit(ALU=0.52, more=SpeedOfLight((), dram=dram(0.5, 0.5))), "latency, or ALU and DRAM 52 %"),
        # The L2 may be busier than by what SMs read.
        (lit(L2_to_SM=0.4), "not known"),
        (lit(L2_to_SM=0.45), "not known"),
        (lit(L2_to_SM=0.46), "L2, most likely"),
        (lit(L2_to_SM=0.3, more=SpeedOfLight((), l2_writes=0.21)), "L2, most likely"),
        (lit(L2_to_SM=0.3, more=SpeedOfLight((), l2_writes=0.2)), "latency"),
        (lit(L2_to_SM=0.46, ALU=0.59, tensor_cores=0.1), "L2, most likely"),
        (lit(L2_to_SM=0.39), "latency"),
        # What the L2 may have, if all of it was read and written once in the launch's time.
        (lit(more=SpeedOfLight((), dram=dram(0.59, 1.2, fits_l2=True))), "latency"),
        (lit(more=SpeedOfLight((), dram=dram(0.6, 1.2, fits_l2=True))), "DRAM or L2, most likely"),
        (lit(ALU=0.51, more=SpeedOfLight((), dram=dram(0.6, 1.2, fits_l2=True))), "not known"),
        (lit(ALU=0.51, more=SpeedOfLight((), dram=dram(0.49, 1.2, fits_l2=True))), "latency, or ALU 51 %"),
        (lit(ALU=0.51, more=SpeedOfLight((), dram=dram(0.62, 1.2, fits_l2=True))), "DRAM or L2, most likely"),
        (lit(more=SpeedOfLight((), dram=dram(1.06, 1.2, fits_l2=True))), "DRAM or L2, most likely"),
        (lit(ALU=0.7, more=SpeedOfLight((), dram=dram(0.71, 1.2, fits_l2=True))), "ALU 70 %, or DRAM or L2"),
        (lit(ALU=0.7, more=SpeedOfLight((), dram=dram(0.69, 1.2, fits_l2=True))), "ALU 70 %"),
        # Less than 60 % without the operations whose addresses are unknown.
        (lit(more=SpeedOfLight((), dram=dram(0.1, 0.9, unknown=0.31))), "not known"),
        (lit(more=SpeedOfLight((), dram=dram(0.1, 0.9, unknown=0.29))), "DRAM or L2, most likely"),
        (lit(more=SpeedOfLight((), dram=dram(0.1, 1.0, unknown=0.29))), "DRAM or L2, most likely"),
        (lit(more=SpeedOfLight((), dram=dram(0.1, 1.1, unknown=0.29))), "not known"),
        (lit(more=SpeedOfLight((), dram=dram(0.1, 1.1))), "DRAM or L2, most likely"),
        (lit(fp32_units=0.3, more=SpeedOfLight((), exchanges=0.3)), "not known"),
        (lit(fp32_units=0.1, more=SpeedOfLight((), exchanges=0.29)), "latency"),
        (lit(fp32_units=0.31, more=SpeedOfLight((), exchanges=0.3)), "latency"),
    ],
)
def test_from_where_on_each_is_the_limit(summary: LaunchSummary, light: SpeedOfLight, name: str) -> None:
    assert limit_of(summary, light, SMS).name == name


@pytest.mark.parametrize(
    ("ctas", "device_sms", "name"),
    [(SMS, 6, "latency"), (SMS, 7, "grid"), (7, 7, "latency"), (6, 7, "grid"), (SMS, None, "latency")],
)
def test_a_grid_is_small_on_less_than_six_tenths_of_the_sms(
    summary: LaunchSummary, ctas: int, device_sms: int | None, name: str
) -> None:
    assert summary.waves is not None
    full = replace(summary, waves=replace(summary.waves, ctas=ctas), idle=None)
    assert limit_of(full, lit(), device_sms).name == name
    assert limit_of(replace(summary, waves=None, idle=None), lit(), device_sms).name == "latency"


def test_reasons_of_a_tenth_of_the_sms_or_more_are_given(summary: LaunchSummary) -> None:
    idle = replace(IDLE, before_share=0.32, between_share=0.1, after_share=0.09)
    text = limit_of(replace(summary, idle=idle), lit(), SMS).text
    assert [share in text for share in ("(32.0 %)", "(10.0 %)", "(9.0 %)")] == [True, True, False]


@pytest.mark.parametrize(
    ("overhead", "part"), [(Overhead(7.0, 2.0), 0.5), (Overhead(8.0, 2.0), 0.53), (Overhead(-3.0, 2.0), 0.475)]
)
def test_what_records_cost_counts_from_5_percent(summary: LaunchSummary, overhead: Overhead, part: float) -> None:
    assert limit_of(summary, lit(ALU=0.5), SMS, overhead).parts["ALU"] == pytest.approx(part)


def test_what_records_cost_is_of_the_time_with_ctas(summary: LaunchSummary) -> None:
    """In 1,250 of the cycles, CTAs are on the SMs; in 1,000, they run the kernel."""
    light = lit(ALU=0.7, more=SpeedOfLight((), resident_cycles=1250))
    overhead = Overhead(40.0, 10.0)
    assert limit_of(summary, light, SMS, overhead).parts["ALU"] == pytest.approx(1.3 * 0.7 / 1.25)
    assert limit_of(summary, light, SMS).parts["ALU"] == 0.7
    shorter = replace(light, resident_cycles=900)
    assert limit_of(summary, shorter, SMS, overhead).parts["ALU"] == pytest.approx(1.3 * 0.7)


def test_a_loop_is_judged_by_its_time_with_records(summary: LaunchSummary) -> None:
    light = lit(ALU=0.3, loop=roof("loop[0]", 900, ALU=0.5))
    assert limit_of(summary, light, SMS, Overhead(40.0, 10.0)).name == "latency"


def test_a_loop_that_is_less_busy_than_the_kernel_is_not_named(summary: LaunchSummary) -> None:
    busier, less = (
        limit_of(summary, lit(tensor_cores=0.7, loop=roof("loop[0]", 900, tensor_cores=part)), SMS)
        for part in (0.72, 0.68)
    )
    assert ("loop[0]" in busier.text, "loop[0]" in less.text) == (True, False)


def test_of_several_loops_the_longest_is_named(summary: LaunchSummary) -> None:
    loops = (
        roof("loop[0]", 600, fp32_units=0.7),
        roof("loop[1]", 900, tensor_cores=0.8),
        roof("loop[2]", 700, ALU=0.9),
    )
    found = limit_of(summary, SpeedOfLight((roof("func", tensor_cores=0.5), *loops)), SMS)
    assert found.name == "tensor cores 80 %"
    # Of a kernel at a unit's peak, it is the longest of those that use this unit.
    loops = (
        roof("loop[0]", 600, tensor_cores=0.83),
        roof("loop[1]", 800, tensor_cores=0.84),
        roof("loop[2]", 900, ALU=0.9),
    )
    found = limit_of(summary, SpeedOfLight((roof("func", tensor_cores=0.7), *loops)), SMS)
    assert found.name == "tensor cores 70 %" and "84" in found.text and "83" not in found.text


def test_latency_says_how_busy_the_two_busiest_units_are_and_how_long_the_bytes_take(summary: LaunchSummary) -> None:
    def text(light: SpeedOfLight) -> str:
        found = limit_of(summary, light, SMS)
        assert found.name == "latency"
        return found.text

    three = text(lit(tensor_cores=0.3, fp32_units=0.2, L2_to_SM=0.15))
    assert "30" in three and "20" in three and "15" not in three
    assert "5.0 %" in text(lit(tensor_cores=0.02, fp32_units=0.05))
    assert "%" not in text(lit())
    moved, in_l2 = (text(lit(more=SpeedOfLight((), dram=dram(0.3, 0.5, fits_l2=fits)))) for fits in (False, True))
    assert "3.00 µs" in moved and "µs" not in in_l2


def test_a_limit_as_an_answer_and_as_a_sentence(summary: LaunchSummary) -> None:
    known = limit_of(summary, lit(ALU=0.7), SMS)
    assert known.answer == known.text
    assert known.sentence.endswith(known.text) and known.sentence != known.text
    unknown = limit_of(summary, SpeedOfLight(()), SMS)
    assert "--at func" in unknown.text
    assert (unknown.name, unknown.units, unknown.is_known) == ("not known", (), False)
    assert unknown.answer == f"not known: {unknown.text}"
    assert unknown.sentence.endswith(f"not known: {unknown.text}")


def test_integer_multiplications_are_named_if_they_are_most_of_the_fp32_units_work(summary: LaunchSummary) -> None:
    def text(**work: float) -> str:
        made = replace(roof("func", fp32_units=0.7), work=Work(**work))
        return limit_of(summary, SpeedOfLight((made,)), SMS).text

    assert "integer multiplication" in text(integer_multiplications=3, multiplications=2, additions=2)
    assert "integer multiplication" not in text(integer_multiplications=2, multiplications=2)
    assert "integer multiplication" not in text(integer_multiplications=2, additions=3)
    other = replace(roof("func", ALU=0.7), work=Work(integer_multiplications=3))
    assert "integer multiplication" not in limit_of(summary, SpeedOfLight((other,)), SMS).text


@pytest.mark.parametrize(
    ("bounds", "exchanges", "name", "is_known"),
    [
        (CodeBounds({ALU: 0.87, ISSUE: 0.6}, 0.02), 0.0, "ALU 87 %", True),
        (CodeBounds({ALU: 0.2}, 0.02), 0.0, "latency", True),
        (CodeBounds({ALU: 0.2}, 0.46), 0.0, "not known", False),
        (CodeBounds({ALU: 0.2}, 0.46), 0.3, "not known", False),
        # The instructions show what is exchanged.
        (CodeBounds({ALU: 0.2}, 0.02), 0.3, "latency", True),
    ],
)
def test_machine_code_shows_more_than_ttgir(
    summary: LaunchSummary, bounds: CodeBounds, exchanges: float, name: str, is_known: bool
) -> None:
    light = SpeedOfLight((roof("func", fp32_units=0.1),), exchanges=exchanges)
    limit = limit_of(summary, light, SMS, None, bounds)
    assert (limit.name, limit.is_known, limit.evidence) == (name, is_known, "computed")
    assert limit.parts[ALU] == bounds.parts[ALU]


def strided(instructions: int, *, sectors: float = 32, wavefronts: float = 8) -> Requests:
    """Loads of 4 bytes a lane: for adjacent ones, four sectors and a cycle of the L1 would do."""
    return Requests(9, "load", 4, instructions, 1.0, sectors, 4, 8, 1, wavefronts, "of 'x' at k.py:7")


@pytest.mark.parametrize(
    ("part", "instructions", "conflict_cycles", "name"),
    [
        (0.8, 50, 350, "uncoalesced access"),
        (0.8, 10, 70, "shared memory and L1 80 %"),
        # Bank conflicts take more.
        (0.8, 50, 750, "shared memory and L1 80 %"),
        # Or the L2, which looks up the lines.
        (0.45, 50, 350, "not known"),
        (0.45, 30, 350, "latency"),
    ],
)
def test_uncoalesced_access_keeps_the_l1_busy(
    summary: LaunchSummary, part: float, instructions: int, conflict_cycles: int, name: str
) -> None:
    made = replace(roof("func", shared_memory_and_L1=part), work=Work(conflict_cycles=conflict_cycles))
    limit = limit_of(summary, SpeedOfLight((made,)), SMS, requests=(strided(instructions),))
    assert limit.name == name
    touched = "each load of 'x' at k.py:7 touches 32.0 sectors of 32 bytes, where 4 would do"
    assert (touched in limit.text) == (name in ("uncoalesced access", "latency", "not known"))


@pytest.mark.parametrize(("sectors", "name"), [(32, "uncoalesced access"), (5, "L2 to SM 80 %")])
def test_uncoalesced_loads_keep_the_l2_busy(summary: LaunchSummary, sectors: float, name: str) -> None:
    light = SpeedOfLight((roof("func", L2_to_SM=0.8),))
    assert limit_of(summary, light, SMS, requests=(strided(5, sectors=sectors),)).name == name


@pytest.mark.parametrize(
    ("stores", "loads", "name"),
    [
        (21, 0, "latency"),
        (42, 0, "uncoalesced access, most likely"),
        (21, 21, "uncoalesced access, most likely"),
        (10, 32, "not known"),
    ],
)
def test_the_l2_looks_up_the_lines_of_uncoalesced_accesses(
    summary: LaunchSummary, stores: int, loads: int, name: str
) -> None:
    """The roof has 1,000 cycles, in which the L2 looks up 550 lines, 8 for each access. Loads may hit the L1."""
    requests = (strided(loads, wavefronts=1), replace(strided(stores, wavefronts=1), kind="store"))
    limit = limit_of(summary, SpeedOfLight((roof("func"),)), SMS, requests=requests)
    assert limit.name == name
    assert ("it looks up lines" in limit.text) == (name != "latency")


@pytest.mark.parametrize(
    ("overhead", "duration", "clean", "part"),
    [
        (Overhead(50.0, 0.0), 1.0, None, 0.75),
        # The launch itself takes only a quarter longer than it does without records.
        (Overhead(50.0, 0.0), 1.25, 1.0, 0.625),
        (Overhead(50.0, 0.0), 0.9, 1.0, 0.5),
    ],
)
def test_what_records_cost_outside_of_the_launch_does_not_count(
    summary: LaunchSummary, overhead: Overhead, duration: float, clean: float | None, part: float
) -> None:
    light = SpeedOfLight((roof("func", ALU=0.5),))
    clean_ns = clean and clean * summary.duration_ns / duration
    assert limit_of(summary, light, SMS, overhead, clean_ns=clean_ns).parts["ALU"] == pytest.approx(part)


def test_uncoalesced_loads_of_data_that_may_be_in_the_l2(summary: LaunchSummary) -> None:
    light = SpeedOfLight((roof("func"),), dram=dram(0.7, 0.8, fits_l2=True))
    assert limit_of(summary, light, SMS, requests=(strided(5),)).text.endswith("where 4 would do")


def test_a_kernel_whose_executions_are_unknown_was_recorded(summary: LaunchSummary) -> None:
    limit = limit_of(summary, SpeedOfLight((), unknown=3), SMS)
    assert not limit.is_known
    assert limit.text.startswith("how often its operations are executed is unknown")


@pytest.mark.parametrize(
    ("light", "case"),
    [
        (SpeedOfLight((roof("func", tensor_cores=0.2),)), "waits for memory"),
        (
            SpeedOfLight((), missing=Unjudged("records were lost", "use --fit")),
            "waits for memory, and nothing else known",
        ),
    ],
)
def test_waits_for_memory_are_the_limit_before_what_is_not_known(
    tmp_path: Path, light: SpeedOfLight, case: str
) -> None:
    """Two CTAs run for 1 ms, and one waits for 0.9 ms of it."""
    waiting = summarise(launch(tmp_path, [[(50_000, 950_000)], [(949_500, 950_100)]]))
    limit = limit_of(waiting, light, 2)
    check("analysis/limits", limit.sentence, case)
    assert (limit.name, limit.units, limit.is_known) == ("waits for memory", (), True)


def test_short_waits_for_memory_and_those_beside_a_busy_unit_are_not(tmp_path: Path) -> None:
    short = summarise(launch(tmp_path / "a", [[(50_000, 800_000)], [(795_000, 800_100)]]))
    busy = summarise(launch(tmp_path / "b", [[(50_000, 950_000)], [(949_500, 950_100)]]))
    idle, at_roof = (SpeedOfLight((roof("func", tensor_cores=part),)) for part in (0.2, 0.7))
    assert limit_of(short, idle, 2).name == "latency"
    assert limit_of(busy, at_roof, 2).name == "tensor cores 70 %"
