"""``kprof-inject diff``."""

from __future__ import annotations

import json
import time
from importlib.metadata import distributions
from pathlib import Path
from shlex import quote

import click
from msgspec.structs import replace

from kprof_inject.analysis.comparison.code import changes_between
from kprof_inject.analysis.comparison.verdicts import diff_captures
from kprof_inject.capture.encoding import json_text
from kprof_inject.capture.foreign import BufferDescription
from kprof_inject.capture.model import Capture
from kprof_inject.capture.resources import KernelResources
from kprof_inject.cli.capture_lines import origin_line
from kprof_inject.cli.console import say, table_console
from kprof_inject.cli.options import PATH, CapturePath, harmless_setting, is_given, json_option, require_place_for
from kprof_inject.cli.reading_options import buffer_options, choice_options, redact_option, scope_names_option
from kprof_inject.errors import KprofError, Position, printable_lines
from kprof_inject.files import read_text
from kprof_inject.pipeline.captures import decode_capture, open_capture, with_launch_captured
from kprof_inject.quantities import before_and_after, counted
from kprof_inject.report.diff.rows import change_json, changes_by_text, diff_json, unrecognized_text
from kprof_inject.report.diff.terminal import crossings, parse_limit, print_diff_tables
from kprof_inject.rewrite import strip
from kprof_inject.runtime.compiling.module_check import module_resources
from kprof_inject.timeline.choice import Choice
from kprof_inject.ttgir.parser import parse
from kprof_inject.workspace import Workspace
from kprof_inject.workspace_folder import DEFAULT_WORKSPACE, is_module, is_workspace, workspace_option

_SIDES = ("A", "B")
# Of a saved launch: several are needed to tell a change from noise.
_LAUNCHES = "0:20"
_MODULE_PARAMETERS = ("place", "other", "tritons", "as_json")
"""The parameters that apply to two .ttgir files; all other options are for captures."""
_MORE = "Another capture of {side}, such as one of another process, to show the variation. Repeatable."


@click.command("diff")
@click.argument("place", metavar="[A]", type=CapturePath(), default=DEFAULT_WORKSPACE, required=False)
@click.argument("other", metavar="[B]", type=CapturePath(), required=False)
@click.option("--more-a", "more_a", multiple=True, type=CapturePath(), metavar="PLACE", help=_MORE.format(side="A"))
@click.option("--more-b", "more_b", multiple=True, type=CapturePath(), metavar="PLACE", help=_MORE.format(side="B"))
@click.option("--renamed", multiple=True, metavar="OLD=NEW", help="Kernel OLD in A is named NEW in B. Repeatable.")
@harmless_setting(
    "--fail-above",
    "limit_text",
    metavar="LIMIT",
    help="Exit with code 1 if a launch, or a scope that --scope names, is certainly slower by more than LIMIT (5% or "
    "0.05). Also if this cannot be determined: too few launches, or something that only one side has.",
)
@click.option("--html", "html_path", type=PATH, metavar="FILE", help="Also write the comparison as one HTML page.")
@click.option(
    "--triton",
    "tritons",
    nargs=2,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="FOLDER FOLDER",
    help="Compile A and B with the Triton packages in these folders (pip install --target FOLDER triton==VERSION). "
    "Without B, compile A with both. For .ttgir files.",
)
@choice_options
@scope_names_option
@buffer_options
@redact_option
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    place: Path,
    other: Path | None,
    more_a: tuple[Path, ...],
    more_b: tuple[Path, ...],
    renamed: tuple[str, ...],
    limit_text: str | None,
    html_path: Path | None,
    tritons: tuple[Path, Path] | None,
    choice: Choice,
    names_path: Path | None,
    description: BufferDescription,
    redact: bool,
    as_json: bool,
) -> None:
    """Report what changed from A to B: two captures of the same kernel, before and after a change or with two configs.

    Each is a CAPTURE, a WORKSPACE (its last one), or a BUFFER: a file with Proton's host_buffer, or another profiler's
    that numpy.save wrote. A NAME.launch is repeated and captured first. A single WORKSPACE compares its last two
    captures. Two .ttgir files are compared by what the compiler generated for each source line and, where Triton is
    installed, by the shared memory and registers that they take; only --triton and --json apply to them.
    """
    require_place_for(html_path)
    if other is None:
        place, other = (place, place) if tritons and is_module(place) else _last_two(place)
    if is_module(place) and is_module(other):
        others = [option for option in ctx.command.params if option.name not in _MODULE_PARAMETERS]
        if given := [option.opts[0] for option in others if is_given(ctx, option)]:
            are = "is" if len(given) == 1 else "are"
            raise click.UsageError(f"{', '.join(given)} {are} for captures; .ttgir files have no times")
        _print_changes(place, other, tritons, as_json)
        return
    if tritons:
        raise click.UsageError("--triton is for .ttgir files; captures were compiled already")
    limit = None if limit_text is None else parse_limit(limit_text)
    named, (place, other) = (place, other), [with_launch_captured(side, _LAUNCHES, say) for side in (place, other)]
    sides = dict(zip(_SIDES, ((place, *more_a), (other, *more_b)), strict=True))
    captures = {side: _captures(side, places, names_path, description, redact) for side, places in sides.items()}
    if named == (place, other):
        for side, found in captures.items():
            for capture in found:
                say(f"{side}: {origin_line(capture, time.time_ns()) or capture.folder}")
        a, b = ({capture.folder.resolve() for capture in found} for found in captures.values())
        if a & b:
            say("A and B are the same capture: no difference can be found")
    # diff_captures filters the scopes: it needs both sides, because B's scopes may have other names in A.
    wanted = replace(choice, scopes=())
    decoded = ([one for capture in side for one in decode_capture(capture, say, wanted)] for side in captures.values())
    diff = diff_captures(*decoded, scopes=choice.scopes, renamed=dict(map(_names, renamed)))
    if html_path is not None:
        from kprof_inject.report.diff.page import write_diff_page

        write_diff_page(html_path, diff, (named[0].name, named[1].name) if redact else (str(named[0]), str(named[1])))
        say(f"wrote {html_path}")
    if as_json:
        click.echo(json_text(diff_json(diff)))
    else:
        print_diff_tables(diff, table_console())
        if limit is None and named == (place, other):
            names = ",".join(description.names)
            read = {"--scope-names": names_path, "--buffer-format": description.format, "--names": names}
            options = "".join(f" {option} {quote(str(value))}" for option, value in read.items() if value)
            page = "; as a page: diff --html FILE" if html_path is None else ""
            say(f"where B's time goes: kprof-inject report {quote(str(other))}{options}{page}")
    if limit is not None and (crossed := list(crossings(diff, limit, choice.scopes))):
        for crossing in crossed:
            say(f"--fail-above {100 * limit:g}%: {crossing}")
        ctx.exit(1)


def _print_changes(a: Path, b: Path, tritons: tuple[Path, Path] | None, as_json: bool) -> None:
    versions = " → ".join(map(_version_in, tritons or ()))
    changes, differing = changes_between(a, b)
    builds: list[KernelResources | None] = []
    if tritons or changes or differing:
        builds = [_build_of(path, triton) for path, triton in zip((a, b), tritons or (None, None), strict=True)]
    if as_json:
        fields = [build and {name: getattr(build, name) for name in _BUILD_FIELDS.values()} for build in builds]
        values = {
            "changes": list(map(change_json, changes)),
            "differing_lines": differing,
            "builds": dict(zip("ab", fields, strict=True)) if any(builds) else None,
        }
        click.echo(json.dumps(values, indent=1))
        return
    for line in changes_by_text(changes) if changes else [unrecognized_text(differing)]:
        click.echo(printable_lines(line))
    if any(builds):
        parts = []
        for name, field in _BUILD_FIELDS.items():
            numbers = (getattr(build, field, None) for build in builds)
            text = before_and_after(*("-" if number is None else str(number) for number in numbers))
            parts += [f"{name} {text}"] if text != "-" else []
        click.echo(f"compiled {f'by Triton {versions}' if versions else 'here'}: {', '.join(parts)}")


# Fields of a build by their names in the comparison of captures.
_BUILD_FIELDS = {
    "shared bytes": "shared_bytes",
    "registers": "registers",
    "spills": "spills",
    "CTAs per SM": "ctas_per_sm",
}


def _version_in(folder: Path) -> str:
    if not (folder / "triton" / "__init__.py").is_file():
        what = f"no Triton in {folder}: unpack one with pip install --no-deps --target {quote(str(folder))} triton"
        raise click.BadParameter(what, param_hint="--triton")
    return next((one.version for one in distributions(name="triton", path=[str(folder)])), folder.name)


def _build_of(path: Path, triton: Path | None) -> KernelResources | None:
    module = parse(read_text(path), str(path))
    try:
        return module_resources(module, strip(module), triton)
    except KprofError as error:
        say(f"the shared memory of {path} is unknown: {error.what}")
        return None


def _last_two(place: Path) -> tuple[Path, Path]:
    if not is_workspace(place) and place.exists():
        raise click.UsageError("Missing argument 'B': the capture or workspace to compare A with.")
    folders = Workspace.open(place).capture_folders()
    if len(folders) < len(_SIDES):
        when = "profile once more" if folders else "profile before a change and after it"
        hint = f"{when}: kprof-inject profile{workspace_option(place)} -- PROG; or name two: kprof-inject diff A B"
        raise KprofError(f"{place} has {counted(len(folders), 'capture')}, but diff compares two", hint=hint)
    before, after = folders[-len(_SIDES) :]
    return before, after


def _captures(
    side: str, places: tuple[Path, ...], names_path: Path | None, description: BufferDescription, redact: bool
) -> list[Capture]:
    # Each place is opened once: the same capture twice does not show how captures vary.
    found: dict[Path, Capture] = {}
    for place in places:
        capture = open_capture(place, names_path, description, redact=redact)
        if found.setdefault(capture.folder.resolve(), capture) is not capture:
            say(f"skipped {place}: {side} already has this capture")
    return list(found.values())


def _names(text: str) -> tuple[str, str]:
    old, _, new = text.partition("=")
    if not (old and new):
        where, hint = Position("--renamed", 1, 1, text), "write OLD=NEW: the kernel's name in A, and in B"
        raise KprofError(f"cannot read the names {text!r}", where=where, hint=hint, exit_code=2)
    return old, new
