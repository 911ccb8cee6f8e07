"""What a capture has of a kernel beside its numbers. A file with Proton's own buffer has nothing of it."""

from __future__ import annotations

from kprof_inject.capture.format import SOURCES_FILE, TTGIR_FILE
from kprof_inject.capture.reader import Kernel
from kprof_inject.printable import printable


def ttgir_of(kernel: Kernel) -> str:
    """Empty if there is none."""
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
