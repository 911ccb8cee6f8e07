"""Files of ``try``: the edits of a kernel that were tried on a saved launch, and what each of them won.

For ``try --values``, the dump step makes the TTIR that Triton makes with other values of the kernel's compile-time
constants, next to the kernel; a saved launch adds the grids. ``docs/file-formats.md`` describes the files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from kprof_inject.capture.encoding import decode, encode, read_json
from kprof_inject.capture.resources import Resources
from kprof_inject.capture.schema import END_OF_GRID_SIZES, Count, DurationNs, FileName, Grid, Name, Target, Text, TimeNs
from kprof_inject.files import write_bytes

_VALUES_FILE = "values.json"
MAX_COMBINATIONS = 24
_GRID_DIMENSIONS = 3

Constant = bool | int
Values = dict[Name, Constant]  # values of some of a kernel's compile-time constants, by name

WantedValues = Mapping[str, tuple[Constant, ...]]

NO_VALUES: WantedValues = MappingProxyType({})


class OtherValues(Struct, frozen=True, kw_only=True):
    """Other values of a kernel's constants: the TTIR that Triton makes with them, or its ``refusal``.

    ``grid`` is that of the saved launch with these values, if the program computes it of them.
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
    """Return the grid of one to three sizes, filled up with ones; None if these are no grid."""
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
    """Return the maximum number of combinations that ``combinations`` finds."""
    return prod(len(values) + 1 for values in wanted.values()) - 1


class _Found(Struct, frozen=True):
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


EDITS_FILE = "edits.json"
OPTIONS_FILE = "options.json"
MAX_EDITS = 1 << 10

MIN_WIN = 0.01  # a smaller gain is no reason to change a kernel: other inputs, or another clock, change as much

REVERSED, COLUMNS, COLUMNS_REVERSED = "reversed", "columns", "columns_reversed"
"""Orders of programs, values of the edit ``program_order``: the last first; all of a grid's second dimension for each
place of the first; the same from the last."""

MIN_PAIRS = 12  # fewer pairs of times do not show their spread
Ratio = Annotated[float, Meta(ge=-1e9, le=1.0)]  # part of a kernel's time that an edit saves; negative if it costs time

Outcome = Literal["faster", "slower", "no difference", "same code", "refused", "not measured"]
Ended = Literal["all", "time", "interrupted"]
"""Why the trials of a kernel ended: all edits were tried, the time was over, or the user interrupted them."""
Results = Literal["", "identical", "within"]
"""How the results compare with those of the unchanged kernel; empty if they were not compared."""


class Edit(Struct, frozen=True):
    """An edit of a kernel: its kind, such as ``num_stages``, and the value that it sets."""

    kind: Name
    value: Name

    def __str__(self) -> str:
        return f"{self.kind}={self.value}"


MAX_EDITS_TOGETHER = 16
Edits = Annotated[tuple[Edit, ...], Meta(max_length=MAX_EDITS_TOGETHER)]


def edits_text(edits: Sequence[Edit]) -> str:
    """Return edits that are made together as users write them."""
    return ", ".join(map(str, edits))


class MeasuredGain(Struct, frozen=True, kw_only=True):
    """Part of the kernel's time that edits save: the median of ``pairs`` pairs, and its 95 % interval."""

    won: Ratio
    low: Ratio
    high: Ratio
    pairs: Count

    @property
    def is_win(self) -> bool:
        """True if the edits certainly save time, and enough of it."""
        return self.low > 0 and self.won >= MIN_WIN

    @property
    def error(self) -> float:
        """Half of the interval."""
        return (self.high - self.low) / 2

    @property
    def outcome(self) -> Outcome:
        """Conclusion from the interval."""
        if self.is_win:
            return "faster"
        return "slower" if self.high < 0 else "no difference"


class TriedEdits(Struct, frozen=True, kw_only=True):
    """Edits that were tried together, and the result.

    ``reason`` is the name of the finding that proposed them, ``neighbour`` or ``asked for``. ``predicted`` is the upper
    bound of the gain by that finding, if the edits do what it advises. ``options`` has the compile options and the
    environment variables that they set, ``constants`` the kernel's compile-time constants. ``same_code_as`` names the
    edits that compile to the same machine code; empty for the unchanged kernel's. ``difference`` is the largest
    difference of a result, relative to the largest magnitude in the same memory. ``refusal`` is the reason why they
    were not measured. ``confirmed`` is the gain in a second process.
    """

    edits: Edits
    reason: Name = ""
    predicted: Annotated[float, Meta(ge=0, le=1)] | None = None
    options: dict[Name, Any] = field(default_factory=dict)
    constants: Values = {}
    changes_ttgir: bool = False
    outcome: Outcome = "not measured"
    gain: MeasuredGain | None = None
    confirmed: MeasuredGain | None = None
    results: Results = ""
    difference: Annotated[float, Meta(ge=0)] | None = None
    same_code_as: Text = ""
    refusal: Text = ""
    resources: Resources | None = None

    @property
    def text(self) -> str:
        """The edits as users write them."""
        return edits_text(self.edits)

    @property
    def final_gain(self) -> MeasuredGain | None:
        """The gain in the last process that measured it."""
        return None if self.refusal else self.confirmed or self.gain


class EditsRecord(Struct, frozen=True, kw_only=True):
    """Content of a kernel's ``edits.json``.

    ``best`` is the index in ``tried`` of the edits that win; None if there are none. A second process confirmed them,
    if there was time. ``gpu_seconds`` and ``compile_seconds`` are sums over what ran at the same time.
    ``refusal`` is the reason why the kernel was not tried at all, in words that follow *because*. ``clean_ns`` is the
    time of the unchanged kernel, from ``launches`` launches back to back. ``tolerance`` is the user's; None is the
    default of each type. ``changes_memory`` is false if memory had the results before the launch, so that results which
    an edit leaves out are not noticed. ``host_ns`` is the host's time when the results were known, in nanoseconds since
    1970.
    """

    name: Name
    variant: FileName
    device_name: Name = ""
    target: Target | None = None
    grid: Grid
    triton: Name = ""
    tolerance: Annotated[float, Meta(ge=0, le=1)] | None = None
    clean: Resources = Resources()
    clean_ns: DurationNs = 0.0
    is_repeatable: bool = True
    changes_memory: bool = True
    restored: bool = False
    launches: Annotated[int, Meta(ge=1, lt=1 << 16)] = 1
    tried: Annotated[tuple[TriedEdits, ...], Meta(max_length=MAX_EDITS)] = ()
    best: Annotated[int, Meta(ge=0)] | None = None
    ended: Ended = "all"
    refusal: Text = ""
    host_ns: TimeNs = 0
    gpu_seconds: Annotated[float, Meta(ge=0, lt=1e9)] = 0.0
    compile_seconds: Annotated[float, Meta(ge=0, lt=1e9)] = 0.0

    def __post_init__(self) -> None:
        if self.best is not None and self.best >= len(self.tried):
            raise ValueError(f"expected one of {len(self.tried)} edits as the best, got {self.best}")

    @property
    def is_answered(self) -> bool:
        """True if an edit was measured, or gives the same machine code."""
        return any(one.final_gain is not None or one.outcome == "same code" for one in self.tried)

    @property
    def winner(self) -> TriedEdits | None:
        """The edits that win."""
        return None if self.best is None else self.tried[self.best]


class AppliedEdits(Struct, frozen=True, kw_only=True):
    """Content of a kernel's ``options.json``: how to use the best edits.

    ``source`` is what to write in the kernel's source; empty if nothing. ``constants`` and ``options`` are passed where
    the kernel is launched, or in ``triton_config``, which has all options of the kernel that ``triton.Config`` names.
    ``ttgir`` is the path of the edited TTGIR. ``environment`` has the variables with which the program uses that, and
    the switches of Triton. ``command`` needs no change of the source; it is null if it needs one, too.
    """

    kernel: Name
    variant: FileName
    edits: Edits
    gain: MeasuredGain
    options: dict[Name, Any]
    triton_config: Text | None
    ttgir: Text | None
    environment: dict[Name, Text]
    command: Text | None
    source: Text = ""
    constants: Values = {}
