"""Builds of a kernel with records, as launches need them, and the arguments of launches as plain numbers.

A capture keeps the numbers without the memory that they point to.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kprof_inject.capture.capture_files import KernelRecord
from kprof_inject.capture.cta_samples import CtaChoice, CtaSample
from kprof_inject.capture.schema import MAX_ARGUMENT, Grid

Numbers = tuple[int | None, ...]
CONSTANT = "constexpr"
"""Type of an argument for which the kernel is compiled."""
_INTEGER = re.compile(r"[iu]\d+$")


@dataclass(frozen=True, slots=True)
class ArgumentKinds:
    """Types of a kernel's arguments: names, and tuples of names for tuples.

    ``numbers`` runs at each launch. If all arguments are integers, floats and tensors, ``_places`` therefore lists the
    arguments to read, by the number of arguments: their indices (among all, or without the constants), and whether each
    is a tensor.
    """

    kinds: tuple[Any, ...]
    _places: dict[int, tuple[tuple[int, bool | None], ...]]

    @classmethod
    def of(cls, signature: Mapping[str, str]) -> ArgumentKinds:
        """Parse a kernel's signature, which maps argument names to types."""
        kinds = tuple(ast.literal_eval(kind) if kind.startswith("(") else kind for kind in signature.values())
        if not all(isinstance(kind, str) and not kind.startswith("tensordesc") for kind in kinds):
            return cls(kinds, {})
        parameters = [kind for kind in kinds if kind != CONSTANT]
        among_all = tuple((place, _is_tensor(kind)) for place, kind in enumerate(kinds) if kind != CONSTANT)
        # Inductor's launches omit the constants.
        return cls(kinds, {len(parameters): tuple(enumerate(map(_is_tensor, parameters))), len(kinds): among_all})

    def numbers(self, arguments: Sequence[Any]) -> Numbers:
        """Return the numbers of a launch, in the order of the compiled function's parameters.

        An integer is itself, a tensor its address, a descriptor its address, shape and strides; anything else is None.
        Constants are not parameters. The result is empty if ``arguments`` do not match the signature.
        """
        places = self._places.get(len(arguments))
        if places is not None:
            try:
                return tuple([_number(arguments[place], is_tensor) for place, is_tensor in places])
            except AttributeError:
                pass  # not a tensor, although Triton takes it for one
        paired = self.paired(arguments)
        return tuple(number for argument, kind in paired for number in _numbers(argument, kind))

    def paired(self, arguments: Sequence[Any]) -> Sequence[tuple[Any, Any]]:
        """Return each argument of a launch with its type; empty if ``arguments`` do not match the signature."""
        kinds = self.kinds
        if len(arguments) != len(kinds):
            kinds = tuple(kind for kind in kinds if kind != CONSTANT)
        return list(zip(arguments, kinds, strict=True)) if len(arguments) == len(kinds) else []


def _is_tensor(kind: str) -> bool | None:
    """Return True for a tensor, False for an integer, None for any other type."""
    if kind.startswith("*"):
        return True
    return False if _INTEGER.match(kind) else None


def _number(argument: Any, is_tensor: bool | None) -> int | None:
    if is_tensor and argument.__class__ is not int:
        return int(argument.data_ptr())
    return int(argument) if is_tensor is not None and -MAX_ARGUMENT <= argument <= MAX_ARGUMENT else None


def _numbers(argument: Any, kind: Any) -> Iterator[int | None]:
    if kind == CONSTANT:
        return
    if isinstance(kind, tuple) and isinstance(argument, tuple | list):
        for part, part_kind in zip(argument, kind, strict=False):
            yield from _numbers(part, part_kind)
    elif isinstance(argument, int):
        yield int(argument) if -MAX_ARGUMENT <= argument <= MAX_ARGUMENT else None
    elif hasattr(argument, "data_ptr"):
        yield argument.data_ptr()
    elif hasattr(argument, "block_shape"):
        yield from (argument.base.data_ptr(), *map(int, argument.shape), *map(int, argument.strides))
    else:
        yield None


@dataclass(frozen=True, slots=True)
class RecordingBuild:
    """A loaded build of a kernel with records: what a launch needs, and what the capture saves.

    It does not refer to Triton's kernel: a launch waiting to be saved refers to this build, and would keep code on the
    device that the program has dropped. ``KernelRecord`` is no substitute: it lacks the launcher and the texts.
    """

    variant: str
    """Name of this build in the capture."""
    variant_of_program: str
    """Name of the program's variant. Its builds for large grids differ only in the size of their rings, so launches are
    counted and chosen for all of them together."""
    launch: Callable[..., Any]
    """Launcher that Triton made; it takes ``function`` and ``packed_metadata`` of the same kernel."""
    function: Any
    packed_metadata: Any
    row_bytes: int
    """Size of a CTA's row in the buffer."""
    cluster_ctas: int
    ctas: CtaChoice
    """Which CTAs of a launch record."""
    overlaps: bool
    """True if a launch may begin before the previous one has ended (programmatic dependent launch)."""
    ttgir: str
    sources: dict[str, str]
    record: KernelRecord
    argument_kinds: ArgumentKinds
    _samples: dict[Grid, tuple[CtaSample, int]] = field(default_factory=dict)

    def sample(self, grid: Grid) -> CtaSample:
        """Return the sample of CTAs that record in a launch with this grid."""
        return self._sample_and_bytes(grid)[0]

    def buffer_bytes(self, grid: Grid) -> int:
        """Return the size of the buffer of a launch with this grid."""
        return self._sample_and_bytes(grid)[1]

    def _sample_and_bytes(self, grid: Grid) -> tuple[CtaSample, int]:
        found = self._samples.get(grid)
        if found is None:
            sample = self.ctas.sample(grid, self.cluster_ctas)
            found = self._samples.setdefault(grid, (sample, sample.buffer_bytes(self.row_bytes)))
        return found
