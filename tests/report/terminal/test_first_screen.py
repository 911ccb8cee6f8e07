"""What is told of a launch first: what limits it, what to try, whether to trust that, and where a CTA's time goes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from altered import altered, answer_of
from buffers import Scope
from known_edits import gain, known_edits, tried
from known_kernels import DRAM_BOUND, MOST_DRAM
from known_launch import FUNC, SCOPES, known_launch
from replacing import replace
from screens import WIDE, coloured, lines_shown
from snapshots import check
from timelines import Ran

from kprof_inject.analysis.advice import UNKNOWN_GAIN, gain_in
from kprof_inject.analysis.findings.finding import Finding
from kprof_inject.analysis.findings.rules import Judgement
from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.analysis.limits.limit import MEMORY_WAITS
from kprof_inject.analysis.unjudged import Unjudged
from kprof_inject.capture.edits import EditsRecord
from kprof_inject.report.experiments import won_text
from kprof_inject.report.terminal.first_screen import print_first_screen
from kprof_inject.report.terminal.tables import Room
from kprof_inject.timeline.clock import ClockSource
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.timeline.trust import Level

NAMES = ("TRY", "LIMIT", "TRUST", "CTA")
FINDINGS = tuple(
    Finding(rule, None, share, f"{rule} [seen]", f"mend {rule}", {})
    for rule, share in (("prologue", 0.2), ("tail", 0.47), ("epilogue", 0.1))
)


def screen(report: LaunchAnalysis, width: int = WIDE, encoding: str = "utf-8", place: str = "") -> list[str]:
    answer = answer_of(report, title="kernel", place_name=place)
    return lines_shown(lambda console: print_first_screen(answer, console), width, encoding)


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


CLOCK = {"clock_source": ClockSource.NOMINAL, "clock_error": 0.25, "nominal_mhz": 1980.0}
TRUSTED = {"level": Level.TRUSTWORTHY, "text": "slower by 1.0 % ± 0.3"}
TIMES = {"clean": (4000.0, 4100.0, 9000.0), "with_records": (4200.0, 4300.0, 9000.0)}


@pytest.mark.parametrize(
    ("case", "lines", "summary", "verdict", "place"),
    [
        ("times of the kernel alone", ["kernel"], {}, {**TIMES, "has_launching": False}, ""),
        ("times that have launching in them", ["kernel"], {}, {**TIMES, "has_launching": True}, ""),
        ("of a graph, with its place", ["rank"], {"graph": True}, {}, "rank 1, device 3"),
        ("an assumed clock", ["kernel #0", "TRUST"], CLOCK, TRUSTED, ""),
        ("the bar of some warps", ["CTA"], {"warp_time_ns": 2}, {}, ""),
    ],
)
def test_the_title_the_trust_and_the_bar(
    report: LaunchAnalysis, case: str, lines: list[str], summary: dict[str, Any], verdict: dict[str, Any], place: str
) -> None:
    """Times are of the build; the warps' time is in times of that of the bar."""
    builds = {name: replace(getattr(report.verdict, name), times_ns=verdict[name]) for name in TIMES if name in verdict}
    if "warp_time_ns" in summary:
        summary = {"warp_time_ns": summary["warp_time_ns"] * report.summary.phases.whole_ns}
    changed = altered(
        report, summary=replace(report.summary, **summary), verdict=replace(report.verdict, **{**verdict, **builds})
    )
    shown = screen(changed, 120 if case.startswith("the bar") else WIDE, place=place)
    check_screen([line for line in shown if line.startswith(tuple(lines))][: len(lines)], case)


def test_on_a_narrow_terminal_the_title_goes_on(report: LaunchAnalysis) -> None:
    first, second, third, *_ = screen(report, 70)
    assert f"{first}   {second.strip()}" == screen(report)[0]
    assert second.startswith("  SMs ") and third == screen(report)[1]


def test_what_was_lost_is_said_where_trust_is(report: LaunchAnalysis) -> None:
    summary = replace(report.summary, records_written=200, records_lost=148)
    verdict = replace(report.verdict, level=Level.TRUSTWORTHY, text="slower by 1.0 % ± 0.3")
    lossy = altered(report, summary=summary, verdict=verdict)
    trust = trust_line(screen(lossy))
    check_screen([trust], "lost records")
    green, yellow = "\x1b[32m", "\x1b[33m"
    shown = coloured(lambda console: print_first_screen(answer_of(lossy), console))
    assert green not in shown and yellow in shown
    assert f"{yellow}not known: " in shown


def streaming(report: LaunchAnalysis, part: float) -> LaunchAnalysis:
    """A launch that needs DRAM for this part of its time."""
    limit = replace(report.limit, units=("DRAM", "L2"), parts={"DRAM": part, "L2": 0.5}, is_known=True)
    return altered(report, limit=limit, speed_of_light=replace(report.speed_of_light, dram=DRAM_BOUND))


def test_a_known_limit_without_a_finding_says_what_is_left(report: LaunchAnalysis) -> None:
    (line,) = advice(screen(streaming(report, 0.7)))
    check_screen([line], "no advice")
    unknown = altered(report, limit=replace(report.limit, parts={"ALU": 0.9}, is_known=True))
    (line,) = advice(screen(unknown))
    assert line.startswith("no specific advice: causal "), "nobody knows that this work is necessary"


def test_of_waits_for_memory_no_unit_says_what_is_left(report: LaunchAnalysis) -> None:
    waits = replace(report.limit, name=MEMORY_WAITS, parts={"shared memory and L1": 0.141}, is_known=True)
    waiting = altered(report, limit=waits, judgements=())
    (line,) = advice(screen(waiting))
    assert line.startswith("wait less: let fewer CTAs wait") and "%" not in line
    assert gain_in(waiting) == UNKNOWN_GAIN


def test_what_the_kernel_needs_comes_before_what_the_recording_needs(tmp_path: Path) -> None:
    report = made(known_launch(tmp_path, records_lost=8), Judgement("tail", FINDINGS[:1], None))
    assert advice(screen(report))[0].startswith("mend prologue ")
    lost = Judgement("epilogue", (), Unjudged("25.0 % lost", "use --fit"))
    lines = advice(screen(altered(report, judgements=(*report.judgements, lost))))
    check_screen(lines, "TRY if a rule needs lost records")


def test_a_doubtful_finding_is_marked(report: LaunchAnalysis) -> None:
    doubtful = replace(FINDINGS[0], doubt="2 damaged")
    lines = advice(screen(altered(report, judgements=(Judgement("prologue", (doubtful,), None),))))
    check_screen(lines, "a doubtful finding")


@pytest.mark.parametrize("part", [0.73, 0.88])
def test_a_launch_at_its_roof_has_little_to_win(report: LaunchAnalysis, part: float) -> None:
    first, *_ = lines = advice(screen(streaming(report, part)))
    assert first.startswith("at its roof: ") == (part > 0.8 * MOST_DRAM)
    if part > 0.8:
        check_screen(lines[:1], "TRY at a roof")


def test_what_could_not_be_judged_says_what_would_help(report: LaunchAnalysis) -> None:
    lost = Unjudged("74.0 % lost", "use --fit")
    judgements = tuple(Judgement(rule, (), lost) for rule in ("prologue", "tail", "epilogue", "imbalanced-warps"))
    _, line = advice(screen(altered(report, judgements=judgements)))
    check_screen([line], "rules that could not judge")
    helpless = (Judgement("tail", (), Unjudged("1 has no partner", "")),)
    _, line = advice(screen(altered(report, judgements=helpless)))
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
    check_screen(lines, "the largest of many scopes")


def test_on_a_low_screen_the_answer_stays_and_the_largest_scopes_with_it(tmp_path: Path) -> None:
    scopes = [Scope(f"scope {number}", "loop") for number in range(25)]
    rows = [Ran(number, 100 + number, sm=3) for number in range(25)]
    report = with_findings(LaunchAnalysis.of(known_launch(tmp_path, scopes, rows)))
    low, high = (
        lines_shown(lambda console: print_first_screen(answer_of(report), console, Room.on(console)), 80, height=height)
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
    assert lines[0].startswith("kernel #0   span 1.50 us with records")
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
        (
            replace(known_edits(), best=0, tried=(tried("num_warps", "8", outcome="faster", gain=gain(0.3)),)),
            "num_warps=8 won 30.0 % ± 0.6 (no time for a second process to confirm it)",
        ),
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
