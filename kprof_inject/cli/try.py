"""``kprof-inject try``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from kprof_inject.analysis.program import Report
from kprof_inject.capture.edits import MAX_COMBINATIONS, Constant, EditsRecord, max_combinations
from kprof_inject.capture.model import Capture
from kprof_inject.capture.reader import read_capture
from kprof_inject.capture.recording import Recording
from kprof_inject.cli.capture_lines import print_tried
from kprof_inject.cli.console import INTERRUPTED, say
from kprof_inject.cli.kernel_sources import KernelSource
from kprof_inject.cli.options import (
    PROGRAM_SETTINGS,
    WorkspaceOrProgram,
    gathered,
    harmless_setting,
    json_option,
    kernel_option,
    names_a_workspace,
    workspace_option,
)
from kprof_inject.cli.plans import say_kernels_briefly
from kprof_inject.errors import KprofError, Position
from kprof_inject.insertion import insert_kernels, write_insertions
from kprof_inject.pipeline.captures import experiments_at, report_on
from kprof_inject.pipeline.edit_trials import TryChoice, try_edits
from kprof_inject.pipeline.saved_launches import saved_launches_of
from kprof_inject.runtime.program import STOPPED
from kprof_inject.runtime.worker.edit_kinds import KINDS, parse_edits
from kprof_inject.timeline.choice import EVERYTHING, Choice
from kprof_inject.workspace import Workspace
from kprof_inject.workspace_folder import held

_WITHOUT_RECORDS = "so there are no findings, and only options next to the present ones are tried"
_VALUES = "--values"
_FORM = "NAME=VALUE,VALUE: integers, True and False; such as BLOCK_M=64,128"
_WORDS = {"True": True, "False": False}


def _choice(edits: tuple[str, ...], values: tuple[str, ...], **chosen: Any) -> TryChoice:
    return TryChoice(edits=tuple(map(parse_edits, edits)), values=_parsed_values(values), **chosen)


def _parsed_values(texts: Iterable[str]) -> dict[str, tuple[Constant, ...]]:
    found: dict[str, tuple[Constant, ...]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not name.isidentifier() or not equals:
            raise _wrong_values(text, 0, f"cannot read the values {text!r}")
        parsed: list[Constant] = []
        offset = len(name) + 1
        for word in values.split(","):
            if word not in _WORDS and not (word.isascii() and word.removeprefix("-").isdigit()):
                raise _wrong_values(text, offset, f"{word!r} is no value of a constant")
            parsed.append(_WORDS[word] if word in _WORDS else int(word))
            offset += len(word) + 1
        found[name] = (*found.get(name, ()), *parsed)
    if max_combinations(found) > MAX_COMBINATIONS:
        raise KprofError(
            f"{_VALUES} makes {max_combinations(found)} combinations, and the limit is {MAX_COMBINATIONS}",
            hint="name fewer values, or fewer constants at once",
            exit_code=2,
        )
    return found


def _wrong_values(text: str, offset: int, what: str) -> KprofError:
    return KprofError(what, where=Position(_VALUES, 1, offset + 1, text), hint=_FORM, exit_code=2)


@click.command("try", cls=WorkspaceOrProgram, context_settings=PROGRAM_SETTINGS)
@workspace_option
@gathered(
    "choice",
    _choice,
    kernel_option,
    harmless_setting(
        "--seconds",
        type=click.FloatRange(min=0.1, max=3600),
        default=TryChoice().seconds,
        show_default=True,
        help="Time limit per kernel, for compiling and measuring. Each result is printed when it is known; the best so "
        "far is the answer, also after Ctrl-C.",
    ),
    harmless_setting(
        "--tolerance",
        type=click.FloatRange(min=0, max=1),
        metavar="PART",
        help="Largest difference of floating-point results, as a part of the largest in the same memory. [default: "
        "0.01 for 16 bits, 0.0001 for 32]",
    ),
    harmless_setting(
        "--grid",
        default="",
        metavar="EXPRESSION",
        help="Grid of the launch with other values, if the program gives no function for it, such as "
        "'cdiv(M, BLOCK_M) * cdiv(N, BLOCK_N)': of its integer arguments and constants.",
    ),
    harmless_setting(
        _VALUES,
        "values",
        multiple=True,
        metavar="NAME=VALUE,…",
        help="Also try these values of a compile-time constant of the kernel, such as BLOCK_M=64,128. Those of "
        f"several constants are combined, at most {MAX_COMBINATIONS} times. Repeatable.",
    ),
    harmless_setting(
        "--edit",
        "edits",
        multiple=True,
        metavar="NAME=VALUE",
        help=f"Try this edit, not those that the findings propose: {', '.join(KINDS)}. NAME=VALUE,NAME=VALUE are "
        "tried together, and so are several options. Repeatable.",
    ),
)
@json_option
@click.argument("program", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def command(ctx: click.Context, workspace: Path, choice: TryChoice, as_json: bool, program: tuple[str, ...]) -> None:
    """Edit each kernel mechanically, measure the edits on a saved launch, and show which of them make it faster.

    With PROGRAM: profile it first, and save a launch of each kernel. With NAME.launch: capture and repeat that launch.
    With only a WORKSPACE: repeat the launches that "profile --keep-launches" saved. The program itself is never
    changed.
    """
    kernel = choice.kernel
    is_dumped = bool(program) and names_a_workspace(program[0])
    if is_dumped:
        workspace, program = Path(program[0]), program[1:]
    if not program:
        opened = Workspace.open(workspace)
        with held(workspace, say):
            capture = read_capture(opened.last_capture_folder())
            launches = saved_launches_of(opened, capture.folder)
            records = try_edits(opened, launches, _report(capture, opened, kernel), choice, say)
            print_tried(opened, records, as_json=as_json)
        ctx.exit(_exit_code(records))
    source = KernelSource(program, kernel, "try")
    with held(workspace, say):
        opened = Workspace.open(workspace) if is_dumped else Workspace.begin(workspace)
        if not is_dumped and (code := source.dump(opened, kernel, choice.values)) in STOPPED:
            ctx.exit(code)
        kernels = insert_kernels(opened, ())
        write_insertions(opened, kernels)
        say_kernels_briefly(workspace, kernels, ())
        recording = Recording(kernel=kernel, keep_launches=True, counters="default")
        captured, exit_code = source.record(opened, recording, instead=_WITHOUT_RECORDS)
        if exit_code in STOPPED:
            ctx.exit(exit_code)
        launches = source.launches(opened, captured)
        records = try_edits(opened, launches, _report(captured, opened, kernel), choice, say)
        print_tried(opened, records, as_json=as_json)
    ctx.exit(exit_code or _exit_code(records))


def _exit_code(records: Sequence[EditsRecord]) -> int:
    if records[-1].ended == "interrupted":
        return INTERRUPTED
    return 0 if any(record.is_answered for record in records) else 1


def _report(capture: Capture | None, workspace: Workspace, kernel: str) -> Report:
    try:
        experiments = experiments_at(workspace.folder, say)
        choice = EVERYTHING if kernel == "*" else Choice(kernels=(kernel,))
        return report_on(capture, experiments, say, choice) if capture else Report(())
    except KprofError as error:
        say(f"{_WITHOUT_RECORDS.removeprefix('so ')}: {error.what}")
        return Report(())
