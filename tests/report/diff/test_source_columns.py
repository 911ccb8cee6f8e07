"""Both sides' source beside each other, with what changed at each line."""

from __future__ import annotations

import json
from pathlib import Path

from known_sides import usual
from replacing import replace

from kprof_inject.analysis.comparison.code import ChangedPart, CodePart, Structure
from kprof_inject.analysis.comparison.lines import SourceRow, source_parts
from kprof_inject.analysis.comparison.verdicts import KernelDiff, diff_captures
from kprof_inject.analysis.structure.features import Line
from kprof_inject.analysis.structure.structural_changes import StructuralChange
from kprof_inject.capture.schema import SOURCES_FILE
from kprof_inject.capture.scopes import PointRecord
from kprof_inject.ttgir.locations import SourcePoint

PATH = "/src/k.py"
A = [f"    line {number}" for number in range(1, 31)]
# A line more before the kernel's scopes, one more in the kernel, one that reads otherwise, and one behind it.
B = ["    import", *A[:17], "    added", *A[17:19], "    edited", *A[20:28], "    later", *A[28:]]


def compared(folder: Path, a: list[str] | None, b: list[str] | None) -> KernelDiff:
    sides = []
    for name, lines, path in (("a", a, PATH), ("b", b, "/elsewhere/k.py")):
        launches = usual(folder / name, 1, launches=2)
        kernel = launches[0].launch.kernel
        if lines is not None:
            (kernel.folder / SOURCES_FILE).write_text(json.dumps({path: "\n".join(lines) + "\n"}))
        scopes = [replace(scope, place=PointRecord(PATH, 12 + at)) for at, scope in enumerate(kernel.scopes.scopes)]
        kernel = replace(
            kernel,
            scopes=replace(kernel.scopes, scopes=(*scopes[:-1], replace(scopes[-1], place=PointRecord(PATH, 22)))),
        )
        sides.append([replace(one, launch=replace(one.launch, kernel=kernel)) for one in launches])
    (diff,) = diff_captures(*sides).kernels
    return diff


def change_at(line: int, text: str, *, in_b: bool) -> StructuralChange:
    place = Line(SourcePoint(PATH, line, 1), ())
    operations = (object(),)
    return StructuralChange("bits", text, "load", place, "", *((), operations) if in_b else (operations, ()))  # type: ignore[arg-type]


def shown(row: SourceRow) -> tuple[str, str, tuple[str, ...]]:
    a, b = (f"{line.number}:{line.text.strip()}" if line else "" for line in (row.a, row.b))
    return a, b, row.changes


def test_lines_stand_beside_those_that_say_the_same(tmp_path: Path) -> None:
    structure = Structure(
        (
            ChangedPart(
                CodePart("loop[0]", 1), (change_at(9, "wider", in_b=True), change_at(26, "gone", in_b=False)), ()
            ),
        ),
        None,
        0,
    )
    parts = list(source_parts(compared(tmp_path, A, B), structure))
    assert [part[0].file for part in parts] == ["k.py"] * 3
    assert [shown(row) for row in parts[0]] == [
        ("6:line 6", "7:line 6", ()),
        ("7:line 7", "8:line 7", ()),
        ("8:line 8", "9:line 8", ("wider",)),
        ("9:line 9", "10:line 9", ()),
        ("10:line 10", "11:line 10", ()),
    ]
    # The import stands before the kernel, and the later line behind it.
    assert [shown(row) for row in parts[1] if row.is_edited] == [
        ("", "19:added", ()),
        ("20:line 20", "22:edited", ()),
    ]
    assert [shown(row) for row in parts[2] if row.changes] == [("26:line 26", "28:line 26", ("gone",))]


def test_where_a_side_has_no_text_there_is_nothing_to_show(tmp_path: Path) -> None:
    assert list(source_parts(compared(tmp_path, A, None), None)) == []


def test_where_nothing_changed_there_is_nothing_to_show(tmp_path: Path) -> None:
    assert list(source_parts(compared(tmp_path, A, A), None)) == []
