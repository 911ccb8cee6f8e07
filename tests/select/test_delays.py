from __future__ import annotations

import pytest
from golden import FIXTURES, read
from planning import plan_of, view_of_text
from snapshots import check

from kprof_inject.capture.schema import Target
from kprof_inject.errors import KprofError
from kprof_inject.rewrite import inserted
from kprof_inject.select.delays import MAX_CYCLES, Delay, delay_operation, spin_kernel
from kprof_inject.select.sites import InsertPoint

HOPPER = Target("cuda", 90)
MI300 = Target("hip", "gfx942", 64)


@pytest.mark.parametrize("selector", ["parts", "iter", "loop", "func"])
def test_one_line_more_and_all_others_as_they_were(selector: str) -> None:
    text = read(FIXTURES / "3.6.0/cuda-90/matmul.ttgir")
    plan = plan_of(text, selector)
    for scope, site in zip(plan.scopes, plan.sites, strict=True):
        delayed = inserted(view_of_text(text).module, [Delay(site.start, 100, 0, HOPPER)])
        lines, before = delayed.split("\n"), text.split("\n")
        new = [number for number, line in enumerate(lines) if "%kprof_delay_0" in line]
        assert len(new) == 1
        assert lines[: new[0]] + lines[new[0] + 1 :] == before
        assert scope.lines[0] == new[0] + 1


def test_a_delay_of_no_cycles_is_a_delay() -> None:
    """It goes the same way as the others, so that these differ from it in a number alone."""
    assert delay_operation(HOPPER, 0).replace("now, 1;", "now, 100;").replace("$0, 1;", "$0, 100;") == delay_operation(
        HOPPER, 100
    )


def test_chosen_warps() -> None:
    assert "and.b32 now, now, 9;" in delay_operation(HOPPER, 100, (0, 3))
    assert "%tid" not in delay_operation(HOPPER, 100)


def test_its_place_has_its_indent() -> None:
    assert Delay(InsertPoint(0, "    ", "\n"), 5, 7, HOPPER).line.startswith(
        "    %kprof_delay_7 = tt.elementwise_inline_asm"
    )


@pytest.mark.parametrize(
    ("target", "cycles", "warps", "case"),
    [
        (HOPPER, -1, (), "a negative delay"),
        (HOPPER, MAX_CYCLES + 1, (), "a delay that is too long"),
        (HOPPER, 1, (32,), "a warp beyond all CTAs"),
        (MI300, 1, (0,), "chosen warps of an AMD GPU"),
        (Target("hip", "gfx1200", 32), 1, (), "a GPU without a counter"),
    ],
)
def test_what_cannot_be_delayed(target: Target, cycles: int, warps: tuple[int, ...], case: str) -> None:
    with pytest.raises(KprofError) as caught:
        delay_operation(target, cycles, warps)
    check("select/errors", caught.value.render(), case)


def test_the_kernel_that_measures_delays_has_each_of_them() -> None:
    ptx = spin_kernel(HOPPER, [0, 100, 5000])
    assert [ptx.count(f"setp.lt.u32 more, now, {cycles};") for cycles in (1, 100, 5000)] == [1, 1, 1]
    assert "$0" not in ptx
    assert [f"[%to+{place}]" in ptx for place in (0, 8, 16, 24)] == [True, True, True, False]
    assert not spin_kernel(MI300, [100])
