"""The lines of a kernel's source that scopes name as ``file:line``, as far as the capture has the files."""

from __future__ import annotations

from pathlib import PurePath

from kprof_inject.capture.model import Kernel, lines_of, sources_of


class SourceText:
    def __init__(self, kernel: Kernel) -> None:
        self._texts = sources_of(kernel)
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
