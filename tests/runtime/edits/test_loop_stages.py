"""Numbers of stages of single loops: which loops, and the machine code of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from edited_kernels import built, edited, kernel_to_edit
from loops_in_ttir import LINE_10, LINE_20, SUM, dots

from kprof_inject.capture.edits import Edit
from kprof_inject.runtime.compiling.builds import Build, assembly_in, compiled
from kprof_inject.runtime.worker.edit import EditRefused
from kprof_inject.runtime.worker.edit_kinds import KINDS, in_source, with_options

CHOSEN = SUM.replace("\n    }\n    tt.store", "\n    } {tt.num_stages = 2 : i32}\n    tt.store")
COPY = "cp.async"


@pytest.mark.triton
def test_the_loop_loads_ahead_in_the_machine_code(tmp_path: Path) -> None:
    plain = kernel_to_edit("", SUM)
    ahead_in_text = with_options(plain, [Edit("loop_stages", "3")])
    assert ahead_in_text.ttir.count("tt.num_stages = 3 : i32") == 1
    builds = [Build(one.ttir, one.record, "ttir") for one in (plain, ahead_in_text)]
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
    assert "tl.range(..., num_stages=4) in the loop at line 57" in in_source([Edit("loop_stages", "57:4")])


CALLS = [f"callsite({LINE_10} at {place})" for place in ('"kernel.py":30:0', '"kernel.py":40:0')]


@pytest.mark.parametrize(
    ("locations", "attributes", "more", "fewer"),
    [
        ([LINE_10, LINE_20], "", ["10:4", "20:4"], ["10:2", "20:2"]),
        ([LINE_10, LINE_20], " {tt.flatten, tt.num_stages = 5 : i32}", ["10:6", "20:6"], ["10:4", "20:4"]),
        (CALLS, "", ["30:4", "40:4"], ["30:2", "40:2"]),  # of a helper that is called twice, the calls differ
        ([LINE_10, LINE_10], "", [], []),
        ([LINE_10], "", [], []),  # the option does it
        (["unknown", "unknown"], "", [], []),
    ],
)
def test_each_loop_has_its_own_number(locations: list[str], attributes: str, more: list[str], fewer: list[str]) -> None:
    kernel = kernel_to_edit("", dots(*locations, attributes=attributes), num_stages=3)
    assert list(KINDS["loop_stages"].more(kernel)) == more
    assert list(KINDS["loop_stages"].fewer(kernel)) == fewer


@pytest.mark.triton
@pytest.mark.parametrize("arch", [80, 100])
def test_one_loop_of_two_gets_more_buffers(arch: int, tmp_path: Path) -> None:
    plain = kernel_to_edit("", dots(LINE_10, LINE_20), arch=arch, num_stages=3)
    changed = edited(plain, "loop_stages", "20:5")
    assert changed.ttir == plain.ttir.replace(f"}} loc({LINE_20})", f"}} {{tt.num_stages = 5 : i32}} loc({LINE_20})")
    before, after = (built(one, tmp_path, "ttir") for one in (plain, changed))
    deeper = buffers(after["ttgir"]) - buffers(before["ttgir"])
    assert deeper == {max(buffers(before["ttgir"])) + 2}
    assert buffers(before["ttgir"]) & buffers(after["ttgir"]), "the other loop has as many as before"


def buffers(ttgir: str) -> set[int]:
    """The numbers of buffers that loops copy into."""
    return {int(number) for number in re.findall(r"ttg\.local_alloc : \(\) -> !ttg\.memdesc<(\d+)x64x64xf16", ttgir)}


@pytest.mark.parametrize(
    ("attributes", "wanted"),
    [
        ("", " {tt.num_stages = 4 : i32}"),
        (" {tt.flatten}", " {tt.num_stages = 4 : i32, tt.flatten}"),
        (" {tt.flatten, tt.num_stages = 2 : i32}", " {tt.flatten, tt.num_stages = 4 : i32}"),
    ],
)
def test_other_attributes_of_the_loop_stay(attributes: str, wanted: str) -> None:
    text = edited(kernel_to_edit("", dots(LINE_10, attributes=attributes)), "loop_stages", "10:4").ttir
    assert text == dots(LINE_10, attributes=wanted)


@pytest.mark.parametrize("value", ["11:4", "10:9", "10:0", "0:3", ":3", "ten:3", "1"])
def test_other_lines_and_numbers_are_refused(value: str) -> None:
    with pytest.raises(EditRefused):
        edited(kernel_to_edit("", dots(LINE_10, "unknown")), "loop_stages", value)
