"""Does `diff` say why a kernel changed? One change each is seeded into the TTGIR of five kernels (``seeds.py``).

    python seeded.py [--structure-only] [--kernels NAME,...] [--changes NAME,...] [--rounds N] [-o FOLDER]

The package has to be installed, or on ``PYTHONPATH``.

For each pair the comparison of the two modules has to name the change, at its source lines, and of an edit nothing
else; and what was edited has to compile for an H100. That much needs no GPU, and is all of ``--structure-only``.
On an H100, both sides are then profiled in turn, the changed one with Triton's own override.
Where the time changed for sure, at least 80 % of that has to be attributed to where the change was named: by what
records show there, or because nothing else differs, and then their share is in brackets. The exit code is 1 if a pair
fails. Needs Triton 3.6.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import triton
from kernels import HOPPER, KERNELS
from seeds import CHANGES, SEEDS, Seed
from triton import knobs

from kprof_inject.analysis.comparison.code import changes_between
from kprof_inject.analysis.comparison.verdicts import diff_captures
from kprof_inject.capture.reader import read_capture
from kprof_inject.pipeline.captures import decode_capture
from kprof_inject.report.diff.rows import change_json, diff_json
from kprof_inject.timeline.choice import Choice
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.workspace import Workspace

PROGRAM = Path(__file__).resolve().with_name("kernels.py")
# Iterations would be more records than the ring of a small kernel keeps, and a change is attributed to loops.
SELECTORS = ("--at", "func", "--at", "loop")
LAUNCHES = "20"
# Room for all records of each kernel.
BUFFER = ("--buffer-size", "8192")
LEAST_ATTRIBUTED = 0.8
CUOBJDUMP = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"


@dataclass(frozen=True)
class Built:
    """A kernel's TTGIR in a file, and what its machine code uses."""

    path: Path
    ptx: str
    stack_bytes: int


@dataclass(frozen=True)
class Outcome:
    """A row of the table. ``failures`` are reasons why the pair fails; ``also`` is what else the report says."""

    seed: Seed
    change: str
    named: bool
    attributed: str
    failures: Sequence[str]
    also: Sequence[str]


def build(name: str, text: str, folder: Path, options: Mapping[str, Any]) -> Built:
    path = folder / f"{name}.ttgir"
    path.write_text(text)
    with knobs.cache.scope():
        knobs.cache.dir = str(folder / "cache")
        made = triton.compile(str(path), target=HOPPER, options=dict(options))
    cubin = folder / f"{name}.cubin"
    cubin.write_bytes(made.asm["cubin"])
    used = subprocess.run([CUOBJDUMP, "-res-usage", cubin], check=True, capture_output=True, text=True).stdout
    stack = re.search(r"\bSTACK:(\d+)", used)
    return Built(path, made.asm["ptx"], int(stack[1]) if stack else 0)


def build_plain(kernel: str, folder: Path) -> Built:
    text = KERNELS[kernel].compiled().asm["ttgir"]
    return build(kernel, text, folder, KERNELS[kernel].options)


def build_seeded(name: str, folder: Path) -> Built:
    seed = SEEDS[name]
    return build(name, seed.ttgir(), folder, KERNELS[seed.kernel].options)


def missed(seed: Seed, changes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What is wrong with what a report says of a seed."""
    found = [change for change in changes if seed.named.is_by(change)]
    if not found:
        yield "not named"
        return
    lines = {change["line"] for change in found} - {None}
    if lines != seed.line_numbers():
        yield f"named at lines {sorted(lines)} instead of {sorted(seed.line_numbers())}"
    # What comes of another option is the compiler's.
    for change in changes if seed.edit else ():
        if change["id"] not in seed.named.ids and change["line"] is not None:
            yield f"also says: {change['text']} (line {change['line']})"


def of_structure(seed: Seed, plain: Built, seeded: Built) -> Outcome:
    changes = [change_json(change) for change in changes_between(plain.path, seeded.path)[0]]
    failures = [*missed(seed, changes)]
    if plain.ptx == seeded.ptx:
        failures.append("the machine code is the same")
    if seed.change == "spilled" and not seeded.stack_bytes:
        failures.append("nothing is spilled")
    also = [change["text"] for change in changes if not seed.named.is_by(change)]
    return Outcome(seed, "-", "not named" not in failures, "-", failures, also)


def of_times(seed: Seed, kernel: Mapping[str, Any]) -> Outcome:
    """``kernel`` is what ``diff --json`` has of it."""
    structure = kernel["structure"] or {"parts": []}
    parts = structure["parts"]
    changes = [change for part in parts for change in part["changes"]]
    failures = [*missed(seed, changes)]
    times = [side for side in (kernel["without_records"], kernel["with_records"]) if side]
    # The one that the verdict is of.
    time = next((side for side in times if side["verdict"] == kernel["verdict"]), times[0])["change"]
    told, attributed = kernel["verdict"], "-"
    if time is not None:
        told = f"{time['percent']:+.1f} % [{time['low_percent']:+.1f}, {time['high_percent']:+.1f}]: {told}"
    if kernel["verdict"] in ("slower", "faster"):
        named = [part for part in parts if any(map(seed.named.is_by, part["changes"]))]
        known = [part["explained"] for part in named if part["explained"] is not None]
        attributed = f"{100 * sum(known):.0f} %" if known else "unknown"
        if any(part["part"] == structure["only_part"] for part in named):
            # Whatever records show of it there.
            attributed = f"all ({attributed})"
        elif not known or sum(known) < LEAST_ATTRIBUTED:
            failures.append(f"{attributed} attributed to it")
    elif kernel["verdict"] not in ("no difference", "the clock"):
        failures.append(kernel["verdict"])
    also = [change["text"] for change in changes if not seed.named.is_by(change)]
    return Outcome(seed, told, "not named" not in failures, attributed, failures, also)


@dataclass(frozen=True)
class Changed:
    """A side: the ``kernels`` that have one change, or the plain ones. ``overrides`` are Triton's variables for the
    step that times them as they are; records go into what that step dumped."""

    workspace: Path
    kernels: Sequence[str]
    overrides: Mapping[str, str]

    def profile_once(self) -> bool:
        """Whether that went well."""
        program = ["--", sys.executable, str(PROGRAM), "--launches", LAUNCHES, *self.kernels]
        dump = ["dump", "-o", str(self.workspace), *program]
        insert = ["insert", str(self.workspace), *SELECTORS]
        run = ["run", str(self.workspace), "--launches", "all", *BUFFER, *program]
        return all(
            subprocess.run(
                [sys.executable, "-m", "kprof_inject", *words],
                env=os.environ | variables,
                stdout=sys.stderr,
                check=False,
            ).returncode
            == 0
            for words, variables in ((dump, self.overrides), (insert, {}), (run, {}))
        )


def profiled(
    seeds: Sequence[Seed], plain: Mapping[str, Built], seeded: Mapping[str, Built], rounds: int, folder: Path
) -> Iterator[Outcome]:
    """Each change is a side, and all sides take turns."""
    first = Changed(folder / "plain", tuple(plain), {})
    if not first.profile_once():
        raise SystemExit("the plain kernels could not be profiled")
    dumped = {one.name: one for one in Workspace.open(first.workspace).kernels()}
    sides = {"plain": first}
    for change in dict.fromkeys(seed.change for seed in seeds):
        of_change = [seed for seed in seeds if seed.change == change]
        overrides = folder / "overrides" / change
        for seed in of_change:
            kernel = dumped[KERNELS[seed.kernel].function.__name__]
            if kernel.ttgir() != plain[seed.kernel].path.read_text():
                raise SystemExit(f"what was edited is not the TTGIR that {seed.kernel} is launched with")
            place = overrides / kernel.info.override_key
            place.mkdir(parents=True)
            (place / f"{kernel.info.file_name}.ttgir").write_text(seeded[seed.name].path.read_text())
        variables = {"TRITON_KERNEL_OVERRIDE": "1", "TRITON_OVERRIDE_DIR": str(overrides)}
        sides[change] = Changed(folder / change, tuple(seed.kernel for seed in of_change), variables)
    failed = set()
    for number in range(rounds):
        for name, changed in sides.items():
            say(f"{name}: round {number + 1} of {rounds}")
            if (number, name) != (0, "plain") and name not in failed and not changed.profile_once():
                failed.add(name)
    with ProcessPoolExecutor(min(len(seeds), os.cpu_count() or 1)) as pool:
        waiting = {
            seed.name: pool.submit(compared, seed.name, first.workspace, sides[seed.change].workspace, folder)
            for seed in seeds
            if seed.change not in failed
        }
        for seed in seeds:
            if seed.name in waiting:
                yield of_times(seed, waiting[seed.name].result())
            else:
                yield Outcome(seed, "-", False, "-", ["could not be profiled"], [])


def compared(name: str, plain: Path, changed: Path, folder: Path) -> Mapping[str, Any]:
    """What ``diff --json`` has of a pair; it is kept in the folder, too."""
    kernel = SEEDS[name].kernel
    values = diff_json(diff_captures(*(timelines(workspace, kernel) for workspace in (plain, changed))))
    (folder / f"{name}.json").write_text(json.dumps(values, indent=1))
    (found,) = values["kernels"]
    return found


def timelines(workspace: Path, name: str) -> list[Timeline]:
    kernel = Choice(kernels=(KERNELS[name].function.__name__,))
    folders = Workspace.open(workspace).capture_folders()
    return [one for folder in folders for one in decode_capture(read_capture(folder), say, kernel)]


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def row(outcome: Outcome) -> str:
    seed = outcome.seed
    named = "yes" if outcome.named else "NO"
    state = f"FAILS: {'; '.join(outcome.failures)}" if outcome.failures else "ok"
    return f"{seed.kernel:15} {seed.change:12} {outcome.change:40} {named:6} {outcome.attributed:>12}  {state}"


def chosen(kernels: str, changes: str) -> list[Seed]:
    found = [seed for seed in SEEDS.values() if seed.kernel in kernels.split(",") and seed.change in changes.split(",")]
    if not found:
        raise SystemExit(f"no such pair; kernels: {', '.join(KERNELS)}; changes: {', '.join(CHANGES)}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--structure-only", action="store_true", help="compile and compare modules; needs no GPU")
    parser.add_argument("--kernels", default=",".join(KERNELS))
    parser.add_argument("--changes", default=",".join(CHANGES))
    parser.add_argument("--rounds", type=int, default=2, help="runs of each side")
    parser.add_argument("-o", "--output", type=Path, help="leave the workspaces, and what diff says, there")
    options = parser.parse_args()
    seeds = chosen(options.kernels, options.changes)
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.output or Path(temporary)).absolute()
        builds = folder / "builds"
        if builds.exists():
            raise SystemExit(f"{folder} is of an earlier run: name another folder")
        builds.mkdir(parents=True)
        names = list(dict.fromkeys(seed.kernel for seed in seeds))
        with ProcessPoolExecutor(min(len(seeds), os.cpu_count() or 1)) as pool:
            waiting = {name: pool.submit(build_plain, name, builds) for name in names}
            changed = {seed.name: pool.submit(build_seeded, seed.name, builds) for seed in seeds}
        plain = {name: one.result() for name, one in waiting.items()}
        seeded = {name: one.result() for name, one in changed.items()}
        outcomes = [of_structure(seed, plain[seed.kernel], seeded[seed.name]) for seed in seeds]
        if not options.structure_only:
            failed = [row(one) for one in outcomes if one.failures]
            print(*failed, sep="\n", end="\n" if failed else "", file=sys.stderr)
            outcomes = [*profiled(seeds, plain, seeded, options.rounds, folder)]
    print(f"{'kernel':15} {'change':12} {'time':40} named    attributed")
    for outcome in outcomes:
        print(row(outcome))
        if outcome.also:
            print(f"    also: {'; '.join(dict.fromkeys(outcome.also))}")
    sys.exit(any(outcome.failures for outcome in outcomes))


if __name__ == "__main__":
    main()
