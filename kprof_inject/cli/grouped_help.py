"""Help of commands: options in groups, rare ones only with ``--help-all``, and what replaced what is gone."""

from __future__ import annotations

import click

_GROUPS: dict[str, tuple[str, ...]] = {
    "What to record": ("selectors", "tag", "split", "iter_records", "kernel", "launches", "ctas", "warps"),
    "Where results go": ("workspace", "trace_path", "layout", "as_json", "keep_launches", "max_bytes", "max_launches"),
    "What else to measure": ("counters", "torch_profiler", "tries", "replay"),
}
"""The parameters of each group by name, in the order of the help; all others are below ``_OTHERS``."""
_OTHERS = "How records are made, and the program is run"

_RARE = {
    *("--buffer-type", "--buffer-size", "--clock32", "--iter-records"),
    *("--sched-barriers", "--sched-stores", "--split", "--warps"),
    *("--max-bytes", "--max-launches"),
    *("--more-a", "--more-b", "--sm", "--warp"),
    *("--buffer-format", "--json-schema", "--names", "--scope-names"),
}
"""Options that few users need: how records are made, limits of what is kept, parts of launches, others' buffers."""


def hide_rare_options(command: click.Command) -> None:
    """Leave rare options out of a command's help; add ``--help-all``, which lists them, if it has any."""
    rare = [option for option in command.params if _RARE.intersection(option.opts) and isinstance(option, click.Option)]

    def show_all(ctx: click.Context, parameter: click.Parameter, is_given: bool) -> None:
        if is_given and not ctx.resilient_parsing:
            for option in rare:
                option.hidden = False
            click.echo(ctx.get_help(), color=ctx.color)
            ctx.exit()

    for option in rare:
        option.hidden = True
    if rare:
        text = "Show the help with rare options, and exit."
        command.params.append(
            click.Option(["--help-all"], is_flag=True, is_eager=True, expose_value=False, callback=show_all, help=text)
        )


class GroupedCommand(click.Command):
    """Command whose help has its options in groups."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a section for each group, and one for the other options."""
        records = {parameter.name: parameter.get_help_record(ctx) for parameter in self.get_params(ctx)}
        rows = {name: row for name, row in records.items() if row is not None}
        grouped = {title: [name for name in names if name in rows] for title, names in _GROUPS.items()}
        known = {name for names in grouped.values() for name in names}
        grouped[_OTHERS] = [name for name in rows if name not in known]
        for title, names in grouped.items():
            if names:
                with formatter.section(title):
                    formatter.write_dl([rows[name] for name in names])


GONE_COMMANDS = {
    "compare": "profile twice, into two workspaces; then kprof-inject diff A B",
    "explain": "use kprof-inject report --json --budget N",
    "help": "use kprof-inject --help, or COMMAND --help",
    "launch": "kprof-inject report NAME.launch repeats a saved launch; profile, try and causal take one, too",
    "view": "use kprof-inject trace --open",
    "watch": "profile now and then, and compare two profiles with kprof-inject diff",
}
"""What to use instead of a command that is gone, by its name; until 1.0, an error says so."""

GONE_OPTIONS: dict[tuple[str, str], str] = {
    ("dump", "--sample-program"): "profile samples why warps wait, kernel by kernel",
    ("profile", "--sample-program"): "profile samples why warps wait, kernel by kernel",
    ("report", "--ncu"): "profile reads the counters itself",
    ("trace", "--into"): "use profile --torch-profiler",
    **{(name, "--buffer-units"): "buffers of CuTe are not read" for name in ("diff", "report", "trace")},
    ("causal", "--no-replay"): "leave it out: causal repeats saved launches",
    ("causal", "--replay-in-program"): "leave it out: causal repeats saved launches",
    **{(name, "--buffer"): "use --buffer-type" for name in ("profile", "run")},
    **{(name, "--buffer-bytes"): "use --buffer-size" for name in ("profile", "run")},
    **{(name, "--clock"): "use --clock32, or leave it out" for name in ("profile", "run")},
    **{(name, "--no-replay"): "use --replay none" for name in ("profile", "run")},
    ("profile", "--replay-in-program"): "use --replay N, which repeats saved launches",
    ("profile", "--two-runs"): "use kprof-inject dump, insert and run",
    ("run", "--replay-in-program"): "use --replay N, which repeats saved launches",
    ("try", "--bounds"): "try measures edits alone",
    ("try", "--no-bounds"): "leave it out: try measures edits alone",
}
"""What to use instead of an option that is gone, by the names of the command and of the option."""
