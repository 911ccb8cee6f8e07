"""Settings in ``[tool.kprof-inject]`` of the program's ``pyproject.toml``: defaults for the commands' options.

A key is an option's long name. The command line overrides it. The file is that of the project that the program's script
belongs to, or the current folder if there is no script.

The file is trusted no more than the command needs. A command that runs a script of the project also takes each
``ProgramSetting`` from it. A program without a script may not belong to the project: then only each ``ProgramSetting``
that names a file in the project's folder is taken. All other commands, also those that repeat a saved launch, may be
reading files that others made, and take only each ``HarmlessSetting``.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any, cast

import click

from kprof_inject.capture.saved_launch import names_saved_launch
from kprof_inject.cli.console import say
from kprof_inject.cli.options import HarmlessSetting, NumberOrWord, ProgramSetting, is_given, names_a_workspace
from kprof_inject.cli.reading_options import Numbers
from kprof_inject.errors import KprofError, Position, did_you_mean
from kprof_inject.files import read_regular

_FILE = "pyproject.toml"
_MAX_BYTES = 1 << 20
_REPOSITORIES = (".git", ".hg")
_HEADER = re.compile(r"^[ \t]*\[[ \t]*tool[ \t]*\.[ \t]*[\"']?kprof-inject[\"']?[ \t]*\]", re.MULTILINE)
_TOML_PLACE = re.compile(r" \(at (?:line (?P<line>\d+), column (?P<column>\d+)|end of document)\)$")

# The TOML types that an option accepts, and their names in messages; the first row that fits the parameter's type.
_KINDS: tuple[tuple[type[Any], tuple[type, ...], str], ...] = (
    (NumberOrWord, (int, str), 'a whole number or a word such as "auto"'),
    (Numbers, (int, str), 'a whole number, or a string such as "0,4-7,12-"'),
    (click.types.IntParamType, (int,), "a whole number"),
    (click.types.FloatParamType, (int, float), "a number"),
    (click.types.BoolParamType, (bool,), "true or false"),
    (click.ParamType, (str,), "a string"),
)


@dataclass(frozen=True, slots=True)
class _Settings:
    """The settings of a file in ``folder``; messages call the file ``name``."""

    folder: Path
    name: str
    text: str
    values: dict[str, Any]

    def leads_outside(self, key: str) -> bool:
        value = self.values[key]
        is_path = isinstance(value, str) and "\0" not in value
        return is_path and not Path(os.path.realpath(value)).is_relative_to(os.path.realpath(self.folder))

    def error(self, key: str, what: str, hint: str = "") -> KprofError:
        header = _HEADER.search(self.text)
        assignment = re.compile(rf"(?:^|[{{,.])[ \t]*([\"']?{re.escape(key)}[\"']?)\s*[=.\]]", re.MULTILINE)
        found = assignment.search(self.text, header.end() if header else 0)
        where = Position.at_offset(self.name, self.text, found.start(1) if found else 0)
        return KprofError(what, where=where, hint=hint, exit_code=2)


def apply_settings(ctx: click.Context, name: str, command: click.Command, args: Sequence[str]) -> None:
    """Set the defaults of the command that the group's ``ctx`` is about to start from the settings."""
    # Resilient parsing raises nothing and runs nothing; it finds the program among the arguments.
    words = command.make_context(name, list(args), parent=ctx, resilient_parsing=True)
    help_option = command.get_help_option(words)
    if help_option is not None and is_given(words, help_option):
        return
    program: Sequence[str] = words.params.get("program") or ()
    if program and names_a_workspace(program[0]):
        program = program[1:]
    if program and names_saved_launch(Path(program[0])):
        program = ()
    own_words = takewhile(lambda word: word not in ("-m", "-c"), program)  # what follows these is data
    script = next((word for word in own_words if word.endswith(".py") and os.path.isfile(word)), "")
    settings = _read(Path(os.path.abspath(script)).parent if script else Path.cwd())
    if settings is None:
        return
    options = _options(command)
    if not settings.values.keys() <= options.keys():  # importing the other commands takes time
        group = cast(click.Group, ctx.command)
        commands = (group.get_command(ctx, other) for other in group.list_commands(ctx))
        keys = {key for one in commands if one is not None for key in _options(one)}
        for key in settings.values:
            if key not in keys:
                hint = did_you_mean(key, keys).rstrip() or f"the settings are {', '.join(sorted(keys))}"
                raise settings.error(key, f"there is no setting {key!r}", hint)
    known = {key: option for key, option in options.items() if key in settings.values}
    allowed = {
        key: option
        for key, option in known.items()
        if script or isinstance(option, HarmlessSetting) or (program and not settings.leads_outside(key))
    }
    ignored = [f"--{key}" for key, option in known.items() if key not in allowed and not is_given(words, option)]
    if ignored:
        where = f"point outside {settings.folder}, as no Python script is run" if program else "set here"
        say(f"ignored in {settings.name}: {', '.join(ignored)}, which only the command line can {where}")
    defaults = {key: _checked(settings, key, option, words) for key, option in allowed.items()}
    ctx.default_map = {name: {allowed[key].name: value for key, value in defaults.items()}}
    used = [key for key, option in allowed.items() if not is_given(words, option)]
    if used:
        say(f"settings of {settings.name}: {', '.join(used)}")


def _project_file(start: Path) -> Path | None:
    # The project is the nearest folder that has the file, but a project never extends above its repository, nor into a
    # folder of many projects: the home folder, the root, and what everybody can write to, such as ``/tmp``.
    for folder in (start, *start.parents):
        if folder != start and _has_many_projects(folder):
            return None
        if os.path.isfile(folder / _FILE):
            return folder / _FILE
        if any(os.path.exists(folder / name) for name in _REPOSITORIES):
            return None
    return None


def _has_many_projects(folder: Path) -> bool:
    try:
        mode = folder.stat().st_mode
    except OSError:
        return True
    real = os.path.realpath(folder)
    return bool(mode & stat.S_IWOTH) or real in ("/", os.path.realpath(os.path.expanduser("~")))


def _read(folder: Path) -> _Settings | None:
    path = _project_file(folder)
    if path is None:
        return None
    import tomllib

    name = str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
    try:
        text = read_regular(path, _MAX_BYTES).decode()
        tools = tomllib.loads(text).get("tool")
    except RecursionError:
        raise KprofError(f"{name} is nested too deep to be read") from None
    except tomllib.TOMLDecodeError as error:
        message = str(error)
        place, where = _TOML_PLACE.search(message), Position.at_offset(name, text, len(text))
        if place is not None and place["line"]:
            line = int(place["line"])
            where = Position(name, line, int(place["column"]), text.split("\n")[line - 1].rstrip("\r"))
        raise KprofError(f"this is not TOML: {_TOML_PLACE.sub('', message)}", where=where) from None
    except UnicodeDecodeError as error:
        raise KprofError(f"{name} is not TOML: byte {error.start} is not UTF-8") from None
    values = tools.get("kprof-inject", {}) if isinstance(tools, dict) else {}
    settings = _Settings(path.parent, name, text, values)
    if not isinstance(values, dict):
        raise settings.error("kprof-inject", "the settings are not a table", "write [tool.kprof-inject]")
    return settings


def _options(command: click.Command) -> dict[str, click.Option]:
    # By their long names; all others can only be set on the command line.
    return {
        word.removeprefix("--"): parameter
        for parameter in command.params
        if isinstance(parameter, HarmlessSetting | ProgramSetting)
        for word in parameter.opts
        if word.startswith("--")
    }


def _checked(settings: _Settings, key: str, option: click.Option, ctx: click.Context) -> Any:
    value = settings.values[key]
    items = value if option.multiple and isinstance(value, list) else [value]
    kinds, words = next((kinds, words) for kind, kinds, words in _KINDS if isinstance(option.type, kind))
    for item in items:
        if type(item) not in kinds:  # not isinstance: a bool is an int
            expected = f"a list in which each item is {words}" if option.multiple else words
            raise settings.error(key, f"{key} must be {expected}")
        if "\0" in str(item):  # on a command line there is none
            raise settings.error(key, f"invalid value for {key}: it has a null character")
        try:
            option.type.convert(item, option, ctx)
        except click.BadParameter as error:
            raise settings.error(key, f"invalid value for {key}: {error.message}") from None
        except KprofError as error:
            raise settings.error(key, f"invalid value for {key}: {error.what}", error.hint) from None
    return items if option.multiple else value
