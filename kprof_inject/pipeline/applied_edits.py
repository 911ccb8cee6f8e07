"""Instructions for using the edits that won: options for the program's source, variables, and a file of TTGIR."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import Any

from kprof_inject.capture.edits import AppliedEdits, EditsRecord, Values
from kprof_inject.capture.schema import DumpedKernelRecord
from kprof_inject.runtime.experiments.edits.kinds import in_source
from kprof_inject.workspace import Workspace

_OF_CONFIG = ("num_warps", "num_stages", "num_ctas", "maxnreg")
"""Options that ``triton.Config`` has parameters for; it passes others on with the kernel's arguments."""
_IR_OVERRIDE = "ir_override"
_ONE_CTA = ("num_ctas", 1)


def how_to_apply(workspace: Workspace, record: EditsRecord, kernel: DumpedKernelRecord) -> AppliedEdits | None:
    """Return how to use a kernel's best edits; None if none won."""
    winner = record.winner
    if winner is None or winner.confirmed is None:
        return None
    options = {name: value for name, value in winner.options.items() if name in kernel.options}
    environment = {name: str(value) for name, value in winner.options.items() if name not in kernel.options}
    path = None
    if winner.changes_ttgir:
        path = workspace.edited_ttgir_path(workspace.kernel(record.variant)).absolute()
        environment |= override_variables(path)
    of_config = {**options, _IR_OVERRIDE: str(path)} if path and _IR_OVERRIDE in kernel.options else options
    source = in_source(winner.edits)
    variables = " ".join(f"{name}={quote(value)}" for name, value in environment.items())
    return AppliedEdits(
        kernel=record.name,
        variant=record.variant,
        edits=winner.edits,
        gain=winner.confirmed,
        options=options,
        triton_config=_config(winner.constants, of_config, kernel.options) if of_config or winner.constants else None,
        ttgir=str(path) if path else None,
        environment=environment,
        command=f"{variables} PROG" if environment and not (options or source or winner.constants) else None,
        source=source,
        constants=winner.constants,
    )


def override_variables(ttgir: Path) -> dict[str, str]:
    """Return the variables with which Triton replaces a kernel's TTGIR by a file in the layout that it looks up."""
    return {
        "TRITON_KERNEL_OVERRIDE": "1",
        "TRITON_OVERRIDE_DIR": str(ttgir.parents[1]),
        "TRITON_ALWAYS_COMPILE": "1",
    }


def _config(constants: Values, options: Mapping[str, Any], present: Mapping[str, Any]) -> str:
    """Return a ``triton.Config`` with all options of the kernel that it names, and what changed."""
    named = {name: options.get(name, present.get(name)) for name in (*_OF_CONFIG, _IR_OVERRIDE)}
    words = [f"{name}={value!r}" for name, value in named.items() if value is not None and (name, value) != _ONE_CTA]
    others = {**constants, **{name: value for name, value in options.items() if name not in named}}
    return f"triton.Config({others!r}, {', '.join(words)})"
