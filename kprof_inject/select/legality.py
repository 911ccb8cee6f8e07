"""Where a record may stand, and which modules can take records at all."""

from __future__ import annotations

from kprof_inject.errors import KprofError
from kprof_inject.ttgir.nodes import Module, Operation

MAX_SCOPE_IDS = 256
"""The entry's scope id has 8 bits (Proton's CircularStoreOp lowering)."""

RECORD = "proton.record"

# Everything else that has a region (tt.reduce, tt.scan, tt.map_elementwise, …) is lowered once per element,
# where a record would stand for each lane.
_BLOCK_OWNERS = frozenset(
    {
        "tt.func",
        "scf.for",
        "scf.while",
        "scf.if",
        "scf.execute_region",
        "scf.index_switch",
        "ttg.warp_specialize",
        "ttg.warp_specialize.partitions",
    }
)


def holds_records(operation: Operation) -> bool:
    """Whether a record may stand directly inside this operation's regions."""
    return operation.name in _BLOCK_OWNERS


def illegal_block(module: Module, operation: Operation) -> KprofError:
    """The refusal to record inside ``operation``."""
    return KprofError(
        f"no record may stand inside {operation.name}: Triton lowers its region once per element",
        where=module.position(operation.start),
        hint="select the loop or the function around it",
    )


def check_module(module: Module) -> None:
    """Raise ``KprofError`` if the module has records already: ours would pair with them."""
    for operation in module.walk():
        if operation.name == RECORD:
            raise KprofError(
                "this file already has records",
                where=module.position(operation.start),
                hint="remove them first: kprof-inject strip FILE -o CLEAN",
            )
