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


def facts_in(path: Path) -> dict[str, tuple[str, list[str]]]:
    """Return each case's text and the facts after it, one a line after ``> ``, by its name. ``# `` begins a comment."""
    found = {}
    for name, case in cases_in(path).items():
        lines = [line for line in case.splitlines() if line and not line.startswith("# ")]
        text = [line for line in lines if not line.startswith("> ")]
        found[name] = "\n".join(text), [line[2:] for line in lines if line.startswith("> ")]
    return found
