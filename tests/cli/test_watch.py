"""``watch`` where it cannot watch: wrong arguments, no workspace, a program without kernels."""

from __future__ import annotations

import pytest
from command_line import CommandLine, diagnosis
from snapshots import check


@pytest.mark.parametrize(
    ("title", "arguments"),
    [
        ("no program", ()),
        ("a program to follow", ("--follow", "--", "python", "serve.py")),
        ("no workspace to follow", ("--follow", "-o", "nowhere")),
        ("a program that does not exist", ("--", "nowhere/serve.py")),
        ("a budget of nothing", ("--budget", "0", "--", "serve.py")),
    ],
)
def test_a_mistake_is_explained_before_anything_runs(
    kprof: CommandLine, title: str, arguments: tuple[str, ...]
) -> None:
    kprof.write("serve.py", "print('it ran')")
    ended = kprof("watch", *arguments)
    assert ended.exit_code in (1, 2)
    assert "it ran" not in ended.stdout
    check("cli/watch", diagnosis(ended), title)


def test_a_program_without_kernels_ends_as_it_does_alone(kprof: CommandLine) -> None:
    kprof.write("serve.py", "import sys; print('it ran'); sys.exit(7)")
    ended = kprof("watch", "--", "serve.py")
    assert (ended.exit_code, ended.stdout) == (7, "it ran\n")
    assert ended.errors() == []
    assert "no launch was recorded" in ended.stderr
