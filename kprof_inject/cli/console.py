"""The terminal: messages on stderr, results on stdout, and ``-`` for stdin."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import click

from kprof_inject.errors import KprofError
from kprof_inject.files import decode_text, read_text


def say(message: str) -> None:
    """A line of progress."""
    click.echo(f"kprof-inject: {message}", err=True)


def say_faults(errors: Iterable[str]) -> None:
    """Failures of ours inside the program, which went on."""
    for error in errors:
        say(f"a fault of kprof-inject's own, which the program did not notice: {error}")


def print_error(error: KprofError) -> None:
    click.echo(error.render(), err=True)


def write_output(text: str) -> None:
    """A file's text on stdout: its bytes, whatever the terminal's encoding."""
    sys.stdout.buffer.write(text.encode())
    sys.stdout.buffer.flush()


def read_input(file: Path) -> tuple[str, str]:
    """The text of a file that was named on the command line, where ``-`` is stdin, and what to call it."""
    if str(file) == "-":
        return decode_text(sys.stdin.buffer.read(), "<stdin>"), "<stdin>"
    return read_text(file), str(file)
