"""The dump step inside the program: save every kernel's TTGIR as the compiler made it."""

from __future__ import annotations

import atexit
import json
import linecache
import sys
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import triton

from kprof_inject.files import source_text
from kprof_inject.runtime.compiler import Compile, wrap_compiler
from kprof_inject.runtime.process_report import ProcessReport
from kprof_inject.runtime.session import Session
from kprof_inject.runtime.variants import Variant, variant_of
from kprof_inject.ttgir.strings import source_files
from kprof_inject.workspace import Workspace


def install(session: Session, report: ProcessReport) -> None:
    """Called once, right after Triton was imported."""
    workspace = Workspace(Path(session.workspace))

    def around(original: Compile, args: Any, kwargs: Any) -> Any:
        kernel = original(*args, **kwargs)
        with report.guard("saving a kernel"):
            variant = variant_of(original, args, kwargs)
            if variant is not None and fnmatchcase(variant.name, session.kernel):
                _save(workspace, variant, kernel)
                report.add_kernel(variant.key, variant.name, "dumped")
        return kernel

    wrap_compiler(around)
    atexit.register(note_gpu, report)


def note_gpu(report: ProcessReport) -> None:
    """Say whether the program could have used a GPU, if it has loaded what can tell."""
    torch = sys.modules.get("torch")
    if torch is not None:
        with report.guard("looking for a GPU"):
            report.gpu = bool(torch.cuda.is_available())
            report.write()


def _save(workspace: Workspace, variant: Variant, kernel: Any) -> None:
    ttgir = kernel.asm["ttgir"]
    info = {
        "name": kernel.metadata.name,
        "override_key": variant.override_key,
        "file_name": variant.file_name,
        "target": variant.target.__dict__,
        "options": variant.options,
        "metadata": kernel.metadata._asdict(),
        "triton_version": triton.__version__,
    }
    workspace.write_kernel(variant.key, json.loads(json.dumps(info, default=_plain)), ttgir, _sources(ttgir))


def _sources(ttgir: str) -> dict[str, str]:
    """The user's source files that the module's locations name, as they are now; not Triton's own library.

    A cell of a notebook is no file: Python's ``linecache`` has its text, as it had for Triton."""
    library = Path(triton.__file__).parent
    users = [name for name in source_files(ttgir) if library not in Path(name).parents]
    texts = {name: source_text(Path(name)) or "".join(linecache.getlines(name)) for name in users}
    return {name: text for name, text in texts.items() if text}


def _plain(value: Any) -> Any:
    """What JSON cannot hold by itself: targets as their fields, all else as text."""
    return vars(value) if hasattr(value, "__dict__") else str(value)
