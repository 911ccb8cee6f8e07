"""What is told of a launch first: what limits it, what to try, whether to trust that, and where a CTA's time goes."""

from __future__ import annotations

from pathlib import Path

import pytest
from altered import altered
from buffers import Scope
from figures_in import figures_in
from known_edits import gain, known_edits, tried
from known_launch import FUNC, SCOPES, known_launch
from replacing import replace
from rich.console import Console
from screens import WIDE, coloured, lines_shown
from snapshots import check
from timelines import Ran

from kprof_inject.analysis.findings.finding import Finding
from kprof_inject.analysis.findings.rules import Judgement
from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.analysis.unjudged import Unjudged
from kprof_inject.capture.edits import EditsRecord
from kprof_inject.report.terminal.first_screen import print_first_screen
from kprof_inject.report.terminal.tables import Room
from kprof_inject.report.tried_edits import won_text
from kprof_inject.timeline.clock import ClockSource
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.timeline.trust import Level

NAMES = ("TRY", "LIMIT", "TRUST", "CTA")
FINDINGS = tuple(
    Finding(rule, None, share, f"{rule} [seen]", f"mend {rule}", {})
    for rule, share in (("prologue", 0.2), ("tail", 0.47), ("epilogue", 0.1))
)


def screen(report: LaunchAnalysis, width: int = WIDE, encoding: str = "utf-8", place: str = "") -> list[str]:
    return lines_shown(lambda console: print_first_screen(report, "kernel", place, console), width, encoding)


def made(timeline: Timeline, *judgements: Judgement) -> LaunchAnalysis:
    return altered(LaunchAnalysis.of(timeline), judgements=judgements)


@pytest.fixture
def report(tmp_path: Path) -> LaunchAnalysis:
    """Every rule judged it, and found nothing."""
    return made(known_launch(tmp_path), Judgement("tail", (), None))


def with_findings(report: LaunchAnalysis, count: int = 3) -> LaunchAnalysis:
    return altered(report, judgements=tuple(Judgement(one.rule, (one,), None) for one in FINDINGS[:count]))


def advice(lines: list[str]) -> list[str]:
    first = next(number for number, line in enumerate(lines) if line.startswith("TRY"))
    last = next(number for number, line in enumerate(lines) if line.startswith("TRUST"))
    return [line[7:] for line in lines[first:last]]


def check_screen(lines: list[str], case: str) -> None:
    check("report/first-screen", "\n".join(lines), case)


def trust_line(lines: list[str]) -> str:
    (line,) = (line for line in lines if line.startswith("TRUST"))
    return line


def table(lines: list[str]) -> list[str]:
    return lines[next(number for number, line in enumerate(lines) if line.startswith("scope")) :]


def test_all_of_it(report: LaunchAnalysis) -> None:
    check_screen(screen(report, 120), "no finding")
    check_screen(screen(with_findings(report), 120), "three findings")


def test_the_title_says_what_ran(report: LaunchAnalysis) -> None:
    title = screen(report)[0]
    assert title.startswith("kernel #0   ") and figures_in(title) == ["0", "1.50", "2", "2", "2", "2000", "1980"]


@pytest.mark.parametrize(
    ("has_launching", "case"), [(False, "times of the kernel alone"), (True, "times that have launching in them")]
)
def test_there_is_one_time_without_records_and_one_with(report: LaunchAnalysis, has_launching: bool, case: str) -> None:
    verdict = replace(
        report.verdict,
        clean=replace(report.verdict.clean, times_ns=(4000.0, 4100.0, 9000.0)),
        with_records=replace(report.verdict.with_records, times_ns=(4200.0, 4300.0, 9000.0)),
        has_launching=has_launching,
    )
    title = screen(altered(report, verdict=verdict))[0]
    assert figures_in(title)[:4] == ["0", "4.10", "4.30", "2"]
    check_screen([title], case)


def test_on_a_narrow_terminal_the_title_goes_on(report: LaunchAnalysis) -> None:
    first, second, third, *_ = screen(report, 70)
    assert f"{first}   {second.strip()}" == screen(report)[0]
    assert second.startswith("  SMs ") and third == screen(report)[1]


def test_the_place_and_the_graph_are_named(report: LaunchAnalysis) -> None:
    summary = replace(report.summary, graph=True)
    title = screen(altered(report, summary=summary), place="rank 1, device 3")[0]
    assert title.startswith("rank 1, device 3: kernel #0 (")
    check_screen([title], "of a graph, with its place")


def test_an_assumed_clock_is_called_one_and_no_launch_is_trusted_by_it(report: LaunchAnalysis) -> None:
    summary = replace(report.summary, clock_source=ClockSource.NOMINAL, clock_error=0.25, nominal_mhz=1980.0)
    verdict = replace(report.verdict, level=Level.TRUSTWORTHY, text="slower by 1.0 % ± 0.3")
    lines = screen(altered(report, summary=summary, verdict=verdict))
    assert "assumed" in lines[0] and lines[0].endswith(" 2000 MHz")
    trust = trust_line(lines)
    assert trust.startswith("TRUST  careful: ") and trust.endswith(f"; {verdict.text}")
    assert "25 %" in trust and "assumed" in trust
    check_screen([lines[0], trust], "an assumed clock")


def test_what_was_lost_is_said_where_trust_is(report: LaunchAnalysis) -> None:
    summary = replace(report.summary, records_written=200, records_lost=148)
    verdict = replace(report.verdict, level=Level.TRUSTWORTHY, text="slower by 1.0 % ± 0.3")
    lossy = altered(report, summary=summary, verdict=verdict)
    trust = trust_line(screen(lossy))
    assert trust.startswith("TRUST  careful: 74.0 % ") and "--fit" in trust and trust.endswith(f"; {verdict.text}")
    check_screen([trust], "lost records")
    green, yellow = "\x1b[32m", "\x1b[33m"
    shown = coloured(lambda console: print_first_screen(lossy, "kernel", "", console))
    assert green not in shown and yellow in shown
    assert f"{yellow}not known: " in shown


def test_of_many_findings_those_that_are_worth_most_are_advised(report: LaunchAnalysis) -> None:
    lines = advice(screen(with_findings(report)))
    assert lines[0].startswith("mend tail (") and figures_in(lines[0]) == ["47.0"]
    assert lines[2].startswith("mend prologue (") and figures_in(lines[2]) == ["20.0"]
    assert (lines[1], lines[3]) == ("tail [seen]", "prologue [seen]")
    assert lines[4:] == ["1 more; see report -v"]


def test_without_a_finding_it_says_so(report: LaunchAnalysis) -> None:
    (line,) = advice(screen(report))
    assert line.startswith("could not judge what to change: ")


def test_a_known_limit_without_a_finding_says_what_is_left(report: LaunchAnalysis) -> None:
    limit = replace(report.limit, parts={"DRAM": 0.7}, is_known=True)
    (line,) = advice(screen(altered(report, limit=limit)))
    assert line.startswith("no advice: ") and "30.0 %" in line


def test_what_the_kernel_needs_comes_before_what_the_recording_needs(tmp_path: Path) -> None:
    report = made(known_launch(tmp_path, records_lost=8), Judgement("tail", FINDINGS[:1], None))
    assert advice(screen(report))[0].startswith("mend prologue ")
    lost = Judgement("waiting", (), Unjudged("25.0 % lost", "use --fit"))
    lines = advice(screen(altered(report, judgements=(*report.judgements, lost))))
    assert lines[0].startswith("mend prologue ")
    assert lines[-1].startswith("use --fit (waiting ") and lines[-1].endswith(": 25.0 % lost)")
    check_screen(lines, "TRY if a rule needs lost records")


@pytest.mark.parametrize(("part", "left"), [(0.8, "20.0 %"), (0.92, "8.0 %"), (0.79, None)])
def test_a_launch_at_its_roof_has_little_to_win(report: LaunchAnalysis, part: float, left: str | None) -> None:
    limit = replace(report.limit, units=("DRAM", "L2"), parts={"DRAM": part, "L2": 0.5}, is_known=True)
    first, *_ = lines = advice(screen(altered(report, limit=limit)))
    assert first.startswith("at its roof: ") == (left is not None)
    if left is not None:
        assert f"no more than {left} to win " in first
    if part > 0.9:
        check_screen(lines[:1], "TRY at a roof")


def test_a_doubtful_finding_is_marked(report: LaunchAnalysis) -> None:
    doubtful = replace(FINDINGS[0], doubt="2 damaged")
    lines = advice(screen(altered(report, judgements=(Judgement("prologue", (doubtful,), None),))))
    assert ["doubtful" in line for line in lines] == [True, True] and lines[1].endswith(": 2 damaged)")
    check_screen(lines, "a doubtful finding")


def test_what_could_not_be_judged_says_what_would_help(report: LaunchAnalysis) -> None:
    lost = Unjudged("74.0 % lost", "use --fit")
    judgements = tuple(Judgement(rule, (), lost) for rule in ("prologue", "waiting", "epilogue", "imbalanced-warps"))
    _, line = advice(screen(altered(report, judgements=judgements)))
    assert line.startswith("use --fit (prologue, waiting, epilogue ") and line.endswith(": 74.0 % lost)")
    check_screen([line], "rules that could not judge")
    helpless = (Judgement("tail", (), Unjudged("1 has no partner", "")),)
    _, line = advice(screen(altered(report, judgements=helpless)))
    assert line.startswith("tail ") and line.endswith(": 1 has no partner")
    check_screen([line], "a rule that nothing helps")


def test_the_bar_splits_a_ctas_time_by_its_loops(report: LaunchAnalysis) -> None:
    summary = replace(report.summary, warp_time_ns=report.summary.phases.whole_ns)
    (bar,) = (line for line in screen(altered(report, summary=summary), 100) if line.startswith("CTA"))
    assert bar.endswith("|   1.00 µs median")
    assert " before 15.0 % " in bar and " loop[0] 50.0 % " in bar and " after 35.0 % " in bar
    assert len(bar) == 100 and bar.count("█") == 16


def test_records_have_a_part_of_their_own(report: LaunchAnalysis) -> None:
    phases = replace(report.summary.phases, loops_ns=40, records_ns=10, whole_ns=100, before_ns=20, after_ns=30)
    summary = replace(report.summary, phases=phases, warp_time_ns=100)
    (bar,) = (line for line in screen(altered(report, summary=summary), 120) if line.startswith("CTA"))
    assert [" ".join(part.split()).strip("█ ") for part in bar.split("|")[1:-1]] == [
        *("before 20.0 %", "loop[0] 40.0 %", "after 30.0 %", "records 10.0 %")
    ]


def test_a_strip_of_some_warps_says_so(report: LaunchAnalysis) -> None:
    summary = replace(report.summary, warp_time_ns=2 * report.summary.phases.whole_ns)
    (bar,) = (line for line in screen(altered(report, summary=summary), 120) if line.startswith("CTA"))
    assert figures_in(bar.rpartition("|")[2]) == ["50.0", "1.00"]
    check_screen([bar], "the bar of some warps")


def test_the_table_has_the_times_of_a_cta(report: LaunchAnalysis) -> None:
    lines = table(screen(report))
    assert lines[0].split("  ")[0] == "scope"
    rows = [line.split() for line in lines[1:]]
    assert [" ".join(row[:2]) for row in rows] == ["kernel my", "loop[0] my", "between iterations", "iter[0] my"]
    assert [figures_in(" ".join(row[2:])) for row in rows] == [
        ["12", "850", "85.0", "850", "997"],
        ["15", "500", "25.0", "500", "500"],
        ["360", "18.0"],
        ["15", "5", "28", "7.0", "10", "90"],
    ]
    assert [row.count("█") + row.count("░") for row in lines[1:]] == [14, 4, 3, 1]


def test_what_never_ran_has_no_row(report: LaunchAnalysis) -> None:
    assert not any("tail" in line for line in table(screen(report)))


def test_an_instant_has_a_number_and_no_times(tmp_path: Path) -> None:
    rows = [Ran(FUNC, 0, sm=3), Ran(FUNC, 0, sm=3, start_record=2)]
    report = LaunchAnalysis.of(known_launch(tmp_path, [Scope("before_store", "mark"), *SCOPES[1:]], rows))
    assert table(screen(report))[1].split() == ["before_store", "2", "x"]


def test_of_many_scopes_the_largest_are_shown(tmp_path: Path) -> None:
    scopes = [Scope(f"scope {number}", "loop") for number in range(25)]
    report = LaunchAnalysis.of(
        known_launch(tmp_path, scopes, [Ran(number, 100 + number, sm=3) for number in range(25)])
    )
    lines = table(screen(report))
    assert [line.split("  ")[0] for line in lines[1:-1]] == [f"scope {number}" for number in range(5, 25)]
    assert lines[-1].startswith("5 shorter rows ") and lines[-1].endswith("report -v")
    check_screen(lines, "the largest of many scopes")


def test_on_a_low_screen_the_answer_stays_and_the_largest_scopes_with_it(tmp_path: Path) -> None:
    scopes = [Scope(f"scope {number}", "loop") for number in range(25)]
    rows = [Ran(number, 100 + number, sm=3) for number in range(25)]
    report = with_findings(LaunchAnalysis.of(known_launch(tmp_path, scopes, rows)))
    low, high = (
        lines_shown(
            lambda console: print_first_screen(report, "kernel", "", console, Room.on(console)), 80, height=height
        )
        for height in (24, 90)
    )
    # Commands say around it which capture it is, and how to go on.
    assert len(low) == 24 - 6
    assert [line[:5].strip() for line in low if line.startswith(NAMES)] == ["LIMIT", "TRY", "TRUST"]
    assert [line.partition(" (")[0] for line in advice(low)] == [
        *("mend tail", "mend prologue", "1 more; see report -v")
    ]
    assert low[-2].startswith("scope 24") and low[-1].startswith(f"{25 - len(table(low)) + 2} shorter rows ")
    assert "tail [seen]" in advice(high) and high[-1].startswith("5 shorter rows ")


@pytest.mark.parametrize("width", [80, 100, 120])
def test_it_fits_on_a_screen(report: LaunchAnalysis, width: int) -> None:
    lines = screen(with_findings(report), width)
    assert len(lines) <= 24
    assert all(len(line) <= width for line in lines)
    assert [next(name for name in NAMES if line.startswith(name)) for line in lines if line.startswith(NAMES)] == [
        *("LIMIT", "TRY", "TRUST", "CTA")
    ]


def test_the_letters_are_those_that_the_terminal_has(report: LaunchAnalysis) -> None:
    summary = replace(report.summary, warp_time_ns=report.summary.phases.whole_ns)
    lines = screen(altered(report, summary=summary), 120, "ascii")
    assert lines[0].startswith("kernel #0   1.50 us with records")
    assert any("#####" in line for line in lines if line.startswith("CTA"))
    assert "# self . in it" in table(lines)[0]
    assert not any("\\x" in line for line in lines)


@pytest.mark.parametrize("name", ["load[a]", "[b]", "[/b]", ":warning:"])
def test_names_are_shown_as_they_are(tmp_path: Path, name: str) -> None:
    report = LaunchAnalysis.of(known_launch(tmp_path, [Scope(name), *SCOPES[1:]]))
    assert table(screen(report))[1].startswith(f"{name} ")


def test_no_name_gives_the_terminal_orders(tmp_path: Path) -> None:
    evil = "a\x1b[31mb\nc\u202e"
    report = LaunchAnalysis.of(known_launch(tmp_path, [Scope(evil, source=(f"/src/{evil}.py", 3)), *SCOPES[1:]]))
    text = "\n".join(screen(with_findings(report)))
    assert not {"\x1b", "\u202e"} & set(text)
    assert "a [31mb c " in text


@pytest.mark.parametrize(
    ("edits", "news"),
    [
        (known_edits(), "num_stages=4 won 31.2 % ± 0.6 (predicted at most 72.5 %)"),
        (replace(known_edits(), best=None), "3 edits measured, none is faster"),
        (replace(known_edits(), best=None, tried=()), "no edit could be measured"),
        (replace(known_edits(), best=None, tried=(), refusal="it polls memory"), "no edits, because it polls memory"),
    ],
)
def test_what_was_tried_is_one_line_below_the_advice(report: LaunchAnalysis, edits: EditsRecord, news: str) -> None:
    plain, lines = screen(report), screen(altered(report, edits=edits))
    (place,) = (number for number, line in enumerate(lines) if line.startswith("TRIED"))
    assert lines[place] == f"TRIED  {news}"
    assert lines[place + 1].startswith("TRUST")
    assert [*lines[:place], *lines[place + 1 :]] == plain


def test_the_screen_has_room_for_what_was_tried(report: LaunchAnalysis) -> None:
    def show(console: Console) -> None:
        print_first_screen(altered(with_findings(report), edits=known_edits()), "kernel", "", console, Room.on(console))

    lines = lines_shown(show, 80, height=24)
    assert len(lines) <= 24
    assert [line for line in lines if line.startswith("TRIED")]


@pytest.mark.parametrize(
    ("won", "news"),
    [
        (0.05, "num_warps=2 won 5.0 % ± 0.6"),
        (-0.05, "num_warps=2 cost 5.0 % ± 0.6"),
        (-0.001, "num_warps=2 made no difference (-0.1 % ± 0.6)"),
    ],
)
def test_gains_and_costs_in_words(won: float, news: str) -> None:
    assert won_text(tried("num_warps", "2", gain=gain(won))) == news
