"""Settings in ``[tool.kprof-inject]`` of the program's ``pyproject.toml``: defaults for the commands' options.

A key is an option's long name. The file is the nearest one above the program's script, or above the current folder if
there is no script. What the command line says goes before.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from kprof_inject.cli.console import say
from kprof_inject.cli.options import NumberOrAuto
from kprof_inject.cli.reading_options import Numbers
from kprof_inject.errors import KprofError, Position, did_you_mean

_FILE = "pyproject.toml"
_HEADER = re.compile(r"^[ \t]*\[[ \t]*tool[ \t]*\.[ \t]*[\"']?kprof-inject[\"']?[ \t]*\]", re.MULTILINE)
_TOML_PLACE = re.compile(r" \(at (?:line (?P<line>\d+), column (?P<column>\d+)|end of document)\)$")

# What makes sense for a single call alone, such as the file of its result or the names that go with a buffer;
# ``output`` as a setting is the workspace.
_OF_ONE_CALL = frozenset(
    {
        *("output", "plan_path", "html_path", "names_path", "into"),
        *("tag", "dry_run", "as_diff", "as_json", "no_browser", "once"),
        *("more_a", "more_b", "renamed", "question_text"),
    }
)

# What TOML may hold for an option: the first row whose kind of parameter fits.
_KINDS: tuple[tuple[type[Any], tuple[type, ...], str], ...] = (
    (NumberOrAuto, (int, str), 'a whole number or "auto"'),
    (Numbers, (int, str), 'a whole number, or a string such as "0,4-7,12-"'),
    (click.types.IntParamType, (int,), "a whole number"),
    (click.types.FloatParamType, (int, float), "a number"),
    (click.types.BoolParamType, (bool,), "true or false"),
    (click.ParamType, (str,), "a string"),
)


@dataclass(frozen=True, slots=True)
class Settings:
    """The table of one file. ``name`` is what to call the file."""

    name: str
    text: str
    values: dict[str, Any]

    def error(self, key: str, what: str, hint: str = "") -> KprofError:
        """A usage error at the key's place."""
        return KprofError(what, where=self._place(key), hint=hint, exit_code=2)

    def _place(self, key: str) -> Position:
        header = _HEADER.search(self.text)
        assignment = re.compile(rf"(?:^|[{{,.])[ \t]*([\"']?{re.escape(key)}[\"']?)\s*[=.\]]", re.MULTILINE)
        found = assignment.search(self.text, header.end() if header else 0)
        return Position.at_offset(self.name, self.text, found.start(1) if found else 0)


def apply_settings(ctx: click.Context, name: str, command: click.Command, args: Sequence[str]) -> None:
    """Have the command that the group's ``ctx`` is about to start take its defaults from the settings."""
    # A first reading of the words, which complains of nothing and does nothing, finds the program in them.
    words = command.make_context(name, list(args), parent=ctx, resilient_parsing=True)
    help_option = command.get_help_option(words)
    if help_option is not None and _is_given(words, help_option):
        return
    settings = _read(_folder_of(words.params.get("program") or ()))
    if settings is None:
        return
    options = _options(command)
    _require_known(settings, options, ctx)
    mine = {key: option for key, option in options.items() if key in settings.values}
    defaults = {key: _checked(settings, key, option, words) for key, option in mine.items()}
    ctx.default_map = {name: {mine[key].name: value for key, value in defaults.items()}}
    used = [key for key, option in mine.items() if not _is_given(words, option)]
    if used:
        say(f"settings of {settings.name}: {', '.join(used)}")


def _folder_of(program: Iterable[str]) -> Path:
    """Where the program's script lies; the current folder if it has none."""
    script = next((word for word in program if word.endswith(".py") and os.path.isfile(word)), None)
    return Path(os.path.abspath(script)).parent if script else Path.cwd()


def _read(folder: Path) -> Settings | None:
    path = next((path for above in (folder, *folder.parents) if (path := above / _FILE).is_file()), None)
    if path is None:
        return None
    import tomllib

    name = str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
    try:
        text = path.read_bytes().decode()
        tools = tomllib.loads(text).get("tool")
    except RecursionError:
        raise KprofError(f"{name} is nested too deep to be read") from None
    except tomllib.TOMLDecodeError as error:
        raise _broken(name, text, str(error)) from None
    except UnicodeDecodeError as error:
        raise KprofError(f"{name} is not TOML: byte {error.start} is not UTF-8") from None
    except OSError as error:
        raise KprofError(f"cannot read {name}: {error.strerror}") from None
    values = tools.get("kprof-inject", {}) if isinstance(tools, dict) else {}
    settings = Settings(name, text, values)
    if not isinstance(values, dict):
        raise settings.error("kprof-inject", "the settings are not a table", "write [tool.kprof-inject]")
    return settings


def _broken(name: str, text: str, message: str) -> KprofError:
    place = _TOML_PLACE.search(message)
    where = Position.at_offset(name, text, len(text))
    if place is not None and place["line"]:
        line = int(place["line"])
        where = Position(name, line, int(place["column"]), text.split("\n")[line - 1].rstrip("\r"))
    return KprofError(f"this is not TOML: {_TOML_PLACE.sub('', message)}", where=where)


def _options(command: click.Command) -> dict[str, click.Option]:
    """The options that settings may give to a command, by their long names."""
    return {
        word.removeprefix("--"): parameter
        for parameter in command.params
        if isinstance(parameter, click.Option) and parameter.name not in _OF_ONE_CALL
        for word in parameter.opts
        if word.startswith("--")
    }


def _require_known(settings: Settings, mine: Iterable[str], ctx: click.Context) -> None:
    """Raise for a key that no command has. The other commands are loaded only if this one does not have it."""
    foreign = settings.values.keys() - set(mine)
    if not foreign:
        return
    known = {key for command in _commands(ctx) for key in _options(command)}
    for key in settings.values:
        if key not in known:
            hint = did_you_mean(key, known).rstrip() or f"the settings are {', '.join(sorted(known))}"
            raise settings.error(key, f"there is no setting {key!r}", hint)


def _commands(ctx: click.Context) -> Iterator[click.Command]:
    group = ctx.command
    if isinstance(group, click.Group):
        for name in group.list_commands(ctx):
            command = group.get_command(ctx, name)
            if command is not None:
                yield command


def _checked(settings: Settings, key: str, option: click.Option, ctx: click.Context) -> Any:
    """The key's value if the option can take it. Raises a usage error that names the place otherwise."""
    value = settings.values[key]
    items = value if option.multiple and isinstance(value, list) else [value]
    kinds, words = next((kinds, words) for kind, kinds, words in _KINDS if isinstance(option.type, kind))
    for item in items:
        if type(item) not in kinds:  # a bool is an int, but no number
            raise settings.error(key, f"{key} must be {f'a list: {words} for each' if option.multiple else words}")
        try:
            option.type.convert(item, option, ctx)
        except click.BadParameter as error:
            raise settings.error(key, f"invalid value for {key}: {error.message}") from None
        except KprofError as error:
            raise settings.error(key, f"invalid value for {key}: {error.what}", error.hint) from None
    return items if option.multiple else value


def _is_given(ctx: click.Context, option: click.Option) -> bool:
    return ctx.get_parameter_source(option.name or "") is ParameterSource.COMMANDLINE
