"""``kprof-inject dump``."""

from __future__ import annotations

from pathlib import Path

import click

from kprof_inject.cli.console import say, say_faults, say_unreached
from kprof_inject.cli.options import PROGRAM_SETTINGS, kernel_option, program_argument, workspace_option
from kprof_inject.report.kernel_names import differing_facts, facts_in_words
from kprof_inject.runtime import steps
from kprof_inject.runtime.program import ProgramInput, own_input
from kprof_inject.workspace import Workspace, held


@click.command("dump", context_settings=PROGRAM_SETTINGS)
@workspace_option
@kernel_option
@program_argument
@click.pass_context
def command(ctx: click.Context, workspace: Path, kernel: str, program: tuple[str, ...]) -> None:
    """Run PROGRAM, save every kernel's TTGIR, metadata and sources, and time some launches of it."""
    with held(workspace, say):
        ctx.exit(dump_into(Workspace.create(workspace), kernel, program, own_input()))


def dump_into(workspace: Workspace, kernel: str, program: tuple[str, ...], program_input: ProgramInput) -> int:
    """Dump and say what was saved; returns the program's exit code."""
    result = steps.dump(workspace, kernel, program, program_input)
    kernels = workspace.kernels()
    say(f"dumped {len(kernels)} kernel(s) to {workspace.folder}")
    apart = differing_facts(kernels)
    for dumped in kernels:
        target = dumped.info.target
        facts = ({"target": str(target)} if target else {}) | apart[dumped.variant]
        say(f"  {dumped.name} ({facts_in_words(facts)}) {dumped.ttgir_path}")
    say_faults(result.reports.errors)
    say_unreached(result.reports.unreached)
    return result.exit_code
