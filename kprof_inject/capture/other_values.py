"""Other values of a kernel's compile-time constants: the TTIR that Triton makes with them, and the grid of a launch.

The dump step makes them for ``try --values``, next to the kernel; a saved launch adds the grids.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import Annotated

from msgspec import Meta, Struct

from kprof_inject.capture.encoding import decode, encode, read_json
from kprof_inject.capture.schema import END_OF_GRID_SIZES, Grid, Name, Text
from kprof_inject.files import write_bytes

_VALUES_FILE = "values.json"
MAX_COMBINATIONS = 24
_GRID_DIMENSIONS = 3

Constant = bool | int
Values = dict[Name, Constant]
"""Values of some of a kernel's compile-time constants, by name."""

WantedValues = Mapping[str, tuple[Constant, ...]]
"""Values to try of constants, by name."""

NO_VALUES: WantedValues = MappingProxyType({})


class OtherValues(Struct, frozen=True, kw_only=True):
    """Other values of a kernel's constants.

    ``ttir`` is what Triton makes with them; empty if it refuses them, because of ``refusal``. ``grid`` is that of the
    saved launch with these values; None if the program does not compute it of them.
    """

    values: Values
    ttir: Text = ""
    refusal: Text = ""
    grid: Grid | None = None

    @property
    def text(self) -> str:
        """The values as users write them: ``BLOCK_M=64,BLOCK_N=128``."""
        return ",".join(f"{name}={value}" for name, value in self.values.items())


def grid_of(sizes: Sequence[int]) -> Grid | None:
    """Return the grid of one to three sizes, of which those that are not given are 1; None if these are no grid."""
    if not 1 <= len(sizes) <= _GRID_DIMENSIONS or not all(1 <= size < END_OF_GRID_SIZES for size in sizes):
        return None
    x, y, z = [*sizes, 1, 1][:_GRID_DIMENSIONS]
    return x, y, z


def combinations(wanted: WantedValues, present: Mapping[str, Constant]) -> list[Values]:
    """Return each combination of the wanted values of the constants that are present, without the present one."""
    names = [name for name in wanted if name in present]
    choices = [list(dict.fromkeys((present[name], *wanted[name]))) for name in names]
    found = [dict(zip(names, values, strict=True)) for values in product(*choices)]
    return [values for values in found if any(values[name] != present[name] for name in names)]


def max_combinations(wanted: WantedValues) -> int:
    """Return how many combinations ``combinations`` finds at most."""
    return prod(len(values) + 1 for values in wanted.values()) - 1


class _Found(Struct, frozen=True):
    """Content of ``values.json``."""

    others: Annotated[tuple[OtherValues, ...], Meta(max_length=MAX_COMBINATIONS)]


def write_other_values(folder: Path, others: Sequence[OtherValues]) -> None:
    """Write the other values of a kernel to its folder."""
    write_bytes(folder / _VALUES_FILE, encode(_Found(tuple(others))))


def has_other_values(folder: Path) -> bool:
    """Return whether there are other values of a kernel in its folder."""
    return (folder / _VALUES_FILE).is_file()


def read_other_values(folder: Path) -> tuple[OtherValues, ...]:
    """Read the other values of a kernel in its folder; none if there are none. Raises ``KprofError``."""
    path = folder / _VALUES_FILE
    return decode(read_json(path, folder), _Found, str(path)).others if has_other_values(folder) else ()
