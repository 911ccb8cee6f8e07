"""The texts that a kernel was compiled from, as far as its capture has them, and the places in them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath

from kprof_inject.capture.model import Kernel
from kprof_inject.capture.schema import SOURCES_FILE, TTGIR_FILE
from kprof_inject.errors import printable


def ttgir_of(kernel: Kernel) -> str:
    """Empty if there is none: a file with Proton's own buffer has no text of its kernel."""
    return kernel.ttgir() if (kernel.folder / TTGIR_FILE).is_file() else ""


def sources_of(kernel: Kernel) -> dict[str, str]:
    return kernel.sources() if (kernel.folder / SOURCES_FILE).is_file() else {}


def lines_of(text: str) -> list[str]:
    """As editors count them: form feeds and the like end none."""
    lines = text.replace("\r\n", "\n").split("\n")
    return lines if lines[-1] else lines[:-1]


def shown_line(line: str) -> str:
    """A line of a text file as the page shows it: with blanks for tabs, and nothing that would move the rest."""
    line = line.expandtabs()
    return line if line.isprintable() else printable(line)


class SourceText:
    """The lines of a kernel's source that scopes name as ``file:line``; ``texts`` are by path, and may not be all."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = texts
        self._lines: dict[str, list[str]] = {}

    def line(self, source: str) -> str:
        """Empty if its text is not known."""
        path, number = file_and_line(source) or ("", 0)
        if path not in self._texts:
            return ""
        if path not in self._lines:
            self._lines[path] = lines_of(self._texts[path])
        lines = self._lines[path]
        return lines[number - 1] if 0 < number <= len(lines) else ""


def file_and_line(source: str) -> tuple[str, int] | None:
    path, _, number = source.rpartition(":")
    return (path, int(number)) if path and number.isdecimal() else None


def without_folders(source: str) -> str:
    """``file.py:12``."""
    return PurePath(source).name if source else ""
