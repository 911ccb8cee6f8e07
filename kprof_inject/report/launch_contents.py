"""Describe what is in a saved launch: its arguments, its memory, and where it comes from."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from kprof_inject.capture.saved_launch import (
    DescriptorArgument,
    FloatArgument,
    IntegerArgument,
    MemoryRecord,
    OmittedArgument,
    PointerArgument,
    SavedArgument,
    SavedLaunch,
    TensorMapArgument,
    TupleArgument,
    parameters,
    pointers_in,
)
from kprof_inject.quantities import counted, size_text


@dataclass(frozen=True, slots=True)
class ArgumentRow:
    """An argument of a saved launch, in words."""

    name: str
    kind: str
    value: str
    memory: str = ""


def argument_rows(saved: SavedLaunch) -> list[ArgumentRow]:
    """Describe the arguments of a saved launch."""
    return [
        ArgumentRow(name, kind, _value(saved, name, argument), _memory(saved, argument))
        for (name, kind), argument in zip(parameters(saved), saved.record.arguments, strict=True)
    ]


def _value(saved: SavedLaunch, name: str, argument: SavedArgument) -> str:
    match argument:
        case IntegerArgument(value):
            return value
        case FloatArgument(value):
            return repr(float.fromhex(value))
        case PointerArgument(address=address, shape=shape):
            return f"{address:#x}" if shape is None else f"{address:#x} [{'x'.join(map(str, shape))}] {argument.dtype}"
        case DescriptorArgument(base=base, fields=fields):
            return f"{base.address:#x} {fields.get('shape')} in blocks of {fields.get('block_shape')}"
        case TupleArgument(parts):
            return f"({', '.join(_value(saved, name, part) for part in parts)})"
        case TensorMapArgument():
            return "a tensor map"
        case OmittedArgument():
            return saved.kernel.constants.get(name, "None")


def _memory(saved: SavedLaunch, argument: SavedArgument) -> str:
    found = [saved.record.memory_at(pointer.address) for pointer in pointers_in([argument])]
    reached = sorted({memory for memory in found if memory is not None}, key=lambda memory: memory.address)
    return ", ".join(f"{size_text(memory.size_bytes)}{_change(memory)}" for memory in reached)


def _change(memory: MemoryRecord) -> str:
    if memory.before is None or memory.after is None:
        return ""
    return " unchanged" if memory.before == memory.after else " written"


def summary_of(saved: SavedLaunch) -> dict[str, Any]:
    """Return what is in a saved launch, for JSON; ``facts`` are texts by name."""
    record, kernel = saved.record, saved.kernel
    known = kernel.known_metadata
    found = [memory for memory in record.memory if memory.is_found]
    facts = {
        "kernel": record.name,
        "target": str(kernel.target),
        "grid": "x".join(map(str, record.grid)),
        "warps": str(known.num_warps),
        "shared memory": size_text(known.shared or 0),
        "memory": f"{size_text(record.memory_bytes)} in {counted(len(record.memory), 'range')}",
        "made by": f"Triton {record.triton}, torch {record.torch or 'unknown'}, on {record.device_name}",
    }
    if record.argv:
        facts["program"] = " ".join(record.argv)
    if found:
        facts["found in memory"] = f"{counted(len(found), 'range')} to which only other memory points"
    if record.graph:
        facts["graph"] = "captured into a CUDA graph; its memory is that at the graph's first run"
    if record.scrubbed:
        facts["scrubbed"] = "floating-point data is noise"
    return {
        "facts": facts,
        "arguments": [asdict(row) for row in argument_rows(saved)],
        "memory": [
            {"address": memory.address, "size_bytes": memory.size_bytes, "element": memory.element}
            for memory in record.memory
        ],
    }


_L2 = {"left": "", "emptied": "the L2 emptied", "inputs": "its inputs in the L2"}


def l2_in_words(l2: str) -> str:
    """Return what the L2 held when launches began, in words that follow a result; empty if nothing was done to it."""
    return f"with {_L2[l2]} before each launch, which comes closest to its time in the program" if _L2[l2] else ""
