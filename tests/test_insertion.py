"""The insert step: the golden outputs, one module, and a workspace of kernels."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from golden import FIXTURES, fixture_id, fixtures, read

from kprof_inject.errors import KprofError
from kprof_inject.insertion import insert_module, insert_workspace
from kprof_inject.select.scope_table import scope_table
from kprof_inject.select.selectors import parse_selectors
from kprof_inject.ttgir.parser import parse
from kprof_inject.workspace import Workspace

GOLDEN = [path for path in fixtures() if path.with_suffix(".expected.ttgir").exists()]

LOOP = "    scf.for %i = %a to %n step %c  : i32 {\n    }\n"
HELPER = "  tt.func private @helper() {\n    tt.return\n  }\n"


def kernel(name: str, body: str = "", rest: str = "") -> str:
    return f"module {{\n  tt.func public @{name}(%n: i32) {{\n{body}    tt.return\n  }}\n{rest}}}\n"


def test_every_version_has_golden_outputs() -> None:
    versions = {path.relative_to(FIXTURES).parts[0] for path in fixtures()}

    assert {fixture_id(path) for path in GOLDEN} == {
        f"{version}/{kernel}"
        for version in versions
        for kernel in (
            "cuda-90/vector_add",
            "cuda-90/matmul",
            "cuda-90/while_if",
            "cuda-90/early_return",
            "cuda-100/ws_matmul",
        )
    }


@pytest.mark.parametrize("path", GOLDEN, ids=fixture_id)
def test_golden_output(path: Path) -> None:
    plan, text = insert_module(parse(read(path)), parse_selectors([]))

    assert text == read(path.with_suffix(".expected.ttgir"))
    assert scope_table(plan) == json.loads(read(path.with_suffix(".expected.json")))


# ---- one module ------------------------------------------------------------------------------------------


def test_the_default_selectors_do_not_ask_for_loops() -> None:
    plan, text = insert_module(parse(kernel("k")), parse_selectors([]))

    assert [scope.record for scope in plan.scopes] == ["func"]
    assert text == kernel("k", '    proton.record start "func"\n    proton.record end "func"\n')


def test_a_selector_that_finds_nothing_is_refused_with_what_there_is() -> None:
    with pytest.raises(KprofError) as caught:
        insert_module(parse(kernel("k", LOOP + LOOP)), parse_selectors(["func", "loop[2]"]))

    assert caught.value.what == "the selector 'loop[2]' finds nothing in k"
    assert caught.value.hint == "what there is to select: func, loop[0], loop[1], iter[0], iter[1]"


def test_a_selector_of_another_kernel_is_refused() -> None:
    with pytest.raises(KprofError) as caught:
        insert_module(parse(kernel("k")), parse_selectors(["other/func"]))

    assert caught.value.what == "the selector 'other/func' finds nothing in k"
    assert caught.value.hint == "what there is to select: func"


# ---- a workspace -----------------------------------------------------------------------------------------


def workspace_of(folder: Path, **kernels: str) -> Workspace:
    workspace = Workspace.create(folder / "ws")
    for name, text in kernels.items():
        info = {"name": name, "override_key": f"KEY_{name}", "file_name": name}
        workspace.write_kernel(f"{name}-0", info, text, {})
    return workspace


def test_each_kernel_gets_its_own_records(tmp_path: Path) -> None:
    workspace = workspace_of(tmp_path, add=kernel("add"), mul=kernel("mul", LOOP))

    insertions = insert_workspace(workspace, parse_selectors(["add/func", "loop"]))

    assert [(insertion.kernel.name, insertion.refusal) for insertion in insertions] == [("add", None), ("mul", None)]
    assert workspace.override_path(workspace.kernel("add-0")).read_text() == kernel(
        "add", '    proton.record start "func"\n    proton.record end "func"\n'
    )
    assert workspace.override_path(workspace.kernel("mul-0")).read_text() == kernel(
        "mul", f'    proton.record start "loop[0]"\n{LOOP}    proton.record end "loop[0]"\n'
    )
    for insertion in insertions:
        assert insertion.plan is not None
        assert workspace.scope_table(insertion.kernel.variant) == scope_table(insertion.plan)


def test_a_kernel_in_which_nothing_matches_has_no_plan(tmp_path: Path) -> None:
    workspace = workspace_of(tmp_path, add=kernel("add"), mul=kernel("mul", LOOP))

    add, mul = insert_workspace(workspace, parse_selectors(["loop"]))

    assert add.plan is not None and add.plan.scopes == ()
    assert mul.plan is not None and len(mul.plan.scopes) == 1
    assert workspace.scope_table("add-0") is None
    assert sorted(path.name for path in workspace.override_folder.rglob("*.ttgir")) == ["mul.ttgir"]


def test_a_new_insertion_forgets_the_last_one(tmp_path: Path) -> None:
    workspace = workspace_of(tmp_path, add=kernel("add"), mul=kernel("mul"))
    insert_workspace(workspace, parse_selectors(["func"]))

    insert_workspace(workspace, parse_selectors(["add/func"]))

    assert workspace.scope_table("add-0") is not None
    assert workspace.scope_table("mul-0") is None
    assert sorted(path.name for path in workspace.override_folder.rglob("*.ttgir")) == ["add.ttgir"]


def test_a_kernel_that_cannot_take_records_is_left_alone(tmp_path: Path) -> None:
    workspace = workspace_of(tmp_path, add=kernel("add"), helped=kernel("helped", rest=HELPER), zero="module {\n")

    add, helped, zero = insert_workspace(workspace, parse_selectors([]))

    assert add.plan is not None and add.refusal is None
    assert helped.plan is None and helped.refusal is not None
    assert helped.refusal.what == "this module has 2 functions, and Proton lowers modules of one function only"
    assert str(helped.refusal.where) == f"{workspace.folder}/kernels/helped-0/kernel.ttgir:5:3"
    assert zero.plan is None and zero.refusal is not None
    assert str(zero.refusal.where) == f"{workspace.folder}/kernels/zero-0/kernel.ttgir:1:9"
    assert sorted(path.name for path in workspace.override_folder.rglob("*.ttgir")) == ["add.ttgir"]


def test_where_no_kernel_can_take_records_the_first_says_why(tmp_path: Path) -> None:
    workspace = workspace_of(tmp_path, helped=kernel("helped", rest=HELPER), zero="module {\n")

    with pytest.raises(KprofError, match=r"^this module has 2 functions"):
        insert_workspace(workspace, parse_selectors([]))


def test_a_workspace_without_kernels_is_refused(tmp_path: Path) -> None:
    workspace = workspace_of(tmp_path)

    with pytest.raises(KprofError) as caught:
        insert_workspace(workspace, parse_selectors([]))
    assert caught.value.what == f"{workspace.folder} holds no kernels"
    assert caught.value.hint == f"dump them: kprof-inject dump -o {workspace.folder} -- PROG"


def test_a_selector_that_finds_nothing_in_any_kernel_is_refused_and_keeps_the_plans(tmp_path: Path) -> None:
    workspace = workspace_of(tmp_path, add=kernel("add"), mul=kernel("mul", LOOP))
    insert_workspace(workspace, parse_selectors(["func"]))

    with pytest.raises(KprofError) as caught:
        insert_workspace(workspace, parse_selectors(["loop[0]", "loop[1]"]))

    assert caught.value.what == "the selector 'loop[1]' finds nothing in add, mul"
    assert caught.value.hint == "what there is to select: func, loop[0], iter[0]"
    assert workspace.scope_table("add-0") is not None


def test_the_hint_leaves_out_kernels_that_are_left_alone(tmp_path: Path) -> None:
    workspace = workspace_of(tmp_path, add=kernel("add"), helped=kernel("helped", LOOP, HELPER))

    with pytest.raises(KprofError) as caught:
        insert_workspace(workspace, parse_selectors(["loop[0]"]))

    assert caught.value.what == "the selector 'loop[0]' finds nothing in add"
    assert caught.value.hint == "what there is to select: func"
