"""Every figure of a printed screen is computed again from the JSON form, and none is left that nothing accounts for."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from altered import answer_of, report_of
from known_launch import known_launch
from programs.child import REPO
from replacing import replace
from terminal.screens import lines_shown

from kprof_inject.analysis.comparison.verdicts import diff_captures
from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.analysis.limits.stalls import place_text
from kprof_inject.capture import counters
from kprof_inject.capture.encoding import json_values
from kprof_inject.capture.model import Kernel
from kprof_inject.capture.reader import read_capture
from kprof_inject.pipeline.captures import decode_capture
from kprof_inject.quantities import percent, short_time, signed_time
from kprof_inject.report.diff.rows import diff_json
from kprof_inject.report.diff.terminal import print_diff_tables
from kprof_inject.report.terminal.screens import print_answers
from kprof_inject.timeline.timeline import Timeline

Json = dict[str, Any]

CAPTURES = {
    "one stage": REPO / "tests/captures/matmul-one-stage",
    "three stages": REPO / "tests/captures/matmul-three-stages",
    "H200": REPO / "tests/captures/matmul",
}
FIGURE = re.compile(r"(?<![\w.])[+-]?\d+(?:\.\d+)? (?:%|ns|µs|ms|MHz|×|[kM]B)(?!\w)")
LABELS = ("LIMIT", "UNITS", "TRY", "TRUST", "CTA", "scope")
NOT_WAITING = ("selected", "not_selected")


@cache
def recorded(name: str) -> Timeline:
    (timeline,) = decode_capture(read_capture(CAPTURES[name]), lambda line: None)
    return timeline


def of_kernel(timeline: Timeline, kernel: Kernel) -> Timeline:
    return replace(timeline, launch=replace(timeline.launch, kernel=kernel))


def by_events(timeline: Timeline) -> Timeline:
    """The same without the time of an empty kernel, as older captures are."""
    kernel = timeline.launch.kernel
    clean, with_records = (replace(build, empty_launch_ns=None) for build in (kernel.clean, kernel.with_records))
    return of_kernel(timeline, replace(kernel, clean=clean, with_records=with_records))


def launching_known(timeline: Timeline) -> Timeline:
    """The same with the time of an empty kernel, which is another for either build."""
    kernel = timeline.launch.kernel
    clean = replace(kernel.clean, empty_launch_ns=2_208.0)
    with_records = replace(kernel.with_records, empty_launch_ns=2_496.0)
    return of_kernel(timeline, replace(kernel, clean=clean, with_records=with_records))


def replayed(timeline: Timeline) -> Timeline:
    """The same with launches in turn, whose ratio has another median than their times."""
    kernel, drawn = timeline.launch.kernel, np.random.default_rng(7)
    drift, noise = drawn.lognormal(0, 0.2, 40), drawn.lognormal(0, 0.02, 40)
    clean_ns, with_records_ns = 14_000 * drift, 14_700 * drift * noise
    return of_kernel(
        timeline,
        replace(
            kernel,
            clean=replace(kernel.clean, replayed_ns=(*clean_ns.tolist(),)),
            with_records=replace(kernel.with_records, replayed_ns=(*with_records_ns.tolist(),)),
        ),
    )


def figures_in(line: str) -> list[str]:
    return FIGURE.findall(line)


def unaccounted(lines: Sequence[str], expected: Sequence[set[str]]) -> list[str]:
    """What of a line's figures is none of those that its JSON gives."""
    return [
        f"{figure} in: {line}"
        for line, known in zip(lines, expected, strict=True)
        for figure in figures_in(line)
        if figure not in known
    ]


# A launch's screen


def screen_of(timeline: Timeline) -> tuple[list[str], Json]:
    report = LaunchAnalysis.of(timeline)
    lines = lines_shown(lambda console: print_answers(report_of(report), console), 200)
    return [line for line in lines if line], json_values(answer_of(report))


def of_launch(lines: Sequence[str], launch: Json) -> list[set[str]]:
    """For each line of the screen the figures that the launch's JSON form gives."""
    label, expected = "", []
    rows = iter([scope for scope in launch["scopes"] if scope["count"]])
    last: Json = {}
    for line in lines:
        first = line.split(" ")[0]
        label = first if first in LABELS else label
        if label == "scope" and first != "scope":
            if line.strip().startswith("between iterations"):
                expected.append(between_figures(last, launch))
            else:
                last = next(rows)
                assert line.strip().startswith(last["scope"])
                expected.append(scope_figures(last, launch))
        else:
            expected.append(
                {"": title, "LIMIT": limit, "UNITS": units, "TRY": advice, "TRUST": trust, "CTA": strip}.get(
                    label, none
                )(launch)
            )
    assert next(rows, None) is None
    return expected


def none(launch: Json) -> set[str]:
    return set()


def run_times(launch: Json) -> tuple[float | None, float | None]:
    return launch["run_times"]["without_records_ns"], launch["run_times"]["with_records_ns"]


def title(launch: Json) -> set[str]:
    clean, with_records = run_times(launch)
    clock = {f"{launch['clock_mhz']:.0f} MHz", f"{launch['nominal_mhz'] or 0:.0f} MHz"}
    if clean is None or with_records is None:
        return {short_time(launch["duration_ns"]), *clock}
    return {short_time(clean), short_time(with_records), *clock}


def limit(launch: Json) -> set[str]:
    parts = dict(launch["limit"]["parts"])
    scopes = launch["speed_of_light"]["roofs"]
    roofs = [part for scope in scopes for part in numbers_in(scope)]
    in_loop = of_sampled_loop(launch) if launch["limit"]["evidence"] == "measured" else ()
    return {percent(part) for part in (*parts.values(), *roofs, *in_loop, *numbers_in(launch["speed_of_light"]))}


def of_sampled_loop(launch: Json) -> Iterator[float]:
    """The share of an SM's time in which one of its CTAs runs the loop, and that of the tensor cores in that time."""
    stalls, metrics = launch["stalls"], launch["counters"]["metrics"]
    (index,) = (scope["index"] for scope in launch["scopes"] if scope["scope"] == "loop[0]")
    of_warps = sum(stalls["scopes"][index].values()) / stalls["samples"]
    share = 1 - (1 - of_warps) ** (metrics[counters.WARPS_ACTIVE] / launch["warps"])
    active = metrics[counters.SM_ACTIVE_CYCLES] / metrics[counters.SM_CYCLES]
    yield from (share, launch["limit"]["parts"]["tensor cores"] / share / active)


def units(launch: Json) -> set[str]:
    """Whole percents of the six busiest: as measured, else as the larger lower bound."""
    best = [
        max(unit["computed"] or 0, unit["code"] or 0) if unit["measured"] is None else unit["measured"]
        for unit in launch["units"]
    ]
    return {f"{100 * share:.0f} %" for share in sorted(best)[-6:]}


def numbers_in(value: Any) -> Iterator[float]:
    if isinstance(value, dict):
        for one in value.values():
            yield from numbers_in(one)
    elif isinstance(value, list):
        for one in value:
            yield from numbers_in(one)
    elif isinstance(value, float):
        yield value


def advice(launch: Json) -> set[str]:
    found = {percent(finding["share"]) for finding in launch["findings"]}
    parts = launch["limit"]["parts"]
    found |= {percent(1 - max(parts.values(), default=0.0)), *map(percent, parts.values())}
    for finding in launch["findings"]:
        for number in numbers_in({**finding["figures"], "": 0.0}):
            found |= {percent(number), short_time(number)}
        found |= {f"{number / 1e3:.1f} kB" for number in finding["figures"].values() if isinstance(number, int)}
    if launch["nominal_mhz"]:
        found |= {percent(1 - launch["clock_mhz"] / launch["nominal_mhz"]), f"{launch['nominal_mhz']:.0f} MHz"}
    return found


def trust(launch: Json) -> set[str]:
    """The overhead is what the two times of the title give."""
    judged = launch["trust"]
    clean, with_records = run_times(launch)
    if clean is None or with_records is None:
        return set()
    overhead, error = 100 * (with_records / clean - 1), judged["overhead"]["error_percent"]
    assert overhead == pytest.approx(judged["overhead"]["percent"], abs=1e-3)
    reach = round(overhead, 1) + math.ceil(10 * error - 1e-6) / 10
    return {f"{overhead:.1f} %", f"{overhead:+.1f} %", f"{reach:.1f} %", "5 %", "20 %"}


def strip(launch: Json) -> set[str]:
    """Its loop and its records have the shares of the table and of the warps' time."""
    phases = launch["phases"]
    loops = [scope for scope in launch["scopes"] if scope["kind"] == "loop" and scope["depth"] <= 1]
    shares = [phases[name] / phases["whole_ns"] for name in ("before_ns", "after_ns")]
    if phases["whole_ns"] == launch["warp_time_ns"]:
        shares += [sum(scope["share"] for scope in loops), launch["subtracted_ns"] / launch["warp_time_ns"]]
        times_ns = [phases[name] for name in ("before_ns", "loops_ns", "after_ns", "records_ns")]
        shares.append(1 - sum(times_ns) / phases["whole_ns"])
    else:
        shares += [phases[name] / phases["whole_ns"] for name in ("loops_ns", "records_ns")]
        shares.append(phases["whole_ns"] / launch["warp_time_ns"])
    return {*map(percent, shares), short_time(launch["ending"]["cta_ns"])}


def scope_figures(scope: Json, launch: Json) -> set[str]:
    runs = scope["cta_spread"]["groups"] * len(scope["warps"]["ids"])
    resolution_ns = launch["resolution_ns"]
    mean_ns = scope["total_ns"] / scope["count"]
    assert scope["count"] * mean_ns == pytest.approx(scope["total_ns"])
    assert scope["count"] % runs == 0 or scope["count"] / runs != 1
    times_ns = (mean_ns, scope["p50_ns"], scope["p99_ns"])
    shown = {short_time(time_ns) for time_ns in times_ns if time_ns >= resolution_ns}
    bound = {short_time(resolution_ns)} if any(time_ns < resolution_ns for time_ns in times_ns) else set()
    return shown | bound | {percent(scope["share"])} | stalled_figures(scope, launch)


def stalled_figures(scope: Json, launch: Json) -> set[str]:
    """The share of the reason for which most samples of the scope wait."""
    reasons = launch["stalls"]["scopes"].get(scope["index"], {}) if launch["stalls"] else {}
    waiting = [count for reason, count in reasons.items() if reason not in NOT_WAITING]
    return {percent(max(waiting) / sum(reasons.values()))} if waiting else set()


def between_figures(loop: Json, launch: Json) -> set[str]:
    runs = loop["cta_spread"]["groups"] * len(loop["warps"]["ids"])
    share = loop["share"] * loop["self_ns"] / loop["total_ns"]
    return {short_time(loop["between_iterations_ns"] / runs), percent(share)}


VARIANTS = {
    **{name: (lambda name=name: recorded(name)) for name in CAPTURES},
    **{f"{name}, launching known": (lambda name=name: launching_known(recorded(name))) for name in CAPTURES},
    "launches in turn": lambda: replayed(recorded("three stages")),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_a_launchs_screen(name: str) -> None:
    lines, launch = screen_of(VARIANTS[name]())
    assert unaccounted(lines, of_launch(lines, launch)) == []
    assert sum(len(figures_in(line)) for line in lines) >= 20


def test_a_made_launch(tmp_path: Path) -> None:
    lines, launch = screen_of(known_launch(tmp_path))
    assert unaccounted(lines, of_launch(lines, launch)) == []


@pytest.mark.parametrize("name", CAPTURES)
def test_any_other_figure_would_be_seen(name: str) -> None:
    """The strip, the title and the table; a share that another line has as well is no other."""
    lines, launch = screen_of(recorded(name))
    expected = of_launch(lines, launch)
    for number, line in enumerate(lines):
        for found in FIGURE.finditer(line):
            value, unit = found[0].split()
            other = f"{line[: found.start()]}{float(value) * 1.37:.3g} {unit}{line[found.end() :]}"
            changed = [*lines[:number], other, *lines[number + 1 :]]
            assert unaccounted(changed, expected), other


# A comparison


def compared(a: Timeline, b: Timeline) -> tuple[list[str], Json]:
    diff = diff_captures([a], [b])
    lines = lines_shown(lambda console: print_diff_tables(diff, console), 240)
    (kernel,) = diff_json(diff)["kernels"]
    return [line for line in lines if line], json.loads(json.dumps(kernel))


def cta_ns(launch: Json, name: str) -> float:
    """What a warp spends in a scope in each CTA, all of its executions."""
    (scope,) = (scope for scope in launch["scopes"] if scope["scope"] == name)
    return scope["total_ns"] / launch["ctas"] / len(scope["warps"]["ids"])


def net_cta_ns(launch: Json) -> float:
    return (launch["warp_time_ns"] - launch["subtracted_ns"]) / launch["ctas"] / launch["warps"]


def interval(change: Json, *, signed: bool) -> str:
    low, high = math.floor(10 * change["low_percent"]) / 10, math.ceil(10 * change["high_percent"]) / 10
    if signed:
        return f"[{low:+.1f}, {high:+.1f}]"
    low, high = sorted((abs(low), abs(high)))
    return f"[{low:.1f}, {high:.1f}]"


def from_to(before_ns: float, after_ns: float) -> str:
    """Two times with one unit."""
    before, after = short_time(before_ns), short_time(after_ns)
    assert before.split()[1] == after.split()[1]
    return f"{before.split()[0]} → {after}"


def of_comparison(lines: Sequence[str], kernel: Json, a: Json, b: Json) -> list[set[str]]:
    """For each line of a comparison the figures that the reports of its sides give, ``a`` and ``b``."""
    times = [run_times(side)[0] or 0.0 for side in (a, b)]
    ratio = times[1] / times[0]
    change = kernel["without_records"]["change"]
    assert change["percent"] == pytest.approx(100 * (ratio - 1), abs=1e-3)
    detectable = f"{math.ceil(10 * change['detectable_percent']) / 10:.1f} %"
    alone = kernel["by_scopes_percent"] or 0.0
    launch = {
        f"{abs(alone):.1f} %",
        detectable,
        f"{100 * abs(ratio - 1):.1f} %",
        f"{100 * (ratio - 1):+.1f} %",
        *map(short_time, times),
    }
    spans = {short_time(a["duration_ns"]), short_time(b["duration_ns"])}
    spans |= {f"{100 * (b['duration_ns'] / a['duration_ns'] - 1):+.1f} %"}
    cycles = b["duration_ns"] * b["clock_mhz"] / a["duration_ns"] / a["clock_mhz"]
    net_ns = net_cta_ns(b) - net_cta_ns(a)
    loop_ns, func_ns = (cta_ns(b, name) - cta_ns(a, name) for name in ("loop[0]", "func"))
    weighed = [part["part"] for part in kernel["structure"]["parts"] if part["cta_change_ns"] is not None]
    parts_ns = {"loop[0]": loop_ns, "the whole kernel": func_ns - loop_ns * ("loop[0]" in weighed)}
    rest_ns = net_ns - sum(parts_ns[part] for part in weighed)
    rows = [{place(scope): scope for scope in side["scopes"]} for side in (a, b)]
    expected = []
    for line in lines:
        cells = [cell.strip() for cell in line.strip("│").split("│")]
        name, where = line.split()[0], (cells[0].partition(" #")[0], *cells[1:2])
        if line.startswith(("B takes ", "no difference: ")):
            expected.append(launch)
            assert interval(change, signed=line.startswith("no ")) in line
            assert from_to(*times) in line
        elif " cause: outside " in line:
            expected.append({f"{alone:+.1f} %"})
        elif " cause: " in line:
            cause = line.partition(": ")[2].partition(", ")[0]
            sides_ns = [cta_ns(side, cause) for side in (a, b)]
            expected.append({short_time(sides_ns[1])})
            assert from_to(*sides_ns) in line
        elif where in rows[0]:
            expected.append(compared_figures(*(side[where] for side in rows), a["resolution_ns"], b["resolution_ns"]))
        elif (part := line.strip().partition(":")[0]) in parts_ns:
            expected.append({signed_time(parts_ns[part])})
        elif re.fullmatch(r"\w+\.py:\d+", name):
            expected.append(of_line(name, a, b))
        elif name == "elsewhere:":
            expected.append({signed_time(rest_ns), signed_time(net_ns)})
        elif line.startswith("trust in "):
            expected.append(trust(a if line.startswith("trust in A") else b))
        elif " without records" in line:
            expected.append(launch)
        elif " with records" in line:
            expected.append(spans)
        elif name == "clock":
            expected.append({f"{100 * (cycles - 1):+.1f} %"})
        elif name == "recorded":
            expected.append({short_time(waits_ns(a)), short_time(waits_ns(b))})
        else:
            expected.append(of_loops(kernel))
    return expected


def of_line(source: str, *sides: Json) -> set[str]:
    """The figures of a source line that is at the same place on both sides."""
    times_ns, errors_ns = [], []
    for side in sides:
        lines = [line for line in side["stalls"]["lines"] if place_text(line["source"]) == source]
        share = sum(sum(line["reasons"].values()) for line in lines) / side["stalls"]["samples"]
        times_ns.append(share * net_cta_ns(side))
        errors_ns.append(1.96 * math.sqrt(share * (1 - share) / side["stalls"]["samples"]) * net_cta_ns(side))
    change = f"{(times_ns[1] - times_ns[0]) / 1e3:+.2f} µs"
    # The sign of a change is not part of its figure.
    return {*map(short_time, times_ns), change, change[1:], f"{math.hypot(*errors_ns) / 1e3:.2f} µs"}


def place(scope: Json) -> tuple[str, str]:
    """A scope's name and line, as its row has them."""
    return scope["scope"], scope["source"].rpartition("/")[2]


def compared_figures(a: Json, b: Json, *resolution_ns: float) -> set[str]:
    times_ns = [
        (scope[name], least)
        for scope, least in zip((a, b), resolution_ns, strict=True)
        for name in ("mean_ns", "p50_ns")
    ]
    shown = {short_time(time_ns if time_ns >= least else least) for time_ns, least in times_ns}
    totals = {short_time(scope["total_ns"]) for scope in (a, b)}
    return (
        shown
        | totals
        | {percent(a["share"]), percent(b["share"]), f"{100 * (b['total_ns'] / a['total_ns'] - 1):+.1f} %"}
    )


def waits_ns(launch: Json) -> float:
    """In an iteration, of the waits in it."""
    waits = [scope for scope in launch["scopes"] if "wait" in scope["scope"] and scope["depth"] > 2]
    (iterations,) = (scope["count"] for scope in launch["scopes"] if scope["kind"] == "iter")
    return sum(scope["total_ns"] for scope in waits) / iterations


def of_loops(kernel: Json) -> set[str]:
    structure = kernel["structure"] or {"parts": []}
    found = set()
    for part in structure["parts"]:
        for side in (part["loops"] or {}).values():
            found |= {percent(share) for share in side["parts"].values()}
            found.add(f"{(side['ahead_bytes_per_sm'] or 0) / 1e3:.1f} kB")
    return found | {"95 %"}


PAIRS = [("one stage", "three stages"), ("three stages", "one stage"), ("three stages", "H200"), ("H200", "one stage")]


@pytest.mark.parametrize("pair", PAIRS, ids=" to ".join)
@pytest.mark.parametrize("known", [False, True], ids=["by events", "launching known"])
def test_a_comparison(pair: tuple[str, str], known: bool) -> None:
    a, b = ((launching_known if known else by_events)(recorded(name)) for name in pair)
    lines, kernel = compared(a, b)
    reports = [json_values(answer_of(LaunchAnalysis.of(side))) for side in (a, b)]
    assert unaccounted(lines, of_comparison(lines, kernel, *reports)) == []
    assert sum(len(figures_in(line)) for line in lines) >= 20
