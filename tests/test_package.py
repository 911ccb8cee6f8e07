"""What the package says of itself, and what is in the archive of its sources."""

from __future__ import annotations

import re
import subprocess
import tomllib

import pytest
from hatchling.builders.sdist import SdistBuilder
from programs.child import REPO

PROJECT = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]


def test_the_sdist_has_all_that_git_has() -> None:
    if not (REPO / ".git").exists():
        pytest.skip("no checkout, but an unpacked sdist")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=REPO, capture_output=True, check=True).stdout
    tracked = {name for name in listed.decode().split("\0") if (REPO / name).is_file()}
    included = {file.relative_path for file in SdistBuilder(str(REPO)).recurse_included_files()}
    assert len(tracked) > 1000
    assert tracked - included == set()
    assert not any(name.startswith((".venv", ".cache")) for name in included)


def test_the_versions_of_python_are_those_that_the_workflow_tests() -> None:
    classified = [found[1] for text in PROJECT["classifiers"] if (found := re.search(r":: Python :: (3\.\d+)$", text))]
    workflow = (REPO / ".github/workflows/test.yml").read_text()
    tested = re.findall(r'"(3\.\d+)"', workflow.partition("matrix:")[2])
    assert tested == classified
    assert PROJECT["requires-python"] == f">={classified[0]}"
