"""What the sides of a comparison differ in, as options of ``compare`` say it."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import ascii_uppercase
from typing import TypeVar

import click

from kprof_inject.errors import KprofError
from kprof_inject.pipeline.compare_runs import ComparedSide

_Setting = TypeVar("_Setting")
_VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def variables_of(texts: Sequence[str]) -> dict[str, str]:
    pairs = [text.partition("=") for text in texts]
    for (name, separator, _), text in zip(pairs, texts, strict=True):
        if not separator or not _VARIABLE.fullmatch(name):
            raise KprofError(
                f"cannot read the variable {text!r}",
                hint="write --env NAME=VALUE, such as --env N=4; a program's argument is for --arg",
                exit_code=2,
            )
    return {name: value for name, _, value in pairs}


def values_of(text: str | None) -> tuple[tuple[str, str], ...]:
    """The name with each of its values."""
    if text is None:
        return ()
    name, _, values = text.partition("=")
    found = tuple((name, value) for value in values.split(","))
    is_option = name.startswith("-")
    if len({*found}) < max(2, len(found)) or not (is_option or _VARIABLE.fullmatch(name)):
        raise KprofError(
            f"cannot read the values {text!r}",
            hint="name at least two different ones: --values NAME=V1,V2 of an environment variable, or "
            "--values --NAME=V1,V2 of an option of the program",
            exit_code=2,
        )
    return found


@dataclass(frozen=True, slots=True)
class ComparedSettings:
    """What the sides differ in, as the options say it. ``variables`` and ``arguments`` are of all sides but A."""

    pythons: Sequence[str]
    tritons: Sequence[Path]
    variables: Mapping[str, str]
    arguments: tuple[str, ...]
    values: Sequence[tuple[str, str]]

    def sides(self, folder: Path, *, bisect: bool) -> list[ComparedSide]:
        """A and B, or, to be bisected, all that were named, in their order."""
        most = max(len(self.pythons), len(self.tritons), len(self.values), 2)
        if not (self.pythons or self.tritons or self.variables or self.arguments or self.values):
            raise click.UsageError("A and B are the same: give --python, --triton, --env, --arg or --values")
        several = {"--python": self.pythons, "--triton": self.tritons, "--values": self.values}
        for option, given in several.items():
            if 1 < len(given) != most:
                raise click.UsageError(f"{option} has {len(given)} values for {most} sides")
        if self.values and self.values[0][0] in self.variables:
            raise click.UsageError(f"--env and --values both set {self.values[0][0]}")
        if most > 2 and not bisect:
            raise click.UsageError(f"there are {most} settings: give --bisect to find the first that is slower")
        if bisect and most < 3:
            raise click.UsageError("--bisect needs at least three --python or --triton, or three --values")
        return [self._side(folder, number, most) for number in range(most)]

    def _side(self, folder: Path, number: int, most: int) -> ComparedSide:
        python, triton = _of_side(self.pythons, number, most), _of_side(self.tritons, number, most)
        variables, arguments = (dict(self.variables), self.arguments) if number else ({}, ())
        value = self.values[number] if self.values else None
        if value and value[0].startswith("-"):
            arguments += value
        elif value:
            variables[value[0]] = value[1]
        letter = ascii_uppercase[number] if number < len(ascii_uppercase) else f"side {number + 1}"
        told = ", ".join(str(one) for one in (python, triton, value and "=".join(value)) if one)
        name = f"{letter} ({told})" if told else letter
        return ComparedSide(
            name, folder / letter, python or sys.executable, triton and triton.absolute(), variables, arguments
        )


def _of_side(settings: Sequence[_Setting], number: int, most: int) -> _Setting | None:
    """One setting alone is the last side's; else each has its own."""
    if len(settings) == 1:
        return settings[0] if number == most - 1 else None
    return settings[number] if number < len(settings) else None
