"""Parts of an edit: a kernel as text and options, and the interface of a kind of edit.

This imports no Triton: edits change texts and options, which the compiler's processes compile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from kprof_inject.capture.edits import OtherValues, Values
from kprof_inject.capture.resources import Resources
from kprof_inject.capture.schema import DumpedKernelRecord, Grid
from kprof_inject.ttgir.nodes import Module
from kprof_inject.ttgir.parser import parse

Stage = Literal["ttir", "ttgir"]  # the text that is compiled after an edit: TTIR after edits of options, else TTGIR


class EditRefused(Exception):
    """Error that an edit of this kernel is impossible or illegal; its text is the reason, as a sentence part."""


class KernelToEdit(Struct, frozen=True):
    """A kernel as edits change it.

    ``ttir`` is empty if it was not saved, as for Gluon. ``clean`` are the resources of the unchanged kernel. ``stage``
    is the text to compile. ``others`` are the values that its constants may have; ``constants`` are the chosen ones,
    with their ``grid`` (None: the launch's).
    """

    record: DumpedKernelRecord
    ttgir: str
    ttir: str = ""
    clean: Resources = Resources()
    stage: Stage = "ttgir"
    others: tuple[OtherValues, ...] = ()
    constants: Values = {}
    grid: Grid | None = None

    def number(self, name: str) -> int:
        """Return a compile option that is a number; 0 if it is not set."""
        return int(self.record.options.get(name) or 0)

    def text(self, stage: Stage) -> str:
        """Return the text of a stage."""
        return self.ttir if stage == "ttir" else self.ttgir

    def parsed(self, stage: Stage) -> Module:
        """Return the module of a stage. Raises ``KprofError`` if it is not understood."""
        return parse(self.text(stage), f"{self.record.name}.{stage}")

    def with_option(self, name: str, value: object) -> KernelToEdit:
        """Return the kernel with another compile option, to be compiled from its TTIR. Raises ``EditRefused``."""
        if name not in self.record.options:
            raise EditRefused(f"Triton {self.record.triton_version} has no option {name} for this target")
        record = replace(self.record, options={**self.record.options, name: value})
        return replace(self.to_recompile(), record=record)

    def with_variable(self, name: str, value: str) -> KernelToEdit:
        """Return the kernel with another variable of the compiler's environment, to be compiled from its TTIR."""
        record = replace(self.record, environment={**self.record.environment, name: value})
        return replace(self.to_recompile(), record=record)

    def to_recompile(self) -> KernelToEdit:
        """Return the kernel, to be compiled from its TTIR. Raises ``EditRefused`` if that is impossible."""
        if not self.ttir:
            raise EditRefused("it has no TTIR to compile again (Gluon kernels have none)")
        if self.record.options.get("ir_override") or self.record.metadata.get("ir_override"):
            raise EditRefused("the program puts its code in place (ir_override), so that options change nothing")
        return replace(self, stage="ttir")


@dataclass(frozen=True, slots=True)
class EditKind:
    """A kind of edit.

    ``name`` is as in ``--edit NAME=VALUE``; ``values`` describes the values, for messages. ``applied`` returns the
    kernel with a value, and raises ``EditRefused`` if that is impossible or not legal. ``more`` and ``fewer`` return
    the values to try above the present one and below it, nearest first; of a kind without order, ``more`` returns all.
    ``source`` returns what to write in the kernel's source; it is empty if an option, a variable or an override file
    does it. ``edits_ttgir`` is true if it changes the text of the TTGIR; others change options, or the TTIR.
    """

    name: str
    values: str
    applied: Callable[[KernelToEdit, str], KernelToEdit]
    more: Callable[[KernelToEdit], Sequence[str]]
    fewer: Callable[[KernelToEdit], Sequence[str]] = lambda kernel: ()
    source: Callable[[str], str] = lambda value: ""
    edits_ttgir: bool = False


def number_in(value: str, minimum: int, maximum: int) -> int:
    """Return a user's number. Raises ``EditRefused`` if it is none, or out of bounds."""
    if not value.isdecimal() or not minimum <= int(value) <= maximum:
        raise EditRefused(f"{value} is not a number from {minimum} to {maximum}")
    return int(value)
