"""Write a saved launch as a standalone Python script, which needs nothing but torch and Triton.

Integers are in the script, because they decide control flow and addresses; addresses among them are relocated.
Floating-point data is noise of the same magnitude.
"""

from __future__ import annotations

import base64
import math
import pprint
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from kprof_inject.capture.saved_launch import (
    DescriptorArgument,
    FloatArgument,
    IntegerArgument,
    MemoryRecord,
    OmittedArgument,
    PointerArgument,
    SavedArgument,
    SavedLaunch,
    TupleArgument,
    parameters,
)
from kprof_inject.errors import KprofError

_MAX_CONTENTS_BYTES = 8 << 20
"""Limit of the integers in a script, compressed."""

_FLOATS = {
    "fp64": "float64",
    "fp32": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp8e5": "float8_e5m2",
    "fp8e4nv": "float8_e4m3fn",
    "fp8e4b8": "float8_e4m3fnuz",
    "fp8e5b16": "float8_e5m2fnuz",
}
"""Torch's types, by Triton's names."""

# Compile options that matter after TTIR; all others are the front end's or describe the program's machine.
_PASSED = frozenset(
    {
        "enable_fp_fusion",
        "kpack",
        "launch_cooperative_grid",
        "launch_pdl",
        "matrix_instr_nonkdim",
        "maxnreg",
        "num_ctas",
        "num_stages",
        "num_warps",
        "waves_per_eu",
    }
)

_SCRIPT = '''"""One launch of {name}, as a program made it on {device} with Triton {triton}.

Run it with torch and Triton: python FILE. Floating-point data is noise of the same magnitude; integers are the
program's. It prints the kernel's time and a checksum of each range of memory that the launch changed.
"""

import base64
import tempfile
import zlib
from pathlib import Path
from types import SimpleNamespace

import torch
import triton
from triton.testing import do_bench

GRID = {grid}
OPTIONS = {options}

# Address in the program, bytes, torch's type of noise and its scale (None: the contents below, or zeros).
MEMORY = {memory}

# Contents of ranges, by address: zlib's, in base64.
CONTENTS = {contents}

# The kernel's arguments without constants: ("value", number), ("pointer", address) or ("descriptor", address, fields).
ARGUMENTS = {arguments}

TTIR = r"""
{ttir}
"""


def tensors():
    """Allocate and fill the memory, and return each range with its tensor of bytes."""
    torch.manual_seed(0)
    made = {{}}
    for address, size, kind, scale in MEMORY:
        made[address] = torch.zeros(size + 1024, dtype=torch.uint8, device="cuda")
    for address, size, kind, scale in MEMORY:
        data = part_of(made[address], address, size)
        if address in CONTENTS:
            words = torch.frombuffer(bytearray(zlib.decompress(base64.b64decode(CONTENTS[address]))), dtype=torch.uint8)
            data.copy_(relocated(words, made))
        elif kind is not None:
            numbers = data[: size // 8 * 8].view(getattr(torch, kind))
            numbers.copy_((scale * torch.randn(numbers.shape, device="cuda")).to(numbers.dtype))
    return made


def part_of(tensor, address, size):
    """Return the bytes of a range, at the same offset to a multiple of 512 as in the program."""
    return tensor[address % 512 : address % 512 + size]


def new_address(address, made):
    """Return where an address of the program is here."""
    for start, size, *_ in MEMORY:
        if start <= address < start + size:
            return part_of(made[start], start, size).data_ptr() + address - start
    return address


def relocated(data, made):
    """Replace the program's addresses in integers by those of the memory here."""
    words = data[: len(data) // 8 * 8].view(torch.int64)
    for start, size, *_ in MEMORY:
        inside = (words >= start) & (words < start + size)
        words[inside] += new_address(start, made) - start
    return data


def argument(kind, value, *fields, made):
    """Return an argument as Triton's launcher takes it."""
    if kind == "pointer":
        return new_address(value, made)
    if kind == "descriptor":
        base = SimpleNamespace(data_ptr=lambda: new_address(value, made))
        return SimpleNamespace(base=base, **fields[0])
    return value


def main():
    """Compile the kernel, launch it, and time it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "{file_name}.ttir")
        path.write_text(TTIR)
        kernel = triton.compile(str(path), options=OPTIONS)
    if hasattr(triton, "set_allocator"):
        triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.uint8, device="cuda"))
    made = tensors()
    before = {{address: made[address].clone() for address, *_ in MEMORY}}
    arguments = [argument(*one, made=made) for one in ARGUMENTS]
    kernel[GRID](*arguments)
    torch.cuda.synchronize()
    for address, size, *_ in MEMORY:
        if not torch.equal(before[address], made[address]):
            data = bytes(part_of(made[address], address, size).cpu().numpy())
            print(f"{{address:#x}}: {{size}} bytes, crc32 {{zlib.crc32(data):08x}}")
    print(f"{name}: {{1000 * do_bench(lambda: kernel[GRID](*arguments)):.2f}} us")


if __name__ == "__main__":
    main()
'''


def launch_script(saved: SavedLaunch) -> str:
    """Return the script. Raises ``KprofError`` if the launch cannot be written as one, and for damaged files."""
    paths = sorted(saved.build_folder.glob("*.ttir"))
    if not paths:
        raise KprofError(f"{saved.folder} has no TTIR", hint="save it with a newer kprof-inject")
    record = saved.record
    contents = dict(_contents(saved))
    return _SCRIPT.format(
        name=record.name,
        device=record.device_name or "an unknown device",
        triton=record.triton,
        grid=record.grid,
        options=pprint.pformat(_options(saved)),
        memory=pprint.pformat([_memory(saved, memory) for memory in record.memory], width=118),
        contents=pprint.pformat(contents, width=118),
        arguments=pprint.pformat(list(_arguments(saved)), width=118),
        ttir=paths[0].read_text().strip(),
        file_name=saved.kernel.file_name,
    )


def _options(saved: SavedLaunch) -> dict[str, Any]:
    return {
        name: value
        for name, value in saved.kernel.options.items()
        if isinstance(value, bool | int | str) and name in _PASSED
    }


def _contents(saved: SavedLaunch) -> Iterator[tuple[int, str]]:
    """Yield the address and the compressed contents of each range that is no floating-point data and not zero."""
    room = _MAX_CONTENTS_BYTES
    for memory in saved.record.memory:
        if memory.element in _FLOATS:
            continue
        data = b"".join(data for _, data in saved.chunks(memory))
        if not any(data):
            continue
        compressed = zlib.compress(data, 9)
        room -= len(compressed)
        if room < 0:
            raise KprofError(
                f"the integers of {saved.record.name} are too much for a script",
                hint="share the folder instead, scrubbed: kprof-inject launch scrub",
            )
        yield memory.address, base64.b64encode(compressed).decode()


def _memory(saved: SavedLaunch, memory: MemoryRecord) -> tuple[int, int, str | None, float]:
    kind = _FLOATS.get(memory.element)
    return memory.address, memory.size_bytes, kind, _scale(saved, memory) if kind else 0.0


def _scale(saved: SavedLaunch, memory: MemoryRecord) -> float:
    """Return the root of the mean square of a range's first numbers; 1 for types that NumPy lacks."""
    types = {"fp64": "<f8", "fp32": "<f4", "fp16": "<f2"}
    _, data = next(saved.chunks(memory))
    if memory.element == "bf16":
        halves = np.frombuffer(data[: len(data) // 2 * 2], "<u2").astype("<u4") << 16
        numbers = halves.view("<f4").astype(float)
    elif memory.element in types:
        size = int(types[memory.element][-1])
        numbers = np.frombuffer(data[: len(data) // size * size], types[memory.element]).astype(float)
    else:
        return 1.0
    numbers = numbers[np.isfinite(numbers)]
    return float(f"{math.sqrt(float(np.mean(numbers**2))):.3g}") if numbers.size else 0.0


def _arguments(saved: SavedLaunch) -> Iterator[tuple[Any, ...]]:
    for (_, kind), argument in zip(parameters(saved), saved.record.arguments, strict=True):
        if kind != "constexpr":
            yield from _argument(argument)


def _argument(argument: SavedArgument) -> Iterator[tuple[Any, ...]]:
    match argument:
        case PointerArgument(address=address):
            yield ("pointer", address)
        case IntegerArgument(value):
            yield ("value", int(value))
        case FloatArgument(value):
            yield ("value", float.fromhex(value))
        case DescriptorArgument(base=base, fields=fields):
            plain = {name: list(value) if isinstance(value, tuple) else value for name, value in fields.items()}
            yield ("descriptor", base.address, plain)
        case TupleArgument(parts):
            for part in parts:
                yield from _argument(part)
        case OmittedArgument():
            yield ("value", None)
        case _:
            raise KprofError("a tensor map that the program made cannot be written to a script")
