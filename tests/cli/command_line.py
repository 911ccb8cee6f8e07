"""``kprof-inject`` as a child process."""

from __future__ import annotations

import sys
from pathlib import Path

from programs.child import Ended, run_child


class CommandLine:
    """Runs ``kprof-inject`` with ``folder`` as its working directory, and with an empty home in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, *arguments: str | Path, stdin: bytes = b"", env: dict[str, str] | None = None) -> Ended:
        return run_child([sys.executable, "-m", "kprof_inject", *arguments], self.folder, stdin=stdin, env=env)

    def read(self, name: str) -> str:
        """A file's text, line ends as they are."""
        return (self.folder / name).read_bytes().decode()

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_bytes(text.encode())
