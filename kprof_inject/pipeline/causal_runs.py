"""The steps of ``causal``: plan where to delay and for how long, compile, time saved launches, and read the results."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from math import prod
from pathlib import Path

from msgspec import Struct

from kprof_inject.analysis.causal.slopes import KernelSlopes, delays_for, executions, kernel_slopes, whole_share
from kprof_inject.analysis.interpreter.executions import evaluated, evaluated_kernel
from kprof_inject.analysis.summary import summarise
from kprof_inject.capture.experiments import DelayedBuildRecord, DelaysRecord
from kprof_inject.capture.model import Capture
from kprof_inject.capture.schema import SOURCES_FILE, TTGIR_FILE
from kprof_inject.capture.scopes import ScopeTable
from kprof_inject.errors import KprofError
from kprof_inject.files import read_text, write_json, write_text
from kprof_inject.insertion import KernelInsertion, views_in
from kprof_inject.pipeline import Say
from kprof_inject.pipeline.workers import worker_process
from kprof_inject.quantities import counted
from kprof_inject.rewrite import inserted
from kprof_inject.runtime.compiling.builds import Build, compiled
from kprof_inject.runtime.worker.tasks import TimeDelays
from kprof_inject.select.delays import SPIN_ROUNDS, Delay, spin_kernel
from kprof_inject.select.module_view import ModuleView
from kprof_inject.select.selectors import Selector, parse_selectors
from kprof_inject.timeline.timeline import Timeline, decode_launch
from kprof_inject.workspace import Workspace, read_experiments

MAX_PLACES = 64  # maximum number of places in a kernel: each needs several builds, and its share of the time


class CausalChoice(Struct, frozen=True):
    """Choice of the kernels and places of an experiment.

    ``kernel`` and ``partition`` are globs; ``seconds`` is the time limit per kernel; ``warps`` are the warps of a CTA
    to delay, all if empty.
    """

    kernel: str = "*"
    seconds: float = 20.0
    warps: tuple[int, ...] = ()
    partition: str = "*"


def default_selectors(workspace: Workspace) -> list[Selector]:
    """Return the default places to delay: the parts of kernels, and the markers of their sources."""
    views = [view for view in views_in(workspace) if isinstance(view, ModuleView)]
    return parse_selectors(["parts", *(["marker"] if any(view.markers for view in views) else [])])


def with_structure(selectors: Sequence[Selector]) -> list[Selector]:
    """Add the selectors of functions and loops, from which a report determines what limits a kernel."""
    texts = {selector.text for selector in selectors}
    return [*selectors, *(selector for selector in parse_selectors(["func", "loop"]) if selector.text not in texts)]


def prepare(
    workspace: Workspace,
    kernels: Sequence[KernelInsertion],
    selectors: Sequence[Selector],
    capture: Capture | None,
    choice: CausalChoice,
    say: Say,
) -> None:
    """Plan delays at the places that ``selectors`` match, and compile the builds that are not compiled yet.

    ``capture`` has launches of these kernels; the length of a delay depends on how often its place is executed. Raises
    ``KprofError`` if there is nothing to delay.
    """
    texts = frozenset(selector.text for selector in selectors)
    workspace.clear_delays()
    are_planned = False
    launched: dict[str, set[str]] = {}
    for launch in capture.launches if capture else ():
        launched.setdefault(launch.kernel.name, set()).add(launch.kernel.program_variant)
    for done in kernels:
        name, variant = done.kernel.name, done.kernel.variant
        if done.insertion is None or not fnmatchcase(name, choice.kernel):
            continue
        if name in launched and variant not in launched[name]:
            continue  # an autotuner tried this variant, and chose another
        try:
            are_planned |= _prepare_kernel(workspace, done, texts, capture, choice, say)
        except KprofError as error:
            say(f"{done.kernel.name} is not delayed: {error.what}" + (f"; {error.hint}" if error.hint else ""))
    if not are_planned:
        raise KprofError("there is nothing to delay", hint="select places: --at parts, --at loop, --at 'op(tt.load)'")


def _prepare_kernel(
    workspace: Workspace,
    done: KernelInsertion,
    selectors: frozenset[str],
    capture: Capture | None,
    choice: CausalChoice,
    say: Say,
) -> bool:
    kernel, insertion = done.kernel, done.insertion
    table = workspace.scope_table(kernel.variant)
    if insertion is None or table is None or kernel.info.target is None:
        return False
    places = [index for index, scope in enumerate(table.scopes) if scope.selector in selectors]
    if choice.partition != "*" and table.partitions:
        numbers = {number for number, one in enumerate(table.partitions) if fnmatchcase(one.name, choice.partition)}
        places = [index for index in places if table.scopes[index].partition in numbers]
    if not places:
        return False
    if len(places) > MAX_PLACES:
        what = f"{len(places)} places are selected, and the limit is {MAX_PLACES}"
        raise KprofError(what, hint="select fewer with --at")
    delays = _planned_delays(workspace, kernel.variant, table, capture)
    planned = [(index, cycles, share) for index in places for cycles, share in delays[index]]
    sites, module, target = insertion.plan.sites, insertion.view.module, kernel.info.target
    plain = Build(module.text, kernel.info)
    inserts = [Delay(sites[index].start, cycles, 0, target, choice.warps) for index, cycles, _ in planned]
    builds = [Build(inserted(module, [delay]), kernel.info) for delay in inserts]
    say(f"{kernel.name}: {counted(len(places), 'place')}, {counted(len(builds) + 1, 'build')} to compile")
    failure, *failures = compiled([plain, *builds], workspace.delayed_builds_folder)
    if failure is not None:
        raise failure
    spins = sorted({cycles for _, cycles, _ in planned})
    workspace.write_delays(
        kernel.variant,
        DelaysRecord(
            scopes=table,
            builds=tuple(
                DelayedBuildRecord(
                    scope=index,
                    delay_cycles=cycles,
                    whole_share=share,
                    binary=None if error else build.name,
                    refusal=f"it does not compile: {error.what}" if error else "",
                )
                for (index, cycles, share), build, error in zip(planned, builds, failures, strict=True)
            ),
            plain=plain.name,
            spin_kernel=spin_kernel(target, spins),
            spin_cycles=tuple(spins),
            spin_rounds=SPIN_ROUNDS,
            warps=choice.warps,
        ),
    )
    return True


def _planned_delays(
    workspace: Workspace, variant: str, table: ScopeTable, capture: Capture | None
) -> list[list[tuple[int, float]]]:
    timeline = recorded_launch(capture, variant)
    if timeline is None:
        return [[(delay, whole_share(delay, None, None)) for delay in delays_for(None, None, None)]] * len(table.scopes)
    launch = timeline.launch
    times = workspace.clean_run(variant).times_ns
    ns = statistics.median(times) if times else float(timeline.last_ns - timeline.first_ns)
    cycles = ns * 1e-9 * timeline.clock.clock_hz
    slots = (launch.kernel.sm_count or 0) * (launch.kernel.clean.ctas_per_sm or 0)
    ran = None
    with suppress(KprofError):
        ran = evaluated_kernel(launch)
    counts = executions(table, ran, prod(launch.grid), slots, timeline)
    return [
        [(delay, whole_share(delay, cycles, by_chain)) for delay in delays_for(cycles, by_cta, by_chain)]
        for by_cta, by_chain in zip(*counts, strict=True)
    ]


def recorded_launch(capture: Capture | None, variant: str, grid: tuple[int, int, int] | None = None) -> Timeline | None:
    """Decode the last valid launch of this variant, with ``grid`` if it is given; return None if there is none."""
    for launch in reversed(capture.launches if capture else ()):
        if launch.kernel.program_variant == variant and grid in (None, launch.grid):
            try:
                return decode_launch(launch)
            except KprofError:
                continue
    return None


def experiment(workspace: Workspace, launches: Mapping[str, Path], choice: CausalChoice, say: Say) -> Path:
    """Time the saved launches of kernels, by their variants, with the planned delays; return the results' folder.

    Raises ``KprofError`` if there are no results.
    """
    folder = workspace.new_experiment_folder()
    planned = [(kernel, workspace.delays(kernel.variant)) for kernel in workspace.kernels()]
    tasks = []
    for kernel, plan in planned:
        if plan is None:
            continue
        if kernel.variant not in launches:
            say(f"{kernel.name} was not delayed: no launch of it was saved")
        else:
            tasks.append(
                TimeDelays(
                    launch=str(launches[kernel.variant].resolve()),
                    plan=plan,
                    builds=str(workspace.delayed_builds_folder.resolve()),
                    seconds=choice.seconds,
                    folder=str(folder.resolve()),
                )
            )
    with worker_process(cache=workspace.cache_folder_of_rerun("launches")) as worker:
        results = worker.do_all(tasks)
    refusals = [result.refusal for result in results if result.refusal]
    for refusal in refusals:
        say(f"an experiment failed: {refusal}")
    # With the TTGIR and sources of the kernels, the results can be read without the workspace.
    for kernel_folder in list(folder.iterdir()) if folder.exists() else ():
        write_text(kernel_folder / TTGIR_FILE, workspace.kernel(kernel_folder.name).ttgir())
        write_json(kernel_folder / SOURCES_FILE, workspace.kernel_sources(kernel_folder.name))
    workspace.forget_if_empty(folder)
    if not any(read_experiments(folder)):
        raise KprofError(
            f"no kernel was delayed: {refusals[0]}" if refusals else "no launch was saved, so none can be delayed",
            hint="see the reasons above",
        )
    return folder


def slopes_in(folder: Path, capture: Capture | None, say: Say) -> Iterator[KernelSlopes]:
    """Yield the slopes of each kernel in an experiment; ``capture`` may have launches of these kernels with records."""
    for kernel_folder, found in read_experiments(folder):
        timeline = recorded_launch(capture, found.variant, found.grid)
        summary = summarise(timeline) if timeline else None
        path, executed = kernel_folder / TTGIR_FILE, None
        try:
            table = timeline.table if timeline else ScopeTable()
            executed = evaluated(read_text(path), str(path), found.grid, found.arguments, table)
        except KprofError as error:
            say(f"{found.name}: {error.what}")
        yield kernel_slopes(found, executed, timeline, summary)
