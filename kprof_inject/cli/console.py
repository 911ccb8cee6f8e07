"""The terminal: messages on stderr, results on stdout, and ``-`` for stdin.

Messages and tables may contain any text of a capture, a module or a program. All output passes here, so this module
makes sure that none of it is a command to the terminal.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kprof_inject.errors import KprofError, printable_lines
from kprof_inject.files import decode_text, read_text, write_text
from kprof_inject.workspace_folder import where_to_find_modules

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from kprof_inject.ttgir.nodes import Module

INTERRUPTED = 130  # exit code after Ctrl-C, of the program and of ours

# Wider than any table: programs read piped output, so no line may be cut.
_PIPE_WIDTH = 2000
_DIFF_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


def say(message: str) -> None:
    """Print a line of progress to stderr; ignore a stderr that is full or closed."""
    with suppress(OSError):
        click.echo(printable_lines(f"kprof-inject: {message}"), err=True)


def say_next_step(message: str) -> None:
    """Print the next step, unless another command of ours runs this one and continues by itself."""
    if not is_a_step():
        say(f"next: {message}")


def is_a_step() -> bool:
    """Return whether another command of ours runs this one; it prints the next step itself."""
    return _is_within


_is_within = False


@contextmanager
def as_a_step() -> Iterator[None]:
    """Run another command in this process as a step of this one."""
    global _is_within
    _is_within = True
    try:
        yield
    finally:
        _is_within = False


def print_error(error: KprofError) -> None:
    """Print an error to stderr, with its place and hint."""
    with suppress(OSError):
        click.echo(printable_lines(error.render()), err=True)


def table_console() -> Console:
    """Return a console for tables on stdout, which are never folded in a pipe."""
    return _console(stderr=False)


def say_table(table: Table) -> None:
    """Print a table to stderr, like a message."""
    with suppress(OSError):
        _console(stderr=True).print(table)


def _console(*, stderr: bool) -> Console:
    from rich.cells import cell_len
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class PrintableConsole(Console):
        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
            for segment in super().render(renderable, options):
                if not (segment.control or segment.text.isprintable()):
                    # Columns have the widths that rich computes, and rich takes most of these to have no width.
                    shown = (one if one.isprintable() or one == "\n" else " " * cell_len(one) for one in segment.text)
                    segment = segment._replace(text="".join(shown))
                yield segment

    # A terminal has its own width; a pipe is wide even if colours are forced on.
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream is not None and stream.isatty() else _PIPE_WIDTH
    # Names may contain brackets and colons, which are neither rich's styles nor its emoji.
    return PrintableConsole(stderr=stderr, width=width, markup=False, emoji=False)


def diff_of(module: Module, instrumented: str) -> Iterator[str]:
    """Return the lines of a unified diff from a module's text to its instrumented text."""
    import difflib

    lines = module.text.split("\n"), instrumented.split("\n")
    return difflib.unified_diff(*lines, module.file, f"{module.file} with records", lineterm="")


def print_diff(module: Module, instrumented: str) -> None:
    """Print a unified diff on stdout, coloured on a terminal."""
    # Without NO_COLOR (https://no-color.org) and FORCE_COLOR, click prints colours only on a terminal.
    colours = False if os.environ.get("NO_COLOR") else True if os.environ.get("FORCE_COLOR") else None
    for line in diff_of(module, instrumented):
        bold = line.startswith(("+++", "---")) or None
        click.secho(printable_lines(line), fg=_DIFF_COLOURS.get(line[:1]), bold=bold, color=colours)


def write_result(output: Path | None, text: str) -> None:
    """Write a text to a file, or byte for byte to stdout if ``output`` is ``-`` or None."""
    if output is not None and str(output) != "-":
        write_text(output, text)
        return
    if sys.stdout is None:
        raise KprofError("stdout is closed", hint="name a file with -o")
    sys.stdout.buffer.write(text.encode())
    sys.stdout.buffer.flush()


def read_input(file: Path) -> tuple[str, str]:
    """Return the text and name of a file, where ``-`` is stdin; raise ``KprofError`` if it cannot be read."""
    if str(file) == "-":
        if sys.stdin is None:
            raise KprofError("stdin is closed", hint="name a file instead of -")
        return decode_text(sys.stdin.buffer.read(), "<stdin>"), "<stdin>"
    if not file.exists():
        raise KprofError(f"{file} does not exist", hint=where_to_find_modules(file))
    return read_text(file), str(file)
