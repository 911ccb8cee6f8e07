"""Loops without dots that load ahead: which loops, and the machine code of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from edited_kernels import kernel_to_edit

from kprof_inject.capture.edits import Edit
from kprof_inject.runtime.compiling.builds import assembly_in
from kprof_inject.runtime.compiling.delayed_builds import Build, compiled
from kprof_inject.runtime.experiments.edits.edit import EditRefused
from kprof_inject.runtime.experiments.edits.kinds import KINDS, in_source, with_options

pytestmark = pytest.mark.triton

SUM = """\
module {
  tt.func public @kernel(%x: !tt.ptr<f32> {tt.divisibility = 16 : i32}, %n: i32 {tt.divisibility = 16 : i32}) {
    %c0 = arith.constant 0 : i32
    %c1024 = arith.constant 1024 : i32
    %zero = arith.constant dense<0.000000e+00> : tensor<1024xf32>
    %r = tt.make_range {end = 1024 : i32, start = 0 : i32} : tensor<1024xi32>
    %base = tt.splat %x : !tt.ptr<f32> -> tensor<1024x!tt.ptr<f32>>
    %at = tt.addptr %base, %r : tensor<1024x!tt.ptr<f32>>, tensor<1024xi32>
    %sum = scf.for %i = %c0 to %n step %c1024 iter_args(%acc = %zero) -> (tensor<1024xf32>)  : i32 {
      %s = tt.splat %i : i32 -> tensor<1024xi32>
      %there = tt.addptr %at, %s : tensor<1024x!tt.ptr<f32>>, tensor<1024xi32>
      %v = tt.load %there : tensor<1024x!tt.ptr<f32>>
      %next = arith.addf %acc, %v : tensor<1024xf32>
      scf.yield %next : tensor<1024xf32>
    }
    tt.store %at, %sum : tensor<1024x!tt.ptr<f32>>
    tt.return
  }
}
"""
CHOSEN = SUM.replace("\n    }\n    tt.store", "\n    } {tt.num_stages = 2 : i32}\n    tt.store")
COPY = "cp.async"


def test_the_loop_loads_ahead_in_the_machine_code(tmp_path: Path) -> None:
    plain = kernel_to_edit("", SUM)
    edited = with_options(plain, [Edit("loop_stages", "3")])
    assert edited.ttir.count("tt.num_stages = 3 : i32") == 1
    builds = [Build(one.ttir, one.record, "ttir") for one in (plain, edited)]
    assert list(compiled(builds, tmp_path)) == [None, None]
    without, ahead = (assembly_in(tmp_path / build.name) for build in builds)
    assert COPY not in without and COPY in ahead


def test_loops_that_have_stages_or_dots_or_no_loads_are_left_alone() -> None:
    kind = KINDS["loop_stages"]
    assert list(kind.more(kernel_to_edit("", SUM))) == ["2", "3", "4"]
    dot = "%d = tt.dot %v, %v, %acc : tensor<1024xf32> * tensor<1024xf32> -> tensor<1024xf32>"
    others = (
        CHOSEN,
        SUM.replace("%v = tt.load %there : tensor<1024x!tt.ptr<f32>>", "%v = arith.addf %acc, %acc : tensor<1024xf32>"),
        SUM.replace("      %next", f"      {dot}\n      %next"),
        "module {\n}\n",
        "this is no module",
    )
    for ttir in others:
        kernel = kernel_to_edit("", ttir)
        assert list(kind.more(kernel)) == []
        with pytest.raises(EditRefused):
            kind.applied(kernel, "3")


def test_a_kernel_without_ttir_has_no_such_edit() -> None:
    with pytest.raises(EditRefused, match="Gluon"):
        KINDS["loop_stages"].applied(kernel_to_edit(SUM), "3")


def test_the_source_asks_for_it_with_a_range() -> None:
    assert "tl.range(..., num_stages=3)" in in_source([Edit("loop_stages", "3"), Edit("num_warps", "8")])
    assert in_source([Edit("num_warps", "8")]) == ""
