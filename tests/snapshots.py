"""Snapshots: what a report or a message says, word for word, in files that one script rewrites.

A snapshot is ``tests/snapshots/<area>/<name>.txt``: one text, or one entry a case below a line ``== case ==``. Tests
that have one import ``check`` from here, and write the snapshot's name and the case's as whole words in their source,
or the case's in a file of cases: ``test_snapshots.py`` searches for them there, and fails for those that no test checks
any more.

``scripts/snapshots`` rewrites them all; review their diff like code. Everything else in a test is a fact: a figure, a
rule, a scope, an exit code, a place.
"""

from __future__ import annotations

import difflib
import fcntl
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from kprof_inject.version import __version__

FOLDER = Path(__file__).with_suffix("")
WRITES = os.environ.get("KPROF_SNAPSHOTS") == "write"

_REPO = FOLDER.parent.parent
_HEAD = re.compile(r"^== (.+) ==$")

# What varies from run to run or from machine to machine, and what the snapshot has instead.
_VARYING = [
    (re.compile(re.escape(tempfile.gettempdir()) + r"/pytest-of-[^/\s]+/pytest-\d+/(popen-gw\d+/)?[\w.-]+"), "TMP"),
    (re.compile(re.escape(tempfile.gettempdir()) + r"/tmp[a-z0-9_]{8}"), "TMP"),
    (re.compile(re.escape(str(_REPO)) + r"(?=[/\s'\":]|$)", re.MULTILINE), "REPO"),
    (re.compile(r"\b\d+ (second|minute|hour|day)s? ago\b"), "AGE ago"),
    (re.compile(r"\bkprof-inject " + re.escape(__version__)), "kprof-inject VERSION"),
    # Terminals do not show them.
    (re.compile(r"[ \t]+$", re.MULTILINE), ""),
]


def check(name: str, text: str, case: str = "") -> None:
    """Fail unless ``text`` is what the snapshot ``area/name`` has, in its entry ``case`` if it has several.

    Only what varies between runs and machines is replaced in both: folders, ages, our version, blanks at line ends."""
    __tracebackhide__ = True
    path, entry = FOLDER / f"{name}.txt", normalised(text)
    if WRITES:
        _write(path, case, entry)
        return
    expected = None
    if path.exists():
        snapshot = path.read_text()
        expected = entries_of(snapshot).get(case) if case else snapshot.strip("\n")
    if expected is None:
        pytest.fail(f"{_label(name, case)} is missing: scripts/snapshots writes it\n{entry}", pytrace=False)
    if entry != expected:
        lines = difflib.unified_diff(expected.split("\n"), entry.split("\n"), "snapshot", "now", lineterm="")
        diff = "\n".join(lines)
        pytest.fail(f"{_label(name, case)} differs: scripts/snapshots rewrites it\n{diff}", pytrace=False)


def check_cases(name: str, texts: Mapping[str, str]) -> None:
    """Check a snapshot of which these are all entries: texts by case."""
    __tracebackhide__ = True
    check(name, written(texts))


def normalised(text: str) -> str:
    """Return the text without what varies, and without empty lines at its ends."""
    for pattern, replacement in _VARYING:
        text = pattern.sub(replacement, text)
    return text.strip("\n")


def entries_of(text: str) -> dict[str, str]:
    """Return a snapshot's entries by case; none if it is one text."""
    entries = dict[str, list[str]]()
    lines = list[str]()
    for line in text.split("\n"):
        if head := _HEAD.match(line):
            lines = entries[head[1]] = []
        else:
            lines.append(line)
    return {case: "\n".join(lines).strip("\n") for case, lines in entries.items()}


def written(entries: Mapping[str, str]) -> str:
    """Return the snapshot that has these entries."""
    return "\n\n".join(f"== {case} ==\n{text}".rstrip("\n") for case, text in entries.items())


def _write(path: Path, case: str, entry: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        # Tests that run at the same time may write other cases of it.
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        text = written({**entries_of(file.read()), case: entry}) if case else entry
        file.truncate(0)
        file.write(text + "\n")


def _label(name: str, case: str) -> str:
    return f"tests/snapshots/{name}.txt" + (f", {case!r}," if case else "")
