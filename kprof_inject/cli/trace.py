"""``kprof-inject trace``."""

from __future__ import annotations

from pathlib import Path

import click

from kprof_inject.capture.foreign import BufferDescription
from kprof_inject.cli.capture_lines import loss_lines, write_and_say
from kprof_inject.cli.console import INTERRUPTED, say
from kprof_inject.cli.options import PATH, place_argument, program_setting, require_place_for
from kprof_inject.cli.reading_options import (
    buffer_options,
    choice_options,
    layout_option,
    redact_option,
    scope_names_option,
    trace_file,
)
from kprof_inject.export.formats import ENDINGS
from kprof_inject.export.hooks import read_hooks
from kprof_inject.export.open_trace import MAX_MINUTES, TraceServer, last_launch, open_page, tunnel
from kprof_inject.pipeline.captures import decode_capture, open_capture
from kprof_inject.timeline.choice import Choice
from kprof_inject.workspace_folder import link_error


@click.command("trace")
@place_argument("WORKSPACE|CAPTURE|BUFFER")
@click.option(
    "-o",
    "--output",
    type=PATH,
    help=f"The file; {ENDINGS}. [default: trace.json in WORKSPACE or CAPTURE, or next to BUFFER]",
)
@choice_options
@layout_option
@program_setting(
    "--hooks",
    "hook_files",
    type=PATH,
    multiple=True,
    metavar="FILE",
    help="A Python file with functions that add arguments, counters and arrows to the timeline. Repeatable.",
)
@scope_names_option
@buffer_options
@redact_option
@click.option(
    "--open",
    "opens",
    is_flag=True,
    help="Open the trace in the Perfetto UI, in your browser, or print the address if there is none. It ends once the "
    f"browser has fetched the trace, or after {MAX_MINUTES:g} minutes.",
)
@click.pass_context
def command(
    ctx: click.Context,
    place: Path,
    output: Path | None,
    choice: Choice,
    layout: str | None,
    hook_files: tuple[Path, ...],
    names_path: Path | None,
    description: BufferDescription,
    redact: bool,
    opens: bool,
) -> None:
    """Decode a capture and write a trace, or a table of its scopes.

    Reads a CAPTURE, a WORKSPACE (its last one), or a BUFFER: a file with Proton's host_buffer, or another profiler's
    that numpy.save wrote.
    """
    require_place_for(output)
    folder = place.parent if place.is_file() else place
    hooks = [hook for file in hook_files for hook in read_hooks(file)]
    path = output or folder / "trace.json"
    if output is None and path.is_symlink():
        raise link_error(path)
    trace = trace_file(ctx, path, layout, hooks)
    if opens and not trace.format.is_drawing:
        raise click.UsageError("--open shows a trace (.json, .pftrace)")
    timelines = decode_capture(open_capture(place, names_path, description, redact=redact), say, choice)
    for line in loss_lines(timelines):
        say(line)
    write_and_say(trace, timelines, choice)
    if not opens:
        return
    with TraceServer(trace.path) as server:
        address = server.address(last_launch(timelines))
        if not open_page(address):
            say(f"from another machine, first: {tunnel()}")
            say("no browser was found; open this address in one:")
        click.echo(address)
        try:
            server.serve_until_fetched()
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)
