"""The root of the command line; each command is a file that is imported when the command is used."""

from __future__ import annotations

import gc
import importlib
import io
import os
import shlex
import sys
from contextlib import suppress

import click

from kprof_inject.cli.console import INTERRUPTED, print_error, say
from kprof_inject.cli.grouped_help import GONE_COMMANDS, GONE_OPTIONS, hide_rare_options
from kprof_inject.errors import KprofError, did_you_mean, printable
from kprof_inject.version import __version__

# The short help of all commands is here, so that the list of commands imports none of them.
_GROUPS = {
    "Find out what limits a kernel": {
        "profile": "Run a program and report what limits its kernels: all steps at once.",
        "try": "Edit each kernel mechanically; measure what makes it faster, with equal results.",
        "causal": "Delay each part of a kernel in turn, to see which ones matter.",
        "demo": "Profile a shipped example; without a GPU, replay a recorded capture.",
    },
    "Read what was captured": {
        "report": "Show the limit, what to try, and where the time goes.",
        "diff": "Report what changed between two captures of a kernel.",
        "trace": "Write the timeline as a trace or a table; open it in the Perfetto UI.",
    },
    "Go step by step": {
        "dump": "Run a program; save TTGIR and times of every kernel.",
        "list": "List what can be selected in each kernel.",
        "insert": "Insert records into the dumped kernels, or into a .ttgir file.",
        "run": "Rerun the program with the records; save raw buffers and times.",
        "strip": "Remove all records from a .ttgir file.",
        "check": "Have Triton verify and lower .ttgir files, without a GPU.",
    },
    "Get help": {"doctor": "Check what is installed and what works, and say how to fix the rest."},
}
_BLAS_THREADS = "OPENBLAS_NUM_THREADS"
_COMMANDS = [name for group in _GROUPS.values() for name in group]

_EXAMPLES = """\b
Examples:
  kprof-inject profile -- python train.py
  kprof-inject profile --kernel 'matmul*' --at loop --at 'op(*wait*)' -- python train.py

Each command has its own help: kprof-inject report --help
"""

# Packages whose versions are in the report of an internal error.
_REPORTED_PACKAGES = ("triton", "torch", "numpy", "lark", "msgspec", "click", "rich", "pyarrow")


class _LazyGroup(click.Group):
    """Group that imports a command's module when the command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return _COMMANDS

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        # OpenBLAS starts a thread for each core when NumPy is imported, which takes a tenth of the time of a small
        # report; our matrices are small. Programs that we start must not inherit this.
        own_threads = {_BLAS_THREADS: "1"} if _BLAS_THREADS not in os.environ else {}
        os.environ.update(own_threads)
        # Imports make no garbage, but looking for it now and at exit takes an eighth of the time of a small report.
        gc.disable()
        try:
            command: click.Command = importlib.import_module(f"kprof_inject.cli.{name}").command
        finally:
            gc.freeze()
            gc.enable()
            for variable in own_threads:
                del os.environ[variable]
        if not any("--help-all" in option.opts for option in command.params):
            hide_rare_options(command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in _COMMANDS and not args[0].startswith("-"):
            if instead := GONE_COMMANDS.get(args[0]):
                raise click.UsageError(f"The command {args[0]} is gone: {instead}.", ctx)
            question = did_you_mean(args[0], _COMMANDS)
            raise click.UsageError(f"No such command {args[0]!r}. {question[:1].upper()}{question[1:]}".strip(), ctx)
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None and command is not None and not ctx.resilient_parsing:
            # The options import numpy, which would slow down the help of the whole program.
            from kprof_inject.cli.settings import apply_settings

            apply_settings(ctx, name, command, rest)
        return name, command, rest

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in _GROUPS.items():
            with formatter.section(title):
                formatter.write_dl(list(commands.items()), col_max=8)


@click.group(cls=_LazyGroup, epilog=_EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="kprof-inject")
def root() -> None:
    """Says what limits a Triton kernel, and shows where the time goes inside one launch, without editing its source."""


def main() -> None:
    """Run the command line and exit: 0 done, 1 failed, 2 usage error, 130 interrupted.

    An internal error is reported in one line; its details are in a file.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Output may contain any name; a letter that the encoding lacks is escaped, as on stderr.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        # With standalone_mode=False, click returns the code that a command passed to ``ctx.exit``.
        sys.exit(root.main(standalone_mode=False, prog_name="kprof-inject"))
    except click.UsageError as error:
        what = error.format_message()
        if isinstance(error, click.NoSuchOption):
            instead = GONE_OPTIONS.get((str(error.ctx and error.ctx.info_name), error.option_name))
            what = f"The option {error.option_name} is gone: {instead}." if instead else what
        if isinstance(error, click.exceptions.NoArgsIsHelpError):  # the message is the help
            with suppress(OSError):
                click.echo(what, err=True)
        else:
            command = error.ctx.command_path if error.ctx is not None else "kprof-inject"
            print_error(KprofError(what, hint=f"see {command} --help"))
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(INTERRUPTED)
    except KprofError as error:
        print_error(error)
        sys.exit(error.exit_code)
    except Exception as error:  # noqa: BLE001 - the last resort
        if isinstance(error, OSError) and error.strerror:
            place = f" {error.filename}" if error.filename else ""
            print_error(KprofError(f"cannot use{place}: {error.strerror}"))
        else:
            _report_internal_error(error)
        sys.exit(1)


def _report_internal_error(error: Exception) -> None:
    import platform
    import tempfile
    import traceback
    from importlib.metadata import distributions

    what = printable(type(error).__name__ + ": ".join(["", *str(error).splitlines()[:1]]))
    details = "".join(traceback.format_exception(error))
    installed = {found.name: found.version for found in distributions() if found.name}
    versions = "".join(f"{name} {installed[name]}\n" for name in _REPORTED_PACKAGES if name in installed)
    system = f"kprof-inject {__version__}\nPython {sys.version}\n{platform.platform()}\n{versions}"
    try:
        # Not in the workspace, which may be the cause. Other users cannot read the file.
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", errors="backslashreplace", prefix="kprof-inject-", suffix=".txt", delete=False
        ) as file:
            file.write(f"{shlex.join(sys.argv)}\n\n{details}\n{system}")
    except OSError:
        click.echo(details, err=True)
        say(f"an internal error in kprof-inject: {what}; please report it with the lines above")
    else:
        say(f"an internal error in kprof-inject: {what}; please report it with {file.name}, which has the details")
