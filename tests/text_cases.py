"""Files of cases as plain text: a line ``=== NAME`` begins one, and its reader explains the lines that follow."""

from __future__ import annotations

import re
from pathlib import Path


def cases_in(path: Path) -> dict[str, str]:
    """Return each case's lines by its name, without empty ones at its ends. In a case, the line ``*NAME`` stands for
    what is below ``*** NAME``, before the first case."""
    head, *cases = f"\n{path.read_bytes().decode()}".split("\n=== ")
    before, *shared = head.split("\n*** ")
    assert not before.strip(), f"{path} begins with no case"
    scenes = {name: lines.strip("\n") for name, _, lines in (scene.partition("\n") for scene in shared)}
    named = [case.partition("\n") for case in cases]
    assert len({name for name, _, _ in named}) == len(named), f"two cases of {path} have one name"
    return {
        name: re.sub(r"^\*(\w+)$", lambda found: scenes[found[1]], lines.strip("\n"), flags=re.MULTILINE) + "\n"
        for name, _, lines in named
    }


def facts_in(path: Path) -> dict[str, tuple[str, list[str]]]:
    """Return each case's text and the facts after it, one a line after ``> ``, by its name. ``# `` begins a comment."""
    found = {}
    for name, case in cases_in(path).items():
        lines = [line for line in case.splitlines() if line and not line.startswith("# ")]
        text = [line for line in lines if not line.startswith("> ")]
        found[name] = "\n".join(text), [line[2:] for line in lines if line.startswith("> ")]
    return found
