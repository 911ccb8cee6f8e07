from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from command_line import CommandLine
from programs.child import CROSS_COMPILE


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
