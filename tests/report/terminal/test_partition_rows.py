"""The table of a warp-specialised kernel: a tree for each partition."""

from __future__ import annotations

from pathlib import Path

from altered import answer_of
from golden import FIXTURES, read
from planning import fixture_view
from screens import WIDE, lines_shown
from snapshots import check
from specialised import save_specialised

from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.capture.encoding import json_values
from kprof_inject.report.terminal.first_screen import print_first_screen
from kprof_inject.report.terminal.screens import print_details
from kprof_inject.select.plan import make_plan
from kprof_inject.select.selectors import parse_selectors
from kprof_inject.timeline.timeline import decode_launch

MODULE = Path(__file__).parents[2] / "select" / "partitioned" / "three_partitions.ttgir.gz"


def reported(folder: Path, *selectors: str) -> LaunchAnalysis:
    plan = make_plan(fixture_view(read(MODULE)), parse_selectors(selectors))
    return LaunchAnalysis.of(decode_launch(save_specialised(folder, plan)))


def printed(report: LaunchAnalysis, width: int) -> list[str]:
    return lines_shown(lambda console: print_details(answer_of(report), console), width)


def rows(report: LaunchAnalysis) -> list[list[str]]:
    return [[cell.rstrip() for cell in line.split("│")[1:-1]] for line in printed(report, WIDE) if "│" in line]


def test_scopes_of_a_partition_stand_together_whatever_their_place_in_the_text(tmp_path: Path) -> None:
    names = [row[0].strip() for row in rows(reported(tmp_path, "op(ttng.inval_barrier)=last", "loop"))]
    assert names[0] == "default partition (warps 0-3)"
    last = next(at for at, name in enumerate(names) if name.startswith("last #"))
    assert last < names.index("partition 0 (warp 10)")


def test_a_partition_of_which_nothing_was_selected_is_listed(tmp_path: Path) -> None:
    found = rows(reported(tmp_path, "loop[1]"))
    assert [row[0].strip() for row in found] == [
        "default partition (4 warps, nothing selected)",
        "partition 0 (warp 10)",
        "loop[1]",
        "partition 1 (4 warps, nothing selected)",
    ]
    assert [cell.strip() for cell in found[0][3:]] == ["-"] * 6 + [""]


def test_all_of_it_says_what_shares_are_of(tmp_path: Path) -> None:
    check("report/partitions", "\n".join(printed(reported(tmp_path, "func", "loop"), 160)))


def test_the_json_has_the_partitions(tmp_path: Path) -> None:
    report = reported(tmp_path, "func", "loop", "iter")
    values = json_values(answer_of(report))
    assert [(one["name"], one["warps"], one["warp_count"], one["scopes"]) for one in values["partitions"]] == [
        ("default partition", (0, 1, 2, 3), 4, (0, 1, 2)),
        ("partition 0", (10,), 1, (3, 4)),
        ("partition 1", (4, 5, 6, 7), 4, (5, 6)),
    ]
    for one in values["partitions"]:
        inside = sum(values["scopes"][index]["self_ns"] for index in one["scopes"])
        assert inside + one["outside_ns"] == one["whole_ns"]
    assert [scope["partition"] for scope in values["scopes"]] == ["default partition"] * 3 + ["partition 0"] * 2 + [
        "partition 1"
    ] * 2


def test_a_partition_is_called_what_the_code_calls_it(tmp_path: Path) -> None:
    (path,) = FIXTURES.glob("3.6.0/cuda-90/gluon_warp_specialized.ttgir")
    plan = make_plan(fixture_view(read(path)), parse_selectors(["loop"]))
    titles = [
        one.title for one in LaunchAnalysis.of(decode_launch(save_specialised(tmp_path, plan))).summary.partitions
    ]
    assert titles == ["default partition: _sum_partition (warps 0-3)", "partition 0: _load_partition (warp 6)"]


def test_the_first_screen_has_the_partitions_too(tmp_path: Path) -> None:
    report = reported(tmp_path, "func", "loop", "iter")
    lines = lines_shown(lambda console: print_first_screen(answer_of(report), console))
    table = lines[next(number for number, line in enumerate(lines) if line.startswith("scope")) + 1 :]
    assert [line.split("  ")[0] for line in table if not line.startswith(" ")] == [
        "default partition (warps 0-3)",
        "partition 0 (warp 10)",
        "partition 1 (warps 4-7)",
    ]
