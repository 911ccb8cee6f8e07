"""The user's choice of what to record: one record from the command line to the program's processes and the capture."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from kprof_inject.capture.counters import parse_metrics
from kprof_inject.capture.cta_samples import CtaChoice, parse_ctas
from kprof_inject.capture.mode import Mode
from kprof_inject.capture.schema import Count, Name, Text
from kprof_inject.errors import KprofError, Position

KERNEL_SECONDS = 1.0  # time for the replays of a kernel, if their number is left to us


class Recording(Struct, frozen=True, kw_only=True):
    """Choice of the launches to record, and of what to measure.

    They are the ``launches`` (``last``, ``10:20``, ...) of kernels whose names match the glob ``kernel``, at most
    ``max_launches`` (0: no limit) and ``max_bytes`` of buffers in each process; ``ctas`` says which CTAs of a launch
    record.

    To time kernels, a launch of each is saved, and repeated with and without records in turn after the program has
    ended: ``replay`` times each way, by default as many as needed within ``KERNEL_SECONDS``, for the variants
    ``replayed``, by default all. The hardware counts ``counters`` meanwhile. With ``keep_launches``, a launch of each
    kernel is saved for the user. With ``torch_trace``, each process also traces itself with ``torch.profiler``.
    """

    kernel: str = "*"
    launches: Name = "last"
    max_launches: Count = 0
    max_bytes: Annotated[int, Meta(ge=1)] = 1 << 30
    ctas: Name = "all"
    replay: Count | None = None
    replayed: tuple[Name, ...] | None = None
    counters: Text = "none"
    keep_launches: bool = False
    torch_trace: bool = False
    mode: Mode = Mode()

    def __post_init__(self) -> None:
        # Raises ``KprofError`` for texts that cannot be parsed.
        self.mode.require_ascending_warps()
        parse_launches(self.launches)
        parse_ctas(self.ctas)
        parse_metrics(self.counters)

    @property
    def filter(self) -> LaunchFilter:
        """Filter of the launches by their numbers."""
        return parse_launches(self.launches)

    @property
    def cta_choice(self) -> CtaChoice:
        """Choice of the CTAs of a launch."""
        return parse_ctas(self.ctas)

    @property
    def metrics(self) -> tuple[str, ...]:
        """Metrics of ``counters``."""
        return parse_metrics(self.counters)

    @property
    def variants_to_replay(self) -> tuple[str, ...] | None:
        """Variants to replay; None for all."""
        return () if self.replay == 0 else self.replayed

    @property
    def asks_for_saved_launches(self) -> bool:
        """True if the user keeps launches or set a number of replays."""
        return self.keep_launches or bool(self.replay)

    def replaying(self, variants: Iterable[str]) -> Recording:
        """Return the choice with replays of these variants if the user left it to us."""
        is_chosen = self.replay is not None or self.replayed is not None
        return self if is_chosen else replace(self, replayed=tuple(variants))


@dataclass(frozen=True, slots=True)
class LaunchFilter:
    """A choice of launches by number, like a slice; if it ``replaces``, each kept launch replaces the one before."""

    text: str
    first: int = 0
    stop: int | None = None
    step: int = 1
    replaces: bool = False

    def keeps(self, index: int) -> bool:
        """Return whether to keep a launch."""
        inside = self.first <= index and (self.stop is None or index < self.stop)
        return inside and (index - self.first) % self.step == 0


_WORDS = {
    "last": LaunchFilter("last", replaces=True),
    "first": LaunchFilter("first", stop=1),
    "all": LaunchFilter("all"),
}
_PART = re.compile(r"(?:^|:)([^:]*)")
# No program makes 10^18 launches.
_NUMBER = re.compile(r"[0-9]{1,18}")
_FORMS = "last, first, all, a number counted from 0, or a range such as 10:20 or 0:100:10"


def parse_launches(text: str) -> LaunchFilter:
    """Parse ``last``, ``first``, ``all``, ``N``, or a range ``A:B:STEP`` that is not empty; raises ``KprofError``."""
    if text in _WORDS:
        return _WORDS[text]
    parts = list(_PART.finditer(text))
    if len(parts) > 3:
        raise _unreadable(text, parts[3].start())
    numbers = [_number(text, part.start(1), part[1]) for part in parts]
    if len(numbers) == 1:
        if numbers[0] is None:
            raise _unreadable(text, 0)
        return LaunchFilter(text, numbers[0], numbers[0] + 1)
    first = numbers[0] or 0
    stop = numbers[1]
    step = 1 if len(numbers) == 2 or numbers[2] is None else numbers[2]
    if stop is not None and stop <= first:
        raise _error(text, parts[1].start(1), f"no launch is in {text}", "the end of a range is exclusive")
    if step == 0:
        raise _error(text, parts[2].start(1), "the step is 0", "1 keeps every launch of the range")
    return LaunchFilter(text, first, stop, step)


def _number(text: str, offset: int, part: str) -> int | None:
    if not part:
        return None
    if re.fullmatch(r"-[0-9]+", part):
        raise _error(text, offset, f"there is no launch {part}", "launches are counted from 0; last is the last one")
    digits = _NUMBER.match(part)
    if digits is None or digits.end() < len(part):
        raise _unreadable(text, offset + (digits.end() if digits else 0))
    return int(part)


def _unreadable(text: str, offset: int) -> KprofError:
    return _error(text, offset, f"cannot read the launches {text!r}", _FORMS)


def _error(text: str, offset: int, what: str, hint: str) -> KprofError:
    return KprofError(what, where=Position("--launches", 1, offset + 1, text), hint=hint, exit_code=2)
