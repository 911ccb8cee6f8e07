"""Builds of a kernel with records, and the arguments of launches as plain numbers.

A capture keeps the numbers without the memory that they point to.
"""

from __future__ import annotations

import ast
import re
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver

from kprof_inject.capture.capture_files import KernelRecord
from kprof_inject.capture.cta_samples import CtaChoice, CtaSample
from kprof_inject.capture.mode import Mode
from kprof_inject.capture.schema import MAX_ARGUMENT, Grid
from kprof_inject.errors import KprofError
from kprof_inject.runtime.compiling.compiler_messages import errors_in, without_false_alarms
from kprof_inject.runtime.compiling.instrumentation import (
    instrumented,
    require_clock_reads,
    shared_bytes_of,
    tag_values,
)
from kprof_inject.runtime.process_events import in_forked_child, let_through
from kprof_inject.workspace import Workspace

Numbers = tuple[int | None, ...]
CONSTANT = "constexpr"  # type of an argument for which the kernel is compiled
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
    device that the program has dropped.
    """

    variant: str
    """Name of this build in the capture; ``record`` has that of the program's variant, which may have several builds.
    Launches are counted and chosen for all of them together."""
    launch: Callable[..., Any]
    """Launcher that Triton made; it takes ``function`` and ``packed_metadata`` of the same kernel."""
    function: Any
    packed_metadata: Any
    ctas: CtaChoice  # which CTAs of a launch record
    overlaps: bool  # true if a launch may begin before the previous one has ended (programmatic dependent launch)
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
            known = self.record.known_metadata
            sample = self.ctas.sample(grid, known.num_ctas)
            found = self._samples.setdefault(grid, (sample, sample.buffer_bytes(known.profile_scratch_size)))
        return found


def compile_with_records(
    compile: Callable[[ExitStack], Any],
    target: GPUTarget,
    mode: Mode,
    has_tags: bool,
    keeps_body: AbstractContextManager[None],
) -> Any:
    """Have Triton compile a kernel's TTGIR with records in place of its own.

    ``keeps_body`` is ``keeping_body`` where a sample of the CTAs records. The effects on the process that ``compile``
    enters are undone at the end. Raises ``KprofError`` with the compiler's reason if it refuses, and if the result has
    no records.
    """
    shared_bytes = device_properties(target).get("max_shared_mem") or shared_bytes_of(target)
    with _Effects() as effects, without_false_alarms() as messages:
        effects.enter_context(instrumented(target, mode, shared_bytes))
        if has_tags:
            effects.enter_context(tag_values())
        effects.enter_context(keeps_body)
        try:
            kernel = compile(effects)
        except Exception as error:  # the compiler's errors have no common base
            let_through(error)
            errors = errors_in(messages.take())
            reason = errors[0].text if errors else f"{type(error).__name__}: {error}"
            raise KprofError(f"Triton does not compile it with records: {reason}") from error
    if not kernel.metadata.profile_scratch_size:
        raise KprofError("Triton did not use the override: its records are not in the binary")
    require_clock_reads(kernel, target)
    return kernel


class _Effects(ExitStack):
    """Changes of the process's state for one compilation, undone at its end.

    A child that another thread forks meanwhile never reaches that end, so there they are undone at once.
    """

    def __init__(self) -> None:
        super().__init__()
        self._thread = threading.get_ident()
        in_forked_child(self._undo_in_child)

    def _undo_in_child(self) -> None:
        if threading.get_ident() != self._thread:
            self.close()


def binaries_folder(workspace: Workspace) -> Path:
    """Return this process's folder for binaries with records."""
    return workspace.cache_folder("instrumented")


def remove_binaries(workspace: Workspace) -> None:
    """Remove the binaries that this process compiled with records. The next run removes those of killed processes."""
    shutil.rmtree(binaries_folder(workspace), ignore_errors=True)


def device_properties(target: GPUTarget) -> dict[str, Any]:
    """Return the driver's properties of the current device; empty if the program compiles for another target."""
    try:
        if driver.active.get_current_target() != target:
            return {}
        device = driver.active.get_current_device()
        return dict(driver.active.utils.get_device_properties(device))
    except RuntimeError:  # no active driver, as on a machine without a GPU
        return {}
