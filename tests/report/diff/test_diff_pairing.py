"""Which kernel is which, where names or variants are several."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from known_sides import usual
from replacing import replace
from snapshots import check

from kprof_inject.analysis.comparison.matching import pair_runs
from kprof_inject.analysis.comparison.runs import KernelRuns, differences, runs_of
from kprof_inject.analysis.structure.structural_changes import Matched
from kprof_inject.capture.mode import Mode
from kprof_inject.capture.resources import KernelResources
from kprof_inject.errors import KprofError
from kprof_inject.timeline.timeline import Timeline


@pytest.fixture
def one(tmp_path: Path) -> Timeline:
    return usual(tmp_path, 1, launches=1)[0]


def made(one: Timeline, *kernels: tuple[str, str, int, int], renamed: dict[str, str] | None = None) -> list[KernelRuns]:
    """Kernels by name, variant, stages and CTAs, a launch each."""
    return runs_of(
        [
            replace(
                one,
                launch=replace(
                    one.launch,
                    grid=(ctas, 1, 1),
                    kernel=replace(
                        one.launch.kernel, name=name, variant=variant, metadata={"num_warps": 2, "num_stages": stages}
                    ),
                ),
            )
            for name, variant, stages, ctas in kernels
        ],
        renamed or {},
    )


def variants(pairing: Matched[KernelRuns]) -> list[tuple[str, str]]:
    return [(a.kernel.variant, b.kernel.variant) for a, b in pairing.pairs]


def left(runs: Sequence[KernelRuns]) -> list[str]:
    return [one.kernel.variant for one in runs]


def check_error(error: KprofError, case: str) -> None:
    check("report/diff-pairing-errors", error.render(), case)


def test_launches_of_one_variant_and_grid_belong_together(one: Timeline) -> None:
    runs = made(one, ("mm", "a", 2, 4), ("mm", "a", 2, 8), ("mm", "a", 2, 4), ("mm", "b", 2, 4))
    assert [(group.kernel.variant, group.grid[0], len(group.timelines)) for group in runs] == [
        ("a", 4, 2),
        ("a", 8, 1),
        ("b", 4, 1),
    ]


def test_the_same_variant_comes_first(one: Timeline) -> None:
    a = made(one, ("mm", "x", 2, 4), ("mm", "y", 2, 4))
    b = made(one, ("mm", "y", 2, 4), ("mm", "x", 2, 4))
    assert variants(pair_runs(a, b)) == [("x", "x"), ("y", "y")]


def test_an_edited_kernels_variants_go_by_their_configs(one: Timeline) -> None:
    a = made(one, ("mm", "old2", 2, 4), ("mm", "old4", 4, 4))
    b = made(one, ("mm", "new4", 4, 4), ("mm", "new2", 2, 4))
    assert variants(pair_runs(a, b)) == [("old2", "new2"), ("old4", "new4")]


def test_two_configs_of_one_kernel_are_a_pair(one: Timeline) -> None:
    pairing = pair_runs(made(one, ("mm", "old", 2, 4)), made(one, ("mm", "new", 4, 8)))
    assert variants(pairing) == [("old", "new")]
    assert [str(difference) for difference in differences(*pairing.pairs[0])] == [
        "num_stages 2 → 4",
        "grid 4x1x1 → 8x1x1",
    ]


def settings_that_differ(
    one: Timeline, a: dict[str, object], b: dict[str, object], mode_b: Mode | None = None
) -> dict[str, tuple[str, str]]:
    """Return the settings that differ between kernels with these metadata; ``mode_b`` is the mode of the second."""
    sides = []
    for metadata, mode in ((a, None), (b, mode_b)):
        kernel = replace(one.launch.kernel, metadata=metadata, mode=mode or one.launch.kernel.mode)
        sides += runs_of([replace(one, launch=replace(one.launch, kernel=kernel))], {})
    return {found.what: (found.a, found.b) for found in differences(*sides)}


def test_options_are_compared_within_a_version_of_triton(one: Timeline) -> None:
    a = {"num_warps": 2, "enable_fp_fusion": True, "hash": "1", "only_a": 1}
    b = {"num_warps": 4, "enable_fp_fusion": False, "hash": "2", "only_b": 1}
    changed = {
        "num_warps": ("2", "4"),
        "enable_fp_fusion": ("True", "False"),
        "recorded warps": ("0,1", "0,1,2,3"),
    }
    assert settings_that_differ(one, a, b) == changed
    versions = {"triton_version": "3.5.0"}, {"triton_version": "3.6.0"}
    assert settings_that_differ(one, {**a, **versions[0]}, {**b, **versions[0]}) == changed
    assert settings_that_differ(one, {**a, **versions[0]}, {**b, **versions[1]}) == {
        **changed,
        "triton_version": ("3.5.0", "3.6.0"),
    }


def test_modes_of_recording_are_compared(one: Timeline) -> None:
    usual = one.launch.kernel.mode
    moved = replace(usual, sched_stores=not usual.sched_stores)
    with_barriers = replace(usual, sched_barriers=not usual.sched_barriers)
    for mode, what in ((moved, "stores moved"), (with_barriers, "scheduling barriers")):
        (texts,) = settings_that_differ(one, {}, {}, mode).values()
        assert sorted(what in text for text in texts) == [False, True]
    assert settings_that_differ(one, {}, {}, replace(usual)) == {}


def test_variants_that_nothing_else_tells_apart_go_by_the_order_of_their_launches(one: Timeline) -> None:
    a = made(one, ("mm", "a1", 2, 4), ("mm", "a2", 2, 4))
    b = made(one, ("mm", "b1", 3, 4), ("mm", "b2", 3, 4))
    assert variants(pair_runs(a, b)) == [("a1", "b1"), ("a2", "b2")]


def test_what_has_no_partner_is_left_over(one: Timeline) -> None:
    a = made(one, ("mm", "x", 2, 4), ("add", "add-0", 1, 4))
    b = made(one, ("mm", "x", 2, 4), ("mul", "mul-0", 1, 4), ("mm", "z", 8, 4))
    pairing = pair_runs(a, b)
    assert variants(pairing) == [("x", "x")]
    assert (left(pairing.only_a), left(pairing.only_b)) == (["add-0"], ["mul-0", "z"])


def test_a_kernel_with_a_new_name_can_be_told(one: Timeline) -> None:
    pairing = pair_runs(made(one, ("mm_v1", "x", 2, 4), renamed={"mm_v1": "mm"}), made(one, ("mm", "y", 2, 4)))
    assert variants(pairing) == [("x", "y")]
    assert [str(difference) for difference in differences(*pairing.pairs[0])] == ["kernel mm_v1 → mm"]


def with_kernel(runs: Sequence[KernelRuns], **changes: object) -> KernelRuns:
    """The first of them, with a kernel that differs so."""
    (timeline,) = runs[0].timelines
    kernel = replace(timeline.launch.kernel, **changes)
    return KernelRuns(runs[0].name, (replace(timeline, launch=replace(timeline.launch, kernel=kernel)),))


def test_settings_differ_only_if_both_sides_know_them(one: Timeline) -> None:
    runs = made(one, ("mm", "x", 2, 4))
    few = with_kernel(runs, clean=KernelResources(registers=100, spills=0), mode=Mode())
    many = with_kernel(runs, clean=KernelResources(registers=168), mode=Mode(buffer_bytes=4096))
    unknown = with_kernel(runs, clean=KernelResources(), mode=Mode())

    assert [str(one) for one in differences(few, many)] == [
        "registers 100 → 168",
        "records shared auto, clock 64 → shared 4096 bytes, clock 64",
    ]
    assert differences(few, unknown) == differences(unknown, few) == ()


def test_variants_of_which_one_side_has_more_are_listed(one: Timeline) -> None:
    two, single = made(one, ("mm", "x", 2, 4), ("mm", "y", 3, 4)), made(one, ("mm", "z", 4, 4))
    with pytest.raises(KprofError) as failed:
        pair_runs(two, single)
    assert "x (num_stages 2), y (num_stages 3); " in failed.value.what
    assert failed.value.what.endswith(" z (num_stages 4)") and failed.value.hint.endswith("--renamed x=z")
    check_error(failed.value, "more variants in A")


def test_a_variant_can_be_told_by_its_name(one: Timeline) -> None:
    a = made(one, ("mm", "x", 2, 4), ("mm", "y", 3, 4), renamed={"y": "z"})
    pairing = pair_runs(a, made(one, ("mm", "z", 4, 4), renamed={"z": "z"}))
    assert variants(pairing) == [("y", "z")]
    assert left(pairing.only_a) == ["x"]


def test_grids_of_which_one_side_has_more_are_listed(one: Timeline) -> None:
    with pytest.raises(KprofError) as failed:
        pair_runs(made(one, ("mm", "x", 2, 4), ("mm", "x", 2, 8)), made(one, ("mm", "x", 2, 16)))
    assert " x (grid 4x1x1), x (grid 8x1x1); " in failed.value.what and " x (grid 16x1x1)" in failed.value.what
    assert "--launch" in failed.value.hint
    check_error(failed.value, "more grids in A")


def test_buffers_of_proton_have_no_names_and_are_taken_for_one_kernel(one: Timeline, tmp_path: Path) -> None:
    def buffer(name: str) -> list[KernelRuns]:
        kernel = replace(one.launch.kernel, name=name, folder=tmp_path / f"{name}.bin")
        return runs_of([replace(one, launch=replace(one.launch, kernel=kernel))], {})

    a, b = buffer("before"), buffer("after")
    assert a[0].is_of_buffer and not made(one, ("mm", "x", 2, 4))[0].is_of_buffer
    assert len(pair_runs(a, b).pairs) == 1
    assert differences(a[0], b[0]) == ()
    assert len(pair_runs(made(one, ("mm", "x", 2, 4)), b).pairs) == 1
