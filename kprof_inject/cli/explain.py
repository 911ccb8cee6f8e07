"""``kprof-inject explain``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import click

from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.analysis.program_overview import overview
from kprof_inject.capture.foreign_buffer import BufferDescription
from kprof_inject.capture.model import Capture
from kprof_inject.cli.console import say
from kprof_inject.cli.options import HarmlessSetting, place_argument
from kprof_inject.cli.reading_options import buffer_options, launch_options, scope_names_option
from kprof_inject.errors import KprofError, Position
from kprof_inject.pipeline.captures import decode_capture, experiments_at, numbered_capture, open_capture
from kprof_inject.pipeline.reports import analyses
from kprof_inject.report.explanation.answers import answer
from kprof_inject.report.explanation.budget import DEFAULT_BUDGET, answer_text, explanation_text
from kprof_inject.report.explanation.change import answer_on_change
from kprof_inject.report.explanation.explanation_schema import Answer
from kprof_inject.report.explanation.gathering import explanation
from kprof_inject.report.explanation.questions import CHANGED, FORMS, Question, parse_question
from kprof_inject.timeline.choice import Choice
from kprof_inject.workspace_paths import DEFAULT_WORKSPACE, is_workspace


@click.command("explain")
@place_argument("WORKSPACE|CAPTURE|BUFFER")
@click.option(
    "--budget",
    cls=HarmlessSetting,
    type=click.IntRange(min=1),
    metavar="N",
    default=DEFAULT_BUDGET,
    show_default=True,
    help="Print at most N tokens, of four characters each.",
)
@click.option(
    "--question",
    "question_text",
    metavar="QUESTION",
    help=f"Instead, answer this with one figure and its error: {', '.join(map(str, FORMS.values()))}. Name scopes as "
    "the report does, and captures by their folders.",
)
@launch_options
@scope_names_option
@buffer_options
def command(
    place: Path,
    budget: int,
    question_text: str | None,
    choice: Choice,
    names_path: Path | None,
    said: BufferDescription,
) -> None:
    """Print what limits a launch as one line of JSON, for an agent that tunes kernels. Picks the kernel that takes
    the most time, and leaves out what matters least."""
    opened = partial(open_capture, names_path=names_path, said=said)
    if question_text is not None:
        click.echo(answer_text(_answer(parse_question(question_text), place, choice, opened), budget))
        return
    click.echo(explanation_text(explanation(_reports(place, choice, opened), _workspace(place)), budget))


def _answer(question: Question, place: Path, choice: Choice, opened: Callable[[Path], Capture]) -> Answer:
    if question.form is CHANGED:
        before, after = (opened(numbered_capture(Path(side))) for side in question.arguments)
        if before.folder.resolve() == after.folder.resolve():
            raise KprofError(
                "A and B are the same capture: no difference can be found",
                where=Position("--question", 1, 1, question.text),
                hint="name the captures, or the workspaces, from before the change and after it",
                exit_code=2,
            )
        a, b = (decode_capture(capture, say, choice) for capture in (before, after))
        return answer_on_change(question, a, b)
    return answer(question, overview(_reports(place, choice, opened))[0].middle)


def _reports(place: Path, choice: Choice, opened: Callable[[Path], Capture]) -> Sequence[LaunchAnalysis]:
    return analyses(opened(place), experiments_at(place), say, choice)


def _workspace(place: Path) -> str:
    """What to go on in: empty for the default one, and where no workspace is named."""
    return str(place) if place != DEFAULT_WORKSPACE and is_workspace(place) else ""
