"""The only kind of error that a user sees: what happened, where, and what to do next."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

_MAX_EXCERPT = 160  # characters


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a text. ``line`` and ``column`` count from 1; ``text`` is that line, without its end."""

    file: str
    line: int
    column: int
    text: str = ""

    @classmethod
    def at_offset(cls, file: str, text: str, offset: int) -> Position:
        """Return the position of the character at ``offset``; an offset past the end means the last line's end."""
        offset = min(offset, len(text))
        start = text.rfind("\n", 0, offset) + 1
        end = text.find("\n", offset)
        line_text = text[start : end if end >= 0 else len(text)].rstrip("\r")
        return cls(file, text.count("\n", 0, start) + 1, offset - start + 1, line_text)

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class KprofError(Exception):
    """A failure that the user can act on: one sentence, the place in a text, what to do next, and an exit code."""

    def __init__(self, what: str, *, where: Position | None = None, hint: str = "", exit_code: int = 1) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.hint = hint
        self.exit_code = exit_code

    def __str__(self) -> str:
        """Return the sentence and the hint, because a traceback shows nothing else."""
        return f"{self.what}\nhint: {self.hint}" if self.hint else self.what

    def render(self) -> str:
        """Return the diagnostic as it is printed: one to four lines, without colour."""
        lines = [f"error: {self.what}" if self.where is None else f"{self.where}: error: {self.what}"]
        if self.where is not None and self.where.text:
            # The line, and a caret under its column; a long line is cut around the column.
            column, text = self.where.column - 1, self.where.text
            first = max(0, min(column - _MAX_EXCERPT // 2, len(text) - _MAX_EXCERPT))
            shown = text[first : first + _MAX_EXCERPT]
            # A tab keeps its width in the line above, so the caret line repeats it.
            pad = "".join("\t" if character == "\t" else " " for character in shown[: column - first])
            lines += [f"  {shown}", f"  {pad}^"]
        if self.hint:
            lines.append(f"hint: {self.hint}")
        return "\n".join(lines)


def did_you_mean(word: str, known: Iterable[str], max_words: int = 3, shown: Callable[[str], str] = str) -> str:
    """Return a question for the known words similar to this one, with a trailing blank; empty if there are none."""
    from difflib import get_close_matches  # imported late, because only errors need it

    close = [shown(found) for found in get_close_matches(word, list(known), max_words)]
    if not close:
        return ""
    *others, last = close
    return f"did you mean {', '.join(others)} or {last}? " if others else f"did you mean {last}? "


def printable(text: str) -> str:
    """Replace each character that a terminal would obey or cannot show (escapes, line ends, surrogates) by a space."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else " " for character in text)


def printable_lines(text: str) -> str:
    """Do the same for a text of several lines, whose line feeds and tabs stay; columns remain the same."""
    return "".join(character if character.isprintable() or character in "\n\t" else " " for character in text)
