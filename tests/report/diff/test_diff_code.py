"""How much of a launch's change is where the code changed: in a loop, outside of loops, or everywhere."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from buffers import Scope
from golden import FIXTURES
from known_sides import ITER_NS, SCOPES, around, usual
from replacing import replace
from snapshots import check

from kprof_inject.analysis.comparison.code import WHOLE, CodePart, Structure, structure_of
from kprof_inject.analysis.comparison.verdicts import KernelDiff, diff_captures
from kprof_inject.capture.resources import KernelResources
from kprof_inject.capture.schema import TTGIR_FILE
from kprof_inject.report.diff.rows import code_lines
from kprof_inject.report.diff.wording import kernel_answer
from kprof_inject.timeline.timeline import Timeline

TEXT = (FIXTURES / "3.6.0/cuda-90/matmul.ttgir").read_text()
LINES = TEXT.splitlines()
BEGIN = 1 + next(at for at, line in enumerate(LINES) if "scf.for" in line)
END = 1 + next(at for at, line in enumerate(LINES) if at > BEGIN and "scf.yield" in line)


def one_stage_less(text: str) -> str:
    return re.sub(r"(ttg\.async_wait .*)\{num = 2 : i32\}", r"\1{num = 0 : i32}", text)


def narrower(text: str) -> str:
    return text.replace("#ttg.blocked<{sizePerThread = [1, 8]", "#ttg.blocked<{sizePerThread = [1, 2]")


def limited(text: str) -> str:
    return text.replace("module attributes {", 'module attributes {"ttg.maxnreg" = 96 : i32, ', 1)


FUNC, LOOP, ITER, PEELED = (1, len(LINES)), (BEGIN, END + 1), (BEGIN + 1, END - 1), (BEGIN - 30, BEGIN - 1)


def with_code(
    timelines: Sequence[Timeline], text: str, places: Sequence[tuple[int, int]], triton: str, **takes: Any
) -> list[Timeline]:
    """The same launches, of a kernel with this text that takes so much, whose scopes go around these lines."""
    kernel = timelines[0].launch.kernel
    (kernel.folder / TTGIR_FILE).write_text(text)
    table = kernel.scopes
    scopes = tuple(replace(scope, lines=lines) for scope, lines in zip(table.scopes, places, strict=True))
    metadata = {**kernel.metadata, "triton_version": triton}
    clean = KernelResources(**takes, shared_bytes=1000)
    table = replace(table, scopes=scopes)
    kernel = replace(kernel, scopes=table, clean=clean, metadata=metadata)
    return [replace(one, table=table, launch=replace(one.launch, kernel=kernel)) for one in timelines]


def compared(
    folder: Path,
    text: str,
    *,
    registers: int = 100,
    spills: int = 0,
    triton: str = "3.6.0",
    scopes: Sequence[Scope] = SCOPES,
    places: Sequence[tuple[int, int]] = (FUNC, LOOP, ITER),
) -> Structure:
    """B has this text, takes so much, and its iterations are a fifth longer."""
    a = with_code(usual(folder / "a", 1, scopes=scopes), TEXT, places, "3.6.0", registers=100, spills=0)
    slower = usual(folder / "b", 2, iter_ns=1.2 * ITER_NS, scopes=scopes)
    b = with_code(slower, text, places, triton, registers=registers, spills=spills)
    (kernel,) = diff_captures(a, b).kernels
    found = structure_of(kernel)
    assert found is not None
    return found


def lines_of(kernel: KernelDiff) -> list[str]:
    return list(code_lines(kernel))


def check_lines(kernel: KernelDiff, case: str) -> list[str]:
    lines = lines_of(kernel)
    check("report/diff-code", "\n".join(lines), case)
    return lines


def told(found: Structure) -> dict[str, float | None]:
    return {part.part.name: part.explained for part in found.parts}


def test_what_changed_in_a_loop_explains_what_the_loop_lost(tmp_path: Path) -> None:
    found = compared(tmp_path, one_stage_less(TEXT))
    assert told(found) == {"loop[0]": pytest.approx(1, abs=0.05)}
    (loops,) = (part.loops for part in found.parts)
    assert loops is not None
    # In each iteration, it copies 128x64 and 64x128 halves.
    assert [loop.ahead_bytes_per_sm for loop in loops] == [2 * 32_768, 32_768]
    # No wait was recorded, and nobody knows the device.
    assert [(loop.wait_ns, loop.unit) for loop in loops] == [(None, None)] * 2


def test_spills_explain_what_is_lost_where_the_code_is_the_same(tmp_path: Path) -> None:
    found = compared(tmp_path, limited(TEXT), spills=40)
    assert told(found) == {"the whole kernel": pytest.approx(1, abs=0.05)}
    (part,) = found.parts
    assert [change.text.rpartition(" ")[2] for change in part.changes] == ["40", "96"]
    check("report/diff-code", "\n".join(change.text for change in part.changes), "spills")


def test_spills_do_not_explain_what_a_changed_loop_lost(tmp_path: Path) -> None:
    found = told(compared(tmp_path, one_stage_less(limited(TEXT)), spills=40))
    assert found == {"loop[0]": pytest.approx(1, abs=0.05), "the whole kernel": pytest.approx(0, abs=0.05)}


def test_another_triton_explains_what_is_lost_where_the_ttgir_is_the_same(tmp_path: Path) -> None:
    found = compared(tmp_path, TEXT, triton="3.9.0")
    assert told(found) == {"the whole kernel": pytest.approx(1, abs=0.05)}
    ((change,),) = (part.changes for part in found.parts)
    assert change.id == "triton_version" and change.text.endswith("Triton 3.6.0 → 3.9.0")
    assert not found.everywhere


def test_a_changed_loop_under_another_triton_may_be_slower_for_either(tmp_path: Path) -> None:
    a = with_code(usual(tmp_path / "a", 1), TEXT, (FUNC, LOOP, ITER), "3.6.0")
    b = with_code(usual(tmp_path / "b", 2, iter_ns=1.2 * ITER_NS), one_stage_less(TEXT), (FUNC, LOOP, ITER), "3.9.0")
    (kernel,) = diff_captures(a, b).kernels
    found = structure_of(kernel)
    assert found is not None and [change.id for change in found.everywhere] == ["triton_version"]
    lines = check_lines(kernel, "a changed loop under another Triton")
    assert sum(line.startswith("  loop[0]: ") for line in lines) == 1


@pytest.mark.parametrize(
    ("case", "text", "triton", "launches"),
    [
        ("a changed loop as the cause", one_stage_less(TEXT), "3.6.0", 20),
        ("a changed loop under another Triton as the cause", one_stage_less(TEXT), "3.9.0", 20),
        ("another Triton as the cause", TEXT, "3.9.0", 20),
        ("unchanged code as the cause", TEXT, "3.6.0", 20),
        ("a changed loop as the likely cause", one_stage_less(TEXT), "3.6.0", 1),
    ],
)
def test_the_largest_cause_is_the_changed_code_with_most_of_the_change(
    tmp_path: Path, case: str, text: str, triton: str, launches: int
) -> None:
    """With one launch each, only the times without records are known to differ."""
    clean = around(170_000, 5, 100), around(200_000, 6, 100)
    sides = [
        usual(tmp_path / name, seed, iter_ns=factor * ITER_NS, launches=launches)
        for name, seed, factor in (("a", 1, 1.0), ("b", 2, 1.2))
    ]
    a, b = (
        with_code(side, code, (FUNC, LOOP, ITER), version, times_ns=tuple(times))
        for side, code, version, times in zip(sides, (TEXT, text), ("3.6.0", triton), clean, strict=True)
    )
    (kernel,) = diff_captures(a, b).kernels
    news, cause = kernel_answer(kernel)
    assert news.startswith("B takes 17.7 % more time")
    assert cause.startswith("likely cause: " if launches == 1 else "largest cause: ")
    check("report/diff-code", cause, case)


def test_lines_that_no_listed_change_is_in_are_told(tmp_path: Path) -> None:
    edited = TEXT.replace("arith.constant 63 : i32", "arith.constant 31 : i32")
    a, b = (
        with_code(usual(tmp_path / name, 1), text, (FUNC, LOOP, ITER), "3.6.0")
        for name, text in (("a", TEXT), ("b", edited))
    )
    (kernel,) = diff_captures(a, b).kernels
    (line,) = check_lines(kernel, "a change of no known kind")
    assert line.startswith("code: ") and " 1 line" in line


def test_chosen_scopes_leave_what_explains_the_change_as_it_is(tmp_path: Path) -> None:
    a = with_code(usual(tmp_path / "a", 1), TEXT, (FUNC, LOOP, ITER), "3.6.0")
    b = with_code(usual(tmp_path / "b", 2, iter_ns=1.2 * ITER_NS), one_stage_less(TEXT), (FUNC, LOOP, ITER), "3.6.0")
    (whole,), (chosen,) = (diff_captures(a, b, scopes=scopes).kernels for scopes in ((), ("func",)))
    assert [scope.b.info.name for scope in chosen.scopes] == ["func"]
    assert kernel_answer(chosen) == kernel_answer(whole)
    assert lines_of(chosen) == lines_of(whole)


# A layout that A does not have, and a conversion to it.
LAYOUT = (
    "#wide = #ttg.blocked<{sizePerThread = [1, 4], threadsPerWarp = [2, 16], warpsPerCTA = [4, 1], order = [1, 0]}>"
)


def converted(text: str) -> str:
    line = next(line for line in LINES[BEGIN:END] if "ttg.async_wait" in line)
    made = "      %new = ttg.convert_layout %acc : tensor<128x128xf32, #mma> -> tensor<128x128xf32, #wide>"
    return f"{LAYOUT}\n" + text.replace(line, f"{line}\n{made}", 1)


@pytest.mark.parametrize(
    ("text", "only"),
    [
        (converted(TEXT), CodePart("loop[0]", 1)),
        (narrower(TEXT), None),  # a layout that is used in and out of the loop
        (limited(one_stage_less(TEXT)), None),
        (limited(TEXT), WHOLE),
        (one_stage_less(TEXT).replace("arith.constant 63 : i32", "arith.constant 31 : i32"), None),
        (TEXT, None),
    ],
)
def test_a_part_is_the_only_one_if_nothing_else_could_act(tmp_path: Path, text: str, only: CodePart | None) -> None:
    assert compared(tmp_path, text).only_part == only


def test_other_options_of_the_compiler_are_told(tmp_path: Path) -> None:
    a, b = (
        with_code(usual(tmp_path / name, seed, iter_ns=iter_ns), TEXT, (FUNC, LOOP, ITER), "3.6.0")
        for name, seed, iter_ns in (("a", 1, ITER_NS), ("b", 2, 1.2 * ITER_NS))
    )
    for one in (*a, *b):
        one.launch.kernel.metadata["enable_fp_fusion"] = one in a
    (kernel,) = diff_captures(a, b).kernels
    found = structure_of(kernel)
    assert found is not None and found.only_part == WHOLE
    assert [change.text for part in found.parts for change in part.changes] == ["option enable_fp_fusion True → False"]


def test_more_registers_alone_explain_nothing(tmp_path: Path) -> None:
    found = compared(tmp_path, TEXT, registers=120)
    assert told(found) == {"the whole kernel": None}


def test_iterations_stand_for_a_loop_that_was_not_recorded(tmp_path: Path) -> None:
    scopes = [SCOPES[0], replace(SCOPES[1], kind="iter", name="keys"), replace(SCOPES[2], kind="func", name="inner")]
    found = told(compared(tmp_path, one_stage_less(TEXT), scopes=scopes))
    assert found == {"keys": pytest.approx(1, abs=0.05)}


def test_a_change_in_several_loops_is_told_where_it_explains_most(tmp_path: Path) -> None:
    """What is peeled off the loop stands for another loop, which takes no time of its own."""
    scopes = [SCOPES[0], replace(SCOPES[1], name="empty"), replace(SCOPES[2], kind="loop", name="hot")]
    found = told(compared(tmp_path, narrower(TEXT), scopes=scopes, places=(FUNC, PEELED, LOOP)))
    assert found == {"hot": pytest.approx(1, abs=0.05), "outside of loops": pytest.approx(0, abs=0.05)}
