"""A grid that is too small for the device."""

from __future__ import annotations

from pathlib import Path

import pytest
from known_kernels import Known, launched, rules_of, sentences_of, the_finding
from snapshots import check

D = Known().duration_ns


def grid_of(ctas: int) -> list[tuple[int, int, int]]:
    return [(sm, 0, D) for sm in range(ctas)]


def test_sms_without_a_cta_are_counted(tmp_path: Path) -> None:
    finding = the_finding(launched(tmp_path, ctas=grid_of(33), kernel={"sm_count": 132}))
    assert (finding.rule, finding.share) == ("low-fill", 0.75)
    check("analysis/findings", sentences_of(finding), "a small grid")
    assert finding.figures["device_sms"] == 132


@pytest.mark.parametrize(("ctas", "found"), [(118, ["low-fill"]), (119, [])])
def test_a_tenth_of_the_sms_idles(tmp_path: Path, ctas: int, found: list[str]) -> None:
    assert rules_of(launched(tmp_path, ctas=grid_of(ctas), kernel={"sm_count": 132})) == found


def test_a_grid_as_large_as_the_device_is_not_too_small(tmp_path: Path) -> None:
    ctas = [(sm, begin_ns, begin_ns + D) for begin_ns in (0, D) for sm in range(8)]
    assert rules_of(launched(tmp_path, ctas=ctas, kernel={"sm_count": 16})) == []


def test_of_a_device_of_which_nothing_is_known_nothing_is_said(tmp_path: Path) -> None:
    assert rules_of(launched(tmp_path, ctas=grid_of(1))) == []
