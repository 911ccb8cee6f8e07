"""Compile a saved launch's kernel again by the Triton of this process, which may be another version."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import triton
from msgspec.structs import replace
from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import make_backend

from kprof_inject.capture.encoding import encode
from kprof_inject.capture.saved_launch import BUILD_FOLDER, MEMORY_FILE, SavedLaunch, checksums, write_saved_launch
from kprof_inject.capture.schema import KERNEL_FILE, SOURCES_FILE, TTGIR_FILE, TimedResources
from kprof_inject.errors import KprofError
from kprof_inject.files import write_bytes, write_text
from kprof_inject.runtime.compiling.builds import build_files
from kprof_inject.runtime.compiling.compiler import as_json, compiled_text
from kprof_inject.runtime.compiling.instrumentation import target_of

# Options of the program's Triton that describe its installation or target, which the present one knows better.
_NOT_PASSED = frozenset({"arch", "backend_name", "extern_libs", "ptx_version", "ptx_options", "ir_override"})


def recompile(saved: SavedLaunch, folder: Path) -> None:
    """Write a saved launch to ``folder`` with the kernel as this Triton compiles it from the saved TTIR.

    The memory is that of ``saved``, by a hard link where possible. Raises ``KprofError`` with the compiler's reason.
    """
    paths = sorted(saved.build_folder.glob("*.ttir"))
    if not paths or saved.kernel.target is None:
        raise KprofError(f"{saved.folder} has no TTIR to compile", hint="save it with a newer kprof-inject")
    try:
        target = target_of(saved.kernel.target)
        options = _known_options(saved.kernel.options, target)
        with compiled_text(paths[0].read_text(), "ttir", saved.kernel.file_name, target, options) as made:
            texts = build_files(made)
    except Exception as error:  # the compiler's errors have no common base
        raise KprofError(
            f"Triton {triton.__version__} does not compile the TTIR of Triton {saved.record.triton}: {error}"
        ) from error
    shutil.rmtree(folder, ignore_errors=True)
    write_text(folder / TTGIR_FILE, made.asm["ttgir"])
    shutil.copyfile(saved.folder / SOURCES_FILE, folder / SOURCES_FILE)
    for name, data in texts.items():
        write_bytes(folder / BUILD_FOLDER / name, data)
    kernel = replace(
        saved.kernel,
        metadata=as_json(made.metadata._asdict()),
        options=as_json(options),
        triton_version=triton.__version__,
        environment={},
    )
    write_bytes(folder / KERNEL_FILE, encode(kernel))
    if saved.record.memory:
        _link(saved.folder / MEMORY_FILE, folder / MEMORY_FILE)
    record = replace(saved.record, triton=triton.__version__, clean=TimedResources(), files=checksums(folder))
    write_saved_launch(folder, record)


def _known_options(options: Mapping[str, Any], target: GPUTarget) -> dict[str, Any]:
    """Return the saved options that this Triton has, too."""
    known = vars(make_backend(target).parse_options({}))
    return {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in options.items()
        if name in known and name not in _NOT_PASSED
    }


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copyfile(source, target)
