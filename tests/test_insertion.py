"""The insert step: the golden outputs, one module, and a workspace of kernels."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from golden import FIXTURES, fixture_id, fixtures, read
from planning import fixture_sources, insertion_of
from snapshots import check

from kprof_inject.capture.schema import DumpedKernelRecord
from kprof_inject.capture.scopes import ScopeTable
from kprof_inject.cli.console import diff_of
from kprof_inject.cli.plans import plan_json
from kprof_inject.errors import KprofError
from kprof_inject.insertion import (
    KernelInsertion,
    insert_kernels,
    insert_module,
    unmatched_selectors,
    view_of,
    write_insertions,
)
from kprof_inject.select.plan import table_json
from kprof_inject.select.selectors import parse_selectors
from kprof_inject.select.spans import Style
from kprof_inject.workspace import Workspace

GOLDEN = [path for path in fixtures() if path.with_suffix(".expected.ttgir").exists()]

LOOP = "    scf.for %i = %a to %n step %c  : i32 {\n    }\n"
HELPER = "  tt.func private @helper() attributes {noinline = true} {\n    tt.return\n  }\n"
RECORDS = '    proton.record start "mine"\n    proton.record end "mine"\n'


def kernel(name: str, body: str = "", rest: str = "") -> str:
    return f"module {{\n  tt.func public @{name}(%n: i32) {{\n{body}    tt.return\n  }}\n{rest}}}\n"


@pytest.mark.parametrize("path", GOLDEN, ids=fixture_id)
def test_golden_output(path: Path) -> None:
    done = insertion_of(read(path))

    assert done.text == read(path.with_suffix(".expected.ttgir"))
    assert table_json(done.plan.table) == json.loads(read(path.with_suffix(".expected.json")))


SELECTED = sorted(path for path in FIXTURES.glob("*/*/*.*.expected.json"))


def test_every_version_has_golden_outputs_and_expected_results_of_seven_more_selections() -> None:
    versions = {path.relative_to(FIXTURES).parts[0] for path in fixtures()}
    kernels = ("cuda-90/vector_add", "cuda-90/matmul", "cuda-90/while_if", "cuda-90/early_return", "cuda-100/ws_matmul")
    assert {fixture_id(path) for path in GOLDEN} == {f"{version}/{name}" for version in versions for name in kernels}
    assert Counter(path.relative_to(FIXTURES).parts[0] for path in SELECTED) == dict.fromkeys(versions, 7)


@pytest.mark.parametrize("path", SELECTED, ids=lambda path: str(path.relative_to(FIXTURES)).partition(".expected")[0])
def test_the_expected_result_of_a_selection(path: Path) -> None:
    expected = json.loads(path.read_text(encoding="utf-8"))
    kernel_name = path.name.partition(".")[0]
    (fixture,) = path.parent.glob(f"{kernel_name}.ttgir*")
    text = read(fixture)
    view = view_of(text, kernel_name, fixture_sources(text))

    done = insert_module(view, parse_selectors(expected["selectors"]), Style(expected["split"]))

    assert "\n".join(diff_of(view.module, done.text)) + "\n" == path.with_suffix(".diff").read_text(encoding="utf-8")
    assert plan_json(view.module, done.plan) == expected["plan"]


def workspace_of(folder: Path, **kernels: str) -> Workspace:
    workspace = Workspace.create(folder / "ws")
    for name, text in kernels.items():
        info = DumpedKernelRecord(name=name, override_key=f"KEY_{name}", file_name=name)
        workspace.write_kernel(f"{name}-0", info, text, {})
    return workspace


def inserted(workspace: Workspace, *selectors: str) -> list[KernelInsertion]:
    kernels = insert_kernels(workspace, parse_selectors(selectors))
    write_insertions(workspace, kernels)
    return kernels


def test_each_kernel_gets_its_own_records(tmp_path: Path) -> None:
    workspace = workspace_of(tmp_path, add=kernel("add"), mul=kernel("mul", LOOP))

    insertions = inserted(workspace, "add/func", "loop")

    assert [(insertion.kernel.name, insertion.refusal) for insertion in insertions] == [("add", None), ("mul", None)]
    assert workspace.override_path(workspace.kernel("add-0")).read_text() == kernel(
        "add", '    proton.record start "func"\n    proton.record end "func"\n'
    )
    assert workspace.override_path(workspace.kernel("mul-0")).read_text() == kernel(
        "mul",
        '    proton.record start "kernel body"\n    proton.record start "loop[0]"\n'
        f'{LOOP}    proton.record end "loop[0]"\n    proton.record end "kernel body"\n',
    )
    for insertion, most_records in zip(insertions, (2, 4), strict=True):
        assert insertion.insertion is not None
        plan = {**table_json(insertion.insertion.plan.table), "most_records": most_records, "relaunch": {}}
        assert workspace.scope_table(insertion.kernel.variant) == msgspec.convert(plan, ScopeTable)


def overridden(workspace: Workspace) -> list[str]:
    return sorted(path.name for path in workspace.override_folder.rglob("*.ttgir"))


def test_a_kernel_in_which_nothing_matches_has_no_plan_any_more(tmp_path: Path) -> None:
    workspace = workspace_of(tmp_path, add=kernel("add"), mul=kernel("mul", LOOP))
    inserted(workspace, "func")
    assert overridden(workspace) == ["add.ttgir", "mul.ttgir"]

    add, mul = inserted(workspace, "loop")

    assert add.insertion is not None and add.insertion.plan.scopes == ()
    assert mul.insertion is not None and len(mul.insertion.plan.scopes) == 1
    assert workspace.scope_table("add-0") is None and workspace.scope_table("mul-0") is not None
    assert overridden(workspace) == ["mul.ttgir"]


def test_a_kernel_that_cannot_take_records_is_left_alone(tmp_path: Path) -> None:
    workspace = workspace_of(tmp_path, add=kernel("add"), timed=kernel("timed", RECORDS), zero="module {\n")

    add, timed, zero = inserted(workspace)

    assert add.insertion is not None and add.refusal is None
    assert timed.insertion is None and timed.refusal is not None
    assert timed.refusal.what == "this file already has records"
    assert str(timed.refusal.where) == f"{workspace.folder}/kernels/timed-0/kernel.ttgir:3:5"
    assert zero.insertion is None and zero.refusal is not None
    assert str(zero.refusal.where) == f"{workspace.folder}/kernels/zero-0/kernel.ttgir:1:9"
    assert overridden(workspace) == ["add.ttgir"]


def test_a_helper_is_opened_to_triton_s_inliner_in_the_override_alone(tmp_path: Path) -> None:
    workspace = workspace_of(tmp_path, helped=kernel("helped", rest=HELPER))

    (helped,) = inserted(workspace, "func")

    assert helped.insertion is not None and "noinline = true" in helped.insertion.text
    override = workspace.override_path(workspace.kernel("helped-0")).read_text()
    assert override == helped.insertion.text.replace("noinline = true", "noinline = false")


def test_without_a_kernel_that_can_take_records_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(KprofError, match=r"^this file already has records"):
        inserted(workspace_of(tmp_path / "one", timed=kernel("timed", RECORDS), zero="module {\n"))
    with pytest.raises(KprofError) as caught:
        inserted(workspace_of(tmp_path))
    check("pipeline/insertion", str(caught.value), "no kernels")


def test_selectors_that_find_nothing_in_any_kernel_are_refused_and_keep_the_plans(tmp_path: Path) -> None:
    workspace = workspace_of(tmp_path, add=kernel("add"), mul=kernel("mul", LOOP))
    inserted(workspace, "func")

    with pytest.raises(KprofError) as caught:
        inserted(workspace, "loop[1]", "other/func")

    check("pipeline/insertion", str(caught.value), "nothing in any kernel")
    assert workspace.scope_table("add-0") is not None


@pytest.mark.parametrize("selector", ["loop[1]", "other/func", "add/loop", "op(tt.return)"])
def test_a_selector_that_finds_nothing_beside_one_that_does_is_left_out(tmp_path: Path, selector: str) -> None:
    workspace = workspace_of(tmp_path, add=kernel("add"), mul=kernel("mul", LOOP))
    wanted = parse_selectors(["mul/loop", selector])

    kernels = insert_kernels(workspace, wanted)

    done = [kernel.insertion for kernel in kernels if kernel.insertion is not None]
    assert [len(insertion.plan.scopes) for insertion in done] == [0, 1]
    (error,) = unmatched_selectors(wanted, done)
    check("pipeline/insertion", str(error), selector)
