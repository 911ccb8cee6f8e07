"""The steps of ``try``: compile edits of a kernel, time them on a saved launch, and confirm the best."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

from msgspec import Struct, convert
from msgspec.structs import asdict, replace

from kprof_inject.analysis.program import Report
from kprof_inject.capture.edits import (
    MAX_EDITS_TOGETHER,
    MIN_PAIRS,
    MIN_WIN,
    Constant,
    Edit,
    EditsRecord,
    Ended,
    MeasuredGain,
    OtherValues,
    Outcome,
    TriedEdits,
    edits_text,
    read_other_values,
)
from kprof_inject.capture.resources import Resources
from kprof_inject.capture.saved_launch import IntegerArgument, SavedLaunch, parameters, read_saved_launch
from kprof_inject.capture.schema import TTGIR_FILE
from kprof_inject.errors import KprofError
from kprof_inject.files import read_text
from kprof_inject.forks import usable_cores
from kprof_inject.pipeline import Say
from kprof_inject.pipeline.edit_choice import Proposal, edits_after, edits_for, how_to_apply, named_grid
from kprof_inject.pipeline.workers import WorkerProcess, leaving_by_exception
from kprof_inject.quantities import counted
from kprof_inject.report.experiments import result_text
from kprof_inject.runtime.child_process import ProcessOverdueError, wait_for
from kprof_inject.runtime.compiling.builds import Build, Compilers, assembly_in, code_lines, objection_to
from kprof_inject.runtime.faults import first_line
from kprof_inject.runtime.worker.edit import EditRefused, KernelToEdit, Stage
from kprof_inject.runtime.worker.edit_kinds import changes_ttgir, with_options, with_ttgir_edited
from kprof_inject.runtime.worker.tasks import TimedBuild, TimedEdit, TimeEdit
from kprof_inject.select.safety import relaunch
from kprof_inject.ttgir.parser import parse
from kprof_inject.workspace import Workspace

DEFAULT_SECONDS = 30.0
# Parts of the time limit: to time one edit; at most for compiling it, for timing it, and for confirming the best.
_PART, _MAX_PART = 0.04, 0.25
_MEANWHILE = {"compiling": " while it compiled", "timing": " while it was timed"}
_MIN_LIMIT_S = 5.0  # A process takes seconds to start
_NEARLY = 0.01  # A second edit that wins less on top of the first is not worth its line


class TryChoice(Struct, frozen=True):
    """Choice of the kernels and edits to try.

    ``kernel`` is a glob; ``seconds`` is the time limit per kernel; ``tolerance`` is that of ``CloseResults``; ``edits``
    are tried instead of those that findings propose, those of one item together. ``values`` are those of constants to
    try, too, with the grid that ``grid`` gives for them; if it is empty, with the program's.
    """

    kernel: str = "*"
    seconds: float = DEFAULT_SECONDS
    tolerance: float | None = None
    edits: tuple[tuple[Edit, ...], ...] = ()
    values: dict[str, tuple[Constant, ...]] = {}
    grid: str = ""


def try_edits(
    workspace: Workspace, launches: Mapping[str, Path], report: Report, choice: TryChoice, say: Say
) -> list[EditsRecord]:
    """Try edits of each kernel of which a launch was saved, and save the results in the workspace.

    ``launches`` are by variant; ``report`` is on the capture. Raises ``KprofError`` if there is no kernel.
    """
    records = []
    for variant, path in launches.items():
        saved = read_saved_launch(path)
        if not fnmatchcase(saved.record.name, choice.kernel):
            continue
        of_variant = (one for one in reversed(report.launches) if one.launch.kernel.program_variant == variant)
        recorded, ttgir = next(of_variant, None), ""
        record = convert(saved.record, EditsRecord, from_attributes=True)  # the kernel, its grid, resources and device
        kernel = saved.kernel
        record = replace(record, target=kernel.target, triton=kernel.triton_version, tolerance=choice.tolerance)
        try:
            trials = _Trials(workspace, saved, choice, say)
            findings, limit = (recorded.analysis.findings, recorded.analysis.limit) if recorded else ((), None)
            trials.run(edits_for(findings, limit, trials.kernel, choice.edits))
        except KprofError as error:
            record = replace(record, refusal=error.what)
        else:
            best, record = trials.best, trials.record(record)
            if best is not None and changes_ttgir(best.proposal.edits):
                ttgir = best.kernel.ttgir
        record = replace(record, host_ns=time.time_ns())
        workspace.write_edits(record, how_to_apply(workspace, record, saved.kernel), ttgir)
        records.append(record)
        if record.ended == "interrupted":
            break
    if not records:
        raise KprofError(
            f"no launch of a kernel that matches {choice.kernel} was saved",
            hint="save them: kprof-inject profile --keep-launches -- PROG",
        )
    return records


@dataclass(slots=True)
class _Trial:
    """Edits that are tried together, as far as they have come; without edits, the unchanged text of a stage.

    ``builds`` yields what to compile, one build after another: the TTIR with options, then the edited TTGIR. ``build``
    is the last one, ``stages`` has those of all. ``is_late`` is true if there was no time to measure it.
    """

    proposal: Proposal
    kernel: KernelToEdit
    state: Literal["waiting", "compiling", "compiled", "timing", "ended"] = "waiting"
    builds: Iterator[Build] = field(default_factory=lambda: iter(()))
    build: Build | None = None
    stages: list[Stage] = field(default_factory=list)
    begun_s: float = 0.0
    result: TimedBuild = field(default_factory=TimedBuild)
    refusal: str = ""
    is_late: bool = False
    same_code_as: str | None = None
    confirmed: MeasuredGain | None = None

    def tried(self, unchanged: KernelToEdit) -> TriedEdits:
        tried = TriedEdits(**asdict(self.proposal), **asdict(self.result))
        refusal, gain = self.refusal or tried.refusal, self.confirmed or tried.gain
        if self.same_code_as is not None:
            outcome: Outcome = "same code"
        elif refusal:
            outcome = "not measured" if self.is_late else "refused"
        else:
            outcome = gain.outcome if gain else "not measured"
        before = {**unchanged.record.options, **unchanged.record.environment}
        after = {**self.kernel.record.options, **self.kernel.record.environment}
        return replace(
            tried,
            options={name: value for name, value in after.items() if before.get(name) != value},
            constants=self.kernel.constants,
            changes_ttgir=changes_ttgir(self.proposal.edits),
            outcome=outcome,
            confirmed=self.confirmed,
            same_code_as=self.same_code_as or "",
            refusal=refusal,
        )


def _other_values(saved: SavedLaunch, choice: TryChoice) -> tuple[OtherValues, ...]:
    if not choice.values:
        return ()
    present = saved.kernel.constants
    others = [
        one
        for one in read_other_values(saved.folder)
        if all(
            value in choice.values.get(name, ()) or str(value) == present.get(name)
            for name, value in one.values.items()
        )
    ]
    if not choice.grid:
        return tuple(others)
    constants = {name: int(text) for name, text in present.items() if text.lstrip("-").isdecimal()}
    named = zip(parameters(saved), saved.record.arguments, strict=True)
    arguments = {name: int(one.value) for (name, _), one in named if isinstance(one, IntegerArgument)}
    numbers = {**constants, **arguments}
    return tuple(replace(one, grid=named_grid(choice.grid, {**numbers, **one.values})) for one in others)


def _code_of(build: Path, kernel: KernelToEdit) -> str:
    return "\n".join([f"grid {kernel.grid or 'of the launch'}", *code_lines(assembly_in(build))])


class _Trials:
    """Every trial with one kernel: a queue, the most promising first.

    Making it raises ``KprofError`` if the kernel must not be tried.
    """

    def __init__(self, workspace: Workspace, saved: SavedLaunch, choice: TryChoice, say: Say) -> None:
        if not saved.build_folder.is_dir():
            raise KprofError("its machine code was not saved")
        ttgir_path = saved.folder / TTGIR_FILE
        ttgir = read_text(ttgir_path)
        if (saved.record.relaunch or relaunch(parse(ttgir, str(ttgir_path)))).waits:
            raise KprofError("it polls memory, and may hang when it runs at another speed")
        self._saved, self._choice, self._say = saved, choice, say
        self._deadline_s = time.monotonic() + choice.seconds
        self._limit_s = max(_MAX_PART * choice.seconds, _MIN_LIMIT_S)
        self._folder = workspace.edited_builds_folder.resolve()
        self._cache = workspace.cache_folder_of_rerun("launches")
        ttir = next((read_text(path) for path in sorted(saved.build_folder.glob("*.ttir"))), "")
        clean = convert(saved.record.clean, Resources, from_attributes=True)  # without its times
        others = _other_values(saved, choice)
        self.kernel = KernelToEdit(saved.kernel, ttgir, ttir, clean, others=others)
        self._trials: list[_Trial] = []
        # Edits are timed when the unchanged texts of their stages are known to compile to the program's code.
        self._plain: dict[Stage, _Trial] = {}
        # The edits whose builds have this code; empty for the unchanged kernel.
        self._same_code = {_code_of(saved.build_folder, self.kernel): ""}
        self._timed: TimedEdit | None = None
        self._start_seconds = self._gpu_seconds = self._compile_seconds = 0.0
        self._ended: Ended = "all"

    @property
    def best(self) -> _Trial | None:
        """The best edits so far: confirmed in a second process, if there was time."""
        return next((trial for trial in self._winners() if trial.confirmed is None or trial.confirmed.is_win), None)

    def record(self, record: EditsRecord) -> EditsRecord:
        timed = asdict(self._timed) if self._timed is not None else {}
        timed.pop("build", None)  # all other fields are the record's
        return replace(
            record,
            **timed,
            tried=tuple(trial.tried(self.kernel) for trial in self._trials),
            best=None if self.best is None else self._trials.index(self.best),
            ended=self._ended,
            gpu_seconds=self._gpu_seconds,
            compile_seconds=self._compile_seconds,
        )

    def run(self, proposals: Sequence[Proposal]) -> None:
        """Try the proposals, then what is next to those that won, and confirm the best, until the time is over.

        Raises ``KprofError`` if the unchanged kernel cannot be timed.
        """
        name, seconds = self._saved.record.name, f"{self._choice.seconds:g} s"
        texts = "; ".join(edits_text(one.edits) for one in proposals)
        self._say(f"{name}: {counted(len(proposals), 'edit')} in {seconds}, most promising first: {texts}")
        self._add(proposals)
        compilers = Compilers(self._folder, max(usable_cores() - 1, 1))  # one core is the worker's
        try:
            with leaving_by_exception(), compilers, WorkerProcess(cache=self._cache) as worker:
                self._ended = self._try_all(compilers, worker)
                self._confirm(worker)
        except KeyboardInterrupt:
            self._ended = "interrupted"
        self._compile_seconds = compilers.seconds
        for trial in self._trials:
            if trial.state != "ended":
                over = "it was interrupted" if self._ended == "interrupted" else f"the {seconds} were over"
                trial.refusal, trial.is_late = over + _MEANWHILE.get(trial.state, ""), True

    def _try_all(self, compilers: Compilers, worker: WorkerProcess) -> Ended:
        worker.begin_task(self._task(None, self._deadline_s), self._choice.seconds)
        timing: _Trial | None = None
        moved_from: tuple[Edit, ...] | None = None
        while time.monotonic() < (until_s := self._until_s()):
            self._compile(compilers)
            if timing is None and self._timed is not None:
                if timing := self._next_to_time(until_s):
                    timing.state = "timing"
                    worker.begin_task(self._task(timing, until_s), self._limit_s + 4 * self._least_seconds)
                elif not compilers.processes:
                    # What is next to the best edits, and these together with others, as long as the best changes.
                    winners = [trial.proposal.edits for trial in self._winners()]
                    if self._choice.edits or not winners or winners[0] is moved_from:
                        return "all"
                    moved_from = winners[0]
                    self._add(edits_after(winners, self.kernel, [trial.proposal.edits for trial in self._trials]))
                    continue
            is_timing = timing is not None or self._timed is None
            due = wait_for([*compilers.processes, *([worker] if is_timing else [])], until_s)
            if worker not in due or time.monotonic() >= until_s or (result := worker.result()) is None:
                continue
            self._gpu_seconds += result.seconds
            self._timed = result.edit or self._timed
            if timing is not None:
                timing.result = result.edit.build if result.edit else timing.result
                self._end(timing, result.refusal)
                timing = None
            elif result.edit is None:
                raise KprofError(result.refusal)
            else:
                self._start_seconds = time.monotonic() - self._deadline_s + self._choice.seconds
        return "time"

    def _until_s(self) -> float:
        """Return when to end, in time to confirm the best in a second process."""
        part_s = min(1.5 * self._start_seconds + _PART * self._choice.seconds, _MAX_PART * self._choice.seconds)
        return self._deadline_s - (part_s if self._winners() else 0)

    @property
    def _least_seconds(self) -> float:
        """The time of the fewest pairs of launches, if the edit takes no longer than the unchanged kernel."""
        return 2e-9 * MIN_PAIRS * self._timed.clean_ns * self._timed.launches if self._timed else 0.0

    def _winners(self) -> list[_Trial]:
        """Return the trials that won, the best first: the fewest edits of those that are nearly as good as the best."""
        gains = [(trial, trial.result.gain) for trial in self._trials if not trial.refusal]
        won = [(trial, gain) for trial, gain in gains if gain is not None and gain.is_win]
        ranked = sorted(won, key=lambda one: -one[1].low)
        if ranked:
            best = ranked[0][1].won
            ranked.sort(
                key=lambda one: len(one[0].proposal.edits) if one[1].high >= best - _NEARLY else MAX_EDITS_TOGETHER
            )
        return [trial for trial, _ in ranked]

    def _add(self, proposals: Sequence[Proposal]) -> None:
        for proposal in proposals:
            trial = _Trial(proposal, self.kernel)
            trial.builds = self._builds_of(trial)
            self._trials.append(trial)

    def _builds_of(self, trial: _Trial) -> Iterator[Build]:
        """Yield the builds that a trial needs, each after the last one was compiled. Raises ``EditRefused``."""
        edits = trial.proposal.edits
        kernel = trial.kernel = with_options(self.kernel, edits)
        if kernel.stage == "ttir":
            yield self._build_of(trial, "ttir")
        if changes_ttgir(edits):
            if trial.build is not None:  # the TTGIR that its options give
                folder = self._folder / trial.build.name
                metadata = json.loads(read_text(folder / f"{kernel.record.file_name}.json"))
                (path,) = folder.glob("*.ttgir")
                record = replace(kernel.record, metadata=metadata)
                kernel = replace(kernel, record=record, ttgir=read_text(path), stage="ttgir")
            trial.kernel = with_ttgir_edited(kernel, edits)
            yield self._build_of(trial, "ttgir")

    def _build_of(self, trial: _Trial, stage: Stage) -> Build:
        trial.stages.append(stage)
        if stage not in self._plain:
            build = Build(self.kernel.text(stage), self.kernel.record, stage)
            self._plain[stage] = _Trial(Proposal((), ""), self.kernel, build=build)
        return Build(trial.kernel.text(stage), trial.kernel.record, stage)

    def _compile(self, compilers: Compilers) -> None:
        ended: Mapping[str, KprofError | None] = {"": None}
        while ended:
            for trial in self._trials:
                if trial.state == "waiting" and trial.build is None:
                    self._go_on(trial)
            trials = [*self._plain.values(), *self._trials]
            for trial in trials:
                if trial.state == "waiting" and trial.build is not None:
                    if not compilers.begin(trial.build, self._limit_s):
                        break
                    trial.state, trial.begun_s = "compiling", time.monotonic()
            ended = compilers.ended()
            for trial in trials:
                if trial.state == "compiling" and trial.build is not None and trial.build.name in ended:
                    self._compiled(trial, trial.build, ended[trial.build.name])

    def _compiled(self, trial: _Trial, build: Build, error: KprofError | None) -> None:
        is_plain = not trial.proposal.edits
        if isinstance(error, ProcessOverdueError):
            self._end(trial, f"it did not compile within {time.monotonic() - trial.begun_s:.2g} s", is_late=True)
        elif error is not None:
            what = "the unchanged kernel" if is_plain else "it"
            self._end(trial, f"{what} does not compile: {first_line(error)}")
        elif is_plain:
            own, other = assembly_in(self._saved.build_folder), assembly_in(self._folder / build.name)
            self._end(trial, objection_to(build.stage, own, other))
        else:
            self._go_on(trial)

    def _go_on(self, trial: _Trial) -> None:
        try:
            build = next(trial.builds, None)
        except EditRefused as error:
            self._end(trial, str(error))
            return
        trial.state, trial.build = ("waiting", build) if build else ("compiled", trial.build)

    def _next_to_time(self, until_s: float) -> _Trial | None:
        for trial in self._trials:
            plain = [self._plain[stage] for stage in trial.stages]
            if trial.state != "compiled" or trial.build is None or any(one.state != "ended" for one in plain):
                continue
            code = _code_of(self._folder / trial.build.name, trial.kernel)
            if objection := next((one.refusal for one in plain if one.refusal and not one.is_late), ""):
                self._end(trial, objection)
            elif code in self._same_code:
                trial.same_code_as = self._same_code[code]
                self._end(trial)
            elif self._least_seconds > until_s - time.monotonic():
                self._end(trial, f"{MIN_PAIRS} pairs of launches take {self._least_seconds:.2g} s", is_late=True)
            else:
                self._same_code[code] = edits_text(trial.proposal.edits)
                return trial
        return None

    def _task(self, trial: _Trial | None, until_s: float) -> TimeEdit:
        gains = [one.result.gain.low for one in self._winners() if one.result.gain is not None]
        return TimeEdit(
            launch=str(self._saved.folder.resolve()),
            build=str(self._folder / trial.build.name) if trial is not None and trial.build is not None else "",
            grid=trial.kernel.grid if trial is not None else None,
            seconds=min(_PART * self._choice.seconds, max(until_s - time.monotonic(), 0)),
            tolerance=self._choice.tolerance,
            best=1 - max([MIN_WIN, *gains]),
        )

    def _end(self, trial: _Trial, refusal: str = "", *, is_late: bool = False) -> None:
        trial.state, trial.refusal, trial.is_late = "ended", refusal or trial.result.refusal, is_late
        if trial.proposal.edits:
            self._say(result_text(trial.tried(self.kernel)))
        elif is_late:
            self._say(f"the unchanged kernel's code is not compared with the program's: {refusal}")

    def _confirm(self, worker: WorkerProcess) -> None:
        """Time the best alone in a fresh process, since the best of several was partly luck; else the next one."""
        for trial in self._winners():
            worker.stop()
            result = worker.do(self._task(trial, self._deadline_s), max(self._deadline_s - time.monotonic(), 0))
            self._gpu_seconds += result.seconds
            timed = result.edit.build if result.edit else TimedBuild(refusal=result.refusal)
            if time.monotonic() >= self._deadline_s:
                self._ended = "time"
                return
            trial.confirmed, trial.refusal = timed.gain, timed.refusal
            self._say(f"in a second process, {result_text(trial.tried(self.kernel))}")
            if trial.confirmed is not None and trial.confirmed.is_win:
                return
