"""How commands are read off a page, and how what they print is compared: else a page could show anything."""

from __future__ import annotations

from pathlib import Path

import pytest
from pages import Command, Reader, commands_of, files_of, matches, stray_commands

PAGE = """\
Text with `kprof-inject doctor` in it, and a block:

```console
$ kprof-inject demo
kprof-inject: no GPU here…
$ cat > program.py <<E
> print(1)
> E
```

    kprof-inject list kprof_out

```console
# needs a GPU
$ kprof-inject profile program.py
```

```python
# saved.py
print(2)
```
"""


def test_commands_have_the_output_below_them_and_files_their_name() -> None:
    assert commands_of(PAGE) == [
        Command(4, "kprof-inject demo", "kprof-inject: no GPU here…", False),
        Command(6, "cat > program.py <<E\nprint(1)\nE", "", False),
        Command(15, "kprof-inject profile program.py", "", True),
    ]
    assert files_of(PAGE) == {"saved.py": "# saved.py\nprint(2)\n"}
    assert stray_commands(PAGE) == [(11, "kprof-inject list kprof_out")]


def test_what_a_command_does_not_print_fails_and_so_does_its_exit_code(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    with pytest.raises(AssertionError, match="line 7: echo 1\nprinted:\n1\n\nshown:"):
        reader.follow(Command(7, "echo 1", "2", False))
    with pytest.raises(AssertionError, match="ended with 3"):
        reader.follow(Command(7, "exit 3", "", False))


def test_an_ellipsis_stands_for_anything_and_all_else_for_itself() -> None:
    for shown, printed in (("a\n…\nb", "a\nb"), ("a\n…\nb", "a\nx\ny\nb"), ("a …", "a b\nc"), ("x* … s", "x* 1 s  ")):
        assert matches(shown, printed), shown
    for shown, printed in (("a", "a\nb"), ("a\nb", "a"), ("a\n…\nb", "a\nc"), ("x*", "xx"), ("  a", "a"), ("a…b", "a")):
        assert not matches(shown, printed), shown
