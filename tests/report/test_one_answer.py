"""A kernel's answer is the same everywhere: on the screen, in all details, JSON, Python, page and diff.

Each sentence of LIMIT, TRY and TRUST is compared, and each figure that two of them show.
"""

from __future__ import annotations

import html
import io
import json
import re
import sys
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from command_line import CommandLine
from programs.child import REPO
from rich.console import Console

import kprof_inject
from kprof_inject.capture.encoding import json_values, rounded
from kprof_inject.pipeline.captures import experiments_at, open_capture, report_on
from kprof_inject.quantities import before_and_after, percent, resolved_time, short_time
from kprof_inject.report.facts import Answer, per_cta_text
from kprof_inject.report.json_text import whole_text
from kprof_inject.report.terminal.screens import answers_text, print_all
from kprof_inject.timeline.choice import EVERYTHING

sys.path.append(str(Path(__file__).with_name("html")))
from unpacked import unpacked

DEMO, TESTS = REPO / "kprof_inject/demo/captures", REPO / "tests/captures"
CAPTURES = sorted(path for folder in (DEMO, TESTS) for path in folder.iterdir() if path.is_dir())
PAIRS = [
    (DEMO / "one-stage", DEMO / "three-stages"),
    (TESTS / "matmul-one-stage", TESTS / "matmul-three-stages"),
]
WIDE = 4000  # columns: no line is folded
MAX_ADVICE = 2
"""Of a first screen."""

Json = dict[str, Any]


class Surfaces:
    """A capture's answer on every surface: those that decode few launches, and those that decode all, analysed once.

    How commands call these functions is frozen in ``test_frozen.py``.
    """

    def __init__(self, folder: Path, place: Path) -> None:
        capture = open_capture(place)
        few = report_on(capture, experiments_at(place, pytest.fail), pytest.fail, EVERYTHING)
        self.screen = answers_text(few, WIDE).splitlines()
        self.answers: list[Json] = json.loads("".join(whole_text(few)))
        results = kprof_inject.load(place)
        report = results._report(results.timelines)
        results._report = lambda _: report
        details = io.StringIO()
        print_all(report, Console(file=details, width=WIDE))
        self.details = details.getvalue().splitlines()
        self.launches: list[Json] = json.loads("".join(whole_text(report, report.launches)))
        self.page: list[Json] = [launch["meta"] for launch in unpacked(results.html(folder / "page.html"))]
        self.python = [of_json(answer) for answer in results.answers()]
        self.findings = [of_json(finding) for finding in results.findings()]
        self.report = results.report().splitlines()


def of_json(record: Any) -> Json:
    """A record as it comes back from JSON."""
    values: Json = json.loads(json.dumps(rounded(json_values(record))))
    return values


@pytest.fixture(scope="module", params=CAPTURES, ids=lambda path: path.name)
def surfaces(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Surfaces:
    return Surfaces(tmp_path_factory.mktemp("surfaces"), request.param)


def differing(said: Surfaces) -> list[str]:
    """The disagreements."""
    return [what for compare in COMPARISONS for what in compare(said)]


def sentences(said: Surfaces) -> Iterator[str]:
    """LIMIT, TRY and TRUST: on the screen the first pieces of advice, in the details those of each variant."""
    first = said.python[0]
    yield from unequal("LIMIT of the screen", labelled(said.screen, "LIMIT"), [limit_of(first)])
    shown = [line for line in labelled(said.screen, "TRY") if not re.fullmatch(r"\d+ more; see report -v", line)]
    reasons = [line for one in first["advice"][:MAX_ADVICE] for line in (advice_of(one), one["reason"]) if line]
    yield from unequal("TRY of the screen", shown, reasons)
    yield from unequal("TRUST of the screen", labelled(said.screen, "TRUST"), [trust_of(first)])
    for label, known in (
        ("LIMIT", [limit_of(first)]),
        ("TRY", labelled(said.screen, "TRY")),
        ("TRUST", [trust_of(first)]),
    ):
        yield from unequal(f"{label} of report()", " ".join(labelled(said.report, label)), " ".join(known))
    said_of_each = sorted((limit_of(one), trust_of(one)) for one in said.answers)
    in_details = sorted(zip(labelled(said.details, "LIMIT"), labelled(said.details, "TRUST"), strict=True))
    yield from unequal("LIMIT and TRUST of the details", in_details, said_of_each)
    below = [line.partition(": ")[2] for line in said.details[-len(said.answers) :]]
    yield from unequal("trust below the details", sorted(below), sorted(one["trust"]["text"] for one in said.answers))


def records(said: Surfaces) -> Iterator[str]:
    """JSON, Python and page have the same record; a page leaves parts of it out."""
    of = {(one["variant"], one["place"]["pid"], one["launch"]): one for one in said.answers}
    for one in said.python:
        known = of[one["variant"], one["place"]["pid"], one["launch"]]
        yield from unequal("Python and JSON", {**one, "other_launches": []}, {**known, "other_launches": []})
    yield from unequal("findings", said.findings, [one for answer in said.python for one in answer["findings"]])
    for shown, launch in zip(said.page, said.launches, strict=True):
        yield from unlike(f"page of {launch['title']} #{launch['launch']}", shown, launch)
        texts = limit_of(launch), [advice_of(one) for one in launch["advice"]], trust_of(launch)
        on_page = shown["limit"]["answer"], [advice_of(one) for one in shown["advice"]], trust_of(shown)
        yield from unequal("sentences of the page", on_page, texts)


def tables(said: Surfaces) -> Iterator[str]:
    """The figures of the screen's tables are those of JSON."""
    first = said.python[0]
    for title, figures in screen_rows(first):
        (line,) = [line for line in said.screen if re.match(rf" *{re.escape(title)}( !)?  ", line)] or [""]
        yield from unequal(f"{title} on the screen", [one for one in figures if one in line], figures)
    for row in rows_below(said.screen, "launch "):
        # Each rank has launches of its own.
        known = [[*launch_row(one)] for one in said.launches if row[0] == f"#{one['launch']}"]
        if row[-3:] not in [one[-3:] for one in known] and row[-4:] not in known:
            yield f"launch: {row} instead of {known}"
    rows = [cells for line in said.details if line.startswith("│") for cells in [[*map(str.strip, line.split("│"))]]]
    scopes = [figures for one in said.answers for figures in details_rows(one)]
    trust = [[one["trust"]["level"], run_times(one)] for one in said.answers]
    known = [row[3:10] for row in rows if len(row) == 12 and row[3].isdigit()]
    yield from unequal("scopes of the details", sorted(known), sorted(scopes))
    yield from unequal("verdicts", sorted(row[2:4] for row in rows if row[2] in LEVELS), sorted(trust))


LEVELS = ("trustworthy", "careful", "unreliable", "cannot tell", "unknown")
COMPARISONS: tuple[Callable[[Surfaces], Iterator[str]], ...] = (sentences, records, tables)


def limit_of(answer: Json) -> str:
    limit = answer["limit"]
    return str(limit["text"] if limit["is_known"] else f"not known: {limit['text']}")


def advice_of(advice: Json) -> str:
    return f"{advice['text']} ({advice['worth']})" if advice["worth"] else str(advice["text"])


def trust_of(answer: Json) -> str:
    return f"{answer['trust']['level']}: {answer['trust']['text']}"


def run_times(answer: Json) -> str:
    times = answer["run_times"]
    return before_and_after(short_time(times["without_records_ns"]), short_time(times["with_records_ns"]))


def labelled(lines: list[str], label: str) -> list[str]:
    """The lines with a label, for each launch with an answer."""
    found, is_within = [], False
    for line in lines:
        is_within = line.startswith(f"{label:6} ") or (is_within and line.startswith(" " * 7))
        if is_within:
            found.append(line[7:].rstrip())
    return found


def rows_below(lines: list[str], heading: str) -> list[list[str]]:
    """The cells of the rows of a table without lines, each without the bar."""
    at = next((at for at, line in enumerate(lines) if line.startswith(heading)), len(lines))
    rows = []
    for line in lines[at + 1 :]:
        if (not line.startswith((" ", "#")) and heading == "launch ") or not line.strip():
            break
        rows.append([cell for cell in re.split(r" {2,}", line.strip()) if not re.fullmatch(r"[█░]+", cell)])
    return rows


def screen_rows(answer: Json) -> Iterator[tuple[str, list[str]]]:
    """The scopes on the first screen, and their figures."""
    record = msgspec.convert(answer, Answer, str_keys=True, dec_hook=lambda _, column: np.array(column))
    for one in record.scopes:
        if one.count:
            times = (resolved_time(time_ns, record.resolution_ns) for time_ns in (one.p50_ns, one.p99_ns))
            share = "" if one.share is None else percent(one.share)
            yield one.title, [per_cta_text(one, record), share, *(times if one.p50_ns is not None else ())]


def launch_row(answer: Json) -> Iterator[str]:
    """Span, clock, limit, and the rules that found something, if any did."""
    yield from (short_time(answer["duration_ns"]), f"{answer['clock_mhz']:.0f}", answer["limit"]["name"])
    if rules := ", ".join(finding["rule"] for finding in answer["findings"]):
        yield rules


def details_rows(answer: Json) -> Iterator[list[str]]:
    """Count and times of each scope in the table of all details."""
    for one in answer["scopes"]:
        times = [short_time(one[name]) for name in ("total_ns", "self_ns")]
        resolved = [resolved_time(one[name], answer["resolution_ns"]) for name in ("mean_ns", "p50_ns", "p99_ns")]
        share = "-" if one["share"] is None else percent(one["share"])
        yield [str(one["count"]), *times, *resolved, share]


def unequal(what: str, shown: object, known: object) -> Iterator[str]:
    if shown != known:
        yield f"{what}: {shown!r} instead of {known!r}"


def unlike(where: str, shown: Any, known: Any) -> Iterator[str]:
    """Yield where two records differ; keys that only one has, and columns in another form, are left out."""
    if isinstance(shown, dict) and isinstance(known, dict):
        for key in shown.keys() & known.keys():
            yield from unlike(f"{where}.{key}", shown[key], known[key])
    elif isinstance(shown, list) and isinstance(known, list) and len(shown) == len(known):
        for at, pair in enumerate(zip(shown, known, strict=True)):
            yield from unlike(f"{where}[{at}]", *pair)
    elif shown != known and not (isinstance(shown, list) and isinstance(known, list)):
        yield f"{where}: {shown!r} instead of {known!r}"


def test_everything_that_is_said_twice_is_the_same(surfaces: Surfaces) -> None:
    assert differing(surfaces) == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda said: said.screen.remove(next(line for line in said.screen if line.startswith("LIMIT"))),
        lambda said: said.answers[0]["trust"].update(text="fine"),
        lambda said: said.page[0]["advice"][0].update(text="do something"),
        lambda said: said.page[0]["scopes"][0].update(total_ns=1),
        lambda said: said.python[0]["scopes"][0].update(count=1),
        lambda said: said.launches[0]["limit"].update(text="the clock"),
        lambda said: said.findings.append({}),
        lambda said: said.report.remove(next(line for line in said.report if line.startswith("TRUST"))),
    ],
)
@pytest.mark.parametrize("surfaces", [TESTS / "matmul-one-stage"], ids=lambda path: path.name, indirect=True)
def test_any_difference_is_found(surfaces: Surfaces, damage: Callable[[Surfaces], None]) -> None:
    damaged = deepcopy(surfaces)
    damage(damaged)
    assert differing(damaged) != []


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair[0].name)
def test_a_comparison_says_what_the_answers_of_its_sides_say(pair: tuple[Path, Path], tmp_path: Path) -> None:
    kprof = CommandLine(tmp_path)
    ended = kprof("diff", "--html", "page.html", *pair, env={"COLUMNS": str(WIDE)})
    shown = json.loads(kprof("diff", "--json", *pair).stdout)
    page = html.unescape(re.sub(r"<[^>]*>", "", kprof.read("page.html")))
    (compared,), lines = shown["kernels"], ended.stdout.splitlines()
    sentence, cause = lines[:2]
    assert shown["sentence"] == f"{sentence}; {cause}" and sentence in page and cause in page
    for side, place in zip("ab", pair, strict=True):
        (answer,) = json.loads(kprof("report", "--json", place).stdout)
        time_ns = answer["run_times"]["without_records_ns"]
        assert compared["without_records"]["median_ns"][side] == pytest.approx(time_ns)
        assert short_time(time_ns).split()[0] in sentence
        assert f"{side.upper()}: LIMIT {limit_of(answer)}" in page
    row = next(line for line in lines if line.startswith("│   loop[0]"))
    loop = next(scope for scope in compared["scopes"] if scope["title"] == "loop[0]")
    assert before_and_after(*(percent(loop["share"][side]) for side in "ab")) in row
