"""The kinds of edits: one line for each, and how edits are combined."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kprof_inject.capture.edits import Edit
from kprof_inject.errors import KprofError, did_you_mean
from kprof_inject.runtime.experiments.edits.edit import EditKind, EditRefused, KernelToEdit
from kprof_inject.runtime.experiments.edits.loop_stages import LoopStages
from kprof_inject.runtime.experiments.edits.options import MaxRegisters, NumStages, NumWarps, OtherConstants, Switches
from kprof_inject.runtime.experiments.edits.program_order import ProgramOrder

_ALL = (OtherConstants(), NumStages(), LoopStages(), NumWarps(), MaxRegisters(), Switches(), ProgramOrder())
KINDS: dict[str, EditKind] = {kind.name: kind for kind in _ALL}
"""The kinds by name, in the order in which edits are made: each may change the text that the next one edits."""

# A value may have commas, too.
_BETWEEN_EDITS = re.compile(rf",(?=(?:{'|'.join(KINDS)})=)")


def parse_edits(text: str) -> tuple[Edit, ...]:
    """Return the edits that a user writes as ``NAME=VALUE,NAME=VALUE``, to try together.

    Raises ``KprofError``; the values are checked later.
    """
    edits = tuple(map(_parse_edit, _BETWEEN_EDITS.split(text)))
    if len({edit.kind for edit in edits}) < len(edits):
        raise KprofError(f"{text} has an edit twice", hint="try these one after the other", exit_code=2)
    return edits


def _parse_edit(text: str) -> Edit:
    name, equals, value = text.partition("=")
    kind = KINDS.get(name)
    if kind is None:
        known = ", ".join(KINDS)
        raise KprofError(
            f"there is no edit {name!r}", hint=f"{did_you_mean(name, KINDS) or 'the edits are '}{known}", exit_code=2
        )
    if not equals or not value:
        raise KprofError(f"the edit {name} has no value", hint=f"{name}=VALUE: {kind.values}", exit_code=2)
    return Edit(name, value)


def with_options(kernel: KernelToEdit, edits: Sequence[Edit]) -> KernelToEdit:
    """Return the kernel with the edits of its options. Raises ``EditRefused``."""
    for edit in _in_order(edits):
        if not KINDS[edit.kind].edits_ttgir:
            kernel = KINDS[edit.kind].applied(kernel, edit.value)
    return kernel


def with_ttgir_edited(kernel: KernelToEdit, edits: Sequence[Edit]) -> KernelToEdit:
    """Return the kernel with the edits of its TTGIR, which edits of its options have to precede.

    Raises ``EditRefused``.
    """
    for edit in _in_order(edits):
        if KINDS[edit.kind].edits_ttgir:
            try:
                kernel = KINDS[edit.kind].applied(kernel, edit.value)
            except KprofError as error:  # the TTGIR is not understood
                raise EditRefused(error.what) from None
    return kernel


def _in_order(edits: Sequence[Edit]) -> list[Edit]:
    order = list(KINDS)
    return sorted(edits, key=lambda edit: order.index(edit.kind))


def in_source(edits: Sequence[Edit]) -> str:
    """Return what to write in the kernel's source for edits that no option and no variable makes; empty for others."""
    return "; ".join(found for edit in edits if (found := KINDS[edit.kind].source(edit.value)))


def changes_ttgir(edits: Sequence[Edit]) -> bool:
    """Return whether any of the edits changes the text of the TTGIR."""
    return any(KINDS[edit.kind].edits_ttgir for edit in edits)
