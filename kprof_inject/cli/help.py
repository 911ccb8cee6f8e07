"""``kprof-inject help``."""

from __future__ import annotations

import click


@click.command("help")
@click.argument("names", metavar="[COMMAND]...", nargs=-1)
@click.pass_context
def command(ctx: click.Context, names: tuple[str, ...]) -> None:
    """Show the help of a command, or of the whole program."""
    shown = ctx.find_root()
    for name in names:
        if not isinstance(shown.command, click.Group):
            raise click.UsageError(f"{shown.command_path} has no commands, such as {name!r}.")
        _, found, _ = shown.command.resolve_command(shown, [name])
        if found is None:
            raise click.UsageError(f"No such command {name!r}.")
        shown = click.Context(found, parent=shown, info_name=name, color=ctx.color)
    click.echo(shown.get_help(), color=ctx.color)
