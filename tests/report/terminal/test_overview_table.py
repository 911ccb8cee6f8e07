"""What is told of many launches: which kernel matters, and the answer for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from altered import altered, report_of
from figures_in import figures_in
from known_edits import known_edits
from known_kernels import DRAM_BOUND, MOST_DRAM
from known_launch import known_launch
from replacing import replace
from screens import WIDE, lines_shown
from several_kernels import save_kernels
from snapshots import check

from kprof_inject.analysis.findings.finding import Finding
from kprof_inject.analysis.findings.rules import Judgement
from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.analysis.limits.limit import Limit
from kprof_inject.analysis.limits.rates import DRAM
from kprof_inject.analysis.program import Report
from kprof_inject.capture.capture_files import write
from kprof_inject.capture.measurements import GpuWork, GpuWorkRecord
from kprof_inject.capture.reader import read_capture
from kprof_inject.report.terminal.screens import print_answers
from kprof_inject.timeline.timeline import decode_launch

HEADINGS = ["kernel", "launches", "span", "of all", "limit", "trust"]


def made(folder: Path, name: str, duration_ns: int, index: int = 0, launches: int | None = None) -> LaunchAnalysis:
    timeline = known_launch(folder / name)
    kernel = replace(timeline.launch.kernel, name=name, variant=name, launches=launches)
    report = LaunchAnalysis.of(replace(timeline, launch=replace(timeline.launch, kernel=kernel, index=index)))
    return altered(report, summary=replace(report.summary, duration_ns=duration_ns))


def screen(*reports: LaunchAnalysis, width: int = WIDE, height: int | None = None) -> list[str]:
    return screen_of(report_of(*reports), width, height)


def screen_of(report: Report, width: int = WIDE, height: int | None = None) -> list[str]:
    return lines_shown(lambda console: print_answers(report, console), width, height=height)


def captured_in(folder: Path, *left_out: str) -> Report:
    """The report on a capture, for which these kernels are not chosen."""
    launches = read_capture(folder).launches
    return Report.of((decode_launch(one) for one in launches if one.kernel.name not in left_out), (), launches)


def test_the_kernel_that_takes_most_time_comes_first_and_is_answered_for(tmp_path: Path) -> None:
    lines = screen(made(tmp_path, "short", 1000, launches=500), made(tmp_path, "long", 9000, launches=10), width=100)
    assert lines[0].split("  ")[0] == "kernel" and lines[0].split()[-1] == "trust"
    assert [" ".join(line.split()[:5]) for line in lines[1:3]] == ["short 500 1.00 µs 84.7", "long 10 9.00 µs 15.3"]
    assert lines[1].split()[-1] == "unknown"
    assert lines[4].startswith("short #0   span 1.00 µs with records")
    assert not any(line.startswith("scope") for line in lines)


def test_without_the_numbers_of_launches_there_are_no_shares(tmp_path: Path) -> None:
    lines = screen(made(tmp_path, "short", 1000), made(tmp_path, "long", 9000, launches=10))
    assert "of all" not in lines[0] and "%" not in lines[1] + lines[2]
    assert lines[1].startswith("long")


def test_of_some_kernels_shares_are_of_the_whole_program(tmp_path: Path) -> None:
    """What the others take is known from their times without records, or from the buffers' headers."""
    clean = {"times_ns": [2000.0] * 3}
    folder = save_kernels(save_kernels(tmp_path, {"a": (9000, 10)}, clean=clean), {"b": (7000, 10), "last": (1000, 10)})
    lines = screen_of(captured_in(folder, "a"))
    assert [" ".join(line.split()[:5]) for line in lines[1:3]] == ["b 10 7.00 µs 70.0", "last 10 1.00 µs 10.0"]
    for path in folder.glob("*a/end.json"):
        path.write_text('{"left_out": {}}')
    assert "of all" not in screen_of(captured_in(folder, "a"))[0]


def found(share: float, likely: float | None = None) -> tuple[Judgement, ...]:
    finding = Finding("few-warps", None, share, "few warps", "use more warps", {}, likely=likely)
    return (Judgement(finding.rule, (finding,), None),)


def limited(made: LaunchAnalysis, part: float, judgements: tuple[Judgement, ...]) -> LaunchAnalysis:
    """The launch if its necessary bytes take this part of its time."""
    limit = Limit("DRAM", (DRAM,), "DRAM", {DRAM: MOST_DRAM * part}, evidence="measured")
    light = replace(made.speed_of_light, dram=DRAM_BOUND)
    return altered(made, limit=limit, speed_of_light=light, judgements=judgements)


def program(folder: Path) -> list[LaunchAnalysis]:
    """Kernels that take 10, 9, 8, 7 and 6 ms of a program."""
    advised = limited(made(folder, "advised", 100_000, launches=100), 0.5, found(0.2))
    at_roof = limited(made(folder, "at roof", 90_000, launches=100), 0.9, ())
    noted = limited(made(folder, "noted", 80_000, launches=100), 0.6, found(0.5, likely=0.0))
    tried = limited(made(folder, "tried", 70_000, launches=100), 0.5, found(0.4))
    unknown = made(folder, "unknown", 60_000, launches=100)
    return [advised, at_roof, noted, altered(tried, edits=known_edits()), altered(unknown, judgements=())]


def test_the_kernel_with_most_to_win_comes_first(tmp_path: Path) -> None:
    """The gain of edits counts first, then the first advice, then what necessary work leaves, else the whole time."""
    lines = screen(*program(tmp_path), width=120)
    rows = [lines[0].index(title) for title in ("to win", "by", "limit")]
    cells = [
        (line.split("  ")[0].strip(), line[rows[0] - 2 : rows[1]].strip(), line[rows[1] : rows[2]].strip())
        for line in lines[1:6]
    ]
    assert cells == [
        ("unknown", "?", ""),
        ("noted", "3.20 ms", ""),
        ("tried", "2.18 ms", "tried: num_stages=4"),
        ("advised", "2.00 ms", "few-warps"),
        ("at roof", "900 µs", "at its roof"),
    ]
    assert lines[7].startswith("unknown #0 ")


def test_the_part_of_the_first_kernels_is_said(tmp_path: Path) -> None:
    known = program(tmp_path)[:-1]
    lines = screen(*known, width=120)
    assert lines[5] == "the first three are 89.1 % of what there is to win"
    assert not any("of what there is to win" in line for line in screen(*program(tmp_path / "again")))
    assert not any("of what there is to win" in line for line in screen(*known[:3]))


def launched(folder: Path, name: str, time_us: float, launches: int | None, first_ns: int = 0) -> LaunchAnalysis:
    """A launch that takes 1 µs on the device from ``first_ns`` on; an empty one takes 3 µs by events."""
    timeline = known_launch(folder / name)
    clean = replace(timeline.launch.kernel.clean, times_ns=(1e3 * time_us,) * 9, empty_launch_ns=3_000.0)
    kernel = replace(timeline.launch.kernel, name=name, variant=name, launches=launches, clean=clean)
    launch = replace(timeline.launch, kernel=kernel)
    return LaunchAnalysis.of(replace(timeline, launch=launch, first_ns=first_ns, last_ns=first_ns + 1_000))


SUMMED_UP = "80 of 90 launches take under 12 µs each: 400 µs, of which launching is 60.0 %; fuse "


@pytest.mark.parametrize(
    ("begins_ns", "advice"),
    [
        ([0, 2_000, 4_900], "a, b, c, which follow each other (5.90 µs)"),
        ([2_000, 0, 9_000], "b, a, which follow each other (3.00 µs)"),
        ([0, 4_000, 9_000], "them with the kernels before or after them"),
    ],
)
def test_short_launches_are_summed_up(tmp_path: Path, begins_ns: list[int], advice: str) -> None:
    """Between launches more than 2 µs apart, others may have run."""
    short = [
        launched(tmp_path, name, 5.0, launches, begin_ns)
        for name, launches, begin_ns in zip("abc", (40, 30, 10), begins_ns, strict=True)
    ]
    lines = screen(launched(tmp_path, "long", 500.0, 10, 100_000), *short, width=200)
    assert [line for line in lines if "take under" in line] == [SUMMED_UP + advice]


def test_short_launches_are_not_summed_up_where_they_matter_little(tmp_path: Path) -> None:
    few, unknown = (launched(tmp_path / str(count), "a", 5.0, count) for count in (1, None))
    for launches in ([few], [unknown], [launched(tmp_path, "a", 13.0, 500)]):
        lines = screen(launched(tmp_path, "long", 500.0, 10, 100_000), *launches, width=200)
        assert not [line for line in lines if "take under" in line]
    assert not [line for line in screen(launched(tmp_path, "alone", 5.0, 500), width=200) if "take under" in line]


def test_on_a_narrow_terminal_the_limits_stay(tmp_path: Path) -> None:
    lines = screen(*program(tmp_path), width=45)
    assert lines[0].split() == ["kernel", "share", "to", "win", "limit"]
    assert max(map(len, lines[:6])) <= 45


def test_what_else_the_gpu_did_has_rows(tmp_path: Path) -> None:
    folder = save_kernels(tmp_path, {"a": (9000, 100), "b": (1000, 100)})
    copies = [GpuWork(name=f"copy {number}", kind="copy", count=1, total_ns=4_000.0 - number) for number in range(9)]
    work = (GpuWork(name="gemm", kind="kernel", count=10, total_ns=1e6), *copies)
    write(folder, GpuWorkRecord(processes=1, work=work))
    lines = screen_of(captured_in(tmp_path), 120)
    assert [" ".join(line.split()[:5]) for line in lines[1:4]] == [
        "a 100 9.00 µs 44.2",
        "b 100 1.00 µs 4.9",
        "gemm 10 100 µs 49.1",
    ]
    assert "not recorded" in lines[3] and lines[4] == "hidden: 9 names that take less, not recorded either"


def test_one_kernel_and_other_work_have_a_table_above_the_kernels_own(tmp_path: Path) -> None:
    folder = save_kernels(tmp_path, {"a": (9000, 100)})
    write(folder, GpuWorkRecord(processes=1, work=(GpuWork(name="gemm", kind="kernel", count=10, total_ns=9e5),)))
    launches = read_capture(folder).launches
    lines = screen_of(Report.of([decode_launch(launches[0])], (), launches), 120)
    assert [line.split()[0] for line in lines[:3]] == ["kernel", "a", "gemm"]
    assert lines[1].split()[4] == lines[2].split()[4] == "50.0"
    assert lines[3] == "" and lines[4].startswith("a #0 ")
    assert any(line.startswith("func ") for line in lines)


def two_variants(folder: Path) -> tuple[LaunchAnalysis, LaunchAnalysis]:
    """A launch of each, of one kernel."""
    one, other = made(folder / "one", "k", 1000), made(folder / "other", "k", 3000)
    kernel = replace(other.launch.kernel, variant="k-2")
    launch = replace(other.launch, kernel=kernel)
    other = altered(
        other, timeline=replace(other.timeline, launch=launch), summary=replace(other.summary, variant="k-2")
    )
    return one, other


def test_a_kernel_with_several_variants_is_one_row(tmp_path: Path) -> None:
    one, other = two_variants(tmp_path)
    lines = screen(one, other, made(tmp_path, "last", 10))
    assert lines[0].split()[1] == "variants"
    assert lines[1].split()[:3] == ["k", "2", "2"]
    assert lines[1].split()[3:5] == ["2.00", "µs"]


def test_launches_of_one_kernel_stand_below_the_answer_for_the_one_in_the_middle(tmp_path: Path) -> None:
    timeline = known_launch(tmp_path)
    reports = [
        altered(one, summary=replace(one.summary, launch=number, duration_ns=1000 + 10 * number))
        for number in range(20)
        for one in [LaunchAnalysis.of(replace(timeline, launch=replace(timeline.launch, index=number)))]
    ]
    check("report/many-launches", "\n".join(screen(*reports)), "twenty launches")
    low = screen(*reports, width=80, height=24)
    assert len(low) <= 24 - 6
    check("report/many-launches", "\n".join(low), "twenty launches on a low screen")


def test_launches_of_several_variants_say_of_which_they_are(tmp_path: Path) -> None:
    one, other = two_variants(tmp_path)
    lines = screen(one, other)
    assert figures_in(lines[0])[:5] == ["2", "2", "1.00", "3.00", "0"] and "variants" in lines[0]
    check("report/many-launches", lines[0], "launches of two variants")
    assert [line.split()[:2] for line in lines[-3:]] == [["launch", "variant"], ["#0", "k-2"], ["#0", "k"]]


def test_launches_of_several_places_say_where(tmp_path: Path) -> None:
    timeline = known_launch(tmp_path)
    process = replace(timeline.launch.process, rank=1)
    lines = screen(
        LaunchAnalysis.of(replace(timeline, launch=replace(timeline.launch, process=replace(process, rank=0, pid=8)))),
        LaunchAnalysis.of(replace(timeline, launch=replace(timeline.launch, process=process, device=3))),
    )
    assert lines[1].startswith("rank 0, device 0: ")
    rows = [line.split() for line in lines if line.strip().startswith("#")]
    assert [row[1] for row in rows] == ["0", "1"]


def test_the_longest_default_output_is_60_lines(tmp_path: Path) -> None:
    reports = [made(tmp_path, f"kernel_{number}", 1000 + number, launches=1) for number in range(70)]
    lines = screen(*reports, width=80)
    assert len(lines) < 40
    (more,) = (line for line in lines if line.startswith("46 kernels "))
    assert figures_in(more) == ["46", "65.0"]
    check("report/many-launches", more, "more kernels")
    low = screen(*reports, width=80, height=24)
    assert len(low) <= 24 - 6 and {line[:5] for line in low} >= {"LIMIT", "TRY  ", "TRUST"}
    shown = next(number for number, line in enumerate(low) if "kernels hidden" in line) - 1
    assert shown >= 5 and low[shown + 1].startswith(f"{70 - shown} kernels hidden")


@pytest.mark.parametrize("count", [12, 60])
def test_a_program_of_many_kernels_with_long_names_fits_the_screen(tmp_path: Path, count: int) -> None:
    name = "triton_per_fused__to_copy_add_native_dropout_native_layer_norm_backward_view_{}"
    folder = save_kernels(tmp_path, {name.format(number): (9000 + 100 * number, 100) for number in range(count)})
    others = tuple(
        GpuWork(
            name=f"void at::native::kernel_{number}<{'float, ' * 900}4>(int)"[:4096],
            kind="kernel",
            count=9,
            total_ns=1e6,
        )
        for number in range(12)
    )
    write(folder, GpuWorkRecord(processes=1, work=others))
    for width, height, others_shown in ((80, 24, 2), (120, 40, 6)):
        lines = screen_of(captured_in(folder), width, height)
        assert len(lines) <= height and max(map(len, lines)) <= max(width, len(name) + 20)
        rows = lines[1 : lines.index("")]
        first = [line for line in rows if line.startswith("triton_per")]
        assert len(first) >= 3 and all("…" in line or width > 100 for line in first)
        assert [line.split()[0].rpartition("_")[2] for line in first[:2]] == [str(count - 1), str(count - 2)]
        assert sum(line.startswith("at::native") for line in rows) == others_shown
