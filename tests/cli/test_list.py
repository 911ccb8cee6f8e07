"""``list``: what can be selected, with the selector to type."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine
from golden import FIXTURES, read
from planning import fixture_sources
from programs.child import PROGRAMS
from snapshots import check

NESTED = read(FIXTURES / "3.6.0/cuda-90/nested_loops.ttgir")
SOFTMAX = read(FIXTURES / "3.6.0/cuda-90/softmax.ttgir")
MARKED = read(FIXTURES / "3.6.0/cuda-90/marked_matmul.ttgir")


def listed(kprof: CommandLine, place: str) -> list[dict[str, Any]]:
    """The candidates of the only kernel."""
    (kernel,) = json.loads(kprof("list", place, "--json").stdout)
    found: list[dict[str, Any]] = kernel["candidates"]
    return found


def written_as_dumped(kprof: CommandLine, ttgir: str) -> str:
    """A kernel's file with the sources that ``dump`` would save beside it."""
    folder = kprof.folder / "kernels" / "k"
    folder.mkdir(parents=True)
    (folder / "kernel.ttgir").write_text(ttgir)
    (folder / "sources.json").write_text(json.dumps(fixture_sources(ttgir)))
    (folder / "kernel.json").write_text("{}")
    return "kernels/k/kernel.ttgir"


def test_a_file_as_a_table(kprof: CommandLine) -> None:
    kprof.write("softmax.ttgir", SOFTMAX)
    ended = kprof("list", "softmax.ttgir")

    assert (ended.exit_code, ended.stderr) == (0, "")
    assert [line.rstrip() for line in ended.stdout.splitlines()] == [
        "softmax_kernel (softmax.ttgir)",
        " selector        what                   source         sites",
        " func            kernel softmax_kernel  softmax.py:8       1",
        " loop[0]         loop                   softmax.py:21      1",
        " iter[0]         iterations             softmax.py:21      1",
        " loop[1]         loop                   softmax.py:27      1",
        " iter[1]         iterations             softmax.py:27      1",
        " parts           parts of the loops                        7",
        " op(tt.load)     operation                                 2",
        " op(tt.reduce)   operation                                 2",
        " op(arith.subf)  operation                                 3",
        " op(math.exp)    operation                                 3",
        " op(arith.divf)  operation                                 1",
        " op(tt.store)    operation                                 1",
    ]


def test_the_same_as_json(kprof: CommandLine) -> None:
    kprof.write("softmax.ttgir", SOFTMAX)
    (kernel,) = json.loads(kprof("list", "softmax.ttgir", "--json").stdout)

    assert (kernel["kernel"], kernel["file"]) == ("softmax_kernel", "softmax.ttgir")
    assert kernel["candidates"][1] == {
        "selector": "loop[0]",
        "what": "loop",
        "sources": [{"file": "/kprof-inject/ttgir_fixtures/kernels/softmax.py", "line": 21}],
        "sites": 1,
        "depth": 0,
    }


def test_loops_inside_loops_are_indented(kprof: CommandLine) -> None:
    kprof.write("nested.ttgir", NESTED)

    depths = {found["selector"]: found["depth"] for found in listed(kprof, "nested.ttgir")}
    assert (depths["loop[0]"], depths["loop[0.0]"], depths["iter[0.0]"]) == (0, 1, 1)
    assert "\n   loop[0.0] " in kprof("list", "nested.ttgir").stdout


def test_markers_with_their_lines(kprof: CommandLine) -> None:
    found = listed(kprof, written_as_dumped(kprof, MARKED))

    assert {
        m["selector"]: (m["what"], [s["line"] for s in m["sources"]]) for m in found if "marker" in m["selector"]
    } == {
        "marker(setup)": ("marked statements", [23]),
        "marker(main)": ("marked loop", [32]),
        "marker(loads)": ("marked statements", [33]),
        "marker(dot)": ("marked statements", [41]),
        "marker(before_store)": ("marked instant", [45]),
        "marker(epilogue)": ("marked statements", [46]),
    }


def test_every_selector_that_is_listed_can_be_inserted(kprof: CommandLine) -> None:
    file = written_as_dumped(kprof, MARKED)
    words = [word for found in listed(kprof, file) for word in ("--at", found["selector"])]

    assert kprof("insert", file, *words, "--dry-run").exit_code == 0


def test_a_workspace_has_every_kernel(kprof: CommandLine, workspace: Path) -> None:
    kernels = json.loads(kprof("list", "workspace", "--json").stdout)

    assert [kernel["kernel"] for kernel in kernels] == ["accumulate", "accumulate", "scale"]
    assert sorted(kernel["options"]["num_warps"] for kernel in kernels[:2]) == [4, 8]
    assert [kernel["variant"] for kernel in kernels] == sorted(path.name for path in workspace.glob("kernels/*"))
    assert [len(kernel["candidates"]) for kernel in kernels] == [6, 6, 4]
    assert kernels[2]["candidates"][0] == {
        "selector": "func",
        "what": "kernel scale",
        "sources": [{"file": str(PROGRAMS / "kernels.py"), "line": 25}],
        "sites": 1,
        "depth": 0,
    }


def test_variants_of_a_kernel_are_told_apart(kprof: CommandLine, workspace: Path) -> None:
    headings = [line for line in kprof("list", "workspace").stdout.splitlines() if not line.startswith(" ")]

    assert sorted(heading.rpartition("-")[0] for heading in headings) == [
        "accumulate (num_warps 4) workspace/kernels/accumulate",
        "accumulate (num_warps 8) workspace/kernels/accumulate",
        "scale (workspace/kernels/scale",
    ]


def test_a_file_that_has_records_can_be_listed(kprof: CommandLine) -> None:
    kprof.write("softmax.ttgir", SOFTMAX)
    kprof("insert", "softmax.ttgir", "-o", "timed.ttgir")

    assert listed(kprof, "timed.ttgir") == listed(kprof, "softmax.ttgir")


def test_a_kernel_that_cannot_be_read_is_told_of_and_the_others_are_listed(kprof: CommandLine) -> None:
    for name, text in (("whole", SOFTMAX), ("cut", "module {\n")):
        (kprof.folder / "ws/kernels" / name).mkdir(parents=True)
        kprof.write(f"ws/kernels/{name}/kernel.ttgir", text)
        kprof.write(f"ws/kernels/{name}/sources.json", "{}")
        kprof.write(
            f"ws/kernels/{name}/kernel.json", json.dumps({"name": name, "override_key": "K", "file_name": name})
        )
    kprof.write("ws/workspace.json", '{"version": 2}')

    ended = kprof("list", "ws")

    assert ended.exit_code == 1
    assert ended.stdout.startswith("softmax_kernel (ws/kernels/whole/kernel.ttgir)\n")
    assert ended.stderr.startswith("ws/kernels/cut/kernel.ttgir:1:9: error: ")
    check("cli/list", ended.stderr, "cut")


def test_a_terminal_without_the_letters_gets_their_numbers(kprof: CommandLine) -> None:
    kprof.write("größe.ttgir", SOFTMAX)

    ended = kprof("list", "größe.ttgir", env={"PYTHONIOENCODING": "ascii"})

    assert ended.exit_code == 0
    assert ended.stdout.startswith("softmax_kernel (gr\\xf6\\xdfe.ttgir)\n")


def own_fixture(name: str) -> str:
    """Return a fixture of the installed Triton, because another one may not compile it."""
    import triton

    (path,) = (FIXTURES / triton.__version__).glob(f"{name}.ttgir*")
    return read(path)


@pytest.mark.triton
def test_machine_code_by_lines_of_the_ttgir(kprof: CommandLine) -> None:
    text = own_fixture("cuda-90/matmul")
    kprof.write("matmul.ttgir", text)
    (kernel,) = json.loads(kprof("list", "matmul.ttgir", "--machine-code", "matmul*", "--json").stdout)
    (function,) = kernel["functions"]
    assert (kernel["kernel"], function["name"]) == ("matmul_kernel", "matmul_kernel")
    assert function["instructions"] == sum(line["instructions"] for line in function["lines"]) > 500
    ttgir = text.splitlines()
    (dot,) = [line for line in function["lines"] if "warp_group_dot " in ttgir[line["line"] - 1]]
    assert dot["pipelines"]["tensor"] >= 4
    (loop,) = function["loops"]
    assert dot["line"] in loop["lines"]

    printed = kprof("list", "matmul.ttgir", "--machine-code", "*").stdout
    assert f"matmul_kernel: {function['instructions']} instructions" in printed
    assert f"loop at line {loop['line']}: {loop['instructions']} instructions" in printed
    (row,) = [line for line in printed.splitlines() if line.split()[:1] == [str(dot["line"])]]
    assert f" {dot['pipelines']['tensor']} tensor" in row
    assert " loc(" not in printed


@pytest.mark.triton
def test_machine_code_that_cannot_be_shown(kprof: CommandLine) -> None:
    kprof.write("softmax.ttgir", SOFTMAX)
    ended = kprof("list", "softmax.ttgir", "--machine-code", "matmul*")
    assert ended.exit_code == 1
    assert ended.stderr == "error: no kernel matches matmul*\nhint: there are: softmax_kernel\n"
