"""What a marker comment says: ``# kprof:``, then instructions between semicolons."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches

from kprof_inject.errors import KprofError, Position
from kprof_inject.select.source.python_source import Comment

MARKER_COMMENT = re.compile(r"#\s*kprof:")
# Behind code, other tools' comments may come first: "# type: ignore  # kprof: load". One blank is prose.
_BEHIND_ANOTHER = re.compile(r"(?<=[^\s#])\s{2,}#\s*kprof:")

_VERBS_WITH_NAME = frozenset({"begin", "mark"})
_VERBS_ALONE = frozenset({"begin", "end", "mark"})
_VERBS_BEHIND_CODE = frozenset({"loop", "iter"})

# Written by mistake, it would be ignored without a word. More than two words behind the head are prose.
_ANY_VERB = "|".join(sorted(_VERBS_ALONE | _VERBS_BEHIND_CODE))
_LOOKS_LIKE_MARKER = re.compile(rf"#\s*(?i:kprof)(?:\s+|\s*:\s*)(?:{_ANY_VERB})(?:\s+\S+)?\s*")

# A second comment ends the first, so that "# kprof: load  # fmt: skip" can be written.
_NEXT_COMMENT = re.compile(r"\s#")
_INSTRUCTION = re.compile(r"[^;]+")
_WORD = re.compile(r"\S+")
# All else means something in a selector: marker(GLOB)=NAME.
_NAME = re.compile(r"""[^\s"'\\=#()*?\[\]\x00-\x1f\x7f]+""")

_HINT_ALONE = "on a line of its own stands begin NAME, end [NAME] or mark NAME"
_HINT_BEHIND_CODE = "behind a statement stands one word, its name; behind for or while also loop [NAME] or iter [NAME]"


@dataclass(frozen=True, slots=True)
class Instruction:
    """One thing that a marker comment says. Without a ``verb`` it names a statement; ``name`` is empty if left out."""

    verb: str
    name: str
    comment: Comment
    where: Position

    def __str__(self) -> str:
        return f"'{self.verb} {self.name}'" if self.name else f"'{self.verb}'"


def marker_head(comment: Comment) -> re.Match[str] | None:
    """Where a comment says that it is a marker, up to the colon; None if it is none."""
    found = MARKER_COMMENT.match(comment.text)
    return found if found or comment.is_alone else _BEHIND_ANOTHER.search(comment.text)


def may_hold_markers(text: str) -> bool:
    """Whether a Python text may have comments that are markers or look like one; quick, and without parsing it."""
    return "kprof:" in text or _LOOKS_LIKE_MARKER.search(text) is not None


def check_is_prose(comment: Comment, file: str, line_text: str) -> None:
    """Raise ``KprofError`` for a comment without a marker's head that nevertheless was meant as a marker."""
    if _LOOKS_LIKE_MARKER.fullmatch(comment.text):
        raise KprofError(
            "this comment looks like a marker, but is none",
            where=Position(file, comment.line, comment.column, line_text),
            hint="a marker begins with '# kprof:', in small letters and with the colon right behind",
        )


def instructions_in(comment: Comment, file: str, line_text: str) -> Iterator[Instruction]:
    """What a marker comment says, in its order. Raises ``KprofError`` for what cannot be understood."""

    def position(offset: int) -> Position:
        return Position(file, comment.line, comment.column + offset, line_text)

    head = marker_head(comment)
    begin = head.end() if head else 0
    next_comment = _NEXT_COMMENT.search(comment.text, begin)
    end = next_comment.start() if next_comment else len(comment.text)
    said_any = False
    for part in _INSTRUCTION.finditer(comment.text, begin, end):
        words = [(word[0], position(word.start())) for word in _WORD.finditer(comment.text, part.start(), part.end())]
        if words:
            said_any = True
            yield _instruction(words, comment)
    if not said_any:
        raise KprofError("this marker comment says nothing", where=position(0), hint=_hint(comment))


def _instruction(words: list[tuple[str, Position]], comment: Comment) -> Instruction:
    (verb, where), *rest = words
    if verb in _VERBS_ALONE and not comment.is_alone:
        raise KprofError(
            f"{verb!r} must stand on a line of its own",
            where=where,
            hint="put the comment on a line above or below; behind a statement stands its name alone",
        )
    if verb in _VERBS_BEHIND_CODE and comment.is_alone:
        raise not_behind_loop(verb, where)
    if verb in _VERBS_ALONE | _VERBS_BEHIND_CODE:
        if len(rest) > 1:
            raise KprofError(f"{verb!r} takes one name", where=rest[1][1], hint="a name is one word")
        if verb in _VERBS_WITH_NAME and not rest:
            raise KprofError(f"{verb!r} needs a name", where=where, hint=f"# kprof: {verb} NAME")
        return Instruction(verb, _name(*rest[0]) if rest else "", comment, where)
    if comment.is_alone or rest:
        close = get_close_matches(verb, sorted(_VERBS_ALONE if comment.is_alone else _VERBS_BEHIND_CODE), n=1)
        suggestion = f"did you mean {close[0]!r}? " if close else ""
        raise KprofError(
            f"unknown verb {verb!r} in a marker comment", where=where, hint=f"{suggestion}{_hint(comment)}"
        )
    return Instruction("", _name(verb, where), comment, where)


def not_behind_loop(verb: str, where: Position) -> KprofError:
    """The refusal of ``loop`` or ``iter`` anywhere else than behind the header of a loop."""
    return KprofError(
        f"{verb!r} must stand behind the header of a for or while",
        where=where,
        hint="put the comment at the end of the line that the loop begins on",
    )


def _name(word: str, where: Position) -> str:
    if _NAME.fullmatch(word) is None:
        raise KprofError(
            f"{word!r} cannot be a marker's name",
            where=where,
            hint="a name has no quotes, parentheses, brackets, and none of \\ = # * ?",
        )
    return word


def _hint(comment: Comment) -> str:
    return _HINT_ALONE if comment.is_alone else _HINT_BEHIND_CODE
