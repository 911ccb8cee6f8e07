"""The steps that run the user's program: dump, profile, run, and run again with a buffer that fits.

Each starts the program, and reports what it saved or why it saved nothing. Only the program imports Triton and torch.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from msgspec.structs import replace

from kprof_inject.capture.capture_files import FILES, LaunchRecord
from kprof_inject.capture.edits import NO_VALUES, WantedValues
from kprof_inject.capture.reader import ends_of, read_capture
from kprof_inject.capture.recording import Recording
from kprof_inject.capture.resources import without_empty
from kprof_inject.capture.ring_sizes import MAX_LAUNCH_BYTES
from kprof_inject.errors import KprofError
from kprof_inject.kernel_names import differing_facts, facts_in_words
from kprof_inject.packages import install_command, missing_to_run
from kprof_inject.pipeline import Say
from kprof_inject.pipeline.saved_launches import (
    drop_launches,
    drop_launches_except,
    finish_launches,
    launches_to_save,
    main_kernels,
    measure_run,
    with_permitted_metrics,
)
from kprof_inject.pipeline.torch_traces import save_gpu_work
from kprof_inject.pipeline.workers import WorkerProcess, worker_process
from kprof_inject.quantities import counted
from kprof_inject.runtime.counters.cupti import has_nvidia_module
from kprof_inject.runtime.process_report import Reports, read_reports
from kprof_inject.runtime.program import STOPPED, ProgramInput, is_run_by_us, programs_triton_cache, run_program
from kprof_inject.runtime.session import TORCH_TRACE, Session
from kprof_inject.select.spans import Style
from kprof_inject.timeline.captures import Need, fitted_buffer
from kprof_inject.timeline.trust import is_comparable, needs_replay, usable_times
from kprof_inject.workspace import Workspace

_TORCH_TRACES = TORCH_TRACE.format(process="*")
_EXCEPTION = 1  # exit code of Python after an uncaught exception
_MAX_UNREACHED = 5


@dataclass(frozen=True, slots=True)
class Program:
    """The user's program: its command in ``words``, the stdin of its runs, and the workspace for what they save."""

    workspace: Workspace
    words: Sequence[str]
    program_input: ProgramInput
    say: Say

    def dump(self, kernel_glob: str, values: WantedValues = NO_VALUES) -> int:
        """Run the program, replace the workspace's kernels by those of the program, and return its exit code.

        Kernels with constants of ``values`` are also saved as TTIR with these values.
        Raises ``KprofError`` if the program compiled no kernel; the earlier kernels are kept then.
        """
        cache = str(programs_triton_cache(os.environ))
        session = self._session("dump", Recording(kernel=kernel_glob), programs_cache=cache, values=dict(values))
        exit_code, reports = self._dumped(session)
        _say_states(reports, self.say)
        _say_what_went_wrong(reports, self.say)
        return exit_code

    def profile(
        self, recording: Recording, selectors: Sequence[str], style: Style, dumped: Callable[[], object]
    ) -> tuple[Path, int]:
        """Run the program with records, which are inserted into its kernels when they are compiled.

        Launches without records, in turn with those that have some, show what the records cost. Replaces the
        workspace's kernels, and calls ``dumped`` then. Returns the capture's folder and the program's exit code. Raises
        ``KprofError`` if the program compiled no kernel, for which the earlier kernels are kept, or if no launch was
        saved.
        """
        workspace = self.workspace
        recording = with_permitted_metrics(recording, self.say)
        saves = recording.keep_launches or bool(recording.metrics) or recording.variants_to_replay != ()
        folder = workspace.new_capture_folder()
        session = self._session(
            "profile",
            recording,
            folder,
            None if saves else (),
            selectors=tuple(selectors),
            style=(style.split, style.iteration_records),
            programs_cache=str(programs_triton_cache(os.environ)),
        )
        with self._worker(workspace.cache_folder("dump"), starts=saves) as worker:
            try:
                exit_code, reports = self._dumped(session)
            finally:
                workspace.forget_if_empty(folder)
            dumped()
            self._require_captured(session, exit_code, reports)
            built = {launch.kernel.program_variant: launch.kernel for launch in read_capture(folder).launches}
            hard_to_time = [variant for variant, kernel in built.items() if variant and needs_replay(kernel)]
            recording = recording.replaying(hard_to_time)
            if recording.variants_to_replay is not None:
                drop_launches_except(workspace, folder, {*main_kernels(workspace), *recording.variants_to_replay})
            self._finish(session, exit_code, reports, recording, worker)
        return folder, exit_code

    def run(self, recording: Recording, made_by: str = "") -> tuple[Path, int]:
        """Rerun the program with the planned records, save its launches, and measure what a record costs.

        ``made_by`` is the command that captures for its own use, empty for ``run`` and ``profile``. Returns the
        capture's folder and the program's exit code. Raises ``KprofError`` if no launch was saved.
        """
        workspace = self.workspace
        # Those whose launches do not show how much longer they take with records: there were too few, they were not
        # timed, or they are too short to be compared between two processes.
        runs = ((kernel.variant, workspace.clean_run(kernel.variant)) for kernel in workspace.kernels())
        times_ns = ((variant, without_empty(run.times_ns, run.empty_launch_ns)) for variant, run in runs)
        hard_to_time = [variant for variant, times in times_ns if not is_comparable(usable_times(times or ()))]
        recording = recording.replaying(hard_to_time)
        recording = replace(recording, counters="none") if made_by else with_permitted_metrics(recording, self.say)
        targets = [kernel.info.target for kernel in workspace.kernels()]
        recording.mode.require_possible_on({target.backend for target in targets if target})
        wanted = recording.variants_to_replay
        if recording.keep_launches and made_by:
            wanted = None  # the command chooses the kernels itself
        elif (recording.keep_launches or recording.metrics) and wanted is not None:
            wanted = tuple(dict.fromkeys([*main_kernels(workspace), *wanted]))
        folder = workspace.new_capture_folder()
        session = self._session("run", recording, folder, wanted, made_by=made_by)
        repeats = wanted != () and not made_by
        with self._worker(workspace.cache_folder_of_rerun("launches"), starts=repeats) as worker:
            try:
                exit_code = run_program(self.words, session, workspace.cache_folder_of_rerun("run"), self.program_input)
            finally:
                workspace.forget_if_empty(folder)
            reports = read_reports(Path(session.reports))
            self._require_captured(session, exit_code, reports)
            self._finish(session, exit_code, reports, recording, worker)
        return folder, exit_code

    def fit_and_run(self, ran: tuple[Path, int], recording: Recording) -> tuple[Path, int]:
        """Rerun the program with a larger buffer if its capture lost records, unless it was stopped.

        ``ran`` is what ``profile`` or ``run`` returned. Returns the same of the last run.
        """
        folder, exit_code = ran
        if exit_code in STOPPED:
            return ran
        fit = fitted_buffer(read_capture(folder).launches, recording.mode)
        if fit is None:
            self.say("no record was lost: --fit has nothing to do")
            return ran
        _say_losses(fit.losses, self.say)
        options = f"--buffer-type {fit.mode.buffer} --buffer-size {fit.mode.buffer_bytes}"
        limit_bytes = min(recording.max_bytes, MAX_LAUNCH_BYTES)
        if fit.launch_bytes > limit_bytes:
            self.say(
                f"not rerun: {options} would keep all records, but {fit.largest.kernel.name} with "
                f"{counted(fit.largest.ctas, 'CTA')} would take {fit.launch_bytes} bytes, and the limit is "
                f"{limit_bytes}; record fewer --warps, select less, or raise --max-bytes"
            )
            return ran
        if self.program_input.refusal:
            self.say(f"not rerun: {self.program_input.refusal}; {options} would keep all records")
            return ran
        self.say(f"rerunning with {options}, which have room for as many in every warp")
        folder, exit_code = self.run(replace(recording, mode=fit.mode))
        second_fit = fitted_buffer(read_capture(folder).launches, fit.mode)
        if second_fit is not None:
            _say_losses(second_fit.losses, self.say)
            self.say("records were lost again: the program differs between runs, or the buffer was made smaller")
        return folder, exit_code

    def _session(
        self,
        step: Literal["dump", "run", "profile"],
        recording: Recording,
        capture: Path | None = None,
        variants: tuple[str, ...] | None = (),
        **further: Any,
    ) -> Session:
        """Return the session of a run that captures, if ``capture`` is its folder, and saves launches of variants."""
        reports_folder = self.workspace.new_reports_folder("run" if step == "run" else "dump")
        if capture is not None:
            further["capture"] = str(capture.resolve())
            further["saved"] = launches_to_save(self.workspace, capture, recording, variants)
        folders = str(self.workspace.folder.resolve()), str(reports_folder.resolve())
        return Session(step, *folders, recording, **further)

    @contextmanager
    def _worker(self, cache: Path, *, starts: bool) -> Iterator[WorkerProcess]:
        """Lend a worker for the program's launches, which starts with the program if launches will be repeated."""
        python = sys.executable if is_run_by_us(self.words) else shutil.which(self.words[0]) or ""
        is_python = os.path.basename(python).startswith("python")
        with worker_process(python if is_python else "", cache) as worker:
            if starts and has_nvidia_module():
                worker.start()
            yield worker

    def _dumped(self, session: Session) -> tuple[int, Reports]:
        workspace = self.workspace
        with workspace.results_replaced():
            exit_code = run_program(self.words, session, workspace.new_cache_folder("dump"), self.program_input)
            reports = read_reports(Path(session.reports))
            kernels = workspace.kernels()
            if not kernels:
                raise _no_result("compiled no kernel", exit_code, reports, session.recording.kernel, self.words)
        self.say(f"dumped {counted(len(kernels), 'kernel')} to {workspace.folder}")
        differing = differing_facts(kernels)
        for dumped in kernels:
            target = dumped.info.target
            facts = ({"target": str(target)} if target else {}) | differing[dumped.variant]
            self.say(f"  {dumped.name} ({facts_in_words(facts)}) {dumped.ttgir_path}")
        return exit_code, reports

    def _require_captured(self, session: Session, exit_code: int, reports: Reports) -> None:
        """Move the traces of the processes into the capture. Raises ``KprofError`` if no launch was captured."""
        folder, recording = Path(session.capture), session.recording
        for trace in Path(session.reports).glob(_TORCH_TRACES) if folder.exists() else ():
            trace.replace(folder / trace.name)
        if any(folder.glob(f"*/{FILES[LaunchRecord]}")):
            return
        if recording.keep_launches:
            finish_launches(self.workspace, folder, self.say)
        ends = list(ends_of(folder))
        seen = sum(sum(end.launches.values()) for end in ends)  # without processes that were killed
        left_out = sum((Counter(end.left_out) for end in ends), Counter[str]())
        reasons = [f"{reason} ({count})" for reason, count in left_out.items()] or list(reports.unfinished)
        if reasons:
            raise KprofError(f"no launch was saved: {'; '.join(reasons)}", exit_code=exit_code or 1)
        if seen and not exit_code:
            raise KprofError(
                f"--launches {recording.launches} keeps none of the launches with records ({seen})",
                hint="launches are counted from 0 for each variant of a kernel, not counting those of autotuners",
            )
        raise _no_result("launched no kernel with records", exit_code, reports, recording.kernel, self.words)

    def _finish(
        self, session: Session, exit_code: int, reports: Reports, recording: Recording, worker: WorkerProcess
    ) -> None:
        folder = Path(session.capture)
        _say_states(reports, self.say)
        for autotuned in reports.choices:
            self.say(f"the autotuner of {autotuned.kernel} chose {autotuned.config} for {autotuned.key}")
        for message in reports.unfinished:
            self.say(message)
        _say_what_went_wrong(reports, self.say)
        save_gpu_work(folder, torch_traces(folder), self.say)
        self.say(f"captured to {folder}")
        if exit_code not in STOPPED:
            measure_run(self.workspace, folder, reports, recording, self.say, worker)
        if not recording.keep_launches:
            drop_launches(self.workspace, folder)
        elif not session.made_by:
            finish_launches(self.workspace, folder, self.say)


def torch_traces(capture_folder: Path) -> list[Path]:
    """Return the traces of ``torch.profiler`` in a capture, one of each process that wrote one."""
    return sorted(capture_folder.glob(_TORCH_TRACES))


def _say_states(reports: Reports, say: Say) -> None:
    for state in reports.kernels:
        if state.state == "left alone":
            say(f"{state.name} ran unchanged: {state.reason}")
        elif state.reason:
            say(f"{state.name}: {state.reason}")


def _say_what_went_wrong(reports: Reports, say: Say) -> None:
    for error in reports.errors:
        say(f"an internal error in kprof-inject, which the program did not notice: {error}")
    for command in reports.unreached[:_MAX_UNREACHED]:
        say(f"a Python process could not be reached, so its launches are missing: {command}")
    if len(reports.unreached) > _MAX_UNREACHED:
        say(f"{counted(len(reports.unreached) - _MAX_UNREACHED, 'more process')} could not be reached")


def _say_losses(losses: Iterable[Need], say: Say) -> None:
    for loss in losses:
        say(
            f"{loss.kernel.name} lost {loss.lost} of {counted(loss.written, 'record')}: a warp wrote "
            f"up to {loss.max_in_warp}, and its ring holds {loss.ring_records}"
        )


def _no_result(what: str, exit_code: int, reports: Reports, kernel_glob: str, program: Sequence[str]) -> KprofError:
    """Explain why a step has no result, by the most specific reason; ``what`` says what the program did not do."""

    def error(what: str, hint: str) -> KprofError:
        return KprofError(what, hint=hint, exit_code=exit_code or 1)

    crashed = f" (it ended with exit code {exit_code})" if exit_code else ""
    if reports.errors:
        hint = "this is a bug in kprof-inject or in this version of Triton; please report it"
        return error(f"the program {what}: {reports.errors[0]}{crashed}", hint)
    if not reports.joined:
        hint = "the program must run Python and keep PYTHONPATH: no -I, no -E, no cleaned environment"
        return error(f"kprof-inject reached no Python process of the program{crashed}", hint)
    if left_alone := [state for state in reports.kernels if state.state == "left alone"]:
        reasons = "; ".join(f"{state.name}: {state.reason}" for state in left_alone)
        hint = "the kernels ran unchanged; fix that, select less, or choose another --buffer-type"
        return error(f"the program {what}{crashed}: {reasons}", hint)
    if others := sorted({state.name for state in reports.kernels if state.state == "passed over"}):
        kernels = f"the {'kernel is' if len(others) == 1 else 'kernels are'} {', '.join(others)}"
        return error(f"the program {what} matching {kernel_glob}{crashed}", f"check --kernel: {kernels}")
    # A program that chooses another exit code got as far as it meant to, so nothing is missing.
    if reports.gpu is False and exit_code in (0, _EXCEPTION):
        hint = "run it on a machine with a GPU; 'kprof-inject demo' works without one"
        return error(f"the program {what}{crashed}: torch sees no GPU on this machine", hint)
    lacks_packages = exit_code == _EXCEPTION and not reports.triton_versions and is_run_by_us(program)
    if lacks_packages and (missing := missing_to_run()):
        hint = f"{install_command(*missing)}; or name the Python that has them: -- PYTHON {program[0]}"
        lacking = " and ".join(missing)
        return error(f"the program {what}{crashed}: {sys.executable}, which ran it, lacks {lacking}", hint)
    if exit_code:
        hint = "its messages are above; check that it runs on its own first"
        return error(f"the program {what}: it ended with exit code {exit_code}", hint)
    if not reports.triton_versions:
        return error("the program never imported Triton", "name the program that launches the kernels")
    return error(f"the program {what}", "check that it launches its kernels when you run it on its own")
