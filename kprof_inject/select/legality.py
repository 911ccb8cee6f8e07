"""Where a record may stand, and which modules can take records at all."""

from __future__ import annotations

from kprof_inject.errors import KprofError
from kprof_inject.ttgir.dialect import RECORD
from kprof_inject.ttgir.nodes import Module, Operation


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
