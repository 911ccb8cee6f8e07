"""The command to run next: one that there is, and one that gets further."""

from __future__ import annotations

import shlex
from pathlib import Path

import click
import pytest
from altered import altered
from known_edits import known_edits
from known_reports import KINDS, delayed
from replacing import replace
from snapshots import check

from kprof_inject.analysis.advice import advice_on, trust_in
from kprof_inject.analysis.findings.rules import Judgement
from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.analysis.unjudged import Unjudged
from kprof_inject.cli.main import root
from kprof_inject.report.explanation import Options, next_step
from kprof_inject.timeline.trust import Level

NO_WAIT = Unjudged("no wait recorded", "add --at 'op(*wait*)'")


def command(report: LaunchAnalysis, workspace: str = "", kernel: str = "") -> str:
    return next_step(report, Options.of(workspace, kernel)).command


def judged(report: LaunchAnalysis, *judgements: Judgement) -> LaunchAnalysis:
    return altered(report, judgements=judgements)


@pytest.fixture
def trusted(tmp_path: Path) -> LaunchAnalysis:
    """Of a launch in which every rule judged, and found nothing."""
    return judged(*KINDS["trustworthy"](tmp_path))


@pytest.mark.parametrize("kind", KINDS)
def test_each_is_a_command_that_there_is(tmp_path: Path, kind: str) -> None:
    report = KINDS[kind](tmp_path)[0]
    for workspace, kernel in (("", ""), ("a b", "k"), ("w" * 500, "k" * 500)):
        program, name, *words = shlex.split(command(report, workspace, kernel))
        assert program == "kprof-inject" and words[-2:] == ["--", "PROG"]
        context = click.Context(root)
        found = root.get_command(context, name)
        assert found is not None
        found.make_context(name, words, parent=context)


def test_the_workspace_and_the_kernel_are_named_where_they_must_be(trusted: LaunchAnalysis) -> None:
    assert command(trusted, "my work", "k") == "kprof-inject causal -o 'my work' --kernel k -- PROG"
    assert command(trusted, "w" * 200, "") == "kprof-inject causal -o WORKSPACE -- PROG"
    assert command(trusted, "", "k" * 200) == f"kprof-inject causal --kernel '{'k' * 49}*' -- PROG"


def test_without_a_finding_what_could_not_be_judged_is_recorded_beside_what_was(trusted: LaunchAnalysis) -> None:
    found = next_step(judged(trusted, Judgement("waiting", (), NO_WAIT)), Options())
    assert found.command == ("kprof-inject profile --at func --at loop --at iter --at marker --at 'op(*wait*)' -- PROG")
    assert found.why.startswith("waiting ") and found.why.endswith(f": {NO_WAIT.reason}")
    check("report/next-step", found.why, "a rule that could not judge")


def test_what_no_option_helps_does_not_stop_it(trusted: LaunchAnalysis) -> None:
    stuck = Judgement("tail", (), Unjudged("the launch is too short", "give it more work"))
    assert command(judged(trusted, stuck)) == "kprof-inject causal -- PROG"


def test_where_all_is_known_a_change_comes_next(trusted: LaunchAnalysis, tmp_path: Path) -> None:
    (other,) = delayed(tmp_path)
    assert command(altered(trusted, slopes=other.slopes)) == "kprof-inject profile --launches 0:20 -- PROG"


def test_an_edit_that_won_comes_next(trusted: LaunchAnalysis) -> None:
    found = next_step(altered(trusted, edits=known_edits()), Options())
    assert found.command == "kprof-inject profile --launches 0:20 -- PROG"
    check("report/next-step", found.why, "an edit that won")
    without = replace(known_edits(), best=None)
    assert command(altered(trusted, edits=without)) == "kprof-inject causal -- PROG"


@pytest.mark.parametrize(
    ("launches", "again", "compared"),
    [
        ("last", "", " --launches 0:20"),
        ("3", " --launches 3", " --launches 0:20"),
        ("5:90", " --launches 5:90", " --launches 5:90"),
        ("all", " --launches all", " --launches all"),
    ],
)
def test_which_launches_were_kept_is_kept(launches: str, again: str, compared: str) -> None:
    options = Options.of("", "", launches)
    assert options.profile(" --fit") == f"kprof-inject profile{again} --fit -- PROG"
    assert options.to_compare() == f"kprof-inject profile{compared} -- PROG"


def test_the_same_advice_for_several_places_is_given_once(tmp_path: Path) -> None:
    report = altered(*KINDS["prologue"](tmp_path))
    (finding, *_) = report.findings
    elsewhere = replace(finding, scope="another", text="the same, elsewhere")
    given = [one.text for one in advice_on(altered(report, findings=[finding, elsewhere]))]
    assert given.count(finding.advice) == 1


def test_what_is_unreliable_is_no_reason_for_a_change(tmp_path: Path, trusted: LaunchAnalysis) -> None:
    """Whatever the findings advise, until nothing else can be measured."""
    report = altered(*KINDS["prologue"](tmp_path), verdict=replace(trusted.verdict, level=Level.UNRELIABLE))
    table = report.timeline.table
    assert report.findings and command(report) == "kprof-inject profile --at func --at loop -- PROG"
    assert advice_on(report)[0].text == report.findings[0].advice
    less = trust_in(report).text
    assert less.endswith(": --at func --at loop")
    check("report/next-step", less, "trust that needs fewer records")

    def of_kinds(count: int) -> LaunchAnalysis:
        timeline = replace(report.timeline, table=replace(table, scopes=table.scopes[:count]))
        return altered(report, timeline=timeline)

    assert command(of_kinds(2)) == "kprof-inject profile --at func -- PROG"
    assert command(of_kinds(1)) == "kprof-inject profile --at func --warps 0 -- PROG"
    kernel = of_kinds(1).launch.kernel
    one_warp = replace(kernel, mode=replace(kernel.mode, warps=(0,)))
    least = of_kinds(1)
    least = altered(least, timeline=replace(least.timeline, launch=replace(least.launch, kernel=one_warp)))
    assert command(least) == "kprof-inject causal -- PROG"
    assert "use causal" in trust_in(least).text
    check("report/next-step", trust_in(least).text, "trust that needs causal")
    assert "causal" not in trust_in(altered(least, verdict=trusted.verdict)).text
    (other,) = delayed(tmp_path / "delayed")
    found = next_step(altered(least, slopes=other.slopes), Options())
    assert "--launches 0:20" in found.command
    check("report/next-step", found.why, "nothing less can be recorded")


def test_what_did_not_help_is_not_asked_for_again(tmp_path: Path) -> None:
    (report,) = KINDS["prologue"](tmp_path)
    assert "--replay 50" in command(report)
    kernel = replace(report.launch.kernel, not_replayed="its memory is too large")
    launch = replace(report.launch, kernel=kernel)
    report = altered(report, timeline=replace(report.timeline, launch=launch))
    assert command(report) == "kprof-inject profile --launches 0:20 -- PROG"


@pytest.mark.parametrize(
    ("remedy", "options"),
    [("add --at loop --at iter", "--at loop --at iter"), ("use --fit, or a larger --buffer-bytes", ""), ("", "")],
)
def test_a_remedy_that_is_options(remedy: str, options: str) -> None:
    assert Unjudged("it", remedy).options == options
