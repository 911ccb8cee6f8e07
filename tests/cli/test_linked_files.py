"""Every command on a workspace and on a capture of which one file is a link: what that leads to is not written."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from click import ClickException
from programs.child import REPO

from kprof_inject.capture.schema import DumpedKernelRecord
from kprof_inject.cli.main import root
from kprof_inject.errors import KprofError
from kprof_inject.insertion import insert_kernels, write_insertions
from kprof_inject.workspace import Workspace

CAPTURE = "captures/001"
COMMANDS = [
    *(["list", "ws"], ["insert", "ws"], ["report", "ws"], ["trace", "ws"], ["trace", f"ws/{CAPTURE}"]),
    *(["diff", "ws", "ws"], ["try", "ws"], ["causal", "ws"], ["demo", "-o", "ws"], ["run", "ws", "true"]),
    *([command, "-o", "ws", "--", "true"] for command in ("profile", "dump", "causal", "try")),
]


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small workspace with a kernel, its plan, a capture and what commands leave behind, by its relative name."""
    monkeypatch.chdir(tmp_path)
    workspace = Workspace.create(Path("ws"))
    text = (REPO / "ttgir_fixtures/3.6.0/cuda-90/softmax.ttgir").read_text()
    info = DumpedKernelRecord(name="softmax_kernel", override_key="key", file_name="softmax_kernel")
    workspace.write_kernel("softmax-1", info, text, {}, {"k.cubin": b"cubin"})
    write_insertions(workspace, insert_kernels(workspace, ()))
    shutil.copytree(REPO / "tests/captures/matmul-one-stage", workspace.folder / CAPTURE)
    for name in ("trace.json", f"{CAPTURE}/trace.json", "workspace.lock", "edits/v/edits.json", "delays/kernels/v/d"):
        (workspace.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace.folder / name).write_text("{}")
    return workspace.folder


@contextmanager
def linked(path: Path, victim: Path) -> Iterator[None]:
    """Have a link to ``victim``, which gets the file's bytes, in place of a file."""
    victim.write_bytes(path.read_bytes())
    path.unlink()
    path.symlink_to(os.path.relpath(victim, path.parent))
    try:
        yield
    finally:
        path.unlink()
        path.write_bytes(victim.read_bytes())


def test_no_command_writes_through_a_link(workspace: Path) -> None:
    launches = list(workspace.rglob("launch-*.bin"))
    paths = sorted(path for path in workspace.rglob("*") if path.is_file() and path not in launches[1:])
    assert len(paths) > 15
    for path in paths:
        with linked(path, workspace.parent / "victim"):
            before = (workspace.parent / "victim").read_bytes()
            for words in COMMANDS:
                with suppress(KprofError, ClickException, SystemExit):
                    root.main(words, standalone_mode=False)
                assert path.is_symlink(), (words, path)
                assert (workspace.parent / "victim").read_bytes() == before, (words, path)
