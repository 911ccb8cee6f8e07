"""What changed of a kernel as a whole: what its build takes, what made it, what runs it, and what it is given."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from kprof_inject.analysis.interpreter.executions import entry_function
from kprof_inject.analysis.structure.structural_changes import StructuralChange
from kprof_inject.report.diff.kernel_diff import KernelDiff
from kprof_inject.report.diff.runs import SETTINGS, KernelRuns
from kprof_inject.ttgir.nodes import Module
from kprof_inject.ttgir.ssa_values import argument_names, argument_types

# What a build takes of the SM, what made it of the TTGIR, and what runs it.
_BUILD = {
    **dict.fromkeys(("registers", "spills", "shared bytes", "CTAs per SM", "device"), "{0}"),
    "triton_version": "the TTGIR was compiled further by Triton {0.a} → {0.b}",
}
"""By what differs: how it is told."""
# What follows from the code, and from what made it. More registers, or more shared memory, act on code that is the same
# only by fewer CTAs on an SM.
_RESOURCES = frozenset({"registers", "spills", "shared-bytes", "CTAs-per-SM"})
_IDLE = frozenset({"registers", "shared-bytes"})
# Settings that show in the module itself, or do nothing to the kernel without records.
_SEEN = frozenset({"kernel", "target", "num_warps", "num_ctas", "num_stages", "maxnreg", "warp size"})
_OF_RECORDS = frozenset({"records", "recorded warps"})
_INTEGER = re.compile(r"i\d+")


def whole_changes(diff: KernelDiff, a: Module, b: Module) -> Iterator[StructuralChange]:
    """What a comparison of the modules cannot tell."""
    for one in diff.differences:
        if one.what in _BUILD:
            yield StructuralChange(one.what.replace(" ", "-"), _BUILD[one.what].format(one))
        elif one.what not in SETTINGS:
            yield StructuralChange("option", f"option {one}")
    before, after = _arguments(diff.a, a), _arguments(diff.b, b)
    for name, values in after.items():
        if before.get(name, values) != values:
            yield StructuralChange("argument", f"argument {name} {_listed(before[name])} → {_listed(values)}")


def acts_everywhere(change: StructuralChange) -> bool:
    """Whether what changed in the kernel as a whole acts on code that is the same."""
    return change.id not in _IDLE


def is_cause(change: StructuralChange) -> bool:
    """Whether it is none of what follows from other code."""
    return change.id not in _RESOURCES


def is_same_work(diff: KernelDiff) -> bool:
    """Whether nothing that differs is left out of the changes: a grid is."""
    told = _SEEN | _OF_RECORDS | _BUILD.keys()
    return all(one.what in told or one.what not in SETTINGS for one in diff.differences)


def _arguments(runs: KernelRuns, module: Module) -> dict[str, tuple[int, ...]]:
    """The integers that a side's launches have for each argument, as far as they are known."""
    function = entry_function(module)
    if function is None:
        return {}
    names, types = argument_names(module, function), argument_types(function)
    found: dict[str, set[int]] = {}
    for timeline in runs.timelines:
        values: Sequence[int | None] = timeline.launch.arguments
        if len(values) == len(names) == len(types):
            for name, type_, value in zip(names, types, values, strict=True):
                if value is not None and _INTEGER.fullmatch(type_):
                    found.setdefault(name.lstrip("%"), set()).add(value)
    return {name: tuple(sorted(values)) for name, values in found.items()}


_MOST_VALUES = 4


def _listed(values: Sequence[int]) -> str:
    more = ["…"] if len(values) > _MOST_VALUES else []
    return ", ".join([*map(str, values[:_MOST_VALUES]), *more])
