"""``partition``, ``partition[N]`` and ``default``: the regions of ``ttg.warp_specialize``."""

from __future__ import annotations

from pathlib import Path

import pytest
from golden import fixture_id, fixtures, form_of, kernel_of, read
from planning import counts, fixture_view, insertion_of, plan_of, view_of_text
from small_modules import found, kernel, sequence

from kprof_inject.errors import KprofError
from kprof_inject.select.candidates import candidates
from kprof_inject.select.plan import make_plan
from kprof_inject.select.selectors import parse_selectors

STORE = "tt.store %p, %x : !tt.ptr<f32>"
LOOP = "scf.for %i = %a to %n step %c  : i32 {"
SPECIALIZED = (
    *("ttg.warp_specialize(%p)", "default {", f"  {STORE} @5", "  ttg.warp_yield", "}"),
    *("partition0(%q: i32) num_warps(4) {", "  gpu.barrier @7", "  ttg.warp_return", "}"),
    *("partition1(%q: i32) num_warps(1) {", "  ttg.warp_return", "} : (i32) -> () @4"),
)
GENERIC = (
    *('"ttg.warp_specialize"(%p) <{partitionNumWarps = array<i32: 4, 1>}> ({', f"  {STORE} @5"),
    *('  "ttg.warp_yield"() : () -> ()', "}, {", '  "ttg.warp_specialize.partitions"() ({'),
    *("  ^bb0(%q: i32):", '    "gpu.barrier"() : () -> () @7', '    "ttg.warp_return"() : () -> ()'),
    *("  }, {", "  ^bb0(%q: i32):", '    "ttg.warp_return"() : () -> ()', "  }) : () -> ()", "}) : (i32) -> () @4"),
)
BOTH_FORMS = pytest.mark.parametrize("lines", [SPECIALIZED, GENERIC], ids=["custom", "generic"])


@BOTH_FORMS
def test_each_region_is_a_site(lines: tuple[str, ...]) -> None:
    plan = plan_of(kernel(*lines), "partition", "default")

    assert found(plan) == [
        ("default", "partition", 1, 0),
        ("partition[0]", "partition", 1, 0),
        ("partition[1]", "partition", 0, 0),
    ]
    assert [(s.site.kind, s.site.source and s.site.source.line, s.parent) for s in plan.scopes] == 3 * [
        ("partition", 4, -1)
    ]
    assert counts(plan) == {"partition": 2, "default": 1}


def test_records_stand_inside_the_regions() -> None:
    assert sequence(kernel(*SPECIALIZED), "partition", "default") == (
        "ttg.warp_specialize default [default tt.store default] ttg.warp_yield } "
        "partition0 [partition[0] gpu.barrier partition[0]] ttg.warp_return } "
        "partition1 [partition[1] partition[1]] ttg.warp_return } : (i32) -> () tt.return"
    )


def test_records_stand_behind_the_arguments_of_the_generic_form() -> None:
    assert sequence(kernel(*GENERIC), "partition") == (
        "ttg.warp_specialize tt.store ttg.warp_yield }, { ttg.warp_specialize.partitions "
        "^bb0(%q: i32): [partition[0] gpu.barrier partition[0]] ttg.warp_return }, { "
        "^bb0(%q: i32): [partition[1] partition[1]] ttg.warp_return }) : () -> () }) : (i32) -> () tt.return"
    )


@BOTH_FORMS
def test_a_partition_by_its_number(lines: tuple[str, ...]) -> None:
    assert [s.record for s in plan_of(kernel(*lines), "partition[1]=last").scopes] == ["last"]
    assert plan_of(kernel(*lines), "partition[2]").scopes == ()
    assert plan_of(kernel(*lines), "partition[10]").scopes == ()


def test_scopes_inside_a_partition_are_nested_in_it() -> None:
    text = kernel(*SPECIALIZED[:2], f"  {LOOP}", f"    {STORE}", "  }", *SPECIALIZED[3:])
    plan = plan_of(text, "default", "loop", "iter", "func")

    assert [(s.record, s.parent) for s in plan.scopes] == [("func", -1), ("default", 0), ("loop[0]", 1), ("iter[0]", 2)]


def test_several_warp_specializations_share_the_names() -> None:
    plan = plan_of(kernel(*SPECIALIZED, *SPECIALIZED), "default", "partition[0]")

    assert [s.record for s in plan.scopes] == ["default#0", "partition[0]#0", "default#1", "partition[0]#1"]


def test_the_operation_itself_is_no_partition() -> None:
    plan = plan_of(kernel(*SPECIALIZED), "op(ttg.warp_specialize)", "func")

    assert [(s.record, s.site.block) for s in plan.scopes] == [
        ("func", "function"),
        ("ttg.warp_specialize", "function"),
    ]


def test_what_holds_the_partitions_in_the_generic_form_gets_no_record() -> None:
    with pytest.raises(KprofError, match=r"ttg\.warp_specialize\.partitions is the end of its block"):
        insertion_of(kernel(*GENERIC), "op(ttg.warp_specialize.partitions)")


@pytest.mark.parametrize("selector", ["default", "partition", "partition[0]"])
def test_a_kernel_without_warp_specialization_has_none(selector: str) -> None:
    with pytest.raises(KprofError) as caught:
        insertion_of(kernel(STORE), selector)

    assert caught.value.what == f"the selector '{selector}' finds nothing in k"
    assert caught.value.hint == "what there is to select: func, op(tt.store)"


def test_the_candidates_name_each_region_once() -> None:
    names = candidates(view_of_text(kernel(*SPECIALIZED, *SPECIALIZED)))

    assert names == ("func", "default", "partition[0]", "partition[1]", *names[4:])
    assert not any(name.startswith(("default", "partition")) for name in names[4:])


SPECIALIZED_FIXTURES = [path for path in fixtures() if "ttg.warp_specialize" in read(path)]


@pytest.mark.parametrize("path", SPECIALIZED_FIXTURES, ids=fixture_id)
def test_the_regions_that_triton_makes(path: Path) -> None:
    plan = make_plan(fixture_view(read(path)), parse_selectors(["partition", "default"]))

    assert len(plan.scopes) >= 2
    assert [s.record for s in plan.scopes] == ["default", *(f"partition[{n}]" for n in range(len(plan.scopes) - 1))]
    assert {s.site.block for s in plan.scopes} == {"partition"}
    assert all(s.site.operations > 0 for s in plan.scopes)


def test_the_forms_of_a_module_have_the_same_regions() -> None:
    numbers: dict[tuple[Path, str], set[int]] = {}
    for path in SPECIALIZED_FIXTURES:
        plan = make_plan(fixture_view(read(path)), parse_selectors(["partition", "default"]))
        numbers.setdefault((path.parent, kernel_of(path)), set()).add(len(plan.scopes))

    assert any(form_of(path) == "generic" for path in SPECIALIZED_FIXTURES)
    assert all(len(counts) == 1 for counts in numbers.values())
