"""What the compiler writes to stderr, read back: MLIR's diagnostics with their places."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from kprof_inject.runtime.diagnostics import drop_false_alarms
from kprof_inject.ttgir.strings import unquote

# MLIR writes ``loc("a.py":3:4): error: …``, also with nested locations, and with a handler ``a.py:3:4: error: …``.
_MESSAGE = re.compile(
    r"(?:loc\((?P<location>.*?)\)|(?P<file>[^\s\"].*?):(?P<line>\d+):(?P<column>\d+)|<unknown>:0): "
    r"(?P<severity>error|warning|remark|note): (?P<text>.*)"
)
_NAMED_PLACE = re.compile(r'"(?P<file>(?:[^"\\]|\\.)*)":(?P<line>\d+):(?P<column>\d+)')

# Lines of the module that MLIR prints behind some messages, and the excerpt that follows others.
_NO_MESSAGE = re.compile(r"\s|$|[#!{}]|module\b|\"")
_LONGEST_MESSAGE_LINES = 4

# Says only that a message came before it.
_FOLLOW_UP = "Failures have been detected while processing an MLIR pass pipeline"


@dataclass(frozen=True, slots=True)
class Message:
    """One diagnostic. ``file`` is empty where the compiler named no place."""

    severity: str
    text: str
    file: str = ""
    line: int = 0
    column: int = 0


def errors_in(written: bytes) -> list[Message]:
    """The errors among what the compiler wrote, less Proton's false alarms."""
    text = drop_false_alarms(written).decode(errors="replace")
    return [
        message
        for message in _messages(text)
        if message.severity == "error" and not message.text.startswith(_FOLLOW_UP)
    ]


def last_words(written: bytes, lines: int = 5) -> list[str]:
    """The last lines that were written, each once."""
    text = written.decode(errors="replace")
    return list(dict.fromkeys(line.rstrip() for line in text.splitlines() if line.strip()))[-lines:]


def _messages(text: str) -> Iterator[Message]:
    message: Message | None = None
    for line in text.splitlines():
        if found := _MESSAGE.fullmatch(line):
            if message is not None:
                yield message
            message = _message_of(found)
        elif message is not None:
            if _NO_MESSAGE.match(line) or message.text.count("\n") + 1 == _LONGEST_MESSAGE_LINES:
                yield message
                message = None
            else:
                message = replace(message, text=f"{message.text}\n{line}")
    if message is not None:
        yield message


def _message_of(found: re.Match[str]) -> Message:
    place = _NAMED_PLACE.search(found["location"]) if found["location"] else found
    text = found["text"].rstrip()
    if place is None or place["file"] is None:
        return Message(found["severity"], text)
    return Message(found["severity"], text, unquote(f'"{place["file"]}"'), int(place["line"]), int(place["column"]))
