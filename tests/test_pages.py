"""How commands are read off a page, and how what they print is compared."""

from __future__ import annotations

from pathlib import Path

import pytest
from pages import Command, Reader, commands_of, files_of, matches, stray_commands

PAGE = """\
# A page

Text with `kprof-inject doctor` in it, and a block:

```console
$ kprof-inject demo
kprof-inject: no GPU here…
$ cat > program.py <<E
> print(1)
> E
$ python program.py
1
```

    kprof-inject list kprof_out
    another line

```console
# needs a GPU
$ kprof-inject profile program.py
```

```python
print("python stands here")
python = 3
```

```python
# saved.py
print(2)
```
"""


def test_commands_have_the_output_below_them() -> None:
    assert commands_of(PAGE) == [
        Command(6, "kprof-inject demo", "kprof-inject: no GPU here…", False),
        Command(8, "cat > program.py <<E\nprint(1)\nE", "", False),
        Command(11, "python program.py", "1", False),
        Command(20, "kprof-inject profile program.py", "", True),
    ]


def test_a_block_with_a_files_name_is_that_file(tmp_path: Path) -> None:
    assert files_of(PAGE) == {"saved.py": "# saved.py\nprint(2)\n"}
    Reader(tmp_path, PAGE).follow(Command(1, "python saved.py", "2", False))


def test_what_a_command_does_not_print_fails_and_so_does_its_exit_code(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    with pytest.raises(AssertionError, match="line 7: echo 1\nprinted:\n1\n\nshown:"):
        reader.follow(Command(7, "echo 1", "2", False))
    with pytest.raises(AssertionError, match="ended with 3"):
        reader.follow(Command(7, "exit 3", "", False))


def test_a_command_that_nothing_runs_is_found() -> None:
    assert stray_commands(PAGE) == [(15, "kprof-inject list kprof_out"), (25, "python = 3")]
    assert stray_commands("```console\nkprof-inject demo\n```\n") == [(2, "kprof-inject demo")]


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("a\n…\nb", "a\nb"),
        ("a\n…\nb", "a\nx\ny\nb"),
        ("a …", "a b\nc"),
        ("…\nb", "b"),
        ("took … ms (x*)", "took 12 ms (x*)"),
        ("a", "a   "),
    ],
)
def test_an_ellipsis_stands_for_anything(shown: str, printed: str) -> None:
    assert matches(shown, printed)


@pytest.mark.parametrize(
    ("shown", "printed"),
    [("a", "b"), ("a", "a\nb"), ("a\nb", "a"), ("a\n…\nb", "a\nc"), ("x*", "xx"), ("  a", "a"), ("a…b", "a")],
)
def test_all_else_stands_for_itself(shown: str, printed: str) -> None:
    assert not matches(shown, printed)
