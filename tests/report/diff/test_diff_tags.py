"""Two captures with tags: medians by value, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from buffers import Cta, Scope, buffer_words, end, kernel_json, save_launches, start, tagged

from kprof_inject.analysis.comparison.verdicts import KernelDiff, diff_captures
from kprof_inject.report.diff.rows import diff_json
from kprof_inject.report.diff.wording import kernel_notes
from kprof_inject.timeline.timeline import Timeline, decode_launch

SCOPES = [Scope("kernel"), Scope("work", "op", 0, tags=("expert",))]


def captured(folder: Path, cycles: Mapping[int, int], scopes: Sequence[Scope] = SCOPES) -> list[Timeline]:
    """Four launches, in which each expert takes so many cycles, twice."""
    entries = [start(0, 1000)]
    for number, (expert, takes) in enumerate([*cycles.items()] * 2):
        begin = 2000 * (1 + number)
        entries += [*tagged(2, expert), start(1, begin), end(1, begin + takes)]
    cta = Cta([[*entries, end(0, 20_000)]], pre_final_ns=11_000, post_final_ns=11_100)
    words = buffer_words([cta], 128)
    return [decode_launch(one) for one in save_launches(folder, kernel_json(scopes, words, 1), [words] * 4)]


def compared(a: list[Timeline], b: list[Timeline]) -> KernelDiff:
    (kernel,) = diff_captures(a, b).kernels
    return kernel


def test_medians_by_value_stand_side_by_side(tmp_path: Path) -> None:
    diff = diff_captures(
        captured(tmp_path / "a", {0: 198, 3: 1584}), captured(tmp_path / "b", {0: 198, 3: 792, 5: 198})
    )
    (kernel,) = diff.kernels
    notes = [note for note in kernel_notes(kernel) if note.startswith("work by expert")]
    (note,) = notes
    assert note.startswith("work by expert, p50: 3: ")
    assert "5: - → " in note
    (_, work) = kernel.scopes
    found = work.tags()["expert"]
    assert found[3].a is not None and found[3].b is not None
    assert abs(found[3].a / found[3].b - 2) < 0.1
    assert found[5].a is None
    (scope,) = (one for one in diff_json(diff)["kernels"][0]["scopes"] if one["name"] == "work")
    assert {tag["value"] for tag in scope["tags"]} == {0, 3, 5}


def test_a_tag_of_one_side_alone_is_not_compared(tmp_path: Path) -> None:
    other = [SCOPES[0], Scope("work", "op", 0, tags=("slot",))]
    kernel = compared(captured(tmp_path / "a", {0: 198}), captured(tmp_path / "b", {0: 198}, other))
    assert all(not scope.tags() for scope in kernel.scopes)
