"""Choose which captures of a watched program to keep, so that they fit on the disk and reach far back."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec import Struct


class KeptCapture(Struct, frozen=True):
    """A capture on disk."""

    name: str
    time_s: float
    size_bytes: int


def captures_to_drop(
    captures: Sequence[KeptCapture], max_bytes: int, needed: Collection[str], now_s: float
) -> list[str]:
    """Return the names of the captures to remove so that the others take at most ``max_bytes``.

    Those that are ``needed`` stay, as does the latest. Of the others, the one goes first whose neighbours are closest
    in time relative to its age: what remains gets sparser with its age, and reaches back to the first capture.
    """
    kept = sorted(captures, key=lambda capture: capture.time_s)
    dropped: list[str] = []
    while sum(capture.size_bytes for capture in kept) > max_bytes:
        gaps = [
            ((after.time_s - before.time_s) / max(now_s - capture.time_s, 1e-9), capture)
            for before, capture, after in zip(kept, kept[1:], kept[2:], strict=False)
            if capture.name not in needed
        ]
        others = [capture for capture in kept[:-1] if capture.name not in needed]
        if not others:
            break
        drop = min(gaps, key=lambda gap: gap[0])[1] if gaps else others[0]
        kept.remove(drop)
        dropped.append(drop.name)
    return dropped
