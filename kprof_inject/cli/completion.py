"""What the shell offers: for ``--at`` the selectors that find something in the workspace at hand, for ``--scope`` the
names of the scopes in the capture at hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kprof_inject.errors import KprofError
from kprof_inject.files import read_text

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


def complete_selectors(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Selectors of every kernel in the workspace (or file) on the command line; nothing where there is none."""
    return _offered(_selectors_of, ctx, incomplete)


def complete_scopes(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of scopes of every kernel in the capture on the command line; nothing where there is none."""
    return _offered(_scopes_of, ctx, incomplete)


def _offered(texts_of: Callable[[Path], list[str]], ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    # Click assigns no argument while an option's value is missing.
    words = ctx.args[:1] if "place" in ctx.params else []
    place = ctx.params.get("place") or next(iter(words), None) or ctx.params.get("workspace") or "kprof_out"
    try:
        found = texts_of(Path(place))
    except (KprofError, OSError):
        found = []
    # The shell prints what it is offered, and takes each line for an offer.
    return [CompletionItem(text) for text in found if text.startswith(incomplete) and text.isprintable()]


def _selectors_of(place: Path) -> list[str]:
    from kprof_inject.insertion import view_of, views_in
    from kprof_inject.select.candidates import candidates
    from kprof_inject.workspace import Workspace, snapshot_beside

    if place.is_dir():
        views = [view for view in views_in(Workspace.open(place)) if not isinstance(view, KprofError)]
    else:
        views = [view_of(read_text(place), str(place), snapshot_beside(place))]
    return list(dict.fromkeys(text for view in views for text in candidates(view)))


def _scopes_of(place: Path) -> list[str]:
    from kprof_inject.cli.captures import open_capture

    tables = [launch.kernel.scopes for launch in open_capture(place).launches]
    return list(dict.fromkeys(scope.name for table in tables for scope in table.scopes))
