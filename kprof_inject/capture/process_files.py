"""Files of one process in a capture, with their seals checked."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from msgspec import UNSET, Struct, UnsetType

from kprof_inject.capture.encoding import CAPTURE_AGAIN, Record, decode, is_sealed, read_json, require_seal
from kprof_inject.capture.schema import (
    LAUNCHES_FILE,
    PROCESS_FILE,
    READABLE_VERSIONS,
    DropRecord,
    FileName,
    LaunchRecord,
    ProcessRecord,
)
from kprof_inject.errors import KprofError
from kprof_inject.files import open_regular


@dataclass(frozen=True, slots=True)
class ProcessFiles:
    """Folder of one process, and its ``process.json``."""

    folder: Path
    capture_folder: Path
    process: ProcessRecord

    @classmethod
    def open(cls, folder: Path) -> ProcessFiles:
        """Open the folder of one process; raises ``KprofError`` if its ``process.json`` is damaged."""
        path = folder / PROCESS_FILE
        return cls(folder, folder.parent, _decode_process(read_json(path, folder.parent), str(path)))

    def read(self, name: str, kind: type[Record]) -> Record:
        """Read a file as a record; raises ``KprofError`` if it is missing or damaged."""
        path = self.folder / name
        text = read_json(path, self.capture_folder)
        self.require_seal(text, name, str(path))
        return decode(text, kind, str(path))

    def read_if_there(self, name: str, kind: type[Record]) -> Record | None:
        """Read a file as a record; None if there is no such file."""
        return self.read(name, kind) if os.path.lexists(self.folder / name) else None

    def lines(self, name: str) -> Iterator[tuple[bytes, str]]:
        """Yield each complete line and its place for messages; the last line of a killed program may be cut."""
        path = self.folder / name
        if not os.path.lexists(path):
            return
        with io.BufferedReader(open_regular(path, self.capture_folder)) as file:
            number = 0
            while (line := file.readline(_MAX_LINE_BYTES)).endswith(b"\n"):
                number += 1
                yield line, f"{path}:{number}"
        if len(line) == _MAX_LINE_BYTES:
            raise KprofError(f"{path}:{number + 1}: no line has {len(line)} bytes", hint=CAPTURE_AGAIN)

    def launch_lines(self) -> Iterator[tuple[LaunchRecord | DropRecord, str]]:
        """Yield each record of ``launches.jsonl`` and its place for messages.

        Raises ``KprofError`` if a line is damaged, or if one before it is missing.
        """
        for number, (line, where) in enumerate(self.lines(LAUNCHES_FILE), 1):
            self.require_seal(line, LAUNCHES_FILE, where)
            record = _decode_launch_line(line, where)
            if self.process.version > 1 and record.line != number:
                raise KprofError(
                    f"{where}: $.line: expected {number}, got {record.line}: lines are missing", hint=CAPTURE_AGAIN
                )
            yield record, where

    def require_seal(self, text: bytes, name: str, where: str) -> None:
        """Raise ``KprofError`` unless the text has its checksum; captures of format 1 have none."""
        if self.process.version > 1:
            require_seal(text, f"{self.process.process}/{name}", where)


_MAX_LINE_BYTES = 1 << 20


class _LineKind(Struct, frozen=True):
    drop: FileName | UnsetType = UNSET


class _Version(Struct, frozen=True):
    version: int | None = None


def _decode_process(text: bytes, where: str) -> ProcessRecord:
    """Decode ``process.json``; raises ``KprofError``, also if its format is not readable by this program."""
    # An edit may have changed the version, which decides whether a seal is required.
    if is_sealed(text):
        require_seal(text, PROCESS_FILE, where)
    version = decode(text, _Version, where).version
    if version not in READABLE_VERSIONS:
        raise KprofError(
            f"{where}: this capture has format {version}, this program reads "
            f"{' and '.join(map(str, READABLE_VERSIONS))}",
            hint="capture again with this version, or read it with the version that wrote it",
        )
    if version > 1:
        require_seal(text, PROCESS_FILE, where)
    return decode(text, ProcessRecord, where)


def _decode_launch_line(line: bytes, where: str) -> LaunchRecord | DropRecord:
    """Decode a line of ``launches.jsonl``; raises ``KprofError``."""
    # Few lines contain the word at all.
    if b"drop" in line and decode(line, _LineKind, where).drop is not UNSET:
        return decode(line, DropRecord, where)
    return decode(line, LaunchRecord, where)
