"""``kprof-inject demo``."""

from __future__ import annotations

import io
import shutil
from contextlib import nullcontext, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import click

from kprof_inject.analysis.comparison.verdicts import diff_captures
from kprof_inject.analysis.program import Report, middle_of
from kprof_inject.capture.model import Kernel
from kprof_inject.capture.reader import read_capture
from kprof_inject.capture.schema import DumpedKernelRecord, Target
from kprof_inject.cli.capture_lines import say_next, write_and_say
from kprof_inject.cli.console import as_a_step, say, table_console
from kprof_inject.cli.options import PATH
from kprof_inject.errors import KprofError
from kprof_inject.export.formats import TraceFile
from kprof_inject.insertion import insert_module, view_of
from kprof_inject.packages import install_command, is_installed, missing_to_run
from kprof_inject.pipeline.captures import decode_capture
from kprof_inject.report.diff.terminal import print_diff_answer
from kprof_inject.report.terminal.screens import print_answers
from kprof_inject.runtime.devices.device import has_gpu
from kprof_inject.select.selectors import parse_selectors
from kprof_inject.workspace import Workspace
from kprof_inject.workspace_folder import DEMO_WORKSPACE, held

_PACKAGE = Path(__file__).parents[1]
_CAPTURES = _PACKAGE / "demo" / "captures"
# An installed package has the examples next to the captures, a checkout in a folder of its own.
_EXAMPLES = (_PACKAGE / "demo", _PACKAGE.parent / "examples")

LAUNCHES = "10:30"
"""Launches that each run keeps: enough of them to tell a change of any scope from noise, and none of the slow first."""
_SCOPES = ("func", "loop", "iter", "op(*wait*)")


@dataclass(frozen=True, slots=True)
class DemoRun:
    """A run of an example with some arguments; ``name`` is the folder of its shipped capture."""

    name: str
    example: str
    arguments: tuple[str, ...]
    selectors: tuple[str, ...]
    title: str

    @property
    def program(self) -> tuple[str, ...]:
        """The command line that runs the example."""
        path = next((path for folder in _EXAMPLES if (path := folder / self.example).exists()), None)
        if path is None:
            hint = "install kprof-inject again"
            raise KprofError("the demo's examples are missing from this installation", hint=hint)
        return (str(path), "--repeat", "30", *self.arguments)


ATTENTION = DemoRun(
    "attention",
    "attention.py",
    ("--causal", "--dim", "128"),
    ("func", "loop", "iter", "op(*dot_wait*)", "marker(softmax)"),
    "causal attention",
)
_A, _B = "A: a matmul as it is, with num_stages=1", "B: the same after the advice, with num_stages=3"
BEFORE = DemoRun("one-stage", "matmul.py", ("--num-stages", "1"), _SCOPES, _A)
AFTER = DemoRun("three-stages", "matmul.py", ("--num-stages", "3"), _SCOPES, _B)
RUNS = (ATTENTION, BEFORE, AFTER)  # the runs in the order of their captures


@click.command("demo")
@click.option(
    "-o", "--output", "workspace", type=PATH, default=DEMO_WORKSPACE, show_default=True, help="The workspace to write."
)
@click.pass_context
def command(ctx: click.Context, workspace: Path) -> None:
    """Profile a matmul, follow the advice, and compare.

    Without a GPU, torch or Triton: replay captures from an H100. If Triton is installed, also compile the kernel with
    records.
    """
    missing = missing_to_run()
    if not missing and has_gpu():
        say(f"first, without its report: {ATTENTION.title}")
        with as_a_step(), redirect_stdout(io.StringIO()):
            _profile(ctx, workspace, ATTENTION)
        for run in (BEFORE, AFTER):
            click.echo(run.title)
            # Only the last run prints the next step.
            with nullcontext() if run is AFTER else as_a_step():
                _profile(ctx, workspace, run)
            click.echo()
    else:
        names = " and ".join(missing)
        if missing:
            say(f"to profile the example itself, on a GPU, install {names}: {install_command(*missing)}")
        with held(workspace, say):
            _replay(workspace, f"without {names}" if missing else "no GPU here")
    click.echo("B against A")
    other, before, after = Workspace.open(workspace).capture_folders()[-len(RUNS) :]
    sides = (decode_capture(read_capture(folder), say) for folder in (before, after))
    print_diff_answer(diff_captures(*sides), table_console())
    say(f"{ATTENTION.title}, with a softmax and two loops: kprof-inject report {other}")
    say("your own program: kprof-inject profile -- PROG")


def _profile(ctx: click.Context, workspace: Path, run: DemoRun) -> None:
    profile = cast(click.Group, ctx.find_root().command).get_command(ctx, "profile")
    chosen = {"workspace": workspace, "selectors": run.selectors, "launches": LAUNCHES, "program": run.program}
    try:
        ctx.invoke(cast(click.Command, profile), **chosen)
    except click.exceptions.Exit as ended:
        if ended.exit_code:
            raise


def _replay(workspace: Path, reason: str) -> None:
    opened = Workspace.create(workspace)
    device = read_capture(_CAPTURES / BEFORE.name).launches[0].device_name
    say(f"{reason}: replaying captures of examples/matmul.py that were recorded on an {device}")
    folders = {run: opened.new_capture_folder() for run in RUNS}
    for run, folder in folders.items():
        shutil.copytree(_CAPTURES / run.name, folder, dirs_exist_ok=True)
    for run in (BEFORE, AFTER):
        capture = read_capture(folders[run])
        timelines = decode_capture(capture, say)
        report = Report.of(timelines)
        click.echo(run.title)
        print_answers(Report([middle_of(report.launches)]), table_console())
        click.echo()
    # As after the profiles, the workspace has the kernel of the last one.
    kernel = capture.launches[0].kernel
    _write_kernel(opened, kernel)
    if is_installed("triton"):
        from kprof_inject.runtime.compiling.instrumentation import lower, target_of

        target = Target(**kernel.metadata["target"])
        module = view_of(kernel.ttgir(), f"{kernel.name}.ttgir", kernel.sources())
        insertion = insert_module(module, parse_selectors(AFTER.selectors))
        lowered = lower(insertion.text, target_of(target), {"num_warps": kernel.num_warps}, kernel.mode)
        say(
            f"inserted {len(insertion.plan.records)} records into {kernel.name} and compiled it for {target}: "
            f"{len(lowered.binary)} bytes of machine code, {lowered.clock_reads} clock reads"
        )
    # Of the other launches, the package has a sample of the CTAs.
    whole = [timeline for timeline in timelines if timeline.launch.sample is None]
    write_and_say(TraceFile.at(opened.folder / "trace.json"), whole)
    say_next(workspace, report)


def _write_kernel(workspace: Workspace, kernel: Kernel) -> None:
    # As if it had been dumped, for ``list`` and ``insert``. Its keys differ from Triton's, so a run would not find it.
    info = DumpedKernelRecord(
        name=kernel.name,
        override_key=kernel.variant,
        file_name=kernel.name,
        target=Target(**kernel.metadata["target"]),
        options={name: kernel.metadata[name] for name in ("num_warps", "num_stages", "num_ctas")},
        metadata=kernel.metadata,
        triton_version=kernel.metadata["triton_version"],
    )
    workspace.write_kernel(kernel.variant, info, kernel.ttgir(), kernel.sources())
