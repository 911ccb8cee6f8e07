"""One case of a fuzzing run over captures: a damaged folder or file, and what a command makes of it."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import re
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import click
import msgspec
import numpy as np
from buffers import make_format_1
from damage import damaged
from foreign_buffers import Mark, flashinfer, triton_distributed
from golden import fixtures, read
from planning import fixture_sources, fixture_view, tagged_loops
from specialised import save_specialised

from kprof_inject.capture.experiments import ExperimentRecord, MeasuredDelayRecord, SpinRecord
from kprof_inject.capture.model import Launch
from kprof_inject.capture.reader import read_capture
from kprof_inject.capture.schema import (
    ClockRecord,
    DumpedKernelRecord,
    KernelRecord,
    LaunchRecord,
    ModeRecord,
    PairedTimesRecord,
    ProcessRecord,
    Resources,
    Target,
    TimedResources,
    TimingRecord,
)
from kprof_inject.capture.writer import CaptureWriter
from kprof_inject.cli.main import root
from kprof_inject.errors import KprofError
from kprof_inject.pipeline.insertion import insert_kernels, write_insertions
from kprof_inject.select.plan import make_plan
from kprof_inject.select.selectors import parse_selectors
from kprof_inject.timeline.fitted_buffer import fitted_buffer
from kprof_inject.workspace import Workspace, write_experiment

REPO = Path(__file__).resolve().parents[2]
DEMO = REPO / "tests" / "captures" / "matmul"
PROTON = REPO / "tests" / "capture" / "recorded_by_proton"

MOST_CPU_SECONDS = 10.0

Command = Callable[[Path, Path, Path], None]
"""Takes what is damaged, its sound neighbour, and the folder for what is written."""


def _cli(*arguments: str) -> Command:
    def run(place: Path, other: Path, out: Path) -> None:
        known = {"{place}": place, "{other}": other, "{out}": out}
        given = [arguments[0], *(_filled(argument, known) for argument in arguments[1:])]
        root.main(args=given, standalone_mode=False, prog_name="kprof-inject")

    return run


def _filled(argument: str, known: dict[str, Path]) -> str:
    for name, path in known.items():
        argument = argument.replace(name, str(path))
    return argument


def _run_reads(place: Path, other: Path, out: Path) -> None:
    """What ``run`` reads of a workspace before and after the program, and in it."""
    workspace = Workspace.open(place)
    for kernel in workspace.kernels():
        workspace.scope_table(kernel.variant)
        workspace.clean_run(kernel.variant)
        workspace.kernel_sources(kernel.variant)
        workspace.override_path(kernel)
        kernel.ttgir()
    capture = read_capture(workspace.last_capture_folder())
    for launch in capture.launches[:1]:
        fitted_buffer([launch], launch.kernel.mode)


def _foreign_buffers() -> Iterator[tuple[str, Any]]:
    marks = [Mark(0, 0, 2_000), Mark(1, 0, 2_064), Mark(1, 1, 2_320), Mark(0, 1, 2_900)]
    yield "triton-distributed", triton_distributed(2, [[marks] * 2] * 4, [5, 6, 7, 8])
    yield "flashinfer", flashinfer(2, [[marks] * 2] * 4, [5, 6, 7, 8])


READERS: dict[str, Command] = {
    "report": _cli("report", "{place}"),
    "report --json": _cli("report", "--json", "{place}"),
    "report --budget": _cli("report", "--json", "--budget", "2000", "{place}"),
    "report --html": _cli("report", "--html", "{out}/report.html", "{place}"),
    "trace json": _cli("trace", "-o", "{out}/trace.json", "{place}"),
    "trace json.gz": _cli("trace", "-o", "{out}/trace.json.gz", "--launch", "0", "{place}"),
    "trace pftrace": _cli("trace", "-o", "{out}/trace.pftrace", "{place}"),
    "trace pftrace.gz": _cli("trace", "-o", "{out}/trace.pftrace.gz", "{place}"),
    "trace csv": _cli("trace", "-o", "{out}/trace.csv", "{place}"),
    "trace parquet": _cli("trace", "-o", "{out}/trace.parquet", "{place}"),
    "trace hatchet": _cli("trace", "-o", "{out}/trace.hatchet", "{place}"),
    "diff A": _cli("diff", "{place}", "{other}"),
    "diff B": _cli("diff", "--json", "{other}", "{place}"),
}
OF_WORKSPACES: dict[str, Command] = {
    "list": _cli("list", "{place}"),
    "list --json": _cli("list", "--json", "{place}"),
    "insert": _cli("insert", "{place}"),
    "insert --dry-run": _cli("insert", "--json", "--dry-run", "--at", "func", "{place}"),
    "run": _run_reads,
}
OF_EXPERIMENTS: dict[str, Command] = {
    "causal": _cli("causal", "{place}"),
    "causal --json": _cli("causal", "--json", "{place}"),
    "causal --csv": _cli("causal", "--csv", "{out}/slopes.csv", "{place}"),
}
OF_BUFFERS: dict[str, Command] = {
    f"{format_name} {name}": _cli(*arguments, "--buffer-format", format_name, "--names", "all,load,tick")
    for format_name, _ in _foreign_buffers()
    for name, arguments in {
        "report -v": ("report", "-v", "{place}"),
        "report --json": ("report", "--json", "{place}"),
        "report --html": ("report", "--html", "{out}/report.html", "{place}"),
        "trace json": ("trace", "-o", "{out}/trace.json", "{place}"),
        "trace pftrace": ("trace", "-o", "{out}/trace.pftrace", "{place}"),
        "trace csv": ("trace", "-o", "{out}/trace.csv", "{place}"),
        "trace hatchet": ("trace", "-o", "{out}/trace.hatchet", "{place}"),
        "diff": ("diff", "{place}", "{other}"),
    }.items()
}
COMMANDS = {**READERS, **OF_WORKSPACES, **OF_EXPERIMENTS, **OF_BUFFERS}
_WRITES = {"insert": ("plans", "override", "workspace.lock")}
"""What of the place a command may write to. All others only read it."""


@dataclass(frozen=True)
class Place:
    """What a case damages a copy of: ``other`` is of the same kind, and stays whole."""

    name: str
    path: Path
    other: Path
    commands: tuple[str, ...]
    checked: bool = False
    """Whether all of it has checksums."""


@dataclass(frozen=True)
class _Recorded:
    """A launch, and what its kernel's files say."""

    launch: Launch
    kernel: KernelRecord
    ttgir: str
    sources: dict[str, str]

    @classmethod
    def of(cls, launch: Launch, ttgir: str, sources: dict[str, str]) -> _Recorded:
        kernel = msgspec.json.decode((launch.kernel.folder / "kernel.json").read_bytes(), type=KernelRecord)
        return cls(launch, kernel, ttgir, sources)


def _specialised(folder: Path) -> _Recorded:
    """A warp-specialised kernel with waits, dots, copies and a tag."""
    text = read(next(path for path in fixtures() if "ttg.warp_specialize(" in read(path) and "bare" not in path.name))
    selectors = ("func", "iter", "op(*wait*)", "op(*dot*)", "op(*copy*)", tagged_loops(text)[0])
    plan = make_plan(fixture_view(text), parse_selectors(selectors))
    return _Recorded.of(save_specialised(folder, plan), text, fixture_sources(text))


def _add_experiment(workspace: Workspace) -> None:
    """Delays of two scopes, as if they had been measured."""
    (launch, *_) = read_capture(workspace.last_capture_folder()).launches
    table = msgspec.json.decode((launch.kernel.folder / "kernel.json").read_bytes(), type=KernelRecord).scope_table
    delays = [
        MeasuredDelayRecord(
            scope=scope,
            delay_cycles=cycles,
            ns=tuple(1e5 + 40 * cycles * scope + number for number in range(9)),
            clean_ns=tuple(1e5 + 2 * number for number in range(9)),
            registers=32,
        )
        for scope in (1, 2)
        for cycles in (0, 60, 180, 540)
    ]
    experiment = ExperimentRecord(
        name=launch.kernel.name,
        variant=launch.kernel.variant,
        pid=500,
        scopes=table,
        target=Target("cuda", 90),
        device_name="NVIDIA H200",
        sm_count=132,
        nominal_clock_hz=1.98e9,
        sm_clock_hz=1.7e9,
        clean=Resources(registers=32, ctas_per_sm=1),
        grid=launch.grid,
        delays=tuple(delays),
        spins=tuple(SpinRecord(cycles, 30 + 1.1 * cycles) for cycles in (0, 60, 180, 540)),
        seconds=2.5,
        timed=72,
    )
    folder = workspace.new_experiment_folder()
    write_experiment(folder, experiment)
    kernel = folder / launch.kernel.variant
    (kernel / "kernel.ttgir").write_text(launch.kernel.ttgir())
    (kernel / "sources.json").write_text(json.dumps(launch.kernel.sources()))


class Corpus:
    """Small captures with all that a capture can have, and other profilers' buffers, in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (launch,) = read_capture(DEMO).launches
        demo = _Recorded.of(launch, launch.kernel.ttgir(), launch.kernel.sources())
        waits = _specialised(folder / "waits")
        captures = [self._capture(f"capture-{run}", run, demo, ctas) for run, ctas in (("a", 4), ("b", 3))]
        waiting = [self._capture(f"waits-{run}", run, waits, ctas) for run, ctas in (("c", 2), ("d", 1))]
        old = [Path(shutil.copytree(path, folder / f"old-{path.name}")) for path in captures]
        for path in old:
            make_format_1(path)
        workspaces = [self._workspace(f"workspace-{path.name}", path) for path in (*captures, old[0])]
        measured = [self._workspace(f"measured-{path.name}", path) for path in waiting]
        for workspace in measured:
            _add_experiment(Workspace(workspace))
        (folder / "proton.bin").write_bytes((PROTON / "kernel.bin").read_bytes())
        readers, of_workspaces = tuple(READERS), tuple(OF_WORKSPACES)
        self.places = (
            Place("capture", captures[0], captures[1], readers, checked=True),
            Place("capture of format 1", old[0], old[1], readers),
            Place("workspace", workspaces[0], workspaces[1], (*of_workspaces, *of_workspaces, *readers)),
            Place("workspace with format 1", workspaces[2], workspaces[1], (*of_workspaces, "report", "report --html")),
            Place("buffer of Proton's", folder / "proton.bin", PROTON / "kernel.bin", readers[:-1]),
            Place("capture with waits", waiting[0], waiting[1], readers, checked=True),
            Place("workspace with experiments", measured[0], measured[1], (*OF_EXPERIMENTS, *OF_EXPERIMENTS, *readers)),
            *self._foreign(),
        )
        self.most_bytes = 0
        self._sound: dict[tuple[str, str], Outcome] = {}

    @property
    def buffer_bytes(self) -> int:
        """Of the largest capture."""
        return sum(path.stat().st_size for path in self.places[0].path.glob("*/*.bin"))

    def try_all(self) -> None:
        """Have every command load what it needs, and see that it works on what is sound."""
        for place in self.places:
            for name in place.commands:
                self.sound_outcome(place, name)

    @contextlib.contextmanager
    def limited_memory(self) -> Iterator[None]:
        """Let this process take no more than ``most_bytes``, if it is not 0."""
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        if self.most_bytes:
            resource.setrlimit(resource.RLIMIT_AS, (self.most_bytes, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (hard, hard))

    def sound_outcome(self, place: Place, name: str) -> Outcome:
        """What the command says of the place before it is damaged."""
        if (place.name, name) not in self._sound:
            with _copies(place) as (path, other, out):
                outcome = outcome_of(COMMANDS[name], path, other, out)
            assert outcome.exit_code == 0, f"{place.name}, {name}: {outcome.stderr}"
            self._sound[place.name, name] = outcome
        return self._sound[place.name, name]

    def _foreign(self) -> Iterator[Place]:
        """Other profilers' buffers, each beside one that is the same."""
        for format_name, words in _foreign_buffers():
            path = self._folder / f"{format_name}.npy"
            np.save(path, words)
            shutil.copyfile(path, self._folder / f"other-{path.name}")
            commands = tuple(name for name in OF_BUFFERS if name.startswith(f"{format_name} "))
            yield Place(f"buffer of {format_name}", path, self._folder / f"other-{path.name}", commands)

    def _capture(self, name: str, run: str, recorded: _Recorded, ctas: int) -> Path:
        """Two processes with two launches of a kernel each, made of the first CTAs of one that was recorded."""
        launch, kernel = recorded.launch, recorded.kernel
        buffer = launch.words()[:ctas].tobytes()
        folder = self._folder / name
        for rank in range(2):
            process = ProcessRecord(
                run=run,
                pid=500 + rank,
                rank=rank,
                argv=("train.py",),
                host="host",
                boot_id="boot",
                triton="3.6.0",
                device_names=("NVIDIA H200",),
                device_uuids=(f"uuid-{rank}",),
                mode=ModeRecord("shared", 0, 64),
                launches="all",
            )
            writer = CaptureWriter(folder / f"{500 + rank}-1", process)
            writer.add_kernel(launch.kernel.variant, kernel, recorded.ttgir, recorded.sources)
            for index in range(2):
                line = LaunchRecord(
                    variant=launch.kernel.variant,
                    index=index,
                    grid=(ctas, 1, 1),
                    device=0,
                    stream=0,
                    host_ns=launch.host_ns + 1_000_000 * index,
                    host_end_ns=launch.host_ns + 1_000_000 * index + 50_000,
                    buffer_bytes=len(buffer),
                    file="named-later",
                )
                saved = writer.add_launch(line, memoryview(buffer))
                if index == 0 and rank == 1:
                    writer.drop_launch(saved)
            for reading in launch.origin.host_readings:
                device_ns = reading.device_ns + 1000 * rank
                writer.add_clock_reading(ClockRecord(0, reading.host_ns, device_ns, reading.error_ns))
            replay = PairedTimesRecord(
                clean_ns=(1e4, 1.1e4, 1.05e4), with_records_ns=(1.2e4, 1.15e4, 1.3e4), launches=4
            )
            times_ns = launch.kernel.with_records.times_ns or (1e4, 1.1e4)
            writer.add_times(launch.kernel.variant, TimingRecord(times_ns, replay=replay))
            writer.finish({"the disk was too slow": 1}, {launch.kernel.variant: 3})
        return folder

    def _workspace(self, name: str, capture: Path) -> Path:
        (launch, *_) = read_capture(capture).launches
        kernel = launch.kernel
        workspace = Workspace.create(self._folder / name)
        info = DumpedKernelRecord(
            name=kernel.name,
            override_key="KEY",
            file_name=kernel.name,
            target=Target("cuda", 90),
            options={"num_warps": 4, "num_stages": 3, "num_ctas": 1, "libs": [["a", "b"]]},
            signature={"a": "*fp16", "n": "i32"},
            constants={"BLOCK": "64"},
            metadata=kernel.metadata,
            triton_version="3.6.0",
        )
        for variant in (kernel.variant, f"{kernel.variant}-2"):
            workspace.write_kernel(variant, info, kernel.ttgir(), kernel.sources())
            workspace.write_clean_run(variant, "1", TimedResources(128, 0, 0, 1024, 2, (1e4, 1.1e4)))
        write_insertions(workspace, insert_kernels(workspace, parse_selectors(())))
        shutil.copytree(capture, workspace.new_capture_folder(), dirs_exist_ok=True)
        return workspace.folder


@dataclass(frozen=True)
class Outcome:
    """How a command ended: its exit code, what it said, and what it said to the user."""

    exit_code: int
    stdout: str
    stderr: str


def outcome_of(command: Command, place: Path, other: Path, out: Path) -> Outcome:
    """Run a command in this process as ``main`` would; raises what would be a traceback there."""
    stdout, stderr = io.TextIOWrapper(io.BytesIO(), "utf-8", errors="backslashreplace"), io.StringIO()
    exit_code = 0
    with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
        try:
            command(place, other, out)
        except click.UsageError as error:
            error.show(stderr)
            exit_code = error.exit_code
        except click.exceptions.Exit as error:
            exit_code = error.exit_code
        except KprofError as error:
            stderr.write(error.render() + "\n")
            exit_code = error.exit_code
        except OSError as error:
            stderr.write(f"error: cannot use {error.filename}: {error.strerror}\n")
            exit_code = 1
    stdout.flush()
    said = stdout.buffer.getvalue().decode()  # type: ignore[attr-defined]
    return Outcome(exit_code, said, stderr.getvalue())


def run_case(corpus: Corpus, seed: int, number: int) -> dict[str, Any]:
    """Case ``number`` of the run with ``seed``: what was done, and whether it was refused. Raises for all else."""
    chance = Random(f"{seed}:{number}")
    place = corpus.places[number % len(corpus.places)]
    name = chance.choice(place.commands)
    command = COMMANDS[name]
    reseals = chance.random() < 0.5
    sound = corpus.sound_outcome(place, name) if place.checked and not reseals else None
    with _copies(place) as (path, other, out):
        how = damaged(path, other, chance, reseals)
        case = f"{place.name}, {name}: {'; '.join(how)}"
        before = {**_snapshot(path.parent), **_snapshot(other)}
        started = time.process_time()
        try:
            with corpus.limited_memory():
                outcome = outcome_of(command, path, other, out)
            _check(outcome, "--json" in name or name == "diff B")
            _check_files(out)
            if sound is not None and outcome.exit_code == 0:
                _check_nothing_is_silent(outcome, sound, how)
            seconds = time.process_time() - started
            assert seconds < MOST_CPU_SECONDS, f"it took {seconds:.1f} s"
            after = {**_snapshot(path.parent), **_snapshot(other)}
            changed = [one for one in {**before, **after} if before.get(one) != after.get(one)]
            changed = [one for one in changed if not _is_allowed(one, path, _WRITES.get(name, ()))]
            assert not changed, f"it wrote to {changed[:5]}"
        except Exception as error:
            error.add_note(case)
            raise
    return {"refusal": outcome.exit_code != 0, "case": case}


def _check(outcome: Outcome, is_json: bool) -> None:
    assert outcome.exit_code in (0, 1, 2), f"exit code {outcome.exit_code}"
    assert "Traceback" not in outcome.stderr, outcome.stderr
    if outcome.exit_code:
        assert "error:" in outcome.stderr.lower(), f"it failed without a word: {outcome.stderr[:500]!r}"
    if is_json and outcome.stdout:
        json.loads(outcome.stdout, parse_constant=_refuse_constant)


def _check_files(folder: Path) -> None:
    for path in folder.iterdir():
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        if ".json" in path.suffixes or path.suffix == ".hatchet":
            json.loads(data, parse_constant=_refuse_constant)


# What a reader cannot miss: a program that was killed has no such files, and a capture need not have a process more.
_OPTIONAL = re.compile(r"(end|timing)\.json: (gone|folder)|clock\.jsonl|/: |process\.json: gone")


def _check_nothing_is_silent(outcome: Outcome, sound: Outcome, how: list[str]) -> None:
    """With checksums, damage is told, or it changed nothing of what is shown."""
    if outcome.stderr == sound.stderr and not any(map(_OPTIONAL.search, how)):
        assert outcome.stdout == sound.stdout, "what is shown is another, and nothing is said of it"


def _refuse_constant(text: str) -> None:
    raise AssertionError(f"{text} is not JSON")


@contextlib.contextmanager
def _copies(place: Place) -> Iterator[tuple[Path, Path, Path]]:
    """Copies of what is to be damaged and of its neighbour, and a folder for what is written: always by the same names,
    so that what is said of them is the same."""
    home = Path(tempfile.gettempdir(), f"kprof-fuzz-{os.getpid()}")
    try:
        (home / "in").mkdir(parents=True)
        (home / "out").mkdir()
        (home / "in" / "canary.txt").write_text("nobody writes here\n")
        yield _copied(place.path, home / "in" / f"place{place.path.suffix}"), place.other, home / "out"
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _copied(source: Path, target: Path) -> Path:
    return Path(shutil.copytree(source, target) if source.is_dir() else shutil.copyfile(source, target))


def _snapshot(folder: Path) -> dict[str, tuple[Any, ...]]:
    found: dict[str, tuple[Any, ...]] = {}
    for above, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(above, name)
            state = path.lstat()
            size = state.st_size, state.st_mtime_ns
            found[str(path)] = (state.st_mode, state.st_ino, *(size if name in files else ()))
    return found


def _is_allowed(changed: str, place: Path, names: tuple[str, ...]) -> bool:
    below = Path(changed).relative_to(place.parent).parts if Path(changed).is_relative_to(place.parent) else ()
    return len(below) > 1 and below[0] == place.name and any(below[1].startswith(name) for name in names)
