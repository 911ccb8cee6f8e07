"""Messages for the person at the terminal: stderr for progress and errors, stdout for results."""

from __future__ import annotations

import click

from kprof_inject.errors import KprofError


def say(message: str) -> None:
    """A line of progress."""
    click.echo(f"kprof-inject: {message}", err=True)


def print_error(error: KprofError) -> None:
    click.echo(error.render(), err=True)
