"""What is told of tags: a row for each value, the heaviest first, and what is left out."""

from __future__ import annotations

from pathlib import Path

from buffers import Cta, Scope, end, save_launch, start, tagged
from figures_in import figures_in
from screens import lines_shown
from snapshots import check

from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.report.terminal.first_screen import print_all_tags, print_tags
from kprof_inject.report.terminal.tables import Room
from kprof_inject.timeline.timeline import decode_launch


def shown(folder: Path, experts: list[int | None]) -> list[str]:
    """Expert 3 takes 210 cycles each time, the others 100."""
    entries = [start(0, 1000)]
    for number, expert in enumerate(experts):
        begin = 1100 + 300 * number
        entries += tagged(2, expert) if expert is not None else ()
        entries += [start(1, begin), end(1, begin + (210 if expert == 3 else 100))]
    entries.append(end(0, 1100 + 300 * len(experts)))
    scopes = [Scope("kernel"), Scope("expert loop", "loop", 0, tags=("expert",))]
    cta = Cta([entries], pre_final_ns=20_000, post_final_ns=20_100)
    report = LaunchAnalysis.of(decode_launch(save_launch(folder, scopes, [cta], 256)))
    return lines_shown(lambda console: print_tags(report.summary, console), 100)


def test_the_value_that_takes_most_comes_first(tmp_path: Path) -> None:
    header, *rows = shown(tmp_path, [0, 3, 1, 3, 0, 1, 3])
    assert header.split() == ["expert", "loop", "by", "expert", "count", "total", "p50", "vs.", "others"]
    assert [row.split()[0] for row in rows] == ["3", "0", "1"]
    first = rows[0].split()
    assert first[1] == "3"
    assert first[-2:] == ["2.1", "x"]


def test_one_value_is_compared_with_no_other(tmp_path: Path) -> None:
    _, row = shown(tmp_path, [4, 4])
    assert row.split()[-1] == "-"


def test_what_is_not_shown_is_counted(tmp_path: Path) -> None:
    *rows, last = lines = shown(tmp_path, [*range(12), None])
    assert len(rows) == 1 + 8
    assert last.startswith("expert loop by expert: ") and figures_in(last) == ["4", "1"]
    check("report/tag-table", "\n".join(lines))


def test_of_many_tags_the_first_have_tables_as_far_as_there_is_room(tmp_path: Path) -> None:
    scopes = [Scope("kernel", tags=("expert", "tile", "stage"))]
    entries = [entry for tag in (1, 2, 3) for entry in tagged(tag, 7)]
    launch = save_launch(tmp_path, scopes, [Cta([[*entries, start(0, 1000), end(0, 1100)]])], 16)
    summary = LaunchAnalysis.of(decode_launch(launch)).summary

    def headings(room: Room) -> list[str]:
        lines = lines_shown(lambda console: print_tags(summary, console, room), 100)
        return [" ".join(line.split()[:3]) for line in lines if not line.startswith("7")]

    assert headings(Room()) == ["kernel by expert", "kernel by tile", "1 tag hidden,"]
    assert headings(Room(lines=5)) == ["kernel by expert", "2 tags hidden,"]
    assert headings(Room(lines=1)) == ["3 tags hidden,"]
    everything = lines_shown(lambda console: print_all_tags(summary, console), 100)
    titles = [" ".join(line.split()[:3]) for line in everything if " by " in line]
    assert titles == ["kernel by expert", "kernel by tile", "kernel by stage"]


def test_without_tags_there_is_nothing(tmp_path: Path) -> None:
    launch = save_launch(tmp_path, [Scope("kernel")], [Cta([[start(0, 1000), end(0, 1100)]])], 16)
    summary = LaunchAnalysis.of(decode_launch(launch)).summary
    assert not lines_shown(lambda console: print_tags(summary, console), 100)
