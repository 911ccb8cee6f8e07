"""How failures are told in a line."""

from __future__ import annotations


def fault_of(error: Exception) -> str:
    """A failure that is ours, and that the program does not see."""
    return f"a fault of kprof-inject's own: {type(error).__name__}: {first_line(error)}"


def first_line(error: Exception) -> str:
    """What an error says first: torch's go on with advice."""
    return (str(error).splitlines() or [type(error).__name__])[0]
