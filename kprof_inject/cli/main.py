"""The command line's root: one file for each command, loaded when it is asked for."""

from __future__ import annotations

import importlib
import io
import sys

import click

from kprof_inject.cli.console import INTERRUPTED, print_error, print_usage_error
from kprof_inject.cli.settings import apply_settings
from kprof_inject.errors import KprofError
from kprof_inject.version import __version__

# The help text of the list stands here, so that listing loads no command.
_COMMANDS = {
    "dump": "Run a program; save every kernel's TTGIR, and times.",
    "list": "List what can be selected in each kernel.",
    "insert": "Insert records into the dumped kernels, or into a .ttgir file.",
    "strip": "Remove all records from a .ttgir file.",
    "check": "Have Triton verify and lower .ttgir files, without a GPU.",
    "run": "Rerun the program with the records; save raw buffers and times.",
    "trace": "Decode a capture; write a trace, or a table of its scopes.",
    "report": "Show what each scope of a capture takes, and how far to trust it.",
    "diff": "Say what changed between two captures of a kernel.",
    "view": "Show a trace in the Perfetto UI, in your browser.",
    "profile": "dump, insert, run, trace and report in one go.",
    "demo": "Profile a shipped example, or replay a recorded capture.",
    "doctor": "Say what is installed, what works, and what to do about the rest.",
}


class LazyGroup(click.Group):
    """Loads a command's module when the command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"kprof_inject.cli.{name}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None and command is not None and not ctx.resilient_parsing:
            apply_settings(ctx, name, command, rest)
        return name, command, rest

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="kprof-inject")
def root() -> None:
    """Shows where the time goes inside one launch of a Triton kernel, without touching the kernel's code."""


def main() -> None:
    """Run the command line and end the process: 0 done, 1 failed, 2 usage, 130 interrupted."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Names in it may be anything; a terminal that cannot show a letter gets its number, as on stderr.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        # Outside of standalone mode, click returns the code that a command gave to ``ctx.exit``.
        sys.exit(root.main(standalone_mode=False, prog_name="kprof-inject"))
    except click.UsageError as error:
        print_usage_error(error)
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(INTERRUPTED)
    except KprofError as error:
        print_error(error)
        sys.exit(error.exit_code)
    except OSError as error:
        place = f" {error.filename}" if error.filename else ""
        print_error(KprofError(f"cannot use{place}: {error.strerror}"))
        sys.exit(1)
