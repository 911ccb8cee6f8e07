"""Kernels to edit: fixtures of the installed Triton for an H100, with the options that it has."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import triton
from golden import FIXTURES, form_of, kernel_of, read
from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import make_backend

from kprof_inject.capture.edits import Edit
from kprof_inject.capture.resources import Resources
from kprof_inject.capture.schema import DumpedKernelRecord, Target
from kprof_inject.runtime.compiling.builds import compile_text
from kprof_inject.runtime.compiling.compiler import as_json
from kprof_inject.runtime.worker.edit import KernelToEdit
from kprof_inject.runtime.worker.edit_kinds import with_options, with_ttgir_edited

H100 = GPUTarget("cuda", 90, 32)
_FOLDER = FIXTURES / triton.__version__ / "cuda-90"
PATHS = [
    path
    for path in sorted([*_FOLDER.glob("*.ttgir"), *_FOLDER.glob("*.ttgir.gz")])
    if ".expected" not in path.name and not form_of(path)
]


def path_of(name: str) -> Path:
    """The fixture of a kernel."""
    return next(path for path in PATHS if kernel_of(path) == name)


def kernel_to_edit(
    text: str, ttir: str = "", clean: Resources | None = None, arch: int = 90, **options: Any
) -> KernelToEdit:
    """A kernel of an NVIDIA GPU with this TTGIR, and with ``options``."""
    found = re.search(r'"ttg.num-warps" = (\d+)', text)
    given = {"num_warps": int(found[1]) if found else 4, **options}
    known = as_json(make_backend(GPUTarget("cuda", arch, 32)).parse_options(given).__dict__)
    record = DumpedKernelRecord(
        name="kernel",
        override_key="KEY",
        file_name="kernel",
        target=Target("cuda", arch),
        options=known,
        triton_version=triton.__version__,
    )
    return KernelToEdit(record, text, ttir, clean or Resources())


def fixture_to_edit(name: str) -> KernelToEdit:
    """The kernel of a fixture."""
    return kernel_to_edit(read(path_of(name)))


def edited(kernel: KernelToEdit, kind: str, value: str) -> KernelToEdit:
    """The kernel with one edit."""
    edits = [Edit(kind, value)]
    return with_ttgir_edited(with_options(kernel, edits), edits)


def built(kernel: KernelToEdit, folder: Path, stage: str = "") -> dict[str, str]:
    """The texts that Triton compiles a kernel to, by their kind: ``ttgir`` and ``ptx``. There is machine code, too."""
    place = folder / str(len(list(folder.iterdir())))
    place.mkdir()
    stage = stage or kernel.stage
    compile_text(kernel.ttir if stage == "ttir" else kernel.ttgir, kernel.record, place, stage)
    (cubin,) = place.glob("*.cubin")
    assert cubin.read_bytes()[:4] == b"\x7fELF"
    return {path.suffix[1:]: path.read_text() for path in place.iterdir() if path.suffix in (".ttgir", ".ptx")}
