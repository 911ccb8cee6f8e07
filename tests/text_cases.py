"""Files of cases as plain text: a line ``=== NAME`` begins one, and its reader explains the lines that follow."""

from __future__ import annotations

from pathlib import Path


def cases_in(path: Path) -> dict[str, str]:
    """Return each case's lines by its name, without empty ones at its ends."""
    head, *cases = f"\n{path.read_bytes().decode()}".split("\n=== ")
    assert not head.strip(), f"{path} begins with no case"
    named = [case.partition("\n") for case in cases]
    assert len({name for name, _, _ in named}) == len(named), f"two cases of {path} have one name"
    return {name: lines.strip("\n") + "\n" for name, _, lines in named}
