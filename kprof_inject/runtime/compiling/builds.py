"""Folders of compiled kernels: machine code, the texts that it was compiled from, and Triton's metadata.

A kernel loaded from such a folder is launched as the one that was compiled from source, with the same arguments.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

from kprof_inject.capture.schema import DumpedKernelRecord

_KEPT = ("source", "ttir", "ttgir", "ptx", "cubin", "amdgcn", "hsaco")
_ASSEMBLY = (".ptx", ".amdgcn")
_NOT_CODE = (".version", ".file", ".loc")
_DEBUG_SECTIONS = ".section\t.debug"
"""These sections follow the code, in PTX and in AMD's assembly."""


def build_files(kernel: Any) -> dict[str, bytes]:
    """Return the files of a compiled Triton kernel, by name."""
    from kprof_inject.runtime.compiling.compiler import as_json

    name = kernel.metadata.name
    texts = {kind: kernel.asm[kind] for kind in _KEPT if kind in kernel.asm}
    files = {f"{name}.{kind}": text.encode() if isinstance(text, str) else text for kind, text in texts.items()}
    return {**files, f"{name}.json": json.dumps(as_json(kernel.metadata._asdict())).encode()}


@dataclass(frozen=True, slots=True)
class BuildSource:
    """Stand-in for the source of a kernel, with what Triton's launchers read of it."""

    signature: Mapping[str, Any]
    constants: Mapping[Any, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, kernel: DumpedKernelRecord) -> BuildSource:
        """Return the source of a dumped kernel. A tuple's type is a tuple, as Triton has it."""
        return cls(
            {name: ast.literal_eval(kind) if kind.startswith("(") else kind for name, kind in kernel.signature.items()}
        )


def load(folder: Path, source: Any, key: str = "") -> Any:
    """Load the build in a folder onto the device. Raises any error of the driver.

    ``source`` is that of the kernel, or a stand-in; ``key`` is its hash.
    """
    from triton.compiler.compiler import CompiledKernel

    group = {path.name: str(path) for path in sorted(folder.iterdir())}
    kernel = CompiledKernel(source, group, key)
    kernel._init_handles()
    return kernel


def assembly_in(folder: Path) -> str:
    """Return the assembly of the build in a folder; empty if there is none."""
    paths = [path for path in folder.iterdir() if path.suffix in _ASSEMBLY]
    return paths[0].read_text() if paths else ""


def objection_to(stage: str, own_assembly: str, assembly: str) -> str:
    """Return how the code of a kernel's TTIR or TTGIR, its ``stage``, differs from the program's; empty if it does not.

    The text is a sentence part that follows *because*.
    """
    for own, other in zip_longest(code_lines(own_assembly), code_lines(assembly), fillvalue=""):
        if own != other:
            difference = f"{own.strip()!r} against {other.strip()!r}"
            return f"its {stage.upper()} alone compiles to a different kernel than the program runs ({difference})"
    return ""


def code_lines(assembly: str) -> list[str]:
    """Return the lines of code, without locations and the version of PTX.

    Inductor writes the source to a different file in each process, and in some chooses a different version.
    """
    code, _, _ = assembly.partition(_DEBUG_SECTIONS)
    return [line for line in code.splitlines() if not line.lstrip().startswith(_NOT_CODE)]
