"""The user's choice of the launches to keep (``--launches``) and the kernels to replay (``--replay``)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from kprof_inject.capture.cta_samples import EVERY_CTA, CtaChoice
from kprof_inject.capture.saved_launch import MAX_LAUNCH_BYTES
from kprof_inject.errors import KprofError, Position


@dataclass(frozen=True, slots=True)
class LaunchFilter:
    """A choice of launches by number, counted from 0 for each variant; ``text`` is the user's.

    It keeps every ``step``-th launch from ``first`` up to and without ``stop``; there is no end if ``stop`` is None. If
    it ``replaces``, each kept launch replaces the one before.
    """

    text: str
    first: int = 0
    stop: int | None = None
    step: int = 1
    replaces: bool = False

    def keeps(self, index: int) -> bool:
        """Return whether to keep a launch."""
        inside = self.first <= index and (self.stop is None or index < self.stop)
        return inside and (index - self.first) % self.step == 0

    def kept_of(self, launches: int) -> int:
        """Return how many of the first ``launches`` launches are kept, whether or not later ones replace them."""
        stop = launches if self.stop is None else min(launches, self.stop)
        return len(range(self.first, stop, self.step))


LAST = LaunchFilter("last", replaces=True)


@dataclass(frozen=True, slots=True)
class ReplayChoice:
    """The kernels to launch again to time them, with and without records in turn.

    ``only`` has their variants; None means all. ``times`` is the number of timings each way. None leaves it to us: as
    many as needed, within ``KERNEL_SECONDS`` for a kernel. A launch of each is saved, and repeated after the program
    has ended.
    """

    only: tuple[str, ...] | None = None
    times: int | None = None

    @classmethod
    def of(cls, times: int | None) -> ReplayChoice:
        """Return the choice of all kernels, ``times`` times each; 0 means no kernels, None leaves it to us."""
        return cls(only=()) if times == 0 else cls(times=times)

    def among(self, variants: Iterable[str]) -> ReplayChoice:
        """Return the choice of these variants if the user left it to us, else ``self``."""
        return self if self.times is not None or self.only is not None else replace(self, only=tuple(variants))


REPLAYS = ReplayChoice()
NO_REPLAYS = ReplayChoice.of(0)

KERNEL_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class SavedLaunches:
    """The kernels of which one launch is saved, and where.

    ``variants`` are those of the kernels; None means all. ``folder`` gets the launches; ``kernels_folder`` is the
    workspace's. Memory is limited per launch and for a process, and so is the time that a launch waits. With
    ``is_asked_for``, launches are saved even if the program would see in its own times that they are.
    """

    variants: tuple[str, ...] | None = ()
    folder: str = ""
    kernels_folder: str = ""
    max_launch_bytes: int = MAX_LAUNCH_BYTES
    max_bytes: int = 8 << 30
    max_seconds: float = 1.0
    is_asked_for: bool = False

    def has(self, variant: str) -> bool:
        """Return whether a launch of this variant is to be saved."""
        return self.variants is None or variant in self.variants


NO_SAVED_LAUNCHES = SavedLaunches()


@dataclass(frozen=True, slots=True)
class LaunchChoice:
    """Launches that one run keeps.

    They are the launches in ``launches`` of kernels whose names match the glob ``kernel``, at most ``max_launches`` (0:
    no limit) and ``max_bytes`` of buffers in each process; ``ctas`` says which CTAs of a launch record. ``replays``
    chooses the kernels to time by replay. With ``torch_trace``, each process also traces itself with
    ``torch.profiler``. With ``keep_launches``, a launch of each kernel is saved for the user. ``metrics`` are counted
    by the hardware when a saved launch is repeated.
    """

    launches: LaunchFilter = LAST
    kernel: str = "*"
    max_launches: int = 0
    max_bytes: int = 1 << 30
    replays: ReplayChoice = REPLAYS
    torch_trace: bool = False
    keep_launches: bool = False
    ctas: CtaChoice = EVERY_CTA
    metrics: tuple[str, ...] = ()


_WORDS = {"last": LAST, "first": LaunchFilter("first", stop=1), "all": LaunchFilter("all")}
_PART = re.compile(r"(?:^|:)([^:]*)")
# No program makes 10^18 launches.
_NUMBER = re.compile(r"[0-9]{1,18}")
_FORMS = "last, first, all, a number counted from 0, or a range such as 10:20 or 0:100:10"


def parse_launches(text: str) -> LaunchFilter:
    """Parse ``last``, ``first``, ``all``, ``N``, or a range ``A:B:STEP``.

    A range is like a Python slice: any part may be omitted. Raises ``KprofError`` for any other text, and for an empty
    range.
    """
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
    """Parse one part of a range; return None if it is empty."""
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
