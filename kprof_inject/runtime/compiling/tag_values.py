"""Replace counter values with the values of tags, as the last step before a module is translated to LLVM IR.

Proton's lowering reads the counter for each record. A tag's records follow their carrier (``select.tags``), and no
lowering of Proton or Triton reorders operations with side effects, so the reads after a carrier are those of its tag.
Their users get the carrier's value instead. The reads remain, unused.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from triton._C.libtriton import llvm

from kprof_inject.capture.schema import RECORDS_OF_TAG
from kprof_inject.errors import KprofError
from kprof_inject.select.tags import CARRIER

# For each operation, the attribute with its text, and the texts that read a record's counter. Source: Proton's lowering
# of ReadCounterOp for NVIDIA (Triton 3.5 to 3.9), and for AMD (3.5 to 3.8; 3.9). NVIDIA's upper half is another read,
# which remains, because a value has 32 bits.
_ASSEMBLY, _INTRINSIC = "llvm.inline_asm", "llvm.call_intrinsic"
_NAMED_BY = {_ASSEMBLY: "asm_string", _INTRINSIC: "intrin"}
_READS = {
    _ASSEMBLY: ("mov.u32 $0, %clock;",),
    _INTRINSIC: ("llvm.amdgcn.s.memtime", "llvm.readcyclecounter"),
}


@contextmanager
def tag_values() -> Iterator[None]:
    """Store the values of tags in every compilation in this context.

    A compilation raises ``KprofError`` if it does not find the records of a tag.
    """
    before = llvm.to_module

    def to_module(module: Any, *arguments: Any) -> Any:
        _give_values(module)
        return before(module, *arguments)

    llvm.to_module = to_module
    try:
        yield
    finally:
        llvm.to_module = before


def _give_values(module: Any) -> None:
    carriers: list[tuple[Any, list[Any]]] = []

    def visit(operation: Any) -> None:
        name = operation.get_name()
        if name not in _NAMED_BY:
            return
        text = operation.get_str_attr(_NAMED_BY[name])
        if text == CARRIER:
            carriers.append((operation.get_result(0), []))
        elif text in _READS[name] and carriers and len(carriers[-1][1]) < RECORDS_OF_TAG:
            carriers[-1][1].append(operation.get_result(0))

    module.walk(visit)
    for value, reads in carriers:
        if len(reads) < RECORDS_OF_TAG:
            raise KprofError(
                "Triton's lowering has moved the records of a tag",
                hint="leave --tag out for this kernel; it is known to work with Triton 3.5 to 3.9",
            )
        for read in reads:
            read.replace_all_uses_with(value)
