"""Shell completion of ``--at``: the selectors of the workspace or file on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import CommandLine
from golden import FIXTURES, read
from programs.child import REPO

SOFTMAX = read(FIXTURES / "3.6.0/cuda-90/softmax.ttgir")


def offered(kprof: CommandLine, *words: str) -> list[str]:
    """What the shell offers for the last word."""
    ended = kprof(
        env={
            "_KPROF_INJECT_COMPLETE": "zsh_complete",
            "COMP_WORDS": " ".join(("kprof-inject", *words)),
            "COMP_CWORD": str(len(words)),
        }
    )
    assert (ended.exit_code, ended.stderr) == (0, "")
    return ended.stdout.splitlines()[1::3]  # a kind, the word and a help text each


def test_the_selectors_of_a_file(kprof: CommandLine) -> None:
    kprof.write("softmax.ttgir", SOFTMAX)

    everything = offered(kprof, "insert", "softmax.ttgir", "--at", "")
    assert everything[:6] == ["func", "loop[0]", "iter[0]", "loop[1]", "iter[1]", "parts"]
    assert offered(kprof, "insert", "softmax.ttgir", "--at", "lo") == ["loop[0]", "loop[1]"]
    assert offered(kprof, "insert", "softmax.ttgir", "--at", "func", "--at", "iter[1") == ["iter[1]"]


def test_the_selectors_of_every_kernel_in_a_workspace(kprof: CommandLine, workspace: Path) -> None:
    everything = ["func", "loop[0]", "iter[0]", "parts", "op(tt.load)", "op(tt.store)"]

    assert offered(kprof, "insert", "workspace", "--at", "") == everything
    assert offered(kprof, "profile", "-o", "workspace", "--at", "it") == ["iter[0]"]


def test_the_usual_workspace_is_the_default(kprof: CommandLine, workspace: Path) -> None:
    workspace.rename(kprof.folder / "kprof_out")

    for command in ("insert", "profile"):
        assert offered(kprof, command, "--at", "it") == ["iter[0]"]


@pytest.mark.parametrize("text", [None, "module {\n", "\0\xff"], ids=["no file", "a cut file", "no TTGIR"])
def test_nothing_is_offered_where_nothing_can_be_read(kprof: CommandLine, text: str | None) -> None:
    if text is not None:
        kprof.write("kernel.ttgir", text)

    assert offered(kprof, "insert", "kernel.ttgir", "--at", "") == []
    assert offered(kprof, "insert", "--at", "") == []


def test_the_scopes_and_layouts_of_a_capture(kprof: CommandLine) -> None:
    capture = REPO / "tests/captures/matmul"
    assert offered(kprof, "trace", str(capture), "--scope", "") == ["func", "loop[0]", "iter[0]"]
    assert offered(kprof, "trace", str(capture), "--scope", "l") == ["loop[0]"]
    assert offered(kprof, "trace", str(capture), "--layout", "") == ["sm", "cta", "scope"]
    assert offered(kprof, "trace", "nowhere", "--scope", "") == []
