from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from command_line import CommandLine
from programs.child import CROSS_COMPILE, REPO, Ended

from kprof_inject.capture.reader import read_capture
from kprof_inject.cli.demo import _write_kernel
from kprof_inject.workspace import Workspace
from kprof_inject.workspace_folder import DEFAULT_WORKSPACE


@pytest.fixture
def kprof(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path)


@pytest.fixture(scope="session")
def dumped_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The workspace that dumping ``cross_compile.py`` makes; never changed."""
    kprof = CommandLine(tmp_path_factory.mktemp("dumped"))
    ended = kprof("dump", "-o", "workspace", "--", CROSS_COMPILE)
    assert ended.exit_code == 0, ended.stderr
    return kprof.folder / "workspace"


@pytest.fixture
def workspace(dumped_once: Path, kprof: CommandLine) -> Path:
    """The same, to be changed by one test."""
    return Path(shutil.copytree(dumped_once, kprof.folder / "workspace"))


@pytest.fixture(scope="session")
def captured_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace as the demo leaves it, with two captures and the kernel; never changed."""
    workspace = Workspace.create(tmp_path_factory.mktemp("captured") / DEFAULT_WORKSPACE)
    for name in ("matmul-one-stage", "matmul-three-stages"):
        capture = shutil.copytree(REPO / "tests/captures" / name, workspace.new_capture_folder(), dirs_exist_ok=True)
    _write_kernel(workspace, read_capture(Path(capture)).launches[0].kernel)
    return workspace.folder


@pytest.fixture(scope="session")
def demo_once(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ended]:
    """A folder of settings and a workspace of the user's in which the demo ran once, and what it said."""
    kprof = CommandLine(tmp_path_factory.mktemp("demo"))
    kprof.write("pyproject.toml", '[tool.kprof-inject]\noutput = "elsewhere"\n')
    Workspace.create(kprof.folder / DEFAULT_WORKSPACE)
    return kprof.folder, kprof("demo")
