"""SMs that get their first CTA late."""

from __future__ import annotations

from pathlib import Path

import pytest
from known_kernels import SMS, Known, launched, rules_of, sentences_of, the_finding
from replacing import replace
from snapshots import check

D = Known().duration_ns


def late_by(wait_ns: int, sms: int = SMS // 2) -> list[tuple[int, int, int]]:
    """One CTA on each SM; so many SMs begin so much later."""
    return [(sm, wait_ns, wait_ns + D) if sm < sms else (sm, 0, D) for sm in range(SMS)]


def test_half_of_the_sms_begin_late(tmp_path: Path) -> None:
    finding = the_finding(launched(tmp_path, ctas=late_by(D)))
    assert (finding.rule, finding.scope, finding.share) == ("late-start", None, 0.5)
    check("analysis/findings", sentences_of(finding), "SMs that start late")


def test_one_sm_may_hold_up_the_launch(tmp_path: Path) -> None:
    finding = the_finding(launched(tmp_path, ctas=late_by(D, sms=1)))
    assert finding.share == 0.5
    check("analysis/findings", sentences_of(finding), "an SM that starts late")


@pytest.mark.parametrize(("wait_ns", "found"), [(990, []), (1010, ["late-start"])])
def test_a_device_takes_a_while_to_begin_everywhere(tmp_path: Path, wait_ns: int, found: list[str]) -> None:
    assert rules_of(launched(tmp_path, ctas=late_by(wait_ns))) == found


def test_a_tenth_of_a_launch_is_late(tmp_path: Path) -> None:
    known = Known(iterations_ns=(1000,) * 20)
    for wait_ns, found in ((2100, []), (2400, ["late-start"])):
        ctas = [(sm, wait_ns * (sm % 2), wait_ns * (sm % 2) + known.duration_ns) for sm in range(SMS)]
        assert rules_of(launched(tmp_path, known, ctas)) == found


@pytest.mark.parametrize(
    ("device_sms", "changes", "found"),
    [
        (2 * SMS, {}, ["late-start"]),
        (SMS, {}, []),
        # With fewer CTAs than SMs, it is the grid.
        (4 * SMS, {}, ["low-fill"]),
        (2 * SMS, {"num_ctas": 2}, []),
        (2 * SMS, {"target": {"backend": "hip", "arch": "gfx950"}}, []),
    ],
)
def test_sms_that_never_get_a_cta(
    tmp_path: Path, device_sms: int, changes: dict[str, object], found: list[str]
) -> None:
    two_waves = [(sm, wave * D, (wave + 1) * D) for wave in (0, 1) for sm in range(SMS)]
    timeline = launched(tmp_path, ctas=two_waves, kernel={"sm_count": device_sms})
    kernel = timeline.launch.kernel
    metadata = {**kernel.metadata, "target": {"backend": "cuda", "arch": 90}, **changes}
    timeline = replace(timeline, launch=replace(timeline.launch, kernel=replace(kernel, metadata=metadata)))
    assert rules_of(timeline) == found
    if found == ["late-start"]:
        finding = the_finding(timeline)
        assert finding.share == 0.5
        check("analysis/findings", sentences_of(finding), "SMs that get no CTA")


def test_a_kernel_that_is_meant_to_begin_early_is_not_late(tmp_path: Path) -> None:
    """By programmatic dependent launch: it gets SMs as the kernel before it leaves them."""
    timeline = launched(tmp_path, ctas=late_by(D))
    kernel = timeline.launch.kernel
    dependent = replace(kernel, metadata={**kernel.metadata, "launch_pdl": True})
    assert rules_of(replace(timeline, launch=replace(timeline.launch, kernel=dependent))) == []
