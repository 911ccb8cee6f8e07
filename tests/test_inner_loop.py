"""The tests that CONTRIBUTING names for the inner loop need neither Triton nor torch."""

from __future__ import annotations

import re
from pathlib import Path

from programs.child import REPO, run_python

WITHOUT_THEM = """\
import sys
import pytest
sys.modules.update(triton=None, torch=None)
sys.exit(pytest.main(sys.argv[1:]))
"""


def test_all_of_them_are_collected_without_triton_and_torch(tmp_path: Path) -> None:
    command = re.search(r"pytest -n 2 -m \"not slow.*?\" (tests/.*)", (REPO / "CONTRIBUTING.md").read_text())
    assert command is not None
    folders = [REPO / word for word in command[1].split()]
    options = ("--collect-only", "-q", "-p", "no:cacheprovider", "-c", REPO / "pyproject.toml")

    ended = run_python("-c", WITHOUT_THEM, *options, *folders, folder=tmp_path)

    assert ended.exit_code == 0, ended.stdout
    collected = {REPO / line.rpartition(": ")[0] for line in ended.stdout.splitlines() if line.startswith("tests/")}
    assert len(folders) == 4
    assert collected == {path for folder in folders for path in folder.rglob("test_*.py")}
