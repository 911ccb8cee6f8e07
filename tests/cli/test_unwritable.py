"""Places that cannot be written to: a diagnostic, and nothing half done."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from command_line import CommandLine
from programs.child import CROSS_COMPILE, REPO

VECTOR_ADD = REPO / "ttgir_fixtures/3.6.0/cuda-90/vector_add.ttgir"


@pytest.mark.parametrize(
    "command",
    [
        ["insert", VECTOR_ADD, "-o", "file/out.ttgir"],
        ["insert", VECTOR_ADD, "-o", "folder"],
        ["insert", VECTOR_ADD, "--plan", "file/plan.json"],
        ["strip", VECTOR_ADD, "-o", "file/out.ttgir"],
        ["dump", "-o", "file", "--", CROSS_COMPILE],
        ["dump", "-o", "file/ws", "--", CROSS_COMPILE],
    ],
    ids=["below a file", "a folder", "plan", "strip", "workspace is a file", "workspace below a file"],
)
def test_an_output_that_cannot_be_written(kprof: CommandLine, command: list[str | Path]) -> None:
    kprof.write("file", "precious")
    (kprof.folder / "folder").mkdir()
    ended = kprof(*command)
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert len(ended.errors()) == 1
    assert "Traceback" not in ended.stderr
    assert kprof.read("file") == "precious"
    assert sorted(os.listdir(kprof.folder)) == ["file", "folder", "home"]
