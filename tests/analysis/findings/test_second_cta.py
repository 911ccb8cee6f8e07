"""CTAs that share an SM and get little more done than one."""

from __future__ import annotations

from pathlib import Path

import pytest
from known_kernels import ITER, evidence_of, launched, sentences_of
from replacing import replace
from snapshots import check

from kprof_inject.analysis.findings.evidence import Evidence
from kprof_inject.analysis.findings.finding import Finding
from kprof_inject.analysis.findings.second_cta import second_cta
from kprof_inject.analysis.roofs.operation_work import NO_WORK
from kprof_inject.analysis.roofs.speed_of_light import Roof
from kprof_inject.timeline.sharing import Sharing

LITTLE = Sharing(2, 100.0, 97.0, 4.0, 500, 900)


def evidence(folder: Path, sharing: Sharing | None = LITTLE) -> Evidence:
    plain = evidence_of(launched(folder))
    scopes = list(plain.summary.scopes)
    scopes[ITER] = replace(scopes[ITER], sharing=sharing)
    return replace(plain, summary=replace(plain.summary, scopes=tuple(scopes)))


def test_a_second_cta_that_adds_little(tmp_path: Path) -> None:
    (found,) = second_cta(evidence(tmp_path))
    assert isinstance(found, Finding)
    assert (found.rule, found.scope) == ("second-cta", "iter[0]")
    assert found.share == pytest.approx(1 - 97 / 104)
    check("analysis/findings", sentences_of(found), "a second CTA that adds little")


def test_one_that_takes_more_than_it_adds(tmp_path: Path) -> None:
    (found,) = second_cta(evidence(tmp_path, replace(LITTLE, shared_ns=130.0)))
    assert isinstance(found, Finding)
    assert found.share == 0
    check("analysis/findings", sentences_of(found), "a second CTA that costs more")


def test_one_that_adds_what_it_should(tmp_path: Path) -> None:
    assert not list(second_cta(evidence(tmp_path, replace(LITTLE, shared_ns=60.0))))
    assert not list(second_cta(evidence(tmp_path, None)))


def test_at_its_roof_a_loop_has_no_use_for_more(tmp_path: Path) -> None:
    plain = evidence(tmp_path)
    light = replace(plain.light, roofs=(Roof(2, "iter[0]", 9, 900, NO_WORK, {"tensor cores": 0.85}),))
    assert not list(second_cta(replace(plain, light=light)))


def test_where_records_take_much_they_may_be_what_fills_the_sm(tmp_path: Path) -> None:
    plain = evidence(tmp_path)
    heavy = replace(plain.summary, subtracted_ns=plain.summary.warp_time_ns // 5)
    assert not list(second_cta(replace(plain, summary=heavy)))
