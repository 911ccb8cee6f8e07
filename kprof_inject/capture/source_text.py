"""Texts that a kernel was compiled from, as far as its capture has them, and places in them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath

from kprof_inject.capture.model import Kernel
from kprof_inject.capture.schema import SOURCES_FILE, TTGIR_FILE
from kprof_inject.errors import printable


def ttgir_of(kernel: Kernel) -> str:
    """Return the kernel's TTGIR; empty if there is none, as with a file of Proton's own buffer."""
    return kernel.ttgir() if (kernel.folder / TTGIR_FILE).is_file() else ""


def sources_of(kernel: Kernel) -> dict[str, str]:
    """Return the kernel's source files by path; empty if there are none."""
    return kernel.sources() if (kernel.folder / SOURCES_FILE).is_file() else {}


def lines_of(text: str) -> list[str]:
    """Split a text into lines as editors do: form feeds and the like do not end a line."""
    lines = text.replace("\r\n", "\n").split("\n")
    return lines if lines[-1] else lines[:-1]


def shown_line(line: str) -> str:
    """Return a line for display: tabs become blanks, and characters that would move the rest are escaped."""
    line = line.expandtabs()
    return line if line.isprintable() else printable(line)


class SourceText:
    """Lines of a kernel's source that scopes refer to as ``file:line``; ``texts`` are by path, perhaps not all."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        """Keep the texts, which are split into lines on first use."""
        self._texts = texts
        self._lines: dict[str, list[str]] = {}

    def line(self, source: str) -> str:
        """Return the line of ``source``; empty if its text is unknown."""
        path, number = file_and_line(source) or ("", 0)
        if path not in self._texts:
            return ""
        if path not in self._lines:
            self._lines[path] = lines_of(self._texts[path])
        lines = self._lines[path]
        return lines[number - 1] if 0 < number <= len(lines) else ""


def file_and_line(source: str) -> tuple[str, int] | None:
    """Split ``file:line``; None if it has another form."""
    path, _, number = source.rpartition(":")
    return (path, int(number)) if path and number.isdecimal() else None


def without_folders(source: str) -> str:
    """Return ``file:line`` with the name of the file alone: ``file.py:12``."""
    return PurePath(source).name if source else ""
