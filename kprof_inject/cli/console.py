"""The terminal: messages on stderr, results on stdout, and ``-`` for stdin.

Messages and tables may hold any text of a capture, a module or a program. Here they leave, so here it is seen to that
none of it reaches the terminal as a command.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from kprof_inject.errors import KprofError, printable_lines
from kprof_inject.files import decode_text, read_text, write_text
from kprof_inject.workspace_paths import where_to_find_modules

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from kprof_inject.ttgir.nodes import Module

INTERRUPTED = 130
"""The exit code of a program that Ctrl-C ended, and of ours then."""

# Wider than any table: what is piped is read by programs, and must not be cut.
_PIPE_WIDTH = 2000
_DIFF_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


def say(message: str) -> None:
    """A line of progress. A stderr that is full or closed keeps nothing from being done."""
    with suppress(OSError):
        click.echo(printable_lines(f"kprof-inject: {message}"), err=True)


def say_next_step(message: str) -> None:
    """The same of what to do next, where the user is to do it."""
    if not is_a_step():
        say(f"next: {message}")


def is_a_step() -> bool:
    """Whether another command of ours runs this one, and says itself what to do next."""
    from kprof_inject.runtime.session import STEP_VARIABLE  # with it comes msgspec, which the help does without

    return _is_within or STEP_VARIABLE in os.environ


_is_within = False


@contextmanager
def as_a_step() -> Iterator[None]:
    """Run another command in this process, as one of the steps of this one."""
    global _is_within
    _is_within = True
    try:
        yield
    finally:
        _is_within = False


def print_error(error: KprofError) -> None:
    with suppress(OSError):
        click.echo(printable_lines(error.render()), err=True)


def print_usage_error(error: click.UsageError) -> None:
    """Print an error of click's as one of ours. Where a command is missing, click's message is the help."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        with suppress(OSError):
            click.echo(error.format_message(), err=True)
        return
    command = f"{error.ctx.command_path} --help" if error.ctx is not None else "kprof-inject --help"
    print_error(KprofError(error.format_message(), hint=f"see {command}"))


def table_console() -> Console:
    """Where tables are printed: stdout, where what is piped is never folded."""
    return _console(stderr=False)


def say_table(table: Table) -> None:
    """A table among the messages."""
    with suppress(OSError):
        _console(stderr=True).print(table)


def _console(*, stderr: bool) -> Console:
    from rich.cells import cell_len
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    def same_width(text: str) -> str:
        # Columns are as wide as rich takes their cells to be, and to rich most of these characters have no width.
        return "".join(
            character if character.isprintable() or character == "\n" else " " * cell_len(character)
            for character in text
        )

    class PrintableConsole(Console):
        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
            for segment in super().render(renderable, options):
                as_it_is = segment.control or segment.text.isprintable()
                yield segment if as_it_is else segment._replace(text=same_width(segment.text))

    # A name in brackets is no style, nor one between colons a picture.
    width = _table_width(sys.stderr if stderr else sys.stdout)
    return PrintableConsole(stderr=stderr, width=width, markup=False, emoji=False)


def _table_width(stream: TextIO) -> int | None:
    """None is the terminal's own. Colours may be wanted in a pipe, and it is one all the same."""
    return None if stream is not None and stream.isatty() else _PIPE_WIDTH


def diff_of(module: Module, instrumented: str) -> Iterator[str]:
    """The lines of a unified diff from a module's text to its instrumented one."""
    import difflib

    lines = module.text.split("\n"), instrumented.split("\n")
    return difflib.unified_diff(*lines, module.file, f"{module.file} with records", lineterm="")


def print_diff(module: Module, instrumented: str) -> None:
    """A unified diff on stdout, coloured on a terminal."""
    for line in diff_of(module, instrumented):
        shown = printable_lines(line)
        click.secho(
            shown, fg=_DIFF_COLOURS.get(line[:1]), bold=line.startswith(("+++", "---")) or None, color=_colour()
        )


def _colour() -> bool | None:
    """What https://no-color.org and its counterpart ask for; None leaves it to whether stdout is a terminal."""
    if os.environ.get("NO_COLOR"):
        return False
    return True if os.environ.get("FORCE_COLOR") else None


def write_result(output: Path | None, text: str) -> None:
    """A file's text where the user wants it: in a file, or on stdout (``-``, or none named) as its very bytes."""
    if output is not None and str(output) != "-":
        write_text(output, text)
        return
    if sys.stdout is None:
        raise KprofError("stdout is closed", hint="name a file with -o")
    sys.stdout.buffer.write(text.encode())
    sys.stdout.buffer.flush()


def read_input(file: Path) -> tuple[str, str]:
    """The text of a file that was named on the command line, where ``-`` is stdin, and what to call it."""
    if str(file) == "-":
        if sys.stdin is None:
            raise KprofError("stdin is closed", hint="name a file instead of -")
        return decode_text(sys.stdin.buffer.read(), "<stdin>"), "<stdin>"
    if not file.exists():
        raise KprofError(f"{file} does not exist", hint=where_to_find_modules(file))
    return read_text(file), str(file)
