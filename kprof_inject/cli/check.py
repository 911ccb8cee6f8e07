"""``kprof-inject check``."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from kprof_inject.analysis.scope_map import moves_in
from kprof_inject.cli.console import print_error, read_input, table_console
from kprof_inject.cli.options import PATH, harmless_setting, json_option
from kprof_inject.errors import KprofError
from kprof_inject.machine_code.lines import Moved
from kprof_inject.packages import install_command, is_installed
from kprof_inject.report.terminal.tables import Column, print_fitted
from kprof_inject.runtime.child_process import CompilerProcess
from kprof_inject.runtime.compiling.disassembly import recorded_machine_code_of
from kprof_inject.runtime.compiling.module_check import ModuleCheck, check_module
from kprof_inject.ttgir.parser import parse
from kprof_inject.workspace import Workspace
from kprof_inject.workspace_folder import DEFAULT_WORKSPACE, may_be_workspace

_MAX_TIME_LIMIT_S = 86_400


@click.command("check")
@click.argument("places", metavar="[WORKSPACE|FILE]...", nargs=-1, type=PATH)
@harmless_setting(
    "--time-limit",
    "time_limit_s",
    type=click.FloatRange(min=0, min_open=True, max=_MAX_TIME_LIMIT_S),
    default=300,
    show_default=True,
    metavar="SECONDS",
    help="Time limit of the compiler for one file.",
)
@click.option(
    "--machine-code",
    is_flag=True,
    help="Also say which memory accesses, tensor operations and special functions the compiler moved across records.",
)
@json_option
@click.pass_context
def command(
    ctx: click.Context, places: tuple[Path, ...], time_limit_s: float, machine_code: bool, as_json: bool
) -> None:
    """Have Triton verify and lower each .ttgir FILE (- is stdin), or each kernel of a WORKSPACE as it will run.

    Each is lowered for its own target. Needs no GPU.
    """
    if math.isnan(time_limit_s):
        raise click.BadParameter("not a number", param_hint="--time-limit")
    if not is_installed("triton"):
        raise KprofError("check needs Triton, which is not installed", hint=install_command("triton"))
    checks: list[ModuleCheck] = []
    moves: list[_Moves] = []
    with CompilerProcess() as compiler:
        for file in [file for place in places or (DEFAULT_WORKSPACE,) for file in _files_at(place)]:
            check = ModuleCheck(str(file))
            found: _Moves = {}
            try:
                module = parse(*read_input(file))
                check = check_module(module, compiler, time_limit_s)
                if machine_code and check.records and check.error is None:
                    found = moves_in(module, recorded_machine_code_of(module, compiler, time_limit_s))
            except KprofError as error:
                check = replace(check, error=error)
            if check.error is not None:
                print_error(check.error)
            checks.append(check)
            moves.append(found)
    if as_json:
        values = [
            check.to_json() | ({"scopes": [_moved_json(*scope) for scope in found.items()]} if machine_code else {})
            for check, found in zip(checks, moves, strict=True)
        ]
        click.echo(json.dumps(values, indent=1))
    else:
        print_fitted(_layouts(checks), table_console())
        for check, found in zip(checks, moves, strict=True):
            for sentence in _sentences(found):
                click.echo(f"{check.file}: {sentence}")
    ctx.exit(1 if any(check.error for check in checks) else 0)


def _files_at(place: Path) -> Iterator[Path]:
    if not may_be_workspace(place):
        yield place
        return
    workspace = Workspace.open(place)
    for kernel in workspace.require_kernels():
        with_records = workspace.override_path(kernel)
        yield with_records if with_records.exists() else kernel.ttgir_path


_Moves = Mapping[str, Sequence[Moved] | None]  # what the compiler moved out of each scope and into it, by its name


def _moved_json(scope: str, moved: Sequence[Moved] | None) -> dict[str, Any]:
    found = [
        {
            "line": one.line,
            "operation": one.operation,
            "instructions": one.count,
            "of": one.total,
            "where": one.side.name.lower(),
        }
        for one in moved or ()
    ]
    return {"scope": scope, "moved": None if moved is None else found}


def _sentences(found: _Moves) -> Iterator[str]:
    for scope, moved in found.items():
        if moved is None:
            yield f"{scope}: unknown, because no clock read of its start or of its end was found"
        else:
            yield from (one.sentence_on(scope) for one in moved)
    if found and all(moved is not None and not moved for moved in found.values()):
        yield "no memory access, tensor operation or special function was moved across a record"


def _layouts(checks: Sequence[ModuleCheck]) -> list[list[Column]]:
    file = Column("file", [check.file for check in checks], name=True)
    target = Column("target", [str(check.target or "-") for check in checks], left=True)
    result = Column("result", ["failed" if check.error else "ok" for check in checks], left=True)
    columns = []
    for title in ("functions", "operations", "records", "clock reads", "binary bytes", "registers", "spills"):
        numbers = [getattr(check, title.replace(" ", "_")) for check in checks]
        columns.append(Column(title, ["-" if number is None else str(number) for number in numbers]))
    *_, records, clock_reads, _, registers, spills = columns
    return [
        [file, target, *columns, result],
        [file, target, records, clock_reads, registers, spills, result],
        [file, target, records, clock_reads, result],
        [file, result],
    ]
