"""All rules together: of a healthy launch nothing is found, of a fault the fault first, and of little, little."""

from __future__ import annotations

from pathlib import Path

import pytest
from buffers import Cta, Scope, end, save_launch, start
from known_kernels import Known, evidence_of, found_in, launched, rules_of
from replacing import replace
from snapshots import check

from kprof_inject.analysis.findings.rules import judge_by_rules
from kprof_inject.analysis.limits.operation_work import NO_WORK
from kprof_inject.analysis.limits.speed_of_light import Roof, SpeedOfLight
from kprof_inject.timeline.choice import Choice, NumberSet
from kprof_inject.timeline.timeline import decode_launch


def test_no_more_can_be_won_than_the_busiest_unit_leaves(tmp_path: Path) -> None:
    """The excess of the first iteration is 2500 ns of 7080. With more in flight, units are a little faster."""
    timeline = launched(tmp_path, Known(before_ns=2500, iterations_ns=(2600, *(100,) * 19)))
    evidence = evidence_of(timeline)
    parts = {"ALU": 0.7, "tensor cores": 0.1}
    light = SpeedOfLight((Roof(0, "func", 1, 1000, NO_WORK, parts), Roof(1, "loop[0]", 1, 900, NO_WORK, {"ALU": 0.95})))
    alone, beside = (
        {one.rule: one for said in judge_by_rules(replace(evidence, speed_of_light=its)) for one in said.findings}
        for its in (evidence.speed_of_light, light)
    )
    assert list(alone) == list(beside) == ["prologue", "first-iterations"]
    assert all(one.share > 0.35 for one in alone.values())
    assert [one.share for one in beside.values()] == pytest.approx([1 - 0.7 / 1.05] * 2)
    for rule, one in beside.items():
        bound = one.text.removeprefix(f"{alone[rule].text}; ")
        assert "33.3 %" in bound and "ALU" in bound and "70.0 %" in bound
        check("analysis/findings", bound, "what the busiest unit leaves")


@pytest.mark.parametrize(
    ("unit", "slots", "most"),
    [
        ("tensor cores", 1, 1 - 8 / 132),
        ("tensor cores", 4, 1 - 0.84 * 8 / 132),
        ("DRAM", 1, 0.2),
        ("DRAM", 4, 0.2),
    ],
)
def test_idle_sms_may_take_the_work_of_others(tmp_path: Path, unit: str, slots: int, most: float) -> None:
    """The computed utilization of an SM's unit is that of SMs with work, here 8; DRAM's is that of all SMs."""
    evidence = replace(evidence_of(launched(tmp_path, kernel={"sm_count": 132})), parts={unit: 0.84})
    assert evidence.summary.waves is not None
    summary = replace(evidence.summary, waves=replace(evidence.summary.waves, slots_per_sm=slots))
    judgements = judge_by_rules(replace(evidence, summary=summary))
    shares = {one.rule: one.share for said in judgements for one in said.findings}
    assert shares["low-fill"] == pytest.approx(most)


def test_the_order_that_has_the_longest_first(tmp_path: Path) -> None:
    """Each row has CTAs of 1, 1 and 6 units. In rows, the launch takes 8 on four SMs; with the last column first, 6."""
    free_ns, ctas = [0] * 4, []
    for units in (1, 1, 6) * 3:
        sm = free_ns.index(min(free_ns))
        ctas.append((sm, free_ns[sm], free_ns[sm] + units * Known().duration_ns))
        free_ns[sm] = ctas[-1][2]
    timeline = launched(tmp_path, ctas=ctas, kernel={"sm_count": 4})
    in_plane = replace(timeline, launch=replace(timeline.launch, grid=(3, 3, 1)))
    (finding,) = (one for one in found_in(in_plane) if one.rule == "uneven-ctas")
    check("analysis/findings", finding.advice, "an order that has the longest first")
    assert finding.figures["columns_reversed"] == pytest.approx(2 / 8)
    (in_line,) = (one for one in found_in(timeline) if one.rule == "uneven-ctas")
    assert in_line.advice.startswith("start the longest CTAs first; see"), "no simple order does"


def test_of_warps_that_were_chosen(tmp_path: Path) -> None:
    timeline = launched(tmp_path, Known(work_ns={0: 90, 1: 20, 2: 20, 3: 20}))
    assert rules_of(timeline) == ["imbalanced-warps"]
    assert rules_of(timeline.chosen(Choice(warps=NumberSet.of([0, 1])))) == []


@pytest.mark.parametrize(
    ("scopes", "ctas", "slots"),
    [
        (Known().scopes, [None, None], 4),
        (Known().scopes, [Cta([[], []]), Cta([[], []])], 4),
        ([Scope("func")], [Cta([[start(0, 10), end(0, 1990)]])], 4),
        ([Scope("here", "mark")], [Cta([[start(0, 10), end(0, 20)]])], 4),
        # They cross each other.
        (
            [Scope("a", "marker"), Scope("b", "marker")],
            [Cta([[start(0, 10), start(1, 500), end(0, 900), end(1, 1500)]] * 4)],
            8,
        ),
        # The ring kept the last two iterations.
        ([Scope("iter[0]", "iter")], [Cta([[e(0, at) for at in range(0, 1600, 80) for e in (start, end)]])], 4),
        ([], [Cta([[]])], 4),
    ],
    ids=["never ran", "empty", "no loops", "marks only", "crossing", "lost", "no scopes"],
)
def test_of_little_nothing_is_found(tmp_path: Path, scopes: list[Scope], ctas: list[Cta | None], slots: int) -> None:
    assert found_in(decode_launch(save_launch(tmp_path, scopes, ctas, slots))) == ()
