"""What of the page's modules needs no browser, tested in Node."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from node import node

_TESTS = sorted(Path(__file__).parent.joinpath("javascript").glob("*.test.mjs"))


@pytest.mark.parametrize("path", _TESTS, ids=lambda path: path.name.removesuffix(".test.mjs"))
def test_module(path: Path) -> None:
    ended = subprocess.run([node(), "--test", str(path)], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
