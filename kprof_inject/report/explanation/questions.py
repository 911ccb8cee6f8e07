"""Questions on a capture: a fixed set, each a word with arguments, as in ``waits-for loop[0] 'load k'``."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from kprof_inject.errors import KprofError, Position, did_you_mean
from kprof_inject.quantities import counted


@dataclass(frozen=True, slots=True)
class QuestionForm:
    """How a question is asked: its word, and its arguments, of which the last ``optional`` may be left out."""

    word: str
    arguments: tuple[str, ...]
    optional: int
    meaning: str

    def __str__(self) -> str:
        least = len(self.arguments) - self.optional
        shown = [name if place < least else f"[{name}]" for place, name in enumerate(self.arguments)]
        return " ".join((self.word, *shown))

    def takes(self, count: int) -> bool:
        return len(self.arguments) - self.optional <= count <= len(self.arguments)


WAITS_FOR = QuestionForm(
    "waits-for", ("SCOPE", "WHAT"), 1, "what part of SCOPE's time is spent in waits, or in waits for WHAT"
)
OVERLAP = QuestionForm("overlap", ("A", "B"), 0, "what part of scope A's time overlaps with B on the same SM")
SHARE = QuestionForm("share", ("SCOPE",), 0, "what part of the warps' time SCOPE takes")
CHANGED = QuestionForm("changed", ("A", "B"), 0, "how much longer a launch takes in capture B than in A")
FORMS = {form.word: form for form in (WAITS_FOR, OVERLAP, SHARE, CHANGED)}

_QUOTES = "quote names that contain spaces"


@dataclass(frozen=True, slots=True)
class Question:
    form: QuestionForm
    arguments: tuple[str, ...]
    text: str
    """As it was asked."""


def parse_question(text: str) -> Question:
    """Words as a shell splits them. Raises a usage error that lists the questions."""
    where = Position("--question", 1, 1, text)
    try:
        words = shlex.split(text)
    except ValueError as error:
        what = f"cannot read the question: {str(error).lower()}"
        raise KprofError(what, where=where, hint=_QUOTES, exit_code=2) from None
    word, *arguments = words or [""]
    form = FORMS.get(word)
    if form is None:
        asked = f"there is no question {word!r}" if word else "the question is empty"
        hint = f"{did_you_mean(word, FORMS)}the questions are {', '.join(map(str, FORMS.values()))}"
        raise KprofError(asked, where=where, hint=hint, exit_code=2)
    if not form.takes(len(arguments)):
        raise KprofError(
            f"{word} does not take {counted(len(arguments), 'argument')}",
            where=where,
            hint=f"ask {form}: {form.meaning}; {_QUOTES}",
            exit_code=2,
        )
    return Question(form, tuple(arguments), text)
