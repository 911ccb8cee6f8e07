"""Which scope is which after an edit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from buffers import Cta, JsonWriter, Scope, buffer_words, kernel_json, launch_json
from replacing import replace
from snapshots import check

from kprof_inject.analysis.comparison.matching import ScopeIdentity, ScopeMatch, ScopeMatching, identities, match_scopes
from kprof_inject.capture.reader import read_capture
from kprof_inject.capture.scopes import PointRecord
from kprof_inject.capture.scopes import Scope as TableScope


def scope(name: str, kind: str, parent: int = -1, line: str = "", number: int = 1) -> ScopeIdentity:
    info = TableScope(record=name, name=name, kind=kind, place=PointRecord("/src/k.py", number), parent=parent)
    return ScopeIdentity(info, (line,) if line else (), distinct_name=name)


def changed(scope: ScopeIdentity, **changes: Any) -> ScopeIdentity:
    """A scope whose entry in the table has these changes; its other properties may differ, too."""
    own = {name: changes.pop(name) for name in ("lines", "partition") if name in changes}
    if "name" in changes:
        own["distinct_name"] = changes["name"]
    return replace(scope, info=replace(scope.info, **changes), **own)


KERNEL = [
    scope("func", "func", -1, "def kernel(x):", 1),
    scope("loop[0]", "loop", 0, "for k in range(n):", 3),
    scope("iter[0]", "iter", 1, "for k in range(n):", 3),
    scope("line(5)", "line", 2, "x = tl.load(p)", 5),
]


def pairs(matching: ScopeMatching, a: Sequence[ScopeIdentity], b: Sequence[ScopeIdentity]) -> dict[str, str]:
    return {a[match.a].info.name: b[match.b].info.name for match in matching.matches}


def check_note(note: str, case: str) -> None:
    check("report/diff-matching", note, case)


def test_the_same_scopes_match_without_a_note() -> None:
    matching = match_scopes(KERNEL, KERNEL)
    assert matching.matches == tuple(ScopeMatch(at, at) for at in range(len(KERNEL)))
    assert matching.only_a == matching.only_b == ()


def test_lines_that_moved_are_the_same() -> None:
    moved = [changed(one, place=PointRecord("/elsewhere/k.py", number + 40)) for number, one in enumerate(KERNEL)]
    moved[3] = changed(moved[3], name="line(43)")
    matching = match_scopes(KERNEL, moved)
    assert [(match.a, match.b) for match in matching.matches] == [(at, at) for at in range(4)]
    assert [match.note for match in matching.matches] == ["", "", "", "called line(5) in A"]


def test_a_loop_before_it_renames_a_loop_and_what_is_in_it() -> None:
    b = [
        KERNEL[0],
        scope("loop[0]", "loop", 0, "for i in range(2):", 2),
        scope("iter[0]", "iter", 1, "for i in range(2):", 2),
        scope("loop[1]", "loop", 0, "for k in range(n):", 4),
        scope("iter[1]", "iter", 3, "for k in range(n):", 4),
        scope("line(6)", "line", 4, "x = tl.load(p)", 6),
    ]
    matching = match_scopes(KERNEL, b)
    assert pairs(matching, KERNEL, b) == {
        "func": "func",
        "loop[0]": "loop[1]",
        "iter[0]": "iter[1]",
        "line(5)": "line(6)",
    }
    assert [one.scope.info.name for one in matching.only_b] == ["loop[0]", "iter[0]"]


def test_a_line_that_was_edited_keeps_its_name() -> None:
    b = [*KERNEL[:3], changed(KERNEL[3], name="line(8)", lines=("x = tl.load(p, mask=m)",))]
    matching = match_scopes(KERNEL, b)
    match = matching.matches[3]
    assert (match.a, match.b) == (3, 3)
    check_note(match.note, "an edited line")


def test_a_scope_around_others_takes_none_of_them_away() -> None:
    b = [
        KERNEL[0],
        scope("main", "marker", 0, "# kprof: begin main", 2),
        changed(KERNEL[1], parent=1),
        changed(KERNEL[2], parent=2),
        changed(KERNEL[3], parent=3),
    ]
    matching = match_scopes(KERNEL, b)
    assert len(matching.matches) == 4
    notes = {b[match.b].info.name: match.note for match in matching.matches}
    moved = notes.pop("loop[0]")
    assert set(notes) == {"func", "iter[0]", "line(5)"} and not any(notes.values())
    check_note(moved, "in another scope")
    assert [one.scope.info.name for one in matching.only_b] == ["main"]


def test_a_scope_that_was_taken_out_leaves_those_in_it() -> None:
    b = [KERNEL[0], changed(KERNEL[2], parent=0), changed(KERNEL[3], parent=1)]
    matching = match_scopes(KERNEL, b)
    assert pairs(matching, KERNEL, b) == {"func": "func", "iter[0]": "iter[0]", "line(5)": "line(5)"}
    (gone,) = matching.only_a
    assert gone.scope.info.name == "loop[0]"
    check_note(gone.why, "a scope that was taken out")


def test_scopes_that_are_alike_go_by_their_order() -> None:
    """The loads of a pipelined loop's prologue."""
    loads = [scope("load", "line", 0, "x = tl.load(p)", 5) for _ in range(3)]
    matching = match_scopes([KERNEL[0], *loads], [KERNEL[0], *loads])
    assert [(match.a, match.b) for match in matching.matches] == [(at, at) for at in range(4)]


def test_scopes_that_are_alike_in_different_numbers_are_not_guessed() -> None:
    loads = [scope("load", "line", 0, "x = tl.load(p)", 5) for _ in range(3)]
    matching = match_scopes([KERNEL[0], *loads], [KERNEL[0], *loads[:2]])
    assert len(matching.matches) == 1
    (why,) = {one.why for one in matching.only_a}
    check_note(why, "three that are alike, and two")
    assert len(matching.only_b) == 2


def test_the_name_alone_of_another_kind_is_no_match() -> None:
    matching = match_scopes([scope("load", "line")], [scope("load", "op")])
    assert matching.matches == ()
    why = matching.only_a[0].why
    check_note(why, "a name of another kind")


def loops_called_work(*labels: str) -> list[ScopeIdentity]:
    loops = [changed(scope("work", "loop", 0, f"for {label} in x:"), label=label) for label in labels]
    return [changed(KERNEL[0], label="func"), *loops]


def test_scopes_that_share_a_name_match_by_their_sites() -> None:
    a, b = loops_called_work("loop[0]", "loop[1]"), loops_called_work("loop[1]", "loop[2]")
    matching = match_scopes(a, b)
    assert [(match.a, match.b) for match in matching.matches] == [(0, 0), (2, 1)]
    (why,) = (one.why for one in matching.only_a)
    check_note(why, "names at other sites")
    edited = [b[0], *(changed(one, lines=(f"{one.lines[0]}  # edited",)) for one in b[1:])]
    assert [(match.a, match.b) for match in match_scopes(a, edited).matches] == [(0, 0), (2, 1)]


def test_a_name_that_one_loop_has_matches_it_wherever_it_went() -> None:
    matching = match_scopes(loops_called_work("loop[0]"), loops_called_work("loop[1]"))
    assert [(match.a, match.b) for match in matching.matches] == [(0, 0), (1, 1)]


def test_without_texts_names_go() -> None:
    bare = [changed(one, lines=()) for one in KERNEL]
    assert len(match_scopes(bare, KERNEL).matches) == 4
    assert match_scopes([], KERNEL).matches == ()


def test_what_lines_say_is_read_from_the_capture(tmp_path: Path) -> None:
    source = "def kernel(x):\n    # kprof: begin load\n    x = tl.load( p )  # kprof: get\n"
    scopes = [
        Scope("get", "marker", -1, ("/src/k.py", 3), [("/src/k.py", 1)]),
        Scope("load", "marker", -1, ("/src/k.py", 2)),
        Scope("gone", "line", -1, ("/src/k.py", 30)),
        Scope("other", "line", -1, ("/src/other.py", 1)),
        Scope("nowhere", "line"),
    ]
    words = buffer_words([Cta([[]])], 4)
    writer = JsonWriter(tmp_path / "process", {"pid": 7})
    writer.add_kernel("v0", kernel_json(scopes, words, 1), "module {}\n", {"/src/k.py": source})
    writer.add_launch(launch_json(words), memoryview(words.tobytes()))
    writer.finish()
    (launch,) = read_capture(tmp_path).launches
    assert [one.lines for one in identities(launch.kernel)] == [
        ("x = tl.load( p )", "def kernel(x):"),
        ("# kprof: begin load",),
        (),
        (),
        (),
    ]


SPECIALISED = [
    changed(scope("func", "func", -1, "def kernel(x):", 1), partition="default partition"),
    changed(scope("loop[0]", "loop", 0, "for t in range(n):", 9), partition="default partition"),
    changed(scope("loop[1]", "loop", -1, "for t in range(n):", 3), partition="partition 0"),
    changed(scope("loop[2]", "loop", -1, "for t in range(n):", 3), partition="partition 1"),
]


def test_scopes_are_matched_within_their_partitions() -> None:
    # A loop before all others gives each of them another number, and all read alike.
    first = changed(scope("loop[0]", "loop", 0, "for k in range(8):", 2), partition="default partition")
    numbered = [changed(one, name=f"loop[{number}]") for number, one in enumerate(SPECIALISED)]
    other = [SPECIALISED[0], first, *numbered[1:]]
    assert [(match.a, match.b) for match in match_scopes(SPECIALISED, other).matches] == [
        (0, 0),
        (1, 2),
        (2, 3),
        (3, 4),
    ]


def test_a_loop_that_another_partition_runs_is_noted() -> None:
    moved = [*SPECIALISED[:2], changed(SPECIALISED[2], partition="partition 1")]
    matching = match_scopes(SPECIALISED[:3], moved)
    *same, moved = (match.note for match in matching.matches)
    assert same == ["", ""]
    check_note(moved, "in another partition")


def test_captures_that_do_not_tell_partitions_match_those_that_do() -> None:
    older = [changed(one, partition="", parent=0 if number else -1) for number, one in enumerate(SPECIALISED)]
    matching = match_scopes(older, SPECIALISED)
    assert {match.a: match.b for match in matching.matches} == {0: 0, 1: 1, 2: 2, 3: 3}
    note = matching.matches[2].note
    assert "func in A" in note and "partition 0 in B" in note
    assert matching.matches[1].note == ""
