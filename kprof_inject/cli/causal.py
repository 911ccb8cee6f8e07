"""``kprof-inject causal``."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import click

from kprof_inject.analysis.program import Report
from kprof_inject.capture.encoding import json_text
from kprof_inject.capture.mode import parse_warps
from kprof_inject.capture.model import Capture
from kprof_inject.capture.reader import read_capture
from kprof_inject.capture.recording import Recording
from kprof_inject.cli.console import say, table_console
from kprof_inject.cli.kernel_sources import KernelSource
from kprof_inject.cli.options import (
    PATH,
    PROGRAM_SETTINGS,
    WorkspaceOrProgram,
    complete_selectors,
    harmless_setting,
    json_option,
    kernel_option,
    names_a_workspace,
    program_setting,
    require_place_for,
    workspace_option,
)
from kprof_inject.cli.plans import say_kernels_briefly
from kprof_inject.errors import KprofError
from kprof_inject.files import write_text
from kprof_inject.insertion import insert_kernels, write_insertions
from kprof_inject.pipeline.captures import decode_capture, experiments_at
from kprof_inject.pipeline.causal_runs import (
    CausalChoice,
    default_selectors,
    experiment,
    prepare,
    slopes_in,
    with_structure,
)
from kprof_inject.pipeline.saved_launches import drop_launches, finish_launches
from kprof_inject.report.experiments import slopes_csv
from kprof_inject.report.terminal.evidence_tables import print_slopes
from kprof_inject.runtime.program import STOPPED
from kprof_inject.select.selectors import parse_selectors
from kprof_inject.workspace import Workspace
from kprof_inject.workspace_folder import held, workspace_argument

_WITHOUT_RECORDS = "so execution counts come from the kernel's arguments alone"


@click.command("causal", cls=WorkspaceOrProgram, context_settings=PROGRAM_SETTINGS)
@workspace_option
@harmless_setting(
    "--at",
    "selectors",
    multiple=True,
    metavar="SELECTOR",
    shell_complete=complete_selectors,
    help="Where to delay, [KERNEL/]SITE[=NAME] as in profile: one place at a time, at its start. Repeatable. "
    "[default: the source's markers, and parts: issues of copies, waits, dots, reductions, special functions, loads "
    "and stores of the innermost loops, and the code before and after the loops]",
)
@kernel_option
@harmless_setting(
    "--seconds",
    type=click.FloatRange(min=0.1, max=3600),
    default=20.0,
    show_default=True,
    help="Time limit per kernel. It stops earlier once every slope is known to within 0.03.",
)
@harmless_setting(
    "--launches",
    default="first",
    show_default=True,
    metavar="SPEC",
    help="Which launch of each kernel to experiment with: the first that SPEC keeps, as in run.",
)
@harmless_setting("--keep-launches", is_flag=True, help="Keep the saved launches in WORKSPACE/launches.")
@harmless_setting("--warps", default="", metavar="N,N,...", help="Delay only these warps of each CTA. [default: all]")
@harmless_setting(
    "--partition",
    default="*",
    metavar="GLOB",
    help="Only places in matching partitions, such as 'partition 0' or 'default*'. [default: all]",
)
@json_option
@program_setting("--csv", "csv_path", type=PATH, metavar="FILE", help="Also write the slopes as a CSV table.")
@click.option(
    "--html",
    "html_path",
    type=PATH,
    metavar="FILE",
    help="Also write an HTML page: the report of the kernels, with slopes next to times and source.",
)
@click.argument("program", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def command(
    ctx: click.Context,
    workspace: Path,
    selectors: tuple[str, ...],
    kernel: str,
    seconds: float,
    launches: str,
    keep_launches: bool,
    warps: str,
    partition: str,
    as_json: bool,
    csv_path: Path | None,
    html_path: Path | None,
    program: tuple[str, ...],
) -> None:
    """Delay each part of a kernel in turn, and show which parts affect its run time.

    With PROGRAM: dump it, run it with records, save a launch of each kernel, and repeat that with delays. With a dumped
    WORKSPACE and PROGRAM: skip the dump. With NAME.launch: repeat that launch. With only a WORKSPACE: show its last
    results.
    """
    wanted = parse_selectors(selectors)
    recording = Recording(launches=launches, kernel=kernel, replay=0, keep_launches=True)
    choice = CausalChoice(kernel, seconds, parse_warps(warps), partition)
    require_place_for(csv_path, html_path, workspace=workspace)
    is_dumped = bool(program) and names_a_workspace(program[0])
    if is_dumped:
        workspace, program = Path(program[0]), program[1:]
    if not program:
        opened = Workspace.open(workspace)
        folder, capture = opened.last_experiment_folder(), None
        with suppress(KprofError):
            capture = read_capture(opened.last_capture_folder())
        _write(opened, folder, capture, as_json, csv_path, html_path)
        return
    source = KernelSource(program, kernel, "causal")
    with held(workspace, say):
        opened = Workspace.open(workspace) if is_dumped else Workspace.begin(workspace)
        if not is_dumped and (code := source.dump(opened, kernel)) in STOPPED:
            ctx.exit(code)
        wanted = wanted or default_selectors(opened)
        kernels = insert_kernels(opened, with_structure(wanted))
        write_insertions(opened, kernels)
        say_kernels_briefly(workspace, kernels, wanted)
        capture, exit_code = source.record(opened, recording, instead=_WITHOUT_RECORDS, made_by="causal")
        if exit_code in STOPPED:
            ctx.exit(exit_code)
        prepare(opened, kernels, wanted, capture, choice, say)
        folder = experiment(opened, source.launches(opened, capture), choice, say)
        if capture is not None and keep_launches:
            finish_launches(opened, capture.folder, say)
        elif capture is not None:
            drop_launches(opened, capture.folder)
        _write(opened, folder, capture, as_json, csv_path, html_path)
    ctx.exit(exit_code)


def _write(
    workspace: Workspace,
    folder: Path,
    capture: Capture | None,
    as_json: bool,
    csv_path: Path | None,
    html_path: Path | None,
) -> None:
    slopes = list(slopes_in(folder, capture, say))
    if html_path is not None:
        from kprof_inject.report.html.document import write_html

        if capture is None:
            raise KprofError("a page needs a capture of the kernels, but there is none", hint="see why above")
        experiments = experiments_at(workspace.folder, say)
        write_html(html_path, Report.of(decode_capture(capture, say), experiments))
        say(f"wrote {html_path}: open it in a browser: {html_path.resolve().as_uri()}")
    if csv_path is not None:
        write_text(csv_path, slopes_csv(slopes))
        say(f"wrote {csv_path}")
    if as_json:
        click.echo(json_text([one.to_json() for one in slopes]))
    else:
        print_slopes(slopes, table_console())
        say(f"next: kprof-inject report{workspace_argument(workspace.folder)}, whose findings use these slopes")
