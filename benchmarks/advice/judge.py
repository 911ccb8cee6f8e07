"""Judges the tool's advice on flawed kernels: whether it leads to the known edit, and promises its gain.

    python benchmarks/advice/judge.py [--only NAME,...] [--kinds KIND,...] [--out DIR] [--together N]

Needs a GPU and the package. First, the flawed and the edited launch of each case are compared and timed, one case at a
time; then each is profiled, N in one program. A line for each case has the limit of the flawed kernel, the first advice
with the part of the time that it promises at most, the part that the edit won with a 95 % interval, and three verdicts:

leads: the first advice, or its reason, contains one of the case's keywords.
holds: the promise is no less than what the edit won, within the interval.
within 2: the edit won at least half of what was promised, within the interval.

Without a promise, the last two are not judged. DIR gets a workspace for each program, with what ``profile`` printed
next to it, and ``results.json``, which keeps the cases of earlier calls.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch
import triton
from case import Case, Launch, Result
from cases import CASES
from msgspec import Struct, to_builtins

import kprof_inject
from kprof_inject.errors import KprofError
from kprof_inject.report.facts import Answer

PROGRAM = Path(__file__).with_name("program.py")
PAIRS = 40
GRAPH_LAUNCHES = 20  # a launch of a few microseconds would wait for the host
WARM_UP_REPLAYS = 3
CONFIDENCE = 0.95
PROFILE_TIMEOUT_S = 400
VERDICTS = ("leads", "holds", "within 2")


class Gain(Struct, frozen=True):
    """Part of the time of the flawed launch, of ``kernel``, that the edit won, with a 95 % interval."""

    kernel: str
    flawed_us: float
    edited_us: float
    won: float
    low: float
    high: float


class Tip(Struct, frozen=True):
    """A thing to try, as the tool put it."""

    text: str
    reason: str
    share: float | None


class Opinion(Struct, frozen=True):
    """The tool's opinion of the flawed kernel."""

    kernel: str
    limit: str
    sentence: str
    trust: str
    advice: tuple[Tip, ...]


class Judgement(Struct, frozen=True):
    """A case with its timing and profile. ``error`` has the reason if one of them is missing."""

    case: str
    flaw: str
    gain: Gain | None = None
    opinion: Opinion | None = None
    leading: int | None = None
    """Index of the first advice that leads to the edit; None if none does."""
    verdicts: Mapping[str, bool | None] = {}
    error: str = ""


def main() -> None:
    """Judge the cases that the command line names."""
    options = parsed_options()
    cases = chosen_cases(options.only, options.kinds)
    options.out.mkdir(parents=True, exist_ok=True)
    gains = {case.name: gain_or_error(case) for case in cases}
    torch.cuda.empty_cache()
    judgements = []
    for group in batched(cases, options.together):
        kernels = {case.name: gain.kernel for case in group if isinstance(gain := gains[case.name], Gain)}
        for name, opinion in opinions_or_errors(kernels, options.out).items():
            judgements.append(judge(CASES[name], gains[name], opinion))
            print(line(judgements[-1]), flush=True)
        write(judgements, options.out / "results.json")
    judgements += [judge(case, gain, "") for case in cases if isinstance(gain := gains[case.name], str)]
    print()
    print("\n".join(totals(judgements)))
    sys.exit(any(judgement.error for judgement in judgements))


def parsed_options() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="names of cases, separated by commas")
    parser.add_argument("--kinds", default="", help="kinds of flaws, separated by commas")
    parser.add_argument("--out", type=Path, default=Path("advice_out"))
    parser.add_argument("--together", type=int, default=1, metavar="N", help="number of cases in one program")
    return parser.parse_args()


def chosen_cases(only: str, kinds: str) -> list[Case]:
    """Return the cases with these names and kinds; all if both are empty. Exits if one is unknown."""
    names, flaws = set(filter(None, only.split(","))), set(filter(None, kinds.split(",")))
    unknown = (names - CASES.keys()) | (flaws - {case.flaw for case in CASES.values()})
    if unknown:
        raise SystemExit(f"unknown: {', '.join(sorted(unknown))}")
    return [case for case in CASES.values() if (not names or case.name in names) and (not flaws or case.flaw in flaws)]


def batched(cases: Sequence[Case], size: int) -> Iterator[list[Case]]:
    """Yield groups of this many cases."""
    iterator = iter(cases)
    while group := list(islice(iterator, size)):
        yield group


def gain_or_error(case: Case) -> Gain | str:
    """Compare and time a case; return the message if that fails."""
    try:
        gain = measure(case)
    except (AssertionError, RuntimeError, triton.TritonError) as error:
        return f"not timed: {error}"
    print(f"{case.name}: flawed {gain.flawed_us:.1f} us, edited {gain.edited_us:.1f} us", file=sys.stderr, flush=True)
    return gain


def measure(case: Case) -> Gain:
    """Check that both launches have equal results, then time them in turn."""
    torch.manual_seed(0)
    flawed, edited = case.prepare("cuda", False)
    kernel, expected = launched(flawed)
    torch.testing.assert_close(edited(), expected, rtol=case.relative, atol=case.absolute)
    graphs = [graph_of(launch) for launch in (flawed, edited)]
    for _ in range(WARM_UP_REPLAYS):
        for graph in graphs:
            graph.replay()
    pairs = [(graph_us(graphs[0]), graph_us(graphs[1])) for _ in range(PAIRS)]
    won, low, high = median_with_interval([1 - edited_us / flawed_us for flawed_us, edited_us in pairs])
    flawed_us, edited_us = map(statistics.median, zip(*pairs, strict=True))
    return Gain(kernel, flawed_us, edited_us, won, low, high)


def launched(launch: Launch) -> tuple[str, Result]:
    """Launch; return the name of the last kernel, of which each case has its own, and the results."""
    names: list[str] = []

    def note(metadata: Any) -> None:
        names.append(metadata.get()["name"])

    triton.knobs.runtime.launch_enter_hook.add(note)
    try:
        result = launch()
    finally:
        triton.knobs.runtime.launch_enter_hook.remove(note)
    return names[-1], result


def graph_of(launch: Launch) -> torch.cuda.CUDAGraph:
    """Return a CUDA graph of several launches."""
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(GRAPH_LAUNCHES):
            launch()
    return graph


def graph_us(graph: torch.cuda.CUDAGraph) -> float:
    """Return the time of one launch in a graph, in microseconds."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    graph.replay()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) * 1000 / GRAPH_LAUNCHES


def median_with_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the median and its 95 % interval, by order statistics: how many values are below it is binomial."""
    ordered, count = sorted(values), len(values)
    rank, below = 0, math.comb(count, 0) / 2**count
    while below <= (1 - CONFIDENCE) / 2:
        rank += 1
        below += math.comb(count, rank) / 2**count
    rank = max(rank, 1)
    return statistics.median(ordered), ordered[rank - 1], ordered[count - rank]


def opinions_or_errors(kernels: Mapping[str, str], out: Path) -> dict[str, Opinion | str]:
    """Profile the flawed kernels of cases in one program; return the message of a case if that fails.

    ``kernels`` are the names of the kernels by case.
    """
    if not kernels:
        return {}
    folder = out / next(iter(kernels))
    log = folder.with_suffix(".log")
    command = [sys.executable, "-m", "kprof_inject", "profile", "-o", str(folder), "--json", "--"]
    command += [sys.executable, str(PROGRAM), *kernels]
    try:
        with folder.with_suffix(".json").open("w") as json_file, log.open("w") as log_file:
            subprocess.run(command, stdout=json_file, stderr=log_file, check=True, timeout=PROFILE_TIMEOUT_S)
        answers = {answer.kernel: answer for answer in kprof_inject.load(folder).answers()}
    except subprocess.SubprocessError:
        return dict.fromkeys(kernels, f"not profiled: see {log}")
    except KprofError as error:
        return dict.fromkeys(kernels, f"no capture: {error}")
    return {
        case: opinion_on(answers[kernel]) if kernel in answers else "the capture has no launch"
        for case, kernel in kernels.items()
    }


def opinion_on(answer: Answer) -> Opinion:
    """Return the opinion in an answer."""
    tips = tuple(Tip(advice.text, advice.reason, advice.share) for advice in answer.advice)
    return Opinion(answer.kernel, answer.limit.name, answer.limit.sentence, answer.trust.text, tips)


def judge(case: Case, gain: Gain | str, opinion: Opinion | str) -> Judgement:
    """Compare what the tool promised with what the edit won."""
    if isinstance(gain, str):
        return Judgement(case.name, case.flaw, opinion=None if isinstance(opinion, str) else opinion, error=gain)
    if isinstance(opinion, str):
        return Judgement(case.name, case.flaw, gain, error=opinion)
    leading = next((index for index, tip in enumerate(opinion.advice) if leads_to(tip, case)), None)
    promised = opinion.advice[0].share if opinion.advice else None
    verdicts = {
        "leads": leading == 0,
        "holds": None if promised is None else promised >= gain.low,
        "within 2": None if promised is None else gain.high >= promised / 2,
    }
    return Judgement(case.name, case.flaw, gain, opinion, leading, verdicts)


def leads_to(tip: Tip, case: Case) -> bool:
    """Return True if an advice or its reason contains one of the case's keywords."""
    said = f"{tip.text} {tip.reason}".lower()
    return any(keyword in said for keyword in case.keywords)


def line(judgement: Judgement) -> str:
    """Return the line of a case."""
    begin = f"{judgement.case} ({judgement.flaw})"
    if judgement.gain is None or judgement.opinion is None:
        return f"{begin}: {judgement.error}"
    gain, opinion = judgement.gain, judgement.opinion
    first = opinion.advice[0] if opinion.advice else Tip("nothing", "", None)
    promised = "no promise" if first.share is None else f"promised {first.share:.1%}"
    won = f"won {gain.won:.1%} ({gain.low:.1%} to {gain.high:.1%})"
    verdicts = ", ".join(f"{name}: {word_of(judgement.verdicts[name])}" for name in VERDICTS)
    return f"{begin}: LIMIT {opinion.limit}; TRY {first.text}; {promised}, {won}; {verdicts}"


def word_of(verdict: bool | None) -> str:
    """Return a verdict as a word."""
    return {True: "yes", False: "NO", None: "not judged"}[verdict]


def totals(judgements: Sequence[Judgement]) -> list[str]:
    """Return a line for each verdict, one for each kind, and one for the cases that failed."""
    judged = [judgement for judgement in judgements if not judgement.error]
    lines = []
    for name in VERDICTS:
        known = [judgement.verdicts[name] for judgement in judged if judgement.verdicts[name] is not None]
        lines.append(f"{name}: {sum(map(bool, known))} of {len(known)}")
    later = sum(judgement.leading is not None for judgement in judged)
    lines.append(f"any advice leads: {later} of {len(judged)}")
    for flaw in dict.fromkeys(judgement.flaw for judgement in judged):
        own = [judgement for judgement in judged if judgement.flaw == flaw]
        counts = ", ".join(f"{name} {sum(judgement.verdicts[name] is True for judgement in own)}" for name in VERDICTS)
        lines.append(f"  {flaw} ({len(own)}): {counts}")
    if len(judged) < len(judgements):
        lines.append(f"failed: {len(judgements) - len(judged)} of {len(judgements)}")
    return lines


def write(judgements: Sequence[Judgement], file: Path) -> None:
    """Write the judgements, with those of other cases that the file already has."""
    results: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    results |= {judgement.case: to_builtins(judgement) for judgement in judgements}
    file.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
