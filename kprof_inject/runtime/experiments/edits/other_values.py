"""Values of a kernel's compile-time constants that the program was run with ``--values`` for."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from kprof_inject.runtime.experiments.edits.edit import EditKind, EditRefused, KernelToEdit


class OtherConstants(EditKind):
    """A combination of values, for which the dump step made the TTIR."""

    name = "values"
    values = "constants that --values has named, such as BLOCK_M=64,BLOCK_N=128"

    def more(self, kernel: KernelToEdit) -> Sequence[str]:
        """Return all combinations."""
        return [one.text for one in kernel.others]

    def applied(self, kernel: KernelToEdit, value: str) -> KernelToEdit:
        """Take the TTIR with these values, and the grid."""
        found = next((one for one in kernel.others if one.text == value), None)
        if found is None:
            raise EditRefused("the program was not run with --values for these")
        if found.refusal:
            raise EditRefused(found.refusal)
        if found.grid is None:
            raise EditRefused("the program gives no function for its grid: name the grid with --grid")
        return replace(kernel.to_recompile(), ttir=found.ttir, grid=found.grid, constants=found.values)
