"""What the installed Triton makes of the kernels of ``kernels.py``, in a folder: machine code for an H100, without
records and with them, and what it takes to launch both. No GPU is needed, and to launch them no Triton.

The folder of one kernel has ``plain.cubin``, ``records.cubin``, ``kernel.ttgir``, ``sources.json`` and ``build.json``.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from kprof_inject.capture.mode import Mode
from kprof_inject.capture.ring_sizes import mode_of_kernel
from kprof_inject.capture.schema import LayoutName
from kprof_inject.capture.scopes import ScopeTable
from kprof_inject.files import source_text

SELECTORS = ("func", "loop")
_TARGET = "cuda:90"
_ENTRY = re.compile(r"\.entry\s+\w+\(([^)]*)\)", re.DOTALL)
_REGISTERS = re.compile(r"\bREG:(\d+)")


class Code(Struct, frozen=True):
    """One build. ``parameters`` is how many the compiled function has, two addresses of Triton's own among them: memory
    that all CTAs share, and the buffer of records."""

    metadata: dict[str, Any]
    parameters: int
    shared_bytes: int
    warps: int


class KernelBuild(Struct, frozen=True):
    """Both builds of one kernel, and what its records mean."""

    name: str
    function: str
    triton: str
    plain: Code
    records: Code
    scope_table: ScopeTable
    scope_ids: dict[int, str]
    layout: LayoutName
    mode: Mode


def write_build(name: str, folder: Path, ttgir: Path | None) -> KernelBuild:
    """Compile one kernel from its source, or from TTGIR that another Triton made of it. Raises what the compiler
    raises."""
    import triton
    from kernels import HOPPER, KERNELS
    from triton import knobs

    from kprof_inject.insertion import insert_module, view_of
    from kprof_inject.runtime.compiling.compiler import as_json
    from kprof_inject.runtime.compiling.instrumentation import lower, scope_names
    from kprof_inject.runtime.versions import installed_version
    from kprof_inject.select.plan import max_records
    from kprof_inject.select.selectors import parse_selectors
    from kprof_inject.ttgir.strings import source_files

    folder.mkdir(parents=True)
    kernel = KERNELS[name]
    with knobs.cache.scope():
        knobs.cache.dir = str(folder / "cache")
        made = (
            kernel.compiled()
            if ttgir is None
            else triton.compile(str(ttgir), target=HOPPER, options=dict(kernel.options))
        )
    (folder / "plain.cubin").write_bytes(made.asm["cubin"])
    text = made.asm["ttgir"]
    (folder / "kernel.ttgir").write_text(text)
    sources = {file: source_text(Path(file)) for file in source_files(text)}
    users = {
        file: told for file, told in sources.items() if told and Path(triton.__file__).parent not in Path(file).parents
    }
    (folder / "sources.json").write_bytes(msgspec.json.encode(users))

    metadata = as_json(made.metadata._asdict())
    done = insert_module(view_of(text, f"{name}.ttgir", users), parse_selectors(SELECTORS))
    bound = max_records(done.view, done.plan)
    registers = _registers(folder / "plain.cubin")
    mode = mode_of_kernel(Mode(), metadata["shared"], metadata["num_warps"], registers, _TARGET, bound)
    with_records = folder / "records.ttgir"
    with_records.write_text(done.text)
    lowered = lower(done.text, HOPPER, {}, mode)
    (folder / "records.cubin").write_bytes(lowered.binary)
    build = KernelBuild(
        name=name,
        function=metadata["name"],
        triton=triton.__version__,
        plain=_code(metadata, made.asm["ptx"]),
        records=_code(lowered.metadata, lowered.assembly),
        scope_table=msgspec.structs.replace(done.plan.table, most_records=bound),
        scope_ids=scope_names(str(with_records), HOPPER),
        layout=installed_version().buffer_layout,
        mode=mode,
    )
    (folder / "build.json").write_bytes(msgspec.json.format(msgspec.json.encode(build), indent=1))
    return build


def _code(metadata: dict[str, Any], ptx: str) -> Code:
    found = _ENTRY.search(ptx)
    if found is None:
        raise RuntimeError("the PTX has no entry")
    warps = metadata.get("num_warps") or 0
    return Code(metadata, found[1].count(".param"), metadata["shared"], warps)


def _registers(cubin: Path) -> int:
    import triton

    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    used = subprocess.run([tool, "-res-usage", cubin], check=True, capture_output=True, text=True).stdout
    return max(map(int, _REGISTERS.findall(used)))


def builds_in(folder: Path) -> Iterator[tuple[Path, KernelBuild]]:
    """All kernels of a folder, with their own folders."""
    for path in sorted(folder.glob("*/build.json")):
        yield path.parent, msgspec.json.decode(path.read_bytes(), type=KernelBuild)
