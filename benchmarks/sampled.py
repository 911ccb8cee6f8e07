"""Compare a sample of a launch's CTAs with the whole launch: intervals, waves, tail, idle SMs, limit and findings.

    python benchmarks/sampled.py WORKSPACE... [--json FILE]

Needs captures that recorded all CTAs (``--ctas all``), but no GPU. The last capture of each workspace is copied as if
only the default sample of each launch had recorded (``--ctas auto``), and both are analysed. 19 of 20 intervals should
hold the figure of all CTAs.

In such a copy, CTAs outside the sample ran with records, too. So it does not show how much slower those that record
are. While the others copied their records, which the copy does not know, their SMs count as idle.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import statistics
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import kprof_inject
from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.capture.buffer_layouts import END, rows_of
from kprof_inject.capture.capture_files import FILES, LaunchRecord
from kprof_inject.capture.cta_samples import SM_BITS, CtaChoice, CtaSample
from kprof_inject.capture.model import Launch
from kprof_inject.capture.reader import is_capture, read_capture
from kprof_inject.errors import KprofError
from kprof_inject.timeline.records import read_raw
from kprof_inject.workspace import Workspace

WITH_INTERVAL = ("share", "p50_ns", "p99_ns")
OF_LAUNCH = {
    "waves": "{:.2f}",
    "slots_per_sm": "{}",
    "duration_ns": "{:,.0f}",
    "median_cta_ns": "{:,.0f}",
    "last_wave": "{:.1%}",
    "tail": "{:.1%}",
    "idle_sms": "{:.1%}",
}
"""Figures of a launch, and how they are shown."""

Row = dict[str, Any]


def compare(workspace: Path, folder: Path) -> tuple[list[Row], Counter[str]]:
    """Compare the launches of a workspace; also count those that were skipped, by the reason."""
    capture = workspace if is_capture(workspace) else Workspace.open(workspace).last_capture_folder()
    skipped = write_samples(capture, folder)
    timelines = (kprof_inject.load(one).timelines for one in (capture, folder))
    pairs = zip(*(map(LaunchAnalysis.of, launches) for launches in timelines), strict=True)
    compared = ((whole, sample) for whole, sample in pairs if whole.launch.sample != sample.launch.sample)
    return [{"workspace": workspace.name, **compare_launch(*pair)} for pair in compared], skipped


def write_samples(capture: Path, folder: Path) -> Counter[str]:
    """Copy a capture with samples of its launches; count the launches that are copied as they are."""
    shutil.copytree(capture, folder)
    skipped: Counter[str] = Counter()
    captured = read_capture(capture)
    for process in captured.processes:
        launches = [launch for launch in captured.launches if launch.process is process]
        path = folder / process.name / FILES[LaunchRecord]
        if path.exists():
            # Readers ignore a last line that does not end, too.
            lines = path.read_bytes().split(b"\n")[:-1]
            path.write_bytes(b"".join(sampled_line(line, launches, path.parent, skipped) + b"\n" for line in lines))
    return skipped


def sampled_line(line: bytes, launches: Sequence[Launch], folder: Path, skipped: Counter[str]) -> bytes:
    """Write the sample of a launch to ``folder`` and return its line; if it cannot, return the same line."""
    record = json.loads(line)
    launch = next((one for one in launches if one.file == record.get("file")), None)
    if launch is None:
        return line
    sample = CtaChoice().sample(launch.grid, int(launch.kernel.metadata.get("num_ctas", 1)))
    try:
        buffer = sampled_buffer(launch, sample)
    except KprofError as error:
        skipped[error.what] += 1
        return line
    (folder / launch.file).write_bytes(buffer)
    record |= {"cta_shift": sample.shift, "buffer_bytes": len(buffer), "buffer_crc32": zlib.crc32(buffer)}
    return json.dumps(record).encode()


def sampled_buffer(launch: Launch, sample: CtaSample) -> bytes:
    """Return a launch's buffer as if only ``sample`` had recorded; raises ``KprofError`` with the reason if it cannot.

    The CTAs outside the sample leave their end and their SM, as the code without records does.
    """
    if not sample.shift:
        raise KprofError("too few CTAs for a sample")
    if launch.sample is not None:
        raise KprofError("only a sample was recorded")
    raw, words = read_raw(launch), launch.words()
    if not raw.timed or len(words) != sample.ctas:
        raise KprofError("recorded by an old version, without times or rows of all CTAs")
    row = rows_of(sample, np.arange(sample.ctas))
    rows = np.zeros((sample.rows, words.shape[1]), words.dtype)
    rows[row[row >= 0]] = words[row >= 0]
    is_other = row[raw.cta] < 0
    ends = np.zeros(sample.ends_bytes // END.itemsize, END)
    # The last CTA's end comes first.
    timer, sm = raw.pre_final_ns[is_other].astype(END), raw.sm[is_other].astype(END)
    ends[::-1][raw.cta[is_other]] = timer << np.uint64(SM_BITS) | sm
    return ends.tobytes() + rows.tobytes()


def compare_launch(whole: LaunchAnalysis, sample: LaunchAnalysis) -> Row:
    judged = list(judged_figures(whole, sample))
    return {
        "kernel": whole.summary.kernel,
        "launch": whole.summary.launch,
        "ctas": whole.summary.ctas,
        "recorded_ctas": sample.summary.recorded_ctas,
        "judged": {name: sum(one["figure"] == name for one in judged) for name in WITH_INTERVAL},
        "held": {name: sum(one["figure"] == name and not one["off"] for one in judged) for name in WITH_INTERVAL},
        "widths": {
            name: [one["wide"] for one in judged if one["figure"] == name and one["wide"] is not None]
            for name in WITH_INTERVAL
        },
        "misses": [one for one in judged if one["off"]],
        "whole": launch_figures(whole),
        "sample": launch_figures(sample),
    }


def judged_figures(whole: LaunchAnalysis, sample: LaunchAnalysis) -> Iterator[Row]:
    """Yield each figure that has an interval; as parts of the figure, its distance from the interval (``off``) and half
    of the interval's width (``wide``; None if it has no upper end)."""
    for of_all, of_some in zip(whole.summary.scopes, sample.summary.scopes, strict=True):
        for name in WITH_INTERVAL:
            value, interval = getattr(of_all, name), getattr(of_some.sampling, name, None)
            if value is not None and interval is not None:
                low, high = interval
                off = max(low - value, 0.0 if high is None else value - high, 0.0) / (value or 1)
                wide = None if high is None else (high - low) / 2 / (value or 1)
                found = {"scope": of_all.title, "figure": name, "value": value, "interval": interval}
                yield {**found, "off": off, "wide": wide}


def launch_figures(report: LaunchAnalysis) -> Row:
    """Return what the sample should show as the whole does; figures are None if no timer shows when CTAs ran."""
    waves, ending = report.summary.waves, report.summary.ending
    return {
        "waves": waves and waves.fill,
        "slots_per_sm": waves and waves.slots_per_sm,
        "duration_ns": report.summary.duration_ns,
        "median_cta_ns": ending and ending.cta_ns,
        "last_wave": waves and waves.last.share,
        "tail": ending and ending.idle_share,
        "idle_sms": waves and waves.idle_sm_share,
        # The name has the utilization of the busiest unit.
        "limit": re.sub(r" \d+ %$", "", report.limit.name),
        "findings": sorted({f"{one.rule} of {one.scope}" if one.scope else one.rule for one in report.findings}),
    }


def shown(row: Row, name: str) -> str:
    """Return a figure of the whole launch; after an arrow that of the sample, if it is another."""
    values = (row[which][name] for which in ("whole", "sample"))
    form = OF_LAUNCH.get(name, "{}")
    return " → ".join(dict.fromkeys("unknown" if value is None else form.format(value) for value in values))


def table(rows: Sequence[Row]) -> Iterator[str]:
    titles = ("launch", "CTAs", *WITH_INTERVAL, *OF_LAUNCH, "limit")
    yield "| " + " | ".join(titles) + " |"
    yield "|---" * len(titles) + "|"
    for row in rows:
        cells = [title(row), f"{row['recorded_ctas']:,} of {row['ctas']:,}"]
        cells += [f"{row['held'][name]} of {row['judged'][name]}" for name in WITH_INTERVAL]
        yield "| " + " | ".join([*cells, *(shown(row, name) for name in (*OF_LAUNCH, "limit"))]) + " |"


def title(row: Row) -> str:
    return f"{row['workspace']}: {row['kernel']} #{row['launch']}"


def differences(row: Row) -> Iterator[str]:
    """Yield the misses of a launch, and the findings that differ."""
    for miss in row["misses"]:
        low, high = ("∞" if end is None else f"{end:.6g}" for end in miss["interval"])
        yield f"{miss['figure']} of {miss['scope']}: {miss['value']:.6g}, not in {low} to {high}"
    for one, other in (("whole", "sample"), ("sample", "whole")):
        if alone := sorted({*row[one]["findings"]} - {*row[other]["findings"]}):
            yield f"found in the {one} only: {', '.join(alone)}"


def totals(rows: Sequence[Row]) -> Iterator[str]:
    yield f"all intervals hold: {sum(not row['misses'] for row in rows)} of {len(rows)} launches"
    for name in WITH_INTERVAL:
        held, judged = (sum(row[key][name] for row in rows) for key in ("held", "judged"))
        widths = [width for row in rows for width in row["widths"][name]]
        wide = (
            f"; half of the width: median {statistics.median(widths):.1%}, at most {max(widths):.1%}" if widths else ""
        )
        yield f"intervals of {name} that hold: {held} of {judged} ({held / max(judged, 1):.1%}){wide}"
    for name in ("limit", "findings"):
        yield f"same {name}: {sum(row['whole'][name] == row['sample'][name] for row in rows)} of {len(rows)} launches"
    for name in OF_LAUNCH:
        unequal = [row for row in rows if "→" in shown(row, name)]
        line = f"same {name}: {len(rows) - len(unequal)} of {len(rows)} launches"
        if unequal:
            farthest = max(unequal, key=lambda row: distance(row, name))
            line += f"; farthest: {shown(farthest, name)} ({title(farthest)})"
        yield line


def distance(row: Row, name: str) -> float:
    """Return how far the sample is from the whole: the difference of parts, and the relative one of other figures."""
    whole, sample = (row[which][name] or 0.0 for which in ("whole", "sample"))
    is_part = OF_LAUNCH[name].endswith("%}")
    return float(abs(sample - whole) if is_part or not whole else abs(sample / whole - 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workspace", type=Path, nargs="+", help="a workspace, or the folder of a capture")
    parser.add_argument("--json", type=Path, help="write the figures there, too")
    arguments = parser.parse_args()
    rows: list[Row] = []
    skipped: Counter[str] = Counter()
    for workspace in arguments.workspace:
        with tempfile.TemporaryDirectory() as folder:
            found, why = compare(workspace, Path(folder, "capture"))
        rows += found
        skipped += why
    print(*table(rows), sep="\n")
    for row in rows:
        if lines := list(differences(row)):
            print("", title(row), *(f"  {line}" for line in lines), sep="\n")
    print("", *totals(rows), *(f"skipped, {why}: {count}" for why, count in skipped.items()), sep="\n")
    if arguments.json:
        arguments.json.write_text(json.dumps({"launches": rows, "skipped": skipped}, indent=1))


if __name__ == "__main__":
    main()
