"""The steps of ``try``: compile edits of a kernel, time them on a saved launch, and confirm the best."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from msgspec import Struct, convert
from msgspec.structs import asdict, replace

from kprof_inject.analysis.launch import ReportLaunch
from kprof_inject.analysis.program import Report
from kprof_inject.capture.edits import (
    MAX_EDITS_TOGETHER,
    MIN_PAIRS,
    Constant,
    Edit,
    EditsRecord,
    MeasuredGain,
    OtherValues,
    Outcome,
    TriedEdits,
    edits_text,
    read_other_values,
)
from kprof_inject.capture.resources import Resources
from kprof_inject.capture.saved_launch import SavedLaunch, read_saved_launch
from kprof_inject.capture.schema import TTGIR_FILE
from kprof_inject.errors import KprofError
from kprof_inject.files import read_text
from kprof_inject.pipeline import Say
from kprof_inject.pipeline.edit_choice import Proposal, edits_after, edits_for, how_to_apply, named_grid, numbers_of
from kprof_inject.pipeline.own_processes import do_tasks
from kprof_inject.quantities import counted
from kprof_inject.runtime.compiling.builds import Build, assembly_in, code_lines, refusals_of
from kprof_inject.runtime.experiments.edits.edit import EditRefused, KernelToEdit, Stage
from kprof_inject.runtime.experiments.edits.kinds import changes_ttgir, with_options, with_ttgir_edited
from kprof_inject.runtime.experiments.tasks import TimedBuild, TimedEdits, TimeEdits
from kprof_inject.select.safety import relaunch
from kprof_inject.ttgir.parser import parse
from kprof_inject.workspace import Workspace

# Parts of the time limit: the first round, the confirmation; then each round after the first.
_FIRST, _CONFIRMING = 0.5, 0.2
_LATER = (0.15, 0.1, 0.05)
# Winners that are confirmed one after another until one is.
_MAX_CONFIRMED = 3
# A second edit that wins less on top of the first is not worth its line.
_NEARLY = 0.01
_MIN_SECONDS = 0.1


class TryChoice(Struct, frozen=True):
    """Choice of the kernels and edits to try.

    ``kernel`` is a glob; ``seconds`` is the limit of the GPU's time per kernel; ``tolerance`` is that of
    ``CloseResults``; ``edits`` are tried instead of those that findings propose, those of one item together. ``values``
    are those of constants to try, too, with the grid that ``grid`` gives for them; if it is empty, with the program's.
    """

    kernel: str = "*"
    seconds: float = 20.0
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
        record, ttgir = _tried(workspace, saved, next(of_variant, None), choice, say)
        record = replace(record, host_ns=time.time_ns())
        workspace.write_edits(record, how_to_apply(workspace, record, saved.kernel), ttgir)
        records.append(record)
    if not records:
        raise KprofError(
            f"no launch of a kernel that matches {choice.kernel} was saved",
            hint="save them: kprof-inject profile --keep-launches -- PROG",
        )
    return records


def _tried(
    workspace: Workspace, saved: SavedLaunch, recorded: ReportLaunch | None, choice: TryChoice, say: Say
) -> tuple[EditsRecord, str]:
    """Return the record of a kernel's edits, and the TTGIR of the best if that was edited."""
    record = convert(saved.record, EditsRecord, from_attributes=True)  # the kernel, its grid, resources and device
    record = replace(record, target=saved.kernel.target, triton=saved.kernel.triton_version, tolerance=choice.tolerance)
    try:
        if refusal := _refusal_of(saved):
            return replace(record, refusal=refusal), ""
        launch_ns = float(recorded.duration_ns) if recorded is not None else 0.0
        if times_ns := saved.record.clean.times_ns:
            launch_ns = statistics.median(times_ns)
        trials = _Trials(workspace, saved, choice, say, launch_ns)
        findings, limit = (recorded.analysis.findings, recorded.analysis.limit) if recorded else ((), None)
        trials.run(edits_for(findings, limit, trials.kernel, choice.edits))
    except KprofError as error:
        return replace(record, refusal=error.what), ""
    best = trials.best
    is_edited = best is not None and changes_ttgir(best.proposal.edits)
    return trials.record(record), best.kernel.ttgir if best is not None and is_edited else ""


def _refusal_of(saved: SavedLaunch) -> str:
    """Return why a kernel must not be tried, in words that follow *because*; empty without a reason."""
    if not saved.build_folder.is_dir():
        return "its machine code was not saved"
    path = saved.folder / TTGIR_FILE
    judged = saved.record.relaunch or relaunch(parse(read_text(path), str(path)))
    return "it polls memory, and may hang when it runs at another speed" if judged.waits else ""


@dataclass(slots=True)
class _Trial:
    """Edits that are tried together, as far as they have come."""

    proposal: Proposal
    kernel: KernelToEdit
    build: Build | None = None
    result: TimedBuild | None = None
    refusal: str = ""
    same_code_as: str | None = None
    confirmed: MeasuredGain | None = None

    @property
    def gain(self) -> MeasuredGain | None:
        return self.result.gain if self.result else None

    def tried(self, unchanged: KernelToEdit) -> TriedEdits:
        tried = TriedEdits(**asdict(self.proposal), **asdict(self.result or TimedBuild()))
        refusal, gain = self.refusal or tried.refusal, self.confirmed or tried.gain
        if self.same_code_as is not None:
            outcome: Outcome = "same code"
        elif refusal:
            outcome = "refused"
        else:
            outcome = gain.outcome if gain else "not measured"
        return replace(
            tried,
            options=_changed(unchanged, self.kernel),
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
    numbers = numbers_of(saved)
    return tuple(replace(one, grid=named_grid(choice.grid, {**numbers, **one.values})) for one in others)


def _code_of(build: Path, kernel: KernelToEdit) -> str:
    return "\n".join([f"grid {kernel.grid or 'of the launch'}", *code_lines(assembly_in(build))])


def _changed(unchanged: KernelToEdit, edited: KernelToEdit) -> dict[str, Any]:
    before = {**unchanged.record.options, **unchanged.record.environment}
    after = {**edited.record.options, **edited.record.environment}
    return {name: value for name, value in after.items() if before.get(name) != value}


@dataclass(slots=True)
class _Trials:
    """Every trial with one kernel."""

    workspace: Workspace
    saved: SavedLaunch
    choice: TryChoice
    say: Say
    launch_ns: float
    kernel: KernelToEdit = field(init=False)
    trials: list[_Trial] = field(default_factory=list)
    best: _Trial | None = None
    timed: TimedEdits | None = None
    gpu_seconds: float = 0.0
    compile_seconds: float = 0.0
    _same_code: dict[str, str] = field(default_factory=dict)
    """The edits whose builds have this code; empty for the unchanged kernel."""

    def __post_init__(self) -> None:
        """Read the kernel."""
        ttir = next((read_text(path) for path in sorted(self.saved.build_folder.glob("*.ttir"))), "")
        ttgir = read_text(self.saved.folder / TTGIR_FILE)
        others = _other_values(self.saved, self.choice)
        clean = convert(self.saved.record.clean, Resources, from_attributes=True)  # without its times
        self.kernel = KernelToEdit(self.saved.kernel, ttgir, ttir, clean, others=others)
        self._same_code[_code_of(self.saved.build_folder, self.kernel)] = ""

    def run(self, proposals: Sequence[Proposal]) -> None:
        """Try the proposals, then what is next to those that won, and confirm the best."""
        self._try(proposals, _FIRST)
        # What is next to the best edits, and these together with others, as long as the best changes.
        before: tuple[Edit, ...] = ()
        for part in () if self.choice.edits else _LATER:
            winners = [trial.proposal.edits for trial in self._winners()]
            if not winners or winners[0] == before:
                break
            before = winners[0]
            self._try(edits_after(winners, self.kernel, [trial.proposal.edits for trial in self.trials]), part)
        for trial in self._winners()[:_MAX_CONFIRMED]:
            self._confirm(trial)
            if trial.confirmed is not None and trial.confirmed.is_win:
                self.best = trial
                return

    def record(self, record: EditsRecord) -> EditsRecord:
        timed = asdict(self.timed) if self.timed is not None else {}
        timed.pop("builds", None)  # all other fields are the record's
        return replace(
            record,
            **timed,
            tried=tuple(trial.tried(self.kernel) for trial in self.trials),
            best=None if self.best is None else self.trials.index(self.best),
            gpu_seconds=self.gpu_seconds,
            compile_seconds=self.compile_seconds,
        )

    def _winners(self) -> list[_Trial]:
        """Return the trials that won, the best first: the fewest edits of those that are nearly as good as the best."""
        won = [(trial, trial.gain) for trial in self.trials if trial.gain is not None and trial.gain.is_win]
        ranked = sorted(won, key=lambda one: -one[1].low)
        if ranked:
            best = ranked[0][1].won
            ranked.sort(
                key=lambda one: len(one[0].proposal.edits) if one[1].high >= best - _NEARLY else MAX_EDITS_TOGETHER
            )
        return [trial for trial, _ in ranked]

    def _try(self, proposals: Sequence[Proposal], part: float) -> None:
        if not proposals:
            return
        seconds = part * self.choice.seconds
        # As many as can be timed often enough in this time.
        count = max(int(1e9 * seconds / (2 * MIN_PAIRS * max(self.launch_ns, 1.0))), 1)
        left_out = len(proposals) - count
        more = f"; {left_out} more do not fit in the time: raise --seconds" if left_out > 0 else ""
        proposals = proposals[:count]
        self.say(f"{self.saved.record.name}: {counted(len(proposals), 'edit')} to compile and time{more}")
        trials = []
        for proposal in proposals:
            try:
                trials.append(_Trial(proposal, with_options(self.kernel, proposal.edits)))
            except EditRefused as error:
                trials.append(_Trial(proposal, self.kernel, refusal=str(error)))
        self.trials += trials
        begun = time.monotonic()
        self._compile(trials)
        self.compile_seconds += time.monotonic() - begun
        timed = []
        for trial in trials:
            if trial.build is None or trial.refusal:
                continue
            code = _code_of(self.workspace.edited_builds_folder / trial.build.name, trial.kernel)
            if code in self._same_code:
                trial.same_code_as = self._same_code[code]
            else:
                self._same_code[code] = edits_text(trial.proposal.edits)
                timed.append(trial)
        self._time(timed, seconds)

    def _compile(self, trials: Sequence[_Trial]) -> None:
        of_options = [trial for trial in trials if not trial.refusal and trial.kernel.stage == "ttir"]
        self._compile_from("ttir", of_options)
        of_ttgir = [trial for trial in trials if not trial.refusal and changes_ttgir(trial.proposal.edits)]
        for trial in of_ttgir:
            kernel = trial.kernel
            if trial.build is not None:
                # The TTGIR that its options give.
                folder = self.workspace.edited_builds_folder / trial.build.name
                metadata = json.loads(read_text(folder / f"{kernel.record.file_name}.json"))
                (path,) = folder.glob("*.ttgir")
                record = replace(kernel.record, metadata=metadata)
                kernel = replace(kernel, record=record, ttgir=read_text(path), stage="ttgir")
            try:
                trial.kernel = with_ttgir_edited(kernel, trial.proposal.edits)
            except EditRefused as error:
                trial.refusal = str(error)
        self._compile_from("ttgir", [trial for trial in of_ttgir if not trial.refusal])

    def _compile_from(self, stage: Stage, trials: Sequence[_Trial]) -> None:
        if not trials:
            return
        plain, *builds = (
            Build(kernel.text(stage), kernel.record, stage)
            for kernel in (self.kernel, *(trial.kernel for trial in trials))
        )
        refusals = refusals_of(plain, builds, self.saved.build_folder, self.workspace.edited_builds_folder)
        for trial, build, refusal in zip(trials, builds, refusals, strict=True):
            trial.build, trial.refusal = build, refusal

    def _time(self, trials: Sequence[_Trial], seconds: float) -> None:
        """Time trials in turn; each in a process of its own if one of them ends the process that times them all.

        Raises ``KprofError`` if the unchanged kernel cannot be timed either, and never could.
        """
        if not trials:
            return
        refusal = self._time_together(trials, seconds)
        if not refusal:
            return
        was_timed = self.timed is not None
        clean_refusal = self._time_together((), _MIN_SECONDS)
        if clean_refusal and not was_timed:
            raise KprofError(clean_refusal)
        for trial in trials:
            if clean_refusal or len(trials) == 1:
                trial.refusal = clean_refusal or refusal
            else:
                trial.refusal = self._time_together([trial], max(seconds / len(trials), _MIN_SECONDS))

    def _time_together(self, trials: Sequence[_Trial], seconds: float) -> str:
        folder = self.workspace.edited_builds_folder.resolve()
        task = TimeEdits(
            launch=str(self.saved.folder.resolve()),
            builds=tuple(str(folder / trial.build.name) for trial in trials if trial.build is not None),
            grids=tuple(trial.kernel.grid for trial in trials if trial.build is not None),
            seconds=seconds,
            tolerance=self.choice.tolerance,
        )
        (result,) = do_tasks([task], cache=self.workspace.cache_folder_of_rerun("launches"))
        self.gpu_seconds += result.seconds
        if result.edits is None:
            return result.refusal
        self.timed = result.edits if trials or self.timed is None else self.timed
        for trial, timed in zip(trials, result.edits.builds, strict=True):
            trial.result = timed
        return ""

    def _confirm(self, trial: _Trial) -> None:
        """Time a trial alone in a fresh process, since the best of several was partly luck."""
        first = trial.result
        refusal = self._time_together([trial], _CONFIRMING * self.choice.seconds / _MAX_CONFIRMED)
        if refusal or trial.result is None or trial.result.refusal:
            trial.refusal = refusal or (trial.result.refusal if trial.result else "")
            return
        trial.confirmed = trial.gain
        if trial.confirmed is None:
            trial.refusal = "a second process had no time to confirm it"
        trial.result = replace(trial.result, gain=first.gain if first else None)
