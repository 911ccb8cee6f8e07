"""Compile a module's text as the program compiled the source that it came from. Runs in a child process."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import triton
from triton import knobs

from kprof_inject.capture.schema import DumpedKernelRecord
from kprof_inject.errors import KprofError
from kprof_inject.runtime.compiling.compiler import as_json, environment
from kprof_inject.runtime.compiling.instrumentation import target_of

_KEPT = (".json", ".ttgir", ".ptx", ".cubin", ".amdgcn", ".hsaco")


def compile_text(text: str, kernel: DumpedKernelRecord, folder: Path) -> None:
    """Compile ``text`` for the kernel's target with its options, and write the results to ``folder``.

    Raises ``KprofError`` if another version of Triton dumped the kernel, and any exception of the compiler.
    """
    if kernel.triton_version != triton.__version__:
        raise KprofError(
            f"Triton {kernel.triton_version} dumped it, and kprof-inject's own Python has {triton.__version__}",
            hint="install kprof-inject where the program runs, and call it there",
        )
    if kernel.target is None:
        raise KprofError("its target is not known", hint="dump it again")
    with (
        tempfile.TemporaryDirectory(prefix="kprof-text-") as cache,
        knobs.cache.scope(),
        _environment_of(kernel),
    ):
        knobs.cache.dir = cache
        path = Path(cache, f"{kernel.file_name}.ttgir")
        path.write_bytes(text.encode())
        made = triton.compile(str(path), target=target_of(kernel.target), options=_options(kernel.options))
        for name, source in made.metadata_group.items():
            if Path(name).suffix in _KEPT and not name.endswith(".json"):
                shutil.copyfile(source, folder / name)
    # The dumped metadata has more, such as the layouts of descriptors, which stages before TTGIR set.
    metadata = {**kernel.metadata, **as_json(made.metadata._asdict())}
    (folder / f"{kernel.file_name}.json").write_text(json.dumps(metadata))


@contextmanager
def _environment_of(kernel: DumpedKernelRecord) -> Iterator[None]:
    """Set the environment variables that the compiler depends on to the program's values, and unset all others."""
    before = {name: os.environ.get(name) for name in (*environment(), *kernel.environment)}
    for name in before:
        os.environ.pop(name, None)
    os.environ.update(kernel.environment)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _options(saved: dict[str, Any]) -> dict[str, Any]:
    """Return saved options as Triton needs them: with tuples, which JSON turned into lists."""
    return {name: _with_tuples(value) for name, value in saved.items()}


def _with_tuples(value: Any) -> Any:
    return tuple(map(_with_tuples, value)) if isinstance(value, list) else value
