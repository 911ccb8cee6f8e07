"""The terminal: messages on stderr, results on stdout, and ``-`` for stdin."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kprof_inject.errors import KprofError
from kprof_inject.files import decode_text, read_text
from kprof_inject.ttgir.nodes import Module

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

# Wider than any table: what is piped is read by programs, and must not be cut.
_PIPE_WIDTH = 2000
_DIFF_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


def say(message: str) -> None:
    """A line of progress."""
    click.echo(f"kprof-inject: {message}", err=True)


def say_faults(errors: Iterable[str]) -> None:
    """Failures of ours inside the program, which went on."""
    for error in errors:
        say(f"a fault of kprof-inject's own, which the program did not notice: {error}")


def print_error(error: KprofError) -> None:
    click.echo(error.render(), err=True)


def table_console() -> Console:
    """Where tables are printed: stdout, where they are never cut when it is piped."""
    from rich.console import Console

    console = Console()
    return console if console.is_terminal else Console(width=_PIPE_WIDTH)


def say_table(table: Table) -> None:
    """A table among the messages, which is never cut either."""
    from rich.console import Console

    console = Console(stderr=True)
    (console if console.is_terminal else Console(stderr=True, width=_PIPE_WIDTH)).print(table)


def diff_of(module: Module, instrumented: str) -> Iterator[str]:
    """The lines of a unified diff from a module's text to its instrumented one."""
    lines = module.text.split("\n"), instrumented.split("\n")
    return difflib.unified_diff(*lines, module.file, f"{module.file} with records", lineterm="")


def print_diff(module: Module, instrumented: str) -> None:
    """A unified diff on stdout, coloured on a terminal."""
    for line in diff_of(module, instrumented):
        click.secho(line, fg=_DIFF_COLOURS.get(line[:1]), bold=line.startswith(("+++", "---")) or None, color=_colour())


def _colour() -> bool | None:
    """What https://no-color.org and its counterpart ask for; None leaves it to whether stdout is a terminal."""
    if os.environ.get("NO_COLOR"):
        return False
    return True if os.environ.get("FORCE_COLOR") else None


def write_output(text: str) -> None:
    """A file's text on stdout: its bytes, whatever the terminal's encoding."""
    sys.stdout.buffer.write(text.encode())
    sys.stdout.buffer.flush()


def read_input(file: Path) -> tuple[str, str]:
    """The text of a file that was named on the command line, where ``-`` is stdin, and what to call it."""
    if str(file) == "-":
        return decode_text(sys.stdin.buffer.read(), "<stdin>"), "<stdin>"
    return read_text(file), str(file)
